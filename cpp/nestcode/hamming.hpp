// Hamming distances by XOR and population count.
//
// One kernel per instruction set with the same contract: the distances from one query to some rows. The SIMD kernels
// process four rows at a time: each vector of the query is loaded once for the four, and their horizontal sums, which
// dominate the time of short rows, are computed together. Population counts of bytes are native on NEON and AVX-512;
// AVX2 looks nibbles up by shuffles (Mula, Kurz, Lemire, "Faster population counts using AVX2 instructions", 2018).
#pragma once

#include <array>

#include "inverted_lists.hpp"
#include "parallel.hpp"
#include "rows.hpp"
#include "simd.hpp"

namespace nestcode {

using HammingKernel = void (*)(const std::uint8_t* query, Rows rows, std::int32_t* out);

// Rows of exactly one word. Always inlined, so that it is compiled for its caller's instruction set.
template <class Word>
[[gnu::always_inline]] inline void hamming_word(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    Word query_word;
    std::memcpy(&query_word, query, sizeof query_word);
    for (std::size_t r = 0; r < rows.count; ++r) {
        Word word;
        std::memcpy(&word, rows[r], sizeof word);
        out[r] = std::popcount(static_cast<Word>(query_word ^ word));
    }
}

[[gnu::always_inline]] inline void hamming_words(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (rows.bytes == 1) return hamming_word<std::uint8_t>(query, rows, out);
    if (rows.bytes == 2) return hamming_word<std::uint16_t>(query, rows, out);
    if (rows.bytes == 4) return hamming_word<std::uint32_t>(query, rows, out);
    for (std::size_t r = 0; r < rows.count; ++r) {
        const std::uint8_t* row = rows[r];
        int sum = 0;
        std::size_t i = 0;
        for (; i + 8 <= rows.bytes; i += 8) {
            std::uint64_t a, b;
            std::memcpy(&a, query + i, 8);
            std::memcpy(&b, row + i, 8);
            sum += std::popcount(a ^ b);
        }
        if (i != rows.bytes)
            sum += std::popcount(load_big_endian(query + i, rows.bytes - i) ^ load_big_endian(row + i, rows.bytes - i));
        out[r] = sum;
    }
}

inline void hamming_portable(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    hamming_words(query, rows, out);
}

// Calls sum(rows, out) for every four rows, where `out` receives their four distances. The last group is padded with
// copies of the last row.
template <class Sum>
[[gnu::always_inline]] inline void for_each_four(Rows rows, std::int32_t* out, const Sum& sum) {
    std::size_t r = 0;
    for (; r + 4 <= rows.count; r += 4) {
        const std::uint8_t* four[] = {rows[r], rows[r + 1], rows[r + 2], rows[r + 3]};
        sum(four, out + r);
    }
    if (r == rows.count) return;
    const std::size_t last = rows.count - 1;
    const std::uint8_t* four[] = {rows[r], rows[std::min(r + 1, last)], rows[std::min(r + 2, last)], rows[last]};
    std::int32_t sums[4];
    sum(four, sums);
    std::copy_n(sums, rows.count - r, out + r);
}

// The byte mask of the last load of a row that is read in loads of `load` bytes: the last one ends with the row and
// overlaps the one before; bytes that were read already are 0, the others 0xff.
inline std::array<std::uint8_t, 32> tail_mask(std::size_t load, std::size_t row_bytes) {
    std::array<std::uint8_t, 32> tail;
    tail.fill(0xff);
    std::fill_n(tail.begin(), (load - row_bytes % load) % load, 0);
    return tail;
}

#if NESTCODE_NEON
// Horizontal sums of four vectors of bytes.
inline uint32x4_t horizontal_sums(const uint8x16_t (&lanes)[4]) {
    const uint16x8_t ab = vpaddq_u16(vpaddlq_u8(lanes[0]), vpaddlq_u8(lanes[1]));
    const uint16x8_t cd = vpaddq_u16(vpaddlq_u8(lanes[2]), vpaddlq_u8(lanes[3]));
    return vpaddlq_u16(vpaddq_u16(ab, cd));
}

// `Bytes` makes the row length a compile-time constant for common widths, which is much faster; 0 leaves it dynamic.
template <std::size_t Bytes>
inline void hamming_neon_of(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (Bytes != 0) rows.bytes = Bytes;
    const std::size_t last = rows.bytes - 16;
    const uint8x16_t tail = vld1q_u8(tail_mask(16, rows.bytes).data());
    constexpr std::size_t block = 30 * 16;  // a load adds at most 8 to each byte, so 31 loads cannot overflow

    for_each_four(rows, out, [=](const std::uint8_t* const* row, std::int32_t* four) {
        uint8x16_t lanes[4] = {};
        uint32x4_t sums = vdupq_n_u32(0);
        for (std::size_t i = 0; i < last;) {
            for (const std::size_t stop = std::min(last, i + block); i < stop; i += 16) {
                const uint8x16_t part = vld1q_u8(query + i);
                for (int k = 0; k < 4; ++k)
                    lanes[k] = vaddq_u8(lanes[k], vcntq_u8(veorq_u8(part, vld1q_u8(row[k] + i))));
            }
            if (i < last) {
                sums = vaddq_u32(sums, horizontal_sums(lanes));
                for (int k = 0; k < 4; ++k) lanes[k] = vdupq_n_u8(0);
            }
        }
        const uint8x16_t end = vld1q_u8(query + last);
        for (int k = 0; k < 4; ++k) {
            const uint8x16_t differing = vandq_u8(veorq_u8(end, vld1q_u8(row[k] + last)), tail);
            lanes[k] = vaddq_u8(lanes[k], vcntq_u8(differing));
        }
        vst1q_s32(four, vreinterpretq_s32_u32(vaddq_u32(sums, horizontal_sums(lanes))));
    });
}

inline void hamming_neon(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (rows.bytes < 16) return hamming_words(query, rows, out);
    if (rows.bytes == 16) return hamming_neon_of<16>(query, rows, out);
    if (rows.bytes == 32) return hamming_neon_of<32>(query, rows, out);
    hamming_neon_of<0>(query, rows, out);
}
#endif

#if NESTCODE_X86
// Horizontal sums of four vectors of 64-bit integers.
NESTCODE_TARGET("avx2") inline __m128i horizontal_sums(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i ab = _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    const __m256i cd = _mm256_add_epi64(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
    const __m256i sums =
        _mm256_add_epi64(_mm256_permute2x128_si256(ab, cd, 0x20), _mm256_permute2x128_si256(ab, cd, 0x31));
    const __m256i low_halves_first = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(sums, low_halves_first));
}

// Population counts of four 64-bit integers by nibble lookups.
NESTCODE_TARGET("avx2") inline __m256i popcount_avx2(__m256i bytes) {
    const __m256i nibble_counts =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i low = _mm256_set1_epi8(0x0f);
    const __m256i counts =
        _mm256_add_epi8(_mm256_shuffle_epi8(nibble_counts, _mm256_and_si256(bytes, low)),
                        _mm256_shuffle_epi8(nibble_counts, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low)));
    return _mm256_sad_epu8(counts, _mm256_setzero_si256());
}

NESTCODE_TARGET("avx2") inline __m256i load32(const std::uint8_t* bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

NESTCODE_TARGET("avx2,popcnt")
inline void hamming_avx2(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (rows.bytes < 32) return hamming_words(query, rows, out);
    const std::size_t last = rows.bytes - 32;
    const __m256i tail = load32(tail_mask(32, rows.bytes).data());

    for_each_four(rows, out, [=](const std::uint8_t* const* row, std::int32_t* four) NESTCODE_TARGET("avx2,popcnt") {
        __m256i total[4] = {};
        for (std::size_t i = 0; i < last; i += 32) {
            const __m256i part = load32(query + i);
            for (int k = 0; k < 4; ++k)
                total[k] = _mm256_add_epi64(total[k], popcount_avx2(_mm256_xor_si256(part, load32(row[k] + i))));
        }
        const __m256i part = load32(query + last);
        for (int k = 0; k < 4; ++k) {
            const __m256i differing = _mm256_and_si256(_mm256_xor_si256(part, load32(row[k] + last)), tail);
            total[k] = _mm256_add_epi64(total[k], popcount_avx2(differing));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(four), horizontal_sums(total[0], total[1], total[2], total[3]));
    });
}

NESTCODE_AVX512_POPCOUNT inline __m256i fold_halves(__m512i lanes) {
    return _mm256_add_epi64(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
}

NESTCODE_AVX512_POPCOUNT inline void hamming_avx512(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (rows.bytes == 32)  // half a register per row: no loop, no mask
        return for_each_four(rows, out,
                             [=](const std::uint8_t* const* row, std::int32_t* four) NESTCODE_AVX512_POPCOUNT {
                                 __m256i total[4];
                                 for (int k = 0; k < 4; ++k)
                                     total[k] = _mm256_popcnt_epi64(_mm256_xor_si256(load32(query), load32(row[k])));
                                 _mm_storeu_si128(reinterpret_cast<__m128i*>(four),
                                                  horizontal_sums(total[0], total[1], total[2], total[3]));
                             });
    const std::size_t whole = rows.bytes / 64 * 64;
    const __mmask64 rest = (1ULL << (rows.bytes - whole)) - 1;  // bytes past the end of a row are not read
    for_each_four(rows, out, [=](const std::uint8_t* const* row, std::int32_t* four) NESTCODE_AVX512_POPCOUNT {
        __m512i total[4] = {};
        for (std::size_t i = 0; i < whole; i += 64) {
            const __m512i part = _mm512_loadu_si512(query + i);
            for (int k = 0; k < 4; ++k)
                total[k] = _mm512_add_epi64(
                    total[k], _mm512_popcnt_epi64(_mm512_xor_si512(part, _mm512_loadu_si512(row[k] + i))));
        }
        if (rest != 0) {
            const __m512i end = _mm512_maskz_loadu_epi8(rest, query + whole);
            for (int k = 0; k < 4; ++k)
                total[k] = _mm512_add_epi64(total[k], _mm512_popcnt_epi64(_mm512_xor_si512(
                                                          end, _mm512_maskz_loadu_epi8(rest, row[k] + whole))));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(four),
                         horizontal_sums(fold_halves(total[0]), fold_halves(total[1]), fold_halves(total[2]),
                                         fold_halves(total[3])));
    });
}
#endif

inline HammingKernel hamming_kernel(Simd simd) {
    switch (simd) {
#if NESTCODE_NEON
        case Simd::neon: return hamming_neon;
#endif
#if NESTCODE_X86
        case Simd::avx2: return hamming_avx2;
        case Simd::avx512: return x86_features().avx512_popcount ? hamming_avx512 : hamming_avx2;
#endif
        default: return hamming_portable;
    }
}

// out[i * b.count + j] = the Hamming distance of a[i] and b[j], rows of equal length.
inline void hamming(Rows a, Rows b, std::int32_t* out, Simd simd, std::size_t threads) {
    constexpr std::size_t cached_bytes = 1 << 15, thread_bytes = 1 << 18;
    const HammingKernel kernel = hamming_kernel(simd);
    const std::size_t row_bytes = std::max<std::size_t>(b.bytes, 1);
    const std::size_t tile = std::max<std::size_t>(cached_bytes / row_bytes, 1);
    const std::size_t grain = thread_bytes / (row_bytes * std::max<std::size_t>(a.count, 1));
    parallel_for(b.count, grain, threads, [=](std::size_t begin, std::size_t end) {
        // Cache blocking: a tile of rows stays in the L1 cache while every query is compared with it.
        for (std::size_t j = begin; j < end; j += tile)
            for (std::size_t i = 0; i < a.count; ++i)
                kernel(a[i], b.slice(j, std::min(j + tile, end)), out + i * b.count + j);
    });
}

// Scores by the Hamming distance of whole codes.
struct HammingScorer {
    HammingKernel kernel;
    const std::uint8_t* query;

    void score(const ScanRange& scan, const ScanRange*, TopK& top) const {
        constexpr std::uint32_t batch = 256;
        std::int32_t distances[batch];
        for (std::uint32_t first = scan.range.begin; first < scan.range.end; first += batch) {
            const std::uint32_t last = std::min(first + batch, scan.range.end);
            kernel(query, scan.lists->codes.slice(first, last), distances);
            for (std::uint32_t position = first; position < last; ++position) {
                const auto score = static_cast<float>(distances[position - first]);
                if (score < top.threshold && scan.lists->allowed.contains(position))
                    top.add(score, scan.lists->offset + position);
            }
        }
    }
};

}  // namespace nestcode
