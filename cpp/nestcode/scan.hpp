// Exhaustive search of vectors: exact, in two passes, and a third where they do not tell items apart.
//
// 1. Estimate all distances in float32: for one or two queries in one pass over memory, for more by matrix products.
// 2. Compute in float64 the distances of the items that the bound of the rounding errors cannot rule out: those whose
//    estimate is at most the k-th best plus twice the bound.
// 3. Where the bound rules out too little, or estimates overflow, compare a query with all items in float64: zero
//    queries of the cosine, data far from 0, clusters far apart, duplicates.
//
// The bounds are those of Higham (Accuracy and Stability of Numerical Algorithms, 2002, section 3.1): a sum of d
// products of float32 has an error of at most about d 2^-24 times the sum of their magnitudes, in any order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>

#include "inner_products.hpp"
#include "metric.hpp"
#include "parallel.hpp"
#include "top_k.hpp"
#include "vector_distance.hpp"

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

template <class Real>
[[gnu::always_inline]] inline double squared_norm_in_double(const Real* row, std::size_t features) {
    return sum_in_double(features, [=](std::size_t f) { return static_cast<double>(row[f]) * row[f]; });
}

// Divides a vector by its norm, or returns false where it is zero.
inline bool normalize(std::vector<double>& vector) {
    double square = squared_norm_in_double(vector.data(), vector.size());
    if (!(square > 1e-280 && square < 1e280)) {  // squares leave the range of float64
        if (std::ranges::all_of(vector, [](double value) { return value == 0; })) return false;
        double largest = 0;
        for (const double value : vector) largest = std::max(largest, std::abs(value));
        for (double& value : vector) value /= largest;
        square = squared_norm_in_double(vector.data(), vector.size());
    }
    const double scale = 1 / std::sqrt(square);
    for (double& value : vector) value *= scale;
    return true;
}

constexpr double kUnit = 0x1p-24;       // the relative error of rounding to float32
constexpr double kSmallest = 0x1p-125;  // at least the error of a product that underflows

using RankedItem = std::pair<float, std::int64_t>;  // a distance and an id

inline RankedItem ranked_item(double distance, std::int64_t id) {
    constexpr double largest = std::numeric_limits<float>::max();
    if (std::isnan(distance)) return {static_cast<float>(largest), id};  // a difference of infinities
    return {static_cast<float>(std::clamp(distance, -largest, largest)), id};
}

// The k nearest items of each query, (queries, k): nearest first, ties by ascending id, and id -1 where there are
// fewer.
struct NearestHits {
    std::size_t k;
    float* distances;
    std::int64_t* ids;

    // Adds items to those that a query has.
    void add(std::size_t q, std::vector<RankedItem>& items) const {
        float* const near = distances + q * k;
        std::int64_t* const own = ids + q * k;
        for (std::size_t i = 0; i < k && own[i] >= 0; ++i) items.emplace_back(near[i], own[i]);
        const std::size_t found = std::min(k, items.size());
        const auto last = items.begin() + static_cast<std::ptrdiff_t>(found);
        if (last != items.end()) std::nth_element(items.begin(), last, items.end());
        std::sort(items.begin(), last);
        for (std::size_t i = 0; i < k; ++i) {
            near[i] = i < found ? items[i].first : std::numeric_limits<float>::infinity();
            own[i] = i < found ? items[i].second : -1;
        }
    }
};

// The nearest items of a query among those added so far, in a heap with the farthest of them first.
class NearestItems {
  public:
    explicit NearestItems(std::size_t k) : k_(k) {}

    // Whether an item at this distance may be among them.
    bool admits(float distance) const { return items_.size() < k_ || distance <= items_.front().first; }

    void add(const RankedItem& item) {
        if (items_.size() == k_) {
            if (!(item < items_.front())) return;
            std::pop_heap(items_.begin(), items_.end());
            items_.pop_back();
        }
        items_.push_back(item);
        std::push_heap(items_.begin(), items_.end());
    }

    void move_to(const NearestHits& hits, std::size_t q) { hits.add(q, items_); }

  private:
    std::size_t k_;
    std::vector<RankedItem> items_;
};

// Compares some queries with all items: compare(begin, end, queries, nearest) adds a range of the items to the nearest
// of each of these queries, which are few enough to stay in the cache.
template <class Compare>
void compare_all(std::span<const std::size_t> queries, std::size_t many, const NearestHits& hits, std::size_t threads,
                 const Compare& compare) {
    constexpr std::size_t together = 32;
    std::mutex mutex;
    while (!queries.empty()) {
        const auto some = queries.first(std::min(together, queries.size()));
        queries = queries.subspan(some.size());
        parallel_for(many, 256, threads, [&](std::size_t begin, std::size_t end) {
            std::vector<NearestItems> nearest(some.size(), NearestItems(hits.k));
            compare(begin, end, some, nearest);
            const std::lock_guard lock(mutex);
            for (std::size_t q = 0; q < some.size(); ++q) nearest[q].move_to(hits, some[q]);
        });
    }
}

// The same in float64: reader_of() returns what reads items on one thread, and distance(reader, q) the distance of the
// latest to a query.
template <class ReaderOf, class Distance>
void compare_in_double(std::span<const std::size_t> queries, std::size_t many, const std::int64_t* ids,
                       const NearestHits& hits, std::size_t threads, const ReaderOf& reader_of,
                       const Distance& distance) {
    compare_all(queries, many, hits, threads, [&](std::size_t begin, std::size_t end, auto some, auto& nearest) {
        auto reader = reader_of();
        for (std::size_t i = begin; i < end; ++i) {
            reader.read(i);
            for (std::size_t q = 0; q < some.size(); ++q)
                nearest[q].add(ranked_item(distance(reader, some[q]), ids[i]));
        }
    });
}

// Sums in float64 of a query and a row, which is scaled: their product, the square of their difference, and the row's
// squared norm.
template <class Real>
struct DoubleKernels {
    struct Product {
        template <std::size_t>
        NESTCODE_INLINE static double run(const double* query, const Real* row, std::size_t features) {
            return sum_in_double(features, [=](std::size_t f) { return query[f] * row[f]; });
        }
    };
    struct Square {
        template <std::size_t>
        NESTCODE_INLINE static double run(const double* query, const Real* row, double scale, std::size_t features) {
            return sum_in_double(features, [=](std::size_t f) {
                const double difference = query[f] - scale * row[f];
                return difference * difference;
            });
        }
    };
    struct Norm {
        template <std::size_t>
        NESTCODE_INLINE static double run(const Real* row, std::size_t features) {
            return squared_norm_in_double(row, features);
        }
    };

    explicit DoubleKernels(Simd simd)
        : product(Compiled<Product>::of(simd)), square(Compiled<Square>::of(simd)), norm(Compiled<Norm>::of(simd)) {}

    const typename Compiled<Product>::Pointer product;
    const typename Compiled<Square>::Pointer square;
    const typename Compiled<Norm>::Pointer norm;
};

// A query or a vector in float64, L2-normalized for the cosine.
struct DoubleRow {
    std::vector<double> values;
    bool zero = false;  // of the cosine

    template <class Real>
    void read(const Real* row, std::size_t features, Metric metric) {
        values.assign(row, row + features);
        zero = metric == Metric::cosine && !normalize(values);
    }
};

// Reads vectors on one thread, and compares the latest with queries; the cosine with zeros is 0.
class DoubleReader {
  public:
    DoubleReader(const VectorRuns& vectors, Metric metric, Simd simd)
        : reader_(vectors, half_expander(simd)), metric_(metric), kernels_(simd), fine_kernels_(simd) {}

    void prefetch(std::size_t position) const { reader_.prefetch(position); }

    void read(std::size_t position) {
        if (const double* own = reader_.row_in_double(position)) {
            row_ = nullptr;
            fine_.read(own, reader_.features(), metric_);
            zero_ = fine_.zero;
            return;
        }
        row_ = reader_.row(position);
        if (metric_ != Metric::cosine) return;
        const double norm = kernels_.norm(row_, reader_.features());
        zero_ = norm == 0;
        scale_ = 1 / std::sqrt(norm);
    }

    double distance(const DoubleRow& query) const {
        if (query.zero || zero_) return 2;
        return row_ != nullptr ? compare(query, row_, scale_, kernels_)
                               : compare(query, fine_.values.data(), 1, fine_kernels_);
    }

  private:
    template <class Real>
    double compare(const DoubleRow& query, const Real* row, double scale, const DoubleKernels<Real>& kernels) const {
        const std::size_t features = reader_.features();
        const double* const values = query.values.data();
        const double found = metric_ == Metric::inner ? -kernels.product(values, row, features)
                                                      : kernels.square(values, row, scale, features);
        const auto finite = [](Real value) { return std::isfinite(value); };
        if (!std::isfinite(found) && !std::all_of(row, row + features, finite)) throw NotFinite();
        return found;
    }

    VectorReader reader_;
    Metric metric_;
    DoubleKernels<float> kernels_;
    DoubleKernels<double> fine_kernels_;
    const float* row_ = nullptr;  // of float32, or
    DoubleRow fine_;              // of float64
    double scale_ = 1;
    bool zero_ = false;
};

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

// What the estimates of the k nearest items cannot exceed, given the k-th least estimate and the bound of errors.
inline float limit_of_estimates(float kth, double bound) {
    return std::nextafter(static_cast<float>(kth + 2 * bound), std::numeric_limits<float>::infinity());
}

// Adds the k nearest items to the hits of a query, given estimates of all distances: limit_of(kth) is what estimates of
// the nearest cannot exceed, given the k-th least, and exact(items, out) writes distances in float64 of those that may
// be among them. Returns false, and adds nothing, if estimates do not rule out most of the others.
template <class LimitOf, class Exact>
bool rank_by_estimates(const std::vector<float>& estimates, const LimitOf& limit_of, const std::int64_t* ids,
                       const NearestHits& hits, std::size_t q, const Exact& exact) {
    const std::size_t many = estimates.size(), most = 64 + many / 32 + hits.k;
    float limit = std::numeric_limits<float>::infinity();
    if (many > hits.k) {
        limit = limit_of(kth_least(estimates, hits.k));
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
    hits.add(q, close);
    return true;
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

struct EstimateKernel {
    template <std::size_t>
    NESTCODE_INLINE static void run(const float* products, float offset, const float* scales, const float* shifts,
                                    std::size_t k, Estimates& out) {
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
};

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

    void add(const Block& block, Simd simd) {
        const auto estimate = Compiled<EstimateKernel>::of(simd);
        for (std::size_t q = 0; q < queries_.size(); ++q)
            if (!queries_[q].failed) add(queries_[q], q, block, estimate, room_);
        seen_ += block.many;
    }

    // Leaves a query out.
    void drop(std::size_t q) { queries_[q].failed = true; }

    // Whether estimates tell a query's nearest items from most of the others.
    bool usable(std::size_t q) const { return !queries_[q].failed; }

    // The estimates and places of a query's close items.
    std::span<const std::pair<float, std::uint32_t>> of(std::size_t q) const { return queries_[q].close; }

  private:
    struct Query {
        std::vector<std::pair<float, std::uint32_t>> close;  // those with estimates at most `limit`
        float limit = std::numeric_limits<float>::infinity();
        bool failed = false;
    };

    void add(Query& own, std::size_t q, const Block& block, Compiled<EstimateKernel>::Pointer estimate,
             Estimates& out) const {
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
    Estimates room_;
};

// Estimates a batch of queries' distances to a block of items at a time, by matrix products, and collects the close
// ones: scale (product + offset) + shift.
class BlockEstimates {
  public:
    static constexpr std::size_t kItems = 1024;  // of a block, at most
    std::vector<float> scales, shifts;           // of a block's items

    // Queries are (count, features); there are at most `most` items in a block.
    BlockEstimates(const float* queries, std::size_t count, std::size_t features, std::size_t most, Simd simd)
        : scales(most),
          shifts(most),
          queries_(queries),
          count_(count),
          stride_((most + Panel::kRows - 1) / Panel::kRows * Panel::kRows),
          products_(new float[count * stride_]),
          panel_(features, simd),
          simd_(simd) {}

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
        close.add({products_.get(), many, stride_, offsets, scales.data(), shifts.data(), bounds}, simd_);
    }

  private:
    const float* const queries_;
    const std::size_t count_, stride_;
    const std::unique_ptr<float[]> products_;  // (count, stride)
    Panel panel_;
    const Simd simd_;
};

// Searches some queries on one thread by matrix products.
template <class Real>
class BatchScan {
  public:
    static constexpr std::size_t kQueryBytes = 3u << 18;  // of queries that stay in the second-level cache

    BatchScan(const VectorRuns& vectors, const Real* queries, std::size_t count, Metric metric, Simd simd)
        : vectors_(vectors),
          queries_(queries),
          count_(count),
          metric_(metric),
          simd_(simd),
          expand_half_(half_expander(simd)),
          center_(vectors.features),
          rounded_(count * vectors.features),
          lengths_(count) {}

    // Adds the nearest of the vectors at the positions `items` to the hits of each query from `first` on, and writes
    // whether it could.
    template <class Position>
    void search(const Position* items, const std::int64_t* ids, std::size_t many, const NearestHits& hits,
                std::size_t first, std::uint8_t* done) {
        CloseItems close(count_, hits.k, many);
        prepare(close);
        if (!estimate(items, many, close)) return;
        constexpr std::size_t ahead = 2;  // rows are anywhere in memory
        DoubleReader reader(vectors_, metric_, simd_);
        DoubleRow query;
        std::vector<RankedItem> ranked;
        for (std::size_t q = 0; q < count_; ++q) {
            if (!close.usable(q)) continue;
            const auto own = close.of(q);
            const auto position = [&](std::size_t i) { return static_cast<std::size_t>(items[own[i].second]); };
            query.read(queries_ + q * vectors_.features, vectors_.features, metric_);
            ranked.clear();
            for (std::size_t i = 0; i < own.size(); ++i) {
                if (i + ahead < own.size()) reader.prefetch(position(i + ahead));
                reader.read(position(i));
                ranked.push_back(ranked_item(reader.distance(query), ids[own[i].second]));
            }
            hits.add(first + q, ranked);
            done[first + q] = true;
        }
    }

  private:
    // Rounds the queries to float32: around a center for squared distances, L2-normalized for the cosine.
    void prepare(CloseItems& close) {
        const std::size_t features = vectors_.features;
        if (metric_ == Metric::l2) choose_center();
        DoubleRow query;
        for (std::size_t q = 0; q < count_; ++q) {
            query.read(queries_ + q * features, features, metric_);
            if (query.zero) close.drop(q);
            for (std::size_t f = 0; f < features && centered_; ++f) query.values[f] -= center_[f];
            std::copy(query.values.begin(), query.values.end(), rounded_.data() + q * features);
            lengths_[q] = std::sqrt(squared_norm_in_double(query.values.data(), features));
        }
    }

    // The mean of the queries where they are far from 0: squares around 0 would be larger.
    void choose_center() {
        const std::size_t features = vectors_.features;
        std::vector<double> mean(features);
        double squares = 0, square = 0;
        for (std::size_t q = 0; q < count_; ++q) {
            const Real* const query = queries_ + q * features;
            for (std::size_t f = 0; f < features; ++f) mean[f] += query[f];
            squares += squared_norm_in_double(query, features);
        }
        for (double& value : mean) value /= static_cast<double>(count_);
        for (const double value : mean) square += value * value;
        centered_ = 2 * static_cast<double>(count_) * square > squares;
        if (centered_) std::copy(mean.begin(), mean.end(), center_.begin());
    }

    // Item i around the center, in the buffer unless it is read where it lies.
    const float* row_around_center(const VectorReader& reader, std::size_t position, float* buffer) const {
        if (const double* own = reader.row_in_double(position)) {
            for (std::size_t f = 0; f < vectors_.features; ++f) buffer[f] = static_cast<float>(own[f] - center_[f]);
            return buffer;
        }
        const float* own = reader.row(position, buffer);
        if (!centered_) return own;
        for (std::size_t f = 0; f < vectors_.features; ++f) buffer[f] = own[f] - center_[f];
        return buffer;
    }

    // Collects the close items, or returns false where norms underflow.
    template <class Position>
    bool estimate(const Position* items, std::size_t many, CloseItems& close) const {
        constexpr std::size_t most = BlockEstimates::kItems;
        const std::size_t features = vectors_.features;
        const RowSumsKernel<float> sums_of = row_sums_kernel<float, true>(simd_);
        const VectorReader reader(vectors_, expand_half_);
        const std::vector<float> zeros(std::max(features, count_));
        std::vector<float> buffer(Panel::kRows * features);
        std::vector<double> bounds(count_);
        BlockEstimates estimates(rounded_.data(), count_, features, std::min(most, many), simd_);
        float largest = 0;
        bool usable = true;
        for (std::size_t first = 0; first < many; first += most) {
            const std::size_t count = std::min(most, many - first);
            estimates.multiply(count, [&](std::size_t i, std::size_t slot) {
                const auto position = static_cast<std::size_t>(items[first + i]);
                const float* row = row_around_center(reader, position, buffer.data() + slot * features);
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
        const double unit = (features + 16) * kUnit, underflow = features * kSmallest,
                     largest = std::sqrt(largest_square + underflow) * (1 + 0x1p-10);
        if (metric_ == Metric::cosine) return 3 * unit;
        const double sum = length + largest;
        return unit * (metric_ == Metric::inner ? length * largest : sum * sum) + underflow;
    }

    const VectorRuns& vectors_;
    const Real* queries_;
    const std::size_t count_;
    const Metric metric_;
    const Simd simd_;
    const HalfExpander expand_half_;
    bool centered_ = false;
    std::vector<float> center_;    // (features)
    std::vector<float> rounded_;   // (count, features)
    std::vector<double> lengths_;  // (count)
};

// Adds the nearest of the vectors at the positions `items` to the hits of one query; returns false where float32 does
// not tell them apart.
template <class Real, class Position>
bool scan_alone(const VectorRuns& vectors, const Real* row, const Position* items, const std::int64_t* ids,
                std::size_t many, Metric metric, const NearestHits& hits, std::size_t q, Simd simd,
                std::size_t threads) {
    const std::size_t features = vectors.features;
    DoubleRow query;
    query.read(row, features, metric);
    if (query.zero) return false;
    const std::vector<float> rounded(query.values.begin(), query.values.end());
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
    if (!usable) return false;
    const double error = (static_cast<double>(features) + 16) * kUnit,
                 underflow = static_cast<double>(features) * kSmallest;
    double bound = metric == Metric::cosine ? 3 * error : underflow, moved = 0;  // by rounding the query
    for (std::size_t f = 0; f < features; ++f) moved += (query.values[f] - rounded[f]) * (query.values[f] - rounded[f]);
    moved = std::sqrt(moved);
    if (metric == Metric::inner && many != 0) {
        const double longest = std::sqrt(*std::ranges::max_element(norms) + underflow);
        const double length = std::sqrt(squared_norm_in_double(query.values.data(), features));
        bound += error * length * longest * (1 + 0x1p-10);
    }
    const auto limit_of = [&](float kth) {
        if (metric != Metric::l2) return limit_of_estimates(kth, bound);
        const float limit = limit_of_estimates(kth, bound + error * kth);
        if (moved == 0) return limit;
        const double root = std::sqrt(limit) + 2 * moved;
        return limit_of_estimates(static_cast<float>(root * root), bound + error * root * root);
    };
    DoubleReader reader(vectors, metric, simd);
    return rank_by_estimates(estimates, limit_of, ids, hits, q,
                             [&](const std::vector<std::size_t>& close, double* out) {
                                 for (const std::size_t i : close) {
                                     reader.read(static_cast<std::size_t>(items[i]));
                                     *out++ = reader.distance(query);
                                 }
                             });
}

// Adds the nearest of the vectors at the positions `items` to the hits of each query, (count, features).
template <class Real, class Position>
void scan_vectors(const VectorRuns& vectors, const Real* queries, std::size_t count, const Position* items,
                  const std::int64_t* ids, std::size_t many, Metric metric, const NearestHits& hits, Simd simd,
                  std::size_t threads) {
    constexpr std::size_t alone = 2;  // queries that scans of their own score in less time than a matrix product
    const std::size_t features = vectors.features;
    if (count == 0 || many == 0) return;
    std::vector<std::uint8_t> done(count);
    if (count > alone) {
        using Scan = BatchScan<Real>;
        const std::size_t most = std::clamp<std::size_t>(Scan::kQueryBytes / (4 * features + 1), 12, 256);
        parallel_for(count, 12, threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t q = begin; q < end; q += most)
                Scan(vectors, queries + q * features, std::min(most, end - q), metric, simd)
                    .search(items, ids, many, hits, q, done.data());
        });
    }
    const bool rounds =
        std::ranges::any_of(vectors.runs, [](const auto& run) { return run.type == VectorType::float64; });
    // Squares of differences are more exact than differences of squares.
    if (!rounds && (count <= alone || metric == Metric::l2))
        for (std::size_t q = 0; q < count; ++q)
            if (!done[q])
                done[q] = scan_alone(vectors, queries + q * features, items, ids, many, metric, hits, q, simd, threads);
    std::vector<std::size_t> left;
    for (std::size_t q = 0; q < count; ++q)
        if (!done[q]) left.push_back(q);
    if (left.empty()) return;
    std::vector<DoubleRow> rows(count);
    for (const std::size_t q : left) rows[q].read(queries + q * features, features, metric);
    struct Reader : DoubleReader {
        const Position* items;
        void read(std::size_t i) { DoubleReader::read(static_cast<std::size_t>(items[i])); }
    };
    compare_in_double(
        left, many, ids, hits, threads, [&] { return Reader{{vectors, metric, simd}, items}; },
        [&](const Reader& reader, std::size_t q) { return reader.distance(rows[q]); });
}

}  // namespace nestcode
