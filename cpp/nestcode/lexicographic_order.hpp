// Lexicographic order of codes: longest common prefixes, and sorting.
//
// A sorted array of codes is the paper's binary tree (section 5.1): all codes that share a prefix are adjacent.
#pragma once

#include <utility>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace nestcode {

// The length of the longest common prefix of two rows, in bits; `width` if they are equal.
inline std::int32_t common_prefix(const std::uint8_t* a, const std::uint8_t* b, std::size_t bytes, std::int32_t width) {
    for (std::size_t i = 0; i < bytes; i += 8) {
        const std::uint64_t differing = load_big_endian(a + i, bytes - i) ^ load_big_endian(b + i, bytes - i);
        if (differing != 0) return static_cast<std::int32_t>(8 * i) + std::countl_zero(differing);
    }
    return width;
}

// out[i * b.count + j] = the length of the longest common prefix of a[i] and b[j].
inline void common_prefix(Rows a, Rows b, std::int32_t width, std::int32_t* out, std::size_t threads) {
    constexpr std::size_t thread_pairs = 1 << 15;
    const std::size_t grain = thread_pairs / std::max<std::size_t>(a.count, 1);
    parallel_for(b.count, grain, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t i = 0; i < a.count; ++i)
            for (std::size_t j = begin; j < end; ++j) out[i * b.count + j] = common_prefix(a[i], b[j], b.bytes, width);
    });
}

// Writes the stable argsort of the rows in lexicographic order.
//
// MSD sorting by 64-bit words: rows are sorted by their first eight bytes, and only runs of equal words are sorted by
// the next eight. Random codes differ in the first word.
inline void argsort_rows(Rows rows, std::int64_t* order) {
    struct Key {
        std::uint64_t word;
        std::int64_t row;
        bool operator<(const Key& other) const { return word != other.word ? word < other.word : row < other.row; }
    };
    struct Run {
        std::size_t begin, end, byte;  // rows [begin, end) are equal in every byte before `byte`
    };
    std::vector<Key> keys(rows.count);
    for (std::size_t i = 0; i < rows.count; ++i) keys[i] = {0, static_cast<std::int64_t>(i)};
    std::vector<Run> unsorted{{0, rows.count, 0}};
    while (!unsorted.empty()) {
        const Run run = unsorted.back();
        unsorted.pop_back();
        if (run.end - run.begin < 2 || run.byte >= rows.bytes) continue;
        for (std::size_t i = run.begin; i < run.end; ++i)
            keys[i].word =
                load_big_endian(rows[static_cast<std::size_t>(keys[i].row)] + run.byte, rows.bytes - run.byte);
        std::sort(keys.begin() + static_cast<std::ptrdiff_t>(run.begin),
                  keys.begin() + static_cast<std::ptrdiff_t>(run.end));
        for (std::size_t begin = run.begin, i = run.begin + 1; i <= run.end; ++i) {
            if (i < run.end && keys[i].word == keys[begin].word) continue;
            if (i - begin > 1) unsorted.push_back({begin, i, run.byte + 8});
            begin = i;
        }
    }
    for (std::size_t i = 0; i < rows.count; ++i) order[i] = keys[i].row;
}

}  // namespace nestcode
