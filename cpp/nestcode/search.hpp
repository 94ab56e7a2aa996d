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

    std::uint32_t alive(Range range) const {
        if (skipped == nullptr) return range.size();
        return range.size() - (skipped->below(range.end) - skipped->below(range.begin));
    }
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

// The best hits seen so far; no hit with a score above `limit` is among the best.
class Best {
  public:
    float limit = std::numeric_limits<float>::infinity();

    explicit Best(std::size_t keep) : keep_(keep) { hits_.reserve(2 * std::min<std::size_t>(keep, 1 << 20)); }

    void add(float score, std::uint32_t place) {
        hits_.push_back(Hit::pack(score, place));
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

// Marks the cells that a query looks into: those of smallest distance until they hold `candidates` items, equal ones
// in order. Returns how many items that are.
inline std::uint64_t choose_cells(const float* distances, const std::uint32_t* sizes, std::size_t cells,
                                  std::uint64_t candidates, std::vector<std::uint8_t>& chosen) {
    constexpr std::size_t buckets = 256;
    chosen.assign(cells, 0);
    const auto [least, most] = extremes(distances, cells);
    const float step = most > least ? (buckets - 1) / (most - least) : 0;
    std::uint64_t held[buckets] = {};
    thread_local std::vector<std::uint8_t> bucket;
    bucket.resize(cells);
    for (std::size_t c = 0; c < cells; ++c) {
        const float at = (distances[c] - least) * step;  // not a number where distances are infinite
        bucket[c] = static_cast<std::uint8_t>(at > 0 ? std::min(at, buckets - 1.0f) : 0);
        held[bucket[c]] += sizes[c];
    }
    std::size_t last = 0;
    std::uint64_t sure = 0;  // in the buckets before the last one
    while (last + 1 < buckets && sure + held[last] < candidates) sure += held[last++];
    std::vector<std::pair<float, std::uint32_t>> rest;
    for (std::size_t c = 0; c < cells; ++c) {
        chosen[c] = bucket[c] < last;
        if (bucket[c] == last && sizes[c] != 0) rest.emplace_back(distances[c], static_cast<std::uint32_t>(c));
    }
    std::sort(rest.begin(), rest.end());
    for (const auto& [distance, cell] : rest) {
        if (sure >= candidates) break;
        chosen[cell] = 1;
        sure += sizes[cell];
    }
    return sure;
}

// Items side by side in one part whose cells were chosen and lie in one coarse cell.
struct Run {
    const SearchPart* part;
    Range range;
    std::size_t coarse;
    float distance;  // of its first cell
};

// Cells agree in all but their last `fine` bits with others of their coarse cell.
inline void find_runs(SearchParts parts, const std::vector<std::uint8_t>& chosen, const float* distances, int fine,
                      std::vector<Run>& runs) {
    runs.clear();
    const std::size_t family = std::size_t{1} << fine;
    for (std::size_t c = 0; c < chosen.size();) {
        if (!chosen[c]) {
            ++c;
            continue;
        }
        const std::size_t first = c, border = (c / family + 1) * family;
        while (c < border && chosen[c]) ++c;
        for (const SearchPart& part : parts) {
            const Range range = part.range(first, c);
            if (range.size() != 0) runs.push_back({&part, range, first >> fine, distances[first]});
        }
    }
    // A few of the nearest come first: once good hits are known, few others are.
    const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(runs.size(), 4));
    std::partial_sort(runs.begin(), middle, runs.end(),
                      [](const Run& a, const Run& b) { return a.distance < b.distance; });
}

// Ranks by half bytes. `bases` are distances from the query to coarse cells.
struct ScanRanking {
    ScanKernel kernel;
    const ScanTables* tables;
    const float* bases;

    static void prefetch(const Run& run) {
        const Blocks& blocks = run.part->blocks;
        const std::uint8_t* start = blocks.block(run.range.begin / block_items);
        for (std::size_t byte = 0; byte < 2 * blocks.planes * block_items; byte += 64) __builtin_prefetch(start + byte);
        __builtin_prefetch(blocks.biases + run.range.begin);
    }

    void rank(const Run& run, Best& best) const {
        const Blocks& blocks = run.part->blocks;
        const float base = bases[run.coarse] * tables->scale;
        std::int16_t out[block_items];
        for (std::size_t b = run.range.begin / block_items; b * block_items < run.range.end; ++b) {
            const auto limit = static_cast<std::int16_t>(std::clamp(std::ceil(best.limit - base), -32768.0f, 32767.0f));
            if (!kernel(blocks.block(b), blocks.biases + b * block_items, blocks.planes, *tables, limit, out)) continue;
            const auto first = static_cast<std::uint32_t>(b * block_items);
            const std::uint32_t begin = std::max(run.range.begin, first),
                                end = std::min<std::uint32_t>(run.range.end, first + block_items);
            for (std::uint32_t place = begin; place < end; ++place)
                if (out[place - first] < limit && run.part->has(place))
                    best.add(base + out[place - first], run.part->offset + place);
        }
    }
};

// Ranks by one table a byte, over the first bytes of rows, and a number of each item's own.
struct TableRanking {
    const float* tables;  // (bytes, 256)
    std::size_t bytes;
    bool inner;  // items have no numbers of their own

    static void prefetch(const Run& run) { __builtin_prefetch(run.part->rows[run.range.begin]); }

    void rank(const Run& run, Best& best) const {
        for (std::uint32_t place = run.range.begin; place < run.range.end; ++place) {
            const std::uint8_t* row = run.part->rows[place];
            float score = inner ? 0 : run.part->norms[place];
            for (std::size_t g = 0; g < bytes; ++g) score += tables[256 * g + row[g]];
            if (score < best.limit && run.part->has(place)) best.add(score, run.part->offset + place);
        }
    }
};

// Ranks by how many bits differ.
struct HammingRanking {
    HammingKernel kernel;
    const std::uint8_t* query;

    static void prefetch(const Run& run) { __builtin_prefetch(run.part->rows[run.range.begin]); }

    void rank(const Run& run, Best& best) const {
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

// `distances` from each query to each cell; ranking_of(query) says how its items are ranked.
template <class RankingOf>
void search(SearchParts parts, const std::uint32_t* sizes, std::size_t cells, const float* distances,
            std::size_t queries, std::uint64_t candidates, int fine, const Found& found, std::size_t threads,
            const RankingOf& ranking_of) {
    parallel_for(queries, 1, threads, [&](std::size_t begin, std::size_t end) {
        std::vector<std::uint8_t> chosen;
        std::vector<Run> runs;
        Best best(found.keep);
        for (std::size_t q = begin; q < end; ++q) {
            const auto ranking = ranking_of(q);
            best.clear();
            found.compared[q] =
                static_cast<std::int64_t>(choose_cells(distances + q * cells, sizes, cells, candidates, chosen));
            find_runs(parts, chosen, distances + q * cells, fine, runs);
            for (std::size_t r = 0; r < runs.size(); ++r) {
                if (r + 1 < runs.size()) ranking.prefetch(runs[r + 1]);
                ranking.rank(runs[r], best);
            }
            found.write(q, best);
        }
    });
}

enum class Metric { l2, cosine, inner };

// How far a row is from a query: squared distance; that of the row scaled to length 1 from a query of length 1; or the
// negative inner product.
inline float distance(const float* query, const float* row, std::size_t features, Metric metric) {
    using Four = float __attribute__((vector_size(16)));
    Four squares[2] = {}, products[2] = {};
    std::size_t f = 0;
    const auto load = [](const float* from) {
        Four four;
        std::memcpy(&four, from, sizeof four);
        return four;
    };
    for (; f + 8 <= features; f += 8)
        for (std::size_t half = 0; half < 2; ++half) {
            const Four q = load(query + f + 4 * half), r = load(row + f + 4 * half);
            if (metric == Metric::l2) {
                squares[half] += (q - r) * (q - r);
            } else {
                squares[half] += r * r;
                products[half] += q * r;
            }
        }
    float square = 0, product = 0;
    for (; f < features; ++f) {
        const float difference = query[f] - row[f];
        square += metric == Metric::l2 ? difference * difference : row[f] * row[f];
        product += query[f] * row[f];
    }
    const Four both = squares[0] + squares[1], inner = products[0] + products[1];
    for (int j = 0; j < 4; ++j) {
        square += both[j];
        product += inner[j];
    }
    if (metric == Metric::l2) return square;
    if (metric == Metric::inner) return -product;
    return square > 0 ? std::max(2 - 2 * product / std::sqrt(square), 0.0f) : 1;
}

// out[q * many + i] = how far row items[q * many + i] of `vectors` is from query q; infinite where that is negative.
inline void rescore(const float* vectors, std::size_t features, const float* queries, std::size_t count,
                    const std::int64_t* items, std::size_t many, Metric metric, float* out, std::size_t threads) {
    parallel_for(count, 1, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t q = begin; q < end; ++q)
            for (std::size_t i = q * many; i < (q + 1) * many; ++i)
                out[i] = items[i] < 0 ? std::numeric_limits<float>::infinity()
                                      : distance(queries + q * features,
                                                 vectors + static_cast<std::size_t>(items[i]) * features, features, metric);
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
                if (own[i] < 0 || (heap.size() == k && !(std::pair(row[i], own[i]) < heap.front()))) continue;
                if (heap.size() == k) {
                    std::pop_heap(heap.begin(), heap.end());
                    heap.pop_back();
                }
                heap.emplace_back(row[i], own[i]);
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
