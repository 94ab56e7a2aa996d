// Whether a search should look at more candidates than it did, by when it met the nearest of them. This takes no model
// of the errors of estimates, which would have to hold for heavy tails, and for items that share theirs.
//
// Candidates of lists are reranked by their estimates, and beyond them a sample is: where one of the sample is among
// the nearest, others lie between. Lists are probed, and nodes of graphs visited, until few of the nearest lie in the
// second half. Few hits say too little, so their nearest neighbors stand for them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace nestcode {

constexpr std::size_t kNeighborhood = 40;  // nearest candidates, or k if that is more
constexpr std::size_t kSampled = 8;        // one in kSampled candidates is in the sample,
constexpr std::size_t kAhead = 8;          // times the reranked candidates: the sample is of these; of half at least
constexpr std::size_t kWiden = 2;          // times as many candidates are reranked next
constexpr double kLateProbed = 0.1;        // of the neighborhood, that may lie in the lists of the second half
constexpr std::uint64_t kProbe = 2;        // times as many candidates are in the lists that are probed next
constexpr double kLateVisited = 0.15;      // and in the second half of a walk

// Whether the cut after the candidates is arbitrary: the estimates of the second half, ascending, are equal.
inline bool ends_in_ties(std::span<const float> estimates) {
    return !(estimates[estimates.size() / 2] < estimates.back());
}

// early(i) tells whether candidate i, whose distance is known, lies in the first part. Of equal distances those are
// preferred; `scratch` is overwritten.
template <class Early>
bool finds_many_late(std::span<const float> distances, std::size_t k, double share, const Early& early,
                     std::vector<float>& scratch) {
    const std::size_t wanted = std::min(std::max(k, kNeighborhood), distances.size());
    if (wanted == 0) return false;
    scratch.assign(distances.begin(), distances.end());
    std::ranges::replace_if(
        scratch, [](float distance) { return std::isnan(distance); }, std::numeric_limits<float>::infinity());
    const auto last = scratch.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
    std::nth_element(scratch.begin(), last, scratch.end());
    std::size_t found_early = 0, nearer_late = 0;
    for (std::size_t i = 0; i < distances.size(); ++i) {
        if (!(distances[i] <= *last)) continue;
        if (early(i))
            ++found_early;
        else
            nearer_late += distances[i] < *last;
    }
    const std::size_t late = std::max(nearer_late, wanted - std::min(wanted, found_early));
    return static_cast<double>(late) > share * static_cast<double>(wanted);
}

}  // namespace nestcode
