// 4-bit fast-scan: estimated distances from a query to 32 codes at a time, with lookup tables in SIMD registers.
//
// The bits of a code are regrouped into 4-bit groups, each of which holds the quantized coefficients of up to four
// directions. A group's lookup table has 16 entries, quantized to 7 bits, so a byte shuffle looks up 16 or 32 items at
// once and two entries add up within a byte (André, Kermarrec, Le Scouarnec, "Cache locality is not enough:
// high-performance nearest neighbor search with product quantization fast scan", 2015; FAISS's FastScan; ScaNN).
// fastscan_blocks.hpp is the layout of the items.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "inverted_lists.hpp"
#include "metric.hpp"
#include "parallel.hpp"
#include "simd.hpp"

namespace nestcode {

constexpr int kLargestEntry = 127;  // of a table: two fit a byte, and the sum over 256 groups fits 16 bits

// A query's quantized lookup tables: a distance is offset + sum / scale.
struct FastScanTables {
    std::vector<std::uint8_t> entries;  // (columns, 2, 16)
    float offset = 0;
    float scale = 1;
    std::int16_t bias_factor = 0;  // biases * bias_factor / 2^15 have the same scale
};

// One 4-bit group: the up to four directions that it quantizes, and the level of each for the group's 16 values.
struct FastScanGroup {
    std::int32_t directions[4];  // -1 for none
    float levels[4][16];
};

// What corrects the estimates of an item for its centroid and its norm: coefficients around the mean, by direction.
struct ItemCorrections {
    const float* centroids;  // (centroids, directions)
    const float* offsets;    // (centroids, directions): from their parents
    const float* mean;       // (directions)
    const double* squares;   // (centroids): squared norms, the mean included; null where distances are not by angle
    std::size_t directions;
    float bias_unit;
};

// Writes the biases of grouped items, two groups a byte, and, for angles, the norms of what the groups decode to, the
// mean included. `centroids` has the centroid of each item, `slots` its place in `biases` and `norms`.
inline void correct_items(const std::vector<FastScanGroup>& groups, Rows grouped, const std::int64_t* centroids,
                          const std::uint32_t* slots, const ItemCorrections& with, std::int16_t* biases, float* norms,
                          std::size_t threads) {
    parallel_for(grouped.count, 1 << 10, threads, [=, &groups](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const auto own = static_cast<std::size_t>(centroids[i]) * with.directions;
            const float *centroid = with.centroids + own, *offset = with.offsets + own;
            double bias = 0, square = 0;
            for (std::size_t g = 0; g < groups.size(); ++g) {
                const int value = grouped[i][g / 2] >> 4 * (g % 2) & 15;
                for (int j = 0; j < 4 && groups[g].directions[j] >= 0; ++j) {
                    const auto d = static_cast<std::size_t>(groups[g].directions[j]);
                    const double level = groups[g].levels[j][value];
                    bias += level * offset[d];
                    if (with.squares != nullptr)
                        square += level * (level + 2 * (static_cast<double>(centroid[d]) + with.mean[d]));
                }
            }
            biases[slots[i]] =
                static_cast<std::int16_t>(std::clamp(std::nearbyint(2 * bias / with.bias_unit), -32768.0, 32767.0));
            if (with.squares != nullptr)
                norms[slots[i]] = static_cast<float>(std::sqrt(std::max(with.squares[centroids[i]] + square, 0.0)));
        }
    });
}

// Writes, for each item, the sum of the table entries, (groups, 16), that its groups select.
inline void sum_group_tables(Rows grouped, const double* tables, std::size_t groups, double* out, std::size_t threads) {
    parallel_for(grouped.count, 1 << 10, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            double sum = 0;
            for (std::size_t g = 0; g < groups; ++g) sum += tables[16 * g + (grouped[i][g / 2] >> 4 * (g % 2) & 15)];
            out[i] = sum;
        }
    });
}

// What the quantization of a query's tables depends on, over all groups.
struct TableRange {
    float offset = 0, widest = 0;  // the sum of the least entries; the largest entry above its group's least
    float second = 0, third = 0;   // sums of the second and the third least of four entries, above the least
    float total = 0;               // only to notice entries that are not finite
};

// The kernels of `fill_tables`. One writes the entries of all groups above the least of each, 16 a group: the entry of
// a group sums r^2 - 2 q r over its directions, where r is the level and q the query's coefficient, |q - r|^2 less
// |q|^2; for inner products it sums -2 q r. The other rounds entries to integers.
struct TableKernels {
    TableRange (*sum)(const std::vector<FastScanGroup>& groups, const float* query, bool inner, float* out);
    void (*quantize)(const float* entries, float scale, std::size_t count, std::uint8_t* out);  // a multiple of 32
};

inline TableRange sum_tables_portable(const std::vector<FastScanGroup>& groups, const float* query, bool inner,
                                      float* out) {
    const auto smaller = [](Float4 a, Float4 b) { return a < b ? a : b; };
    const auto larger = [](Float4 a, Float4 b) { return a < b ? b : a; };
    Float4 widest = {}, second = {}, third = {}, offset = {}, totals[4] = {};
    for (const FastScanGroup& group : groups) {
        Float4 sum[4] = {};
        for (int j = 0; j < 4 && group.directions[j] >= 0; ++j) {
            const float twice = 2 * query[group.directions[j]];
            for (int c = 0; c < 4; ++c) {
                const Float4 level = load_float4(group.levels[j] + 4 * c);
                sum[c] += inner ? level * -twice : level * (level - twice);
            }
        }
        const Float4 low = smaller(smaller(sum[0], sum[1]), smaller(sum[2], sum[3]));
        const Float4 high = larger(larger(sum[0], sum[1]), larger(sum[2], sum[3]));
        // The smallest, second and third of the four lows, in all lanes.
        const Float4 across = {low[1], low[0], low[3], low[2]}, least_of = smaller(low, across),
                     most_of = larger(low, across);
        const Float4 least_beyond = {least_of[2], least_of[2], least_of[0], least_of[0]},
                     most_beyond = {most_of[2], most_of[2], most_of[0], most_of[0]};
        const Float4 least = smaller(least_of, least_beyond), one = larger(least_of, least_beyond),
                     other = smaller(most_of, most_beyond);
        widest = larger(widest, high - least);
        second += smaller(one, other) - least;
        third += larger(one, other) - least;
        offset += least;
        for (int c = 0; c < 4; ++c, out += 4) {
            totals[c] += sum[c];
            sum[c] -= least;
            std::memcpy(out, &sum[c], sizeof sum[c]);
        }
    }
    return {offset[0], std::max(std::max(widest[0], widest[1]), std::max(widest[2], widest[3])), second[0], third[0],
            horizontal_sum(totals[0] + totals[1] + totals[2] + totals[3])};
}

inline void quantize_tables_portable(const float* entries, float scale, std::size_t count, std::uint8_t* out) {
    for (std::size_t i = 0; i < count; ++i)
        out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(entries[i] * scale + 0.5f));
}

#if NESTCODE_X86
NESTCODE_AVX2_UNFUSED inline TableRange sum_tables_avx2(const std::vector<FastScanGroup>& groups, const float* query,
                                                        bool inner, float* out) {
    const auto halves = [](__m256 values, auto both) NESTCODE_AVX2_UNFUSED {
        return both(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
    };
    const auto add = [](__m128 a, __m128 b) NESTCODE_AVX2_UNFUSED { return _mm_add_ps(a, b); };
    const auto larger = [](__m128 a, __m128 b) NESTCODE_AVX2_UNFUSED { return _mm_max_ps(a, b); };
    const auto smaller = [](__m128 a, __m128 b) NESTCODE_AVX2_UNFUSED { return _mm_min_ps(a, b); };
    __m256 widest = _mm256_setzero_ps(), total = widest;
    TableRange range;
    for (std::size_t first = 0; first < groups.size(); first += 4) {  // four groups side by side; zeros beyond the last
        const std::size_t many = std::min<std::size_t>(4, groups.size() - first);
        __m256 sums[4][2];
        __m128 lows[4];
        for (std::size_t i = 0; i < 4; ++i) {
            sums[i][0] = sums[i][1] = _mm256_setzero_ps();
            for (int j = 0; i < many && j < 4 && groups[first + i].directions[j] >= 0; ++j) {
                const FastScanGroup& group = groups[first + i];
                const __m256 twice = _mm256_set1_ps(2 * query[group.directions[j]]);
                for (std::size_t half = 0; half < 2; ++half) {
                    const __m256 level = _mm256_loadu_ps(group.levels[j] + 8 * half);
                    const __m256 factor = _mm256_sub_ps(inner ? _mm256_setzero_ps() : level, twice);
                    sums[i][half] = _mm256_add_ps(sums[i][half], _mm256_mul_ps(level, factor));
                }
            }
            lows[i] = halves(_mm256_min_ps(sums[i][0], sums[i][1]), smaller);
        }
        _MM_TRANSPOSE4_PS(lows[0], lows[1], lows[2], lows[3]);
        // The smallest, second and third of the four lows of each group.
        const __m128 leasts[2] = {smaller(lows[0], lows[1]), smaller(lows[2], lows[3])};
        const __m128 mosts[2] = {larger(lows[0], lows[1]), larger(lows[2], lows[3])};
        const __m128 least = smaller(leasts[0], leasts[1]), one = larger(leasts[0], leasts[1]),
                     other = smaller(mosts[0], mosts[1]);
        float least_of[4], second_of[4], third_of[4];
        _mm_storeu_ps(least_of, least);
        _mm_storeu_ps(second_of, _mm_sub_ps(smaller(one, other), least));
        _mm_storeu_ps(third_of, _mm_sub_ps(larger(one, other), least));
        for (std::size_t i = 0; i < many; ++i) {
            range.offset += least_of[i];
            range.second += second_of[i];
            range.third += third_of[i];
            for (std::size_t half = 0; half < 2; ++half, out += 8) {
                const __m256 entries = _mm256_sub_ps(sums[i][half], _mm256_set1_ps(least_of[i]));
                total = _mm256_add_ps(total, sums[i][half]);
                widest = _mm256_max_ps(widest, entries);
                _mm256_storeu_ps(out, entries);
            }
        }
    }
    float most[4], totals[4];
    _mm_storeu_ps(most, halves(widest, larger));
    _mm_storeu_ps(totals, halves(total, add));
    range.widest = *std::max_element(most, most + 4);
    range.total = totals[0] + totals[1] + totals[2] + totals[3];
    return range;
}

NESTCODE_AVX2_UNFUSED inline void quantize_tables_avx2(const float* entries, float scale, std::size_t count,
                                                       std::uint8_t* out) {
    const auto load = [&](std::size_t i) NESTCODE_AVX2_UNFUSED {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(entries + i), _mm256_set1_ps(scale));
        return _mm256_cvttps_epi32(_mm256_add_ps(scaled, _mm256_set1_ps(0.5f)));
    };
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing works within 128-bit lanes
    for (std::size_t i = 0; i < count; i += 32) {
        const __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(load(i), load(i + 8)),
                                                   _mm256_packs_epi32(load(i + 16), load(i + 24)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permutevar8x32_epi32(packed, order));
    }
}
#endif

inline TableKernels table_kernels(Simd simd) {
#if NESTCODE_X86
    if (simd == Simd::avx2 || simd == Simd::avx512) return {sum_tables_avx2, quantize_tables_avx2};
#endif
    static_cast<void>(simd);
    return {sum_tables_portable, quantize_tables_portable};
}

// Clips entries to [0, largest]. NaN becomes the largest: it fails the comparison.
inline void clip_entries(std::vector<float>& entries, float largest) {
    for (float& entry : entries) {
        const float capped = entry < largest ? entry : largest;
        entry = capped > 0 ? capped : 0;
    }
}

// Computes and quantizes the tables of a query. For inner products biases are 0.
inline void fill_tables(const std::vector<FastScanGroup>& groups, const float* query, float bias_unit, Metric metric,
                        const TableKernels& kernels, FastScanTables& out, bool clips = true) {
    const bool inner = metric == Metric::inner;
    const std::size_t size = (groups.size() + 1) / 2 * 32;
    std::vector<float> sums(size);
    const TableRange range = kernels.sum(groups, query, inner, sums.data());
    out.offset = range.offset;
    // Entries far above those of near items are clipped, so that outliers do not make the quantization coarse for all.
    // With few groups the second entry may be close to the first by chance; the third hardly is.
    const float close = std::max(32 * range.second, groups.size() < 8 ? 8 * range.third : 0), widest = range.widest;
    const float most = std::min(clips && close > 0 ? close : widest, std::numeric_limits<float>::max());
    out.scale = widest > 0 ? std::min(kLargestEntry / std::min(widest, most), std::numeric_limits<float>::max()) : 1;
    if (out.scale * bias_unit > 0.999f) out.scale = 0.999f / bias_unit;  // so that bias_factor fits 16 bits
    // Queries near the range of a float give infinite entries and NaN, whose casts to integers would be undefined.
    if (!std::isfinite(range.total) || !(widest * out.scale < kLargestEntry + 0.4f))
        clip_entries(sums, std::min(kLargestEntry / out.scale, std::numeric_limits<float>::max()));
    out.entries.resize(size);
    kernels.quantize(sums.data(), out.scale, size, out.entries.data());
    out.bias_factor = inner ? 0 : static_cast<std::int16_t>(std::lround(out.scale * bias_unit * 32768));
}

// Writes the quantized distances of a block's 32 items and returns a mask of the items below the limit.
using FastScanBlockKernel = std::uint32_t (*)(const std::uint8_t* block, const std::int16_t* biases,
                                              std::size_t columns, const FastScanTables& tables, std::int16_t limit,
                                              std::int16_t* out);

// Queries that are scored together: a block is loaded and its nibbles are unpacked once for all of them.
struct FastScanTile {
    std::size_t queries;
    const FastScanTables* tables[kTileQueries];
    std::int16_t limits[kTileQueries];
    std::uint32_t below[kTileQueries];             // masks of the items below the limits
    std::int16_t sums[kTileQueries][kBlockItems];  // quantized distances
};
using FastScanKernel = void (*)(const std::uint8_t* block, const std::int16_t* biases, std::size_t columns,
                                FastScanTile& tile);

template <FastScanBlockKernel kernel>
void fastscan_each(const std::uint8_t* block, const std::int16_t* biases, std::size_t columns, FastScanTile& tile) {
    for (std::size_t q = 0; q < tile.queries; ++q)
        tile.below[q] = kernel(block, biases, columns, *tile.tables[q], tile.limits[q], tile.sums[q]);
}

// The kernels of an instruction set that has vectors of a block's sums: `look_up` adds up the entries that the nibbles
// select from one or several tables, `finish` adds the biases, writes the sums and returns a mask of those below the
// limit.
template <class Vectors>
std::uint32_t fastscan_block(const std::uint8_t* block, const std::int16_t* biases, std::size_t columns,
                             const FastScanTables& tables, std::int16_t limit, std::int16_t* out) {
    const std::uint8_t* entries = tables.entries.data();
    typename Vectors::Sums sums[1];
    Vectors::template look_up<1>(block, columns, &entries, sums);
    return Vectors::finish(sums[0], biases, tables.bias_factor, limit, out);
}

template <class Vectors, FastScanBlockKernel one = fastscan_block<Vectors>>
void fastscan_tile(const std::uint8_t* block, const std::int16_t* biases, std::size_t columns, FastScanTile& tile) {
    if (tile.queries < kTileQueries) return fastscan_each<one>(block, biases, columns, tile);
    const std::uint8_t* entries[kTileQueries];
    for (std::size_t q = 0; q < kTileQueries; ++q) entries[q] = tile.tables[q]->entries.data();
    typename Vectors::Sums sums[kTileQueries];
    Vectors::template look_up<kTileQueries>(block, columns, entries, sums);
    for (std::size_t q = 0; q < kTileQueries; ++q)
        tile.below[q] = Vectors::finish(sums[q], biases, tile.tables[q]->bias_factor, tile.limits[q], tile.sums[q]);
}

inline std::int16_t saturate(std::int32_t sum) {
    return static_cast<std::int16_t>(std::clamp<std::int32_t>(sum, INT16_MIN, INT16_MAX));
}

// The sum of the entries that one item of a block selects, whose bytes are `stride` apart.
inline std::int32_t sum_entries(const std::uint8_t* item, std::size_t columns, const FastScanTables& tables,
                                std::size_t stride = kBlockItems) {
    std::int32_t sum = 0;
    const std::uint8_t* table = tables.entries.data();
    for (std::size_t c = 0; c < columns; ++c, table += 32)
        sum += table[item[c * stride] & 15] + table[16 + (item[c * stride] >> 4)];
    return sum;
}

inline std::uint32_t fastscan_portable(const std::uint8_t* block, const std::int16_t* biases, std::size_t columns,
                                       const FastScanTables& tables, std::int16_t limit, std::int16_t* out) {
    std::uint32_t below = 0;
    for (std::size_t i = 0; i < kBlockItems; ++i) {
        const std::int32_t bias = (biases[i] * tables.bias_factor + (1 << 14)) >> 15;
        out[i] = saturate(bias + sum_entries(block + i, columns, tables));
        below |= static_cast<std::uint32_t>(out[i] < limit) << i;
    }
    return below;
}

#if NESTCODE_NEON
struct NeonVectors {
    using Sums = uint16x8_t[4];

    template <std::size_t queries>
    static void look_up(const std::uint8_t* block, std::size_t columns, const std::uint8_t* const* tables, Sums* sums,
                        std::size_t stride = kBlockItems) {
        const uint8x16_t low = vdupq_n_u8(15);
        Sums own[queries] = {};
        for (std::size_t c = 0; c < 32 * columns; c += 32, block += stride) {
            const uint8x16_t nibbles[2] = {vld1q_u8(block), vld1q_u8(block + 16)};
            const uint8x16_t lows[2] = {vandq_u8(nibbles[0], low), vandq_u8(nibbles[1], low)};
            const uint8x16_t highs[2] = {vshrq_n_u8(nibbles[0], 4), vshrq_n_u8(nibbles[1], 4)};
            for (std::size_t q = 0; q < queries; ++q) {
                const uint8x16_t first = vld1q_u8(tables[q] + c), second = vld1q_u8(tables[q] + c + 16);
                for (int half = 0; half < 2; ++half) {
                    const uint8x16_t sum = vaddq_u8(vqtbl1q_u8(first, lows[half]), vqtbl1q_u8(second, highs[half]));
                    own[q][2 * half] = vaddw_u8(own[q][2 * half], vget_low_u8(sum));
                    own[q][2 * half + 1] = vaddw_high_u8(own[q][2 * half + 1], sum);
                }
            }
        }
        std::memcpy(sums, own, sizeof own);
    }

    static std::uint32_t finish(const Sums& sums, const std::int16_t* biases, std::int16_t bias_factor,
                                std::int16_t limit, std::int16_t* out) {
        int16x8_t least = vdupq_n_s16(INT16_MAX);
        for (int k = 0; k < 4; ++k) {
            const int16x8_t bias = vqrdmulhq_n_s16(vld1q_s16(biases + 8 * k), bias_factor);
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
};
#endif

#if NESTCODE_X86
struct Avx2Vectors {
    using Sums = __m256i[2];  // items 2 i + 256 * items 2 i + 1 modulo 2^16, and items 2 i + 1 alone

    template <std::size_t queries>
    NESTCODE_AVX2 static void look_up(const std::uint8_t* block, std::size_t columns, const std::uint8_t* const* tables,
                                      Sums* sums, std::size_t stride = kBlockItems) {
        const __m256i low = _mm256_set1_epi8(15);
        __m256i both[queries], odd[queries];
        for (std::size_t q = 0; q < queries; ++q) both[q] = odd[q] = _mm256_setzero_si256();
        for (std::size_t c = 0; c < 32 * columns; c += 32, block += stride) {
            const __m256i nibbles = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block));
            const __m256i lows = _mm256_and_si256(nibbles, low);
            const __m256i highs = _mm256_and_si256(_mm256_srli_epi16(nibbles, 4), low);
            for (std::size_t q = 0; q < queries; ++q) {
                const auto* table = reinterpret_cast<const __m128i*>(tables[q] + c);
                const __m256i first = _mm256_broadcastsi128_si256(_mm_loadu_si128(table));
                const __m256i second = _mm256_broadcastsi128_si256(_mm_loadu_si128(table + 1));
                const __m256i sum =
                    _mm256_add_epi8(_mm256_shuffle_epi8(first, lows), _mm256_shuffle_epi8(second, highs));
                both[q] = _mm256_add_epi16(both[q], sum);
                odd[q] = _mm256_add_epi16(odd[q], _mm256_srli_epi16(sum, 8));
            }
        }
        for (std::size_t q = 0; q < queries; ++q) {
            sums[q][0] = both[q];
            sums[q][1] = odd[q];
        }
    }

    NESTCODE_AVX2 static std::uint32_t finish(const Sums& sums, const std::int16_t* biases, std::int16_t bias_factor,
                                              std::int16_t limit, std::int16_t* out) {
        const __m256i even = _mm256_sub_epi16(sums[0], _mm256_slli_epi16(sums[1], 8));
        const __m256i firsts = _mm256_unpacklo_epi16(even, sums[1]), lasts = _mm256_unpackhi_epi16(even, sums[1]);
        const __m256i ordered[2] = {_mm256_permute2x128_si256(firsts, lasts, 0x20),
                                    _mm256_permute2x128_si256(firsts, lasts, 0x31)};
        const __m256i factor = _mm256_set1_epi16(bias_factor), bound = _mm256_set1_epi16(limit);
        __m256i below[2];
        for (int k = 0; k < 2; ++k) {
            const __m256i bias = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(biases + 16 * k));
            const __m256i sum = _mm256_adds_epi16(ordered[k], _mm256_mulhrs_epi16(bias, factor));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16 * k), sum);
            below[k] = _mm256_cmpgt_epi16(bound, sum);
        }
        // Packing works within 128-bit lanes: the middle quarters are swapped back.
        const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(below[0], below[1]), 0xd8);
        return static_cast<std::uint32_t>(_mm256_movemask_epi8(packed));
    }
};

// The sums of the entries that a block's nibbles select, in the order of the items. A register holds two columns, which
// begin `stride` bytes apart; each(i) is called before the i-th two of them.
template <class Each>
NESTCODE_AVX512 inline __m512i fastscan_sums_avx512(const std::uint8_t* block, std::size_t columns,
                                                    const std::uint8_t* entries, std::size_t stride, const Each& each) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i both = _mm512_setzero_si512(), odd = both;  // items 2 i + 256 * items 2 i + 1, and those alone
    const auto add = [&](__m512i nibbles, __m512i tables) NESTCODE_AVX512 {
        const __m512i first = _mm512_shuffle_i32x4(tables, tables, 0xa0);  // for both halves of a column
        const __m512i second = _mm512_shuffle_i32x4(tables, tables, 0xf5);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(nibbles, 4), low);
        const __m512i sum = _mm512_add_epi8(_mm512_shuffle_epi8(first, _mm512_and_si512(nibbles, low)),
                                            _mm512_shuffle_epi8(second, high));
        both = _mm512_add_epi16(both, sum);
        odd = _mm512_add_epi16(odd, _mm512_srli_epi16(sum, 8));
    };
    const auto column = [&](std::size_t c) NESTCODE_AVX512 {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + stride * c));
    };
    std::size_t c = 0;
    for (; c + 2 <= columns; c += 2) {
        each(c / 2);
        add(stride == kBlockItems ? _mm512_loadu_si512(block + kBlockItems * c)
                                  : _mm512_inserti64x4(_mm512_castsi256_si512(column(c)), column(c + 1), 1),
            _mm512_loadu_si512(entries + 32 * c));
    }
    if (c < columns) add(_mm512_zextsi256_si512(column(c)), _mm512_maskz_loadu_epi8(0xffffffff, entries + 32 * c));
    const __m512i even = _mm512_sub_epi16(both, _mm512_slli_epi16(odd, 8));
    const auto fold = [&](__m512i sums) NESTCODE_AVX512 {
        return _mm256_add_epi16(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
    };
    const __m256i evens = fold(even), odds = fold(odd);
    const __m256i lows = _mm256_unpacklo_epi16(evens, odds), highs = _mm256_unpackhi_epi16(evens, odds);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_permute2x128_si256(lows, highs, 0x20)),
                              _mm256_permute2x128_si256(lows, highs, 0x31), 1);
}

NESTCODE_AVX512 inline std::uint32_t fastscan_avx512(const std::uint8_t* block, const std::int16_t* biases,
                                                     std::size_t columns, const FastScanTables& tables,
                                                     std::int16_t limit, std::int16_t* out) {
    const __m512i bias = _mm512_mulhrs_epi16(_mm512_loadu_si512(biases), _mm512_set1_epi16(tables.bias_factor));
    const __m512i own = fastscan_sums_avx512(block, columns, tables.entries.data(), kBlockItems, [](std::size_t) {});
    const __m512i sums = _mm512_adds_epi16(own, bias);
    _mm512_storeu_si512(out, sums);
    return _mm512_cmplt_epi16_mask(sums, _mm512_set1_epi16(limit));
}
#endif

inline FastScanKernel fastscan_kernel(Simd simd) {
    switch (simd) {
#if NESTCODE_NEON
        case Simd::neon: return fastscan_tile<NeonVectors>;
#endif
#if NESTCODE_X86
        case Simd::avx2: return fastscan_tile<Avx2Vectors>;
        // Four queries at once keep 256 bits busy: wider registers need shuffles to hold two tables.
        case Simd::avx512: return fastscan_tile<Avx2Vectors, fastscan_avx512>;
#endif
        default: return fastscan_each<fastscan_portable>;
    }
}

// Estimates squared L2 distances, or inner products, by 4-bit fast-scan. The distance to a centroid is its norm less
// twice its product with the query; the residual adds table sums. Tables are computed for the query's residual from the
// parent of the centroid, so that one table serves 2^`parent_shift` centroids and entries stay small; the item's bias
// corrects for the centroid's offset from its parent.
struct FastScanScorer {
    FastScanKernel kernel;
    TableKernels table_kernels;
    const std::vector<FastScanGroup>* groups;
    const float* query;  // coefficients
    std::size_t directions;
    const float* parents;  // (parents, directions); null for inner products
    int parent_shift;
    float bias_unit;
    Metric metric;
    const float* products;  // (centroids): with the query
    const float* norms;     // (centroids)
    float mean_term;        // the squared norm of the mean less twice its product with the query, for angles
    FastScanTables tables = {};
    std::uint32_t parent = UINT32_MAX;  // of the tables
    std::vector<float> residual = {};

    void make_tables(std::uint32_t wanted) {
        if (parent == wanted) return;
        parent = wanted;
        residual.assign(query, query + directions);
        if (parents != nullptr)
            for (std::size_t d = 0; d < directions; ++d) residual[d] -= parents[wanted * directions + d];
        fill_tables(*groups, residual.data(), bias_unit, metric, table_kernels, tables);
    }

    // Prefetches the block `number` of a range that will be scored soon, if it has that many.
    static void prefetch(const ScanRange& scan, std::size_t number) {
        const FastScanBlocks& blocks = scan.lists->blocks;
        const std::size_t first = (scan.range.begin - scan.centroid_begin) / kBlockItems + number;
        if (first * kBlockItems >= scan.range.end - scan.centroid_begin) return;
        const std::size_t at = blocks.starts[scan.centroid] + first;
        for (std::size_t byte = 0; byte < blocks.columns * kBlockItems; byte += 64)
            __builtin_prefetch(blocks.block(at) + byte);
        __builtin_prefetch(blocks.biases + at * kBlockItems);
    }

    void score(const ScanRange& scan, const ScanRange* next, TopK& top) { score_tile(this, &top, 1, scan, next); }

    // Scores a range for up to kTileQueries queries.
    static void score_tile(FastScanScorer* scorers, TopK* tops, std::size_t queries, const ScanRange& scan,
                           const ScanRange* next) {
        const FastScanBlocks& blocks = scan.lists->blocks;
        FastScanTile tile;
        tile.queries = queries;
        float bases[kTileQueries];
        for (std::size_t q = 0; q < queries; ++q) {
            FastScanScorer& own = scorers[q];
            own.make_tables(own.parents == nullptr ? 0 : scan.centroid >> own.parent_shift);
            tile.tables[q] = &own.tables;
            bases[q] = own.norms[scan.centroid] - 2 * own.products[scan.centroid] + own.tables.offset;
            if (blocks.norms != nullptr) bases[q] += own.mean_term;
        }
        const std::uint32_t begin = scan.range.begin - scan.centroid_begin, end = scan.range.end - scan.centroid_begin;
        for (std::size_t b = begin / kBlockItems; b * kBlockItems < end; ++b) {
            if (next != nullptr) prefetch(*next, b - begin / kBlockItems);
            const std::size_t at = blocks.starts[scan.centroid] + b;
            const float* item_norms = blocks.norms != nullptr ? blocks.norms + at * kBlockItems : nullptr;
            const auto [shortest, longest] = item_norms != nullptr ? block_range(item_norms) : std::pair(0.0f, 0.0f);
            for (std::size_t q = 0; q < queries; ++q) {
                const float threshold = tops[q].threshold, scale = tile.tables[q]->scale;
                // The bound by angle is convex in the norm; one step more allows for rounding, as it is compared again.
                const float bound = item_norms != nullptr
                                        ? std::max(by_angle(threshold, shortest), by_angle(threshold, longest))
                                        : threshold;
                const float limit = std::ceil((bound - bases[q]) * scale) + (item_norms != nullptr ? 2 : 0);
                // All items pass if the limit is beyond the saturated sums, or NaN, which cannot be cast.
                tile.limits[q] = limit < INT16_MAX ? static_cast<std::int16_t>(std::max<float>(limit, INT16_MIN))
                                                   : std::int16_t{INT16_MAX};
            }
            scorers[0].kernel(blocks.block(at), blocks.biases + at * kBlockItems, blocks.columns, tile);
            const auto first = static_cast<std::uint32_t>(b * kBlockItems);
            for (std::size_t q = 0; q < queries; ++q) {
                std::uint32_t below = tile.limits[q] == INT16_MAX ? UINT32_MAX : tile.below[q];
                for (; below != 0; below &= below - 1) {
                    const auto lane = static_cast<std::uint32_t>(std::countr_zero(below)), item = first + lane;
                    if (item < begin || item >= end || !scan.lists->allowed.contains(scan.centroid_begin + item))
                        continue;
                    float distance = bases[q] + static_cast<float>(tile.sums[q][lane]) / tile.tables[q]->scale;
                    if (item_norms != nullptr) {
                        const float norm = item_norms[lane];
                        if (distance > by_angle(tops[q].threshold, norm)) continue;  // false for NaN
                        distance = distance / std::max(norm, 1e-30f) - norm;
                    }
                    tops[q].add(distance, scan.lists->offset + scan.centroid_begin + item);
                }
            }
        }
    }

  private:
    // The least and the largest of a block's norms, without branches: their order is random.
    static std::pair<float, float> block_range(const float* values) {
        const auto smaller = [](Float4 a, Float4 b) { return a < b ? a : b; };
        const auto larger = [](Float4 a, Float4 b) { return a < b ? b : a; };
        Float4 low = load_float4(values), high = low;
        for (std::size_t i = 4; i < kBlockItems; i += 4) {
            low = smaller(low, load_float4(values + i));
            high = larger(high, load_float4(values + i));
        }
        low = smaller(low, Float4{low[2], low[3], low[0], low[1]});
        high = larger(high, Float4{high[2], high[3], high[0], high[1]});
        return {smaller(low, Float4{low[1], low[0]})[0], larger(high, Float4{high[1], high[0]})[0]};
    }

    // The squared distance, with the mean's term, of an item of this norm whose angle to the query gives the score
    // `threshold`. Scores by angle are -2 <q, x> / |x|, where -2 <q, x> is the squared distance less |x|^2. Decoded
    // items are shorter than the items, and more so the less their bits tell of them; dividing by their norms corrects
    // for it.
    static float by_angle(float threshold, float norm) { return (threshold + norm) * norm; }
};

}  // namespace nestcode
