// Hamming distances: how many bits differ.
//
// One kernel for each set of instructions, all with the same contract: the distances from one query to
// some rows. The vector kernels take four rows at a time: a part of the query is loaded once for the
// four, and their four sums are added up together, which is what short rows spend their time on.
#pragma once

#include <array>

#include "parallel.hpp"
#include "rows.hpp"
#include "simd.hpp"

namespace nestcode {

using HammingKernel = void (*)(const std::uint8_t* query, Rows rows, std::int32_t* out);

// Rows of exactly one small word. Forced into its callers so that it is compiled with their instructions.
template <class Word>
[[gnu::always_inline]] inline void hamming_word(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    Word own;
    std::memcpy(&own, query, sizeof own);
    for (std::size_t r = 0; r < rows.count; ++r) {
        Word word;
        std::memcpy(&word, rows[r], sizeof word);
        out[r] = std::popcount(static_cast<Word>(own ^ word));
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
            sum += std::popcount(load_ordered(query + i, rows.bytes - i) ^ load_ordered(row + i, rows.bytes - i));
        out[r] = sum;
    }
}

inline void hamming_portable(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    hamming_words(query, rows, out);
}

// Calls sum(row, four) for every four rows, with `four` the place of their distances. The last group
// repeats the last row and keeps what is asked for.
template <class Sum>
[[gnu::always_inline]] inline void by_four(Rows rows, std::int32_t* out, const Sum& sum) {
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

// For rows read by loads of `load` bytes: which bytes of the load that ends with the row (0xff) no earlier
// load has read (0).
inline std::array<std::uint8_t, 32> last_bytes(std::size_t load, std::size_t row_bytes) {
    std::array<std::uint8_t, 32> fresh;
    fresh.fill(0xff);
    std::fill_n(fresh.begin(), (load - row_bytes % load) % load, 0);
    return fresh;
}

#if NESTCODE_NEON
// Four vectors of bytes to the four sums.
inline uint32x4_t add_up_four(const uint8x16_t (&lanes)[4]) {
    const uint16x8_t ab = vpaddq_u16(vpaddlq_u8(lanes[0]), vpaddlq_u8(lanes[1]));
    const uint16x8_t cd = vpaddq_u16(vpaddlq_u8(lanes[2]), vpaddlq_u8(lanes[3]));
    return vpaddlq_u16(vpaddq_u16(ab, cd));
}

// `Bytes` fixes the length of a row where the compiler does much better knowing it, 0 leaves it open.
template <std::size_t Bytes>
inline void hamming_neon_of(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (Bytes != 0) rows.bytes = Bytes;
    // The last load ends with the row and overlaps the one before; what that one counted is masked out.
    const std::size_t last = rows.bytes - 16;
    const uint8x16_t fresh = vld1q_u8(last_bytes(16, rows.bytes).data());
    constexpr std::size_t block = 30 * 16;  // a load adds at most 8 to a byte: 31 of them fit

    by_four(rows, out, [=](const std::uint8_t* const* row, std::int32_t* four) {
        uint8x16_t lanes[4] = {};
        uint32x4_t sums = vdupq_n_u32(0);
        for (std::size_t i = 0; i < last;) {
            for (const std::size_t stop = std::min(last, i + block); i < stop; i += 16) {
                const uint8x16_t part = vld1q_u8(query + i);
                for (int k = 0; k < 4; ++k)
                    lanes[k] = vaddq_u8(lanes[k], vcntq_u8(veorq_u8(part, vld1q_u8(row[k] + i))));
            }
            if (i < last) {
                sums = vaddq_u32(sums, add_up_four(lanes));
                for (int k = 0; k < 4; ++k) lanes[k] = vdupq_n_u8(0);
            }
        }
        const uint8x16_t end = vld1q_u8(query + last);
        for (int k = 0; k < 4; ++k) {
            const uint8x16_t differing = vandq_u8(veorq_u8(end, vld1q_u8(row[k] + last)), fresh);
            lanes[k] = vaddq_u8(lanes[k], vcntq_u8(differing));
        }
        vst1q_s32(four, vreinterpretq_s32_u32(vaddq_u32(sums, add_up_four(lanes))));
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
// Four vectors of four numbers to the four sums.
NESTCODE_TARGET("avx2") inline __m128i add_up_four(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i ab = _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    const __m256i cd = _mm256_add_epi64(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
    const __m256i sums =
        _mm256_add_epi64(_mm256_permute2x128_si256(ab, cd, 0x20), _mm256_permute2x128_si256(ab, cd, 0x31));
    const __m256i low_halves_first = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(sums, low_halves_first));
}

// The bits set in each of four numbers, by looking up each half byte (Mula, Kurz, Lemire, 2018).
NESTCODE_TARGET("avx2") inline __m256i count_bits(__m256i bytes) {
    const __m256i bits_of_nibble =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i low = _mm256_set1_epi8(0x0f);
    const __m256i counts =
        _mm256_add_epi8(_mm256_shuffle_epi8(bits_of_nibble, _mm256_and_si256(bytes, low)),
                        _mm256_shuffle_epi8(bits_of_nibble, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low)));
    return _mm256_sad_epu8(counts, _mm256_setzero_si256());
}

NESTCODE_TARGET("avx2") inline __m256i load32(const std::uint8_t* bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

NESTCODE_TARGET("avx2,popcnt")
inline void hamming_avx2(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (rows.bytes < 32) return hamming_words(query, rows, out);
    // The last load ends with the row and overlaps the one before; what that one counted is masked out.
    const std::size_t last = rows.bytes - 32;
    const __m256i fresh = load32(last_bytes(32, rows.bytes).data());

    by_four(rows, out, [=](const std::uint8_t* const* row, std::int32_t* four) NESTCODE_TARGET("avx2,popcnt") {
        __m256i total[4] = {};
        for (std::size_t i = 0; i < last; i += 32) {
            const __m256i part = load32(query + i);
            for (int k = 0; k < 4; ++k)
                total[k] = _mm256_add_epi64(total[k], count_bits(_mm256_xor_si256(part, load32(row[k] + i))));
        }
        const __m256i part = load32(query + last);
        for (int k = 0; k < 4; ++k) {
            const __m256i differing = _mm256_and_si256(_mm256_xor_si256(part, load32(row[k] + last)), fresh);
            total[k] = _mm256_add_epi64(total[k], count_bits(differing));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(four), add_up_four(total[0], total[1], total[2], total[3]));
    });
}

#define NESTCODE_AVX512 NESTCODE_TARGET("avx2,avx512f,avx512bw,avx512vl,avx512vpopcntdq")
NESTCODE_AVX512 inline __m256i add_halves(__m512i lanes) {
    return _mm256_add_epi64(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
}

NESTCODE_AVX512 inline void hamming_avx512(const std::uint8_t* query, Rows rows, std::int32_t* out) {
    if (rows.bytes == 32)  // half a register a row: no loop, no mask
        return by_four(rows, out, [=](const std::uint8_t* const* row, std::int32_t* four) NESTCODE_AVX512 {
            __m256i total[4];
            for (int k = 0; k < 4; ++k) total[k] = _mm256_popcnt_epi64(_mm256_xor_si256(load32(query), load32(row[k])));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(four), add_up_four(total[0], total[1], total[2], total[3]));
        });
    const std::size_t whole = rows.bytes / 64 * 64;
    const __mmask64 rest = (1ULL << (rows.bytes - whole)) - 1;  // bytes past the row are not read
    by_four(rows, out, [=](const std::uint8_t* const* row, std::int32_t* four) NESTCODE_AVX512 {
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
        _mm_storeu_si128(reinterpret_cast<__m128i*>(four), add_up_four(add_halves(total[0]), add_halves(total[1]),
                                                                       add_halves(total[2]), add_halves(total[3])));
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
        case Simd::avx512: return hamming_avx512;
#endif
        default: return hamming_portable;
    }
}

// out[i * b.count + j] = how many bits of a[i] and b[j] differ. Both have the same row length.
inline void hamming(Rows a, Rows b, std::int32_t* out, Simd simd, std::size_t threads) {
    constexpr std::size_t cached_bytes = 1 << 15, thread_bytes = 1 << 18;
    const HammingKernel kernel = hamming_kernel(simd);
    const std::size_t row_bytes = std::max<std::size_t>(b.bytes, 1);
    const std::size_t tile = std::max<std::size_t>(cached_bytes / row_bytes, 1);
    const std::size_t grain = thread_bytes / (row_bytes * std::max<std::size_t>(a.count, 1));
    parallel_for(b.count, grain, threads, [=](std::size_t begin, std::size_t end) {
        // A tile of rows stays in the cache while every query passes over it.
        for (std::size_t j = begin; j < end; j += tile)
            for (std::size_t i = 0; i < a.count; ++i)
                kernel(a[i], b.slice(j, std::min(j + tile, end)), out + i * b.count + j);
    });
}

}  // namespace nestcode
