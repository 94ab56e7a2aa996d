// Neighborhoods over several prefix trees: the segments of an index, queried as one tree.
//
// A neighborhood (section 5.1 of the paper) is the set of all items that share the query's first `length` bits, for the
// greatest length at which it has at least `size` items. Its items are one range per tree.
#pragma once

#include "prefix_tree.hpp"

namespace nestcode {

using Forest = std::span<const PrefixTree>;

struct Neighborhood {
    std::int32_t length;
    std::int64_t count;
};

// The number of live items at a node on the query's path, and at its child on the path.
struct NodeCounts {
    std::uint64_t node = 0, child = 0;

    void add(const PrefixTree& tree, const Query& query, std::int32_t length, Range& range) {
        const auto [here, below] = tree.find_with_child(query, length);
        range = here;
        node += tree.live(here);
        child += tree.live(below);
    }
};

// The deepest neighborhood with at least `size` items, by galloping search from a starting length and then bisection.
// All trees together must have that many items.
inline Neighborhood gallop(Forest forest, const Query& query, std::int32_t length, std::uint64_t size, Range* ranges) {
    std::int32_t low = 0, high = forest.front().width + 1, step = 1;  // the answer is in [low, high)
    bool was_short = false, was_long = false;
    while (true) {
        NodeCounts counts;
        for (std::size_t t = 0; t < forest.size(); ++t) counts.add(forest[t], query, length, ranges[t]);
        const bool too_short = counts.node >= size;
        // Only a damaged file makes the interval empty: then any result will do, because it is discarded.
        if ((too_short && counts.child < size) || high - low < 2)
            return {length, static_cast<std::int64_t>(counts.node)};
        (too_short ? was_short : was_long) = true;
        (too_short ? low : high) = too_short ? length + 1 : length;
        if (was_short && was_long)
            length = (low + high) / 2;
        else
            length = too_short ? std::min(low + step - 1, high - 1) : std::max(high - step, low);
        step *= 2;
    }
}

// The neighborhoods of at most PrefixTree::kLanes queries. The largest tree is descended first: its length is the
// answer if it is the only tree and has no tombstones, otherwise a good starting point.
inline void find_neighborhoods(Forest forest, std::span<const Query> queries, std::uint64_t size, Neighborhood* found,
                               Range* ranges) {
    std::uint64_t live = 0;
    const PrefixTree* largest = forest.data();
    for (const PrefixTree& tree : forest) {
        live += tree.live();
        if (tree.count() > largest->count()) largest = &tree;
    }
    if (live < size) {  // the root, with all items
        for (std::size_t i = 0; i < queries.size(); ++i) {
            found[i] = {0, static_cast<std::int64_t>(live)};
            for (const PrefixTree& tree : forest) *ranges++ = {0, tree.count()};
        }
        return;
    }
    Node nodes[PrefixTree::kLanes];
    largest->descend(queries, static_cast<std::uint32_t>(size), nodes);
    for (std::size_t i = 0; i < queries.size(); ++i)  // tables of a crafted file may go on
        nodes[i].length = std::min(nodes[i].length, largest->width);
    if (forest.size() == 1 && largest->tombstones == nullptr) {
        for (std::size_t i = 0; i < queries.size(); ++i) {
            ranges[i] = nodes[i].range;
            found[i] = {nodes[i].length, nodes[i].range.size()};
        }
        return;
    }
    NodeCounts counts[PrefixTree::kLanes];  // tree by tree for all queries, so that their cache misses overlap
    for (std::size_t t = 0; t < forest.size(); ++t)
        for (std::size_t i = 0; i < queries.size(); ++i)
            counts[i].add(forest[t], queries[i], nodes[i].length, ranges[i * forest.size() + t]);
    for (std::size_t i = 0; i < queries.size(); ++i) {
        const bool too_short = counts[i].child >= size, exact = counts[i].node >= size && !too_short;
        found[i] = {nodes[i].length, static_cast<std::int64_t>(counts[i].node)};
        if (!exact)
            found[i] = gallop(forest, queries[i], nodes[i].length + too_short, size, ranges + i * forest.size());
    }
}

// Writes the length and the number of items of each query's neighborhood; ranges[i * trees + t] is its range in tree t.
inline void find_neighborhoods(Forest forest, Rows rows, std::uint64_t size, std::int32_t* lengths,
                               std::int64_t* counts, Range* ranges, std::size_t threads) {
    constexpr std::size_t thread_queries = 1 << 10;
    parallel_for(rows.count, thread_queries, threads, [=](std::size_t begin, std::size_t end) {
        Query queries[PrefixTree::kLanes];
        Neighborhood found[PrefixTree::kLanes];
        for (std::size_t first = begin; first < end; first += PrefixTree::kLanes) {
            const std::size_t count = std::min(PrefixTree::kLanes, end - first);
            for (std::size_t i = 0; i < count; ++i) {
                queries[i] = Query(rows[first + i], rows.bytes);
                // Only the first bytes of each row are read, so hardware prefetching does not help.
                __builtin_prefetch(rows[std::min(first + i + 2 * PrefixTree::kLanes, end - 1)]);
            }
            find_neighborhoods(forest, {queries, count}, size, found, ranges + first * forest.size());
            for (std::size_t i = 0; i < count; ++i) {
                lengths[first + i] = found[i].length;
                counts[first + i] = found[i].count;
            }
        }
    });
}

// Calls visit(position) for every live item of the range.
template <class Visit>
void visit_live(const PrefixTree& tree, Range range, const Visit& visit) {
    for (std::uint32_t position = range.begin; position < range.end; ++position)
        if (tree.tombstones == nullptr || !tree.tombstones->contains(position)) visit(position);
}

// Writes the ids of the live items in one range per tree, in the order of the trees.
inline std::int64_t* gather_ids(Forest forest, const Range* ranges, std::int64_t* ids) {
    for (std::size_t t = 0; t < forest.size(); ++t) {
        const PrefixTree& tree = forest[t];
        const Range range = ranges[t];
        if (range.size() == 0) continue;
        if (tree.tombstones == nullptr && tree.order.count == 0)
            ids = tree.ids.copy(range.begin, range.size(), ids);
        else
            visit_live(tree, range, [&](std::uint32_t position) { *ids++ = tree.ids[tree.row_of(position)]; });
    }
    return ids;
}

// The same for a batch: ranges[i * trees + t] is the range of query i in tree t, and its ids begin at offsets[i].
inline void gather_ids(Forest forest, const Range* ranges, const std::int64_t* offsets, std::size_t queries,
                       std::int64_t* ids, std::size_t threads) {
    constexpr std::size_t thread_queries = 1 << 10, ahead = 16;
    parallel_for(queries, thread_queries, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            if (i + ahead < end)
                for (std::size_t t = 0; t < forest.size(); ++t) {
                    const Range later = ranges[(i + ahead) * forest.size() + t];
                    if (forest[t].order.count == 0) forest[t].ids.prefetch(later.begin, later.size());
                }
            gather_ids(forest, ranges + i * forest.size(), ids + offsets[i]);
        }
    });
}

}  // namespace nestcode
