// Reranking: precise distances from queries to a few candidates each.
//
// Candidates come from estimated distances; they are decoded, or their stored vectors are read (vector_rows.hpp), and
// scored here in float32 with two vector accumulators.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "metric.hpp"
#include "parallel.hpp"
#include "simd.hpp"
#include "vector_rows.hpp"

namespace nestcode {

// The parts of decoded vectors that lie outside of their coefficients, for the metrics that are not invariant to
// translation: coefficients are relative to a mean, and the mean has a component orthogonal to the projection.
struct Complement {
    const float* mean = nullptr;      // (features): added to every row; null for zeros
    float norm = 0;                   // squared, of the orthogonal component
    const float* products = nullptr;  // (queries): inner products of queries with that component; null for zeros
};

inline float squared_distance(const float* query, const float* row, std::size_t features) {
    Float4 sums[2] = {};
    std::size_t f = 0;
    for (; f + 8 <= features; f += 8)
        for (std::size_t half = 0; half < 8; half += 4) {
            const Float4 difference = load_float4(query + f + half) - load_float4(row + f + half);
            sums[half / 4] += difference * difference;
        }
    float total = horizontal_sum(sums[0] + sums[1]);
    for (; f < features; ++f) total += (query[f] - row[f]) * (query[f] - row[f]);
    return total;
}

// The inner product of a query and a row, and the row's squared norm; `mean`, if not null, is added to the row.
inline std::pair<float, float> product_and_norm(const float* query, const float* row, const float* mean,
                                                std::size_t features) {
    Float4 products = {}, norms = {};
    std::size_t f = 0;
    for (; f + 4 <= features; f += 4) {
        Float4 item = load_float4(row + f);
        if (mean != nullptr) item += load_float4(mean + f);
        products += load_float4(query + f) * item;
        norms += item * item;
    }
    float product = horizontal_sum(products), norm = horizontal_sum(norms);
    for (; f < features; ++f) {
        const float item = row[f] + (mean != nullptr ? mean[f] : 0);
        product += query[f] * item;
        norm += item * item;
    }
    return {product, norm};
}

// The cosine distance of a row whose squared norm leaves the range of a float; the cosine with a zero row is 0.
inline float cosine_distance_in_double(const float* query, const float* row, std::size_t features,
                                       const Complement& complement, std::size_t q) {
    double product = complement.products != nullptr ? complement.products[q] : 0, norm = complement.norm;
    for (std::size_t f = 0; f < features; ++f) {
        const double item = row[f] + (complement.mean != nullptr ? complement.mean[f] : 0);
        product += query[f] * item;
        norm += item * item;
    }
    return norm > 0 ? static_cast<float>(std::max(2 - 2 * product / std::sqrt(norm), 0.0)) : 2;
}

// Writes the distances from each query to its candidates, (queries, many): the squared L2 distance; the squared L2
// distance after L2 normalization of the row (the query is normalized already); or the negative inner product.
// Candidates are rows of `vectors`, of which each thread takes a copy; the distance of candidate -1 is infinite.
template <class Reader>
void rerank(const Reader& vectors, const float* queries, std::size_t count, const std::int64_t* candidates,
            std::size_t many, Metric metric, Complement complement, float* out, std::size_t threads) {
    const std::size_t features = vectors.features();
    parallel_for(count, 1 + (1 << 16) / (many * features + 1), threads, [=](std::size_t begin, std::size_t end) {
        constexpr std::size_t ahead = 3;  // rows: those of stored vectors are anywhere in memory
        Reader reader = vectors;
        for (std::size_t q = begin; q < end; ++q)
            for (std::size_t i = q * many; i < (q + 1) * many; ++i) {
                const float* query = queries + q * features;
                if (i + ahead < end * many && candidates[i + ahead] >= 0)
                    reader.prefetch(static_cast<std::size_t>(candidates[i + ahead]));
                if (candidates[i] < 0) {
                    out[i] = std::numeric_limits<float>::infinity();
                    continue;
                }
                const float* row = reader.row(static_cast<std::size_t>(candidates[i]));
                if (metric == Metric::l2) {
                    out[i] = squared_distance(query, row, features);
                    continue;
                }
                auto [product, norm] = product_and_norm(query, row, complement.mean, features);
                if (complement.products != nullptr) product += complement.products[q];
                norm += complement.norm;
                if (metric == Metric::inner)
                    out[i] = -product;
                else if (norm > 1e-30f && norm < 1e30f)
                    out[i] = std::max(2 - 2 * product / std::sqrt(norm), 0.0f);
                else
                    out[i] = cosine_distance_in_double(query, row, features, complement, q);
            }
    });
}

}  // namespace nestcode
