// Rows as coders take them, finite, L2-normalized and centered, and the squared norms of rows.
//
// Every value is rounded as NumPy's expressions round it, sums included: what was encoded before stays as it was.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "parallel.hpp"

namespace nestcode {

// NumPy's pairwise summation: more than 128 values are halved, fewer are added up in eight sums.
template <class Real>
Real pairwise_sum(const Real* values, std::size_t count) {
    if (count > 128) {
        const std::size_t half = count / 16 * 8;
        return pairwise_sum(values, half) + pairwise_sum(values + half, count - half);
    }
    Real sums[8] = {}, rest = 0;
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (std::size_t j = 0; j < 8; ++j) sums[j] += values[i + j];
    if (i != 0) rest = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; i < count; ++i) rest += values[i];
    return rest;
}

// The squares are stored before they are added: processors that fuse the two round once.
template <class Real>
double squared_norm(const Real* row, std::size_t features, double* squares) {
    for (std::size_t f = 0; f < features; ++f) squares[f] = static_cast<double>(row[f]) * static_cast<double>(row[f]);
    return pairwise_sum(squares, features);
}

// Writes the squared norms of rows, (count, features), in float64.
template <class Real>
void squared_norms(const Real* rows, std::size_t count, std::size_t features, double* out, std::size_t threads) {
    parallel_for(count, 1 + (1 << 16) / (features + 1), threads, [=](std::size_t begin, std::size_t end) {
        std::vector<double> squares(features);
        for (std::size_t i = begin; i < end; ++i) out[i] = squared_norm(rows + i * features, features, squares.data());
    });
}

// The largest magnitude of a row, or NaN if it has one. Without their signs, the bits of floats are ordered as integers
// are, infinity and NaN last; maxima of integers vectorize.
template <class Real>
Real largest_magnitude(const Real* row, std::size_t features) {
    using Bits = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;
    Bits largest = 0;
    for (std::size_t f = 0; f < features; ++f)
        largest = std::max(largest, std::bit_cast<Bits>(row[f]) & std::numeric_limits<Bits>::max());
    return std::bit_cast<Real>(largest);
}

// Writes rows, L2-normalized where `normalize` is set (zeros stay zeros), less the mean where there is one. Returns
// whether no magnitude is NaN or above `most`.
template <class Real, class Out>
bool center_rows(const Real* rows, std::size_t count, std::size_t features, const Real* mean, bool normalize, Real most,
                 Out* out, std::size_t threads) {
    std::atomic<bool> valid = true;
    parallel_for(count, 1 + (1 << 14) / (features + 1), threads, [=, &valid](std::size_t begin, std::size_t end) {
        std::vector<Real> scaled(features), squares(features);
        for (std::size_t i = begin; i < end; ++i) {
            const Real* row = rows + i * features;
            const Real largest = largest_magnitude(row, features);
            if (!(largest <= most)) valid = false;
            if (normalize && largest > 0) {
                for (std::size_t f = 0; f < features; ++f) {  // first, so that no square overflows
                    scaled[f] = row[f] / largest;
                    squares[f] = scaled[f] * scaled[f];
                }
                const Real norm = std::sqrt(pairwise_sum(squares.data(), features));
                for (std::size_t f = 0; f < features; ++f) scaled[f] /= norm;
                row = scaled.data();
            }
            Out* to = out + i * features;
            if (mean != nullptr)
                for (std::size_t f = 0; f < features; ++f) to[f] = static_cast<Out>(row[f] - mean[f]);
            else
                std::copy_n(row, features, to);
        }
    });
    return valid;
}

}  // namespace nestcode
