// Building a graph (graph.hpp): candidates from random projection trees, then passes of search and pruning.
//
// Leaves of random projection trees, compared all against all, give each item near ones to start with. Each pass
// searches the graph of the pass before for every item, and selects the item's neighbors among the visited nodes by the
// rule of relative neighborhood graphs: a candidate is occluded if a selected neighbor is nearer to it than the item is
// (robust pruning: Subramanya et al., "DiskANN", 2019). Passes read one graph and write another, so the result depends
// on the seed and not on the threads.
//
// Lists name items by how far they come after the list's own item, counted in a circle. Ties go to the next ones, so
// items at equal distances from each other form a ring and not a star around the first of them.
//
// Selection may leave items that walks cannot reach, above all among near copies. At the end each of them gets an edge.
#pragma once

#include <atomic>
#include <random>

#include "graph_search.hpp"

namespace nestcode {

struct GraphBuildOptions {
    std::size_t ef = 160;    // of the searches
    std::size_t passes = 1;  // of search and pruning
    std::size_t trees = 24;
    std::size_t leaf = 128;        // items of a tree's leaf, at most
    std::size_t degree = kDegree;  // neighbors that an item ends up with, at most
    float slack = 1.03f;           // by what factor a neighbor must be nearer to occlude a candidate
    std::uint64_t seed = 0;
};

// Keeps 32 of an item's candidates, keys of Hit that are sorted and distinct: those that no nearer one occludes, then
// the nearest of the others. `distance` is that of two items.
template <class Distance>
void select_neighbors(std::vector<std::uint64_t>& candidates, float slack, const Distance& distance) {
    std::uint64_t selected[kDegree];
    std::size_t count = 0, others = 0;  // others move to the front
    for (const std::uint64_t key : candidates) {
        bool occluded = count == kDegree;
        for (std::size_t i = 0; i < count && !occluded; ++i)
            occluded = slack * slack * distance(Hit::position(selected[i]), Hit::position(key)) < Hit::score(key);
        (occluded ? candidates[others++] : selected[count++]) = key;
    }
    candidates.resize(std::min(others, kDegree - count));
    candidates.insert(candidates.begin(), selected, selected + count);
}

// Calls work(begin, end) on ranges of at most `piece` items that cover [0, count), each as soon as a thread is free, as
// items take different times.
inline void parallel_pieces(std::size_t count, std::size_t piece, std::size_t threads, RangeFunction work) {
    std::atomic<std::size_t> next = 0;
    parallel_for(std::min(threads, (count + piece - 1) / piece), 1, threads, [&](std::size_t, std::size_t) {
        for (std::size_t begin; (begin = next.fetch_add(piece, std::memory_order_relaxed)) < count;)
            work(begin, std::min(begin + piece, count));
    });
}

class GraphBuilder {
  public:
    GraphBuilder(const GraphVectors<float>& vectors, const GraphCodes& codes, const GraphProjection& projection,
                 const GraphBuildOptions& options, Simd simd, std::size_t threads)
        : vectors_(vectors),
          codes_(codes),
          projection_(projection),
          options_(options),
          simd_(simd),
          threads_(threads),
          count_(codes.grouped.count),
          distance_(Metric::l2, vectors.features, simd),
          near_(count_ * kDegree, kNone),
          next_(count_ * kDegree) {}

    // Writes the neighbors of each item, (items, 32); a list that is not full repeats the item itself. They are those
    // nearest ones of 32 that a narrower list has room for.
    void build(std::span<const std::uint32_t> entries, std::uint32_t* neighbors) {
        for (const Tree& tree : grow_trees()) compare_leaves(tree);
        add_reverse_edges();
        const GraphEdges edges{neighbors, count_, entries};
        std::vector<std::uint8_t> data(edges.records() * GraphRecord::size(codes_.grouped.bytes));
        for (std::size_t pass = 0; pass < options_.passes; ++pass) {
            write(neighbors);
            const GraphRecords records(edges, codes_, data.data());
            records.pack_all(threads_);
            search(records);
            add_reverse_edges();
        }
        for (std::size_t i = 0; i < count_; ++i)
            std::fill(list(near_, i) + options_.degree, list(near_, i) + kDegree, kNone);
        connect(entries);
        write(neighbors);
    }

  private:
    static constexpr std::uint64_t kNone = UINT64_MAX;  // ends a list that is not full
    static constexpr std::size_t kPiece = 256;          // items that a thread searches for in a row

    struct Tree {
        std::vector<std::uint32_t> order;  // items, leaf by leaf
        std::vector<std::size_t> ends;     // of the leaves
    };

    std::uint64_t* list(std::vector<std::uint64_t>& lists, std::size_t item) const {
        return lists.data() + item * kDegree;
    }

    // How far `other` comes after `item`, and the inverse.
    std::uint32_t after(std::size_t item, std::size_t other) const {
        return static_cast<std::uint32_t>(other >= item ? other - item : other + count_ - item);
    }
    std::uint32_t find(std::size_t item, std::size_t steps) const {
        return static_cast<std::uint32_t>(item + steps < count_ ? item + steps : item + steps - count_);
    }

    float between(std::uint32_t a, std::uint32_t b) const {
        return clamp_to_finite(distance_(vectors_[a], vectors_[b]));
    }

    // Trees that halve the items at the median of their projections on the difference of two random ones.
    std::vector<Tree> grow_trees() const {
        std::vector<Tree> trees(options_.trees);
        parallel_for(trees.size(), 1, threads_, [&](std::size_t begin, std::size_t end) {
            for (std::size_t t = begin; t < end; ++t) trees[t] = grow_tree(options_.seed * options_.trees + t);
        });
        return trees;
    }

    Tree grow_tree(std::uint64_t seed) const {
        std::mt19937_64 random(seed);
        const RowSumsKernel<float> product = row_sums_kernel<float, false>(simd_);
        std::vector<std::uint64_t> keys(count_);  // of projections and items
        for (std::size_t i = 0; i < count_; ++i) keys[i] = Hit::pack(0, static_cast<std::uint32_t>(i));
        std::vector<float> normal(vectors_.features);
        Tree tree;
        std::vector<std::pair<std::size_t, std::size_t>> ranges{{0, count_}};  // the next one is last
        while (!ranges.empty()) {
            const auto [begin, end] = ranges.back();
            ranges.pop_back();
            if (end - begin <= options_.leaf) {
                tree.ends.push_back(end);
                continue;
            }
            const float* one = vectors_[Hit::position(keys[begin + random() % (end - begin)])];
            const float* other = vectors_[Hit::position(keys[begin + random() % (end - begin)])];
            for (std::size_t f = 0; f < normal.size(); ++f) normal[f] = one[f] - other[f];
            for (std::size_t i = begin; i < end; ++i) {
                const std::uint32_t item = Hit::position(keys[i]);
                keys[i] =
                    Hit::pack(clamp_to_finite(product(normal.data(), vectors_[item], normal.size()).product), item);
            }
            const std::size_t middle = begin + (end - begin) / 2;
            const auto at = [&](std::size_t i) { return keys.begin() + static_cast<std::ptrdiff_t>(i); };
            std::nth_element(at(begin), at(middle), at(end));
            ranges.emplace_back(middle, end);
            ranges.emplace_back(begin, middle);
        }
        tree.order.resize(count_);
        for (std::size_t i = 0; i < count_; ++i) tree.order[i] = Hit::position(keys[i]);
        return tree;
    }

    // Compares the items of each leaf with each other and keeps the nearest of each item.
    void compare_leaves(const Tree& tree) {
        parallel_pieces(tree.ends.size(), 16, threads_, [&](std::size_t first, std::size_t last) {
            for (std::size_t leaf = first; leaf < last; ++leaf)
                for (std::size_t i = leaf == 0 ? 0 : tree.ends[leaf - 1]; i < tree.ends[leaf]; ++i)
                    for (std::size_t j = i + 1; j < tree.ends[leaf]; ++j) {
                        const std::uint32_t a = tree.order[i], b = tree.order[j];
                        const float distance = between(a, b);
                        keep_nearest(list(near_, a), Hit::pack(distance, after(a, b)));
                        keep_nearest(list(near_, b), Hit::pack(distance, after(b, a)));
                    }
        });
    }

    static void keep_nearest(std::uint64_t* keys, std::uint64_t key) {
        if (key >= keys[kDegree - 1]) return;
        std::uint64_t* place = std::lower_bound(keys, keys + kDegree, key);
        if (*place == key) return;
        std::move_backward(place, keys + kDegree - 1, keys + kDegree);
        *place = key;
    }

    // Replaces each item's list by a selection among it and the nodes that a search for the item visits.
    void search(const GraphRecords& records) {
        const GraphWalker<float> walker(records, vectors_, projection_, Metric::l2, simd_);
        parallel_pieces(count_, kPiece, threads_, [&](std::size_t begin, std::size_t end) {
            GraphQueries batch(projection_, end - begin, Metric::l2, simd_);
            std::vector<std::uint64_t> candidates;
            walk_graph(
                walker, batch, vectors_[begin], end - begin, options_.ef, [](std::size_t) { return SIZE_MAX; }, {},
                [&](std::size_t q, std::uint32_t id, float distance, float) {
                    if (id != begin + q)
                        candidates.push_back(Hit::pack(clamp_to_finite(distance), after(begin + q, id)));
                },
                [&](std::size_t q, const GraphPool&, std::size_t) -> std::size_t {
                    const std::size_t i = begin + q;
                    candidates.insert(candidates.end(), list(near_, i), list(near_, i) + kDegree);
                    select(i, candidates, list(next_, i));
                    candidates.clear();
                    return 0;
                });
        });
        near_.swap(next_);
    }

    // Replaces each item's list by a selection among it and the items that list it.
    void add_reverse_edges() {
        // Each thread reads all edges and takes those to its own items.
        parallel_for(count_, 1024, threads_, [&](std::size_t begin, std::size_t end) {
            std::vector<std::vector<std::uint64_t>> candidates(end - begin);
            for (std::size_t i = 0; i < count_; ++i)
                for (std::size_t j = 0; j < kDegree; ++j) {
                    const std::uint64_t key = near_[i * kDegree + j];
                    if (key == kNone) break;
                    const std::size_t to = find(i, Hit::position(key));
                    if (to >= begin && to < end)
                        candidates[to - begin].push_back(Hit::pack(Hit::score(key), after(to, i)));
                }
            for (std::size_t i = begin; i < end; ++i) {
                std::vector<std::uint64_t>& own = candidates[i - begin];
                own.insert(own.end(), list(near_, i), list(near_, i) + kDegree);
                select(i, own, list(next_, i));
                own = {};
            }
        });
        near_.swap(next_);
    }

    void select(std::size_t item, std::vector<std::uint64_t>& candidates, std::uint64_t* out) const {
        std::sort(candidates.begin(), candidates.end());
        candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
        if (!candidates.empty() && candidates.back() == kNone) candidates.pop_back();
        candidates.resize(std::min(candidates.size(), std::max(options_.ef, 2 * kDegree)));  // hubs have thousands
        select_neighbors(candidates, options_.slack,
                         [&](std::uint32_t a, std::uint32_t b) { return between(find(item, a), find(item, b)); });
        std::fill(std::copy(candidates.begin(), candidates.end(), out), out + kDegree, kNone);
    }

    // Adds edges to items that no walk from the entry points reaches, as NSG does (Fu, Xiang, Wang, Cai 2019), and to
    // those that nothing near them lists: a walk among near copies would miss them.
    void connect(std::span<const std::uint32_t> entries) {
        std::vector<bool> reached(count_);
        // kept: a bit for each place of an edge that others need, or behind the last place
        std::vector<std::uint32_t> kept(count_, ~(UINT32_MAX >> (kDegree - options_.degree))), open;
        const auto reach = [&](std::uint32_t item) {
            if (reached[item]) return false;
            reached[item] = true;
            open.push_back(item);
            return true;
        };
        const auto spread = [&] {
            while (!open.empty()) {
                const std::uint32_t from = open.back();
                open.pop_back();
                for (std::size_t i = 0; i < kDegree; ++i) {
                    const std::uint64_t key = list(near_, from)[i];
                    if (key != kNone && reach(find(from, Hit::position(key)))) kept[from] |= 1u << i;
                }
            }
        };
        for (const std::uint32_t entry : entries) reach(entry);
        spread();
        for (std::uint32_t item = 0; item < count_; ++item) {
            if (reached[item]) continue;
            link(item, reached, kept);
            reach(item);
            spread();
        }
        for (std::uint32_t item = 0; item < count_; ++item)
            if (!is_listed_nearby(item)) link(item, reached, kept);
    }

    bool lists(std::uint32_t from, std::uint32_t item) {
        const std::span<const std::uint64_t> keys(list(near_, from), kDegree);
        const std::uint32_t steps = after(from, item);
        return std::any_of(keys.begin(), keys.end(),
                           [steps](std::uint64_t key) { return key != kNone && Hit::position(key) == steps; });
    }

    // Whether a neighbor lists the item that is at most twice as far as the nearest.
    bool is_listed_nearby(std::uint32_t item) {
        const std::span<const std::uint64_t> keys(list(near_, item), kDegree);
        return std::any_of(keys.begin(), keys.end(), [&](std::uint64_t key) {
            const bool is_near = key != kNone && Hit::score(key) <= 4 * Hit::score(keys[0]);
            return is_near && lists(find(item, Hit::position(key)), item);
        });
    }

    // Adds an edge to an item from the nearest one that is reached and has a place for it, among the item's neighbors
    // and those around it in order. Some have: there are more places than edges that others need.
    void link(std::uint32_t item, const std::vector<bool>& reached, std::vector<std::uint32_t>& kept) {
        constexpr std::size_t enough = 32;
        std::uint64_t best = kNone;
        std::size_t tried = 0;
        const auto attempt = [&](std::uint32_t from) {
            if (!reached[from] || place_in(from, kept[from]) == kDegree || lists(from, item)) return;
            best = std::min(best, Hit::pack(between(from, item), after(item, from)));
            ++tried;
        };
        for (const std::uint64_t key : std::span(list(near_, item), kDegree))
            if (key != kNone) attempt(find(item, Hit::position(key)));
        for (std::size_t steps = 1; steps < count_ && tried < enough; ++steps) {
            attempt(find(item, steps));
            attempt(find(item, count_ - steps));
        }
        if (best == kNone) return;
        const std::uint32_t from = find(item, Hit::position(best));
        const std::size_t place = place_in(from, kept[from]);
        list(near_, from)[place] = Hit::pack(Hit::score(best), after(from, item));
        kept[from] |= 1u << place;
    }

    // The first free place of an item's list, or else the last one whose edge is not kept; 32 if there is none.
    std::size_t place_in(std::uint32_t item, std::uint32_t kept) {
        const std::uint64_t* keys = list(near_, item);
        const auto free = static_cast<std::size_t>(std::find(keys, keys + options_.degree, kNone) - keys);
        if (free < options_.degree) return free;
        return kept == UINT32_MAX ? kDegree : 31 - static_cast<std::size_t>(std::countl_one(kept));
    }

    void write(std::uint32_t* neighbors) const {
        for (std::size_t i = 0; i < near_.size(); ++i)
            neighbors[i] = find(i / kDegree, near_[i] != kNone ? Hit::position(near_[i]) : 0);
    }

    const GraphVectors<float> vectors_;
    const GraphCodes codes_;
    const GraphProjection projection_;
    const GraphBuildOptions options_;
    const Simd simd_;
    const std::size_t threads_, count_;
    const RowDistance<float> distance_;
    std::vector<std::uint64_t> near_, next_;  // (items, 32): keys of distance and neighbor
};

}  // namespace nestcode
