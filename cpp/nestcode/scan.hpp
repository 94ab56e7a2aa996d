// Exhaustive search of vectors for one query: exact, in two passes.
//
// 1. Estimate all distances in float32, in one pass over memory.
// 2. Compute in float64 the distances of the items that the bound of the rounding errors cannot rule out: those whose
//    estimate is at most the k-th best plus twice the bound.
//
// The bounds are those of Higham (Accuracy and Stability of Numerical Algorithms, 2002, section 3.1): a sum of d
// products of float32 has an error of at most about d 2^-24 times the sum of their magnitudes, in any order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "metric.hpp"
#include "parallel.hpp"
#include "top_k.hpp"
#include "vector_distance.hpp"

namespace nestcode {

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

// What float32 makes of the sums that distances are computed from, whatever the vectors are stored as.
class VectorSums {
  public:
    VectorSums(const VectorRuns& vectors, Metric metric, Simd simd)
        : vectors_(vectors),
          floats_(metric, vectors.features, simd),
          halves_(metric, vectors.features, simd),
          expand_half_(half_expander(simd)),
          buffer_(vectors.features) {}

    RowSums operator()(const float* query, std::size_t position) {
        const auto [run, own] = vectors_.find(position);
        if (run->type != VectorType::float16) return floats_.kernel(query, row(position), vectors_.features);
        run->touch(own);
        return halves_.kernel(query, reinterpret_cast<const Half*>(run->at(own)), vectors_.features);
    }

    // The vector as float32, until the next call.
    const float* row(std::size_t position) {
        const auto [run, own] = vectors_.find(position);
        return run->row(own, expand_half_, buffer_.data());
    }

    void prefetch(std::size_t position) const {
        const auto [run, own] = vectors_.find(position);
        const std::uint8_t* from = run->at(own);
        for (std::size_t byte = 0; byte < run->row_bytes(); byte += 64) __builtin_prefetch(from + byte);
    }

  private:
    const VectorRuns& vectors_;
    const RowDistance<float> floats_;
    const RowDistance<Half> halves_;
    const HalfExpander expand_half_;
    std::vector<float> buffer_;
};

// The sum of term(f) over all features in float64, in four parts that hide the latency of additions.
template <class Term>
double sum_in_double(std::size_t features, const Term& term) {
    double sums[4] = {};
    std::size_t f = 0;
    for (; f + 4 <= features; f += 4)
        for (std::size_t part = 0; part < 4; ++part) sums[part] += term(f + part);
    for (; f < features; ++f) sums[0] += term(f);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The distance of a query, L2-normalized for the cosine, to a row in float64; the cosine with a zero row is 0.
inline double distance_in_double(const double* query, const float* row, std::size_t features, Metric metric) {
    if (metric == Metric::inner) return -sum_in_double(features, [=](std::size_t f) { return query[f] * row[f]; });
    double scale = 1;
    if (metric == Metric::cosine) {
        const double norm =
            sum_in_double(features, [=](std::size_t f) { return static_cast<double>(row[f]) * row[f]; });
        if (norm == 0) return 2;
        scale = 1 / std::sqrt(norm);
    }
    return sum_in_double(features, [=](std::size_t f) {
        const double difference = query[f] - scale * row[f];
        return difference * difference;
    });
}

// The k-th least of more than k values.
inline float kth_least(const std::vector<float>& values, std::size_t k) {
    std::vector<float> heap(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(k));  // the k least so far
    std::make_heap(heap.begin(), heap.end());
    for (std::size_t i = k; i < values.size(); ++i)
        if (values[i] < heap.front()) {
            std::pop_heap(heap.begin(), heap.end());
            heap.back() = values[i];
            std::push_heap(heap.begin(), heap.end());
        }
    return heap.front();
}

// Writes the k nearest items, nearest first, ties by ascending id, and id -1 where there are fewer, given estimates of
// all distances whose errors are at most `bound`: exact(i) returns the distance of an item in float64, and is called
// for those that may be among the nearest. Returns false, and writes nothing, if the bound leaves too many of them:
// float64 compares all by matrix products as fast.
template <class Exact>
bool rank_by_estimates(const std::vector<float>& estimates, double bound, const std::int64_t* ids, std::size_t k,
                       float* top_distances, std::int64_t* top_ids, const Exact& exact) {
    constexpr double largest = std::numeric_limits<float>::max();
    const std::size_t many = estimates.size(), most = std::max(64 + many / 32, k);
    float limit = std::numeric_limits<float>::infinity();
    if (many > k) {
        const double last = kth_least(estimates, k) + 2 * bound;
        if (!(std::abs(last) < largest)) return false;
        limit = std::nextafter(static_cast<float>(last), std::numeric_limits<float>::infinity());
    }
    std::vector<std::size_t> items;
    for (std::size_t i = 0; i < many; ++i) {
        if (!(estimates[i] <= limit)) continue;
        if (items.size() == most) return false;
        items.push_back(i);
    }
    std::vector<double> distances(items.size());
    exact(items, distances.data());
    std::vector<std::pair<float, std::int64_t>> close;
    for (std::size_t i = 0; i < items.size(); ++i)
        close.emplace_back(static_cast<float>(std::clamp(distances[i], -largest, largest)), ids[items[i]]);
    std::sort(close.begin(), close.end());
    for (std::size_t i = 0; i < k; ++i) {
        top_distances[i] = i < close.size() ? close[i].first : std::numeric_limits<float>::infinity();
        top_ids[i] = i < close.size() ? close[i].second : -1;
    }
    return true;
}

constexpr double kUnit = 0x1p-24;       // the relative error of rounding to float32
constexpr double kSmallest = 0x1p-125;  // at least the error of a product that underflows

// Writes the k nearest of the vectors at the positions `items`. Returns false, and writes nothing, where float32 cannot
// tell the items apart, or overflows: data far from 0 or in clusters far apart, or not finite; and for a zero query of
// the cosine.
template <class Position>
bool nearest_vectors(const VectorRuns& vectors, std::vector<double> query, const Position* items,
                     const std::int64_t* ids, std::size_t many, Metric metric, std::size_t k, float* top_distances,
                     std::int64_t* top_ids, Simd simd, std::size_t threads) {
    const std::size_t features = vectors.features;
    const double square = sum_in_double(features, [&](std::size_t f) { return query[f] * query[f]; });
    if (metric == Metric::cosine) {
        if (!(square > 1e-280 && square < 1e280)) return false;
        for (double& value : query) value /= std::sqrt(square);
    }
    const std::vector<float> rounded(query.begin(), query.end());
    if (metric == Metric::l2 && !std::equal(query.begin(), query.end(), rounded.begin())) return false;
    std::vector<float> estimates(many), norms(metric == Metric::inner ? many : 0);
    std::atomic<bool> usable = true;
    parallel_for(many, 1 + (1 << 18) / (features + 1), threads, [&](std::size_t begin, std::size_t end) {
        VectorSums sums_of(vectors, metric, simd);
        float total = 0;  // only to notice what is not finite
        for (std::size_t i = begin; i < end; ++i) {
            const RowSums sums = sums_of(rounded.data(), static_cast<std::size_t>(items[i]));
            if (metric == Metric::l2) {
                estimates[i] = sums.norm;
            } else if (metric == Metric::inner) {
                estimates[i] = -sums.product;
                norms[i] = sums.norm;
            } else if (sums.norm > 1e-30f) {
                estimates[i] = 2 - 2 * sums.product / std::sqrt(sums.norm);
            } else {  // squares underflow, unless they are zero
                const float* row = sums_of.row(static_cast<std::size_t>(items[i]));
                if (std::any_of(row, row + features, [](float value) { return value != 0; })) usable = false;
                estimates[i] = 2;
            }
            total += estimates[i];
        }
        if (!std::isfinite(total)) usable = false;
    });
    if (!usable || vectors.damaged()) return false;
    const double error = (static_cast<double>(features) + 16) * kUnit;
    double bound = 3 * error;  // of the cosine
    if (metric == Metric::l2)
        bound = (many > k ? error * kth_least(estimates, k) : 0) + static_cast<double>(features) * kSmallest;
    if (metric == Metric::inner && many != 0) {
        const double longest = std::sqrt(static_cast<double>(*std::max_element(norms.begin(), norms.end())));
        bound = error * std::sqrt(square) * longest * (1 + 0x1p-10) + static_cast<double>(features) * kSmallest;
    }
    VectorSums sums_of(vectors, metric, simd);
    const auto exact = [&](const std::vector<std::size_t>& close, double* out) {
        for (const std::size_t i : close)
            *out++ =
                distance_in_double(query.data(), sums_of.row(static_cast<std::size_t>(items[i])), features, metric);
    };
    return rank_by_estimates(estimates, bound, ids, k, top_distances, top_ids, exact);
}

}  // namespace nestcode
