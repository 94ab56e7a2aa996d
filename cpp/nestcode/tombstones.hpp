// Tombstones: the positions of deleted items, as a bit vector with rank.
//
// Segments never change; a deleted item stays in place and its position is marked. One bit per position and the number
// of set bits before each 64-bit word answer rank queries in constant time (Jacobson, 1989), so counting the live items
// of a range takes two lookups.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "prefix_tables.hpp"

namespace nestcode {

struct Tombstones {
    std::vector<std::uint64_t> bits;
    std::vector<std::uint32_t> rank;  // set bits before each word
    std::uint32_t count = 0;

    // `positions` must be ascending and below `size`.
    Tombstones(std::span<const std::uint32_t> positions, std::size_t size) : bits(size / 64 + 1), rank(size / 64 + 1) {
        for (const std::uint32_t position : positions) bits[position / 64] |= std::uint64_t{1} << position % 64;
        for (std::size_t word = 0; word < bits.size(); ++word) {
            rank[word] = count;
            count += static_cast<std::uint32_t>(std::popcount(bits[word]));
        }
    }

    bool contains(std::uint32_t position) const { return bits[position / 64] >> position % 64 & 1; }

    std::uint32_t count_before(std::uint32_t position) const {
        const std::uint64_t lower = bits[position / 64] & ((std::uint64_t{1} << position % 64) - 1);
        return rank[position / 64] + static_cast<std::uint32_t>(std::popcount(lower));
    }
};

// The number of items in a range that are not deleted; `tombstones` may be null.
inline std::uint32_t count_live(Range range, const Tombstones* tombstones) {
    if (tombstones == nullptr) return range.size();
    return range.size() - (tombstones->count_before(range.end) - tombstones->count_before(range.begin));
}

}  // namespace nestcode
