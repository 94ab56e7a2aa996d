// Greedy best-first search on a graph (graph.hpp).
//
// The pool holds the `ef` items of least estimated distance among those seen, sorted. The search visits the nearest one
// that was not visited yet, until all are: it estimates the distances of the node's neighbors from the node's record,
// and computes the distance of the node itself from its vector, where vectors are given.
#pragma once

#include <bit>
#include <limits>
#include <span>

#include "graph.hpp"
#include "search.hpp"
#include "top_k.hpp"

namespace nestcode {

// The items nearest by estimate, sorted by (estimate, id). An item has one estimate, so a repeated one is found in its
// place, and one that fell off the end is never below the limit again. A small cache of ids, which may forget, spares
// most repeated ones the search for their place.
//
// Items that may not be returned are walked through but do not count: the pool ends at the ef-th item that may.
class GraphPool {
  public:
    void reset(std::size_t ef, std::span<const std::uint64_t> skipped) {
        ef_ = ef;
        skipped_ = skipped;
        allowed_ = cursor_ = 0;
        keys_.clear();
        keys_.reserve(ef + 1);
        recent_.assign(std::bit_ceil(8 * ef), UINT32_MAX);
        limit = std::numeric_limits<float>::infinity();
    }

    float limit;  // items of a greater estimate do not enter

    bool allows(std::uint32_t id) const { return skipped_.empty() || !(skipped_[id / 64] >> id % 64 & 1); }

    void insert(float estimate, std::uint32_t id) {
        std::uint32_t& recent = recent_[id * 0x9e3779b1u >> 7 & (recent_.size() - 1)];
        if (recent == id) return;
        recent = id;
        const std::uint64_t key = Hit::pack(clamp_to_finite(estimate), id << 1);
        const std::size_t place = place_of(key);
        if (place == keys_.size() ? allowed_ == ef_ : (keys_[place] | kVisited) == (key | kVisited)) return;
        cursor_ = std::min(cursor_, place);
        keys_.insert(keys_.begin() + static_cast<std::ptrdiff_t>(place), key);
        allowed_ += allows(id);
        if (allowed_ < ef_) return;
        if (allowed_ > ef_) {  // drop the last allowed item, and what was kept for being nearer than it
            keys_.pop_back();
            --allowed_;
        }
        while (!allows(id_of(keys_.back()))) keys_.pop_back();
        limit = Hit::score(keys_.back());
    }

    // The nearest item that was not visited, which is marked; UINT32_MAX when all were.
    std::uint32_t visit_next() {
        const std::uint32_t id = peek();
        if (id != UINT32_MAX) keys_[cursor_] |= kVisited;
        return id;
    }

    // The nearest item that was not visited; UINT32_MAX when all were.
    std::uint32_t peek() {
        while (cursor_ < keys_.size() && keys_[cursor_] & kVisited) ++cursor_;
        return cursor_ < keys_.size() ? id_of(keys_[cursor_]) : UINT32_MAX;
    }

    std::span<const std::uint64_t> keys() const { return keys_; }
    static std::uint32_t id_of(std::uint64_t key) { return Hit::position(key) >> 1; }

  private:
    static constexpr std::uint64_t kVisited = 1;  // the last bit of a key: ids have 31 bits

    // Where a key belongs: a binary search without branches, which would be mispredicted.
    std::size_t place_of(std::uint64_t key) const {
        const std::uint64_t* base = keys_.data();
        for (std::size_t count = keys_.size(); count > 0;) {
            const std::size_t half = (count + 1) / 2;
            base += base[half - 1] < key ? half : 0;
            count -= half;
        }
        return static_cast<std::size_t>(base - keys_.data());
    }

    std::size_t ef_ = 0, allowed_ = 0, cursor_ = 0;
    std::span<const std::uint64_t> skipped_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::uint32_t> recent_;  // ids that were inserted, by hash
};

// Begins to read memory into the second-level cache. The processor's own prefetcher goes on from there; asking for more
// lines would hold up other reads. Inlined at once, as GCC 12 drops calls of functions that do nothing but prefetch.
[[gnu::always_inline]] inline void prefetch_bytes(const void* from, std::size_t bytes) {
    const char* data = static_cast<const char*>(from);
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes, 640); i += 64) __builtin_prefetch(data + i, 0, 2);
}

// A bit for each of 32 values that is not above the limit; NaN is not.
inline std::uint32_t mask_not_above(const float* values, float limit) {
    std::uint32_t mask = 0;
#if NESTCODE_X86
    for (int i = 0; i < 32; i += 4)
        mask |= static_cast<std::uint32_t>(_mm_movemask_ps(_mm_cmpngt_ps(_mm_loadu_ps(values + i), _mm_set1_ps(limit))))
                << i;
#else
    for (int i = 0; i < 32; ++i) mask |= static_cast<std::uint32_t>(!(values[i] > limit)) << i;
#endif
    return mask;
}

// Vectors in the order of the nodes; none where `data` is null.
template <class Element>
struct GraphVectors {
    const Element* data;
    std::size_t features;

    const Element* operator[](std::size_t i) const { return data + i * features; }
};

// Walks from the entry points until every item of the pool was visited, and calls visit(id, distance) for each; the
// distance is NaN without vectors. Returns how many were visited.
template <class Element, class Visit>
std::size_t walk_graph(const GraphRecords& records, const GraphVectors<Element>& vectors,
                       const GraphEstimator& estimate, const RowDistance<Element>& distance, const GraphQuery& query,
                       GraphPool& pool, const Visit& visit) {
    float estimates[kDegree];
    const std::size_t size = GraphRecord::size(records.columns);
    const auto scan = [&](std::size_t i) {
        const GraphRecord record = records[i];
        estimate(record, query.tables, estimates);
        const std::uint32_t* ids = record.ids();
        for (std::uint32_t below = mask_not_above(estimates, pool.limit); below != 0; below &= below - 1) {
            const int j = std::countr_zero(below);
            pool.insert(estimates[j], ids[j]);
        }
    };
    const auto prefetch = [&](std::uint32_t id) __attribute__((always_inline)) {
        if (id == UINT32_MAX) return;
        prefetch_bytes(records[id].data, size);
        if (vectors.data != nullptr) prefetch_bytes(vectors[id], vectors.features * sizeof(Element));
    };
    for (std::size_t i = records.nodes; i < records.count; ++i) scan(i);
    std::size_t visited = 0;
    for (std::uint32_t id = pool.visit_next(); id != UINT32_MAX; id = pool.visit_next(), ++visited) {
        scan(id);
        prefetch(pool.peek());  // arrives while this node's own distance is computed
        visit(id, vectors.data != nullptr ? distance(query.features, vectors[id])
                                          : std::numeric_limits<float>::quiet_NaN());
    }
    return visited;
}

// Writes the k nearest items of each query that are not skipped: of those visited, by the distance of their vectors;
// without vectors, of the pool by estimated distance. `results.compared` counts the visited nodes.
template <class Element>
void search_graph(const GraphRecords& records, const GraphVectors<Element>& vectors, const GraphProjection& projection,
                  Metric metric, const float* queries, std::size_t count, std::size_t ef,
                  std::span<const std::uint64_t> skipped, const SearchResults& results, Simd simd,
                  std::size_t threads) {
    const GraphEstimator estimate(projection, metric, simd);
    const RowDistance<Element> distance(metric, vectors.features, simd);
    parallel_for(count, 1, threads, [&](std::size_t begin, std::size_t end) {
        GraphQueries batch(projection, end - begin, metric, simd);
        GraphPool pool;
        TopK top(results.k);
        for (std::size_t q = begin; q < end; ++q) {
            if ((q - begin) % GraphQueries::kBatch == 0) batch.prepare(queries + q * projection.features(), end - q);
            const GraphQuery& query = batch[(q - begin) % GraphQueries::kBatch];
            pool.reset(std::max(ef, results.k), skipped);
            top.clear();
            results.compared[q] = static_cast<std::int64_t>(
                walk_graph(records, vectors, estimate, distance, query, pool, [&](std::uint32_t id, float exact) {
                    if (vectors.data != nullptr && pool.allows(id)) top.add(exact, id);
                }));
            if (vectors.data == nullptr)
                for (const std::uint64_t key : pool.keys())
                    if (pool.allows(GraphPool::id_of(key)))
                        top.add(query.distance(Hit::score(key), metric), GraphPool::id_of(key));
            results.write(q, top);
        }
    });
}

}  // namespace nestcode
