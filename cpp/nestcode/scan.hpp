// Exhaustive scans: each query against the same float vectors, in float32 and in one pass over memory.
//
// A few queries are bound by memory: rows are read once, in blocks that stay in the cache for all queries, with enough
// accumulators to hide the latency of additions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "metric.hpp"
#include "parallel.hpp"
#include "simd.hpp"

namespace nestcode {

inline float sum_of_four(const Float4 (&sums)[4]) {
    return horizontal_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

inline float sum_of_squared_differences(const float* a, const float* b, std::size_t features) {
    Float4 sums[4] = {};
    std::size_t f = 0;
    for (; f + 16 <= features; f += 16)
        for (std::size_t part = 0; part < 4; ++part) {
            const Float4 difference = load_float4(a + f + 4 * part) - load_float4(b + f + 4 * part);
            sums[part] += difference * difference;
        }
    float total = sum_of_four(sums);
    for (; f < features; ++f) total += (a[f] - b[f]) * (a[f] - b[f]);
    return total;
}

// The inner product of a query and a row; `norm` becomes the row's squared norm.
inline float inner_product(const float* query, const float* row, std::size_t features, float& norm) {
    Float4 products[4] = {}, squares[4] = {};
    std::size_t f = 0;
    for (; f + 16 <= features; f += 16)
        for (std::size_t part = 0; part < 4; ++part) {
            const Float4 item = load_float4(row + f + 4 * part);
            products[part] += load_float4(query + f + 4 * part) * item;
            squares[part] += item * item;
        }
    float product = sum_of_four(products);
    norm = sum_of_four(squares);
    for (; f < features; ++f) {
        product += query[f] * row[f];
        norm += row[f] * row[f];
    }
    return product;
}

// Writes (queries, many) squared L2 distances, or inner products for the other metrics, to the rows of `vectors` that
// `items` selects; and, for the other metrics, the squared norms of these rows, (many).
inline void scan_vectors(const float* vectors, std::size_t features, const float* queries, std::size_t count,
                         const std::int64_t* items, std::size_t many, Metric metric, float* out, float* norms,
                         std::size_t threads) {
    constexpr std::size_t block = 16;  // rows
    parallel_for(many, 1 + (1 << 18) / (count * features + 1), threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t first = begin; first < end; first += block) {
            const std::size_t last = std::min(first + block, end);
            for (std::size_t q = 0; q < count; ++q)
                for (std::size_t i = first; i < last; ++i) {
                    const float* row = vectors + static_cast<std::size_t>(items[i]) * features;
                    const float* query = queries + q * features;
                    out[q * many + i] = metric == Metric::l2 ? sum_of_squared_differences(query, row, features)
                                                             : inner_product(query, row, features, norms[i]);
                }
        }
    });
}

}  // namespace nestcode
