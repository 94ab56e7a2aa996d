// Pixels of an image from the bits known of its transform coefficients.
//
//     bits ──midpoints──▶ coefficients ──inverse lapped transform──▶ channels ──filter, inverse colors──▶ pixels
//
// The inverse of src/nestcode/images/lapped_dct.py and color.py, one row of blocks at a time, so that the channels of
// the whole image are never in memory. Floating point, in one order of operations: compiled with -ffp-contract=off and
// without -ffast-math, every machine returns the same pixels. Vectorization does not change them, since no sum runs
// across lanes; tables are evaluated at compile time.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "image_bitplanes.hpp"
#include "image_filter.hpp"
#include "vectors.hpp"

namespace nestcode {

inline constexpr int kOverlap = 6, kDcOverlap = 2;  // values on each side of a border that the filters mix
inline constexpr float kGray = 128, kOpaque = 255;  // the values that color and alpha channels are centered on
inline constexpr float kUnfiltered = 4;             // the step at which pixels are not filtered: the pretrained codec's
// Pixel values of 8 or 16 bits, relative to values from 0 to 255.
template <class Pixel>
inline constexpr float kScale = std::numeric_limits<Pixel>::max() / 255;

namespace tables {
template <class Scalar, std::size_t kRows, std::size_t kColumns = kRows>
using Matrix = std::array<std::array<Scalar, kColumns>, kRows>;

constexpr double square_root(double value) {
    double root = value < 1 ? 1 : value;
    for (int i = 0; i < 100; ++i) root = (root + value / root) / 2;
    return root;
}
// cos(pi numerator / denominator).
constexpr double cosine(int numerator, int denominator) {
    numerator %= 2 * denominator;
    if (numerator > denominator) numerator = 2 * denominator - numerator;
    const bool obtuse = 2 * numerator > denominator;
    if (obtuse) numerator = denominator - numerator;
    const double angle = 3.14159265358979323846 * numerator / denominator;
    double term = 1, sum = 1;
    for (int i = 2; i < 30; i += 2) sum += term *= -angle * angle / (i * (i - 1));
    return obtuse ? -sum : sum;
}
// An orthonormal DCT of type II or IV, basis functions as rows.
template <std::size_t kSize>
constexpr Matrix<double, kSize> make_dct(int type) {
    Matrix<double, kSize> dct{};
    constexpr int size = static_cast<int>(kSize);
    for (int k = 0; k < size; ++k)
        for (int i = 0; i < size; ++i)
            dct[static_cast<std::size_t>(k)][static_cast<std::size_t>(i)] =
                type == 2 ? square_root((k ? 2.0 : 1.0) / size) * cosine(k * (2 * i + 1), 2 * size)
                          : square_root(2.0 / size) * cosine((2 * k + 1) * (2 * i + 1), 4 * size);
    return dct;
}
// What the post-filter multiplies the odd part by, the inverse of the pre-filter's V = J C_II' S C_IV J:
// J C_IV' S^-1 C_II J, where S scales the lowest basis function by 1.5.
template <std::size_t kSize>
constexpr Matrix<double, kSize> make_postfilter() {
    const auto second = make_dct<kSize>(2), fourth = make_dct<kSize>(4);
    Matrix<double, kSize> filter{};
    for (std::size_t i = 0; i < kSize; ++i)
        for (std::size_t j = 0; j < kSize; ++j)
            for (std::size_t k = 0; k < kSize; ++k)
                filter[kSize - 1 - i][kSize - 1 - j] += fourth[k][i] * second[k][j] / (k ? 1.0 : 1.5);
    return filter;
}
template <class Scalar, std::size_t kSize>
constexpr Matrix<Scalar, kSize> rounded(const Matrix<double, kSize>& matrix) {
    Matrix<Scalar, kSize> out{};
    for (std::size_t i = 0; i < kSize; ++i)
        for (std::size_t j = 0; j < kSize; ++j) out[i][j] = static_cast<Scalar>(matrix[i][j]);
    return out;
}
inline constexpr auto kDct = rounded<float>(make_dct<kBlock>(2));
template <class Scalar, std::size_t kSize>
inline constexpr auto kPostfilter = rounded<Scalar>(make_postfilter<kSize>());
template <std::size_t kSize>
inline constexpr auto kDcDct = make_dct<kSize>(2);

// The inverse transform at a reduced scale, along one axis: from the lowest `kSide` frequencies of a block to the means
// of as many groups of its pixels. `kMeans` are those before the post-filter. What the filter adds to the means before
// a border, and subtracts from those behind it, is `kBorder` times the coefficients of the block before, of which odd
// basis functions are negated, minus those of the block behind.
template <std::size_t kSide>
struct Scaled {
    static constexpr std::size_t kGroup = kBlock / kSide, kFiltered = (kOverlap + kGroup - 1) / kGroup;
    static constexpr auto kMeans = [] {  // by frequency
        Matrix<double, kSide> means{};
        const auto dct = make_dct<kBlock>(2);
        for (std::size_t k = 0; k < kSide; ++k)
            for (std::size_t i = 0; i < kBlock; ++i) means[k][i / kGroup] += dct[k][i] / kGroup;
        return rounded<float>(means);
    }();
    static constexpr auto kBorder = [] {
        Matrix<float, kFiltered, kSide> border{};
        const auto dct = make_dct<kBlock>(2);
        const auto filter = make_postfilter<kOverlap>();
        for (std::size_t k = 0; k < kSide; ++k) {
            std::array<double, kFiltered> sums{};
            for (std::size_t i = 0; i < kOverlap; ++i)
                for (std::size_t j = 0; j < kOverlap; ++j)
                    sums[i / kGroup] += 0.5 * (filter[i][j] - (i == j)) * dct[k][j] / kGroup;
            for (std::size_t g = 0; g < kFiltered; ++g) border[g][k] = static_cast<float>(sums[g]);
        }
        return border;
    }();
};
// Ohta's opponent colors, orthonormal.
inline constexpr Matrix<double, 3> kOhta = {{{1 / square_root(3), 1 / square_root(3), 1 / square_root(3)},
                                             {1 / square_root(2), 0, -1 / square_root(2)},
                                             {-1 / square_root(6), 2 / square_root(6), -1 / square_root(6)}}};
}  // namespace tables

// Channels as directions of red, green and blue.
using ColorMatrix = tables::Matrix<float, 3>;

// Ohta's channels, rotated by the quaternion whose imaginary parts are three signed bytes over 127.
inline ColorMatrix color_matrix(const std::array<std::int8_t, kRotationBytes>& rotation) {
    const double x = rotation[0] / 127.0, y = rotation[1] / 127.0, z = rotation[2] / 127.0;
    const double square = x * x + y * y + z * z, scale = std::max(1.0, std::sqrt(square));
    const double w = std::sqrt(1 - std::min(square, 1.0)), a = x / scale, b = y / scale, c = z / scale;
    const tables::Matrix<double, 3> turn = {{{1 - 2 * (b * b + c * c), 2 * (a * b - w * c), 2 * (a * c + w * b)},
                                             {2 * (a * b + w * c), 1 - 2 * (a * a + c * c), 2 * (b * c - w * a)},
                                             {2 * (a * c - w * b), 2 * (b * c + w * a), 1 - 2 * (a * a + b * b)}}};
    ColorMatrix colors{};
    for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 3; ++j)
            colors[i][j] = static_cast<float>(turn[i][0] * tables::kOhta[0][j] + turn[i][1] * tables::kOhta[1][j] +
                                              turn[i][2] * tables::kOhta[2][j]);
    return colors;
}

// Values of a line of a block, in registers of `kBytes`: the compiler's vector extension, as its own vectorization of
// these loops fails. All that takes or returns them is inlined into functions for an instruction set.
template <std::size_t kCount, std::size_t kBytes>
struct BasicLanes {
    using Register = typename Vector<kBytes>::Floats;
    static constexpr std::size_t kRegisters = kCount * sizeof(float) / kBytes;
    Register at[kRegisters];

    NESTCODE_INLINE static BasicLanes load(const float* from) {
        BasicLanes lanes;
        for (std::size_t i = 0; i < kRegisters; ++i)
            lanes.at[i] = load_vector<Register>(from + i * kCount / kRegisters);
        return lanes;
    }
    NESTCODE_INLINE void store(float* to) const {
        for (std::size_t i = 0; i < kRegisters; ++i) store_vector(at[i], to + i * kCount / kRegisters);
    }
    NESTCODE_INLINE BasicLanes reversed() const {
        BasicLanes lanes;
        for (std::size_t i = 0; i < kRegisters; ++i) {
            const Register& one = at[kRegisters - 1 - i];
            if constexpr (kBytes == 16)
                lanes.at[i] = Register{one[3], one[2], one[1], one[0]};
            else
                lanes.at[i] = Register{one[7], one[6], one[5], one[4], one[3], one[2], one[1], one[0]};
        }
        return lanes;
    }
    NESTCODE_INLINE BasicLanes& operator+=(const BasicLanes& other) {
        for (std::size_t i = 0; i < kRegisters; ++i) at[i] += other.at[i];
        return *this;
    }
    NESTCODE_INLINE BasicLanes& operator-=(const BasicLanes& other) {
        for (std::size_t i = 0; i < kRegisters; ++i) at[i] -= other.at[i];
        return *this;
    }
    NESTCODE_INLINE BasicLanes& operator*=(float factor) {
        for (std::size_t i = 0; i < kRegisters; ++i) at[i] *= factor;
        return *this;
    }
    NESTCODE_INLINE friend BasicLanes operator+(BasicLanes left, const BasicLanes& right) { return left += right; }
    NESTCODE_INLINE friend BasicLanes operator-(BasicLanes left, const BasicLanes& right) { return left -= right; }
    NESTCODE_INLINE friend BasicLanes operator*(float factor, BasicLanes lanes) { return lanes *= factor; }
};
template <std::size_t kBytes>
using Lanes = BasicLanes<kBlock, kBytes>;
template <std::size_t kBytes>
using HalfLanes = BasicLanes<kBlock / 2, kBytes>;

// Applies the post-filter across a border to 2 `kSize` values, or to as many in each lane: even parts stay, odd parts
// are multiplied by a matrix.
template <class Scalar, std::size_t kSize, class Value>
NESTCODE_INLINE void postfilter(std::array<Value, 2 * kSize>& values) {
    const auto& matrix = tables::kPostfilter<Scalar, kSize>;
    std::array<Value, kSize> odd;
    for (std::size_t i = 0; i < kSize; ++i) odd[i] = values[kSize - 1 - i] - values[kSize + i];
    for (std::size_t i = 0; i < kSize; ++i) {
        Value &near = values[kSize - 1 - i], &far = values[kSize + i];
        Value sum = matrix[i][0] * odd[0];
        for (std::size_t j = 1; j < kSize; ++j) sum += matrix[i][j] * odd[j];
        const Value even = near + far;
        near = Scalar{0.5} * (even + sum);
        far = Scalar{0.5} * (even - sum);
    }
}
// The same for lines of pixels, `stride` apart, before and behind a border.
template <std::size_t kBytes>
NESTCODE_INLINE void postfilter_lines(float* before, float* behind, std::size_t stride) {
    std::array<Lanes<kBytes>, 2 * kOverlap> lines;
    const auto line = [&](std::size_t i) {
        return i < kOverlap ? before + i * stride : behind + (i - kOverlap) * stride;
    };
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i] = Lanes<kBytes>::load(line(i));
    postfilter<float, kOverlap>(lines);
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i].store(line(i));
}

// Inverts the DCT of one macroblock of `kSize` DC coefficients.
template <std::size_t kSize>
void inverse_dc_dct(double* first, std::size_t step) {
    std::array<double, kSize> sums{};
    for (std::size_t k = 0; k < kSize; ++k)
        for (std::size_t i = 0; i < kSize; ++i) sums[i] += tables::kDcDct<kSize>[k][i] * first[k * step];
    for (std::size_t i = 0; i < kSize; ++i) first[i * step] = sums[i];
}
// Inverts the second stage of the transform along one axis: of `lanes` sequences of `count` DC coefficients.
inline void inverse_dc_stage(double* dc, std::size_t count, std::size_t step, std::size_t lane, std::size_t lanes) {
    for (std::size_t l = 0; l < lanes; ++l)
        for (std::size_t first = 0; first < count; first += kMacroblock) {
            double* macroblock = dc + l * lane + first * step;
            switch (std::min<std::size_t>(kMacroblock, count - first)) {
                case 1: inverse_dc_dct<1>(macroblock, step); break;
                case 2: inverse_dc_dct<2>(macroblock, step); break;
                case 3: inverse_dc_dct<3>(macroblock, step); break;
                default: inverse_dc_dct<4>(macroblock, step);
            }
        }
    for (std::size_t border = kMacroblock; border + kDcOverlap <= count; border += kMacroblock)
        for (std::size_t l = 0; l < lanes; ++l) {
            double* first = dc + l * lane + (border - kDcOverlap) * step;
            std::array<double, 2 * kDcOverlap> values;
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = first[i * step];
            postfilter<double, kDcOverlap>(values);
            for (std::size_t i = 0; i < values.size(); ++i) first[i * step] = values[i];
        }
}

// A block of values, or of pixels by column: `column[x][y]`.
using Square = float[kBlock][kBlock];

// Inverts the DCT of a block of which only the first `rows` rows and `columns` columns are not zero, both even; pixels
// by column. Basis functions are even or odd, so that a product serves two pixels.
template <std::size_t kBytes>
NESTCODE_INLINE void inverse_dct(const Square& block, std::size_t rows, std::size_t columns, Square& pixels) {
    using Lines = Lanes<kBytes>;
    using Halves = HalfLanes<kBytes>;
    const auto& dct = tables::kDct;
    Square vertical;
    for (std::size_t j = 0; j < columns; ++j) {
        Halves first{}, mirrored{};
        for (std::size_t k = 0; k < rows; k += 2) {
            const Halves even = block[k][j] * Halves::load(dct[k].data());
            const Halves odd = block[k + 1][j] * Halves::load(dct[k + 1].data());
            first += even, mirrored += even;
            first += odd, mirrored -= odd;
        }
        first.store(vertical[j]);
        mirrored.reversed().store(vertical[j] + kBlock / 2);
    }
    for (std::size_t x = 0; x < kBlock / 2; ++x) {
        Lines first{}, mirrored{};
        for (std::size_t k = 0; k < columns; k += 2) {
            const Lines even = dct[k][x] * Lines::load(vertical[k]);
            const Lines odd = dct[k + 1][x] * Lines::load(vertical[k + 1]);
            first += even, mirrored += even;
            first += odd, mirrored -= odd;
        }
        first.store(pixels[x]);
        mirrored.store(pixels[kBlock - 1 - x]);
    }
}

// Estimates coefficients as `midpoint` does.
template <std::size_t kBytes>
NESTCODE_INLINE typename Vector<kBytes>::Floats midpoints(const typename Vector<kBytes>::Integers& known) {
    using Floats = typename Vector<kBytes>::Floats;
    const auto sign = known >> 31, doubled = (known ^ sign) - sign, interval = doubled & -doubled,
               low = (doubled - interval) >> 1;
    const Floats share = low == interval ? Floats{} + 0.4F : Floats{} + 0.48F;
    const Floats value = __builtin_convertvector(interval, Floats) * share + __builtin_convertvector(low, Floats);
    return known < 0 ? -value : value;
}

// The quantizer step that coding passes reached: it halves with every bit plane, and is `step` after all of them.
inline float reached_step(float step, float passes) {
    constexpr std::array<float, kPasses + 1> powers = {1, 1.259921F, 1.587401F, 2};  // of 2, linear between them
    const float left = std::max(static_cast<float>(kPasses * kMaxPlanes) - passes, 0.0F);
    const int whole = static_cast<int>(left), planes = whole / kPasses;
    const auto pass = static_cast<std::size_t>(whole % kPasses);
    const float power = powers[pass] + (left - static_cast<float>(whole)) * (powers[pass + 1] - powers[pass]);
    return step * static_cast<float>(1 << planes) * power;
}

// Reconstructs the pixels of an image from decoded values of its coefficients, (channels, rows, columns, 16, 16), of
// which planes down to `plane` are complete.
class ImageReconstruction {
  public:
    ImageReconstruction(const ImageShape& shape, const std::int32_t* known, int plane, float step,
                        const ImageStart& start)
        : shape_(shape),
          known_(known),
          bound_(static_cast<float>(1 << plane) / 2),
          step_(step),
          channels_(start.channels),
          colors_(color_matrix(start.rotation)) {
        for (std::size_t channel = 0; channel < shape.kinds.size(); ++channel) add_dc(channel);
    }

    // Writes pixels of 8 or 16 bits, (height, width, channels), filtered by the quantizer step that was reached; at
    // kUnfiltered and below they are not.
    template <class Pixel>
    void write(std::size_t height, std::size_t width, Pixel* pixels, float reached = kUnfiltered) const {
#if NESTCODE_X86
        if (choose_simd("") != Simd::portable) return write_avx2(height, width, pixels, reached);
#endif
        write_rows<16>(height, width, pixels, reached);
    }
    // The same with registers of so many bytes.
    template <std::size_t kBytes, class Pixel>
    NESTCODE_INLINE void write_rows(std::size_t height, std::size_t width, Pixel* pixels, float reached) const {
        const std::size_t channels = shape_.kinds.size(), stride = kBlock * shape_.columns, size = kBlock * stride;
        // Two rows of blocks of each channel: the filter across their border completes the upper one.
        std::vector<float> strips(channels * 2 * size);
        std::optional<ImageFilter> filter;
        if (reached > kUnfiltered) filter.emplace(make_filter(stride, reached));
        for (std::size_t row = 0; row <= shape_.rows; ++row) {
            float *upper = strips.data() + (row + 1) % 2 * size, *lower = strips.data() + row % 2 * size;
            for (std::size_t channel = 0; row < shape_.rows && channel < channels; ++channel) {
                float* own = lower + channel * 2 * size;
                invert<kBytes>(channel, row, own, stride);
                float* last = upper + channel * 2 * size + (kBlock - kOverlap) * stride;
                for (std::size_t x = 0; row > 0 && x < stride; x += kBlock)
                    postfilter_lines<kBytes>(last + x, own + x, stride);
            }
            if (row == 0) continue;
            if (filter) filter->template apply<kBytes>(upper, row < shape_.rows ? lower : nullptr, stride, 2 * size);
            const std::size_t top = (row - 1) * kBlock;
            for (std::size_t i = 0; i < kBlock && top + i < height; ++i)
                write_line<kBytes>(upper + i * stride, 2 * size, width, pixels + (top + i) * width * channels);
        }
    }

    // Writes the means of squares of kBlock / kSide pixels on a side, from the lowest kSide x kSide frequencies of each
    // block; squares that reach over an edge of the image count whole.
    template <std::size_t kSide, class Pixel>
    void write_scaled(std::size_t height, std::size_t width, Pixel* pixels) const {
        using Transform = tables::Scaled<kSide>;
        constexpr std::size_t group = Transform::kGroup;
        height = (height + group - 1) / group, width = (width + group - 1) / group;
        const std::size_t channels = shape_.kinds.size();
        const std::size_t stride = (kSide * shape_.columns + kBlock - 1) / kBlock * kBlock, size = kSide * stride;
        // Two rows of blocks of each channel: transformed along the rows, and along both axes.
        std::vector<float> strips(channels * 4 * size);
        for (std::size_t row = 0; row <= shape_.rows; ++row) {
            for (std::size_t channel = 0; channel < channels; ++channel) {
                float* above = strips.data() + channel * 4 * size;
                float *below = above + size, *upper = below + size, *lower = upper + size;
                std::copy(lower, lower + size, upper);
                std::copy(below, below + size, above);
                if (row == shape_.rows) continue;
                transform_rows<kSide>(channel, row, below, stride);
                std::fill(lower, lower + size, 0.0F);
                for (std::size_t k = 0; k < kSide; ++k)
                    for (std::size_t i = 0; i < kSide; ++i)
                        add_line(Transform::kMeans[k][i], below + k * stride, lower + i * stride, stride);
                for (std::size_t g = 0; row > 0 && g < Transform::kFiltered; ++g)
                    for (std::size_t k = 0; k < kSide; ++k) {
                        const float factor = Transform::kBorder[g][k], before = k % 2 ? -factor : factor;
                        for (float sign : {1.0F, -1.0F}) {
                            float* line = sign > 0 ? lower - (g + 1) * stride : lower + g * stride;
                            add_line(sign * before, above + k * stride, line, stride);
                            add_line(-sign * factor, below + k * stride, line, stride);
                        }
                    }
            }
            const std::size_t top = (row - 1) * kSide;
            for (std::size_t i = 0; row > 0 && i < kSide && top + i < height; ++i)
                write_line<16>(strips.data() + 2 * size + i * stride, 4 * size, width,
                               pixels + (top + i) * width * channels);
        }
    }

  private:
#if NESTCODE_X86
    template <class Pixel>
    NESTCODE_AVX2_UNFUSED void write_avx2(std::size_t height, std::size_t width, Pixel* pixels, float reached) const {
        write_rows<32>(height, width, pixels, reached);
    }
#endif
    static constexpr std::ptrdiff_t kArea = kBlock * kBlock;
    static constexpr float kGradient = 0.11F;  // of the difference of the DC coefficients on both sides

    std::size_t block_index(std::size_t channel, std::size_t row, std::size_t column) const {
        return (channel * shape_.rows + row) * shape_.columns + column;
    }

    // The filter at a step, with full strength from twice kUnfiltered on. Alpha is not filtered.
    ImageFilter make_filter(std::size_t width, float reached) const {
        std::vector<float> steps(channels_.size() < 3 ? 1 : 3);
        for (std::size_t k = 0; k < steps.size(); ++k)
            steps[k] = reached * static_cast<float>(channels_[k].weight) / kUnweighted;
        const float texture = reached <= kCoarsestTextureStep ? kTexture : std::numeric_limits<float>::infinity();
        return {width, steps, std::min(reached / kUnfiltered - 1, 1.0F), texture};
    }

    // Appends the DC coefficients of a channel, in steps: the second stage undone.
    void add_dc(std::size_t channel) {
        std::vector<double> dc(shape_.blocks());
        for (std::size_t i = 0; i < dc.size(); ++i)
            dc[i] = midpoint(known_[(channel * dc.size() + i) * static_cast<std::size_t>(kArea)]);
        inverse_dc_stage(dc.data(), shape_.columns, 1, shape_.columns, shape_.rows);
        inverse_dc_stage(dc.data(), shape_.rows, shape_.columns, 1, shape_.columns);
        dc_.insert(dc_.end(), dc.begin(), dc.end());
    }

    // The lowest AC coefficient while it is insignificant, from the DC coefficients on both sides: the block smoothing
    // of JPEG (annex K.8). A larger one than half the bound would already be significant.
    float predicted(float before, float after) const {
        return std::clamp(kGradient * (before - after), -bound_, bound_);
    }

    // Writes a row of blocks of a channel, filtered across its vertical borders.
    template <std::size_t kBytes>
    NESTCODE_INLINE void invert(std::size_t channel, std::size_t row, float* out, std::size_t stride) const {
        Square pixels[2];  // of a block and the one before: by column, so that the filter has 16 lanes
        for (std::size_t column = 0; column < shape_.columns; ++column) {
            Square &before = pixels[(column + 1) % 2], &own = pixels[column % 2];
            invert_block<kBytes>(channel, row, column, own);
            if (column == 0) continue;
            postfilter_lines<kBytes>(before[kBlock - kOverlap], own[0], kBlock);
            transpose(before, out + (column - 1) * kBlock, stride);
        }
        transpose(pixels[(shape_.columns + 1) % 2], out + stride - kBlock, stride);
    }
    template <std::size_t kBytes>
    NESTCODE_INLINE void invert_block(std::size_t channel, std::size_t row, std::size_t column, Square& pixels) const {
        Square block;
        const auto [rows, columns] = coefficients_of<kBytes>(channel, row, column, kBlock, block);
        inverse_dct<kBytes>(block, rows, columns, pixels);
    }
    static void add_line(float factor, const float* from, float* to, std::size_t count) {
        for (std::size_t x = 0; x < count; ++x) to[x] += factor * from[x];
    }
    // Writes the lowest frequencies of a row of blocks, (kSide, stride): means of pixels along the row.
    template <std::size_t kSide>
    void transform_rows(std::size_t channel, std::size_t row, float* out, std::size_t stride) const {
        using Transform = tables::Scaled<kSide>;
        Square before, block;
        for (std::size_t column = 0; column < shape_.columns; ++column) {
            const std::size_t rows = coefficients_of<16>(channel, row, column, kSide, block).first;
            for (std::size_t k = rows; k < kSide; ++k) std::fill_n(block[k], kBlock, 0.0F);
            for (std::size_t k = 0; k < kSide; ++k) {
                float* line = out + k * stride + column * kSide;
                std::fill_n(line, kSide, 0.0F);
                for (std::size_t j = 0; j < kSide; ++j)
                    for (std::size_t i = 0; i < kSide; ++i) line[i] += block[k][j] * Transform::kMeans[j][i];
                for (std::size_t g = 0; column > 0 && g < Transform::kFiltered; ++g) {
                    float sum = 0;
                    for (std::size_t j = 0; j < kSide; ++j)
                        sum += Transform::kBorder[g][j] * ((j % 2 ? -before[k][j] : before[k][j]) - block[k][j]);
                    *(line - g - 1) += sum;
                    line[g] -= sum;
                }
            }
            std::memcpy(before, block, sizeof block);
        }
    }
    // Estimates the coefficients of the lowest `side` rows and columns of a block; returns how many of each are
    // not 0, rounded up to even numbers.
    template <std::size_t kBytes>
    NESTCODE_INLINE std::pair<std::size_t, std::size_t> coefficients_of(std::size_t channel, std::size_t row,
                                                                        std::size_t column, std::size_t side,
                                                                        Square& block) const {
        using Integers = typename Vector<kBytes>::Integers;
        constexpr std::size_t lanes = kBytes / sizeof(float);
        const float step = step_ * static_cast<float>(channels_[channel].weight) / kUnweighted;
        const std::int32_t* known = known_ + block_index(channel, row, column) * static_cast<std::size_t>(kArea);
        Integers in_columns[kBlock / lanes] = {};  // bits that are set in any value of a column
        std::size_t rows = 2, columns = kBlock;
        for (std::size_t i = 0; i < side; ++i) {
            const std::int32_t* line = known + i * kBlock;
            Integers values[kBlock / lanes], in_row{};
            for (std::size_t j = 0; j < kBlock / lanes; ++j) {
                values[j] = load_vector<Integers>(line + j * lanes);
                in_row |= values[j];
            }
            if (i >= 2 && !any_bit(in_row)) continue;
            if (i >= rows) {
                for (std::size_t skipped = rows; skipped < i; ++skipped) std::fill_n(block[skipped], kBlock, 0.0F);
                rows = i + 1;
            }
            for (std::size_t j = 0; j < kBlock / lanes; ++j) {
                store_vector(midpoints<kBytes>(values[j]) * step, block[i] + j * lanes);
                in_columns[j] |= values[j];
            }
        }
        std::int32_t in_column[kBlock];
        std::memcpy(in_column, in_columns, sizeof in_column);
        while (columns > 2 && in_column[columns - 1] == 0) --columns;
        columns += columns % 2;
        if (rows % 2 != 0) std::fill_n(block[rows++], kBlock, 0.0F);
        const auto dc = [&](std::size_t at_row, std::size_t at_column) {
            return dc_[block_index(channel, std::min(at_row, shape_.rows - 1),
                                   std::min(at_column, shape_.columns - 1))];
        };
        block[0][0] = dc(row, column) * step;
        if (known[1] == 0) block[0][1] = predicted(dc(row, column ? column - 1 : 0), dc(row, column + 1)) * step;
        if (known[kBlock] == 0) block[1][0] = predicted(dc(row ? row - 1 : 0, column), dc(row + 1, column)) * step;
        return {rows, columns};
    }
    NESTCODE_INLINE static void transpose(const Square& columns, float* out, std::size_t stride) {
        using Register = BasicLanes<4, 16>::Register;
        for (std::size_t i = 0; i < kBlock; i += 4)
            for (std::size_t j = 0; j < kBlock; j += 4) {
                Register in[4];
                for (std::size_t k = 0; k < 4; ++k) std::memcpy(&in[k], &columns[j + k][i], sizeof in[k]);
                const Register &a = in[0], &b = in[1], &c = in[2], &d = in[3];
                const Register first = {a[0], b[0], a[1], b[1]}, second = {c[0], d[0], c[1], d[1]};
                const Register third = {a[2], b[2], a[3], b[3]}, fourth = {c[2], d[2], c[3], d[3]};
                const Register lines[4] = {{first[0], first[1], second[0], second[1]},
                                           {first[2], first[3], second[2], second[3]},
                                           {third[0], third[1], fourth[0], fourth[1]},
                                           {third[2], third[3], fourth[2], fourth[3]}};
                for (std::size_t k = 0; k < 4; ++k) std::memcpy(out + (i + k) * stride + j, &lines[k], sizeof lines[k]);
            }
    }

    // Writes a line of pixels from a line of each channel, `stride` apart.
    template <std::size_t kBytes, class Pixel>
    NESTCODE_INLINE void write_line(const float* line, std::size_t stride, std::size_t width, Pixel* pixels) const {
        using Lines = Lanes<kBytes>;
        const std::size_t channels = shape_.kinds.size();
        for (std::size_t first = 0; first < width; first += kBlock, line += kBlock, pixels += kBlock * channels) {
            const std::size_t count = std::min<std::size_t>(kBlock, width - first);
            std::uint32_t values[kChannelKinds][kBlock];
            const Lines luma = Lines::load(line);
            if (channels >= 3) {
                const Lines chroma[] = {Lines::load(line + stride), Lines::load(line + 2 * stride)};
                for (std::size_t i = 0; i < 3; ++i)
                    round<Pixel>(colors_[0][i] * luma + colors_[1][i] * chroma[0] + colors_[2][i] * chroma[1], kGray,
                                 values[i]);
            } else {
                round<Pixel>(luma, kGray, values[0]);
            }
            if (channels % 2 == 0)
                round<Pixel>(Lines::load(line + (channels - 1) * stride), kOpaque, values[channels - 1]);
            if (std::endian::native == std::endian::little && sizeof(Pixel) == 1 && channels == 3) {
                // A pixel of three bytes is stored as four, of which the next pixel overwrites the last.
                for (std::size_t x = 0; x < kBlock; ++x) values[0][x] |= values[1][x] << 8 | values[2][x] << 16;
                for (std::size_t x = 0; x + 1 < count; ++x) std::memcpy(pixels + 3 * x, &values[0][x], 4);
                std::memcpy(pixels + 3 * (count - 1), &values[0][count - 1], 3);
                continue;
            }
            for (std::size_t i = 0; i < channels; ++i)
                for (std::size_t x = 0; x < count; ++x) pixels[x * channels + i] = static_cast<Pixel>(values[i][x]);
        }
    }
    // The nearest integers in range, halves to the even ones: adding 2^23 leaves no bit for fractions, and the integer
    // in the lowest bits.
    template <class Pixel, std::size_t kBytes>
    NESTCODE_INLINE static void round(const Lanes<kBytes>& values, float center, std::uint32_t* out) {
        using Register = typename Lanes<kBytes>::Register;
        using Integers = typename Vector<kBytes>::Integers;
        constexpr Register zero{}, largest = zero + float{std::numeric_limits<Pixel>::max()};
        for (std::size_t i = 0; i < Lanes<kBytes>::kRegisters; ++i) {
            Register scaled = (values.at[i] + center) * kScale<Pixel>;
            scaled = scaled > zero ? scaled : zero;
            scaled = (scaled < largest ? scaled : largest) + 8388608.0F;
            Integers bits;
            std::memcpy(&bits, &scaled, sizeof bits);
            bits &= std::numeric_limits<Pixel>::max();
            std::memcpy(out + i * kBytes / sizeof(float), &bits, sizeof bits);
        }
    }

    const ImageShape& shape_;
    const std::int32_t* known_;
    float bound_, step_;
    const std::vector<ImageStart::Channel>& channels_;
    ColorMatrix colors_;
    std::vector<float> dc_;  // DC coefficients of all blocks, in steps
};

}  // namespace nestcode
