// Inverted lists over prefix codes, and the probing of lists by a candidate budget.
//
// All items that share their first `list bits` bits form an inverted list (Sivic and Zisserman, 2003; the IVF of
// FAISS). Items are sorted by code, so a list is a range of positions. A query probes lists in order of the distance to
// their centroids until the lists hold `candidates` live items. The leading bits of a list's number select the centroid
// of the coarse quantizer; lists that differ only in their last `fine bits` share it and are adjacent.
#pragma once

#include <span>

#include "bitmap.hpp"
#include "checksum.hpp"
#include "fastscan_blocks.hpp"
#include "top_k.hpp"

namespace nestcode {

// What verifies the arrays of a segment that are mapped from files; null in memory.
struct ScanGuards {
    ChecksumGuard *codes = nullptr, *blocks = nullptr, *biases = nullptr, *norms = nullptr;

    bool damaged() const {
        for (const ChecksumGuard* guard : {codes, blocks, biases, norms})
            if (guard != nullptr && guard->first_damaged() >= 0) return true;
        return false;
    }
};

// The inverted lists of one segment, with what the scorers need of its items.
struct InvertedLists {
    Rows codes;                    // in sorted order
    const std::uint32_t* starts;   // (lists + 1): the first position of each list, and the end
    FastScanBlocks blocks;         // for fast-scan, if there are any
    const float* norms = nullptr;  // for ADC: squared, of the decoded codes
    Bitmap allowed = {};
    ScanGuards guards = {};
    std::uint32_t offset = 0;  // the number of items in the segments before this one

    // The positions of lists [first, last).
    Range range(std::size_t first, std::size_t last) const { return {starts[first], starts[last]}; }
};

// The minimum and maximum of some values, sixteen lanes at a time.
inline std::pair<float, float> min_max(const float* values, std::size_t count) {
    constexpr std::size_t lanes = 16;
    float low[lanes], high[lanes];
    std::fill_n(low, lanes, values[0]);
    std::fill_n(high, lanes, values[0]);
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (std::size_t j = 0; j < lanes; ++j) {
            low[j] = values[i + j] < low[j] ? values[i + j] : low[j];
            high[j] = high[j] < values[i + j] ? values[i + j] : high[j];
        }
    for (; i < count; ++i) {
        low[0] = std::min(low[0], values[i]);
        high[0] = std::max(high[0], values[i]);
    }
    return {*std::min_element(low, low + lanes), *std::max_element(high, high + lanes)};
}

// The index of the next byte equal to `wanted`, or the size.
inline std::size_t find_byte(const std::vector<std::uint8_t>& bytes, std::uint8_t wanted, std::size_t from) {
    const void* found = from < bytes.size() ? std::memchr(bytes.data() + from, wanted, bytes.size() - from) : nullptr;
    return found == nullptr ? bytes.size()
                            : static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - bytes.data());
}

// Selects the lists to probe: those of least distance until they hold `candidates` items, ties in order. A bucket sort:
// a histogram of the distances finds the bucket in which the budget runs out, and only that bucket is sorted.
class ProbeSelector {
  public:
    std::vector<std::uint8_t> probed;  // 1 for each selected list
    float half_way = 0;                // a distance that the lists of half of the budget do not exceed

    explicit ProbeSelector(std::span<const std::uint32_t> sizes)
        : probed(sizes.size()), sizes_(sizes), bucket_of_(sizes.size()) {}

    // Returns how many items the selected lists hold.
    std::uint64_t select(const float* distances, std::uint64_t candidates) {
        const std::size_t lists = sizes_.size();
        const auto [least, most] = min_max(distances, lists);
        const float step = most > least ? (kBuckets - 1) / (most - least) : 0;
        std::uint8_t *bucket = bucket_of_.data(), *mark = probed.data();
        for (std::size_t i = 0; i < lists; ++i) {
            const float at = (distances[i] - least) * step;  // NaN if distances are infinite
            const float inside = at > 0 ? at : 0;
            bucket[i] =
                static_cast<std::uint8_t>(static_cast<std::int32_t>(inside < kBuckets - 1 ? inside : kBuckets - 1));
        }
        // Two histograms: adjacent lists often fall into one bucket, whose additions would wait for each other.
        std::uint64_t even[kBuckets] = {}, odd[kBuckets] = {};
        for (std::size_t i = 0; i + 1 < lists; i += 2) {
            even[bucket[i]] += sizes_[i];
            odd[bucket[i + 1]] += sizes_[i + 1];
        }
        if (lists % 2 != 0) even[bucket[lists - 1]] += sizes_[lists - 1];
        std::uint64_t half = 0;
        int middle = 0;
        for (; middle + 1 < kBuckets && 2 * half < candidates; ++middle) half += even[middle] + odd[middle];
        half_way = step > 0 ? least + static_cast<float>(middle) / step : most;
        int last = 0;
        std::uint64_t held = 0;  // by the buckets before the last one
        for (; last + 1 < kBuckets && held + even[last] + odd[last] < candidates; ++last)
            held += even[last] + odd[last];
        const auto border = static_cast<std::uint8_t>(last);
        for (std::size_t i = 0; i < lists; ++i) mark[i] = bucket[i] < border;
        border_lists_.clear();
        for (std::size_t i = find_byte(bucket_of_, border, 0); i < lists; i = find_byte(bucket_of_, border, i + 1))
            if (sizes_[i] != 0)
                border_lists_.emplace_back(clamp_to_finite(distances[i]), static_cast<std::uint32_t>(i));
        std::sort(border_lists_.begin(), border_lists_.end());
        for (const auto& [distance, list] : border_lists_) {
            if (held >= candidates) break;
            probed[list] = 1;
            held += sizes_[list];
        }
        return held;
    }

  private:
    static constexpr int kBuckets = 256;
    std::span<const std::uint32_t> sizes_;  // allowed items of each list
    std::vector<std::uint8_t> bucket_of_;
    std::vector<std::pair<float, std::uint32_t>> border_lists_;
};

// Adjacent items of one segment, in probed lists that share a centroid: what a scorer scans at once.
struct ScanRange {
    const InvertedLists* lists;
    Range range;
    std::uint32_t centroid;
    std::uint32_t centroid_begin;  // the first position of the centroid's lists
    float distance;                // of its first list

    // Verifies what a scorer reads of it.
    void touch() const {
        const ScanGuards& guards = lists->guards;
        const FastScanBlocks& blocks = lists->blocks;
        const auto touch = [](ChecksumGuard* guard, const auto* data, std::size_t first, std::size_t last,
                              std::size_t each = 1) {
            if (guard != nullptr && first * each < last * each)
                guard->touch(data + first * each, (last - first) * each * sizeof *data);
        };
        if (blocks.starts == nullptr) {
            touch(guards.codes, lists->codes.data, range.begin, range.end, lists->codes.bytes);
            touch(guards.norms, lists->norms, range.begin, range.end);
            return;
        }
        const std::size_t first = blocks.starts[centroid] + (range.begin - centroid_begin) / kBlockItems,
                          last = blocks.starts[centroid] + (range.end - centroid_begin - 1) / kBlockItems + 1;
        touch(guards.blocks, blocks.groups, first, last, blocks.columns * kBlockItems);
        touch(guards.biases, blocks.biases, first, last, kBlockItems);
        touch(guards.norms, blocks.norms, first, last, kBlockItems);
    }
};

// Writes the ranges of the probed lists; a centroid has 2^`fine_bits` lists.
inline void find_scan_ranges(std::span<const InvertedLists> segments, const std::vector<std::uint8_t>& probed,
                             const float* distances, int fine_bits, std::vector<ScanRange>& ranges) {
    ranges.clear();
    const std::size_t siblings = std::size_t{1} << fine_bits;
    for (std::size_t i = find_byte(probed, 1, 0); i < probed.size(); i = find_byte(probed, 1, i)) {
        const std::size_t first = i, border = (i / siblings + 1) * siblings;
        while (i < border && probed[i]) ++i;
        for (const InvertedLists& lists : segments) {
            const Range range = lists.range(first, i);
            if (range.size() != 0)
                ranges.push_back({&lists, range, static_cast<std::uint32_t>(first >> fine_bits),
                                  lists.starts[first >> fine_bits << fine_bits], distances[first]});
        }
    }
}

// Distances from queries to the centroids of lists, up to a term that all lists of a query share. A list's centroid is
// the sum of a coarse part, from its leading bits, and a fine part, from the others; their inner products with a query
// add up, and scale and shift turn the sum into a distance by the metric.
struct CentroidDistances {
    const float* coarse_products;  // (queries, coarse)
    const float* fine_products;    // (queries, fine)
    const float* offsets;          // (queries): added to the products
    const float* scales;           // (coarse, fine)
    const float* shifts;           // (coarse, fine)
    std::size_t coarse;
    std::size_t fine;

    void operator()(std::size_t query, float* out) const {
        const float offset = offsets[query];
        const float *coarse_of = coarse_products + query * coarse, *fine_of = fine_products + query * fine;
        if (fine == 1) {  // the common case: one loop that vectorizes
            for (std::size_t c = 0; c < coarse; ++c)
                out[c] = (coarse_of[c] + offset + fine_of[0]) * scales[c] + shifts[c];
            return;
        }
        for (std::size_t c = 0; c < coarse; ++c) {
            const float product = coarse_of[c] + offset;
            for (std::size_t f = 0; f < fine; ++f)
                out[c * fine + f] = (product + fine_of[f]) * scales[c * fine + f] + shifts[c * fine + f];
        }
    }
};

// Hamming distances between the first bits of queries and the numbers of lists.
struct PrefixHammingDistances {
    Rows queries;
    int list_bits;

    void operator()(std::size_t query, float* out) const {
        const std::uint64_t head = load_big_endian(queries[query], queries.bytes);
        const std::uint64_t prefix = list_bits == 0 ? 0 : head >> (64 - list_bits);
        for (std::uint64_t list = 0; list < std::uint64_t{1} << list_bits; ++list)
            out[list] = static_cast<float>(std::popcount(list ^ prefix));
    }
};

}  // namespace nestcode
