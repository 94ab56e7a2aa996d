// Distances from one query to codes of bit planes (scalar_quantizer.hpp) that are not decoded first.
//
// Items lie in the lanes of vectors, 64 of them side by side. Direction by direction, their bits select levels, which
// are added up at once: nothing but the sums is written.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "scalar_quantizer.hpp"
#include "simd.hpp"

namespace nestcode {

// The bits of codes by direction, most significant first.
struct DirectionBits {
    std::vector<std::uint32_t> bits, ends;  // of a code; where those of each direction end in `bits`

    DirectionBits() = default;
    DirectionBits(const std::int32_t* allocation, std::size_t count, std::size_t first, std::size_t directions)
        : ends(directions) {
        const auto each = [&](const auto& act) {  // by direction and bit, but for unallocated ones
            for (std::size_t j = 0; j < count; ++j)
                if (allocation[j] >= 0) act(static_cast<std::size_t>(allocation[j]), first + j);
        };
        each([&](std::size_t d, std::size_t) { ++ends[d]; });
        std::partial_sum(ends.begin(), ends.end(), ends.begin());
        bits.resize(directions == 0 ? 0 : ends.back());
        std::vector<std::uint32_t> next(directions);
        for (std::size_t d = 1; d < directions; ++d) next[d] = ends[d - 1];
        each([&](std::size_t d, std::size_t bit) { bits[next[d]++] = static_cast<std::uint32_t>(bit); });
    }
};

constexpr std::size_t kLanes = 64;

// The query, and what levels are shifted by: sums are of x = level + shift.
struct ShiftedQuery {
    const float *query, *shifts;  // (directions)
};

// Writes <q, x> and |x|^2 of 64 codes, whose bytes lie side by side, (bytes, 64).
using BitPlaneKernel = void (*)(const std::uint8_t* bytes, const DirectionBits& planes, ReconstructionLevels levels,
                                ShiftedQuery with, float* products, float* norms);

#if NESTCODE_X86
NESTCODE_AVX512 inline void bit_plane_sums_avx512(const std::uint8_t* bytes, const DirectionBits& planes,
                                                  ReconstructionLevels levels, ShiftedQuery with, float* products,
                                                  float* norms) {
    const __m512 zero = _mm512_setzero_ps();
    __m512 product[4] = {zero, zero, zero, zero}, norm[4] = {zero, zero, zero, zero};
    for (std::size_t d = 0, j = 0; d < levels.directions; ++d) {
        __m512i intervals = _mm512_setzero_si512();
        std::size_t leaf = 1;
        for (; j < planes.ends[d]; ++j, leaf *= 2) {
            const __m512i from = _mm512_loadu_si512(bytes + planes.bits[j] / 8 * kLanes);
            const __m512i bit = _mm512_set1_epi8(static_cast<char>(0x80 >> planes.bits[j] % 8));
            intervals = _mm512_add_epi8(intervals, intervals);
            intervals =
                _mm512_mask_add_epi8(intervals, _mm512_test_epi8_mask(from, bit), intervals, _mm512_set1_epi8(1));
        }
        const float* leaves = levels.values + d * levels.stride + leaf;
        const bool few = leaf <= 32;  // fit two registers
        const std::uint64_t used = (std::uint64_t{1} << std::min<std::size_t>(leaf, 32)) - 1;
        const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used), leaves);
        const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(used >> 16), leaves + 16);
        const __m512 query = _mm512_set1_ps(with.query[d]), shift = _mm512_set1_ps(with.shifts[d]);
        const __m128i quarters[4] = {_mm512_castsi512_si128(intervals), _mm512_extracti32x4_epi32(intervals, 1),
                                     _mm512_extracti32x4_epi32(intervals, 2), _mm512_extracti32x4_epi32(intervals, 3)};
        for (int i = 0; i < 4; ++i) {
            const __m512i places = _mm512_cvtepu8_epi32(quarters[i]);
            const __m512 level =
                few ? _mm512_permutex2var_ps(first, places, second) : _mm512_i32gather_ps(places, leaves, 4);
            const __m512 x = _mm512_add_ps(level, shift);
            product[i] = _mm512_fmadd_ps(query, x, product[i]);
            norm[i] = _mm512_fmadd_ps(x, x, norm[i]);
        }
    }
    for (int i = 0; i < 4; ++i) {
        _mm512_storeu_ps(products + 16 * i, product[i]);
        _mm512_storeu_ps(norms + 16 * i, norm[i]);
    }
}
#endif

// Null where decoding the codes first is faster.
inline BitPlaneKernel bit_plane_kernel(Simd simd) {
#if NESTCODE_X86
    if (simd == Simd::avx512) return bit_plane_sums_avx512;
#endif
    static_cast<void>(simd);
    return nullptr;
}

}  // namespace nestcode
