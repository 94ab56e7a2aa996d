// Search: the items nearest to a query, among those in the cells nearest to it.
//
// A cell is all items that share a prefix of `bits` bits. Cells are taken in order of their distance from the query
// until they hold enough candidates; the items in them, which lie side by side, are ranked.
#pragma once

#include <limits>

#include "hamming.hpp"
#include "scan.hpp"
#include "tree.hpp"

namespace nestcode {

// Items in the order of their codes, and what ranking needs to know of them.
struct SearchPart {
    Rows rows;
    const std::uint32_t* starts;  // where each cell begins, and the end
    Blocks blocks;
    const float* norms = nullptr;
    const Removed* skipped = nullptr;
    std::uint32_t offset = 0;  // how many items the parts before it have

    bool has(std::uint32_t place) const { return skipped == nullptr || !skipped->contains(place); }

    Range range(std::size_t first, std::size_t last) const { return {starts[first], starts[last]}; }

    std::uint32_t alive(Range range) const { return count_alive(range, skipped); }
};

using SearchParts = std::span<const SearchPart>;

// A score and where its item lies, as one number that orders by score: numbers compare faster than pairs.
struct Hit {
    static std::uint64_t pack(float score, std::uint32_t place) {
        const auto bits = std::bit_cast<std::uint32_t>(score);
        const std::uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
        return std::uint64_t{ordered} << 32 | place;
    }
    static float score(std::uint64_t hit) {
        const auto ordered = static_cast<std::uint32_t>(hit >> 32);
        return std::bit_cast<float>(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
    }
    static std::uint32_t place(std::uint64_t hit) { return static_cast<std::uint32_t>(hit); }
};

// Infinite scores, and what is no number, as the largest one: such items come last, and are found all the same.
inline float finite(float score) {
    constexpr float largest = std::numeric_limits<float>::max();
    return score < largest ? score : largest;
}

// The best hits seen so far; no hit with a score above `limit` is among the best.
class Best {
  public:
    float limit = std::numeric_limits<float>::infinity();

    explicit Best(std::size_t keep) : keep_(keep) { hits_.reserve(2 * std::min<std::size_t>(keep, 1 << 20)); }

    void add(float score, std::uint32_t place) {
        hits_.push_back(Hit::pack(finite(score), place));
        if (hits_.size() >= 2 * keep_) shrink();
    }

    const std::vector<std::uint64_t>& sorted() {
        if (hits_.size() > keep_) shrink();
        std::sort(hits_.begin(), hits_.end());
        return hits_;
    }

    void clear() {
        hits_.clear();
        limit = std::numeric_limits<float>::infinity();
    }

  private:
    void shrink() {
        std::nth_element(hits_.begin(), hits_.begin() + static_cast<std::ptrdiff_t>(keep_ - 1), hits_.end());
        hits_.resize(keep_);
        limit = Hit::score(hits_.back());
    }

    std::size_t keep_;
    std::vector<std::uint64_t> hits_;
};

// The smallest and the largest of some numbers, sixteen at a time.
inline std::pair<float, float> extremes(const float* numbers, std::size_t count) {
    constexpr std::size_t lanes = 16;
    float low[lanes], high[lanes];
    std::fill_n(low, lanes, numbers[0]);
    std::fill_n(high, lanes, numbers[0]);
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (std::size_t j = 0; j < lanes; ++j) {
            low[j] = numbers[i + j] < low[j] ? numbers[i + j] : low[j];
            high[j] = high[j] < numbers[i + j] ? numbers[i + j] : high[j];
        }
    for (; i < count; ++i) {
        low[0] = std::min(low[0], numbers[i]);
        high[0] = std::max(high[0], numbers[i]);
    }
    return {*std::min_element(low, low + lanes), *std::max_element(high, high + lanes)};
}

// Where a byte comes next, or the end.
inline std::size_t find_byte(const std::vector<std::uint8_t>& bytes, std::uint8_t wanted, std::size_t from) {
    const void* found = from < bytes.size() ? std::memchr(bytes.data() + from, wanted, bytes.size() - from) : nullptr;
    return found == nullptr ? bytes.size()
                            : static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - bytes.data());
}

// Chooses the cells that a query looks into: those of smallest distance until they hold `candidates` items, equal ones
// in order.
class Chooser {
  public:
    std::vector<std::uint8_t> chosen;  // 1 for each such cell

    explicit Chooser(std::span<const std::uint32_t> sizes)
        : chosen(sizes.size()), sizes_(sizes), buckets_(sizes.size()) {}

    // How many items that are.
    std::uint64_t choose(const float* distances, std::uint64_t candidates) {
        const std::size_t cells = sizes_.size();
        const auto [least, most] = extremes(distances, cells);
        const float step = most > least ? (buckets - 1) / (most - least) : 0;
        std::uint8_t *bucket = buckets_.data(), *mark = chosen.data();
        for (std::size_t c = 0; c < cells; ++c) {
            const float at = (distances[c] - least) * step;  // not a number where distances are infinite
            const float inside = at > 0 ? at : 0;
            bucket[c] =
                static_cast<std::uint8_t>(static_cast<std::int32_t>(inside < buckets - 1 ? inside : buckets - 1));
        }
        std::uint64_t held[buckets] = {}, held_too[buckets] = {};  // two, as neighbours are often in one bucket
        for (std::size_t c = 0; c + 1 < cells; c += 2) {
            held[bucket[c]] += sizes_[c];
            held_too[bucket[c + 1]] += sizes_[c + 1];
        }
        if (cells % 2 != 0) held[bucket[cells - 1]] += sizes_[cells - 1];
        int last = 0;
        std::uint64_t sure = 0;  // in the buckets before the last one
        for (; last + 1 < buckets && sure + held[last] + held_too[last] < candidates; ++last)
            sure += held[last] + held_too[last];
        const auto border = static_cast<std::uint8_t>(last);
        for (std::size_t c = 0; c < cells; ++c) mark[c] = bucket[c] < border;
        rest_.clear();
        for (std::size_t c = find_byte(buckets_, border, 0); c < cells; c = find_byte(buckets_, border, c + 1))
            if (sizes_[c] != 0) rest_.emplace_back(finite(distances[c]), static_cast<std::uint32_t>(c));
        std::sort(rest_.begin(), rest_.end());
        for (const auto& [distance, cell] : rest_) {
            if (sure >= candidates) break;
            chosen[cell] = 1;
            sure += sizes_[cell];
        }
        return sure;
    }

  private:
    static constexpr int buckets = 256;
    std::span<const std::uint32_t> sizes_;
    std::vector<std::uint8_t> buckets_;
    std::vector<std::pair<float, std::uint32_t>> rest_;
};

// Items side by side in one part whose cells were chosen and lie in one coarse cell.
struct Run {
    const SearchPart* part;
    Range range;
    std::uint32_t coarse;
    std::uint32_t origin;  // where the coarse cell begins
    float distance;        // of its first cell
};

// Cells agree in all but their last `fine` bits with others of their coarse cell.
inline void find_runs(SearchParts parts, const std::vector<std::uint8_t>& chosen, const float* distances, int fine,
                      std::vector<Run>& runs) {
    runs.clear();
    const std::size_t family = std::size_t{1} << fine;
    for (std::size_t c = find_byte(chosen, 1, 0); c < chosen.size(); c = find_byte(chosen, 1, c)) {
        const std::size_t first = c, border = (c / family + 1) * family;
        while (c < border && chosen[c]) ++c;
        for (const SearchPart& part : parts) {
            const Range range = part.range(first, c);
            if (range.size() != 0)
                runs.push_back({&part, range, static_cast<std::uint32_t>(first >> fine),
                                part.starts[first >> fine << fine], distances[first]});
        }
    }
}

// Ranks by half bytes. The distance to a coarse cell is its norm less twice its product with the query. What is left of
// the query is taken around the parent of the cell, so that tables need not be wide; 2^`below` cells have one parent.
struct ScanRanking {
    ScanKernel kernel;
    const std::vector<ScanGroup>* groups;
    const float* query;
    std::size_t directions;
    const float* parents;  // (parents, directions), or none
    int below;
    float unit;
    bool inner;
    const float* products;
    const float* norms;
    ScanTables tables = {};
    std::uint32_t parent = UINT32_MAX;  // of the tables
    std::vector<float> around = {};

    void turn_to(std::uint32_t wanted) {
        if (parent == wanted) return;
        parent = wanted;
        around.assign(query, query + directions);
        if (parents != nullptr)
            for (std::size_t d = 0; d < directions; ++d) around[d] -= parents[wanted * directions + d];
        fill_tables(*groups, around.data(), unit, inner, tables);
    }

    // Fetches a block of a run that comes soon, if it has so many.
    static void prefetch(const Run& run, std::size_t number) {
        const Blocks& blocks = run.part->blocks;
        const std::size_t first = (run.range.begin - run.origin) / block_items + number;
        if (first * block_items >= run.range.end - run.origin) return;
        const std::size_t at = blocks.starts[run.coarse] + first;
        for (std::size_t byte = 0; byte < blocks.planes * block_items; byte += 64)
            __builtin_prefetch(blocks.block(at) + byte);
        __builtin_prefetch(blocks.biases + at * block_items);
    }

    void rank(const Run& run, const Run* next, Best& best) {
        turn_to(parents == nullptr ? 0 : run.coarse >> below);
        const Blocks& blocks = run.part->blocks;
        const float base = norms[run.coarse] - 2 * products[run.coarse] + tables.offset, step = 1 / tables.scale;
        const std::uint32_t begin = run.range.begin - run.origin, end = run.range.end - run.origin;
        std::int16_t out[block_items];
        for (std::size_t b = begin / block_items; b * block_items < end; ++b) {
            if (next != nullptr) prefetch(*next, b - begin / block_items);
            const float below_limit = std::ceil((best.limit - base) * tables.scale);
            const bool open = !(below_limit < INT16_MAX);  // all are below it, also those that are as far as can be
            const std::int16_t limit =
                open ? INT16_MAX : static_cast<std::int16_t>(std::max<float>(below_limit, INT16_MIN));
            const std::size_t at = blocks.starts[run.coarse] + b;
            std::uint32_t below =
                kernel(blocks.block(at), blocks.biases + at * block_items, blocks.planes, tables, limit, out);
            if (open) below = UINT32_MAX;
            for (; below != 0; below &= below - 1) {
                const auto lane = static_cast<std::uint32_t>(std::countr_zero(below));
                const auto i = static_cast<std::uint32_t>(b * block_items) + lane;
                if (i >= begin && i < end && run.part->has(run.origin + i))
                    best.add(base + step * out[lane], run.part->offset + run.origin + i);
            }
        }
    }
};

// Ranks by one table a byte, over the first bytes of rows, and a number of each item's own.
struct TableRanking {
    const float* tables;  // (bytes, 256)
    std::size_t bytes;
    bool inner;  // items have no numbers of their own

    void rank(const Run& run, const Run*, Best& best) const {
        for (std::uint32_t place = run.range.begin; place < run.range.end; ++place) {
            const std::uint8_t* row = run.part->rows[place];
            float score = inner ? 0 : run.part->norms[place];
            for (std::size_t g = 0; g < bytes; ++g) score += tables[256 * g + row[g]];
            if (finite(score) < best.limit && run.part->has(place)) best.add(score, run.part->offset + place);
        }
    }
};

// Ranks by how many bits differ.
struct HammingRanking {
    HammingKernel kernel;
    const std::uint8_t* query;

    void rank(const Run& run, const Run*, Best& best) const {
        constexpr std::uint32_t many = 256;
        std::int32_t differing[many];
        for (std::uint32_t first = run.range.begin; first < run.range.end; first += many) {
            const std::uint32_t last = std::min(first + many, run.range.end);
            kernel(query, run.part->rows.slice(first, last), differing);
            for (std::uint32_t place = first; place < last; ++place) {
                const auto score = static_cast<float>(differing[place - first]);
                if (score < best.limit && run.part->has(place)) best.add(score, run.part->offset + place);
            }
        }
    }
};

// What a search writes: for each query the best `keep` hits, best first, and how many items were compared. Places count
// through all parts; those of no hit are at the end, with infinite scores.
struct Found {
    std::size_t keep;
    float* scores;
    std::uint32_t* places;
    std::int64_t* compared;

    void write(std::size_t query, Best& best) const {
        const std::vector<std::uint64_t>& hits = best.sorted();
        for (std::size_t i = 0; i < keep; ++i) {
            const bool there = i < hits.size();
            scores[query * keep + i] = there ? Hit::score(hits[i]) : std::numeric_limits<float>::infinity();
            places[query * keep + i] = there ? Hit::place(hits[i]) : UINT32_MAX;
        }
    }
};

// How far cells are from queries that look into them: what the first bits and the others decode to, by their inner
// products with the query.
struct SumCells {
    const float* products;  // (queries, coarse): of what the first bits decode to
    const float* rest;      // (queries, fine): of what the other bits add
    const float* offsets;   // (queries): is added
    const float* scales;    // (coarse, fine): of the sum
    const float* shifts;    // (coarse, fine): is added to that
    std::size_t coarse;
    std::size_t fine;

    void operator()(std::size_t query, float* out) const {
        const float offset = offsets[query];
        const float *product_of = products + query * coarse, *added = rest + query * fine;
        if (fine == 1) {  // most often: one loop over all
            for (std::size_t c = 0; c < coarse; ++c)
                out[c] = (product_of[c] + offset + added[0]) * scales[c] + shifts[c];
            return;
        }
        for (std::size_t c = 0; c < coarse; ++c) {
            const float product = product_of[c] + offset;
            for (std::size_t f = 0; f < fine; ++f)
                out[c * fine + f] = (product + added[f]) * scales[c * fine + f] + shifts[c * fine + f];
        }
    }
};

// How many of the first bits differ.
struct BitCells {
    Rows queries;
    int bits;

    void operator()(std::size_t query, float* out) const {
        const std::uint64_t head = load_ordered(queries[query], queries.bytes);
        const std::uint64_t own = bits == 0 ? 0 : head >> (64 - bits);
        for (std::uint64_t c = 0; c < std::uint64_t{1} << bits; ++c)
            out[c] = static_cast<float>(std::popcount(c ^ own));
    }
};

// distances_of(query, out) writes how far each cell is, ranking_of(query) says how items are ranked.
template <class DistancesOf, class RankingOf>
void search(SearchParts parts, std::span<const std::uint32_t> sizes, std::size_t queries, std::uint64_t candidates,
            int fine, const Found& found, std::size_t threads, const DistancesOf& distances_of,
            const RankingOf& ranking_of) {
    parallel_for(queries, 1, threads, [&](std::size_t begin, std::size_t end) {
        Chooser chooser(sizes);
        std::vector<Run> runs;
        std::vector<float> distances(sizes.size());
        Best best(found.keep);
        for (std::size_t q = begin; q < end; ++q) {
            auto ranking = ranking_of(q);
            best.clear();
            distances_of(q, distances.data());
            found.compared[q] = static_cast<std::int64_t>(chooser.choose(distances.data(), candidates));
            find_runs(parts, chooser.chosen, distances.data(), fine, runs);
            // The nearest comes first: once good hits are known, few others are.
            const auto nearest = std::min_element(runs.begin(), runs.end(),
                                                  [](const Run& a, const Run& b) { return a.distance < b.distance; });
            if (nearest != runs.end()) std::rotate(runs.begin(), nearest, nearest + 1);
            for (std::size_t r = 0; r < runs.size(); ++r)
                ranking.rank(runs[r], r + 1 < runs.size() ? &runs[r + 1] : nullptr, best);
            found.write(q, best);
        }
    });
}

enum class Metric { l2, cosine, inner };

// The metric with this name; other names are refused.
inline Metric metric_named(std::string_view name) {
    if (name == "l2") return Metric::l2;
    if (name == "cosine") return Metric::cosine;
    if (name == "inner") return Metric::inner;
    throw std::invalid_argument("metric must be one of l2, cosine and inner, got '" + std::string(name) + "'");
}

// What rows and queries have outside of their numbers, where angles count: `shift` is added to every row, and what lies
// in none of the directions adds `square` to its squared length and products[q] to its product with query q.
struct Outside {
    const float* shift = nullptr;
    float square = 0;
    const float* products = nullptr;
};

inline float add_up(Four four) {
    return four[0] + four[1] + four[2] + four[3];
}

inline float squared_distance(const float* query, const float* row, std::size_t features) {
    Four sums[2] = {};
    std::size_t f = 0;
    for (; f + 8 <= features; f += 8)
        for (std::size_t half = 0; half < 8; half += 4) {
            const Four difference = load_four(query + f + half) - load_four(row + f + half);
            sums[half / 4] += difference * difference;
        }
    float total = add_up(sums[0] + sums[1]);
    for (; f < features; ++f) total += (query[f] - row[f]) * (query[f] - row[f]);
    return total;
}

// The inner product of a query and a row, and the row's squared length.
inline std::pair<float, float> product_and_square(const float* query, const float* row, const float* shift,
                                                  std::size_t features) {
    Four products = {}, squares = {};
    std::size_t f = 0;
    for (; f + 4 <= features; f += 4) {
        Four item = load_four(row + f);
        if (shift != nullptr) item += load_four(shift + f);
        products += load_four(query + f) * item;
        squares += item * item;
    }
    float product = add_up(products), square = add_up(squares);
    for (; f < features; ++f) {
        const float item = row[f] + (shift != nullptr ? shift[f] : 0);
        product += query[f] * item;
        square += item * item;
    }
    return {product, square};
}

// The distance by angle of a row whose squares leave the range of a float.
inline float angle_in_doubles(const float* query, const float* row, std::size_t features, const Outside& outside,
                              std::size_t q) {
    double product = outside.products != nullptr ? outside.products[q] : 0, square = outside.square;
    for (std::size_t f = 0; f < features; ++f) {
        const double item = row[f] + (outside.shift != nullptr ? outside.shift[f] : 0);
        product += query[f] * item;
        square += item * item;
    }
    return square > 0 ? static_cast<float>(std::max(2 - 2 * product / std::sqrt(square), 0.0)) : 1;
}

// out[q * many + i] = how far row items[q * many + i] of `vectors` is from query q: the squared distance; that of the
// row scaled to length 1 from a query of length 1; or the negative inner product. Infinite where there is no item.
inline void rescore(const float* vectors, std::size_t features, const float* queries, std::size_t count,
                    const std::int64_t* items, std::size_t many, Metric metric, Outside outside, float* out,
                    std::size_t threads) {
    parallel_for(count, 1 + (1 << 16) / (many * features + 1), threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t q = begin; q < end; ++q)
            for (std::size_t i = q * many; i < (q + 1) * many; ++i) {
                const float* query = queries + q * features;
                if (items[i] < 0) {
                    out[i] = std::numeric_limits<float>::infinity();
                    continue;
                }
                const float* row = vectors + static_cast<std::size_t>(items[i]) * features;
                if (metric == Metric::l2) {
                    out[i] = squared_distance(query, row, features);
                    continue;
                }
                auto [product, square] = product_and_square(query, row, outside.shift, features);
                if (outside.products != nullptr) product += outside.products[q];
                square += outside.square;
                if (metric == Metric::inner)
                    out[i] = -product;
                else if (square > 1e-30f && square < 1e30f)
                    out[i] = std::max(2 - 2 * product / std::sqrt(square), 0.0f);
                else
                    out[i] = angle_in_doubles(query, row, features, outside, q);
            }
    });
}

// The `k` nearest of `many` items of each query, nearest first and by id where they are as near; id -1 where there are
// no more. Ids are those of each query, or with `shared` the same for all; negative ones are of no item.
inline void take_nearest(const float* distances, const std::int64_t* ids, bool shared, std::size_t count,
                         std::size_t many, std::size_t k, float* near, std::int64_t* near_ids, std::size_t threads) {
    parallel_for(count, 1 + (1 << 14) / (many + 1), threads, [=](std::size_t begin, std::size_t end) {
        std::vector<std::pair<float, std::int64_t>> heap;  // the farthest of the nearest on top
        for (std::size_t q = begin; q < end; ++q) {
            heap.clear();
            const float* row = distances + q * many;
            const std::int64_t* own = shared ? ids : ids + q * many;
            for (std::size_t i = 0; i < many; ++i) {
                const std::pair item(std::isnan(row[i]) ? std::numeric_limits<float>::infinity() : row[i], own[i]);
                if (own[i] < 0 || (heap.size() == k && !(item < heap.front()))) continue;
                if (heap.size() == k) {
                    std::pop_heap(heap.begin(), heap.end());
                    heap.pop_back();
                }
                heap.push_back(item);
                std::push_heap(heap.begin(), heap.end());
            }
            std::sort_heap(heap.begin(), heap.end());
            for (std::size_t i = 0; i < k; ++i) {
                near[q * k + i] = i < heap.size() ? heap[i].first : std::numeric_limits<float>::infinity();
                near_ids[q * k + i] = i < heap.size() ? heap[i].second : -1;
            }
        }
    });
}

}  // namespace nestcode
