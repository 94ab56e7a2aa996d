// Exhaustive search: exact, in two passes.
//
// 1. Estimate all distances in float32: for one query in one pass over memory, for several by matrix products.
// 2. Compute in float64 the distances of the items that the bound of the rounding errors cannot rule out: those whose
//    estimate is at most the k-th best plus twice the bound.
//
// The bounds are those of Higham (Accuracy and Stability of Numerical Algorithms, 2002, section 3.1): a sum of d
// products of float32 has an error of at most about d 2^-24 times the sum of their magnitudes, in any order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "inner_products.hpp"
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

// Writes the squared norms of rows, (many, features).
inline void squared_norms(const float* rows, std::size_t many, std::size_t features, float* out, Simd simd,
                          std::size_t threads) {
    const RowSumsKernel<float> sums_of = row_sums_kernel<float, true>(simd);
    parallel_for(many, 1 + (1 << 16) / (features + 1), threads, [=](std::size_t begin, std::size_t end) {
        const std::vector<float> zeros(features);
        for (std::size_t i = begin; i < end; ++i) out[i] = sums_of(zeros.data(), rows + i * features, features).norm;
    });
}

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
        if (vectors.runs.size() != 1 || vectors.runs[0].guard != nullptr || vectors.runs[0].type == VectorType::int8)
            return;
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

// The sum of term(f) over all features in float64, in 16 parts that hide the latency of additions.
template <class Term>
[[gnu::always_inline]] inline double sum_in_double(std::size_t features, const Term& term) {
    double sums[16] = {};
    std::size_t f = 0;
    for (; f + 16 <= features; f += 16)
        for (std::size_t part = 0; part < 16; ++part) sums[part] += term(f + part);
    for (; f < features; ++f) sums[0] += term(f);
    for (std::size_t half = 8; half != 0; half /= 2)
        for (std::size_t part = 0; part < half; ++part) sums[part] += sums[half + part];
    return sums[0];
}

// Divides a vector by its norm, or returns false where it is zero.
inline bool normalize(std::vector<double>& vector) {
    const auto squared_norm = [&] {
        return sum_in_double(vector.size(), [&](std::size_t f) { return vector[f] * vector[f]; });
    };
    double square = squared_norm();
    if (!(square > 1e-280 && square < 1e280)) {  // squares leave the range of float64
        double largest = 0;
        for (const double value : vector) largest = std::max(largest, std::abs(value));
        if (largest == 0) return false;
        for (double& value : vector) value /= largest;
        square = squared_norm();
    }
    const double scale = 1 / std::sqrt(square);
    for (double& value : vector) value *= scale;
    return true;
}

// The distance of a query, L2-normalized for the cosine, to a row in float64; the cosine with a zero row is 0.
using DoubleDistance = double (*)(const double* query, const float* row, std::size_t features, Metric metric);

[[gnu::always_inline]] inline double distance_in_double_portable(const double* query, const float* row,
                                                                 std::size_t features, Metric metric) {
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

#if NESTCODE_X86
NESTCODE_AVX2 inline double distance_in_double_avx2(const double* query, const float* row, std::size_t features,
                                                    Metric metric) {
    return distance_in_double_portable(query, row, features, metric);
}

NESTCODE_AVX512 inline double distance_in_double_avx512(const double* query, const float* row, std::size_t features,
                                                        Metric metric) {
    return distance_in_double_portable(query, row, features, metric);
}
#endif

inline DoubleDistance distance_in_double(Simd simd) {
#if NESTCODE_X86
    if (simd == Simd::avx2) return distance_in_double_avx2;
    if (simd == Simd::avx512) return distance_in_double_avx512;
#endif
    static_cast<void>(simd);
    return [](const double* query, const float* row, std::size_t features, Metric metric) {
        return distance_in_double_portable(query, row, features, metric);
    };
}

// Calls take(i) for each value from `first` on that is within a limit, which it may lower.
template <class Within, class Take>
void for_each_within(const std::vector<float>& values, std::size_t first, const float& limit, const Within& within,
                     const Take& take) {
    constexpr std::size_t together = 16;  // in vector registers, as few are within
    std::size_t i = first;
    for (; i + together <= values.size(); i += together) {
        int some = 0;
        for (std::size_t j = 0; j < together; ++j) some |= within(values[i + j], limit);
        if (some == 0) continue;
        for (std::size_t j = 0; j < together; ++j)
            if (within(values[i + j], limit)) take(i + j);
    }
    for (; i < values.size(); ++i)
        if (within(values[i], limit)) take(i);
}

// The k-th least of more than k values.
inline float kth_least(const std::vector<float>& values, std::size_t k) {
    std::vector<float> heap(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(k));  // the k least so far
    std::make_heap(heap.begin(), heap.end());
    for_each_within(values, k, heap.front(), std::less{}, [&](std::size_t i) {
        std::pop_heap(heap.begin(), heap.end());
        heap.back() = values[i];
        std::push_heap(heap.begin(), heap.end());
    });
    return heap.front();
}

using RankedItem = std::pair<float, std::int64_t>;  // a distance and an id

inline RankedItem ranked_item(double distance, std::int64_t id) {
    constexpr double largest = std::numeric_limits<float>::max();
    return {static_cast<float>(std::clamp(distance, -largest, largest)), id};
}

// Writes the k nearest items, nearest first, ties by ascending id, and id -1 where there are fewer.
inline void write_nearest(std::vector<RankedItem>& items, std::size_t k, float* top_distances, std::int64_t* top_ids) {
    std::sort(items.begin(), items.end());
    for (std::size_t i = 0; i < k; ++i) {
        top_distances[i] = i < items.size() ? items[i].first : std::numeric_limits<float>::infinity();
        top_ids[i] = i < items.size() ? items[i].second : -1;
    }
}

// What the estimates of the k nearest items cannot exceed, given the k-th least estimate and the bound of errors.
inline float limit_of_estimates(float kth, double bound) {
    return std::nextafter(static_cast<float>(kth + 2 * bound), std::numeric_limits<float>::infinity());
}

// Writes the k nearest items, nearest first, ties by ascending id, and id -1 where there are fewer, given estimates of
// all distances whose errors are at most `bound`, and `relative` of a distance: exact(i) returns the distance of an
// item in float64, and is called for those that may be among the nearest. Returns false, and writes nothing, if the
// bound leaves too many of them: float64 compares all by matrix products as fast.
template <class Exact>
bool rank_by_estimates(const std::vector<float>& estimates, double bound, double relative, const std::int64_t* ids,
                       std::size_t k, float* top_distances, std::int64_t* top_ids, const Exact& exact) {
    const std::size_t many = estimates.size(), most = 64 + many / 32 + k;
    float limit = std::numeric_limits<float>::infinity();
    if (many > k) {
        const float kth = kth_least(estimates, k);
        limit = limit_of_estimates(kth, bound + relative * std::abs(kth));
        if (!(std::abs(limit) < std::numeric_limits<float>::max())) return false;
    }
    std::vector<std::size_t> items;
    for_each_within(estimates, 0, limit, std::less_equal{}, [&](std::size_t i) {
        if (items.size() <= most) items.push_back(i);
    });
    if (items.size() > most) return false;
    std::vector<double> distances(items.size());
    exact(items, distances.data());
    std::vector<RankedItem> close;
    for (std::size_t i = 0; i < items.size(); ++i) close.push_back(ranked_item(distances[i], ids[items[i]]));
    write_nearest(close, k, top_distances, top_ids);
    return true;
}

constexpr double kUnit = 0x1p-24;       // the relative error of rounding to float32
constexpr double kSmallest = 0x1p-125;  // at least the error of a product that underflows

// Writes the k nearest of the vectors at the positions `items`. Returns false, and writes nothing, where float32 cannot
// tell the items apart, or overflows: data far from 0 or in clusters far apart, or not finite; and for a zero query of
// the cosine.
template <class Real, class Position>
bool nearest_vectors(const VectorRuns& vectors, const Real* row, const Position* items, const std::int64_t* ids,
                     std::size_t many, Metric metric, std::size_t k, float* top_distances, std::int64_t* top_ids,
                     Simd simd, std::size_t threads) {
    const std::size_t features = vectors.features;
    std::vector<double> query(row, row + features);
    const double square = sum_in_double(features, [&](std::size_t f) { return query[f] * query[f]; });
    if (metric == Metric::cosine) {
        if (!(square > 1e-280 && square < 1e280)) return false;
        const double scale = 1 / std::sqrt(square);
        for (double& value : query) value *= scale;
    }
    const std::vector<float> rounded(query.begin(), query.end());
    const bool exact_query = std::is_same_v<Real, float> || std::equal(row, row + features, rounded.begin());
    if (metric == Metric::l2 && !exact_query) return false;
    std::vector<float> estimates(many), norms(metric == Metric::inner ? many : 0);
    std::atomic<bool> usable = true;
    parallel_for(many, 1 + (1 << 18) / (features + 1), threads, [&](std::size_t begin, std::size_t end) {
        const VectorSums sums_of(vectors, metric, simd);
        float total = 0;  // only to notice what is not finite
        const auto position_at = [&](std::size_t i) { return static_cast<std::size_t>(items[begin + i]); };
        sums_of(rounded.data(), end - begin, position_at, [&](std::size_t i, const RowSums& sums) {
            float& estimate = estimates[begin + i];
            if (metric == Metric::l2) {
                estimate = sums.norm;
            } else if (metric == Metric::inner) {
                estimate = -sums.product;
                norms[begin + i] = sums.norm;
            } else if (sums.norm > 1e-30f) {
                estimate = 2 - 2 * sums.product / std::sqrt(sums.norm);
            } else {  // squares underflow, unless they are zero
                const float* own = sums_of.row(position_at(i));
                if (std::any_of(own, own + features, [](float value) { return value != 0; })) usable = false;
                estimate = 2;
            }
            total += estimate;
        });
        if (!std::isfinite(total)) usable = false;
    });
    if (!usable || vectors.damaged()) return false;
    const double error = (static_cast<double>(features) + 16) * kUnit;
    double bound = 3 * error;  // of the cosine
    if (metric != Metric::cosine) bound = static_cast<double>(features) * kSmallest;
    if (metric == Metric::inner && many != 0) {
        const double longest = std::sqrt(static_cast<double>(*std::max_element(norms.begin(), norms.end())));
        bound += error * std::sqrt(square) * longest * (1 + 0x1p-10);
    }
    const VectorSums sums_of(vectors, metric, simd);
    const DoubleDistance distance = distance_in_double(simd);
    const auto exact = [&](const std::vector<std::size_t>& close, double* out) {
        for (const std::size_t i : close)
            *out++ = distance(query.data(), sums_of.row(static_cast<std::size_t>(items[i])), features, metric);
    };
    const double relative = metric == Metric::l2 ? error : 0;
    return rank_by_estimates(estimates, bound, relative, ids, k, top_distances, top_ids, exact);
}

// Writes the distances of pairs of a query and a vector in float64; the cosine with zeros is 0.
template <class Real>
void compare_pairs(const VectorRuns& vectors, const Real* queries, const std::int64_t* pair_queries,
                   const std::int64_t* pair_items, std::size_t pairs, Metric metric, double* out, Simd simd,
                   std::size_t threads) {
    const std::size_t features = vectors.features;
    const DoubleDistance distance = distance_in_double(simd);
    parallel_for(pairs, 1 + (1 << 14) / (features + 1), threads, [=, &vectors](std::size_t begin, std::size_t end) {
        VectorReader reader(vectors, half_expander(simd));
        std::vector<double> query(features);
        bool zero = false;
        constexpr std::size_t ahead = 2;  // rows are anywhere in memory
        for (std::size_t i = begin; i < end; ++i) {
            if (i + ahead < end) reader.prefetch(static_cast<std::size_t>(pair_items[i + ahead]));
            if (i == begin || pair_queries[i] != pair_queries[i - 1]) {
                std::copy_n(queries + static_cast<std::size_t>(pair_queries[i]) * features, features, query.data());
                zero = metric == Metric::cosine && !normalize(query);
            }
            out[i] =
                zero ? 2
                     : distance(query.data(), reader.row(static_cast<std::size_t>(pair_items[i])), features, metric);
        }
    });
}

// Estimates of a query's distances to a block of items, scale (product + offset) + shift of each, in rows of 64:
// columns lie in vector registers, so that no operation is across one, and nothing branches.
struct Estimates {
    static constexpr std::size_t kColumns = 64;
    std::vector<float> values;
    float least[kColumns];  // of each column
    float kth;              // of these the k-th least, where k is at most 64
    float total;            // of all, only to notice what is not finite
};

using EstimateKernel = void (*)(const float* products, float offset, const float* scales, const float* shifts,
                                std::size_t k, Estimates& out);

[[gnu::always_inline]] inline void estimate_portable(const float* products, float offset, const float* scales,
                                                     const float* shifts, std::size_t k, Estimates& out) {
    constexpr std::size_t columns = Estimates::kColumns;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const std::size_t many = out.values.size();
    float* const values = out.values.data();
    float least[columns], sums[columns] = {};
    std::fill_n(least, columns, infinity);
    const auto add = [&](std::size_t first, std::size_t count) __attribute__((always_inline)) {
        for (std::size_t i = 0; i < count; ++i) {
            const float value = scales[first + i] * (products[first + i] + offset) + shifts[first + i];
            values[first + i] = value;
            least[i] = value < least[i] ? value : least[i];
            sums[i] += value;
        }
    };
    std::size_t first = 0;
    for (; first + columns <= many; first += columns) add(first, columns);
    add(first, many - first);
    std::uint32_t ranks[columns] = {};  // how many are less
    for (std::size_t i = 0; i < columns; ++i)
        for (std::size_t j = 0; j < columns; ++j) ranks[j] += least[i] < least[j];
    out.kth = -infinity;
    out.total = 0;
    for (std::size_t i = 0; i < columns; ++i) {
        out.least[i] = least[i];
        out.kth = ranks[i] < k && least[i] > out.kth ? least[i] : out.kth;
        out.total += sums[i];
    }
}

#if NESTCODE_X86
NESTCODE_AVX2 inline void estimate_avx2(const float* products, float offset, const float* scales, const float* shifts,
                                        std::size_t k, Estimates& out) {
    estimate_portable(products, offset, scales, shifts, k, out);
}

NESTCODE_AVX512 inline void estimate_avx512(const float* products, float offset, const float* scales,
                                            const float* shifts, std::size_t k, Estimates& out) {
    estimate_portable(products, offset, scales, shifts, k, out);
}
#endif

inline EstimateKernel estimate_kernel(Simd simd) {
#if NESTCODE_X86
    if (simd == Simd::avx2) return estimate_avx2;
    if (simd == Simd::avx512) return estimate_avx512;
#endif
    static_cast<void>(simd);
    return [](const float* products, float offset, const float* scales, const float* shifts, std::size_t k,
              Estimates& out) { estimate_portable(products, offset, scales, shifts, k, out); };
}

// The items that may be among the k nearest of each query, collected from estimates of all distances that come in
// blocks of items.
class CloseItems {
  public:
    struct Block {
        const float* products;  // (queries, stride), of which `many` are used
        std::size_t many, stride;
        const float* offsets;  // (queries)
        const float* scales;   // (many)
        const float* shifts;   // (many)
        const double* bounds;  // (queries): of the errors of all estimates so far
    };

    CloseItems(std::size_t queries, std::size_t k, std::size_t items)
        : k_(k), items_(items), most_(64 + items / 32 + 2 * k), queries_(queries) {}

    std::size_t queries() const { return queries_.size(); }
    std::size_t k() const { return k_; }
    std::size_t items() const { return items_; }
    std::size_t seen() const { return seen_; }

    void add(const Block& block, Simd simd, std::size_t threads) {
        const EstimateKernel estimate = estimate_kernel(simd);
        parallel_for(queries(), 1 + (1 << 16) / (block.many + 1), threads, [&](std::size_t begin, std::size_t end) {
            Estimates room;
            for (std::size_t q = begin; q < end; ++q)
                if (!queries_[q].failed) add(queries_[q], q, block, estimate, room);
        });
        seen_ += block.many;
    }

    // Writes how many items each query has left, 0 where float32 cannot tell them apart: too many, or not finite.
    void count(std::int64_t* counts) {
        for (Query& own : queries_) {
            if (own.failed) own.close.clear();
            *counts++ = static_cast<std::int64_t>(own.close.size());
        }
    }

    void write(std::int64_t* items) const {
        for (const Query& own : queries_)
            for (const auto& [estimate, item] : own.close) *items++ = item;
    }

    // Writes the nearest of each query that has items left, by their distances in the order of `write`.
    void rank(const double* distances, const std::int64_t* ids, float* top_distances, std::int64_t* top_ids) const {
        std::vector<RankedItem> ranked;
        for (std::size_t q = 0; q < queries(); ++q) {
            ranked.clear();
            for (const auto& [estimate, item] : queries_[q].close)
                ranked.push_back(ranked_item(*distances++, ids[item]));
            if (!ranked.empty()) write_nearest(ranked, k_, top_distances + q * k_, top_ids + q * k_);
        }
    }

  private:
    struct Query {
        std::vector<std::pair<float, std::uint32_t>> close;  // those with estimates at most `limit`
        float limit = std::numeric_limits<float>::infinity();
        bool failed = false;
    };

    void add(Query& own, std::size_t q, const Block& block, EstimateKernel estimate, Estimates& out) const {
        constexpr std::size_t columns = Estimates::kColumns;
        auto& [values, least, kth, total] = out;
        values.resize(block.many);
        if (own.close.capacity() == 0) own.close.reserve(std::min(items_, 4 * k_));
        estimate(block.products + q * block.stride, block.offsets[q], block.scales, block.shifts, k_, out);
        own.failed = !std::isfinite(total);
        if (own.failed) return;
        tighten(own, block.bounds[q]);
        if (k_ > columns) {  // too many for the columns: the limit is that of the items so far, or of the first block
            kth = std::numeric_limits<float>::infinity();
            if (own.close.size() < k_ && block.many > k_) {
                std::vector<float> sorted = values;
                std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k_ - 1), sorted.end());
                kth = sorted[k_ - 1];
            }
        }
        own.limit = std::min(own.limit, limit_of_estimates(kth, block.bounds[q]));
        for (std::size_t c = 0; c < columns && !own.failed; ++c) {
            if (!(least[c] <= own.limit)) continue;
            for (std::size_t i = c; i < block.many; i += columns)
                if (values[i] <= own.limit) own.close.emplace_back(values[i], seen_ + i);
            if (own.close.size() <= most_) continue;
            tighten(own, block.bounds[q]);
            own.failed = own.close.size() > most_ / 2 + k_;  // else they would be dropped again and again
        }
        tighten(own, block.bounds[q]);
    }

    // Sets the limit by the k-th least estimate so far, and drops the items beyond.
    void tighten(Query& own, double bound) const {
        if (own.close.size() < k_ || k_ >= items_) return;
        const auto kth = own.close.begin() + static_cast<std::ptrdiff_t>(k_ - 1);
        std::nth_element(own.close.begin(), kth, own.close.end());
        own.limit = limit_of_estimates(kth->first, bound);
        if (!(std::abs(own.limit) < std::numeric_limits<float>::max())) own.failed = true;
        std::erase_if(own.close, [&](const auto& one) { return one.first > own.limit; });
    }

    std::size_t k_, items_, most_, seen_ = 0;
    std::vector<Query> queries_;
};

#if NESTCODE_X86
// Estimates a batch of queries' distances to a block of items at a time, by matrix products with AVX-512, and collects
// the close ones: scale (product + offset) + shift.
class BlockEstimates {
  public:
    static constexpr std::size_t kItems = 1024;  // of a block, at most
    std::vector<float> scales, shifts;           // of a block's items

    // Queries are (count, features); there are at most `most` items in a block.
    BlockEstimates(const float* queries, std::size_t count, std::size_t features, std::size_t most)
        : scales(most),
          shifts(most),
          queries_(queries),
          count_(count),
          stride_((most + Panel::kRows - 1) / Panel::kRows * Panel::kRows),
          products_(new float[count * stride_]),
          panel_(features) {}

    // row_at(i, slot) returns item i of a block, until 32 others were read: those have other slots.
    template <class RowAt>
    void multiply(std::size_t many, const RowAt& row_at) {
        for (std::size_t first = 0; first < many; first += Panel::kRows) {
            const float* rows[Panel::kRows];
            for (std::size_t i = 0; i < Panel::kRows; ++i)  // the last one fills up
                rows[i] = first + i < many ? row_at(first + i, i) : rows[i - 1];
            panel_.pack(rows);
            multiply(first, panel_);
        }
    }

    // The same for 32 items from `first` on that are packed already.
    void multiply(std::size_t first, const Panel& panel) {
        panel.multiply(queries_, count_, products_.get() + first, stride_);
    }

    // Offsets and the bounds of errors are those of the queries.
    void collect(std::size_t many, const float* offsets, const double* bounds, CloseItems& close) const {
        close.add({products_.get(), many, stride_, offsets, scales.data(), shifts.data(), bounds}, Simd::avx512, 1);
    }

  private:
    const float* const queries_;
    const std::size_t count_, stride_;
    const std::unique_ptr<float[]> products_;  // (count, stride)
    Panel panel_;
};

// Exhaustive search by vectors for a batch of queries, with AVX-512.
template <class Real>
class BatchScan {
  public:
    static constexpr std::size_t kQueryBytes = 3u << 18;  // of queries that stay in the second-level cache

    BatchScan(const VectorRuns& vectors, const Real* queries, std::size_t count, Metric metric)
        : vectors_(vectors), queries_(queries), count_(count), metric_(metric) {}

    // Writes the k nearest of the vectors at the positions `items` for each query, (count, k); returns false, with
    // nothing to be trusted, where nearest_vectors does.
    template <class Position>
    bool search(const Position* items, const std::int64_t* ids, std::size_t many, std::size_t k, float* top_distances,
                std::int64_t* top_ids) {
        if (!prepare()) return false;
        CloseItems close(count_, k, many);
        if (!estimate(items, many, close)) return false;
        std::vector<std::int64_t> counts(count_), pair_queries, pair_items;
        close.count(counts.data());
        for (std::size_t q = 0; q < count_; ++q) {
            if (counts[q] == 0) return false;
            pair_queries.insert(pair_queries.end(), static_cast<std::size_t>(counts[q]), static_cast<std::int64_t>(q));
        }
        pair_items.resize(pair_queries.size());
        close.write(pair_items.data());
        for (std::int64_t& item : pair_items) item = static_cast<std::int64_t>(items[item]);
        std::vector<double> distances(pair_items.size());
        compare_pairs(vectors_, queries_, pair_queries.data(), pair_items.data(), pair_items.size(), metric_,
                      distances.data(), Simd::avx512, 1);
        close.rank(distances.data(), ids, top_distances, top_ids);
        return !vectors_.damaged();
    }

  private:
    // Rounds the queries to float32, L2-normalized for the cosine; squares of the largest and smallest leave its range.
    bool prepare() {
        const std::size_t features = vectors_.features;
        rounded_.resize(count_ * features);
        lengths_.resize(count_);
        for (std::size_t q = 0; q < count_; ++q) {
            const Real* query = queries_ + q * features;
            float* out = rounded_.data() + q * features;
            const double square =
                sum_in_double(features, [=](std::size_t f) { return static_cast<double>(query[f]) * query[f]; });
            if (!(square > 1e-24 && square < 1e24)) return false;
            lengths_[q] = metric_ == Metric::cosine ? 1 : std::sqrt(square);
            const double scale = lengths_[q] / std::sqrt(square);
            for (std::size_t f = 0; f < features; ++f) out[f] = static_cast<float>(scale * query[f]);
            if (metric_ == Metric::l2 && !std::equal(out, out + features, query)) return false;
        }
        return true;
    }

    template <class Position>
    bool estimate(const Position* items, std::size_t many, CloseItems& close) const {
        constexpr std::size_t most = BlockEstimates::kItems;
        const std::size_t features = vectors_.features;
        const RowSumsKernel<float> sums_of = row_sums_kernel<float, true>(Simd::avx512);
        const VectorReader reader(vectors_, half_expander(Simd::avx512));
        const std::vector<float> zeros(std::max(features, count_));
        std::vector<float> buffer(Panel::kRows * features);
        std::vector<double> bounds(count_);
        BlockEstimates estimates(rounded_.data(), count_, features, std::min(most, many));
        float largest = 0;
        bool usable = true;
        for (std::size_t first = 0; first < many; first += most) {
            const std::size_t count = std::min(most, many - first);
            estimates.multiply(count, [&](std::size_t i, std::size_t slot) {
                const auto position = static_cast<std::size_t>(items[first + i]);
                const float* row = reader.row(position, buffer.data() + slot * features);
                float norm = sums_of(zeros.data(), row, features).norm;
                if (metric_ == Metric::cosine && !(norm > 1e-30f)) {  // its square underflows, or it is zero
                    usable = usable && std::equal(row, row + features, zeros.data());
                    norm = 1;  // of any: products are 0
                }
                largest = std::max(largest, norm);
                estimates.scales[i] = metric_ == Metric::l2 ? -2 : metric_ == Metric::inner ? -1 : -2 / std::sqrt(norm);
                estimates.shifts[i] = metric_ == Metric::l2 ? norm : 0;
                return row;
            });
            if (!usable) return false;
            for (std::size_t q = 0; q < count_; ++q) bounds[q] = bound(lengths_[q], largest);
            estimates.collect(count, zeros.data(), bounds.data(), close);
        }
        return true;
    }

    double bound(double length, float largest_square) const {
        const auto features = static_cast<double>(vectors_.features);
        const double unit = (features + 16) * kUnit, largest = std::sqrt(largest_square) * (1 + 0x1p-10);
        if (metric_ == Metric::cosine) return 3 * unit;
        const double sum = length + largest;
        return unit * (metric_ == Metric::inner ? length * largest : sum * sum) + features * kSmallest;
    }

    const VectorRuns& vectors_;
    const Real* queries_;
    const std::size_t count_;
    const Metric metric_;
    std::vector<float> rounded_;   // (count, features)
    std::vector<double> lengths_;  // (count)
};

// Writes the k nearest of the vectors at the positions `items` for each query, (count, k). Returns false, with nothing
// to be trusted, where nearest_vectors does, and for other instruction sets than AVX-512: there BLAS multiplies.
template <class Real, class Position>
bool nearest_vectors_of_batch(const VectorRuns& vectors, const Real* queries, std::size_t count, const Position* items,
                              const std::int64_t* ids, std::size_t many, Metric metric, std::size_t k,
                              float* top_distances, std::int64_t* top_ids, Simd simd, std::size_t threads) {
    if (simd != Simd::avx512 || many == 0) return false;
    using Scan = BatchScan<Real>;
    const std::size_t features = vectors.features;
    const std::size_t most = std::clamp<std::size_t>(Scan::kQueryBytes / (4 * features), 12, 256);
    std::atomic<bool> done = true;
    parallel_for(count, 12, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t q = begin; q < end && done; q += most) {
            Scan scan(vectors, queries + q * features, std::min(most, end - q), metric);
            if (!scan.search(items, ids, many, k, top_distances + q * k, top_ids + q * k)) done = false;
        }
    });
    return done;
}
#else
template <class Real, class Position>
bool nearest_vectors_of_batch(const VectorRuns&, const Real*, std::size_t, const Position*, const std::int64_t*,
                              std::size_t, Metric, std::size_t, float*, std::int64_t*, Simd, std::size_t) {
    return false;
}
#endif

}  // namespace nestcode
