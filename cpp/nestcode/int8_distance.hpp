// Distances from a float query to rows of int8, in integers.
//
// The query is rounded to 15 bits in two parts of int8, q = step * (128 high + low): finer than rows of int8 can tell
// apart. Its product with a row is that of two pairs of int8, which processors multiply many at a time, and no value
// is converted to float. Sums are exact, so all instruction sets have the same distances; squared distances do not
// cancel far from zero.
#pragma once

#include "int8_projection.hpp"
#include "metric.hpp"

namespace nestcode {

// The products of a row with both parts of a query, and its squared norm.
struct Int8Sums {
    std::int32_t high = 0, low = 0, norm = 0;
};

using Int8SumsKernel = Int8Sums (*)(const std::int8_t* high, const std::int8_t* low, const std::int8_t* row,
                                    std::size_t features);

inline Int8Sums int8_sums_portable(const std::int8_t* high, const std::int8_t* low, const std::int8_t* row,
                                   std::size_t features) {
    Int8Sums sums;
    for (std::size_t f = 0; f < features; ++f) {
        sums.high += high[f] * row[f];
        sums.low += low[f] * row[f];
        sums.norm += row[f] * row[f];
    }
    return sums;
}

#if NESTCODE_DOT_PRODUCTS
NESTCODE_DOT_PRODUCT_TARGET inline Int8Sums int8_sums_neon(const std::int8_t* high, const std::int8_t* low,
                                                           const std::int8_t* row, std::size_t features) {
    int32x4_t highs[2] = {}, lows[2] = {}, norms[2] = {};
    const std::size_t whole = features / 32 * 32;
    for (std::size_t f = 0; f < whole; f += 32)
        for (std::size_t half = 0; half < 2; ++half) {
            const std::size_t at = f + 16 * half;
            const int8x16_t values = vld1q_s8(row + at);
            highs[half] = vdotq_s32(highs[half], vld1q_s8(high + at), values);
            lows[half] = vdotq_s32(lows[half], vld1q_s8(low + at), values);
            norms[half] = vdotq_s32(norms[half], values, values);
        }
    const Int8Sums rest = int8_sums_portable(high + whole, low + whole, row + whole, features - whole);
    return {vaddvq_s32(vaddq_s32(highs[0], highs[1])) + rest.high, vaddvq_s32(vaddq_s32(lows[0], lows[1])) + rest.low,
            vaddvq_s32(vaddq_s32(norms[0], norms[1])) + rest.norm};
}
#endif

// On x86 the multiplication takes one factor without sign: a row's magnitudes, and the query with the row's signs.
#if NESTCODE_X86
NESTCODE_AVX2 inline Int8Sums int8_sums_avx2(const std::int8_t* high, const std::int8_t* low, const std::int8_t* row,
                                             std::size_t features) {
    const __m256i ones = _mm256_set1_epi16(1);
    const auto load = [&](const std::int8_t* from)
                          NESTCODE_AVX2 { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); };
    const auto add = [&](__m256i sums, __m256i magnitudes, __m256i values) NESTCODE_AVX2 {
        return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(magnitudes, values), ones));
    };
    const auto total = [](__m256i sums) NESTCODE_AVX2 {
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
    };
    __m256i highs = _mm256_setzero_si256(), lows = highs, norms = highs;
    const std::size_t whole = features / 32 * 32;
    for (std::size_t f = 0; f < whole; f += 32) {
        const __m256i values = load(row + f), magnitudes = _mm256_abs_epi8(values);
        highs = add(highs, magnitudes, _mm256_sign_epi8(load(high + f), values));
        lows = add(lows, magnitudes, _mm256_sign_epi8(load(low + f), values));
        norms = add(norms, magnitudes, magnitudes);
    }
    const Int8Sums rest = int8_sums_portable(high + whole, low + whole, row + whole, features - whole);
    return {total(highs) + rest.high, total(lows) + rest.low, total(norms) + rest.norm};
}

NESTCODE_AVX512_VNNI inline Int8Sums int8_sums_vnni(const std::int8_t* high, const std::int8_t* low,
                                                    const std::int8_t* row, std::size_t features) {
    const __m512i zero = _mm512_setzero_si512();
    __m512i highs = zero, lows = zero, norms = zero;
    for (std::size_t f = 0; f < features; f += 64) {
        const std::size_t rest = features - f;
        const __mmask64 lanes = rest < 64 ? (std::uint64_t{1} << rest) - 1 : ~std::uint64_t{0};
        const __m512i values = _mm512_maskz_loadu_epi8(lanes, row + f), magnitudes = _mm512_abs_epi8(values);
        const __mmask64 negative = _mm512_movepi8_mask(values);
        const auto with_signs = [&](const std::int8_t* part) NESTCODE_AVX512_VNNI {
            const __m512i own = _mm512_maskz_loadu_epi8(lanes, part + f);
            return _mm512_mask_sub_epi8(own, negative, zero, own);
        };
        highs = _mm512_dpbusd_epi32(highs, magnitudes, with_signs(high));
        lows = _mm512_dpbusd_epi32(lows, magnitudes, with_signs(low));
        norms = _mm512_dpbusd_epi32(norms, magnitudes, magnitudes);
    }
    return {_mm512_reduce_add_epi32(highs), _mm512_reduce_add_epi32(lows), _mm512_reduce_add_epi32(norms)};
}
#endif

inline Int8SumsKernel int8_sums_kernel(Simd simd) {
#if NESTCODE_DOT_PRODUCTS
    if (simd == Simd::neon && has_dot_products()) return int8_sums_neon;
#endif
#if NESTCODE_X86
    if (simd == Simd::avx512 && x86_features().avx512_vnni) return int8_sums_vnni;
    if (simd == Simd::avx2 || simd == Simd::avx512) return int8_sums_avx2;
#endif
    static_cast<void>(simd);
    return int8_sums_portable;
}

// Distances from one query at a time, by the metrics of RowDistance.
class Int8Distance {
  public:
    Int8Distance(Metric metric, std::size_t features, Simd simd)
        : metric_(metric), kernel_(int8_sums_kernel(simd)), high_(features), low_(features) {}

    // Rounds a query in proportion to its largest value. With NaN or infinities, products and squared distances are
    // NaN.
    void set(const float* query) {
        constexpr float largest = 127 * 128;
        const std::size_t features = high_.size();
        const float most = largest_magnitude(query, features);
        const bool is_zero = most < 1e-33f, is_finite = most < std::numeric_limits<float>::infinity();
        const float inverse = is_zero || !is_finite ? 0 : largest / most;
        step_ = is_zero ? 0 : static_cast<double>(most) / static_cast<double>(largest);
        std::int64_t norm = 0;
        for (std::size_t f = 0; f < features; ++f) {
            const float scaled = inverse > 0 ? query[f] * inverse : 0;
            const std::int32_t value = static_cast<std::int32_t>(scaled + (largest + 0.5f)) - 127 * 128;
            const std::int32_t high = (value + 64) >> 7;
            high_[f] = static_cast<std::int8_t>(high);
            low_[f] = static_cast<std::int8_t>(value - 128 * high);
            norm += value * value;
        }
        norm_ = step_ * step_ * static_cast<double>(norm);
    }

    float operator()(const std::int8_t* row, float scale) const {
        constexpr std::size_t piece = std::size_t{1} << 16;  // features whose sums fit 32 bits
        std::int64_t product = 0, norm = 0;
        for (std::size_t f = 0; f < high_.size(); f += piece) {
            const Int8Sums sums = kernel_(&high_[f], &low_[f], row + f, std::min(piece, high_.size() - f));
            product += 128 * std::int64_t{sums.high} + sums.low;
            norm += sums.norm;
        }
        const double by_query = step_ * static_cast<double>(product), own = static_cast<double>(norm);
        const double wide = static_cast<double>(scale);
        if (metric_ == Metric::l2) return static_cast<float>(norm_ - 2 * wide * by_query + wide * wide * own);
        if (metric_ == Metric::inner) return static_cast<float>(-wide * by_query);
        return norm > 0 ? static_cast<float>(2 - 2 * by_query / std::sqrt(own)) : 2;  // the cosine with a zero row is 0
    }

  private:
    Metric metric_;
    Int8SumsKernel kernel_;
    std::vector<std::int8_t> high_, low_;
    double step_ = 0, norm_ = 0;  // of a value; of the rounded query, squared
};

}  // namespace nestcode
