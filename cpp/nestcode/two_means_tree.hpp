// A binary tree of two-means splits: each node divides its rows along their first principal direction, then moves the
// border between the means of the two parts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "parallel.hpp"
#include "simd.hpp"

namespace nestcode {

struct TwoMeansRows {
    std::size_t features;
    const float* rows;    // (rows, features)
    const float* starts;  // (nodes, features): where the power iteration of each node starts, in heap order

    const float* operator[](std::size_t i) const { return rows + i * features; }
};

[[gnu::always_inline]] inline float inner_product(const float* a, const float* b, std::size_t count) {
    constexpr std::size_t lanes = 32;
    float sums[lanes] = {};
    std::size_t f = 0;
    for (; f + lanes <= count; f += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += a[f + lane] * b[f + lane];
    for (std::size_t half = lanes / 2; half > 0; half /= 2)
        for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[half + lane];
    for (; f < count; ++f) sums[0] += a[f] * b[f];
    return sums[0];
}

[[gnu::always_inline]] inline void add_scaled(float* __restrict out, float factor, const float* row,
                                              std::size_t count) {
    for (std::size_t f = 0; f < count; ++f) out[f] += factor * row[f];
}

// Orders the rows of a node so that those of its left child come first, and returns their number; 0 if all rows are
// equal. The border is that of the first `sample` rows.
[[gnu::always_inline]] inline std::size_t split_rows(const TwoMeansRows& data, const float* start, std::uint32_t* begin,
                                                     std::size_t count, std::size_t sample) {
    constexpr int power_iterations = 4, moves = 3;
    const std::size_t features = data.features;
    const std::uint32_t* end = begin + sample;
    std::vector<float> mean(features);
    for (const std::uint32_t* row = begin; row != end; ++row)
        add_scaled(mean.data(), 1 / static_cast<float>(sample), data[*row], features);
    std::vector<float> direction(start, start + features), sum(features);
    for (int i = 0; i < power_iterations; ++i) {
        const float center = inner_product(mean.data(), direction.data(), features);
        float total = 0;
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (const std::uint32_t* row = begin; row != end; ++row) {
            const float product = inner_product(data[*row], direction.data(), features) - center;
            add_scaled(sum.data(), product, data[*row], features);
            total += product;
        }
        add_scaled(sum.data(), -total, mean.data(), features);
        double norm = 0;
        for (const float value : sum) norm += static_cast<double>(value) * value;
        const float inverse = static_cast<float>(1 / std::max(std::sqrt(norm), 1e-30));
        for (std::size_t f = 0; f < features; ++f) direction[f] = inverse * sum[f];
    }
    float border = inner_product(mean.data(), direction.data(), features);
    for (int move = 0; move < moves; ++move) {
        std::size_t right = 0;
        std::fill(sum.begin(), sum.end(), 0.0f);  // of the right part, around the mean
        for (const std::uint32_t* row = begin; row != end; ++row)
            if (inner_product(data[*row], direction.data(), features) > border) {
                add_scaled(sum.data(), 1, data[*row], features);
                ++right;
            }
        if (right == 0 || right == sample) return 0;
        add_scaled(sum.data(), -static_cast<float>(right), mean.data(), features);
        const float there = 1 / static_cast<float>(right), here = 1 / static_cast<float>(sample - right);
        for (std::size_t f = 0; f < features; ++f) direction[f] = sum[f] * (there + here);  // between the parts' means
        border = inner_product(mean.data(), direction.data(), features) +
                 inner_product(sum.data(), direction.data(), features) * (there - here) / 2;
    }
    const auto middle = std::stable_partition(begin, begin + count, [&](std::uint32_t row) {
        return !(inner_product(data[row], direction.data(), features) > border);
    });
    const auto left = static_cast<std::size_t>(middle - begin);
    return left == count ? 0 : left;
}

using SplitKernel = std::size_t (*)(const TwoMeansRows&, const float*, std::uint32_t*, std::size_t, std::size_t);

inline std::size_t split_rows_portable(const TwoMeansRows& data, const float* start, std::uint32_t* begin,
                                       std::size_t count, std::size_t sample) {
    return split_rows(data, start, begin, count, sample);
}

#if NESTCODE_X86
NESTCODE_AVX2 inline std::size_t split_rows_avx2(const TwoMeansRows& data, const float* start, std::uint32_t* begin,
                                                 std::size_t count, std::size_t sample) {
    return split_rows(data, start, begin, count, sample);
}
#endif

// Writes the means of the 2^bits leaves, in order. Where all rows of a node are equal, so are its leaves.
inline void grow_two_means_tree(const TwoMeansRows& data, std::size_t count, std::size_t bits, float* leaves,
                                std::size_t threads) {
    constexpr std::size_t kSample = 1024;  // rows, which stay in a cache
    struct Node {
        std::size_t number, first, count;  // the number in heap order, and the rows
    };
    SplitKernel split = split_rows_portable;
#if NESTCODE_X86
    if (choose_simd("") != Simd::portable) split = split_rows_avx2;
#endif
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::vector<Node> level{{0, 0, count}};
    for (std::size_t depth = 0; !level.empty(); ++depth) {
        const std::size_t below = std::size_t{1} << (bits - depth), before = (std::size_t{1} << depth) - 1;
        std::vector<std::size_t> left(level.size());
        parallel_for(level.size(), 1, threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t n = begin; n < end; ++n) {
                const auto [number, first, rows] = level[n];
                const float* start = data.starts + number * data.features;
                for (std::size_t sample : {std::min(rows, kSample), rows})
                    if (depth < bits && left[n] == 0) left[n] = split(data, start, &order[first], rows, sample);
                if (left[n] > 0) continue;
                float* mean = leaves + (number - before) * below * data.features;  // of its first leaf
                std::fill_n(mean, data.features, 0.0f);
                for (std::size_t i = first; i < first + rows; ++i) add_scaled(mean, 1, data[order[i]], data.features);
                for (std::size_t f = 0; f < data.features; ++f) mean[f] /= static_cast<float>(rows);
                for (std::size_t leaf = 1; leaf < below; ++leaf)
                    std::copy_n(mean, data.features, mean + leaf * data.features);
            }
        });
        std::vector<Node> next;
        for (std::size_t n = 0; n < level.size(); ++n) {
            const auto [number, first, rows] = level[n];
            if (left[n] == 0) continue;
            next.push_back({2 * number + 1, first, left[n]});
            next.push_back({2 * number + 2, first + left[n], rows - left[n]});
        }
        level.swap(next);
    }
}

}  // namespace nestcode
