// Building sorted segments: the k-way merge of compaction, insertion into sorted rows, and lookup of ids.
#pragma once

#include "forest.hpp"

namespace nestcode {

// The k-way merge of the live items of all trees: writes their rows, heads and ids in sorted order, and where they come
// from: positions that count through all trees. Of equal codes those of earlier trees come first. There are few trees,
// so a linear scan over the cursors replaces a heap.
inline void merge_live(Forest forest, std::uint8_t* rows, std::uint64_t* heads, std::int64_t* ids,
                       std::int64_t* sources) {
    struct Cursor {
        const PrefixTree* tree;
        std::int64_t offset;  // the number of items in the trees before this one
        std::vector<std::uint32_t> positions;
        std::size_t next = 0;
        std::uint64_t head = 0;

        bool advance() {
            if (next == positions.size()) return false;
            head = tree->heads[positions[next++]];
            return true;
        }
        std::uint32_t position() const { return positions[next - 1]; }
        const std::uint8_t* row() const { return tree->row(position()); }
        bool before(const Cursor& other) const {
            if (head != other.head) return head < other.head;
            return std::memcmp(row(), other.row(), tree->rows.bytes) < 0;
        }
    };
    std::vector<Cursor> cursors;
    std::int64_t offset = 0;
    for (const PrefixTree& tree : forest) {
        Cursor cursor{&tree, offset, {}};
        offset += tree.count();
        cursor.positions.reserve(tree.live());
        visit_live(tree, {0, tree.count()}, [&](std::uint32_t position) { cursor.positions.push_back(position); });
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
        *ids++ = cursor.tree->ids[cursor.tree->row_of(cursor.position())];
        *sources++ = cursor.offset + cursor.position();
        if (!cursor.advance()) cursors.erase(cursors.begin() + static_cast<std::ptrdiff_t>(least));
    }
}

// Inserts rows `first`, `first` + 1, … into the sorted order of the rows before them, given by their `heads` and
// `order`. The result is the same as sorting all rows.
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
        added.push_back({load_big_endian(rows[i], rows.bytes), static_cast<std::uint32_t>(i)});
    std::sort(added.begin(), added.end(), before);
    std::vector<Key> old(count);
    for (std::size_t i = 0; i < count; ++i) old[i] = {heads[i], order[i]};
    std::merge(old.begin(), old.end(), added.begin(), added.end(), all.begin(), before);
    for (std::size_t i = 0; i < all.size(); ++i) {
        new_heads[i] = all[i].head;
        new_order[i] = all[i].row;
    }
}

// found[i] = the position of the id wanted[i], or -1, by binary search; `by_id` lists all positions by ascending id.
inline void find_ids(IdColumn ids, Column<std::uint32_t> by_id, const std::int64_t* wanted, std::size_t count,
                     std::int64_t* found) {
    const auto id_at = [&](std::size_t i) { return ids[std::min<std::size_t>(by_id[i], ids.count() - 1)]; };
    for (std::size_t w = 0; w < count; ++w) {
        std::size_t begin = 0, end = by_id.count;
        while (begin < end) {
            const std::size_t middle = begin + (end - begin) / 2;
            if (id_at(middle) < wanted[w])
                begin = middle + 1;
            else
                end = middle;
        }
        found[w] = begin < by_id.count && id_at(begin) == wanted[w] ? static_cast<std::int64_t>(by_id[begin]) : -1;
    }
}

}  // namespace nestcode
