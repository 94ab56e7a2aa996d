// The top of a tree of sorted codes, written out level by level.
//
// A table answers, for each length 0, 1, ... depth and every prefix of that length, where its items begin and end.
// Where many items share a prefix of the last length, a table for the subtree below follows: balanced codes need one
// table, codes whose bits are mostly 0 need more on their crowded side.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "checksum.hpp"

namespace nestcode {

// An array that may be mapped from a file, and is then checked as it is read.
template <class T>
struct Column {
    const T* data = nullptr;
    std::size_t count = 0;
    Guard* guard = nullptr;

    const T* at(std::size_t i, std::size_t items = 1) const {
        if (guard != nullptr) guard->touch(data + i, items * sizeof(T));
        return data + i;
    }
    T operator[](std::size_t i) const { return *at(i); }
};

struct Range {
    std::uint32_t begin, end;

    std::uint32_t size() const { return end - begin; }
};

// The first `length` bits of a head as a number, for 0 to 64; a head is the first 64 bits of a code.
inline std::uint64_t leading(std::uint64_t head, std::int32_t length) {
    return length == 0 ? 0 : head >> (64 - length);
}

// A table is a run of numbers: its depth, for each length a start for every prefix and one end, and for every prefix
// of the last length the place of the table below it, or 0.
inline std::size_t level_offset(std::int32_t length) {
    return (std::size_t{1} << length) + static_cast<std::size_t>(length);
}

inline std::size_t table_size(std::int32_t depth) {
    return level_offset(depth + 1) + (std::size_t{1} << depth);
}

struct Table {
    const Column<std::uint32_t>* numbers;
    std::size_t start = 0;
    std::int32_t depth = 0;

    // Whatever a file may hold, a table lies within it: in place of one that does not stands the root alone.
    Table(const Column<std::uint32_t>& numbers, std::size_t at) : numbers(&numbers) {
        const std::uint32_t written = at < numbers.count ? numbers[at] : 32;
        if (written >= 32 || table_size(static_cast<std::int32_t>(written)) > numbers.count - at) return;
        start = at;
        depth = static_cast<std::int32_t>(written);
    }

    Range find(std::uint64_t head, std::int32_t length) const {
        Range found;
        std::memcpy(&found, numbers->at(start + level_offset(length) + leading(head, length), 2), sizeof found);
        return found;
    }

    std::size_t below(std::uint64_t head) const {
        return depth == 0 ? 0 : (*numbers)[start + level_offset(depth + 1) + leading(head, depth)];
    }
};

// Append the table of the items in `range`, whose first `shared` bits agree, and those of the subtrees below it, as
// long as there are no more than `most` numbers.
inline void append_tables(const std::uint64_t* heads, Range range, std::int32_t shared, std::int32_t width,
                          std::size_t most, std::vector<std::uint32_t>& numbers) {
    constexpr std::uint32_t crowded = 32;  // fewer items are as quickly bisected
    const std::int32_t bits = std::min(width, 64);
    const auto depth_of = [bits](Range items, std::int32_t above) {
        return std::clamp(static_cast<std::int32_t>(std::bit_width(items.size())) - 2, 0, bits - above);
    };
    const std::int32_t depth = depth_of(range, shared);
    const std::size_t start = numbers.size(), prefixes = std::size_t{1} << depth;
    numbers.resize(start + table_size(depth));
    numbers[start] = static_cast<std::uint32_t>(depth);
    const auto level = [&](std::int32_t length) { return numbers.data() + start + level_offset(length); };
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
        // A table in which nothing branches off would tell nothing.
        if (agreed >= shared + depth + next || numbers.size() + table_size(next) > most) continue;
        numbers[start + level_offset(depth + 1) + p] = static_cast<std::uint32_t>(numbers.size());
        append_tables(heads, below, shared + depth, width, most, numbers);
    }
}

// The tables of sorted heads: at most 3 numbers an item, and the root's.
inline std::vector<std::uint32_t> build_tables(const std::uint64_t* heads, std::uint32_t count, std::int32_t width) {
    std::vector<std::uint32_t> numbers;
    append_tables(heads, {0, count}, 0, width, std::size_t{3} * count, numbers);
    numbers.shrink_to_fit();
    return numbers;
}

}  // namespace nestcode
