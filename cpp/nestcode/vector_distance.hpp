// Distances from a float query to rows of float32 or float16, one row at a time, on every instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "metric.hpp"
#include "simd.hpp"
#include "vector_rows.hpp"

namespace nestcode {

using Half = std::uint16_t;  // the bits of an IEEE 754 float16

inline float to_float(float value) {
    return value;
}

inline float to_float(Half half) {
    return half_to_float(half);
}

// What a distance is computed from. For squared distances, `norm` is |q - x|^2; else it is |x|^2, and `product` <q, x>.
struct RowSums {
    float product = 0, norm = 0;
};

template <class Element, bool squares>
RowSums row_sums_portable(const float* query, const Element* row, std::size_t features) {
    constexpr std::size_t lanes = 8;  // as the compiler vectorizes
    float products[lanes] = {}, norms[lanes] = {};
    std::size_t f = 0;
    const auto add = [&](std::size_t lane) {
        const float item = to_float(row[f + lane]), difference = query[f + lane] - item;
        if constexpr (squares) {
            norms[lane] += difference * difference;
        } else {
            products[lane] += query[f + lane] * item;
            norms[lane] += item * item;
        }
    };
    if constexpr (std::is_same_v<Element, float>) {  // which GCC does not vectorize from the loop below
        Float4 product[2] = {}, norm[2] = {};
        for (; f + lanes <= features; f += lanes)
            for (std::size_t half = 0; half < 2; ++half) {
                const Float4 values = load_float4(query + f + 4 * half), item = load_float4(row + f + 4 * half);
                const Float4 difference = values - item;
                if constexpr (squares) {
                    norm[half] += difference * difference;
                } else {
                    product[half] += values * item;
                    norm[half] += item * item;
                }
            }
        std::memcpy(products, product, sizeof products);
        std::memcpy(norms, norm, sizeof norms);
    }
    for (; f + lanes <= features; f += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) add(lane);
    for (; f < features; ++f) add(0);
    RowSums sums;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        sums.product += products[lane];
        sums.norm += norms[lane];
    }
    return sums;
}

#if NESTCODE_NEON
inline void load_neon(const float* from, float32x4_t (&out)[2]) {
    out[0] = vld1q_f32(from);
    out[1] = vld1q_f32(from + 4);
}

inline void load_neon(const Half* from, float32x4_t (&out)[2]) {
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(from));
    out[0] = vcvt_f32_f16(vget_low_f16(halves));
    out[1] = vcvt_high_f32_f16(halves);
}

template <class Element, bool squares>
RowSums row_sums_neon(const float* query, const Element* row, std::size_t features) {
    float32x4_t products[4] = {}, norms[4] = {};
    const std::size_t whole = features / 16 * 16;
    for (std::size_t f = 0; f < whole; f += 16)
        for (std::size_t half = 0; half < 2; ++half) {
            float32x4_t items[2];
            load_neon(row + f + 8 * half, items);
            for (std::size_t part = 0; part < 2; ++part) {
                const float32x4_t values = vld1q_f32(query + f + 8 * half + 4 * part);
                const std::size_t lane = 2 * half + part;
                if constexpr (squares) {
                    const float32x4_t difference = vsubq_f32(values, items[part]);
                    norms[lane] = vfmaq_f32(norms[lane], difference, difference);
                } else {
                    products[lane] = vfmaq_f32(products[lane], values, items[part]);
                    norms[lane] = vfmaq_f32(norms[lane], items[part], items[part]);
                }
            }
        }
    const auto total = [](const float32x4_t(&sums)[4]) {
        return vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])));
    };
    RowSums rest;
    if (whole < features) rest = row_sums_portable<Element, squares>(query + whole, row + whole, features - whole);
    return {total(products) + rest.product, total(norms) + rest.norm};
}
#endif

#if NESTCODE_X86
NESTCODE_AVX2 inline __m256 load_avx2(const float* from) {
    return _mm256_loadu_ps(from);
}

NESTCODE_AVX2 inline __m256 load_avx2(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

NESTCODE_AVX2 inline float sum_avx2(__m256 a, __m256 b) {
    const __m256 both = _mm256_add_ps(a, b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

template <class Element, bool squares>
NESTCODE_AVX2 RowSums row_sums_avx2(const float* query, const Element* row, std::size_t features) {
    __m256 products[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    __m256 norms[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    const std::size_t whole = features / 32 * 32;
    for (std::size_t f = 0; f < whole; f += 32)
        for (std::size_t part = 0; part < 4; ++part) {
            const __m256 item = load_avx2(row + f + 8 * part), values = _mm256_loadu_ps(query + f + 8 * part);
            if constexpr (squares) {
                const __m256 difference = _mm256_sub_ps(values, item);
                norms[part] = _mm256_fmadd_ps(difference, difference, norms[part]);
            } else {
                products[part] = _mm256_fmadd_ps(values, item, products[part]);
                norms[part] = _mm256_fmadd_ps(item, item, norms[part]);
            }
        }
    RowSums rest;
    if (whole < features) rest = row_sums_portable<Element, squares>(query + whole, row + whole, features - whole);
    return {sum_avx2(_mm256_add_ps(products[0], products[1]), _mm256_add_ps(products[2], products[3])) + rest.product,
            sum_avx2(_mm256_add_ps(norms[0], norms[1]), _mm256_add_ps(norms[2], norms[3])) + rest.norm};
}

NESTCODE_AVX512 inline __m512 load_avx512(const float* from, __mmask16 lanes) {
    return _mm512_maskz_loadu_ps(lanes, from);
}

NESTCODE_AVX512 inline __m512 load_avx512(const Half* from, __mmask16 lanes) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, from));
}

template <class Element, bool squares>
NESTCODE_AVX512 RowSums row_sums_avx512(const float* query, const Element* row, std::size_t features) {
    __m512 products[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 norms[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const auto add = [&](std::size_t f, __mmask16 lanes, int sum) NESTCODE_AVX512 {
        const __m512 item = load_avx512(row + f, lanes), values = _mm512_maskz_loadu_ps(lanes, query + f);
        if constexpr (squares) {
            const __m512 difference = _mm512_sub_ps(values, item);
            norms[sum] = _mm512_fmadd_ps(difference, difference, norms[sum]);
        } else {
            products[sum] = _mm512_fmadd_ps(values, item, products[sum]);
            norms[sum] = _mm512_fmadd_ps(item, item, norms[sum]);
        }
    };
    std::size_t f = 0;
    for (; f + 32 <= features; f += 32) {
        add(f, 0xffff, 0);
        add(f + 16, 0xffff, 1);
    }
    if (f + 16 <= features) {
        add(f, 0xffff, 0);
        f += 16;
    }
    if (f < features) add(f, static_cast<__mmask16>((1u << (features - f)) - 1), 1);
    return {_mm512_reduce_add_ps(_mm512_add_ps(products[0], products[1])),
            _mm512_reduce_add_ps(_mm512_add_ps(norms[0], norms[1]))};
}

NESTCODE_AVX512 inline __m512d sum_pairs(__m512 a, __m512 b) {
    return _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
}

// The sums of the lanes of four registers.
NESTCODE_AVX512 inline __m128 sum_lanes(const __m512 (&sums)[4]) {
    const __m512d left = sum_pairs(sums[0], sums[1]), right = sum_pairs(sums[2], sums[3]);
    const __m512 fours = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(left, right)),
                                       _mm512_castpd_ps(_mm512_unpackhi_pd(left, right)));
    const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(fours), 1));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(fours), upper);
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Four rows hide the latency of additions, and read the query once.
template <class Element, bool squares>
NESTCODE_AVX512 void four_row_sums_avx512(const float* query, const Element* const* rows, std::size_t features,
                                          const std::uint8_t* const* ahead, RowSums* out) {
    __m512 products[4], norms[4];
    for (int i = 0; i < 4; ++i) products[i] = norms[i] = _mm512_setzero_ps();
    const std::size_t steps = (features + 15) / 16;
    for (std::size_t part = 0, step = 0; part < 4; ++part) {
        const std::uint8_t* next = ahead[part];
        for (const std::size_t end = steps * (part + 1) / 4; step < end; ++step) {
            for (std::size_t line = 0; line < sizeof(Element); ++line, next += 64) __builtin_prefetch(next);
            const std::size_t f = 16 * step, rest = features - f;
            const auto lanes = static_cast<__mmask16>(rest < 16 ? (1u << rest) - 1 : 0xffff);
            const __m512 values = _mm512_maskz_loadu_ps(lanes, query + f);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m512 item = load_avx512(rows[i] + f, lanes);
                if constexpr (squares) {
                    const __m512 difference = _mm512_sub_ps(values, item);
                    norms[i] = _mm512_fmadd_ps(difference, difference, norms[i]);
                } else {
                    products[i] = _mm512_fmadd_ps(values, item, products[i]);
                    norms[i] = _mm512_fmadd_ps(item, item, norms[i]);
                }
            }
        }
    }
    const __m128 product = sum_lanes(products), norm = sum_lanes(norms);
    _mm_storeu_ps(&out[0].product, _mm_unpacklo_ps(product, norm));
    _mm_storeu_ps(&out[2].product, _mm_unpackhi_ps(product, norm));
}
#endif

template <class Element>
using RowSumsKernel = RowSums (*)(const float* query, const Element* row, std::size_t features);

template <class Element, bool squares>
RowSumsKernel<Element> row_sums_kernel(Simd simd) {
    switch (simd) {
#if NESTCODE_NEON
        case Simd::neon: return row_sums_neon<Element, squares>;
#endif
#if NESTCODE_X86
        case Simd::avx2: return row_sums_avx2<Element, squares>;
        case Simd::avx512: return row_sums_avx512<Element, squares>;
#endif
        default: return row_sums_portable<Element, squares>;
    }
}

// The sums of four rows at once, while the next four are prefetched.
template <class Element>
using FourRowSumsKernel = void (*)(const float* query, const Element* const* rows, std::size_t features,
                                   const std::uint8_t* const* ahead, RowSums* out);

template <class Element, auto kernel>
void four_row_sums(const float* query, const Element* const* rows, std::size_t features,
                   const std::uint8_t* const* ahead, RowSums* out) {
    for (int i = 0; i < 4; ++i) {
        for (std::size_t byte = 0; byte < features * sizeof(Element); byte += 64) __builtin_prefetch(ahead[i] + byte);
        out[i] = kernel(query, rows[i], features);
    }
}

template <class Element, bool squares>
FourRowSumsKernel<Element> four_row_sums_kernel(Simd simd) {
    switch (simd) {
#if NESTCODE_NEON
        case Simd::neon: return four_row_sums<Element, row_sums_neon<Element, squares>>;
#endif
#if NESTCODE_X86
        case Simd::avx2: return four_row_sums<Element, row_sums_avx2<Element, squares>>;
        case Simd::avx512: return four_row_sums_avx512<Element, squares>;
#endif
        default: return four_row_sums<Element, row_sums_portable<Element, squares>>;
    }
}

// Directions that vectors are projected on, as float32 or float16, 32 side by side in a block, (blocks, features, 32);
// zeros fill the last one. Blocks begin at cache lines: registers that cross one are loaded at half the speed.
template <class Element>
struct BlocksOf {
    static constexpr std::size_t kWidth = 32;
    std::size_t features, blocks;

    BlocksOf(const Element* directions, std::size_t count, std::size_t width)
        : features(width), blocks((count + kWidth - 1) / kWidth), rows_(blocks * width) {
        for (std::size_t d = 0; d < count; ++d)
            for (std::size_t f = 0; f < width; ++f)
                rows_[d / kWidth * width + f].values[d % kWidth] = directions[d * width + f];
    }

    std::size_t count() const { return blocks * kWidth; }
    const Element* block(std::size_t b) const { return reinterpret_cast<const Element*>(rows_.data() + b * features); }

  private:
    struct alignas(64) Row {
        Element values[kWidth] = {};
    };
    std::vector<Row> rows_;
};

using ProjectionBlocks = BlocksOf<float>;
using HalfProjectionBlocks = BlocksOf<Half>;

// Writes the inner products of vectors, (many, features), with all directions, (many, blocks * 32). A block stays in
// the cache for all vectors, and even and odd features have sums of their own, enough to hide the latency of additions.
template <class Element>
using ProjectKernelOf = void (*)(const BlocksOf<Element>& directions, const float* vectors, std::size_t many,
                                 float* out);
using ProjectKernel = ProjectKernelOf<float>;

inline Float4 multiply_add(Float4 a, Float4 b, Float4 sum) {
#if NESTCODE_NEON
    return reinterpret_cast<Float4>(vfmaq_f32(reinterpret_cast<float32x4_t>(sum), reinterpret_cast<float32x4_t>(a),
                                              reinterpret_cast<float32x4_t>(b)));
#else
    return sum + a * b;
#endif
}

inline Float4 load_float4(const Half* from) {
#if NESTCODE_NEON
    return reinterpret_cast<Float4>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))));
#else
    return Float4{half_to_float(from[0]), half_to_float(from[1]), half_to_float(from[2]), half_to_float(from[3])};
#endif
}

template <class Element>
void project_block_portable(const Element* block, const float* vector, std::size_t features, float* out) {
    Float4 even[8] = {}, odd[8] = {};
    const auto add = [&](std::size_t f, Float4(&sums)[8]) {
        const Float4 value = {vector[f], vector[f], vector[f], vector[f]};
        for (std::size_t j = 0; j < 8; ++j) sums[j] = multiply_add(value, load_float4(block + 32 * f + 4 * j), sums[j]);
    };
    std::size_t f = 0;
    for (; f + 2 <= features; f += 2) {
        add(f, even);
        add(f + 1, odd);
    }
    if (f < features) add(f, even);
    for (std::size_t j = 0; j < 8; ++j) {
        even[j] += odd[j];
        std::memcpy(out + 4 * j, &even[j], sizeof even[j]);
    }
}

#if NESTCODE_X86
template <class Element>
NESTCODE_AVX2 void project_block_avx2(const Element* block, const float* vector, std::size_t features, float* out) {
    __m256 even[4], odd[4];
    for (int j = 0; j < 4; ++j) even[j] = odd[j] = _mm256_setzero_ps();
    const auto add = [&](std::size_t f, __m256(&sums)[4]) NESTCODE_AVX2 {
        const __m256 value = _mm256_broadcast_ss(vector + f);
        for (std::size_t j = 0; j < 4; ++j)
            sums[j] = _mm256_fmadd_ps(value, load_avx2(block + 32 * f + 8 * j), sums[j]);
    };
    std::size_t f = 0;
    for (; f + 2 <= features; f += 2) {
        add(f, even);
        add(f + 1, odd);
    }
    if (f < features) add(f, even);
    for (int j = 0; j < 4; ++j) _mm256_storeu_ps(out + 8 * j, _mm256_add_ps(even[j], odd[j]));
}

template <class Element>
NESTCODE_AVX512 void project_block_avx512(const Element* block, const float* vector, std::size_t features, float* out) {
    __m512 sums[4][2];  // of features 4 i + 0 … 3, to hide the latency of additions
    for (auto& [left, right] : sums) left = right = _mm512_setzero_ps();
    const auto add = [&](std::size_t f, __m512(&sum)[2]) NESTCODE_AVX512 {
        const __m512 value = _mm512_set1_ps(vector[f]);
        sum[0] = _mm512_fmadd_ps(value, load_avx512(block + 32 * f, 0xffff), sum[0]);
        sum[1] = _mm512_fmadd_ps(value, load_avx512(block + 32 * f + 16, 0xffff), sum[1]);
    };
    std::size_t f = 0;
    for (; f + 4 <= features; f += 4)
        for (std::size_t i = 0; i < 4; ++i) add(f + i, sums[i]);
    for (; f < features; ++f) add(f, sums[0]);
    for (int j = 0; j < 2; ++j)
        _mm512_storeu_ps(out + 16 * j,
                         _mm512_add_ps(_mm512_add_ps(sums[0][j], sums[1][j]), _mm512_add_ps(sums[2][j], sums[3][j])));
}
#endif

template <class Element, auto project_block>
void project(const BlocksOf<Element>& directions, const float* vectors, std::size_t many, float* out) {
    const std::size_t features = directions.features, count = directions.count();
    for (std::size_t b = 0; b < directions.blocks; ++b)
        for (std::size_t v = 0; v < many; ++v)
            project_block(directions.block(b), vectors + v * features, features,
                          out + v * count + b * directions.kWidth);
}

template <class Element = float>
ProjectKernelOf<Element> project_kernel(Simd simd) {
#if NESTCODE_X86
    if (simd == Simd::avx2) return project<Element, project_block_avx2<Element>>;
    if (simd == Simd::avx512) return project<Element, project_block_avx512<Element>>;
#endif
    static_cast<void>(simd);
    return project<Element, project_block_portable<Element>>;
}

// Distances by one metric: the squared L2 distance; the squared L2 distance of L2-normalized vectors, where the query
// is normalized already; or the negative inner product.
template <class Element>
struct RowDistance {
    Metric metric;
    std::size_t features;
    RowSumsKernel<Element> kernel;

    RowDistance(Metric by, std::size_t count, Simd simd)
        : metric(by),
          features(count),
          kernel(by == Metric::l2 ? row_sums_kernel<Element, true>(simd) : row_sums_kernel<Element, false>(simd)) {}

    float operator()(const float* query, const Element* row) const {
        const RowSums sums = kernel(query, row, features);
        if (metric == Metric::l2) return sums.norm;
        if (metric == Metric::inner) return -sums.product;
        return sums.norm > 0 ? 2 - 2 * sums.product / std::sqrt(sums.norm) : 2;  // the cosine with a zero row is 0
    }
};

}  // namespace nestcode
