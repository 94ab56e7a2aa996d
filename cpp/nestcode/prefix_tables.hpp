// Lookup tables for the top levels of a prefix tree over sorted codes.
//
// A table holds, for each length 0 … depth and every prefix of that length, where its items begin and end in the sorted
// array, so that one lookup replaces a binary search. Where many items share a prefix of length `depth`, a table for
// the subtree below follows: balanced codes need one table, codes with skewed bits need more on their crowded side.
// This is level compression as in LC-tries (Andersson and Nilsson, 1993).
//
// In memory a table is a run of 32-bit words: its depth; for each length, one start per prefix and the end; and for
// each prefix of length `depth` the offset of the table below it, or 0.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "checksum.hpp"

namespace nestcode {

// An array that may be memory-mapped with a guard, which then verifies what is read.
template <class T>
struct Column {
    const T* data = nullptr;
    std::size_t count = 0;
    ChecksumGuard* guard = nullptr;

    const T* at(std::size_t i, std::size_t items = 1) const {
        if (guard != nullptr) guard->touch(data + i, items * sizeof(T));
        return data + i;
    }
    T operator[](std::size_t i) const { return *at(i); }
};

// Ids, in 32 bits where all of them fit.
struct IdColumn {
    Column<std::uint32_t> narrow;
    Column<std::int64_t> wide;  // empty if they are narrow

    std::size_t count() const { return narrow.count + wide.count; }
    ChecksumGuard* guard() const { return narrow.guard != nullptr ? narrow.guard : wide.guard; }
    std::int64_t operator[](std::size_t i) const { return narrow.count != 0 ? narrow[i] : wide[i]; }

    // Writes `items` ids from the i-th on, and returns the end of what was written.
    std::int64_t* copy(std::size_t i, std::size_t items, std::int64_t* out) const {
        if (narrow.count != 0) return std::copy_n(narrow.at(i, items), items, out);
        return std::copy_n(wide.at(i, items), items, out);
    }

    // Prefetches the first cache lines of `items` ids; hardware prefetching does the rest.
    void prefetch(std::size_t i, std::size_t items) const {
        const std::size_t bytes = narrow.count != 0 ? sizeof(std::uint32_t) : sizeof(std::int64_t);
        const char* const first = (narrow.count != 0 ? reinterpret_cast<const char*>(narrow.data)
                                                     : reinterpret_cast<const char*>(wide.data)) +
                                  i * bytes;
        for (std::size_t at = 0; at < std::min<std::size_t>(items * bytes + 64, 512); at += 64)
            __builtin_prefetch(first + at);
    }
};

// Positions [begin, end) in the sorted order.
struct Range {
    std::uint32_t begin, end;

    std::uint32_t size() const { return end - begin; }
};

// The first `length` bits of a head as an integer, for lengths 0 to 64. A head is the first 64 bits of a code.
inline std::uint64_t leading(std::uint64_t head, std::int32_t length) {
    return length == 0 ? 0 : head >> (64 - length);
}

// The offset, within a table, of the starts of prefixes of this length.
inline std::size_t level_offset(std::int32_t length) {
    return (std::size_t{1} << length) + static_cast<std::size_t>(length);
}

inline std::size_t table_size(std::int32_t depth) {
    return level_offset(depth + 1) + (std::size_t{1} << depth);
}

struct PrefixTable {
    const Column<std::uint32_t>* words;
    std::size_t start = 0;
    std::int32_t depth = 0;

    // Reads the table at an offset. A damaged file may hold any value: a table that does not lie within the words is
    // replaced by the root alone, so that lookups stay in bounds.
    PrefixTable(const Column<std::uint32_t>& words, std::size_t at) : words(&words) {
        const std::uint32_t written = at < words.count ? words[at] : 32;
        if (written >= 32 || table_size(static_cast<std::int32_t>(written)) > words.count - at) return;
        start = at;
        depth = static_cast<std::int32_t>(written);
    }

    // The items whose code begins with the first `length` bits of the head.
    Range find(std::uint64_t head, std::int32_t length) const {
        Range found;
        std::memcpy(&found, words->at(start + level_offset(length) + leading(head, length), 2), sizeof found);
        return found;
    }

    // The offset of the table below the head's prefix of length `depth`, or 0.
    std::size_t below(std::uint64_t head) const {
        return depth == 0 ? 0 : (*words)[start + level_offset(depth + 1) + leading(head, depth)];
    }
};

// Appends the table of the items in `range`, which share their first `shared` bits, and the tables of crowded subtrees
// below it while all of them take at most `max_words` words.
inline void append_tables(const std::uint64_t* heads, Range range, std::int32_t shared, std::int32_t width,
                          std::size_t max_words, std::vector<std::uint32_t>& words) {
    constexpr std::uint32_t crowded = 64;  // binary search is as fast for fewer items
    const std::int32_t bits = std::min(width, 64);
    const auto depth_of = [bits](Range items, std::int32_t above) {
        return std::clamp(static_cast<std::int32_t>(std::bit_width(items.size())) - 4, 0, bits - above);
    };
    const std::int32_t depth = depth_of(range, shared);
    const std::size_t start = words.size(), prefixes = std::size_t{1} << depth;
    words.resize(start + table_size(depth));
    words[start] = static_cast<std::uint32_t>(depth);
    const auto level = [&](std::int32_t length) { return words.data() + start + level_offset(length); };
    std::size_t prefix = 0;
    for (std::uint32_t i = range.begin; i < range.end; ++i)
        for (const std::size_t own = leading(heads[i] << shared, depth); prefix <= own; ++prefix)
            level(depth)[prefix] = i;
    for (; prefix <= prefixes; ++prefix) level(depth)[prefix] = range.end;
    for (std::int32_t length = depth; length-- > 0;)
        for (std::size_t p = 0; p <= std::size_t{1} << length; ++p) level(length)[p] = level(length + 1)[2 * p];
    if (depth == 0 || shared + depth == bits) return;
    for (std::size_t p = 0; p < prefixes; ++p) {
        const Range below{level(depth)[p], level(depth)[p + 1]};
        if (below.size() < crowded) continue;
        const std::int32_t next = depth_of(below, shared + depth);
        const std::int32_t agreed = std::countl_zero(heads[below.begin] ^ heads[below.end - 1]);
        // No table where all items share its whole depth: it would not separate any of them.
        if (agreed >= shared + depth + next || words.size() + table_size(next) > max_words) continue;
        words[start + level_offset(depth + 1) + p] = static_cast<std::uint32_t>(words.size());
        append_tables(heads, below, shared + depth, width, max_words, words);
    }
}

// Returns the tables of sorted heads: 8 to 15 items share a prefix at the bottom of a balanced table, and beside the
// root's table there is at most one word for each item.
inline std::vector<std::uint32_t> build_prefix_tables(const std::uint64_t* heads, std::uint32_t count,
                                                      std::int32_t width) {
    std::vector<std::uint32_t> words;
    append_tables(heads, {0, count}, 0, width, count, words);
    words.shrink_to_fit();
    return words;
}

}  // namespace nestcode
