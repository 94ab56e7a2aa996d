// Search: probe inverted lists by a candidate budget, score their items, keep the top k.
//
// A scorer estimates the distances of the items in a run: by 4-bit fast-scan (fastscan.hpp), by ADC with one table per
// byte, or by the Hamming distance of whole codes.
#pragma once

#include "hamming.hpp"
#include "inverted_lists.hpp"

namespace nestcode {

// Estimates squared L2 distances, or inner products, by 4-bit fast-scan. The distance to a centroid is its norm less
// twice its product with the query; the residual adds table sums. Tables are computed for the query's residual from the
// parent of the centroid, so that one table serves 2^`parent_shift` centroids and entries stay small; the item's bias
// corrects for the centroid's offset from its parent.
struct FastScanScorer {
    FastScanKernel kernel;
    const std::vector<FastScanGroup>* groups;
    const float* query;  // coefficients
    std::size_t directions;
    const float* parents;  // (parents, directions); null for inner products
    int parent_shift;
    float bias_unit;
    Metric metric;
    const float* products;  // (centroids): with the query
    const float* norms;     // (centroids)
    FastScanTables tables = {};
    std::uint32_t parent = UINT32_MAX;  // of the tables
    std::vector<float> residual = {};

    void make_tables(std::uint32_t wanted) {
        if (parent == wanted) return;
        parent = wanted;
        residual.assign(query, query + directions);
        if (parents != nullptr)
            for (std::size_t d = 0; d < directions; ++d) residual[d] -= parents[wanted * directions + d];
        fill_tables(*groups, residual.data(), bias_unit, metric, tables);
    }

    // Prefetches the block `number` of a run that will be scored soon, if it has that many.
    static void prefetch(const Run& run, std::size_t number) {
        const FastScanBlocks& blocks = run.lists->blocks;
        const std::size_t first = (run.range.begin - run.centroid_begin) / block_items + number;
        if (first * block_items >= run.range.end - run.centroid_begin) return;
        const std::size_t at = blocks.starts[run.centroid] + first;
        for (std::size_t byte = 0; byte < blocks.planes * block_items; byte += 64)
            __builtin_prefetch(blocks.block(at) + byte);
        __builtin_prefetch(blocks.biases + at * block_items);
    }

    void score(const Run& run, const Run* next, TopK& top) {
        make_tables(parents == nullptr ? 0 : run.centroid >> parent_shift);
        const FastScanBlocks& blocks = run.lists->blocks;
        const float base = norms[run.centroid] - 2 * products[run.centroid] + tables.offset, step = 1 / tables.scale;
        const std::uint32_t begin = run.range.begin - run.centroid_begin, end = run.range.end - run.centroid_begin;
        std::int16_t out[block_items];
        for (std::size_t b = begin / block_items; b * block_items < end; ++b) {
            if (next != nullptr) prefetch(*next, b - begin / block_items);
            const float limit = std::ceil((top.threshold - base) * tables.scale);
            // All items pass if the limit is beyond the saturated sums, or NaN, which cannot be cast.
            const bool pass_all = !(limit < INT16_MAX);
            const std::int16_t quantized_limit =
                pass_all ? INT16_MAX : static_cast<std::int16_t>(std::max<float>(limit, INT16_MIN));
            const std::size_t at = blocks.starts[run.centroid] + b;
            std::uint32_t below =
                kernel(blocks.block(at), blocks.biases + at * block_items, blocks.planes, tables, quantized_limit, out);
            if (pass_all) below = UINT32_MAX;
            for (; below != 0; below &= below - 1) {
                const auto lane = static_cast<std::uint32_t>(std::countr_zero(below));
                const auto i = static_cast<std::uint32_t>(b * block_items) + lane;
                if (i >= begin && i < end && run.lists->is_live(run.centroid_begin + i))
                    top.add(base + step * out[lane], run.lists->offset + run.centroid_begin + i);
            }
        }
    }
};

// Estimates distances by ADC over the first bytes of codes: table entries are -2 times inner products, and the squared
// norm of the decoded code is added unless the metric is the inner product.
struct AdcScorer {
    const float* tables;  // (bytes, 256)
    std::size_t bytes;
    Metric metric;

    void score(const Run& run, const Run*, TopK& top) const {
        for (std::uint32_t position = run.range.begin; position < run.range.end; ++position) {
            const std::uint8_t* code = run.lists->codes[position];
            float score = metric == Metric::inner ? 0 : run.lists->norms[position];
            for (std::size_t b = 0; b < bytes; ++b) score += tables[256 * b + code[b]];
            if (clamp_to_finite(score) < top.threshold && run.lists->is_live(position))
                top.add(score, run.lists->offset + position);
        }
    }
};

// Scores by the Hamming distance of whole codes.
struct HammingScorer {
    HammingKernel kernel;
    const std::uint8_t* query;

    void score(const Run& run, const Run*, TopK& top) const {
        constexpr std::uint32_t batch = 256;
        std::int32_t distances[batch];
        for (std::uint32_t first = run.range.begin; first < run.range.end; first += batch) {
            const std::uint32_t last = std::min(first + batch, run.range.end);
            kernel(query, run.lists->codes.slice(first, last), distances);
            for (std::uint32_t position = first; position < last; ++position) {
                const auto score = static_cast<float>(distances[position - first]);
                if (score < top.threshold && run.lists->is_live(position)) top.add(score, run.lists->offset + position);
            }
        }
    }
};

// The output arrays of a search: for each query the k best hits, best first, and how many items were scored. Positions
// count through all segments. Missing hits come last, with infinite scores and the position UINT32_MAX.
struct SearchResults {
    std::size_t k;
    float* scores;
    std::uint32_t* positions;
    std::int64_t* compared;

    void write(std::size_t query, TopK& top) const {
        const std::vector<std::uint64_t>& hits = top.sorted();
        for (std::size_t i = 0; i < k; ++i) {
            const bool found = i < hits.size();
            scores[query * k + i] = found ? Hit::score(hits[i]) : std::numeric_limits<float>::infinity();
            positions[query * k + i] = found ? Hit::position(hits[i]) : UINT32_MAX;
        }
    }
};

// distances_of(query, out) writes the distance to each list, scorer_of(query) returns the query's scorer. `sizes` are
// the live items of each list in all segments.
template <class DistancesOf, class ScorerOf>
void search(std::span<const InvertedLists> segments, std::span<const std::uint32_t> sizes, std::size_t queries,
            std::uint64_t candidates, int fine_bits, const SearchResults& results, std::size_t threads,
            const DistancesOf& distances_of, const ScorerOf& scorer_of) {
    parallel_for(queries, 1, threads, [&](std::size_t begin, std::size_t end) {
        ProbeSelector selector(sizes);
        std::vector<Run> runs;
        std::vector<float> distances(sizes.size());
        TopK top(results.k);
        for (std::size_t q = begin; q < end; ++q) {
            auto scorer = scorer_of(q);
            top.clear();
            distances_of(q, distances.data());
            results.compared[q] = static_cast<std::int64_t>(selector.select(distances.data(), candidates));
            find_runs(segments, selector.probed, distances.data(), fine_bits, runs);
            // The nearest run first: once good hits are known, the threshold rejects most others.
            const auto nearest = std::min_element(runs.begin(), runs.end(),
                                                  [](const Run& a, const Run& b) { return a.distance < b.distance; });
            if (nearest != runs.end()) std::rotate(runs.begin(), nearest, nearest + 1);
            for (std::size_t r = 0; r < runs.size(); ++r)
                scorer.score(runs[r], r + 1 < runs.size() ? &runs[r + 1] : nullptr, top);
            results.write(q, top);
        }
    });
}

}  // namespace nestcode
