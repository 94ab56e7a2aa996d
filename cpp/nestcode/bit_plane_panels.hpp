// Codes of bit planes (scalar_quantizer.hpp) with their bits regrouped by direction, decoded for exhaustive search.
//
// 64 codes are decoded at once: 32 bits of a code are a word, which is shifted until its lowest bits are those of a
// direction, and these select one of its levels; in registers with AVX-512, where each lane has a code. Codes become
// panels of rows (inner_products.hpp), or inner products, with no row in between.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "inner_products.hpp"
#include "scalar_quantizer.hpp"

namespace nestcode {

// Which directions the bits of regrouped codes belong to. A byte has those of up to `most` directions, the first in its
// highest bits.
struct RegroupedBits {
    std::size_t bytes, most;
    const std::int32_t* directions;  // (bytes, most)
    const std::int32_t* depths;      // (bytes, most): bits of each; 0 where a byte has fewer
};

class RegroupedDecoder {
  public:
    static constexpr std::size_t kCodes = 64;  // decoded at once

    RegroupedDecoder(const RegroupedBits& bits, ReconstructionLevels levels)
        : bytes_(bits.bytes), directions_(levels.directions) {
        std::vector<bool> allocated(directions_);
        for (std::size_t byte = 0; byte < bits.bytes; ++byte)
            for (std::size_t j = bits.most, shift = 0; j-- != 0;) {
                const std::size_t slot = byte * bits.most + j,
                                  direction = static_cast<std::size_t>(bits.directions[slot]);
                const auto depth = static_cast<std::size_t>(bits.depths[slot]);
                if (depth == 0) continue;
                add(direction, 8 * byte + shift, levels.values + direction * levels.stride, std::size_t{1} << depth);
                allocated[direction] = true;
                shift += depth;
            }
        for (std::size_t d = 0; d < directions_; ++d) {
            const float* nodes = levels.values + d * levels.stride;
            if (!allocated[d] && nodes[1] != 0) add(d, 0, nodes, 1);
        }
        std::ranges::stable_sort(selected_, {}, &Selected::size);  // branches are predictable
    }

    // 64 codes word by word.
    class Words {
      public:
        Words(const RegroupedDecoder& decoder, Simd simd)
            : bytes_(decoder.bytes_),
              count_(std::max<std::size_t>((bytes_ + 3) / 4, 1)),  // directions without bits read a word too
              panels_{Panel(count_, simd), Panel(count_, simd)},
              rows_(Panel::kRows * count_) {}

        void read(const std::uint8_t* const* codes) {
            for (Panel& panel : panels_) {
                const float* rows[Panel::kRows];
                for (std::size_t r = 0; r < Panel::kRows; ++r, ++codes) {
                    float* const row = rows_.data() + r * count_;
                    if (bytes_ != 0) std::memcpy(row, *codes, bytes_);
                    rows[r] = row;
                }
                panel.pack(rows);
            }
        }

        const float* line(std::size_t half, std::size_t word) { return panels_[half].line(word); }

      private:
        std::size_t bytes_, count_;
        Panel panels_[2];
        std::vector<float> rows_;  // (32, count): codes may end within a word
    };

    // Decodes the first `count` of 64 codes into two panels: what directions with bits add to a shared row, or to the
    // row of each code in the panels where that is null.
    void decode(Words& words, std::size_t count, const float* shared, Panel* panels, Simd simd) const {
#if NESTCODE_X86
        if (simd == Simd::avx512)
            return shared != nullptr ? write<true>(words, shared, panels) : write<false>(words, shared, panels);
#endif
        static_cast<void>(simd);
        for (const Selected& own : selected_)
            for (std::size_t i = 0; i * Panel::kRows < count; ++i) {
                const std::size_t lanes = std::min(count - i * Panel::kRows, Panel::kRows);
                const float* const table = tables_.data() + own.table;
                const float* const word = words.line(i, own.bit / 32);
                float* const line = panels[i].line(own.direction);
                for (std::size_t lane = 0; lane < lanes; ++lane) {
                    const std::uint32_t bits = std::bit_cast<std::uint32_t>(word[lane]) >> own.bit % 32;
                    line[lane] =
                        (shared != nullptr ? shared[own.direction] : line[lane]) + table[bits & (own.size - 1)];
                }
            }
    }

#if NESTCODE_X86
    // Writes the inner products of a row and of what 64 codes decode to, without their centroids.
    NESTCODE_AVX512 void multiply(Words& words, const float* row, float* out) const {
        const __m512 zero = _mm512_setzero_ps();
        Multiply products{row, {zero, zero, zero, zero}};
        select(words, products);
        for (std::size_t i = 0; i < 4; ++i) _mm512_storeu_ps(out + 16 * i, products.sums[i]);
    }
#endif

  private:
    struct Selected {
        std::uint32_t direction, bit, size;  // the lowest of its bits; levels in its table
        std::size_t table;                   // where that begins
    };

    void add(std::size_t direction, std::size_t bit, const float* nodes, std::size_t leaves) {
        constexpr std::size_t least = 32;  // two registers: fewer levels repeat
        const std::size_t size = std::max(leaves, least);
        selected_.push_back({static_cast<std::uint32_t>(direction), static_cast<std::uint32_t>(bit),
                             static_cast<std::uint32_t>(size), tables_.size()});
        for (std::size_t i = 0; i < size; ++i) tables_.push_back(nodes[leaves + i % leaves]);
    }

#if NESTCODE_X86
    template <bool shares>
    NESTCODE_AVX512 void write(Words& words, const float* shared, Panel* panels) const {
        select(words, Write<shares>{shared, panels[0].line(0), panels[1].line(0)});
    }

    template <bool shares>
    struct Write {
        const float* shared;    // row
        float *first, *second;  // panels

        [[gnu::always_inline]] NESTCODE_AVX512 void operator()(std::size_t direction, const __m512* levels) const {
            float* const lines[2] = {first + direction * Panel::kRows, second + direction * Panel::kRows};
            for (std::size_t i = 0; i < 4; ++i) {
                float* const line = lines[i / 2] + i % 2 * 16;
                const __m512 row = shares ? _mm512_set1_ps(shared[direction]) : _mm512_load_ps(line);
                _mm512_store_ps(line, _mm512_add_ps(row, levels[i]));
            }
        }
    };

    struct Multiply {
        const float* row;
        __m512 sums[4];

        [[gnu::always_inline]] NESTCODE_AVX512 void operator()(std::size_t direction, const __m512* levels) {
            const __m512 value = _mm512_set1_ps(row[direction]);
            for (std::size_t i = 0; i < 4; ++i) sums[i] = _mm512_fmadd_ps(value, levels[i], sums[i]);
        }
    };

    // Calls take(direction, levels of the 64 codes).
    template <class Take>
    [[gnu::always_inline]] NESTCODE_AVX512 void select(Words& words, Take&& take) const {
        const float* const halves[2] = {words.line(0, 0), words.line(1, 0)};
        for (const Selected& own : selected_) {
            const float* const table = tables_.data() + own.table;
            const __m512 a = _mm512_loadu_ps(table), b = _mm512_loadu_ps(table + 16);
            const __m512i shift = _mm512_set1_epi32(static_cast<int>(own.bit % 32));
            __m512 levels[4];
            for (std::size_t i = 0; i < 4; ++i) {
                const __m512i word = _mm512_load_si512(halves[i / 2] + own.bit / 32 * Panel::kRows + i % 2 * 16);
                const __m512i places = _mm512_srlv_epi32(word, shift);
                if (own.size == 32) {
                    levels[i] = _mm512_permutex2var_ps(a, places, b);
                } else if (own.size == 64) {
                    const __m512 c = _mm512_loadu_ps(table + 32), d = _mm512_loadu_ps(table + 48);
                    levels[i] = _mm512_mask_blend_ps(_mm512_test_epi32_mask(places, _mm512_set1_epi32(32)),
                                                     _mm512_permutex2var_ps(a, places, b),
                                                     _mm512_permutex2var_ps(c, places, d));
                } else {
                    const __m512i mask = _mm512_set1_epi32(static_cast<int>(own.size - 1));
                    levels[i] = _mm512_i32gather_ps(_mm512_and_si512(places, mask), table, 4);
                }
            }
            take(own.direction, levels);
        }
    }
#endif

    std::size_t bytes_, directions_;
    std::vector<Selected> selected_;
    std::vector<float> tables_;
};

}  // namespace nestcode
