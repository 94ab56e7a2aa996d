// Adaptive codes: each byte refines the coordinates that are least known, given the bytes before it.
//
// Every coordinate has a level, log2 of its remaining spread in steps of 1/256. A byte names one of 256 entries for the
// `dims` coordinates of the highest levels; an entry moves them by its numbers times their spreads, and lowers their
// levels. Levels are whole numbers, so that whoever decodes, on whatever machine, finds the same coordinates.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "parallel.hpp"
#include "residual.hpp"
#include "rows.hpp"

namespace nestcode {

inline constexpr std::size_t kEntries = 256;
inline constexpr int kLevelSteps = 256;                             // to a factor of two
inline constexpr int kLowestLevel = -30000, kHighestLevel = 30000;  // within 16 bits

struct Adaptive {
    std::size_t directions, stages, dims;
    const std::int16_t* levels;   // (directions): before the first byte
    const float* books;           // (stages, dims, 256)
    const std::int16_t* changes;  // (stages, 256, dims): of levels
};

inline float spread_of(int level) {
    return std::exp2(static_cast<float>(level) / kLevelSteps);
}

// A level and its coordinate in one number: higher levels come later, and of equals the coordinate that comes first.
inline std::uint32_t key_of(int level, std::size_t coordinate) {
    return static_cast<std::uint32_t>(level + 32768) << 16 | (0xFFFF - static_cast<std::uint32_t>(coordinate));
}
inline int level_of(std::uint32_t key) {
    return static_cast<int>(key >> 16) - 32768;
}
inline std::size_t coordinate_of(std::uint32_t key) {
    return 0xFFFF - (key & 0xFFFF);
}

// All keys, highest first.
inline std::vector<std::uint32_t> sorted_keys(const std::int16_t* levels, std::size_t directions) {
    std::vector<std::uint32_t> keys(directions);
    for (std::size_t d = 0; d < directions; ++d) keys[d] = key_of(levels[d], d);
    std::sort(keys.begin(), keys.end(), std::greater<>());
    return keys;
}

// Writes the keys in order again after levels of the first `dims` changed. `moved` is scratch.
inline void change_levels(const std::vector<std::uint32_t>& keys, const std::int16_t* changes, std::size_t dims,
                          std::vector<std::uint32_t>& moved, std::vector<std::uint32_t>& out) {
    moved.resize(dims);
    for (std::size_t j = 0; j < dims; ++j)
        moved[j] =
            key_of(std::clamp(level_of(keys[j]) + changes[j], kLowestLevel, kHighestLevel), coordinate_of(keys[j]));
    std::sort(moved.begin(), moved.end(), std::greater<>());
    out.resize(keys.size());
    std::merge(keys.begin() + static_cast<std::ptrdiff_t>(dims), keys.end(), moved.begin(), moved.end(), out.begin(),
               std::greater<>());
}

// Writes which `dims` coordinates of each row have the highest levels, highest first.
inline void find_widest(const std::int16_t* levels, std::size_t count, std::size_t directions, std::size_t dims,
                        std::int32_t* out, std::size_t threads) {
    parallel_for(count, 64, threads, [=](std::size_t begin, std::size_t end) {
        std::vector<std::uint32_t> keys(directions);
        const auto last = keys.begin() + static_cast<std::ptrdiff_t>(dims);
        for (std::size_t i = begin; i < end; ++i) {
            for (std::size_t d = 0; d < directions; ++d) keys[d] = key_of(levels[i * directions + d], d);
            std::partial_sort(keys.begin(), last, keys.end(), std::greater<>());
            for (std::size_t j = 0; j < dims; ++j)
                out[i * dims + j] = static_cast<std::int32_t>(coordinate_of(keys[j]));
        }
    });
}

// A partial code of one item: what it leaves, the keys of its levels, its squared error and its bytes.
struct Beam {
    std::vector<float> rest;
    std::vector<std::uint32_t> keys;
    std::vector<std::uint8_t> bytes;
    float error = 0;
};

// Adds, for each entry c of a book, the sum over coordinates of (spread * c)^2 - 2 * rest * spread * c to its error.
inline void add_errors(const Beam& beam, const float* book, std::size_t dims, float* error) {
    for (std::size_t j = 0; j < dims; ++j) {
        const float spread = spread_of(level_of(beam.keys[j]));
        const float square = spread * spread, product = -2 * spread * beam.rest[coordinate_of(beam.keys[j])];
        const float* entry = book + j * kEntries;
        for (std::size_t e = 0; e < kEntries; ++e) error[e] += entry[e] * (square * entry[e] + product);
    }
}

// Writes the codes of rows, (count, stages), by beam search.
inline void encode_adaptive(const Adaptive& coder, const float* rows, std::size_t count, std::size_t beams,
                            std::uint8_t* out, std::size_t threads) {
    const auto [directions, stages, dims, levels, books, changes] = coder;
    const std::vector<std::uint32_t> start = sorted_keys(levels, directions);
    parallel_for(count, 1, threads, [=, &start](std::size_t begin, std::size_t end) {
        std::vector<Beam> now(beams), next(beams);
        std::vector<float> errors(beams * kEntries);
        std::vector<std::pair<float, std::uint32_t>> best;
        std::vector<std::uint32_t> moved;
        for (std::size_t i = begin; i < end; ++i) {
            const float* row = rows + i * directions;
            now[0].rest.assign(row, row + directions);
            now[0].keys = start;
            now[0].bytes.clear();
            now[0].error = 0;
            for (std::size_t d = 0; d < directions; ++d) now[0].error += row[d] * row[d];
            std::size_t alive = 1;
            for (std::size_t t = 0; t < stages; ++t) {
                const float* book = books + t * dims * kEntries;
                for (std::size_t b = 0; b < alive; ++b) {
                    float* error = errors.data() + b * kEntries;
                    std::fill(error, error + kEntries, now[b].error);
                    add_errors(now[b], book, dims, error);
                }
                const std::size_t kept = std::min(beams, alive * kEntries);
                keep_best(errors.data(), alive * kEntries, kept, best);
                for (std::size_t k = 0; k < kept; ++k) {
                    const std::size_t entry = best[k].second % kEntries;
                    const Beam& from = now[best[k].second / kEntries];
                    Beam& to = next[k];
                    to.rest = from.rest;
                    to.bytes = from.bytes;
                    to.bytes.push_back(static_cast<std::uint8_t>(entry));
                    to.error = best[k].first;
                    for (std::size_t j = 0; j < dims; ++j)
                        to.rest[coordinate_of(from.keys[j])] -=
                            spread_of(level_of(from.keys[j])) * book[j * kEntries + entry];
                    change_levels(from.keys, changes + (t * kEntries + entry) * dims, dims, moved, to.keys);
                }
                std::swap(now, next);
                alive = kept;
            }
            std::copy(now[0].bytes.begin(), now[0].bytes.end(), out + i * stages);
        }
    });
}

// Writes what codes of `coder.stages` bytes stand for, (count, directions).
inline void decode_adaptive(const Adaptive& coder, Rows codes, float* out, std::size_t threads) {
    const auto [directions, stages, dims, levels, books, changes] = coder;
    const std::vector<std::uint32_t> start = sorted_keys(levels, directions);
    parallel_for(codes.count, 16, threads, [=, &start](std::size_t begin, std::size_t end) {
        std::vector<std::uint32_t> keys, next, moved;
        for (std::size_t i = begin; i < end; ++i) {
            float* row = out + i * directions;
            std::fill(row, row + directions, 0.0F);
            keys = start;
            for (std::size_t t = 0; t < stages; ++t) {
                const std::size_t entry = codes[i][t];
                for (std::size_t j = 0; j < dims; ++j)
                    row[coordinate_of(keys[j])] +=
                        spread_of(level_of(keys[j])) * books[(t * dims + j) * kEntries + entry];
                change_levels(keys, changes + (t * kEntries + entry) * dims, dims, moved, next);
                std::swap(keys, next);
            }
        }
    });
}

}  // namespace nestcode
