// Inner products of all pairs of two sets of rows, by AVX-512.
//
// Rows of one set are packed in panels of 32 side by side, which fill two vector registers for each feature; 12 rows of
// the other set are multiplied with a panel at once, so that 24 sums hide the latency of additions and a feature of the
// panel is read once for all of them. Batches of a few hundred rows take less time than by BLAS, which packs both sets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd.hpp"
#include "vector_distance.hpp"

#if NESTCODE_X86
namespace nestcode {

// Writes the inner products of `count` rows, (count, features), with the 32 of a panel, (features, 32).
template <std::size_t count>
NESTCODE_AVX512 void multiply_rows(const float* panel, const float* rows, std::size_t features, float* out,
                                   std::size_t stride) {
    __m512 sums[count][2];
    for (auto& [left, right] : sums) left = right = _mm512_setzero_ps();
    for (std::size_t f = 0; f < features; ++f) {
        const __m512 left = _mm512_loadu_ps(panel + 32 * f), right = _mm512_loadu_ps(panel + 32 * f + 16);
        for (std::size_t i = 0; i < count; ++i) {
            const __m512 value = _mm512_set1_ps(rows[i * features + f]);
            sums[i][0] = _mm512_fmadd_ps(value, left, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(value, right, sums[i][1]);
        }
    }
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t half = 0; half < 2; ++half) _mm512_storeu_ps(out + i * stride + 16 * half, sums[i][half]);
}

// The same for any number of rows: the products of row i are at out + i * stride.
inline void multiply_panel(const float* panel, const float* rows, std::size_t count, std::size_t features, float* out,
                           std::size_t stride) {
    std::size_t i = 0;
    for (; i + 12 <= count; i += 12) multiply_rows<12>(panel, rows + i * features, features, out + i * stride, stride);
    for (; i + 4 <= count; i += 4) multiply_rows<4>(panel, rows + i * features, features, out + i * stride, stride);
    for (; i < count; ++i) multiply_rows<1>(panel, rows + i * features, features, out + i * stride, stride);
}

// A ProjectKernel for many vectors.
inline void project_many(const ProjectionBlocks& directions, const float* vectors, std::size_t many, float* out) {
    const std::size_t features = directions.features, width = ProjectionBlocks::kWidth;
    for (std::size_t b = 0; b < directions.blocks; ++b)
        multiply_panel(directions.block(b), vectors, many, features, out + b * width, directions.count());
}

class Panel {
  public:
    static constexpr std::size_t kRows = 32;

    explicit Panel(std::size_t features) : features_(features), lines_(2 * std::max<std::size_t>(features, 1)) {}

    // The values of a feature, (32), which those of the next follow.
    float* line(std::size_t feature) { return lines_[2 * feature].values; }

    // Packs 32 rows.
    NESTCODE_AVX512 void pack(const float* const* rows) {
        __m512i values[kLanes];
        for (std::size_t half = 0; half < 2; ++half)
            for (std::size_t first = 0; first < features_; first += kLanes) {
                const std::size_t count = std::min(kLanes, features_ - first);
                const auto lanes = static_cast<__mmask16>((1u << count) - 1);
                for (std::size_t i = 0; i < kLanes; ++i)
                    values[i] = _mm512_maskz_loadu_epi32(lanes, rows[half * kLanes + i] + first);
                transpose(values);
                for (std::size_t i = 0; i < count; ++i)
                    _mm512_store_si512(lines_[2 * (first + i) + half].values, values[i]);
            }
    }

    // Writes the first `count` rows, (count, features).
    NESTCODE_AVX512 void unpack(std::size_t count, float* rows) const {
        __m512i values[kLanes];
        for (std::size_t row = 0; row < count; row += kLanes)
            for (std::size_t first = 0; first < features_; first += kLanes) {
                const std::size_t features = std::min(kLanes, features_ - first);
                const auto lanes = static_cast<__mmask16>((1u << features) - 1);
                for (std::size_t i = 0; i < kLanes; ++i)
                    values[i] = i < features ? _mm512_load_si512(lines_[2 * (first + i) + row / kLanes].values)
                                             : _mm512_setzero_si512();
                transpose(values);
                for (std::size_t i = 0; i < std::min(kLanes, count - row); ++i)
                    _mm512_mask_storeu_epi32(rows + (row + i) * features_ + first, lanes, values[i]);
            }
    }

    void multiply(const float* rows, std::size_t count, float* out, std::size_t stride) const {
        multiply_panel(lines_.front().values, rows, count, features_, out, stride);
    }

  private:
    static constexpr std::size_t kLanes = 16;
    struct alignas(64) Line {
        float values[kLanes];
    };

    // Transposes 16 x 16 values in four steps of pairs: of values, of pairs, and twice of quarters.
    [[gnu::always_inline]] NESTCODE_AVX512 static void transpose(__m512i* a) {
        __m512i b[kLanes];
        for (std::size_t i = 0; i < kLanes; i += 2) {
            b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
            b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
        }
        for (std::size_t i = 0; i < kLanes; i += 4)
            for (std::size_t j = 0; j < 2; ++j) {
                a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + 2 + j]);
                a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + 2 + j]);
            }
        for (std::size_t i = 0; i < kLanes; i += 8)
            for (std::size_t j = 0; j < 4; ++j) {
                b[i + j] = _mm512_shuffle_i32x4(a[i + j], a[i + 4 + j], 0x88);
                b[i + 4 + j] = _mm512_shuffle_i32x4(a[i + j], a[i + 4 + j], 0xdd);
            }
        for (std::size_t j = 0; j < 8; ++j) {
            a[j] = _mm512_shuffle_i32x4(b[j], b[8 + j], 0x88);
            a[8 + j] = _mm512_shuffle_i32x4(b[j], b[8 + j], 0xdd);
        }
    }

    std::size_t features_;
    std::vector<Line> lines_;  // (features, 2)
};

}  // namespace nestcode
#endif
