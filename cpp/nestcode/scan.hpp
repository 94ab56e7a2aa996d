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
#include <optional>
#include <span>

#include "inner_products.hpp"
#include "metric.hpp"
#include "parallel.hpp"
#include "rerank.hpp"
#include "top_k.hpp"

namespace nestcode {

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

// Distances in float64 from queries to one row at a time; the cosine with zeros is 0.
class ExactDistances {
  public:
    ExactDistances(Metric metric, std::size_t features, Simd simd)
        : metric_(metric), features_(features), kernels_(simd), fine_kernels_(simd) {}

    // Compares this row from now on.
    void set(const float* row) {
        row_ = row;
        if (metric_ != Metric::cosine) return;
        const double norm = kernels_.norm(row, features_);
        zero_ = norm == 0;
        scale_ = 1 / std::sqrt(norm);
    }
    void set(const double* row) {
        row_ = nullptr;
        fine_.read(row, features_, metric_);
        zero_ = fine_.zero;
    }

    double from(const DoubleRow& query) const {
        if (query.zero || zero_) return 2;
        return row_ != nullptr ? compare(query, row_, scale_, kernels_)
                               : compare(query, fine_.values.data(), 1, fine_kernels_);
    }

  private:
    template <class Real>
    double compare(const DoubleRow& query, const Real* row, double scale, const DoubleKernels<Real>& kernels) const {
        const double* const values = query.values.data();
        const double found = metric_ == Metric::inner ? -kernels.product(values, row, features_)
                                                      : kernels.square(values, row, scale, features_);
        const auto finite = [](Real value) { return std::isfinite(value); };
        if (!std::isfinite(found) && !std::all_of(row, row + features_, finite)) throw NotFinite();
        return found;
    }

    const Metric metric_;
    const std::size_t features_;
    const DoubleKernels<float> kernels_;
    const DoubleKernels<double> fine_kernels_;
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

// At least the error of a distance that float32 computes from a product, given how many products it sums, the norm of
// the query and the largest norm of a row. By the cosine, rows are divided by their norms, of which `shortest`
// is the least.
inline double bound_of_products(Metric metric, std::size_t products, double length, double largest,
                                double shortest = std::numeric_limits<double>::infinity()) {
    const auto roundings = static_cast<double>(products);
    const double unit = (roundings + 16) * kUnit, underflow = roundings * kSmallest;
    largest = std::sqrt(largest * largest + underflow) * (1 + 0x1p-10);
    if (metric == Metric::cosine) return 3 * unit * std::max(largest / shortest, 1.0);
    const double sum = length + largest;
    return unit * (metric == Metric::inner ? length * largest : sum * sum) + underflow;
}

// A distance is scale * product + shift, up to a term that is the same for all items.
struct ProductDistance {
    float scale, shift;

    ProductDistance(Metric metric, float square)  // the row's squared norm
        : scale(metric == Metric::l2      ? -2
                : metric == Metric::inner ? -1
                                          : -2 / std::sqrt(square)),
          shift(metric == Metric::l2 ? square : 0) {}
};

// What the errors of estimates are at most: `absolute`, and `relative` to the distance; and how far the query was moved
// when it was rounded, which a squared distance feels by its root.
struct EstimateErrors {
    double absolute = 0, relative = 0, moved = 0;

    float limit(float kth) const {
        const float limit = limit_of_estimates(kth, absolute + relative * kth);
        if (moved == 0) return limit;
        const double root = std::sqrt(limit) + 2 * moved;
        return limit_of_estimates(static_cast<float>(root * root), absolute + relative * root * root);
    }
};

// A scan is of `Items`, rows that are stored as vectors (VectorItems, below) or codes (CodeItems, code_scan.hpp):
//
//     count, features, ids     of the items; of a row
//     alone                    how many queries take less time one by one than by matrix products
//     differences              whether estimates of one query are sums of squared differences, which are more exact
//     center(queries)          what queries and rows are taken relative to
//     estimate(query, …)       writes a query's distances to all items in float32, and returns what errors they have,
//                              or nothing where float32 does not tell items apart
//     Reader                   reads rows on one thread:
//       pack(first, count, …)  packs up to kTogether rows into panels, and writes their squared norms; returns false
//                              where float32 does not have them
//       each(count, item_at, take)  calls take(i) with each row in turn, whose distances are then
//       distances.from(query)
//
// Queries are read by queries(first, count), in the terms of the rows.
using QueryReader = std::function<std::vector<DoubleRow>(std::size_t first, std::size_t count)>;

// Adds the nearest items to the hits of some queries, on one thread by matrix products, and writes which had it done.
template <class Items>
void scan_together(const Items& items, const std::vector<DoubleRow>& queries, Metric metric, const NearestHits& hits,
                   std::size_t first_query, std::uint8_t* done, Simd simd) {
    using Reader = typename Items::Reader;
    constexpr std::size_t most = 1024;  // items of a block
    static_assert(most % Reader::kTogether == 0 && Reader::kTogether % Panel::kRows == 0);
    const std::size_t count = queries.size(), features = items.features;
    const std::size_t room =
        std::min(most, (items.count + Reader::kTogether - 1) / Reader::kTogether * Reader::kTogether);
    const std::vector<float> center = items.center(queries, metric);
    CloseItems close(count, hits.k, items.count);
    std::vector<float> rounded(count * features), scales(room), shifts(room), squares(room), zeros(count);
    std::vector<double> lengths(count), bounds(count);
    for (std::size_t q = 0; q < count; ++q) {
        if (queries[q].zero) close.drop(q);
        std::vector<double> values = queries[q].values;
        for (std::size_t f = 0; f < center.size(); ++f) values[f] -= center[f];
        std::ranges::copy(values, rounded.data() + q * features);
        lengths[q] = std::sqrt(squared_norm_in_double(values.data(), features));
    }
    const std::unique_ptr<float[]> products(new float[count * room]);
    Reader reader(items, metric, simd);
    double largest = 0;
    for (std::size_t first = 0; first < items.count; first += most) {
        const std::size_t size = std::min(most, items.count - first);
        for (std::size_t at = 0; at < size; at += Reader::kTogether) {
            const std::size_t some = std::min(Reader::kTogether, size - at);
            if (!reader.pack(first + at, some, center.data(), squares.data() + at)) return;
            for (std::size_t row = 0; row < some; row += Panel::kRows)
                reader.panels()[row / Panel::kRows].multiply(rounded.data(), count, products.get() + at + row, room);
        }
        for (std::size_t i = 0; i < size; ++i) {
            const ProductDistance by(metric, squares[i]);
            scales[i] = by.scale;
            shifts[i] = by.shift;
            largest = std::max<double>(largest, squares[i]);
        }
        for (std::size_t q = 0; q < count; ++q)
            bounds[q] = bound_of_products(metric, features, lengths[q], std::sqrt(largest));
        close.add({products.get(), size, room, zeros.data(), scales.data(), shifts.data(), bounds.data()}, simd);
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;  // queries and items
    for (std::uint32_t q = 0; q < count; ++q)
        if (close.usable(q)) {
            done[first_query + q] = true;
            for (const auto& [estimate, item] : close.of(q)) pairs.emplace_back(q, item);
        }
    std::vector<RankedItem> ranked;
    reader.each(
        pairs.size(), [&](std::size_t i) { return pairs[i].second; },
        [&](std::size_t i) {
            const auto [q, item] = pairs[i];
            ranked.push_back(ranked_item(reader.distances.from(queries[q]), items.ids[item]));
            if (i + 1 < pairs.size() && pairs[i + 1].first == q) return;
            hits.add(first_query + q, ranked);
            ranked.clear();
        });
}

// Adds the nearest items to the hits of one query; returns false where float32 does not tell them apart.
template <class Items>
bool scan_alone(const Items& items, const DoubleRow& query, Metric metric, const NearestHits& hits, std::size_t q,
                Simd simd, std::size_t threads) {
    if (query.zero) return false;
    std::vector<float> estimates(items.count);
    const std::optional<EstimateErrors> errors = items.estimate(query, metric, estimates.data(), simd, threads);
    if (!errors) return false;
    const auto exact = [&](const std::vector<std::size_t>& close, double* out) {
        typename Items::Reader reader(items, metric, simd);
        reader.each(
            close.size(), [&](std::size_t i) { return close[i]; },
            [&](std::size_t i) { out[i] = reader.distances.from(query); });
    };
    return rank_by_estimates(estimates, [&](float kth) { return errors->limit(kth); }, items.ids, hits, q, exact);
}

// Adds the nearest items to the hits of each query.
template <class Items>
void scan(const Items& items, const QueryReader& queries, std::size_t count, Metric metric, const NearestHits& hits,
          Simd simd, std::size_t threads) {
    constexpr std::size_t query_bytes = 3u << 18;  // of queries that stay in the second-level cache
    if (count == 0 || items.count == 0) return;
    const std::size_t most = std::clamp<std::size_t>(query_bytes / (4 * items.features + 1), 12, 256);
    std::vector<std::uint8_t> done(count);
    if (count > items.alone)
        parallel_for(count, 12, threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t q = begin; q < end; q += most)
                scan_together(items, queries(q, std::min(most, end - q)), metric, hits, q, done.data(), simd);
        });
    // Squares of differences are more exact than differences of squares.
    if (count <= items.alone || (items.differences && metric == Metric::l2))
        for (std::size_t q = 0; q < count; ++q)
            if (!done[q]) done[q] = scan_alone(items, queries(q, 1).front(), metric, hits, q, simd, threads);
    std::vector<std::size_t> left;
    std::vector<DoubleRow> rows(count);
    for (std::size_t q = 0; q < count; ++q)
        if (!done[q]) {
            left.push_back(q);
            rows[q] = std::move(queries(q, 1).front());
        }
    compare_all(left, items.count, hits, threads, [&](std::size_t begin, std::size_t end, auto some, auto& nearest) {
        typename Items::Reader reader(items, metric, simd);
        reader.each(
            end - begin, [&](std::size_t i) { return begin + i; },
            [&](std::size_t i) {
                for (std::size_t q = 0; q < some.size(); ++q)
                    nearest[q].add(ranked_item(reader.distances.from(rows[some[q]]), items.ids[begin + i]));
            });
    });
}

// Vectors at some positions, as rows of a scan.
struct VectorItems {
    const VectorRuns& vectors;
    const std::uint32_t* positions;
    const std::int64_t* ids;
    std::size_t count, features = vectors.features;
    // Rows of float64 are rounded before they are compared one by one, which estimates do not account for.
    bool differences =
        std::ranges::none_of(vectors.runs, [](const auto& run) { return run.type == VectorType::float64; });
    std::size_t alone = differences ? 2 : 0;

    // The mean of the queries where they are far from 0: squares around 0 would be larger.
    std::vector<float> center(const std::vector<DoubleRow>& queries, Metric metric) const {
        if (metric != Metric::l2) return {};
        std::vector<double> mean(features);
        double squares = 0;
        for (const DoubleRow& query : queries) {
            for (std::size_t f = 0; f < features; ++f) mean[f] += query.values[f];
            squares += squared_norm_in_double(query.values.data(), features);
        }
        const auto many = static_cast<double>(queries.size());
        for (double& value : mean) value /= many;
        if (2 * many * squared_norm_in_double(mean.data(), features) <= squares) return {};
        return {mean.begin(), mean.end()};
    }

    class Reader {
      public:
        static constexpr std::size_t kTogether = Panel::kRows;
        ExactDistances distances;

        Reader(const VectorItems& items, Metric metric, Simd simd)
            : distances(metric, items.features, simd),
              items_(items),
              by_angle_(metric == Metric::cosine),
              rows_(items.vectors, half_expander(simd)),
              sums_of_(row_sums_kernel<float, true>(simd)),
              simd_(simd),
              zeros_(items.features) {}

        Panel* panels() { return &*panel_; }

        bool pack(std::size_t first, std::size_t count, const float* center, float* squares) {
            const std::size_t features = items_.features;
            buffer_.resize(Panel::kRows * features);
            const float* rows[Panel::kRows];
            for (std::size_t i = 0; i < Panel::kRows; ++i) {
                rows[i] =
                    i < count ? row(items_.positions[first + i], center, buffer_.data() + i * features) : rows[i - 1];
                if (i >= count) continue;
                squares[i] = sums_of_(zeros_.data(), rows[i], features).norm;
                if (!by_angle_ || squares[i] > kLeastSquare) continue;
                if (!std::equal(rows[i], rows[i] + features, zeros_.data())) return false;  // its square underflows
                squares[i] = 1;                                                             // any: its products are 0
            }
            if (!panel_) panel_.emplace(features, simd_);
            panel_->pack(rows);
            return true;
        }

        template <class ItemAt, class Take>
        void each(std::size_t count, const ItemAt& item_at, const Take& take) {
            constexpr std::size_t ahead = 2;  // rows are anywhere in memory
            for (std::size_t i = 0; i < count; ++i) {
                if (i + ahead < count) rows_.prefetch(items_.positions[item_at(i + ahead)]);
                const std::size_t position = items_.positions[item_at(i)];
                if (const double* row = rows_.row_in_double(position))
                    distances.set(row);
                else
                    distances.set(rows_.row(position));
                take(i);
            }
        }

      private:
        // A row around the center, in the buffer unless it is read where it lies.
        const float* row(std::size_t position, const float* center, float* buffer) const {
            const double* const fine = rows_.row_in_double(position);
            if (fine == nullptr && center == nullptr) return rows_.row(position, buffer);
            const float* const row = fine == nullptr ? rows_.row(position, buffer) : nullptr;
            for (std::size_t f = 0; f < items_.features; ++f)
                buffer[f] =
                    static_cast<float>((fine != nullptr ? fine[f] : row[f]) - (center != nullptr ? center[f] : 0));
            return buffer;
        }

        const VectorItems& items_;
        const bool by_angle_;
        VectorReader rows_;
        const RowSumsKernel<float> sums_of_;
        const Simd simd_;
        std::optional<Panel> panel_;
        const std::vector<float> zeros_;
        std::vector<float> buffer_;  // (32, features)
    };

    std::optional<EstimateErrors> estimate(const DoubleRow& query, Metric metric, float* out, Simd simd,
                                           std::size_t threads) const {
        const std::vector<float> rounded(query.values.begin(), query.values.end());
        std::vector<float> squares(metric == Metric::inner ? count : 0);
        std::atomic<bool> usable = true;
        parallel_for(count, 1 + (1 << 18) / (features + 1), threads, [&](std::size_t begin, std::size_t end) {
            const VectorSums sums_of(vectors, metric, simd);
            float total = 0;  // only to notice what is not finite
            const auto position_at = [&](std::size_t i) { return std::size_t{positions[begin + i]}; };
            sums_of(rounded.data(), end - begin, position_at, [&](std::size_t i, const RowSums& sums) {
                float& estimate = out[begin + i];
                if (metric == Metric::l2) {
                    estimate = sums.norm;
                } else if (metric == Metric::inner) {
                    estimate = -sums.product;
                    squares[begin + i] = sums.norm;
                } else if (sums.norm > kLeastSquare) {
                    estimate = 2 - 2 * sums.product / std::sqrt(sums.norm);
                } else {  // squares underflow, unless they are zero
                    const float* row = sums_of.row(position_at(i));
                    if (std::any_of(row, row + features, [](float value) { return value != 0; })) usable = false;
                    estimate = 2;
                }
                total += estimate;
            });
            if (!std::isfinite(total)) usable = false;
        });
        if (!usable) return std::nullopt;
        if (metric == Metric::l2) {
            const auto roundings = static_cast<double>(features);
            double moved = 0;
            for (std::size_t f = 0; f < features; ++f)
                moved += (query.values[f] - rounded[f]) * (query.values[f] - rounded[f]);
            return EstimateErrors{roundings * kSmallest, (roundings + 16) * kUnit, std::sqrt(moved)};
        }
        const double largest = squares.empty() ? 0 : std::sqrt(*std::ranges::max_element(squares));
        const double length = std::sqrt(squared_norm_in_double(query.values.data(), features));
        return EstimateErrors{bound_of_products(metric, features, length, largest)};
    }
};

// Queries that are compared with vectors, (…, features).
template <class Real>
struct VectorQueries {
    const Real* rows;
    std::size_t features;
    Metric metric;

    std::vector<DoubleRow> operator()(std::size_t first, std::size_t count) const {
        std::vector<DoubleRow> queries(count);
        for (std::size_t q = 0; q < count; ++q) queries[q].read(rows + (first + q) * features, features, metric);
        return queries;
    }
};

}  // namespace nestcode
