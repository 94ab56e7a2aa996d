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
constexpr double kErrors = 1.5;            // standard deviations by which estimates may be wrong
constexpr float kErrorRounding = 1e-6f;    // of a distance, that is no error

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

// Whether the errors of estimates are so large that an item whose estimate exceeds `last` may be among the nearest:
// those of candidates with these estimates, `scale` distances each, and distances.
inline bool may_hide_nearer(std::span<const float> estimates, std::span<const float> distances, float last,
                            double scale, std::size_t k, std::vector<float>& scratch) {
    const std::size_t count = distances.size();
    if (count < 2 || !(std::abs(last) < std::numeric_limits<float>::max())) return false;
    double sum = 0, squares = 0;
    const auto error = [&](std::size_t i) { return distances[i] - scale * estimates[i]; };
    for (std::size_t i = 0; i < count; ++i) sum += error(i);
    const double mean = sum / static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i) squares += (error(i) - mean) * (error(i) - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(count));
    scratch.assign(distances.begin(), distances.end());
    const auto farthest =
        scratch.begin() + static_cast<std::ptrdiff_t>(std::min(std::max(k, kNeighborhood), count) - 1);
    std::nth_element(scratch.begin(), farthest, scratch.end());
    return scale * last + mean - kErrors * deviation < *farthest - kErrorRounding * std::abs(*farthest);
}

}  // namespace nestcode
