// Residual codes: a code is a sum of one entry from each codebook, chosen by beam search.
#pragma once

#include <utility>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace nestcode {

// The `kept` choices of least error, best first. Few are kept, so a sorted list that is rarely entered beats a heap.
// Ties go to the earlier choice.
inline void keep_best(const float* error, std::size_t choices, std::size_t kept,
                      std::vector<std::pair<float, std::uint32_t>>& best) {
    best.resize(kept);
    std::size_t found = 0;
    for (std::uint32_t c = 0; c < choices; ++c) {
        if (found == kept && !(error[c] < best[found - 1].first)) continue;
        std::size_t at = found < kept ? found++ : found - 1;
        for (; at > 0 && error[c] < best[at - 1].first; --at) best[at] = best[at - 1];
        best[at] = {error[c], c};
    }
}

// One step of a beam search, for each of `items` items. Item i has `beams` partial sums with squared errors
// errors[i * beams + b] and inner products products[(i * beams + b) * entries + e] of what they leave with each entry.
// The `kept` best continuations are written, best first: which beam and entry they come from, and their errors.
struct BeamStep {
    std::size_t items, beams, entries, kept;
    const float* errors;
    const float* products;
    const float* norms;  // of the entries, squared
    std::uint16_t* from;
    std::uint16_t* entry;
    float* new_errors;
};

inline void extend_beams(BeamStep step, std::size_t threads) {
    const std::size_t choices = step.beams * step.entries;
    parallel_for(step.items, std::max<std::size_t>(1, (1 << 16) / choices), threads,
                 [=](std::size_t begin, std::size_t end) {
                     std::vector<float> error(choices);
                     std::vector<std::pair<float, std::uint32_t>> best;
                     for (std::size_t i = begin; i < end; ++i) {
                         for (std::size_t b = 0; b < step.beams; ++b) {
                             const float base = step.errors[i * step.beams + b];
                             const float* product = step.products + (i * step.beams + b) * step.entries;
                             float* out = error.data() + b * step.entries;
                             for (std::size_t e = 0; e < step.entries; ++e)
                                 out[e] = base + step.norms[e] - 2 * product[e];
                         }
                         keep_best(error.data(), choices, step.kept, best);
                         for (std::size_t k = 0; k < step.kept; ++k) {
                             step.from[i * step.kept + k] = static_cast<std::uint16_t>(best[k].second / step.entries);
                             step.entry[i * step.kept + k] = static_cast<std::uint16_t>(best[k].second % step.entries);
                             step.new_errors[i * step.kept + k] = best[k].first;
                         }
                     }
                 });
}

// out[i] += the sum over codebooks of the entry that cells[i] names in each; a codebook has 256 entries of `features`.
inline void sum_entries(Rows cells, const float* codebooks, std::size_t features, float* out, std::size_t threads) {
    parallel_for(cells.count, 256, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint8_t* cell = cells[i];
            float* row = out + i * features;
            for (std::size_t m = 0; m < cells.bytes; ++m) {
                const float* entry = codebooks + (256 * m + cell[m]) * features;
                for (std::size_t f = 0; f < features; ++f) row[f] += entry[f];
            }
        }
    });
}

}  // namespace nestcode
