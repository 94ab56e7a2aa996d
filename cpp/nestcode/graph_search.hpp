// Greedy best-first search on a graph (graph.hpp).
//
// The pool holds the `ef` items of least estimated distance among those seen, sorted. The search visits the nearest one
// that was not visited yet, until all are: it estimates the distances of the node's neighbors from the node's record,
// and computes the distance of the node itself from its vector, where vectors are given.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <unordered_set>

#include "graph.hpp"
#include "int8_distance.hpp"
#include "late_hits.hpp"
#include "search.hpp"
#include "top_k.hpp"

namespace nestcode {

constexpr std::uint64_t kVisited = 1;  // the last bit of a pool's key: ids have 31 bits

// Bitmaps of a graph's items, 64 in a word. Equal items have one node, the first of them: the others, its duplicates,
// follow it, have no neighbors and are nobody's. As nodes of their own they would fill the pool before others enter.
struct GraphItems {
    std::span<const std::uint64_t> allowed = {};     // may be returned; empty where all may
    std::span<const std::uint64_t> duplicates = {};  // and the first bit after the items; empty where there are none

    // Calls visit(id) for the items of a node that may be returned, until it returns false.
    template <class Visit>
    void each(std::uint32_t node, const Visit& visit) const {
        for (std::uint32_t id = first_allowed(node); id != kNone && visit(id);)
            id = word_from(duplicates, id + 1) & 1 ? first_allowed(id + 1) : kNone;
    }

    // Whether an item of a node may be returned.
    bool allows(std::uint32_t node) const { return first_allowed(node) != kNone; }

  private:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    // The first item of a node, from `id` on, that may be returned. Words are skipped whole: a node may have many.
    std::uint32_t first_allowed(std::uint32_t id) const {
        do {
            const auto skips = static_cast<std::uint32_t>(
                std::countr_one(id / 64 < allowed.size() ? ~allowed[id / 64] >> id % 64 : std::uint64_t{0}));
            const auto more = static_cast<std::uint32_t>(std::countr_one(word_from(duplicates, id) >> 1));
            const std::uint32_t rest = 64 - id % 64;  // of the word
            if (skips <= more) return id + skips;
            if (more + 1 < rest) return kNone;
            id += rest;
        } while (word_from(duplicates, id) & 1);
        return kNone;
    }

    // The bits from i on in its word.
    static std::uint64_t word_from(std::span<const std::uint64_t> words, std::size_t i) {
        return i / 64 < words.size() ? words[i / 64] >> i % 64 : 0;
    }
};

// The duplicates of a graph: nodes but the first one that have no neighbors.
inline std::vector<std::uint64_t> find_duplicates(const GraphEdges& edges) {
    std::vector<std::uint64_t> words(edges.nodes / 64 + 1);
    bool any = false;
    for (std::size_t i = 1; i < edges.nodes; ++i)
        if (*edges[i] == i) {
            words[i / 64] |= std::uint64_t{1} << i % 64;
            any = true;
        }
    return any ? words : std::vector<std::uint64_t>{};
}

// The same of nodes in blocks.
inline std::vector<std::uint64_t> find_duplicates(std::span<const std::uint32_t> slots) {
    std::vector<std::uint64_t> words(slots.size() / 64 + 1);
    for (std::size_t i = 0; i < slots.size(); ++i) words[i / 64] |= std::uint64_t{slots[i] == kNoNode} << i % 64;
    return std::ranges::all_of(words, [](std::uint64_t word) { return word == 0; }) ? std::vector<std::uint64_t>{}
                                                                                    : words;
}

// Where a key belongs among sorted ones: a binary search without branches, which would be mispredicted. With a mask, as
// compilers for x86 make a branch of a conditional.
inline std::size_t place_of(std::uint64_t key, const std::uint64_t* keys, std::size_t count) {
    const std::uint64_t* base = keys;
    while (count > 0) {
        const std::size_t half = (count + 1) / 2;
        base += half & -std::size_t{base[half - 1] < key};
        count -= half;
    }
    return static_cast<std::size_t>(base - keys);
}

// Inserts up to 32 keys of items that were not visited into `size` sorted ones, but for items that are there. Returns
// how many it inserted, which then come first in `found`. The keys end in whole blocks of eight with room for all, and
// `kNoKey` beyond the last.
using InsertKernel = std::size_t (*)(std::uint64_t* keys, std::size_t size, std::uint64_t (&found)[kDegree],
                                     std::size_t count);
constexpr std::uint64_t kNoKey = UINT64_MAX;

// Sorts up to 32 keys by their ranks, the keys before them: no branch depends on their order, which nothing predicts.
inline void sort_by_rank(std::uint64_t (&keys)[kDegree], std::size_t count) {
    if (count < 2) return;
    std::uint64_t unsorted[kDegree];
    std::memcpy(unsorted, keys, sizeof unsorted);  // of constant size: x86 copies few words slowly
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t rank = 0;
        for (std::size_t j = 0; j < i; ++j) rank += unsorted[j] <= unsorted[i];
        for (std::size_t j = i + 1; j < count; ++j) rank += unsorted[j] < unsorted[i];
        keys[rank] = unsorted[i];
    }
}

inline std::size_t insert_portable(std::uint64_t* keys, std::size_t size, std::uint64_t (&found)[kDegree],
                                   std::size_t count) {
    std::size_t added = 0, places[kDegree];
    sort_by_rank(found, count);
    // All are searched for before any is inserted: searches that are independent overlap.
    for (std::size_t i = 0; i < count; ++i) places[i] = place_of(found[i], keys, size);
    for (std::size_t i = 0; i < count; ++i) {
        const bool known = places[i] < size && (keys[places[i]] | kVisited) == (found[i] | kVisited);
        const bool again = added > 0 && found[i] == found[added - 1];
        found[added] = found[i];
        places[added] = places[i];
        added += !known && !again;
    }
    for (std::size_t i = added; i-- > 0; size = places[i]) {
        std::uint64_t* place = keys + places[i];
        std::memmove(place + i + 1, place, (size - places[i]) * sizeof *place);
        place[i] = found[i];
    }
    return added;
}

#if NESTCODE_X86
// One key after the other, in blocks of eight: a key of the pool stays, is the new one, or follows its predecessor. No
// branch depends on where a key belongs. All blocks are read for each key, so a large pool is left to binary searches.
NESTCODE_AVX512 inline std::size_t insert_avx512(std::uint64_t* keys, std::size_t size, std::uint64_t (&found)[kDegree],
                                                 std::size_t count) {
    constexpr std::size_t block = 8, few = 192;
    if (size > few) return insert_portable(keys, size, found, count);
    const __m512i visited = _mm512_set1_epi64(kVisited);
    std::size_t added = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const __m512i key = _mm512_set1_epi64(static_cast<long long>(found[i])), own = _mm512_or_si512(key, visited);
        std::uint32_t known = 0;
        for (std::size_t b = 0; b <= size; b += block)
            known |= _mm512_cmpeq_epu64_mask(_mm512_or_si512(_mm512_load_si512(keys + b), visited), own);
        if (known != 0) continue;
        __m512i before = _mm512_setzero_si512();
        for (std::size_t b = 0; b <= size; b += block) {
            const __m512i old = _mm512_load_si512(keys + b);
            const __m512i shifted = _mm512_alignr_epi64(old, before, block - 1);
            _mm512_store_si512(keys + b, _mm512_max_epu64(shifted, _mm512_min_epu64(old, key)));
            before = old;
        }
        found[added++] = found[i];
        ++size;
    }
    return added;
}
#endif

inline InsertKernel insert_kernel(Simd simd) {
#if NESTCODE_X86
    if (simd == Simd::avx512) return insert_avx512;
#endif
    static_cast<void>(simd);
    return insert_portable;
}

// The items nearest by estimate, sorted by (estimate, id). An item has one estimate, so a repeated one is found in its
// place, and one that fell off the end is never below the limit again. A small cache of ids, which may forget, spares
// most repeated ones the search for their place.
//
// Items that may not be returned are walked through but do not count: the pool ends at the ef-th item that may, or at
// the last that a walk could visit.
//
// Near copies of the nearest item have the same estimate up to rounding, which says nothing about their order. So the
// pool goes on after the ef-th item while estimates tie with the least one, up to a multiple of ef.
class GraphPool {
  public:
    static constexpr std::size_t kMostTies = 16;  // times ef

    explicit GraphPool(Simd simd) : insert_(insert_kernel(simd)) {}

    // `most` is how many nodes a walk may visit: it never comes to what lies behind.
    void reset(std::size_t ef, std::size_t most, float tie, const GraphItems& items) {
        items_ = items;
        tie_ = tie;
        most_ = std::max(ef, most);
        visited_keys_.clear();
        clear();
        widen(ef);
    }

    // Begins again with what was visited, sorted, for a walk that goes on with more items: the neighbors of these have
    // to be inserted again.
    std::span<const std::uint64_t> restart(std::size_t ef) {
        clear();
        std::sort(visited_keys_.begin(), visited_keys_.end());
        size_ = visited_keys_.size();
        reserve(size_ + kDegree);
        std::ranges::copy(visited_keys_, begin());
        for (const std::uint64_t key : visited_keys_) allowed_ += items_.allows(id_of(key));
        widen(ef);
        if (allowed_ >= ef_) shrink();
        return visited_keys_;
    }

    // Lets more items in. Those that fell off the end before may come back.
    void widen(std::size_t ef) {
        ef_ = ef;
        reserve(ef + kDegree);
        recent_.resize(std::bit_ceil(8 * ef));
        std::memset(recent_.data(), 0xff, recent_.size() * sizeof recent_[0]);  // no id
        if (allowed_ < ef_) limit = std::numeric_limits<float>::infinity();
    }

    float limit;    // items of a greater estimate do not enter
    float visited;  // the estimate of the item that was visited last

    // Adds those of a record's neighbors that the mask selects: all whose estimates are not above the limit.
    void insert(const float* estimates, const std::uint32_t* ids, std::uint32_t near) {
        std::uint64_t found[kDegree];
        std::size_t count = 0;
        for (; near != 0; near &= near - 1) {
            const int j = std::countr_zero(near);
            std::uint32_t& recent = recent_[ids[j] * 0x9e3779b1u >> 7 & (recent_.size() - 1)];
            found[count] = Hit::pack(clamp_to_finite(estimates[j]), ids[j] << 1);
            count += recent != ids[j];
            recent = ids[j];
        }
        reserve(size_ + count);
        const std::size_t added = insert_(begin(), size_, found, count);
        if (added == 0) return;
        size_ += added;
        cursor_ = std::min(cursor_, place_of(*std::min_element(found, found + added), begin(), size_));
        if (items_.allowed.empty())
            allowed_ += added;
        else
            for (std::size_t i = 0; i < added; ++i) allowed_ += items_.allows(id_of(found[i]));
        if (allowed_ >= ef_ || size_ > most_) shrink();
    }

    // The nearest item that was not visited, which is marked; UINT32_MAX when all were.
    std::uint32_t visit_next() {
        const std::uint32_t id = peek();
        if (id == UINT32_MAX) return id;
        visited = Hit::score(begin()[cursor_]);
        visited_keys_.push_back(begin()[cursor_] |= kVisited);
        return id;
    }

    // Calls act(id) for the nearest items that were not visited, up to `most` of them.
    template <class Act>
    void each_next(std::size_t most, const Act& act) const {
        const std::uint64_t* keys = blocks_.data()->keys;
        for (std::size_t i = cursor_; i < size_ && most > 0; ++i) {
            if (keys[i] & kVisited) continue;
            act(id_of(keys[i]));
            --most;
        }
    }

    // The nearest item that was not visited; UINT32_MAX when all were.
    std::uint32_t peek() {
        const std::uint64_t* keys = begin();
        while (cursor_ < size_ && keys[cursor_] & kVisited) ++cursor_;
        return cursor_ < size_ ? id_of(keys[cursor_]) : UINT32_MAX;
    }

    std::span<const std::uint64_t> keys() const { return {blocks_.data()->keys, size_}; }
    static std::uint32_t id_of(std::uint64_t key) { return Hit::position(key) >> 1; }

  private:
    struct alignas(64) Block {
        std::uint64_t keys[8] = {kNoKey, kNoKey, kNoKey, kNoKey, kNoKey, kNoKey, kNoKey, kNoKey};
    };

    std::uint64_t* begin() { return blocks_.data()->keys; }

    void clear() {
        size_ = allowed_ = cursor_ = 0;
        std::fill(blocks_.begin(), blocks_.end(), Block{});
    }

    void reserve(std::size_t count) {
        if (count >= 8 * blocks_.size()) blocks_.resize(count / 8 + 1);
    }

    // Drops what comes after the ef-th item that may be returned and after the last tie, and what no walk comes to.
    void shrink() {
        const std::size_t end = size_, ties = count_ties();
        if (items_.allowed.empty()) {
            size_ = allowed_ = std::min(std::max(ef_, ties), most_);
        } else {
            const auto last_allowed = [&] { return items_.allows(id_of(begin()[size_ - 1])); };
            for (; (allowed_ > ef_ && size_ > ties) || size_ > most_; --size_) allowed_ -= last_allowed();
            while (allowed_ >= ef_ && size_ > ties && !last_allowed()) --size_;
        }
        std::fill(begin() + size_, begin() + end, kNoKey);
        limit = Hit::score(begin()[size_ - 1]);
        if (ties == size_ && ties < kMostTies * ef_) limit = last_tie();
    }

    float last_tie() const { return Hit::score(blocks_[0].keys[0]) + tie_; }

    std::size_t count_ties() {
        if (Hit::score(begin()[std::min(ef_, size_) - 1]) > last_tie()) return 0;  // fewer than ef
        return std::min(place_of(Hit::pack(last_tie(), UINT32_MAX), begin(), size_), kMostTies * ef_);
    }

    const InsertKernel insert_;
    std::size_t ef_ = 0, most_ = 0, size_ = 0, allowed_ = 0, cursor_ = 0;
    float tie_ = 0;
    GraphItems items_;
    std::vector<Block> blocks_;  // sorted keys, then `kNoKey`
    std::vector<std::uint64_t> visited_keys_;
    std::vector<std::uint32_t> recent_;  // ids that were inserted, by hash
};

// Begins to read memory into the second-level cache: all of it on x86; elsewhere the processor's own prefetcher goes on
// from there, and asking for more lines would hold up other reads. Inlined at once, as GCC 12 drops calls of functions
// that do nothing but prefetch.
[[gnu::always_inline]] inline void prefetch_lines(const void* from, [[maybe_unused]] std::size_t bytes) {
    const char* data = static_cast<const char*>(from);
#if NESTCODE_X86
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(data + i, 0, 2);
#else
#pragma GCC unroll 10
    for (std::size_t i = 0; i < 640; i += 64) __builtin_prefetch(data + i, 0, 2);  // lines behind the end do no harm
#endif
}

// Vectors in the order of the nodes, or in blocks; none where `data` is null.
template <class Element>
struct GraphVectors {
    const Element* data;
    std::size_t features;
    const float* scales = nullptr;  // of int8
    const NodeBlocks* blocks = nullptr;

    const Element* operator[](std::size_t i) const {
        return blocks == nullptr ? data + i * features : reinterpret_cast<const Element*>(blocks->vector(i));
    }
};

// Reads the blocks of the nodes that a walk visits: where one is missing, those of the next nodes of the pool are
// requested with it (DiskANN's beam search). The walk visits the same nodes in the same order as in memory.
class BeamReader {
  public:
    static constexpr std::size_t kBeam = 4;  // nodes whose blocks are requested together

    explicit BeamReader(const NodeBlocks* blocks) : blocks_(blocks) {}

    void reset() { requested_.clear(); }

    // Requests the block of a node that the walk is about to visit, unless it did before.
    void read(std::uint32_t id, const GraphPool& pool) {
        if (blocks_ == nullptr || !requested_.insert(blocks_->block_of(id)).second) return;
        std::vector<std::size_t> together{blocks_->block_of(id)};
        pool.each_next(kBeam - 1, [&](std::uint32_t next) {
            const std::size_t block = blocks_->block_of(next);
            if (requested_.insert(block).second) together.push_back(block);
        });
        blocks_->request(std::move(together));
    }

  private:
    const NodeBlocks* const blocks_;
    std::unordered_set<std::size_t> requested_;  // by this walk
};

// The distances of the nodes that one walk after the other visits.
template <class Element>
class VisitDistance {
  public:
    VisitDistance(const GraphVectors<Element>& vectors, Metric metric, Simd simd)
        : vectors_(vectors), distance_(metric, vectors.features, simd) {}

    void set(const float* query) {
        if constexpr (std::is_same_v<Element, std::int8_t>)
            distance_.set(query);
        else
            query_ = query;
    }

    // NaN without vectors.
    [[gnu::always_inline]] float operator()(std::uint32_t id) const {
        if (vectors_.data == nullptr) return std::numeric_limits<float>::quiet_NaN();
        if constexpr (std::is_same_v<Element, std::int8_t>)
            return distance_(vectors_[id], vectors_.scales[id]);
        else
            return distance_(query_, vectors_[id]);
    }

  private:
    const GraphVectors<Element> vectors_;
    std::conditional_t<std::is_same_v<Element, std::int8_t>, Int8Distance, RowDistance<Element>> distance_;
    const float* query_ = nullptr;
};

constexpr std::size_t kStarts = 8;  // entry points that a walk begins at

// What the walks through a graph share.
template <class Element>
struct GraphWalker {
    const GraphRecords& records;
    GraphVectors<Element> vectors;
    GraphEstimator estimate;
    Metric metric;
    Simd simd;

    GraphWalker(const GraphRecords& graph, const GraphVectors<Element>& rows, const GraphProjection& projection,
                Metric by, Simd chosen)
        : records(graph), vectors(rows), estimate(projection, by, chosen), metric(by), simd(chosen) {}

    // Begins a walk with a pool of `ef` items at the nearest entry points; the others would only be replaced.
    void start(const GraphQuery& query, std::size_t ef, std::size_t most, const GraphItems& items,
               GraphPool& pool) const {
        pool.reset(std::min(ef, kStarts), most, query.tie, items);
        for (std::size_t i = records.nodes(); i < records.count(); ++i) scan(i, query, pool);
        pool.widen(ef);
        prefetch(pool.peek());
    }

    // Lets a walk that ended go on with a pool of `ef` items.
    void widen(const GraphQuery& query, std::size_t ef, GraphPool& pool) const {
        for (const std::uint64_t key : pool.restart(ef)) scan(GraphPool::id_of(key), query, pool);
        prefetch(pool.peek());
    }

    // Visits the nearest item that was not visited, and calls visit(id, distance); the distance is NaN without vectors.
    // Returns false once every item of the pool was visited.
    template <class Visit>
    bool step(const GraphQuery& query, const VisitDistance<Element>& distance, GraphPool& pool, BeamReader& reader,
              const Visit& visit) const {
        const std::uint32_t id = pool.visit_next();
        if (id == UINT32_MAX) return false;
        reader.read(id, pool);
        const std::uint32_t second = pool.peek();  // most often the next one
#if NESTCODE_X86
        // A core waits for few lines at a time, so they are requested while the record is scanned, and after it.
        scan(id, query, pool, lines_ahead(id, second));
        prefetch_record(pool.peek());
#else
        prefetch(second);
        scan(id, query, pool);
        if (pool.peek() != second) prefetch(pool.peek());
#endif
        visit(id, distance(id));
        return true;
    }

  private:
    void scan(std::size_t i, const GraphQuery& query, GraphPool& pool, const LinesAhead& ahead = {}) const {
        if (!records.is_packed(i)) return scan_first(i, query, pool);
        insert(records[i], query, pool, ahead);
    }

    // Scans a record that was not packed; apart, as few visits do.
    [[gnu::noinline]] void scan_first(std::size_t i, const GraphQuery& query, GraphPool& pool) const {
        std::vector<std::uint8_t> copy;
        insert(records.pack(i, copy), query, pool, {});
    }

    [[gnu::always_inline]] void insert(GraphRecord record, const GraphQuery& query, GraphPool& pool,
                                       const LinesAhead& ahead) const {
        float estimates[kDegree];
        pool.insert(estimates, record.ids(), estimate(record, query.tables, pool.limit, ahead, estimates));
    }

    // The vector of the node that is visited, and the first lines of the record that is likely the next one.
    [[gnu::always_inline]] LinesAhead lines_ahead(std::uint32_t id, std::uint32_t next) const {
        constexpr std::size_t record_lines = 8;
        LinesAhead ahead;
        if (vectors.data != nullptr) {
            ahead.vector = reinterpret_cast<const std::uint8_t*>(vectors[id]);
            ahead.lines = ahead.vector_lines =
                (vectors.features * sizeof(Element) + LinesAhead::kLine - 1) / LinesAhead::kLine;
            if (vectors.scales != nullptr) __builtin_prefetch(vectors.scales + id);
        }
        if (next != UINT32_MAX && records.are_kept()) {
            ahead.record = records[next].data;
            ahead.lines += std::min(record_lines, records.record_bytes() / LinesAhead::kLine);
        }
        return ahead;
    }

    [[gnu::always_inline]] void prefetch(std::uint32_t id) const {
        if (id == UINT32_MAX) return;
        prefetch_record(id);
        prefetch_vector(id);
    }

    [[gnu::always_inline]] void prefetch_record(std::uint32_t id) const {
        if (id != UINT32_MAX && records.are_kept()) prefetch_lines(records[id].data, records.record_bytes());
    }

    [[gnu::always_inline]] void prefetch_vector(std::uint32_t id) const {
        if (vectors.data != nullptr) prefetch_lines(vectors[id], vectors.features * sizeof(Element));
        if (vectors.scales != nullptr) __builtin_prefetch(vectors.scales + id);
    }
};

// Walks for `count` queries, one after the other, each of which visits at most most_of(query) nodes. Calls visit(query,
// id, distance, estimate) and, at the end of a walk, finish(query, pool, visited), which returns the `ef` that the walk
// goes on with, or 0.
template <class Element, class MostOf, class Visit, class Finish>
void walk_graph(const GraphWalker<Element>& walker, GraphQueries& batch, const float* queries, std::size_t count,
                std::size_t ef, const MostOf& most_of, const GraphItems& items, const Visit& visit,
                const Finish& finish) {
    GraphPool pool(walker.simd);
    VisitDistance<Element> distance(walker.vectors, walker.metric, walker.simd);
    BeamReader reader(walker.records.blocks());
    for (std::size_t first = 0; first < count; first += GraphQueries::kBatch) {
        const std::size_t many = std::min(count - first, GraphQueries::kBatch);
        batch.prepare(queries + first * walker.vectors.features, many);
        for (std::size_t q = 0; q < many; ++q) {
            const std::size_t most = most_of(first + q);
            std::size_t visited = 0;
            distance.set(batch[q].features);
            reader.reset();
            walker.start(batch[q], ef, most, items, pool);
            for (;;) {
                while (visited < most &&
                       walker.step(
                           batch[q], distance, pool, reader,
                           [&](std::uint32_t id, float exact) { visit(first + q, id, exact, pool.visited); }))
                    ++visited;
                const std::size_t more = finish(first + q, pool, visited);
                if (more == 0) break;
                walker.widen(batch[q], more, pool);
            }
        }
    }
}

// Replaces nodes by their items, which are as near, up to k of them.
inline void replace_nodes(TopK& top, const GraphItems& items, std::size_t k) {
    const std::vector<std::uint64_t> nodes = top.sorted();
    top.clear();
    for (const std::uint64_t node : nodes) {
        items.each(Hit::position(node), [&](std::uint32_t id) {
            top.add(Hit::score(node), id);
            return --k > 0;
        });
        if (k == 0) return;
    }
}

// How far walks go.
struct WalkBounds {
    std::span<const std::size_t> most =
        {};               // nodes that each query may visit: then its walk is given up; none if empty
    bool widens = false;  // whether a walk that finds many late goes on
};

// Writes the k nearest items of each query that are allowed: of those visited, by the distance of their vectors;
// without vectors, of the pool by estimated distance. `results.compared` counts the visited nodes. A walk that finds
// many late, or whose estimates may hide nearer items, goes on with twice as many items, which visits about twice as
// many nodes.
template <class Element>
void search_graph(const GraphRecords& records, const GraphVectors<Element>& vectors, const GraphProjection& projection,
                  Metric metric, const float* queries, std::size_t count, std::size_t ef, const GraphItems& items,
                  const SearchResults& results, Simd simd, std::size_t threads, bool normalized = false,
                  const WalkBounds& bounds = {}) {
    const GraphWalker<Element> walker(records, vectors, projection, metric, simd);
    const bool widens = vectors.data != nullptr && bounds.widens;
    const auto most_of = [&](std::size_t q) { return bounds.most.empty() ? SIZE_MAX : bounds.most[q]; };
    parallel_for(count, 1, threads, [&](std::size_t begin, std::size_t end) {
        GraphQueries batch(projection, end - begin, metric, simd, normalized);
        TopK top(results.k);
        std::vector<float> estimates, distances, scratch;  // of the visited items that may be returned
        std::size_t kept = std::max(ef, results.k);
        const auto goes_on = [&](float last) {
            if (distances.size() < kept / 2) return false;
            const double scale = metric == Metric::inner ? 0.5 : 1;
            if (may_hide_nearer(estimates, distances, last, scale, results.k, scratch)) return true;
            scratch = estimates;
            const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>((scratch.size() - 1) / 2);
            std::nth_element(scratch.begin(), middle, scratch.end());
            const float half = *middle;
            return finds_many_late(
                distances, results.k, kLateVisited, [&](std::size_t i) { return estimates[i] <= half; }, scratch);
        };
        walk_graph(
            walker, batch, queries + begin * projection.features(), end - begin, kept,
            [&](std::size_t q) { return most_of(begin + q); }, items,
            [&](std::size_t, std::uint32_t id, float exact, float estimate) {
                const bool near = !(exact > top.threshold);
                if (vectors.data == nullptr || !(near || widens) || !items.allows(id)) return;
                if (near) top.add(exact, id);
                if (!widens) return;
                estimates.push_back(estimate);
                distances.push_back(exact);
            },
            [&](std::size_t q, const GraphPool& pool, std::size_t visited) -> std::size_t {
                const std::size_t most = most_of(begin + q);
                bool given_up = visited >= most;
                if (!given_up && widens && goes_on(pool.limit)) {
                    given_up = visited > most / 2;
                    if (!given_up) return kept *= 2;
                }
                if (vectors.data == nullptr)
                    for (const std::uint64_t key : pool.keys())
                        if (items.allows(GraphPool::id_of(key)))
                            top.add(batch[q % GraphQueries::kBatch].distance(Hit::score(key), metric),
                                    GraphPool::id_of(key));
                results.compared[begin + q] = given_up ? kGivenUp : static_cast<std::int64_t>(visited);
                if (results.passed != nullptr) results.passed[begin + q] = visited;
                if (!items.duplicates.empty()) replace_nodes(top, items, results.k);
                results.write(begin + q, top);
                top.clear();
                estimates.clear();
                distances.clear();
                kept = std::max(ef, results.k);
                return 0;
            });
    });
}

// Calls search(vectors) with the vectors as their type has them, or with none.
template <class Search>
void with_vectors(const VectorRows* rows, std::size_t features, const Search& search) {
    if (rows == nullptr) return search(GraphVectors<float>{nullptr, features});
    switch (rows->type) {
        case VectorType::float16:
            return search(
                GraphVectors<Half>{reinterpret_cast<const Half*>(rows->data), features, nullptr, rows->blocks});
        case VectorType::int8:
            return search(GraphVectors<std::int8_t>{reinterpret_cast<const std::int8_t*>(rows->data), features,
                                                    rows->scales, rows->blocks});
        default:
            return search(
                GraphVectors<float>{reinterpret_cast<const float*>(rows->data), features, nullptr, rows->blocks});
    }
}

// A graph of a snapshot, whose positions begin at `offset`. Its vectors, if it has any, rank what a walk visits.
struct SearchedGraph {
    const GraphRecords* records;
    const GraphProjection* projection;
    const VectorRows* vectors = nullptr;
    std::span<const std::uint64_t> duplicates = {};
    std::uint32_t offset = 0;

    // Whether a checksum failed in the blocks that were read so far.
    bool damaged() const {
        const NodeBlocks* blocks = records->blocks();
        return blocks != nullptr && blocks->guard != nullptr && blocks->guard->first_damaged() >= 0;
    }

    // Whether a walk's distances are those of a rerank.
    bool compares_halves() const { return vectors != nullptr && vectors->type == VectorType::float16; }

    // Searches for queries that are L2-normalized for the cosine.
    void search(Metric metric, const float* queries, std::size_t count, std::size_t ef, const WalkBounds& bounds,
                const GraphItems& items, const SearchResults& results, Simd simd) const {
        with_vectors(vectors, projection->features(), [&](const auto& rows) {
            search_graph(*records, rows, *projection, metric, queries, count, ef, items, results, simd, 1, true,
                         bounds);
        });
    }
};

}  // namespace nestcode
