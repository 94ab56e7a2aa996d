// Residual quantization: a code selects one entry from each codebook, the entries are summed, and a beam search selects
// them (Chen, Guan, Wang, "Approximate nearest neighbor search by residual vector quantization", 2010; beam search as
// in Babenko and Lempitsky, "Additive quantization for extreme vector compression", 2014).
#pragma once

#include <utility>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"

namespace nestcode {

// Writes the `kept` candidates of least error, best first, ties in order. Insertion into a short sorted list is faster
// than a heap, because few candidates are kept and most are rejected by one comparison.
inline void select_beams(const float* error, std::size_t candidates, std::size_t kept,
                         std::vector<std::pair<float, std::uint32_t>>& best) {
    best.resize(kept);
    std::size_t found = 0;
    for (std::uint32_t c = 0; c < candidates; ++c) {
        if (found == kept && !(error[c] < best[found - 1].first)) continue;
        std::size_t at = found < kept ? found++ : found - 1;
        for (; at > 0 && error[c] < best[at - 1].first; --at) best[at] = best[at - 1];
        best[at] = {error[c], c};
    }
}

// One step of the beam search of `items` items. Beam b of item i has the squared error errors[i * beams + b], and its
// residual has the inner product products[(i * beams + b) * entries + e] with entry e. The `kept` best continuations
// are written, best first: their beam, their entry and their errors.
struct BeamStep {
    std::size_t items, beams, entries, kept;
    const float* errors;
    const float* products;
    const float* norms;  // squared, of the entries
    std::uint16_t* from;
    std::uint16_t* entry;
    float* new_errors;
};

inline void extend_beams(BeamStep step, std::size_t threads) {
    const std::size_t candidates = step.beams * step.entries;
    parallel_for(step.items, std::max<std::size_t>(1, (1 << 16) / candidates), threads,
                 [=](std::size_t begin, std::size_t end) {
                     std::vector<float> error(candidates);
                     std::vector<std::pair<float, std::uint32_t>> best;
                     for (std::size_t i = begin; i < end; ++i) {
                         for (std::size_t b = 0; b < step.beams; ++b) {
                             const float base = step.errors[i * step.beams + b];
                             const float* product = step.products + (i * step.beams + b) * step.entries;
                             float* out = error.data() + b * step.entries;
                             for (std::size_t e = 0; e < step.entries; ++e)
                                 out[e] = base + step.norms[e] - 2 * product[e];
                         }
                         select_beams(error.data(), candidates, step.kept, best);
                         for (std::size_t k = 0; k < step.kept; ++k) {
                             step.from[i * step.kept + k] = static_cast<std::uint16_t>(best[k].second / step.entries);
                             step.entry[i * step.kept + k] = static_cast<std::uint16_t>(best[k].second % step.entries);
                             step.new_errors[i * step.kept + k] = best[k].first;
                         }
                     }
                 });
}

// out[i] += the sum of the codebook entries that the bytes of codes[i] select; codebooks are (bytes, 256, features).
inline void sum_codebook_entries(Rows codes, const float* codebooks, std::size_t features, float* out,
                                 std::size_t threads) {
    parallel_for(codes.count, 256, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint8_t* code = codes[i];
            float* row = out + i * features;
            for (std::size_t m = 0; m < codes.bytes; ++m) {
                const float* entry = codebooks + (256 * m + code[m]) * features;
                for (std::size_t f = 0; f < features; ++f) row[f] += entry[f];
            }
        }
    });
}

}  // namespace nestcode
