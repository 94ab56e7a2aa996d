// The layout of items for 4-bit fast-scan (fastscan.hpp).
//
// Items lie in blocks of 32. A block has one column of 32 bytes for every two 4-bit groups; byte i of column c holds
// the groups 2c (low nibble) and 2c + 1 (high nibble) of item i.
#pragma once

#include "rows.hpp"

namespace nestcode {

constexpr std::size_t kBlockItems = 32;
constexpr std::size_t kTileQueries = 4;  // that are scored together at most

struct FastScanBlocks {
    const std::uint32_t* starts = nullptr;  // (centroids): the first block of each centroid; no block is shared
    std::size_t centroids = 0;
    const std::uint8_t* groups = nullptr;  // (blocks, columns, 32)
    const std::int16_t* biases = nullptr;  // (blocks * 32): added to the items' distances, in units of `bias_unit`
    std::size_t columns = 0;               // bytes per item
    float bias_unit = 1;
    const float* norms =
        nullptr;  // (blocks * 32): of what the groups decode to, the mean included; null but for angles

    const std::uint8_t* block(std::size_t i) const { return groups + i * columns * kBlockItems; }
};

// Transposes grouped codes, (count, columns) bytes, into blocks; slots[i] is the place of code i, block * 32 + item.
inline void pack_blocks(Rows grouped, const std::uint32_t* slots, std::uint8_t* out) {
    for (std::size_t i = 0; i < grouped.count; ++i) {
        std::uint8_t* block = out + slots[i] / kBlockItems * grouped.bytes * kBlockItems + slots[i] % kBlockItems;
        for (std::size_t c = 0; c < grouped.bytes; ++c) block[c * kBlockItems] = grouped[i][c];
    }
}

}  // namespace nestcode
