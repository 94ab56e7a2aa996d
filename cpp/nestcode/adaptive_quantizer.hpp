// Backward-adaptive residual quantization: each byte refines the coordinates with the largest remaining scale, which
// follow from the bytes before it, as the step size of a backward-adaptive quantizer does (Jayant, 1973).
//
// Every coordinate has a log-scale: log2 of the standard deviation of its residual, in fixed point with 8 fractional
// bits. A byte selects one of 256 codebook entries for the `dims` coordinates of the largest scales. The entry adds its
// values, in units of the coordinates' scales, and changes their log-scales. These are integers, so that encoder and
// decoder agree on the coordinates on every machine. Coordinates are kept sorted by scale, as keys of log-scale and
// index.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "parallel.hpp"
#include "residual_quantizer.hpp"
#include "rows.hpp"

namespace nestcode {

inline constexpr std::size_t kEntries = 256;
inline constexpr int kLogScaleSteps = 256;                                // per factor of two
inline constexpr int kLowestLogScale = -30000, kHighestLogScale = 30000;  // fit 16 bits

struct AdaptiveCodebooks {
    std::size_t directions, stages, dims;
    const std::int16_t* log_scales;  // (directions): before the first byte
    const float* entries;            // (stages, dims, 256)
    const std::int16_t* changes;     // (stages, 256, dims): of the log-scales
};

inline float scale_of(int log_scale) {
    return std::exp2(static_cast<float>(log_scale) / kLogScaleSteps);
}

// A sort key of a log-scale and its coordinate: greater for larger scales, and for lower coordinates of equal scale.
inline std::uint32_t key_of(int log_scale, std::size_t coordinate) {
    return static_cast<std::uint32_t>(log_scale + 32768) << 16 | (0xFFFF - static_cast<std::uint32_t>(coordinate));
}
inline int log_scale_of(std::uint32_t key) {
    return static_cast<int>(key >> 16) - 32768;
}
inline std::size_t coordinate_of(std::uint32_t key) {
    return 0xFFFF - (key & 0xFFFF);
}

// The keys of all coordinates in descending order.
inline std::vector<std::uint32_t> sorted_keys(const std::int16_t* log_scales, std::size_t directions) {
    std::vector<std::uint32_t> keys(directions);
    for (std::size_t d = 0; d < directions; ++d) keys[d] = key_of(log_scales[d], d);
    std::sort(keys.begin(), keys.end(), std::greater<>());
    return keys;
}

// Writes the sorted keys after the log-scales of the first `dims` changed. `moved` is scratch space.
inline void change_log_scales(const std::vector<std::uint32_t>& keys, const std::int16_t* changes, std::size_t dims,
                              std::vector<std::uint32_t>& moved, std::vector<std::uint32_t>& out) {
    moved.resize(dims);
    for (std::size_t j = 0; j < dims; ++j)
        moved[j] = key_of(std::clamp(log_scale_of(keys[j]) + changes[j], kLowestLogScale, kHighestLogScale),
                          coordinate_of(keys[j]));
    std::sort(moved.begin(), moved.end(), std::greater<>());
    out.resize(keys.size());
    std::merge(keys.begin() + static_cast<std::ptrdiff_t>(dims), keys.end(), moved.begin(), moved.end(), out.begin(),
               std::greater<>());
}

// Writes the `dims` coordinates of the largest scales of each row, largest first.
inline void find_largest_scales(const std::int16_t* log_scales, std::size_t count, std::size_t directions,
                                std::size_t dims, std::int32_t* out, std::size_t threads) {
    parallel_for(count, 64, threads, [=](std::size_t begin, std::size_t end) {
        std::vector<std::uint32_t> keys(directions);
        const auto last = keys.begin() + static_cast<std::ptrdiff_t>(dims);
        for (std::size_t i = begin; i < end; ++i) {
            for (std::size_t d = 0; d < directions; ++d) keys[d] = key_of(log_scales[i * directions + d], d);
            std::partial_sort(keys.begin(), last, keys.end(), std::greater<>());
            for (std::size_t j = 0; j < dims; ++j)
                out[i * dims + j] = static_cast<std::int32_t>(coordinate_of(keys[j]));
        }
    });
}

// A partial code of one item.
struct Beam {
    std::vector<float> residual;
    std::vector<std::uint32_t> keys;  // of the log-scales, descending
    std::vector<std::uint8_t> bytes;
    float error = 0;  // squared
};

// Adds the change of the squared error by each codebook entry c, the sum over its coordinates of
// (scale * c)^2 - 2 * residual * scale * c.
inline void add_errors(const Beam& beam, const float* codebook, std::size_t dims, float* error) {
    for (std::size_t j = 0; j < dims; ++j) {
        const float scale = scale_of(log_scale_of(beam.keys[j]));
        const float square = scale * scale, product = -2 * scale * beam.residual[coordinate_of(beam.keys[j])];
        const float* entry = codebook + j * kEntries;
        for (std::size_t e = 0; e < kEntries; ++e) error[e] += entry[e] * (square * entry[e] + product);
    }
}

// Writes the codes of rows by beam search: (count, directions) -> (count, stages).
inline void encode_adaptive(const AdaptiveCodebooks& codebooks, const float* rows, std::size_t count, std::size_t beams,
                            std::uint8_t* out, std::size_t threads) {
    const auto [directions, stages, dims, log_scales, entries, changes] = codebooks;
    const std::vector<std::uint32_t> start = sorted_keys(log_scales, directions);
    parallel_for(count, 1, threads, [=, &start](std::size_t begin, std::size_t end) {
        std::vector<Beam> current(beams), next(beams);
        std::vector<float> errors(beams * kEntries);
        std::vector<std::pair<float, std::uint32_t>> best;
        std::vector<std::uint32_t> moved;
        for (std::size_t i = begin; i < end; ++i) {
            const float* row = rows + i * directions;
            current[0].residual.assign(row, row + directions);
            current[0].keys = start;
            current[0].bytes.clear();
            current[0].error = 0;
            for (std::size_t d = 0; d < directions; ++d) current[0].error += row[d] * row[d];
            std::size_t active = 1;
            for (std::size_t t = 0; t < stages; ++t) {
                const float* codebook = entries + t * dims * kEntries;
                for (std::size_t b = 0; b < active; ++b) {
                    float* error = errors.data() + b * kEntries;
                    std::fill(error, error + kEntries, current[b].error);
                    add_errors(current[b], codebook, dims, error);
                }
                const std::size_t kept = std::min(beams, active * kEntries);
                select_beams(errors.data(), active * kEntries, kept, best);
                for (std::size_t k = 0; k < kept; ++k) {
                    const std::size_t entry = best[k].second % kEntries;
                    const Beam& from = current[best[k].second / kEntries];
                    Beam& to = next[k];
                    to.residual = from.residual;
                    to.bytes = from.bytes;
                    to.bytes.push_back(static_cast<std::uint8_t>(entry));
                    to.error = best[k].first;
                    for (std::size_t j = 0; j < dims; ++j)
                        to.residual[coordinate_of(from.keys[j])] -=
                            scale_of(log_scale_of(from.keys[j])) * codebook[j * kEntries + entry];
                    change_log_scales(from.keys, changes + (t * kEntries + entry) * dims, dims, moved, to.keys);
                }
                std::swap(current, next);
                active = kept;
            }
            std::copy(current[0].bytes.begin(), current[0].bytes.end(), out + i * stages);
        }
    });
}

// Decodes codes of `stages` bytes: (count, stages) -> (count, directions).
inline void decode_adaptive(const AdaptiveCodebooks& codebooks, Rows codes, float* out, std::size_t threads) {
    const auto [directions, stages, dims, log_scales, entries, changes] = codebooks;
    const std::vector<std::uint32_t> start = sorted_keys(log_scales, directions);
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
                        scale_of(log_scale_of(keys[j])) * entries[(t * dims + j) * kEntries + entry];
                change_log_scales(keys, changes + (t * kEntries + entry) * dims, dims, moved, next);
                std::swap(keys, next);
            }
        }
    });
}

}  // namespace nestcode
