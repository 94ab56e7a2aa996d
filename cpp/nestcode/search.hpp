// Search: probe inverted lists by a candidate budget, score their items, keep the top k.
//
// A scorer estimates the distances of the items in a range: FastScanScorer (fastscan.hpp) by 4-bit fast-scan, AdcScorer
// (adc.hpp) by ADC with one table per byte, HammingScorer (hamming.hpp) by the Hamming distance of whole codes.
#pragma once

#include "inverted_lists.hpp"
#include "parallel.hpp"

namespace nestcode {

constexpr std::int64_t kGivenUp = -1;

// How much a search of inverted lists may do.
struct ListBudget {
    std::uint64_t candidates;                // allowed items in the lists that are probed
    std::uint64_t most_passed = UINT64_MAX;  // items in these lists, allowed or not
};

// The output arrays of a search: for each query the k best hits, best first, and how many items were scored. Positions
// count through all segments. Missing hits come last, with infinite scores and the position UINT32_MAX.
struct SearchResults {
    std::size_t k;
    float* scores;
    std::uint32_t* positions;
    std::int64_t* compared;           // kGivenUp where a search would cost more than a scan of what is allowed
    float* distances = nullptr;       // to all lists, (queries, lists), if they are wanted
    float* half_way = nullptr;        // then also which of these half of the candidates do not exceed
    std::uint64_t* passed = nullptr;  // how many items were scored or nodes visited, allowed or not, also if given up

    void write(std::size_t query, TopK& top) const {
        const std::vector<std::uint64_t>& hits = top.sorted();
        for (std::size_t i = 0; i < k; ++i) {
            const bool found = i < hits.size();
            scores[query * k + i] = found ? Hit::score(hits[i]) : std::numeric_limits<float>::infinity();
            positions[query * k + i] = found ? Hit::position(hits[i]) : UINT32_MAX;
        }
    }
};

// Scans the one list that there is for the queries [begin, end), of which each takes every item: a piece at a time for
// a tile of queries, so that a piece is read from memory once for all of them.
template <class ScorerOf>
void scan_list(std::span<const InvertedLists> segments, std::uint32_t size, std::uint64_t most_passed,
               std::size_t begin, std::size_t end, const SearchResults& results, const ScorerOf& scorer_of) {
    constexpr std::size_t tile = 16;
    constexpr std::uint32_t piece = 32 * kBlockItems;
    std::size_t items = 0;
    for (const InvertedLists& lists : segments) items += lists.starts[1];
    if (results.passed != nullptr)
        std::fill(results.passed + begin, results.passed + end, items > most_passed ? 0 : items);
    if (items > most_passed) return std::fill(results.compared + begin, results.compared + end, kGivenUp);
    for (std::size_t first = begin; first < end; first += tile) {
        const std::size_t many = std::min(tile, end - first);
        using Scorer = decltype(scorer_of(first));
        std::vector<Scorer> scorers;
        for (std::size_t q = 0; q < many; ++q) scorers.push_back(scorer_of(first + q));
        std::vector<TopK> tops(many, TopK(results.k));
        for (const InvertedLists& lists : segments)
            for (std::uint32_t at = 0; at < lists.starts[1]; at += piece) {
                const ScanRange range{&lists, {at, std::min(at + piece, lists.starts[1])}, 0, 0, 0};
                range.touch();
                if constexpr (requires { &Scorer::score_tile; }) {
                    for (std::size_t q = 0; q < many; q += kTileQueries)
                        Scorer::score_tile(&scorers[q], &tops[q], std::min(kTileQueries, many - q), range, nullptr);
                } else {
                    for (std::size_t q = 0; q < many; ++q) scorers[q].score(range, nullptr, tops[q]);
                }
            }
        for (std::size_t q = 0; q < many; ++q) {
            results.compared[first + q] = size;
            results.write(first + q, tops[q]);
        }
    }
}

// distances_of(query, out) writes the distance to each list, scorer_of(query) returns the query's scorer. `sizes` are
// the allowed items of each list in all segments.
template <class DistancesOf, class ScorerOf>
void search(std::span<const InvertedLists> segments, std::span<const std::uint32_t> sizes, std::size_t queries,
            const ListBudget& budget, int fine_bits, const SearchResults& results, std::size_t threads,
            const DistancesOf& distances_of, const ScorerOf& scorer_of) {
    parallel_for(queries, 1, threads, [&](std::size_t begin, std::size_t end) {
        if (sizes.size() == 1) return scan_list(segments, sizes[0], budget.most_passed, begin, end, results, scorer_of);
        ProbeSelector selector(sizes);
        std::vector<ScanRange> ranges;
        std::vector<float> distances(sizes.size());
        TopK top(results.k);
        for (std::size_t q = begin; q < end; ++q) {
            auto scorer = scorer_of(q);
            top.clear();
            distances_of(q, distances.data());
            results.compared[q] = static_cast<std::int64_t>(selector.select(distances.data(), budget.candidates));
            find_scan_ranges(segments, selector.probed, distances.data(), fine_bits, ranges);
            if (results.distances != nullptr) {
                std::copy(distances.begin(), distances.end(), results.distances + q * distances.size());
                results.half_way[q] = selector.half_way;
            }
            std::uint64_t passed = 0;
            for (const ScanRange& range : ranges) passed += range.range.size();
            if (results.passed != nullptr) results.passed[q] = passed > budget.most_passed ? 0 : passed;
            if (passed > budget.most_passed) {
                results.compared[q] = kGivenUp;
                continue;
            }
            for (const ScanRange& range : ranges) range.touch();
            // The nearest range first: once good hits are known, the threshold rejects most others.
            const auto nearest =
                std::min_element(ranges.begin(), ranges.end(),
                                 [](const ScanRange& a, const ScanRange& b) { return a.distance < b.distance; });
            if (nearest != ranges.end()) std::rotate(ranges.begin(), nearest, nearest + 1);
            for (std::size_t r = 0; r < ranges.size(); ++r)
                scorer.score(ranges[r], r + 1 < ranges.size() ? &ranges[r + 1] : nullptr, top);
            results.write(q, top);
        }
    });
}

}  // namespace nestcode
