// Tree-structured scalar quantization, and codes of ordered bit planes.
//
// The intervals of one direction are the leaves of a binary tree of thresholds, as in tree-structured quantization
// (Gersho and Gray, 1992): node 1 is the root, nodes 2n and 2n + 1 are the children of node n, and the bits of the path
// to a leaf are a successive refinement of the coefficient. A direction has at most 8 bits, so its path is one byte. A
// code interleaves the bits of all directions in order of importance; permute_bits gathers them and decode_bit_planes
// reads them back.
#pragma once

#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace nestcode {

// The threshold trees of all directions: node n of direction d is thresholds[d * stride + n]. Coefficients greater than
// the threshold of node n go to node 2n + 1.
struct ThresholdTrees {
    const float* thresholds;
    const std::uint8_t* depths;  // of each direction's tree
    std::size_t directions;
    std::size_t stride;
};

// Writes the interval of each coefficient, (rows, directions): its path in the tree, as the high bits of a byte.
inline void quantize_scalars(const float* coefficients, std::size_t rows, ThresholdTrees trees, std::uint8_t* intervals,
                             std::size_t threads) {
    constexpr std::size_t values_per_thread = 1 << 16;
    const std::size_t grain = values_per_thread / std::max<std::size_t>(trees.directions, 1);
    parallel_for(rows, grain, threads, [=](std::size_t begin, std::size_t end) {
        // Direction by direction over a block of rows, so that one small tree stays in the cache.
        constexpr std::size_t block = 64;
        for (std::size_t first = begin; first < end; first += block)
            for (std::size_t d = 0; d < trees.directions; ++d) {
                const float* tree = trees.thresholds + d * trees.stride;
                const unsigned depth = trees.depths[d];
                for (std::size_t r = first; r < std::min(first + block, end); ++r) {
                    const float coefficient = coefficients[r * trees.directions + d];
                    unsigned node = 1;
                    for (unsigned level = 0; level < depth; ++level) node = 2 * node + (coefficient > tree[node]);
                    intervals[r * trees.directions + d] = static_cast<std::uint8_t>(node << (8 - depth));
                }
            }
    });
}

// Returns where to cut an interval of sorted values, so that the means of its two parts explain most of its squares:
// the first such place, between values that differ, or its begin if there is none. sums[j] is the sum of the first j
// values.
inline std::int64_t best_cut(const double* sorted, const double* sums, std::int64_t begin, std::int64_t end) {
    std::int64_t cut = begin;
    double best = -1;
    for (std::int64_t at = begin + 1; at < end; ++at) {
        const double left = sums[at] - sums[begin], right = sums[end] - sums[at];
        const double below = left * left / static_cast<double>(at - begin);
        const double above = right * right / static_cast<double>(end - at);
        const bool better = below + above > best && sorted[at - 1] < sorted[at];
        best = better ? below + above : best;
        cut = better ? at : cut;
    }
    return cut;
}

// Splits each interval of sorted values in two, the next level of a threshold tree, and returns by how much the squares
// that the levels explain rise. Interval i has the places from edges[i] to edges[i + 1]. Writes the edges of the parts,
// 2 * intervals + 1; a threshold for each interval; and the mean of each part, or its parent's level if it is empty.
inline double split_intervals(const double* sorted, const double* sums, const std::int64_t* edges, const double* levels,
                              std::size_t intervals, std::int64_t* parts, float* thresholds, double* means) {
    double before = 0, after = 0;
    for (std::size_t i = 0; i < intervals; ++i) {
        const std::int64_t begin = edges[i], end = edges[i + 1], cut = best_cut(sorted, sums, begin, end);
        const std::int64_t last = edges[intervals] - 1;
        const double below = sorted[std::clamp<std::int64_t>(cut - 1, 0, last)], above = sorted[std::min(cut, last)];
        const auto middle = static_cast<float>((below + above) / 2);
        thresholds[i] = middle < above ? middle : static_cast<float>(below);  // rounding must not move `above` down
        parts[2 * i] = begin, parts[2 * i + 1] = cut, parts[2 * i + 2] = end;
        before += static_cast<double>(end - begin) * levels[i] * levels[i];
        for (std::size_t part = 2 * i; part < 2 * i + 2; ++part) {
            const auto count = static_cast<double>(parts[part + 1] - parts[part]);
            means[part] = count > 0 ? (sums[parts[part + 1]] - sums[parts[part]]) / count : levels[i];
            after += count * means[part] * means[part];
        }
    }
    return after - before;
}

// Bit j of a row of `out` is bit sources[j] of the row of `in`, or 0 if sources[j] is negative. `out` has `out_bytes`
// bytes per row and 8 sources for each.
inline void permute_bits(Rows in, const std::int32_t* sources, std::uint8_t* out, std::size_t out_bytes,
                         std::size_t threads) {
    constexpr std::size_t block = 64;  // rows at a time, bit by bit: the inner loop vectorizes over rows
    const std::int32_t last = out_bytes == 0 ? -1 : *std::max_element(sources, sources + 8 * out_bytes);
    const std::size_t used = last < 0 ? 0 : static_cast<std::size_t>(last) / 8 + 1;  // leading bytes of a row
    parallel_for((in.count + block - 1) / block, 1 + (1 << 12) / (out_bytes + 1), threads,
                 [=](std::size_t begin, std::size_t end) {
                     std::vector<std::uint8_t> bytes(used * block);
                     for (std::size_t b = begin; b < end; ++b) {
                         const std::size_t first = b * block, count = std::min(block, in.count - first);
                         for (std::size_t r = 0; r < count; ++r)
                             for (std::size_t p = 0; p < used; ++p) bytes[p * block + r] = in[first + r][p];
                         for (std::size_t o = 0; o < out_bytes; ++o) {
                             std::uint8_t column[block] = {};
                             for (std::size_t j = 0; j < 8; ++j) {
                                 const std::int32_t source = sources[8 * o + j];
                                 if (source < 0) continue;
                                 const std::uint8_t* from = bytes.data() + static_cast<std::size_t>(source / 8) * block;
                                 const auto bit = static_cast<std::uint8_t>(0x80 >> source % 8),
                                            to = static_cast<std::uint8_t>(0x80 >> j);
                                 for (std::size_t r = 0; r < block; ++r)
                                     column[r] = static_cast<std::uint8_t>(column[r] | ((from[r] & bit) != 0 ? to : 0));
                             }
                             for (std::size_t r = 0; r < count; ++r) out[(first + r) * out_bytes + o] = column[r];
                         }
                     }
                 });
}

// What the nodes of all trees decode to: node n of direction d is values[d * stride + n].
struct ReconstructionLevels {
    const float* values;
    std::size_t directions;
    std::size_t stride;
};

// Decodes `bits` bit planes that begin at bit `first` of each row into (rows, directions) coefficients. Plane j is the
// next bit of direction allocation[j], or an unallocated bit if that is negative; no direction has more than 8.
inline void decode_bit_planes(Rows rows, const std::int32_t* allocation, std::size_t bits, std::size_t first,
                              ReconstructionLevels levels, float* out, std::size_t threads) {
    constexpr std::size_t block = 64;  // rows at a time, plane by plane: the inner loop vectorizes over rows
    std::vector<std::uint32_t> first_leaf(levels.directions, 1);  // of each direction at its depth
    for (std::size_t j = 0; j < bits; ++j)
        if (allocation[j] >= 0) first_leaf[static_cast<std::size_t>(allocation[j])] *= 2;
    const std::size_t first_byte = first / 8, last_byte = bits == 0 ? first_byte : (first + bits - 1) / 8 + 1;
    parallel_for(
        (rows.count + block - 1) / block, 1 + (1 << 16) / (block * (bits + 1)), threads,
        [&](std::size_t begin, std::size_t end) {
            std::vector<std::uint8_t> bytes((last_byte - first_byte) * block), intervals(levels.directions * block);
            for (std::size_t b = begin; b < end; ++b) {
                const std::size_t count = std::min(block, rows.count - b * block);
                for (std::size_t r = 0; r < count; ++r)
                    for (std::size_t p = first_byte; p < last_byte; ++p)
                        bytes[(p - first_byte) * block + r] = rows[b * block + r][p];
                std::fill(intervals.begin(), intervals.end(), 0);
                for (std::size_t j = 0; j < bits; ++j) {
                    if (allocation[j] < 0) continue;
                    const std::uint8_t* from = bytes.data() + ((first + j) / 8 - first_byte) * block;
                    std::uint8_t* interval = intervals.data() + static_cast<std::size_t>(allocation[j]) * block;
                    const auto bit = static_cast<std::uint8_t>(0x80 >> (first + j) % 8);
                    for (std::size_t r = 0; r < block; ++r)  // without shifts, which vectors of bytes do not have
                        interval[r] = static_cast<std::uint8_t>(2 * interval[r] + ((from[r] & bit) != 0));
                }
                for (std::size_t d = 0; d < levels.directions; ++d) {  // whose few levels stay in the cache
                    const float* leaves = levels.values + d * levels.stride + first_leaf[d];
                    const std::uint8_t* interval = intervals.data() + d * block;
                    float* column = out + b * block * levels.directions + d;
                    for (std::size_t r = 0; r < count; ++r) column[r * levels.directions] = leaves[interval[r]];
                }
            }
        });
}

}  // namespace nestcode
