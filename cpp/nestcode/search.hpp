// Search: probe inverted lists by a candidate budget, score their items, keep the top k.
//
// A scorer estimates the distances of the items in a range: FastScanScorer (fastscan.hpp) by 4-bit fast-scan, AdcScorer
// (adc.hpp) by ADC with one table per byte, HammingScorer (hamming.hpp) by the Hamming distance of whole codes.
#pragma once

#include "inverted_lists.hpp"
#include "parallel.hpp"

namespace nestcode {

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
        std::vector<ScanRange> ranges;
        std::vector<float> distances(sizes.size());
        TopK top(results.k);
        for (std::size_t q = begin; q < end; ++q) {
            auto scorer = scorer_of(q);
            top.clear();
            distances_of(q, distances.data());
            results.compared[q] = static_cast<std::int64_t>(selector.select(distances.data(), candidates));
            find_scan_ranges(segments, selector.probed, distances.data(), fine_bits, ranges);
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
