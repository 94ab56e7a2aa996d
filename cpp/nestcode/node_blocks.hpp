// The nodes of a graph in a file, for walks whose memory has only the leading bits of the items: a visit reads one
// block, which has the node's neighbors and its vector (Subramanya, Devvrit, Kadekodi, Krishnaswamy, Simhadri:
// "DiskANN: fast accurate billion-point nearest neighbor search on a single node", 2019). A block has several nodes,
// each beside its nearest neighbors, as a walk visits both (Wang et al.: "Starling", 2024).
//
//     block = as many nodes as 4 KiB hold; a larger node has a block of its own, of several times 4 KiB
//     node  = neighbors (32 x uint32) | vector, padded to 4 bytes
#pragma once

#include <span>
#include <vector>

#include "checksum.hpp"
#include "read_ahead.hpp"

namespace nestcode {

constexpr std::size_t kPage = 4096;            // bytes that a drive reads at once
constexpr std::uint32_t kNoNode = UINT32_MAX;  // the slot of a duplicate, which is no node

// How nodes lie in blocks.
struct NodeLayout {
    std::size_t node_bytes, nodes, block_bytes;  // nodes of a block

    NodeLayout(std::size_t degree, std::size_t vector_bytes)
        : node_bytes((degree * sizeof(std::uint32_t) + vector_bytes + 3) / 4 * 4),
          nodes(std::max<std::size_t>(kPage / node_bytes, 1)),
          block_bytes((nodes * node_bytes + kPage - 1) / kPage * kPage) {}
};

// Blocks that are mapped from a file.
struct NodeBlocks {
    NodeLayout layout;
    std::size_t degree;
    const std::uint8_t* data;              // blocks, which begin at pages
    std::span<const std::uint32_t> slots;  // of each item; slot s is node s % nodes of block s / nodes
    std::size_t blocks;
    ChecksumGuard* guard;  // or null

    // Whether all slots lie in the blocks, and each duplicate follows its node.
    bool fit() const {
        if (slots.empty() || slots[0] == kNoNode) return false;
        return std::ranges::all_of(slots,
                                   [&](std::uint32_t slot) { return slot == kNoNode || slot / layout.nodes < blocks; });
    }

    std::size_t block_of(std::size_t item) const { return slot_of(item) / layout.nodes; }
    const std::uint32_t* neighbors(std::size_t item) const {
        return reinterpret_cast<const std::uint32_t*>(node(item));
    }
    const std::uint8_t* vector(std::size_t item) const { return node(item) + degree * sizeof(std::uint32_t); }

    // Verifies the checksum of an item's block.
    void touch(std::size_t item) const {
        if (guard != nullptr) guard->touch(node(item), layout.node_bytes);
    }

    // Begins to read blocks that the system does not have in memory, all at once.
    void request(std::vector<std::size_t> some) const {
        read_ahead(data, blocks * layout.block_bytes, layout.block_bytes, nullptr, std::move(some));
    }

  private:
    std::size_t slot_of(std::size_t item) const {
        while (slots[item] == kNoNode) --item;
        return slots[item];
    }
    const std::uint8_t* node(std::size_t item) const {
        const std::size_t slot = slot_of(item);
        return data + slot / layout.nodes * layout.block_bytes + slot % layout.nodes * layout.node_bytes;
    }
};

// Writes the slot of each item, (items): an item that has none yet begins a block, and its neighbors without one fill
// it, then theirs. Those that are left over share blocks in order.
inline void place_nodes(const std::uint32_t* neighbors, std::size_t items, std::size_t degree, std::size_t nodes,
                        std::uint32_t* slots) {
    constexpr std::size_t kFollowed = 16, kTheirs = 8;  // nodes whose neighbors are tried, and how many of each
    constexpr std::uint32_t kFree = UINT32_MAX - 1, kLeft = UINT32_MAX - 2;
    for (std::size_t i = 0; i < items; ++i) slots[i] = i > 0 && neighbors[i * degree] == i ? kNoNode : kFree;
    std::vector<std::uint32_t> own;
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < items; ++i) {
        if (slots[i] != kFree) continue;
        own.assign(1, static_cast<std::uint32_t>(i));
        slots[i] = kLeft;
        for (std::size_t from = 0; from < std::min(own.size(), kFollowed) && own.size() < nodes; ++from) {
            const std::uint32_t* near = neighbors + own[from] * degree;
            for (std::size_t j = 0; j < (from == 0 ? degree : kTheirs) && own.size() < nodes; ++j)
                if (near[j] < items && slots[near[j]] == kFree) {
                    slots[near[j]] = kLeft;
                    own.push_back(near[j]);
                }
        }
        if (own.size() < nodes) {
            for (const std::uint32_t one : own)
                if (one != i) slots[one] = kFree;  // for others
            continue;
        }
        for (const std::uint32_t one : own) slots[one] = next++;
    }
    for (std::size_t i = 0; i < items; ++i)
        if (slots[i] == kLeft) slots[i] = next++;
}

}  // namespace nestcode
