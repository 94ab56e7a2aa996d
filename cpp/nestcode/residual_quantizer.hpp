// Residual quantization: a code selects one entry from each codebook, the entries are summed, and a beam search selects
// them (Chen, Guan, Wang, "Approximate nearest neighbor search by residual vector quantization", 2010; beam search as
// in Babenko and Lempitsky, "Additive quantization for extreme vector compression", 2014).
#pragma once

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "rows.hpp"
#include "simd.hpp"

namespace nestcode {

// An upper bound of the `kept` least errors: the largest of the least errors of as many disjoint sets of candidates.
[[gnu::always_inline]] inline float bound_least(const float* error, std::size_t candidates, std::size_t kept) {
    constexpr std::size_t lanes = 32;
    if (kept > lanes || candidates < lanes) return std::numeric_limits<float>::infinity();
    float least[lanes];
    std::copy_n(error, lanes, least);
    for (std::size_t first = lanes; first + lanes <= candidates; first += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane)
            least[lane] = error[first + lane] < least[lane] ? error[first + lane] : least[lane];
    for (std::size_t half = lanes / 2; half >= kept; half /= 2)
        for (std::size_t lane = 0; lane < half; ++lane) least[lane] = std::min(least[lane], least[half + lane]);
    return *std::max_element(least, least + kept);
}

// Which of 16 errors are not above a bound: one bit each, the first one lowest.
[[gnu::always_inline]] inline unsigned bits_within(const float* error, float bound) {
    using Int4 = int __attribute__((vector_size(16)));
    using Long2 = long long __attribute__((vector_size(16)));
    const Int4 weights{1, 2, 4, 8};
    Int4 bits{};
    for (int part = 0; part < 4; ++part) bits |= ~(load_float4(error + 4 * part) > bound) & weights << 4 * part;
    const auto halves = reinterpret_cast<Long2>(bits);
    const auto both = static_cast<unsigned long long>(halves[0] | halves[1]);
    return static_cast<unsigned>(both | both >> 32);
}

// Writes the `kept` candidates of least error, best first, ties in order. Insertion into a short sorted list is faster
// than a heap, because few candidates are within the bound.
[[gnu::always_inline]] inline void select_beams(const float* error, std::size_t candidates, std::size_t kept,
                                                std::vector<std::pair<float, std::uint32_t>>& best) {
    constexpr std::size_t block = 16;
    const float bound = bound_least(error, candidates, kept);
    best.resize(kept);
    std::size_t found = 0;
    const auto insert = [&](std::size_t c) {
        if (error[c] > bound || (found == kept && !(error[c] < best[found - 1].first))) return;
        std::size_t at = found < kept ? found++ : found - 1;
        for (; at > 0 && error[c] < best[at - 1].first; --at) best[at] = best[at - 1];
        best[at] = {error[c], static_cast<std::uint32_t>(c)};
    };
    std::size_t first = 0;
    for (; first + block <= candidates; first += block)
        for (unsigned bits = bits_within(error + first, bound); bits != 0; bits &= bits - 1)
            insert(first + static_cast<std::size_t>(std::countr_zero(bits)));
    for (; first < candidates; ++first) insert(first);
}

// One step of the beam search of `items` items. The residual of a beam is that of its ancestor, `lag` stages earlier,
// less the entries chosen since. Beams share ancestors, and tables have the inner products of entries: so fewer
// residuals than beams are multiplied by the codebook. The `kept` best continuations are written, best first: their
// beam, their entry and their errors.
struct BeamStep {
    static constexpr std::size_t kMostLag = 4;
    std::size_t items, beams, entries, kept, lag;
    const float* errors;             // (items, beams): squared
    const std::uint32_t* ancestors;  // (items, beams): rows of products
    const float* products;           // (ancestors, entries): of their residuals and the entries
    const std::uint8_t* recent;      // (items, beams, lag): the entries chosen since, of earlier codebooks
    const float* tables;             // (lag, 256, entries): of those and the entries
    const float* norms;              // (entries): squared
    std::uint16_t* from;
    std::uint16_t* entry;
    float* new_errors;
};

// Writes the squared error of a beam after each entry.
template <std::size_t lag>
[[gnu::always_inline]] inline void score_entries(const BeamStep& step, std::size_t beam, float* __restrict out) {
    const float base = step.errors[beam];
    const float* product = step.products + step.ancestors[beam] * step.entries;
    const float* rows[lag + 1];
    for (std::size_t j = 0; j < lag; ++j)
        rows[j] = step.tables + (256 * j + step.recent[beam * lag + j]) * step.entries;
    for (std::size_t e = 0; e < step.entries; ++e) {
        float left = product[e];
        for (std::size_t j = 0; j < lag; ++j) left -= rows[j][e];
        out[e] = base + step.norms[e] - 2 * left;
    }
}

template <std::size_t lag>
[[gnu::always_inline]] inline void extend_items(const BeamStep& step, std::size_t begin, std::size_t end) {
    std::vector<float> error(step.beams * step.entries);
    std::vector<std::pair<float, std::uint32_t>> best;
    for (std::size_t i = begin; i < end; ++i) {
        for (std::size_t b = 0; b < step.beams; ++b)
            score_entries<lag>(step, i * step.beams + b, error.data() + b * step.entries);
        select_beams(error.data(), error.size(), step.kept, best);
        for (std::size_t k = 0; k < step.kept; ++k) {
            step.from[i * step.kept + k] = static_cast<std::uint16_t>(best[k].second / step.entries);
            step.entry[i * step.kept + k] = static_cast<std::uint16_t>(best[k].second % step.entries);
            step.new_errors[i * step.kept + k] = best[k].first;
        }
    }
}

template <std::size_t lag>
void extend_portable(const BeamStep& step, std::size_t begin, std::size_t end) {
    extend_items<lag>(step, begin, end);
}

#if NESTCODE_X86
template <std::size_t lag>
NESTCODE_AVX2 void extend_avx2(const BeamStep& step, std::size_t begin, std::size_t end) {
    extend_items<lag>(step, begin, end);
}
#endif

template <std::size_t lag>
void extend_beams_by(const BeamStep& step, std::size_t threads) {
    auto kernel = extend_portable<lag>;
#if NESTCODE_X86
    if (choose_simd("") != Simd::portable) kernel = extend_avx2<lag>;
#endif
    parallel_for(step.items, std::max<std::size_t>(1, (1 << 16) / (step.beams * step.entries)), threads,
                 [&](std::size_t begin, std::size_t end) { kernel(step, begin, end); });
}

inline void extend_beams(const BeamStep& step, std::size_t threads) {
    switch (step.lag) {
        case 0: return extend_beams_by<0>(step, threads);
        case 1: return extend_beams_by<1>(step, threads);
        case 2: return extend_beams_by<2>(step, threads);
        case 3: return extend_beams_by<3>(step, threads);
        default: return extend_beams_by<BeamStep::kMostLag>(step, threads);
    }
}

// Writes the nearest entry of each row, the first of equals, given the inner products of rows and entries and half of
// the squared norms of the entries.
inline void nearest_entries(const float* products, const float* half_norms, std::size_t rows, std::size_t entries,
                            std::int64_t* nearest, std::size_t threads) {
    parallel_for(rows, 256, threads, [=](std::size_t begin, std::size_t end) {
        constexpr std::size_t lanes = 16;
        std::vector<float> scores(entries);
        for (std::size_t i = begin; i < end; ++i) {
            const float* product = products + i * entries;
            float most[lanes];
            std::fill_n(most, lanes, -std::numeric_limits<float>::infinity());
            for (std::size_t e = 0; e < entries; ++e) scores[e] = product[e] - half_norms[e];
            for (std::size_t e = 0; e + lanes <= entries; e += lanes)
                for (std::size_t lane = 0; lane < lanes; ++lane)
                    most[lane] = scores[e + lane] > most[lane] ? scores[e + lane] : most[lane];
            for (std::size_t e = entries / lanes * lanes; e < entries; ++e) most[0] = std::max(most[0], scores[e]);
            const auto found = std::find(scores.begin(), scores.end(), *std::max_element(most, most + lanes));
            nearest[i] = found == scores.end() ? 0 : found - scores.begin();  // all are NaN
        }
    });
}

// sums[entries[i]] += rows[sources[i]]. Each thread adds some of the features, so sums do not depend on their number.
inline void sum_rows_by_entry(const float* rows, const std::uint32_t* sources, const std::int64_t* entries,
                              std::size_t count, std::size_t features, float* sums, std::size_t threads) {
    parallel_for(features, 32, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t i = 0; i < count; ++i) {
            const float* row = rows + sources[i] * features;
            float* sum = sums + static_cast<std::size_t>(entries[i]) * features;
            for (std::size_t f = begin; f < end; ++f) sum[f] += row[f];
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
