// Projections of vectors on directions, both quantized to int8.
//
// The lookup tables of fast-scan round a query's coefficients to a few bits, so exact coefficients are wasted on them.
// Directions of a byte per feature take a quarter of the memory that a query reads, and a fraction of the instructions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "simd.hpp"

// Clang before 16 has no intrinsics of dot products but where all processors that it compiles for have them.
#if NESTCODE_NEON && (!defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD))
#define NESTCODE_DOT_PRODUCTS 1
#define NESTCODE_DOT_PRODUCT_TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

namespace nestcode {

// The largest absolute value; NaN if there is one.
inline float largest_magnitude(const float* row, std::size_t count) {
    Float4 most = {}, nans = {};
    std::size_t f = 0;
    for (; f + 4 <= count; f += 4) {
        const Float4 values = load_float4(row + f), magnitudes = values < 0 ? -values : values;
        most = magnitudes > most ? magnitudes : most;
        nans += values * 0;
    }
    float largest = std::max(std::max(most[0], most[1]), std::max(most[2], most[3])), nan = horizontal_sum(nans);
    for (; f < count; ++f) {
        largest = std::max(largest, std::abs(row[f]));
        nan += row[f] * 0;
    }
    return largest + nan;
}

// Rows of int8, each with the scale that its values were divided by; zeros fill them to whole cache lines.
struct Int8Rows {
    struct alignas(64) Line {
        std::int8_t values[64];
    };
    std::size_t features, stride;
    std::vector<Line> lines;    // (rows, stride / 64)
    std::vector<float> scales;  // (rows)

    Int8Rows(std::size_t count, std::size_t width)
        : features(width),
          stride((width + sizeof(Line) - 1) / sizeof(Line) * sizeof(Line)),
          lines(count * stride / sizeof(Line)),
          scales(count),
          largest_(std::min(127.0f, std::floor(std::sqrt(0x1p31f / static_cast<float>(stride + 1))))) {}

    const std::int8_t* operator[](std::size_t i) const {
        return reinterpret_cast<const std::int8_t*>(lines.data()) + i * stride;
    }

    // Quantizes a row in proportion to its largest value. Rows with NaN or infinities become zeros of scale NaN.
    void set(std::size_t i, const float* row) {
        const float most = largest_magnitude(row, features), scale = most / largest_;
        auto* out = reinterpret_cast<std::int8_t*>(lines.data()) + i * stride;
        scales[i] = scale;
        if (!(scale > 1e-37f && scale < std::numeric_limits<float>::infinity())) {
            std::fill_n(out, features, std::int8_t{0});
            return;
        }
        const float inverse = 1 / scale, half = 128.5f;  // rounds to the nearest, as casts round down
        const std::size_t count = features;              // compilers take bytes for aliases of the member
        for (std::size_t f = 0; f < count; ++f)
            out[f] = static_cast<std::int8_t>(static_cast<std::int32_t>(row[f] * inverse + half) - 128);
    }

  private:
    float largest_;  // so that sums fit 32 bits
};

constexpr std::size_t kInt8Rows = 16;  // that a kernel multiplies with a vector

// Writes the products of a vector with rows, `stride` bytes apart, given the sum of each row.
using Int8Kernel = void (*)(const std::int8_t* rows, const std::int32_t* row_sums, const std::int8_t* vector,
                            std::size_t stride, std::int32_t* out);

inline void int8_products_portable(const std::int8_t* rows, const std::int32_t*, const std::int8_t* vector,
                                   std::size_t stride, std::int32_t* out) {
    for (std::size_t r = 0; r < kInt8Rows; ++r) {
        std::int32_t sum = 0;
        for (std::size_t f = 0; f < stride; ++f) sum += rows[r * stride + f] * vector[f];
        out[r] = sum;
    }
}

#if NESTCODE_DOT_PRODUCTS
// Whether the processor has the dot products of Armv8.2.
inline bool has_dot_products() {
#if defined(__linux__)
    static const bool has = getauxval(AT_HWCAP) >> 20 & 1;  // HWCAP_ASIMDDP
    return has;
#else
    return true;  // Apple's
#endif
}

NESTCODE_DOT_PRODUCT_TARGET inline void int8_products_neon(const std::int8_t* rows, const std::int32_t*,
                                                           const std::int8_t* vector, std::size_t stride,
                                                           std::int32_t* out) {
    for (std::size_t first = 0; first < kInt8Rows; first += 4, rows += 4 * stride) {
        int32x4_t sums[4] = {};
        for (std::size_t f = 0; f < stride; f += 16) {
            const int8x16_t values = vld1q_s8(vector + f);
            for (std::size_t r = 0; r < 4; ++r) sums[r] = vdotq_s32(sums[r], vld1q_s8(rows + r * stride + f), values);
        }
        vst1q_s32(out + first, vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3])));
    }
}
#endif

#if NESTCODE_X86
NESTCODE_AVX2 inline void int8_products_avx2(const std::int8_t* rows, const std::int32_t*, const std::int8_t* vector,
                                             std::size_t stride, std::int32_t* out) {
    const __m256i ones = _mm256_set1_epi16(1);
    const auto load = [&](const std::int8_t* from)
                          NESTCODE_AVX2 { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); };
    for (std::size_t first = 0; first < kInt8Rows; first += 4, rows += 4 * stride) {
        const __m256i zero = _mm256_setzero_si256();
        __m256i sums[4] = {zero, zero, zero, zero};
        for (std::size_t f = 0; f < stride; f += 32) {
            const __m256i values = load(vector + f), magnitudes = _mm256_abs_epi8(values);
            for (std::size_t r = 0; r < 4; ++r) {  // the multiplication takes one factor without sign
                const __m256i signs = _mm256_sign_epi8(load(rows + r * stride + f), values);
                sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, signs), ones));
            }
        }
        const __m256i pairs =
            _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + first),
                         _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)));
    }
}

// The multiplication takes one factor without sign: the vector's values have 128 more.
NESTCODE_AVX512_VNNI inline void int8_products_vnni(const std::int8_t* rows, const std::int32_t* row_sums,
                                                    const std::int8_t* vector, std::size_t stride, std::int32_t* out) {
    const __m512i top = _mm512_set1_epi8(-128);
    __m512i fours[4];  // the sums of four rows each, in four parts
    for (std::size_t four = 0; four < 4; ++four, rows += 4 * stride) {
        const __m512i zero = _mm512_setzero_si512();
        __m512i sums[4] = {zero, zero, zero, zero};
        for (std::size_t f = 0; f < stride; f += 64) {
            const __m512i values = _mm512_xor_si512(_mm512_load_si512(vector + f), top);
            for (std::size_t r = 0; r < 4; ++r)
                sums[r] = _mm512_dpbusd_epi32(sums[r], values, _mm512_load_si512(rows + r * stride + f));
        }
        const auto pair = [&](__m512i a, __m512i b) NESTCODE_AVX512_VNNI {
            return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        };
        const __m512i low = pair(sums[0], sums[1]), high = pair(sums[2], sums[3]);
        fours[four] = _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
    }
    const auto halves = [&](__m512i a, __m512i b) NESTCODE_AVX512_VNNI {
        return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
    };
    const __m512i products = halves(halves(fours[0], fours[1]), halves(fours[2], fours[3]));
    const __m512i excess = _mm512_slli_epi32(_mm512_loadu_si512(row_sums), 7);
    _mm512_storeu_si512(out, _mm512_sub_epi32(products, excess));
}
#endif

inline Int8Kernel int8_kernel(Simd simd) {
#if NESTCODE_DOT_PRODUCTS
    if (simd == Simd::neon && has_dot_products()) return int8_products_neon;
#endif
#if NESTCODE_X86
    if (simd == Simd::avx512 && x86_features().avx512_vnni) return int8_products_vnni;
    if (simd == Simd::avx2 || simd == Simd::avx512) return int8_products_avx2;
#endif
    static_cast<void>(simd);
    return int8_products_portable;
}

// Directions that vectors are projected on; zeros fill them to a multiple of 16.
struct Int8Directions {
    std::size_t count;
    Int8Rows rows;
    std::vector<std::int32_t> sums;  // (count): of the rows

    Int8Directions(const float* directions, std::size_t given, std::size_t features)
        : count((given + kInt8Rows - 1) / kInt8Rows * kInt8Rows), rows(count, features), sums(count) {
        for (std::size_t d = 0; d < given; ++d) {
            rows.set(d, directions + d * features);
            sums[d] = std::accumulate(rows[d], rows[d] + features, 0);
        }
    }

    // Writes the products of vectors with all directions, (many, count).
    void project(const Int8Rows& vectors, std::size_t many, Int8Kernel products, float* out) const {
        for (std::size_t d = 0; d < count; d += kInt8Rows)
            for (std::size_t v = 0; v < many; ++v) {
                std::int32_t found[kInt8Rows];
                products(rows[d], &sums[d], vectors[v], rows.stride, found);
                for (std::size_t j = 0; j < kInt8Rows; ++j)
                    out[v * count + d + j] = static_cast<float>(found[j]) * rows.scales[d + j] * vectors.scales[v];
            }
    }
};

}  // namespace nestcode
