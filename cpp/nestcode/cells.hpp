// Cells of numbers: which interval a number falls into, and sums of one table entry for each cell.
//
// The intervals of one dimension are the leaves of a binary tree of thresholds, so that the first bits of a
// cell's number name the wider intervals around it.
#pragma once

#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace nestcode {

// `thresholds` holds `stride` numbers a dimension: node 1 is the root of its tree, node 2n and 2n + 1 lie below
// node n. A number greater than a node's threshold goes to 2n + 1. cells[i] are `depth[i]` bits, highest first.
struct Trees {
    const float* thresholds;
    const std::uint8_t* depths;
    std::size_t count;
    std::size_t stride;
};

inline void find_cells(const float* numbers, std::size_t rows, Trees trees, std::uint8_t* cells, std::size_t threads) {
    constexpr std::size_t thread_numbers = 1 << 16;
    const std::size_t grain = thread_numbers / std::max<std::size_t>(trees.count, 1);
    parallel_for(rows, grain, threads, [=](std::size_t begin, std::size_t end) {
        // Dimension by dimension over a block of rows, so that one small tree stays in the cache.
        constexpr std::size_t block = 64;
        for (std::size_t first = begin; first < end; first += block)
            for (std::size_t d = 0; d < trees.count; ++d) {
                const float* tree = trees.thresholds + d * trees.stride;
                const unsigned depth = trees.depths[d];
                for (std::size_t r = first; r < std::min(first + block, end); ++r) {
                    const float number = numbers[r * trees.count + d];
                    unsigned node = 1;
                    for (unsigned level = 0; level < depth; ++level) node = 2 * node + (number > tree[node]);
                    cells[r * trees.count + d] = static_cast<std::uint8_t>(node << (8 - depth));
                }
            }
    });
}

// Bit j of a row of `out` is bit sources[j] of the row of `in`, or 0 where sources[j] is negative. `out` has
// `out_bytes` bytes a row and 8 sources for each.
inline void permute_bits(Rows in, const std::int32_t* sources, std::uint8_t* out, std::size_t out_bytes,
                         std::size_t threads) {
    constexpr std::size_t thread_bits = 1 << 18;
    const std::size_t grain = thread_bits / (8 * std::max<std::size_t>(out_bytes, 1));
    parallel_for(in.count, grain, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t r = begin; r < end; ++r) {
            const std::uint8_t* row = in[r];
            for (std::size_t b = 0; b < out_bytes; ++b) {
                unsigned byte = 0;
                for (std::size_t j = 8 * b; j < 8 * b + 8; ++j) {
                    const std::int32_t source = sources[j];
                    byte = 2 * byte + (source < 0 ? 0u : row[source >> 3] >> (7 - (source & 7)) & 1u);
                }
                out[r * out_bytes + b] = static_cast<std::uint8_t>(byte);
            }
        }
    });
}

// The trees of `directions` as find_cells has them, and what each node stands for: node n of direction d is
// numbers[d * stride + n].
struct Numbers {
    const float* numbers;
    std::size_t directions;
    std::size_t stride;
};

// out[r * directions + d] = what the bits of a row say of direction d: bit `first` + j is the next one of direction
// owners[j], or says nothing where that is negative. No direction has more than 8.
inline void read_planes(Rows rows, const std::int32_t* owners, std::size_t bits, std::size_t first, Numbers trees,
                        float* out, std::size_t threads) {
    constexpr std::size_t block = 64;  // rows at once, bit by bit: many rows fit one instruction
    std::vector<std::uint32_t> starts(trees.directions, 1);
    for (std::size_t j = 0; j < bits; ++j)
        if (owners[j] >= 0) starts[static_cast<std::size_t>(owners[j])] *= 2;
    const std::size_t first_byte = first / 8, last_byte = bits == 0 ? first_byte : (first + bits - 1) / 8 + 1;
    parallel_for((rows.count + block - 1) / block, 1 + (1 << 16) / (block * (bits + 1)), threads,
                 [&](std::size_t begin, std::size_t end) {
                     std::vector<std::uint8_t> bytes((last_byte - first_byte) * block), cells(trees.directions * block);
                     for (std::size_t b = begin; b < end; ++b) {
                         const std::size_t count = std::min(block, rows.count - b * block);
                         for (std::size_t r = 0; r < count; ++r)
                             for (std::size_t p = first_byte; p < last_byte; ++p)
                                 bytes[(p - first_byte) * block + r] = rows[b * block + r][p];
                         std::fill(cells.begin(), cells.end(), 0);
                         for (std::size_t j = 0; j < bits; ++j) {
                             if (owners[j] < 0) continue;
                             const std::uint8_t* from = bytes.data() + ((first + j) / 8 - first_byte) * block;
                             std::uint8_t* cell = cells.data() + static_cast<std::size_t>(owners[j]) * block;
                             const int shift = 7 - static_cast<int>((first + j) % 8);
                             for (std::size_t r = 0; r < block; ++r)
                                 cell[r] = static_cast<std::uint8_t>(2 * cell[r] + (from[r] >> shift & 1));
                         }
                         for (std::size_t r = 0; r < count; ++r) {
                             float* row = out + (b * block + r) * trees.directions;
                             for (std::size_t d = 0; d < trees.directions; ++d)
                                 row[d] = trees.numbers[d * trees.stride + starts[d] + cells[d * block + r]];
                         }
                     }
                 });
}

// out[q * rows.count + r] = the sum over g of tables[q][g][rows[r][g]], with 256 entries a table.
inline void sum_tables(Rows rows, const float* tables, std::size_t queries, float* out, std::size_t threads) {
    constexpr std::size_t thread_lookups = 1 << 16;
    const std::size_t grain = thread_lookups / std::max<std::size_t>(rows.bytes * queries, 1);
    parallel_for(rows.count, grain, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t q = 0; q < queries; ++q)
            for (std::size_t r = begin; r < end; ++r) {
                const std::uint8_t* row = rows[r];
                const float* table = tables + q * rows.bytes * 256;
                float sum = 0;
                for (std::size_t g = 0; g < rows.bytes; ++g) sum += table[g * 256 + row[g]];
                out[q * rows.count + r] = sum;
            }
    });
}

}  // namespace nestcode
