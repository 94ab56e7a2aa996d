// Rough distances from a query to many codes at once: tables of 16 numbers, looked up 16 or more at a time.
//
// The bits of a code are regrouped into half bytes, each standing for a few directions in which the query and the
// decoded code are compared. Items lie in blocks of 32: first the two half bytes that come first of all of them, then
// the next two, so that one instruction looks up a half byte of many items.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "rows.hpp"
#include "simd.hpp"

namespace nestcode {

constexpr std::size_t block_items = 32;
constexpr int largest_entry = 127;  // of a table: two of them fit a byte, and those of 256 groups a number of 16 bits

struct Blocks {
    const std::uint32_t* starts = nullptr;  // (coarse): the block at which each coarse cell begins
    std::size_t coarse = 0;
    const std::uint8_t* cells = nullptr;   // (blocks, planes, 32): half bytes 2p (low) and 2p + 1 (high) of each item
    const std::int16_t* biases = nullptr;  // (blocks * 32): what is added to each item's distance
    std::size_t planes = 0;                // bytes of an item
    float unit = 1;                        // of the biases

    const std::uint8_t* block(std::size_t i) const { return cells + i * planes * block_items; }
};

// A query's tables in whole numbers: a distance is offset + sum / scale.
struct ScanTables {
    std::vector<std::uint8_t> entries;  // (planes, 2, 16)
    float offset = 0;
    float scale = 1;
    std::int16_t factor = 0;  // biases * factor / 2^15 are in the same scale
};

// What one half byte of a code says, for each of its 16 values: the numbers of up to four directions.
struct ScanGroup {
    std::int32_t directions[4];  // -1 for none
    float numbers[4][16];
};

// A table entry, rounded to the nearest whole number. Queries near the range of a float give infinite entries and NaN:
// both become the largest entry, because casting them to an integer is undefined.
inline std::uint8_t quantize_entry(float entry) {
    const float capped = entry < largest_entry ? entry : largest_entry;  // NaN fails the comparison
    const float bounded = capped > 0 ? capped : 0;
    return static_cast<std::uint8_t>(static_cast<std::int32_t>(bounded + 0.5f));
}

// Tables of r^2 - 2 q r summed over a group's directions: |q - r|^2 less |q|^2; of -2 q r for inner products, which
// need no biases either.
inline void fill_tables(const std::vector<ScanGroup>& groups, const float* query, float unit, bool inner,
                        ScanTables& out) {
    out.entries.assign((groups.size() + 1) / 2 * 32, 0);
    std::vector<float> sums(groups.size() * 16);
    const auto smaller = [](Four a, Four b) { return a < b ? a : b; };
    const auto larger = [](Four a, Four b) { return a < b ? b : a; };
    Four widest_of = {}, second_of = {}, third_of = {}, offset = {};
    for (std::size_t g = 0; g < groups.size(); ++g) {
        Four sum[4] = {};
        for (int j = 0; j < 4 && groups[g].directions[j] >= 0; ++j) {
            const float twice = 2 * query[groups[g].directions[j]];
            for (int c = 0; c < 4; ++c) {
                const Four number = load_four(groups[g].numbers[j] + 4 * c);
                sum[c] += inner ? number * -twice : number * (number - twice);
            }
        }
        const Four low = smaller(smaller(sum[0], sum[1]), smaller(sum[2], sum[3]));
        const Four high = larger(larger(sum[0], sum[1]), larger(sum[2], sum[3]));
        // The smallest of the four lows, the second and the third one, in all places.
        const Four across = {low[1], low[0], low[3], low[2]}, least_of = smaller(low, across),
                   most_of = larger(low, across);
        const Four least_beyond = {least_of[2], least_of[2], least_of[0], least_of[0]},
                   most_beyond = {most_of[2], most_of[2], most_of[0], most_of[0]};
        const Four least = smaller(least_of, least_beyond), one = larger(least_of, least_beyond),
                   other = smaller(most_of, most_beyond);
        widest_of = larger(widest_of, high - least);
        second_of += smaller(one, other) - least;
        third_of += larger(one, other) - least;
        offset += least;
        for (int c = 0; c < 4; ++c) {
            sum[c] -= least;
            std::memcpy(sums.data() + 16 * g + 4 * c, &sum[c], sizeof sum[c]);
        }
    }
    out.offset = offset[0];
    const float widest = std::max(std::max(widest_of[0], widest_of[1]), std::max(widest_of[2], widest_of[3]));
    // What is many times as far as a close item is far enough: a few outliers must not make the scale coarse for all.
    // The second of few groups may be as near as the first by chance, the third hardly.
    const float close = std::max(32 * second_of[0], groups.size() < 8 ? 8 * third_of[0] : 0);
    const float most = std::min(close > 0 ? close : widest, std::numeric_limits<float>::max());
    out.scale = widest > 0 ? std::min(largest_entry / std::min(widest, most), std::numeric_limits<float>::max()) : 1;
    if (out.scale * unit > 0.999f) out.scale = 0.999f / unit;  // so that the factor fits
    const float scale = out.scale;
    std::uint8_t* entries = out.entries.data();
    for (std::size_t i = 0; i < sums.size(); ++i) entries[i] = quantize_entry(sums[i] * scale);
    out.factor = inner ? 0 : static_cast<std::int16_t>(std::lround(out.scale * unit * 32768));
}

// Writes the distances of a block's 32 items; bit i of what it returns says whether that of item i is below the limit.
using ScanKernel = std::uint32_t (*)(const std::uint8_t* block, const std::int16_t* biases, std::size_t planes,
                                     const ScanTables& tables, std::int16_t limit, std::int16_t* out);

inline std::int16_t saturate(std::int32_t number) {
    return static_cast<std::int16_t>(std::clamp<std::int32_t>(number, INT16_MIN, INT16_MAX));
}

inline std::uint32_t scan_portable(const std::uint8_t* block, const std::int16_t* biases, std::size_t planes,
                                   const ScanTables& tables, std::int16_t limit, std::int16_t* out) {
    std::uint32_t below = 0;
    for (std::size_t i = 0; i < block_items; ++i) {
        std::int32_t sum = (biases[i] * tables.factor + (1 << 14)) >> 15;
        const std::uint8_t* table = tables.entries.data();
        for (std::size_t p = 0; p < planes; ++p, table += 32) {
            const std::uint8_t both = block[p * block_items + i];
            sum += table[both & 15] + table[16 + (both >> 4)];
        }
        out[i] = saturate(sum);
        below |= static_cast<std::uint32_t>(out[i] < limit) << i;
    }
    return below;
}

#if NESTCODE_NEON
inline std::uint32_t scan_neon(const std::uint8_t* block, const std::int16_t* biases, std::size_t planes,
                               const ScanTables& tables, std::int16_t limit, std::int16_t* out) {
    const uint8x16_t low = vdupq_n_u8(15);
    const std::uint8_t* table = tables.entries.data();
    uint16x8_t sums[4] = {};
    for (std::size_t p = 0; p < planes; ++p, block += 32, table += 32) {
        const uint8x16_t first = vld1q_u8(table), second = vld1q_u8(table + 16);
        for (int half = 0; half < 2; ++half) {
            const uint8x16_t both = vld1q_u8(block + 16 * half);
            const uint8x16_t sum =
                vaddq_u8(vqtbl1q_u8(first, vandq_u8(both, low)), vqtbl1q_u8(second, vshrq_n_u8(both, 4)));
            sums[2 * half] = vaddw_u8(sums[2 * half], vget_low_u8(sum));
            sums[2 * half + 1] = vaddw_high_u8(sums[2 * half + 1], sum);
        }
    }
    int16x8_t least = vdupq_n_s16(INT16_MAX);
    for (int k = 0; k < 4; ++k) {
        const int16x8_t bias = vqrdmulhq_n_s16(vld1q_s16(biases + 8 * k), tables.factor);
        const int16x8_t sum = vqaddq_s16(vreinterpretq_s16_u16(sums[k]), bias);
        vst1q_s16(out + 8 * k, sum);
        least = vminq_s16(least, sum);
    }
    if (vminvq_s16(least) >= limit) return 0;
    const uint16x8_t bit_of = {1, 2, 4, 8, 16, 32, 64, 128};
    std::uint32_t below = 0;
    for (int k = 0; k < 4; ++k) {
        const uint16x8_t mask = vcltq_s16(vld1q_s16(out + 8 * k), vdupq_n_s16(limit));
        below |= static_cast<std::uint32_t>(vaddvq_u16(vandq_u16(mask, bit_of))) << 8 * k;
    }
    return below;
}
#endif

#if NESTCODE_X86
NESTCODE_TARGET("avx2")
inline std::uint32_t scan_avx2(const std::uint8_t* block, const std::int16_t* biases, std::size_t planes,
                               const ScanTables& tables, std::int16_t limit, std::int16_t* out) {
    const __m256i low = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    const auto* table = reinterpret_cast<const __m128i*>(tables.entries.data());
    __m256i sums[2] = {zero, zero};  // items 0-7 and 16-23, 8-15 and 24-31
    for (std::size_t p = 0; p < planes; ++p, block += 32, table += 2) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block));
        const __m256i first = _mm256_broadcastsi128_si256(_mm_loadu_si128(table));
        const __m256i second = _mm256_broadcastsi128_si256(_mm_loadu_si128(table + 1));
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        const __m256i sum =
            _mm256_add_epi8(_mm256_shuffle_epi8(first, _mm256_and_si256(both, low)), _mm256_shuffle_epi8(second, high));
        sums[0] = _mm256_add_epi16(sums[0], _mm256_unpacklo_epi8(sum, zero));
        sums[1] = _mm256_add_epi16(sums[1], _mm256_unpackhi_epi8(sum, zero));
    }
    const __m256i ordered[2] = {_mm256_permute2x128_si256(sums[0], sums[1], 0x20),
                                _mm256_permute2x128_si256(sums[0], sums[1], 0x31)};
    const __m256i factor = _mm256_set1_epi16(tables.factor), bound = _mm256_set1_epi16(limit);
    __m256i below[2];
    for (int k = 0; k < 2; ++k) {
        const __m256i bias = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(biases + 16 * k));
        const __m256i sum = _mm256_adds_epi16(ordered[k], _mm256_mulhrs_epi16(bias, factor));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16 * k), sum);
        below[k] = _mm256_cmpgt_epi16(bound, sum);
    }
    // Packing works on halves: their middle quarters change places.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(below[0], below[1]), 0xd8);
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(packed));
}
#endif

inline ScanKernel scan_kernel(Simd simd) {
    switch (simd) {
#if NESTCODE_NEON
        case Simd::neon: return scan_neon;
#endif
#if NESTCODE_X86
        case Simd::avx2:
        case Simd::avx512: return scan_avx2;
#endif
        default: return scan_portable;
    }
}

// Lay the half bytes of items, (count, planes) bytes each, out in blocks, each at its place there.
inline void fill_blocks(Rows cells, const std::uint32_t* places, std::uint8_t* out) {
    for (std::size_t i = 0; i < cells.count; ++i) {
        std::uint8_t* block = out + places[i] / block_items * cells.bytes * block_items + places[i] % block_items;
        for (std::size_t p = 0; p < cells.bytes; ++p) block[p * block_items] = cells[i][p];
    }
}

}  // namespace nestcode
