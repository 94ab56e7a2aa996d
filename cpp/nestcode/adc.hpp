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
