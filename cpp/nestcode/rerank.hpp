// Reranking: precise distances from queries to a few candidates each, in float32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "metric.hpp"
#include "parallel.hpp"
#include "simd.hpp"
#include "vector_distance.hpp"
#include "vector_rows.hpp"

namespace nestcode {

// The sums that distances are computed from, in float32 and whatever the vectors are stored as: four vectors at a time,
// while the next four are prefetched.
class VectorSums {
  public:
    VectorSums(const VectorRuns& vectors, Metric metric, Simd simd)
        : vectors_(vectors),
          floats_(kernel<float>(metric, simd)),
          halves_(kernel<Half>(metric, simd)),
          expand_half_(half_expander(simd)),
          only_halves_(
              std::ranges::all_of(vectors.runs, [](const auto& run) { return run.type == VectorType::float16; })),
          buffer_(new float[kRows * vectors.features]) {
        if (vectors.runs.size() != 1 || vectors.runs[0].guard != nullptr || vectors.runs[0].blocks != nullptr) return;
        if (!only_halves_ && vectors.runs[0].type != VectorType::float32) return;
        plain_ = vectors.runs[0].data;
        row_bytes_ = vectors.runs[0].row_bytes();
    }

    // Calls take(i, sums) for each of `count` vectors, that at position_at(i).
    template <class PositionAt, class Take>
    void operator()(const float* query, std::size_t count, const PositionAt& position_at, const Take& take) const {
        if (only_halves_)
            compute<Half>(halves_, query, count, position_at, take);
        else
            compute<float>(floats_, query, count, position_at, take);
    }

    // The vector as float32, until the next call.
    const float* row(std::size_t position) const { return read<float>(position, 0); }

  private:
    static constexpr std::size_t kRows = 4;

    template <class Element>
    static FourRowSumsKernel<Element> kernel(Metric metric, Simd simd) {
        return metric == Metric::l2 ? four_row_sums_kernel<Element, true>(simd)
                                    : four_row_sums_kernel<Element, false>(simd);
    }

    template <class Element, class PositionAt, class Take>
    void compute(FourRowSumsKernel<Element> sums_of, const float* query, std::size_t count,
                 const PositionAt& position_at, const Take& take) const {
        const std::uint8_t* next[kRows];  // where the next rows lie
        const auto find = [&](std::size_t first) {
            for (std::size_t i = 0; i < kRows; ++i)  // the last one fills up
                next[i] = stored(position_at(std::min(first + i, count - 1)));
        };
        if (count != 0) find(0);
        for (std::size_t first = 0; first < count; first += kRows) {
            const Element* rows[kRows];
            for (std::size_t i = 0; i < kRows; ++i)
                rows[i] = plain_ != nullptr ? reinterpret_cast<const Element*>(next[i])
                                            : read<Element>(position_at(std::min(first + i, count - 1)), i);
            find(first + kRows);
            RowSums sums[kRows];
            sums_of(query, rows, vectors_.features, next, sums);
            for (std::size_t i = 0; i < std::min(kRows, count - first); ++i) take(first + i, sums[i]);
        }
    }

    const std::uint8_t* stored(std::size_t position) const {
        if (plain_ != nullptr) return plain_ + position * row_bytes_;
        const auto [run, own] = vectors_.find(position);
        return run->at(own);
    }

    template <class Element>
    const Element* read(std::size_t position, std::size_t i) const {
        const auto [run, own] = vectors_.find(position);
        if constexpr (std::is_same_v<Element, float>)
            return run->row(own, expand_half_, buffer_.get() + i * vectors_.features);
        run->touch(own);
        return reinterpret_cast<const Element*>(run->at(own));
    }

    const VectorRuns& vectors_;
    const FourRowSumsKernel<float> floats_;
    const FourRowSumsKernel<Half> halves_;
    const HalfExpander expand_half_;
    const bool only_halves_;
    const std::unique_ptr<float[]> buffer_;  // (4, features)
    const std::uint8_t* plain_ = nullptr;    // rows that are read where they lie: one run of floats in memory
    std::size_t row_bytes_ = 0;
};

constexpr float kLeastSquare = 1e-30f, kLargestSquare = 1e30f;  // norms of rows that float32 compares by the cosine

// The distance to a row: squared; squared after the row was L2-normalized (the query is normalized already); or the
// negative inner product. By the cosine, `row` is read where its squared norm leaves the range of a float; `more` are
// sums that come from elsewhere.
inline float distance_of(Metric metric, RowSums sums, const float* query, const float* row, std::size_t features,
                         RowSums more = {}) {
    if (metric == Metric::l2) return sums.norm + more.norm;
    if (metric == Metric::inner) return -(sums.product + more.product);
    const float square = sums.norm + more.norm;
    if (square > kLeastSquare && square < kLargestSquare)
        return std::max(2 - 2 * (sums.product + more.product) / std::sqrt(square), 0.0f);
    double product = more.product, norm = more.norm;
    for (std::size_t f = 0; f < features; ++f) {
        product += static_cast<double>(query[f]) * row[f];
        norm += static_cast<double>(row[f]) * row[f];
    }
    return norm > 0 ? static_cast<float>(std::max(2 - 2 * product / std::sqrt(norm), 0.0)) : 2;  // of zero rows
}

// Writes the distances from each query to its candidates, (queries, many); that of candidate -1 is infinite.
inline void rerank(const VectorRuns& vectors, const float* queries, std::size_t count, const std::int64_t* candidates,
                   std::size_t many, Metric metric, float* out, Simd simd, std::size_t threads) {
    const std::size_t features = vectors.features;
    parallel_for(count, 1 + (1 << 16) / (many * features + 1), threads, [&](std::size_t begin, std::size_t end) {
        const VectorSums sums_of(vectors, metric, simd);
        std::vector<std::size_t> places;
        for (std::size_t q = begin; q < end; ++q) {
            const float* const query = queries + q * features;
            places.clear();
            for (std::size_t i = q * many; i < (q + 1) * many; ++i) {
                out[i] = std::numeric_limits<float>::infinity();
                if (candidates[i] >= 0) places.push_back(i);
            }
            const auto position_at = [&](std::size_t i) { return static_cast<std::size_t>(candidates[places[i]]); };
            sums_of(query, places.size(), position_at, [&](std::size_t i, const RowSums& sums) {
                const bool fits = metric != Metric::cosine || (sums.norm > kLeastSquare && sums.norm < kLargestSquare);
                const float* const row = fits ? nullptr : sums_of.row(position_at(i));
                out[places[i]] = distance_of(metric, sums, query, row, features);
            });
        }
    });
}

}  // namespace nestcode
