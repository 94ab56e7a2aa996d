// The network that refines decoded images, in 8-bit integers.
//
//   pixels ─4 x 4─▶ begin ─▶ down ─▶ coarser ─▶ middle ─▶ finer ─▶ + ─▶ up ─▶ end ─4 x 4─▶ correction
//                              └──────────────────────────────────┘
//
// Weights are int8; what a convolution reads is quantized to uint8, with a scale and a zero point for each channel.
// Sums of products are exact and floats are rounded in one order of operations, so all kernels agree on every bit. Only
// what residual blocks add to is float: the outputs of first convolutions are bytes at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "int8_projection.hpp"  // has_dot_products
#include "parallel.hpp"
#include "simd.hpp"

namespace nestcode {

constexpr std::size_t kLanes = 16;         // outputs of a block of weights
constexpr std::size_t kMostInputs = 4096;  // of a convolution, so that sums fit 32 bits
constexpr std::size_t kUnshuffle = 4;      // pixels on a side that make the features of a position

// Sums of products of pixels: weights are (taps, groups of 4 inputs, blocks, 16 outputs, 4).
struct SumTask {
    const std::uint8_t* in;      // the first pixel
    std::size_t pixel;           // bytes from one pixel to the next
    const std::ptrdiff_t* taps;  // bytes from a pixel to its inputs
    std::size_t tap_count, groups;
    const std::int8_t* weights;
    std::int32_t* sums;  // (pixels, stride)
    std::size_t stride;
};

// What becomes of the sums of a row's pixels: bytes, or floats that may be added to others and are then quantized.
struct FinishTask {
    const std::int32_t* sums;  // (pixels, outputs)
    std::size_t pixels, outputs;
    const float *scales, *biases;  // (outputs), (period, outputs)
    std::size_t period;            // of the biases, in pixels
    std::size_t step;              // from one pixel to the next in what is written
    float* hidden;                 // null for bytes at once
    bool add;                      // to what is there
    std::uint8_t* bytes;           // null if nothing reads them
    const float *inverse, *zeros;  // of what reads them
};

// A value for each output of a block, by the compiler's vector extension: its own code for each instruction set.
using Floats = float __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
using Ints = std::int32_t __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
using Bytes = std::uint8_t __attribute__((vector_size(kLanes), aligned(1), may_alias));

inline __attribute__((always_inline)) void finish_row(const FinishTask& task) {
    const auto floats = [](const float* from) __attribute__((always_inline)) -> const Floats& {
        return *reinterpret_cast<const Floats*>(from);
    };
    const auto write = [](Floats values, std::uint8_t* to) __attribute__((always_inline)) {  // rounded down
        values = values > 0 ? values : Floats{};
        values = values < 255 ? values : Floats{} + 255;
        *reinterpret_cast<Bytes*>(to) = __builtin_convertvector(__builtin_convertvector(values, Ints), Bytes);
    };
    for (std::size_t x = 0; x < task.pixels; ++x) {
        const float* biases = task.biases + x % task.period * task.outputs;
        for (std::size_t o = 0; o < task.outputs; o += kLanes) {
            const Ints sums = *reinterpret_cast<const Ints*>(task.sums + x * task.outputs + o);
            Floats values = __builtin_convertvector(sums, Floats) * floats(task.scales + o) + floats(biases + o);
            if (task.hidden != nullptr) {
                float* hidden = task.hidden + x * task.step + o;
                if (task.add) values += floats(hidden);
                *reinterpret_cast<Floats*>(hidden) = values;
                if (task.bytes == nullptr) continue;
                values = values * floats(task.inverse + o) + floats(task.zeros + o);
            }
            write(values, task.bytes + x * task.step + o);
        }
    }
}

// Calls a kernel for `AtOnce` pixels as often as they fit, then for one at a time.
template <std::size_t AtOnce, class Many, class One>
inline void each_pixel(SumTask task, std::size_t pixels, Many many, One one) {
    const auto advance = [&](std::size_t count) {
        task.in += count * task.pixel;
        task.sums += count * task.stride;
    };
    for (; pixels >= AtOnce; pixels -= AtOnce, advance(AtOnce)) many(task);
    for (; pixels > 0; --pixels, advance(1)) one(task);
}

struct RestorationKernels {
    bool packed;  // weights, or as they are given
    void (*sum)(const SumTask&, std::size_t blocks, std::size_t pixels);
    void (*finish)(const FinishTask&);
};

inline void sum_portable(const SumTask& task, std::size_t blocks, std::size_t pixels) {
    const std::size_t inputs = 4 * task.groups;
    for (std::size_t p = 0; p < pixels; ++p)
        for (std::size_t o = 0; o < blocks * kLanes; ++o) {
            std::int32_t sum = 0;
            for (std::size_t t = 0; t < task.tap_count; ++t) {
                const std::uint8_t* in = task.in + task.taps[t] + p * task.pixel;
                const std::int8_t* weights = task.weights + (o * task.tap_count + t) * inputs;
                for (std::size_t i = 0; i < inputs; ++i) sum += weights[i] * in[i];
            }
            task.sums[p * task.stride + o] = sum;
        }
}

inline void finish_portable(const FinishTask& task) {
    finish_row(task);
}

#if NESTCODE_DOT_PRODUCTS
template <std::size_t Pixels>
NESTCODE_DOT_PRODUCT_TARGET inline void sum_neon_of(const SumTask& task, std::size_t blocks) {
    int32x4_t sums[Pixels][kLanes / 4] = {}, excess[kLanes / 4] = {};
    const int8x16_t top = vdupq_n_s8(-128);
    const std::int8_t* weights = task.weights;
    for (std::size_t t = 0; t < task.tap_count; ++t) {
        const std::uint8_t* in = task.in + task.taps[t];
        for (std::size_t g = 0; g < task.groups; ++g, in += 4, weights += blocks * 4 * kLanes)
            for (std::size_t q = 0; q < kLanes / 4; ++q) {
                const int8x16_t own = vld1q_s8(weights + 16 * q);
                excess[q] = vdotq_s32(excess[q], own, top);
                for (std::size_t p = 0; p < Pixels; ++p) {  // the multiplication takes signed values: 128 less
                    std::int32_t four;
                    std::memcpy(&four, in + p * task.pixel, 4);
                    const int8x16_t values = veorq_s8(vreinterpretq_s8_s32(vdupq_n_s32(four)), top);
                    sums[p][q] = vdotq_s32(sums[p][q], own, values);
                }
            }
    }
    for (std::size_t p = 0; p < Pixels; ++p)
        for (std::size_t q = 0; q < kLanes / 4; ++q)
            vst1q_s32(task.sums + p * task.stride + 4 * q, vsubq_s32(sums[p][q], excess[q]));
}

inline void sum_neon(const SumTask& task, std::size_t blocks, std::size_t pixels) {
    SumTask own = task;
    for (std::size_t b = 0; b < blocks; ++b, own.weights += 4 * kLanes, own.sums += kLanes)
        each_pixel<4>(
            own, pixels, [&](const SumTask& some) { sum_neon_of<4>(some, blocks); },
            [&](const SumTask& some) { sum_neon_of<1>(some, blocks); });
}
#endif

#if NESTCODE_X86
template <std::size_t Pixels>
NESTCODE_AVX2_UNFUSED inline void sum_avx2_of(const SumTask& task, std::size_t blocks) {
    __m256i sums[Pixels][kLanes / 4];  // two for each of four outputs
    for (auto& some : sums)
        for (__m256i& one : some) one = _mm256_setzero_si256();
    const std::int8_t* weights = task.weights;
    for (std::size_t t = 0; t < task.tap_count; ++t) {
        const std::uint8_t* in = task.in + task.taps[t];
        for (std::size_t g = 0; g < task.groups; ++g, in += 4, weights += blocks * 4 * kLanes) {
            __m256i values[Pixels];
            for (std::size_t p = 0; p < Pixels; ++p) {
                int four;
                std::memcpy(&four, in + p * task.pixel, 4);
                values[p] = _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
            }
            for (std::size_t q = 0; q < kLanes / 4; ++q) {
                const auto* from = reinterpret_cast<const __m128i*>(weights + 16 * q);
                const __m256i own = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
                for (std::size_t p = 0; p < Pixels; ++p)
                    sums[p][q] = _mm256_add_epi32(sums[p][q], _mm256_madd_epi16(values[p], own));
            }
        }
    }
    for (std::size_t p = 0; p < Pixels; ++p)
        for (std::size_t q = 0; q < kLanes / 4; ++q) {
            const __m256i pairs = _mm256_hadd_epi32(sums[p][q], sums[p][q]);
            const __m128i four = _mm_unpacklo_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(task.sums + p * task.stride + 4 * q), four);
        }
}

inline void sum_avx2(const SumTask& task, std::size_t blocks, std::size_t pixels) {
    SumTask own = task;
    for (std::size_t b = 0; b < blocks; ++b, own.weights += 4 * kLanes, own.sums += kLanes)
        each_pixel<3>(
            own, pixels, [&](const SumTask& some) { sum_avx2_of<3>(some, blocks); },
            [&](const SumTask& some) { sum_avx2_of<1>(some, blocks); });
}

NESTCODE_AVX2_UNFUSED inline void finish_avx2(const FinishTask& task) {
    finish_row(task);
}

template <std::size_t Blocks, std::size_t Pixels>
NESTCODE_AVX512_VNNI inline void sum_vnni_of(const SumTask& task) {
    __m512i sums[Pixels][Blocks];
    for (auto& some : sums)
        for (__m512i& one : some) one = _mm512_setzero_si512();
    const std::int8_t* weights = task.weights;
    for (std::size_t t = 0; t < task.tap_count; ++t) {
        const std::uint8_t* in = task.in + task.taps[t];
        for (std::size_t g = 0; g < task.groups; ++g, in += 4, weights += Blocks * 4 * kLanes) {
            __m512i own[Blocks];
            for (std::size_t b = 0; b < Blocks; ++b) own[b] = _mm512_loadu_si512(weights + b * 4 * kLanes);
            for (std::size_t p = 0; p < Pixels; ++p) {
                int four;
                std::memcpy(&four, in + p * task.pixel, 4);
                const __m512i values = _mm512_set1_epi32(four);
                for (std::size_t b = 0; b < Blocks; ++b) sums[p][b] = _mm512_dpbusd_epi32(sums[p][b], values, own[b]);
            }
        }
    }
    for (std::size_t p = 0; p < Pixels; ++p)
        for (std::size_t b = 0; b < Blocks; ++b)
            _mm512_storeu_si512(task.sums + p * task.stride + b * kLanes, sums[p][b]);
}

inline void sum_vnni(const SumTask& task, std::size_t blocks, std::size_t pixels) {
    if (blocks == 1) return each_pixel<12>(task, pixels, sum_vnni_of<1, 12>, sum_vnni_of<1, 1>);
    if (blocks == 2) return each_pixel<12>(task, pixels, sum_vnni_of<2, 12>, sum_vnni_of<2, 1>);
    each_pixel<8>(task, pixels, sum_vnni_of<3, 8>, sum_vnni_of<3, 1>);
}

NESTCODE_AVX512 inline void finish_avx512(const FinishTask& task) {
    finish_row(task);
}
#endif

inline RestorationKernels restoration_kernels(Simd simd) {
#if NESTCODE_DOT_PRODUCTS
    if (simd == Simd::neon && has_dot_products()) return {true, sum_neon, finish_portable};
#endif
#if NESTCODE_X86
    if (simd == Simd::avx512 && x86_features().avx512_vnni) return {true, sum_vnni, finish_avx512};
    if (simd == Simd::avx2 || simd == Simd::avx512) return {true, sum_avx2, finish_avx2};
#endif
    static_cast<void>(simd);
    return {false, sum_portable, finish_portable};
}

// Quantized features with a frame of one position on each side.
struct Features {
    std::size_t rows, columns, channels;
    std::vector<std::uint8_t> bytes;

    Features(std::size_t height, std::size_t width, std::size_t count)
        : rows(height), columns(width), channels(count), bytes((height + 2) * (width + 2) * count) {}

    std::size_t stride() const { return (columns + 2) * channels; }
    std::uint8_t* at(std::size_t row) { return bytes.data() + (row + 1) * stride() + channels; }

    // Sets the frame to what stands for 0.
    void frame(const std::uint8_t* zeros) {
        const auto fill = [&](std::uint8_t* place, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) std::copy_n(zeros, channels, place + i * channels);
        };
        fill(bytes.data(), columns + 2);
        fill(bytes.data() + (rows + 1) * stride(), columns + 2);
        for (std::size_t row = 0; row < rows; ++row) {
            fill(at(row) - channels, 1);
            fill(at(row) + columns * channels, 1);
        }
    }
};

// A convolution of 1 x 1, 2 x 2 with stride 2, or 3 x 3, whose weights are (outputs, taps, inputs).
class Convolution {
  public:
    std::size_t outputs, taps, inputs;
    std::vector<float> inverse, zeros;      // (inputs) by which floats become bytes: x · inverse + zero, rounded down
    std::vector<std::uint8_t> zero_points;  // (inputs)

    Convolution(const std::int8_t* weights, std::size_t outputs_, std::size_t taps_, std::size_t inputs_,
                const float* inverse_, const std::uint8_t* zero_points_, const RestorationKernels& kernels)
        : outputs(outputs_),
          taps(taps_),
          inputs(inputs_),
          inverse(inverse_, inverse_ + inputs_),
          zero_points(zero_points_, zero_points_ + inputs_),
          kernels_(kernels),
          weights_(weights, weights + outputs_ * taps_ * inputs_) {
        if (outputs % kLanes != 0 || inputs % 4 != 0 || inputs > kMostInputs || (taps != 1 && taps != 4 && taps != 9))
            throw std::invalid_argument(
                "a convolution must have 16n outputs, 4n inputs up to 4,096, and 1, 4 or 9 taps");
        for (const std::uint8_t zero : zero_points) zeros.push_back(static_cast<float>(zero) + 0.5f);
        if (!kernels.packed) return;
        std::int8_t* to = weights_.data();
        for (std::size_t first = 0; first < outputs / kLanes; first += blocks_at(first))
            for (std::size_t t = 0; t < taps; ++t)
                for (std::size_t i = 0; i < inputs; i += 4)
                    for (std::size_t o = first * kLanes; o < (first + blocks_at(first)) * kLanes; ++o, to += 4)
                        std::copy_n(weights + (o * taps + t) * inputs + i, 4, to);
    }

    // Writes the sums of a row's outputs, (columns, outputs).
    void sum(Features& in, std::size_t row, std::size_t columns, std::int32_t* sums) const {
        const std::size_t stride = taps == 4 ? 2 : 1;
        std::array<std::ptrdiff_t, 9> offsets{};
        for (std::size_t t = 0; t < taps; ++t) {
            const auto side = static_cast<std::ptrdiff_t>(taps == 9 ? 3 : taps == 4 ? 2 : 1);
            const std::ptrdiff_t y = static_cast<std::ptrdiff_t>(t) / side - side / 3;
            const std::ptrdiff_t x = static_cast<std::ptrdiff_t>(t) % side - side / 3;
            offsets[t] = y * static_cast<std::ptrdiff_t>(in.stride()) + x * static_cast<std::ptrdiff_t>(inputs);
        }
        const std::int8_t* weights = weights_.data();
        for (std::size_t first = 0; first < outputs / kLanes;) {
            const std::size_t blocks = blocks_at(first);
            kernels_.sum({in.at(stride * row), stride * inputs, offsets.data(), taps, inputs / 4, weights,
                          sums + first * kLanes, outputs},
                         blocks, columns);
            weights += blocks * kLanes * taps * inputs;
            first += blocks;
        }
    }

    void finish(const FinishTask& task) const { kernels_.finish(task); }

  private:
    RestorationKernels kernels_;
    std::vector<std::int8_t> weights_;

    // Blocks of outputs that are computed together: their weights stay in the first cache.
    std::size_t blocks_at(std::size_t first) const {
        const std::size_t left = outputs / kLanes - first;
        return left == 4 ? 2 : std::min<std::size_t>(left, 3);
    }
};

// An image as it is, transposed, or turned by 180 degrees, or both: where its pixels lie, in pixels.
struct ImageView {
    std::size_t height, width;
    std::ptrdiff_t first, row, column;

    ImageView(std::size_t rows, std::size_t columns, bool transposed, bool turned)
        : height(transposed ? columns : rows), width(transposed ? rows : columns) {
        const auto step = static_cast<std::ptrdiff_t>(columns), sign = static_cast<std::ptrdiff_t>(turned ? -1 : 1);
        first = turned ? static_cast<std::ptrdiff_t>(rows * columns) - 1 : 0;
        row = sign * (transposed ? 1 : step);
        column = sign * (transposed ? step : 1);
    }

    std::ptrdiff_t at(std::size_t y, std::size_t x) const {
        return first + static_cast<std::ptrdiff_t>(y) * row + static_cast<std::ptrdiff_t>(x) * column;
    }
};

// The network. Its convolutions are, in order: begin, two for each block of down, coarser, two for each block of
// middle, four for the corners of finer, two for each block of up, and end.
class RestorationNetwork {
  public:
    const std::vector<Convolution> layers;

    RestorationNetwork(std::array<std::size_t, 3> blocks, std::vector<Convolution> convolutions)
        : layers(std::move(convolutions)), blocks_(blocks) {
        constexpr std::size_t kPixels = 3 * kUnshuffle * kUnshuffle;
        if (layers.size() < 7) throw std::invalid_argument("a network must have all of its convolutions");
        std::size_t next = 0;
        const std::size_t fine = layers[0].outputs,
                          coarse = layers.size() > 1 + 2 * blocks[0] ? layers[1 + 2 * blocks[0]].outputs : 0;
        const auto expect = [&](std::size_t outputs, std::size_t taps, std::size_t inputs, std::size_t count = 1) {
            for (std::size_t i = 0; i < count; ++i, ++next)
                if (next >= layers.size() || layers[next].outputs != outputs || layers[next].taps != taps ||
                    layers[next].inputs != inputs)
                    throw std::invalid_argument("convolutions must fit each other");
        };
        expect(fine, 9, kPixels);
        expect(fine, 9, fine, 2 * blocks[0]);
        expect(coarse, 4, fine);
        expect(coarse, 9, coarse, 2 * blocks[1]);
        expect(fine, 1, coarse, 4);
        expect(fine, 9, fine, 2 * blocks[2]);
        expect(kPixels, 9, fine);
        if (next != layers.size()) throw std::invalid_argument("a network must have no other convolutions");
    }

    // Biases of all outputs, those of begin by places.
    std::size_t scale_count() const {
        std::size_t count = 0;
        for (const Convolution& layer : layers) count += layer.outputs;
        return count;
    }
    std::size_t bias_count() const { return scale_count() + (kUnshuffle * kUnshuffle - 1) * layers[0].outputs; }

    // Writes the correction of the pixels of a view, whose sides are multiples of 8. Scales and biases are those of all
    // outputs of all layers; the biases of begin are (4, 4, outputs) by places.
    void correct(const std::uint8_t* pixels, const ImageView& view, const float* scales, const float* biases,
                 float* out, std::size_t threads) const {
        const std::size_t rows = view.height / kUnshuffle, columns = view.width / kUnshuffle;
        const std::size_t fine = layers[0].outputs, coarse = layers[1 + 2 * blocks_[0]].outputs;
        Features first(rows, columns, layers[0].inputs), a(rows, columns, fine), b(rows, columns, fine);
        Features c(rows / 2, columns / 2, coarse), d(rows / 2, columns / 2, coarse);
        std::vector<float> large(rows * columns * fine), small(rows / 2 * (columns / 2) * coarse);
        std::size_t layer = 0;

        const auto run = [&](Features& in, Features* to, float* hidden, bool add, std::size_t corner = 4) {
            const Convolution& own = layers[layer];
            const bool whole = corner == 4;  // else every second row and column
            const std::size_t step = whole ? 1 : 2, period = layer == 0 ? 4 : 1;
            const std::size_t width_in = (to == nullptr ? columns : to->columns) / step;
            const std::size_t height_in = (to == nullptr ? rows : to->rows) / step;
            const bool last = to == nullptr;
            const Convolution* reader = last ? nullptr : &layers[layer + (whole ? 1 : 4 - corner)];
            if (!last && (whole || corner == 0)) to->frame(reader->zero_points.data());
            parallel_for(height_in, 4, threads, [&](std::size_t begin, std::size_t end) {
                std::vector<std::int32_t> sums(width_in * own.outputs);
                std::vector<float> values(last ? width_in * own.outputs : 0);
                for (std::size_t row = begin; row < end; ++row) {
                    own.sum(in, row, width_in, sums.data());
                    FinishTask task{};
                    task.sums = sums.data(), task.pixels = width_in, task.outputs = own.outputs;
                    task.scales = scales, task.biases = biases + row % period * period * own.outputs;
                    task.period = period, task.step = step * own.outputs, task.add = add;
                    const std::size_t y = step * row + (whole ? 0 : corner / 2), x = whole ? 0 : corner % 2;
                    if (last) {
                        task.hidden = values.data();
                    } else {
                        task.bytes = to->at(y) + x * own.outputs;
                        task.inverse = reader->inverse.data(), task.zeros = reader->zeros.data();
                        if (hidden != nullptr) task.hidden = hidden + (y * to->columns + x) * own.outputs;
                    }
                    own.finish(task);
                    if (last) scatter(values.data(), out, view, row);
                }
            });
            scales += own.outputs;
            biases += period * period * own.outputs;
            ++layer;
        };
        const auto residual = [&](std::size_t count, Features& in, Features& between, float* hidden) {
            for (std::size_t block = 0; block < count; ++block) {
                run(in, &between, nullptr, false);
                run(between, &in, hidden, true);
            }
        };

        gather(pixels, view, first);
        first.frame(layers[0].zero_points.data());
        run(first, &a, large.data(), false);
        residual(blocks_[0], a, b, large.data());
        run(a, &c, small.data(), false);
        residual(blocks_[1], c, d, small.data());
        for (std::size_t corner = 0; corner < 4; ++corner) run(c, &a, large.data(), true, corner);
        residual(blocks_[2], a, b, large.data());
        run(a, nullptr, nullptr, false);
    }

  private:
    std::array<std::size_t, 3> blocks_;  // of down, middle and up

    // Makes a position's features of 4 x 4 pixels, row by row.
    static void gather(const std::uint8_t* pixels, const ImageView& view, Features& to) {
        for (std::size_t y = 0; y < view.height; ++y)
            for (std::size_t x = 0; x < view.width; ++x)
                std::copy_n(pixels + 3 * view.at(y, x), 3,
                            to.at(y / kUnshuffle) + x / kUnshuffle * to.channels +
                                3 * (y % kUnshuffle * kUnshuffle + x % kUnshuffle));
    }

    // Makes four rows of pixels of a row of positions.
    static void scatter(const float* values, float* out, const ImageView& view, std::size_t row) {
        for (std::size_t y = 0; y < kUnshuffle; ++y)
            for (std::size_t x = 0; x < view.width; ++x)
                std::copy_n(values + 3 * ((x / kUnshuffle * kUnshuffle + y) * kUnshuffle + x % kUnshuffle), 3,
                            out + 3 * view.at(kUnshuffle * row + y, x));
    }
};

}  // namespace nestcode
