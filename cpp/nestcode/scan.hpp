// Exhaustive scans: each query against the same vectors, in float32 and in one pass over memory.
//
// A few queries are bound by memory: rows are read once, in blocks that stay in the cache for all queries, with enough
// accumulators to hide the latency of additions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "metric.hpp"
#include "parallel.hpp"
#include "simd.hpp"
#include "vector_rows.hpp"

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

// Writes (queries, many) squared L2 distances, or inner products for the other metrics, to the vectors at the positions
// `items`; and, for the other metrics, the squared norms of these vectors, (many).
inline void scan_vectors(const VectorRuns& vectors, HalfExpander expand_half, const float* queries, std::size_t count,
                         const std::int64_t* items, std::size_t many, Metric metric, float* out, float* norms,
                         std::size_t threads) {
    constexpr std::size_t block = 16;  // rows
    const std::size_t features = vectors.features;
    parallel_for(
        many, 1 + (1 << 18) / (count * features + 1), threads, [=, &vectors](std::size_t begin, std::size_t end) {
            const VectorReader reader(vectors, expand_half);
            std::vector<float> buffer(block * features);
            const float* rows[block];
            for (std::size_t first = begin; first < end; first += block) {
                const std::size_t last = std::min(first + block, end);
                for (std::size_t i = first; i < last; ++i)
                    rows[i - first] =
                        reader.row(static_cast<std::size_t>(items[i]), buffer.data() + (i - first) * features);
                for (std::size_t q = 0; q < count; ++q)
                    for (std::size_t i = first; i < last; ++i) {
                        const float *query = queries + q * features, *row = rows[i - first];
                        out[q * many + i] = metric == Metric::l2 ? sum_of_squared_differences(query, row, features)
                                                                 : inner_product(query, row, features, norms[i]);
                    }
            }
        });
}

// Writes the vectors at the positions `items` as float32, (many, features).
inline void expand_vectors(const VectorRuns& vectors, HalfExpander expand_half, const std::int64_t* items,
                           std::size_t many, float* out, std::size_t threads) {
    const std::size_t features = vectors.features;
    parallel_for(many, 1 + (1 << 16) / (features + 1), threads, [=, &vectors](std::size_t begin, std::size_t end) {
        const VectorReader reader(vectors, expand_half);
        for (std::size_t i = begin; i < end; ++i) {
            const float* row = reader.row(static_cast<std::size_t>(items[i]), out + i * features);
            if (row != out + i * features) std::copy_n(row, features, out + i * features);
        }
    });
}

}  // namespace nestcode
