// Asymmetric distance computation (ADC): sums of lookup-table entries selected by the bytes of codes.
//
// A query stays a float vector and has one table of 256 entries per byte of a code; a code's distance is the sum of the
// entries that its bytes select (Jégou, Douze, Schmid, "Product quantization for nearest neighbor search", 2011).
// fastscan.hpp does the same with 4-bit groups and tables that fit a register.
#pragma once

#include "inverted_lists.hpp"
#include "metric.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace nestcode {

// out[q * codes.count + i] = the sum over bytes b of tables[q][b][codes[i][b]]; tables are (queries, bytes, 256).
inline void sum_lookup_tables(Rows codes, const float* tables, std::size_t queries, float* out, std::size_t threads) {
    constexpr std::size_t lookups_per_thread = 1 << 16;
    const std::size_t grain = lookups_per_thread / std::max<std::size_t>(codes.bytes * queries, 1);
    parallel_for(codes.count, grain, threads, [=](std::size_t begin, std::size_t end) {
        for (std::size_t q = 0; q < queries; ++q) {
            const float* tables_of_query = tables + q * codes.bytes * 256;
            float* sums_of_query = out + q * codes.count;
            std::size_t i = begin;
            for (; i + 4 <= end; i += 4) {  // four sums at once hide the latency of additions
                float sums[4] = {};
                for (std::size_t b = 0; b < codes.bytes; ++b)
                    for (std::size_t j = 0; j < 4; ++j) sums[j] += tables_of_query[b * 256 + codes[i + j][b]];
                for (std::size_t j = 0; j < 4; ++j) sums_of_query[i + j] = sums[j];
            }
            for (; i < end; ++i) {
                float sum = 0;
                for (std::size_t b = 0; b < codes.bytes; ++b) sum += tables_of_query[b * 256 + codes[i][b]];
                sums_of_query[i] = sum;
            }
        }
    });
}

// Estimates distances by ADC over the first bytes of codes: table entries are -2 times inner products, and the squared
// norm of the decoded code is added unless the metric is the inner product.
struct AdcScorer {
    const float* tables;  // (bytes, 256)
    std::size_t bytes;
    Metric metric;

    void score(const ScanRange& scan, const ScanRange*, TopK& top) const {
        for (std::uint32_t position = scan.range.begin; position < scan.range.end; ++position) {
            const std::uint8_t* code = scan.lists->codes[position];
            float score = metric == Metric::inner ? 0 : scan.lists->norms[position];
            for (std::size_t b = 0; b < bytes; ++b) score += tables[256 * b + code[b]];
            if (clamp_to_finite(score) < top.threshold && scan.lists->allowed.contains(position))
                top.add(score, scan.lists->offset + position);
        }
    }
};

}  // namespace nestcode
