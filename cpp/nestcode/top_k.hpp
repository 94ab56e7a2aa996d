// Top-k selection: the k hits of least score.
//
// TopK collects the hits of one query while it is scanned. Hits are 64-bit integers that order by score, in a buffer of
// up to 2 k; when the buffer is full, nth_element drops the worse half, which takes constant time per hit on average.
// select_top_k does the same for distances that are known already, with a heap.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "parallel.hpp"

namespace nestcode {

// Replaces infinite scores and NaN by the largest float: such items come last but can still be found.
inline float clamp_to_finite(float score) {
    constexpr float largest = std::numeric_limits<float>::max();
    return score < largest ? score : largest;
}

// A score and a position in one integer that orders by score: integers compare faster than pairs.
struct Hit {
    static std::uint64_t pack(float score, std::uint32_t position) {
        const auto bits = std::bit_cast<std::uint32_t>(score);
        const std::uint32_t ordered = bits ^ (-(bits >> 31) | 0x80000000u);  // negative ones reversed
        return std::uint64_t{ordered} << 32 | position;
    }
    static float score(std::uint64_t hit) {
        const auto ordered = static_cast<std::uint32_t>(hit >> 32);
        return std::bit_cast<float>(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
    }
    static std::uint32_t position(std::uint64_t hit) { return static_cast<std::uint32_t>(hit); }
};

class TopK {
  public:
    float threshold = std::numeric_limits<float>::infinity();  // hits of a greater score are not among the best k

    explicit TopK(std::size_t k) : k_(k) { hits_.reserve(2 * std::min<std::size_t>(k, 1 << 20)); }

    void add(float score, std::uint32_t position) {
        hits_.push_back(Hit::pack(clamp_to_finite(score), position));
        if (hits_.size() >= 2 * k_) shrink();
    }

    // The hits collected so far, at most k of them, best first.
    const std::vector<std::uint64_t>& sorted() {
        if (hits_.size() > k_) shrink();
        std::sort(hits_.begin(), hits_.end());
        return hits_;
    }

    void clear() {
        hits_.clear();
        threshold = std::numeric_limits<float>::infinity();
    }

  private:
    void shrink() {
        std::nth_element(hits_.begin(), hits_.begin() + static_cast<std::ptrdiff_t>(k_ - 1), hits_.end());
        hits_.resize(k_);
        threshold = Hit::score(hits_.back());
    }

    std::size_t k_;
    std::vector<std::uint64_t> hits_;
};

// Writes the k nearest of each query's `many` items, (queries, k): nearest first, ties by ascending id, and id -1 if
// there are fewer. Ids are (queries, many), or (many) for all queries if `shared`; items of negative id are skipped.
inline void select_top_k(const float* distances, const std::int64_t* ids, bool shared, std::size_t queries,
                         std::size_t many, std::size_t k, float* top_distances, std::int64_t* top_ids,
                         std::size_t threads) {
    parallel_for(queries, 1 + (1 << 14) / (many + 1), threads, [=](std::size_t begin, std::size_t end) {
        std::vector<std::pair<float, std::int64_t>> heap;  // a max-heap of the nearest items so far
        for (std::size_t q = begin; q < end; ++q) {
            heap.clear();
            const float* row = distances + q * many;
            const std::int64_t* row_ids = shared ? ids : ids + q * many;
            for (std::size_t i = 0; i < many; ++i) {
                const std::pair item(std::isnan(row[i]) ? std::numeric_limits<float>::infinity() : row[i], row_ids[i]);
                if (row_ids[i] < 0 || (heap.size() == k && !(item < heap.front()))) continue;
                if (heap.size() == k) {
                    std::pop_heap(heap.begin(), heap.end());
                    heap.pop_back();
                }
                heap.push_back(item);
                std::push_heap(heap.begin(), heap.end());
            }
            std::sort_heap(heap.begin(), heap.end());
            for (std::size_t i = 0; i < k; ++i) {
                top_distances[q * k + i] = i < heap.size() ? heap[i].first : std::numeric_limits<float>::infinity();
                top_ids[q * k + i] = i < heap.size() ? heap[i].second : -1;
            }
        }
    });
}

}  // namespace nestcode
