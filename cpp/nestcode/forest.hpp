// Several trees asked as one, and merged into one: the segments of an index.
#pragma once

#include "tree.hpp"

namespace nestcode {

using Forest = std::span<const Tree>;

struct Neighborhood {
    std::int32_t length;
    std::int64_t count;
};

// How many items share the first bits of a query, and how many one bit more.
struct Members {
    std::uint64_t here = 0, longer = 0;

    void add(const Tree& tree, const Query& query, std::int32_t length, Range& range) {
        const auto [at, below] = tree.find_two(query, length);
        range = at;
        here += tree.alive(at);
        longer += tree.alive(below);
    }
};

// The deepest neighbourhood with at least `size` members, which all items together must have, in steps that double
// away from a length until the answer lies between two, and then halve.
inline Neighborhood settle(Forest forest, const Query& query, std::int32_t length, std::uint64_t size, Range* ranges) {
    std::int32_t low = 0, high = forest.front().width + 1, step = 1;  // the answer is in [low, high)
    bool was_short = false, was_long = false;
    while (true) {
        Members members;
        for (std::size_t t = 0; t < forest.size(); ++t) members.add(forest[t], query, length, ranges[t]);
        const bool too_short = members.here >= size;
        // Only numbers from a damaged file leave nothing between: then any answer will do, it is not given.
        if ((too_short && members.longer < size) || high - low < 2)
            return {length, static_cast<std::int64_t>(members.here)};
        (too_short ? was_short : was_long) = true;
        (too_short ? low : high) = too_short ? length + 1 : length;
        if (was_short && was_long)
            length = (low + high) / 2;
        else
            length = too_short ? std::min(low + step - 1, high - 1) : std::max(high - step, low);
        step *= 2;
    }
}

// The neighbourhoods of at most Tree::lanes queries. What the largest tree finds for itself is the answer where it is
// the only one and nothing was removed; else it is a good guess.
inline void find_neighborhoods(Forest forest, std::span<const Query> queries, std::uint64_t size, Neighborhood* found,
                               Range* ranges) {
    std::uint64_t alive = 0;
    const Tree* largest = forest.data();
    for (const Tree& tree : forest) {
        alive += tree.alive();
        if (tree.count() > largest->count()) largest = &tree;
    }
    if (alive < size) {  // the root, with all there is
        for (std::size_t i = 0; i < queries.size(); ++i) {
            found[i] = {0, static_cast<std::int64_t>(alive)};
            for (const Tree& tree : forest) *ranges++ = {0, tree.count()};
        }
        return;
    }
    Node nodes[Tree::lanes];
    largest->descend(queries, static_cast<std::uint32_t>(size), nodes);
    if (forest.size() == 1 && largest->removed == nullptr) {
        for (std::size_t i = 0; i < queries.size(); ++i) {
            ranges[i] = nodes[i].range;
            found[i] = {nodes[i].length, nodes[i].range.size()};
        }
        return;
    }
    Members members[Tree::lanes];  // tree by tree for all queries, so that their look-ups overlap
    for (std::size_t t = 0; t < forest.size(); ++t)
        for (std::size_t i = 0; i < queries.size(); ++i)
            members[i].add(forest[t], queries[i], nodes[i].length, ranges[i * forest.size() + t]);
    for (std::size_t i = 0; i < queries.size(); ++i) {
        const bool too_short = members[i].longer >= size, settled = members[i].here >= size && !too_short;
        found[i] = {nodes[i].length, static_cast<std::int64_t>(members[i].here)};
        if (!settled)
            found[i] = settle(forest, queries[i], nodes[i].length + too_short, size, ranges + i * forest.size());
    }
}

// lengths[i] and counts[i] describe the neighbourhood of query i, ranges[i * trees + t] where it lies in tree t.
inline void find_neighborhoods(Forest forest, Rows rows, std::uint64_t size, std::int32_t* lengths,
                               std::int64_t* counts, Range* ranges, std::size_t threads) {
    constexpr std::size_t thread_queries = 1 << 10;
    parallel_for(rows.count, thread_queries, threads, [=](std::size_t begin, std::size_t end) {
        Query queries[Tree::lanes];
        Neighborhood found[Tree::lanes];
        for (std::size_t first = begin; first < end; first += Tree::lanes) {
            const std::size_t count = std::min(Tree::lanes, end - first);
            for (std::size_t i = 0; i < count; ++i) {
                queries[i] = Query(rows[first + i], rows.bytes);
                // The rows of queries are far apart, and only their first bytes are read.
                __builtin_prefetch(rows[std::min(first + i + 2 * Tree::lanes, end - 1)]);
            }
            find_neighborhoods(forest, {queries, count}, size, found, ranges + first * forest.size());
            for (std::size_t i = 0; i < count; ++i) {
                lengths[first + i] = found[i].length;
                counts[first + i] = found[i].count;
            }
        }
    });
}

// Calls visit(place) for every item of the range that has not been removed.
template <class Visit>
void visit_alive(const Tree& tree, Range range, const Visit& visit) {
    for (std::uint32_t place = range.begin; place < range.end; ++place)
        if (tree.removed == nullptr || !tree.removed->contains(place)) visit(place);
}

// Write the ids of what lies in the ranges and has not been removed.
inline void gather_ids(Forest forest, const Range* ranges, std::int64_t* ids) {
    for (std::size_t t = 0; t < forest.size(); ++t)
        visit_alive(forest[t], ranges[t],
                    [&](std::uint32_t place) { *ids++ = forest[t].ids[forest[t].row_of(place)]; });
}

// Write the rows, heads and ids of all that has not been removed, in order; of equal codes those of earlier trees
// come first.
inline void merge(Forest forest, std::uint8_t* rows, std::uint64_t* heads, std::int64_t* ids) {
    struct Cursor {
        const Tree* tree;
        std::vector<std::uint32_t> places;
        std::size_t next = 0;
        std::uint64_t head = 0;

        bool advance() {
            if (next == places.size()) return false;
            head = tree->heads[places[next++]];
            return true;
        }
        std::uint32_t place() const { return places[next - 1]; }
        const std::uint8_t* row() const { return tree->row(place()); }
        bool before(const Cursor& other) const {
            if (head != other.head) return head < other.head;
            return std::memcmp(row(), other.row(), tree->rows.bytes) < 0;
        }
    };
    std::vector<Cursor> cursors;
    for (const Tree& tree : forest) {
        Cursor cursor{&tree, {}};
        cursor.places.reserve(tree.alive());
        visit_alive(tree, {0, tree.count()}, [&](std::uint32_t place) { cursor.places.push_back(place); });
        if (cursor.advance()) cursors.push_back(std::move(cursor));
    }
    while (!cursors.empty()) {
        std::size_t least = 0;
        for (std::size_t c = 1; c < cursors.size(); ++c)
            if (cursors[c].before(cursors[least])) least = c;
        Cursor& cursor = cursors[least];
        const std::size_t bytes = cursor.tree->rows.bytes;
        if (bytes != 0) std::memcpy(rows, cursor.row(), bytes);
        rows += bytes;
        *heads++ = cursor.head;
        *ids++ = cursor.tree->ids[cursor.tree->row_of(cursor.place())];
        if (!cursor.advance()) cursors.erase(cursors.begin() + static_cast<std::ptrdiff_t>(least));
    }
}

// Add rows `first`, `first` + 1, ... to a sorted order of the rows before them that takes `heads` and `order`. What
// comes out is as sorting all of them would give.
inline void insert_rows(Rows rows, std::size_t first, const std::uint64_t* heads, const std::uint32_t* order,
                        std::size_t count, std::uint64_t* new_heads, std::uint32_t* new_order) {
    struct Key {
        std::uint64_t head;
        std::uint32_t row;
    };
    const auto before = [&](const Key& a, const Key& b) {
        if (a.head != b.head) return a.head < b.head;
        const int sign = rows.bytes == 0 ? 0 : std::memcmp(rows[a.row], rows[b.row], rows.bytes);
        return sign != 0 ? sign < 0 : a.row < b.row;
    };
    std::vector<Key> added, all(count + rows.count - first);
    for (std::size_t i = first; i < rows.count; ++i)
        added.push_back({load_ordered(rows[i], rows.bytes), static_cast<std::uint32_t>(i)});
    std::sort(added.begin(), added.end(), before);
    std::vector<Key> old(count);
    for (std::size_t i = 0; i < count; ++i) old[i] = {heads[i], order[i]};
    std::merge(old.begin(), old.end(), added.begin(), added.end(), all.begin(), before);
    for (std::size_t i = 0; i < all.size(); ++i) {
        new_heads[i] = all[i].head;
        new_order[i] = all[i].row;
    }
}

// found[i] = the place of the item wanted[i] among `ids`, or -1; `places` lists them by ascending id.
inline void find_ids(Column<std::int64_t> ids, Column<std::uint32_t> places, const std::int64_t* wanted,
                     std::size_t count, std::int64_t* found) {
    const auto id_at = [&](std::size_t i) { return ids[std::min<std::size_t>(places[i], ids.count - 1)]; };
    for (std::size_t w = 0; w < count; ++w) {
        std::size_t begin = 0, end = places.count;
        while (begin < end) {
            const std::size_t middle = begin + (end - begin) / 2;
            if (id_at(middle) < wanted[w])
                begin = middle + 1;
            else
                end = middle;
        }
        found[w] = begin < places.count && id_at(begin) == wanted[w] ? static_cast<std::int64_t>(places[begin]) : -1;
    }
}

}  // namespace nestcode
