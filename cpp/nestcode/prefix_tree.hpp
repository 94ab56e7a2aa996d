// The paper's binary tree (section 5.1): a prefix tree over sorted codes, descended by the bits of a query.
//
// A node is a prefix, and its items are adjacent in the sorted array, so the array is the tree. Lookup tables answer
// queries at the top (prefix_tables.hpp). Below them a node is found by binary search, first over the heads (the first
// 64 bits of each code, in an array of their own), then over whole rows.
#pragma once

#include <span>

#include "lexicographic_order.hpp"
#include "prefix_tables.hpp"
#include "tombstones.hpp"

namespace nestcode {

struct Query {
    const std::uint8_t* row;
    std::uint64_t head;

    Query() = default;
    Query(const std::uint8_t* row, std::size_t bytes) : row(row), head(load_big_endian(row, bytes)) {}
};

// The position of the first head that is not less than `key`, by branchless binary search.
inline std::uint32_t lower_bound(const std::uint64_t* heads, Range range, std::uint64_t key) {
    const std::uint64_t* first = heads + range.begin;
    std::uint32_t remaining = range.size();
    if (remaining == 0) return range.begin;
    while (remaining > 1) {
        const std::uint32_t half = remaining / 2;
        first += first[half - 1] < key ? half : 0;
        remaining -= half;
    }
    return static_cast<std::uint32_t>(first - heads) + (*first < key);
}

// A node on the query's path: the items that share its first `length` bits.
struct Node {
    std::int32_t length;
    Range range;
};

struct PrefixTree {
    Rows rows;
    ChecksumGuard* rows_guard = nullptr;
    Column<std::uint64_t> heads;   // in sorted order
    Column<std::uint32_t> order;   // the row at each position; empty if the rows themselves are sorted
    Column<std::uint32_t> tables;  // prefix_tables.hpp
    const Tombstones* tombstones = nullptr;
    IdColumn ids;  // of the rows
    std::int32_t width = 0;

    std::uint32_t count() const { return static_cast<std::uint32_t>(heads.count); }
    std::uint32_t live() const { return count() - (tombstones != nullptr ? tombstones->count : 0); }

    std::size_t row_of(std::uint32_t position) const { return order.count != 0 ? order[position] : position; }

    const std::uint8_t* row(std::uint32_t position) const {
        const std::uint8_t* found = rows[row_of(position)];
        if (rows_guard != nullptr && rows.bytes != 0) rows_guard->touch(found, rows.bytes);
        return found;
    }

    std::uint32_t live(Range range) const { return count_live(range, tombstones); }

    // The items of `within` that share the query's first `length` bits.
    Range narrow(const Query& query, std::int32_t length, Range within) const {
        if (within.size() == 0) return within;
        const std::uint64_t* near = heads.at(within.begin, within.size()) - within.begin;
        const std::uint64_t rest = length < 64 ? ~std::uint64_t{0} >> length : 0;
        const std::uint32_t begin = lower_bound(near, within, query.head & ~rest);
        const std::uint64_t last = query.head | rest;
        within = {begin, last == ~std::uint64_t{0} ? within.end : lower_bound(near, {begin, within.end}, last + 1)};
        if (length <= 64) return within;
        const auto first = [&](std::uint32_t from, int least) {
            std::uint32_t to = within.end;
            while (from < to) {
                const std::uint32_t middle = from + (to - from) / 2;
                if (compare(middle, query, length) < least)
                    from = middle + 1;
                else
                    to = middle;
            }
            return from;
        };
        const std::uint32_t from = first(within.begin, 0);
        return {from, first(from, 1)};
    }

    // Writes where the items of each prefix of `length` bits begin, and where the last ones end.
    void find_starts(std::int32_t length, std::uint32_t* out) const {
        const PrefixTable root(tables, 0);
        const std::size_t prefixes = std::size_t{1} << length;
        if (length <= root.depth) {
            std::copy_n(tables.at(root.start + level_offset(length), prefixes + 1), prefixes + 1, out);
            return;
        }
        std::size_t prefix = 0;
        if (count() != 0) heads.at(0, count());
        for (std::uint32_t i = 0; i < count(); ++i)
            for (const std::size_t own = leading(heads.data[i], length); prefix <= own; ++prefix) out[prefix] = i;
        for (; prefix <= prefixes; ++prefix) out[prefix] = count();
    }

    // All items that share the query's first `length` bits.
    Range find(const Query& query, std::int32_t length) const {
        PrefixTable table(tables, 0);
        std::uint64_t head = query.head;
        std::int32_t shared = 0;
        while (length > shared + table.depth) {
            const std::size_t below = table.below(head);
            if (below == 0 || shared >= 64) return narrow(query, length, within(table.find(head, table.depth)));
            shared += table.depth;
            head <<= table.depth;
            table = PrefixTable(tables, below);
        }
        return within(table.find(head, length - shared));
    }

    // The items that share `length` bits, and those of them that share one more. If few are left at the last level of
    // the table, they are compared without branches.
    std::pair<Range, Range> find_with_child(const Query& query, std::int32_t length) const {
        constexpr std::uint32_t few = 4;
        const PrefixTable root(tables, 0);
        if (length < root.depth)
            return {within(root.find(query.head, length)), within(root.find(query.head, length + 1))};
        const Range node = within(root.find(query.head, root.depth));
        if (count() == 0 || node.size() > few || length >= std::min(width, 64))
            return {find(query, length), length < width ? find(query, length + 1) : Range{0, 0}};
        if (heads.guard != nullptr && node.size() != 0) heads.at(node.begin, node.size());
        const std::uint64_t key = leading(query.head, length + 1);
        std::uint32_t below = 0, equal = 0, below_longer = 0, equal_longer = 0;
        for (std::uint32_t i = 0; i < few; ++i) {
            const bool inside = i < node.size();
            const std::uint64_t own = leading(heads.data[inside ? node.begin + i : 0], length + 1);
            below += inside & (own >> 1 < key >> 1);
            equal += inside & (own >> 1 == key >> 1);
            below_longer += inside & (own < key);
            equal_longer += inside & (own == key);
        }
        return {{node.begin + below, node.begin + below + equal},
                {node.begin + below_longer, node.begin + below_longer + equal_longer}};
    }

    // Descends to the deepest node with at least `size` items, for at most `kLanes` queries in lockstep: their cache
    // misses overlap. Deleted items count here.
    static constexpr std::size_t kLanes = 8;

    void descend(std::span<const Query> queries, std::uint32_t size, Node* nodes) const {
        if (tables.guard != nullptr)
            descend<true>(queries, size, nodes);
        else
            descend<false>(queries, size, nodes);
    }

    template <bool guarded>
    void descend(std::span<const Query> queries, std::uint32_t size, Node* nodes) const {
        for (std::size_t i = 0; i < queries.size(); ++i) nodes[i] = {0, {0, count()}};
        if (count() < size) return;
        const PrefixTable root(tables, 0);
        // A structure of arrays over the lanes: the time of a search is spent in this loop.
        std::uint64_t head[kLanes];  // shifted by the bits above the lane's table
        std::size_t table[kLanes], query[kLanes], below_tables[kLanes], open = 0, low = 0;
        std::int32_t depth[kLanes], above[kLanes], length[kLanes];
        const auto members = [&](std::size_t start, std::uint64_t bits, std::int32_t many) {
            const std::size_t at = start + level_offset(many) + leading(bits, many);
            if constexpr (guarded) tables.at(at, 2);
            Range found;
            std::memcpy(&found, tables.data + at, sizeof found);
            return found;
        };
        // Balanced codes end within two bits of log2(count / size): independent lookups settle most queries.
        const auto likely = static_cast<std::int32_t>(std::bit_width(count() / size)) - 1;
        const bool balanced = likely + 2 <= root.depth;
        for (std::size_t i = 0; i < queries.size(); ++i) {
            const std::uint64_t bits = queries[i].head;
            if (balanced) {
                const Range at_least = members(0, bits, likely), longer = members(0, bits, likely + 1);
                if (at_least.size() >= size && members(0, bits, likely + 2).size() < size) {
                    const bool one = longer.size() >= size;
                    nodes[i] = {likely + one, within(one ? longer : at_least)};
                    continue;
                }
            }
            head[open] = bits;
            query[open] = i;
            table[open] = 0;
            depth[open] = root.depth;
            above[open++] = 0;
        }
        while (open != 0) {
            std::uint32_t deepest = 0;
            for (std::size_t i = 0; i < open; ++i) {
                deepest = std::max(deepest, static_cast<std::uint32_t>(depth[i]));
                length[i] = 0;
            }
            for (auto step = static_cast<std::int32_t>(std::bit_floor(deepest)); step > 0; step /= 2)
                for (std::size_t i = 0; i < open; ++i) {
                    const std::int32_t longer = length[i] + step, trial = std::min(longer, depth[i]);
                    length[i] =
                        (members(table[i], head[i], trial).size() >= size) & (trial == longer) ? trial : length[i];
                }
            std::size_t kept = 0;
            for (std::size_t i = 0; i < open; ++i) {
                Node& node = nodes[query[i]] = {above[i] + length[i], within(members(table[i], head[i], length[i]))};
                if (length[i] < depth[i]) continue;
                const std::size_t below =
                    depth[i] == 0 ? 0 : tables[table[i] + level_offset(depth[i] + 1) + leading(head[i], depth[i])];
                if (below == 0 || above[i] >= 64) {
                    __builtin_prefetch(heads.data + node.range.begin);
                    below_tables[low++] = query[i];
                    continue;
                }
                __builtin_prefetch(tables.data + below);
                head[kept] = head[i] << depth[i];
                query[kept] = query[i];
                above[kept] = above[i] + depth[i];
                table[kept++] = below;
            }
            open = kept;
            for (std::size_t i = 0; i < open; ++i) {
                const PrefixTable next(tables, table[i]);
                table[i] = next.start;
                depth[i] = next.depth;
            }
        }
        for (std::size_t i = 0; i < low; ++i) {
            Node& node = nodes[below_tables[i]];
            node = bisect(queries[below_tables[i]], node, size);
        }
    }

  private:
    Range within(Range range) const {
        const std::uint32_t end = std::min(range.end, count());
        return {std::min(range.begin, end), end};
    }

    // Below the tables: of the windows of `size` adjacent items around the query's position, the one that shares most.
    Node bisect(const Query& query, Node node, std::uint32_t size) const {
        if (node.range.size() < size) return node;
        const auto [begin, end] = node.range;
        const std::uint64_t* near = heads.at(begin, end - begin) - begin;
        const auto shared = [&](std::uint32_t at) { return std::countl_zero(near[at] ^ query.head); };
        const std::uint32_t position = lower_bound(near, node.range, query.head);
        // A window that starts further right shares more bits at its left end and fewer at its right end; the best
        // start is where the two cross. An end on the other side of the query's position does not count.
        std::uint32_t first = position - begin > size ? position - size : begin;
        std::uint32_t last = std::min(position, end - size);
        const auto common = [&](std::uint32_t start) { return std::min(shared(start), shared(start + size - 1)); };
        while (first < last) {
            const std::uint32_t middle = first + (last - first) / 2, right = middle + size - 1;
            if (right < position || shared(middle) < shared(right))
                first = middle + 1;
            else
                last = middle;
        }
        std::int32_t length = common(first);
        if (first > begin) length = std::max(length, common(first - 1));
        length = std::min(length, width);
        if (length > node.length) node = {length, narrow(query, length, node.range)};
        return length < 64 || width <= 64 ? node : bisect_rows(query, node, size);
    }

    // More than 64 shared bits: galloping search over the length, comparing whole rows.
    Node bisect_rows(const Query& query, Node node, std::uint32_t size) const {
        std::int32_t too_long = width + 1;
        for (std::int32_t step = 1; node.length + 1 < too_long;) {
            const std::int32_t trial = std::min(node.length + step, (node.length + too_long) / 2);
            const Range range = narrow(query, trial, node.range);
            if (range.size() < size) {
                too_long = trial;
            } else {
                node = {trial, range};
                step *= 2;
            }
        }
        return node;
    }

    // Whether the first `length` bits of an item are less than (-1), equal to (0) or greater than (1) the query's.
    int compare(std::uint32_t position, const Query& query, std::int32_t length) const {
        const std::uint8_t* item = row(position);
        if (common_prefix(item, query.row, rows.bytes, width) >= length) return 0;
        return std::memcmp(item, query.row, rows.bytes) < 0 ? -1 : 1;
    }
};

}  // namespace nestcode
