// A bitmap of the items of a segment that a search may return: what a filter allows, less what was deleted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "prefix_tables.hpp"

namespace nestcode {

struct Bitmap {
    const std::uint64_t* words = nullptr;  // 64 items in a word, the first one lowest; null where all are allowed

    bool contains(std::uint32_t position) const {
        return words == nullptr || (words[position / 64] >> position % 64 & 1) != 0;
    }

    // How many items of a range are allowed.
    std::uint32_t count(Range range) const {
        if (words == nullptr || range.size() == 0) return range.size();
        const std::uint32_t first = range.begin / 64, last = (range.end - 1) / 64;
        const std::uint64_t from = ~std::uint64_t{0} << range.begin % 64,
                            to = ~std::uint64_t{0} >> (63 - (range.end - 1) % 64);
        if (first == last) return static_cast<std::uint32_t>(std::popcount(words[first] & from & to));
        int total = std::popcount(words[first] & from) + std::popcount(words[last] & to);
        for (std::uint32_t word = first + 1; word < last; ++word) total += std::popcount(words[word]);
        return static_cast<std::uint32_t>(total);
    }
};

// Writes the items whose ids are set in a bitmap by id, which ends at `size`: 64 items in a word, the first one lowest.
template <class Id>
void select_ids(const Id* ids, std::size_t count, const std::uint8_t* by_id, std::size_t size, std::uint64_t* words) {
    for (std::size_t first = 0; first < count; first += 64) {
        const std::size_t many = count - first < 64 ? count - first : 64;
        std::uint64_t word = 0;
        for (std::size_t i = 0; i < many; ++i) {
            const auto id = static_cast<std::uint64_t>(ids[first + i]);
            const std::uint64_t byte = id < size ? by_id[id / 8] : 0;
            word |= (byte >> id % 8 & 1) << i;
        }
        words[first / 64] = word;
    }
}

}  // namespace nestcode
