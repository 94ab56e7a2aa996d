// The filter of decoded images, which reduces their quantization noise: a Wiener filter of luma, a guided filter of
// chroma.
//
// As in the adaptive loop filter of VVC each cell of 4 x 4 pixels of luma has a class, by the direction and activity of
// its Laplacians, and each class has a filter of its own. It weighs differences to the neighbors and the same
// differences clipped, so that edges are not blurred. Chroma is moved toward its local linear regression on luma (the
// guided filter of He, Sun and Tang, 2010) and toward its local mean, by weights for each class of cells. All of it is
// in units of the quantizer step, so that one table of weights, linear in the
// logarithm of the step, serves every rate; benchmarks/image_filter.py trains
// them, and is the plain form of this file.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "image_filter_weights.hpp"

namespace nestcode {

// Ratios of Laplacians from which on a cell of luma has a direction, and a strong one; and bounds of their sum, in
// steps.
inline constexpr std::array<float, 2> kDirected = {1.5F, 3};
inline constexpr std::array<float, 5> kActivities = {0.03F, 0.1F, 0.25F, 0.6F, 1.2F};
inline constexpr float kClipped = 0.2F;  // of a step, to which differences are clipped
// Bounds of the standard deviation of chroma, in steps, and of its squared correlation with luma.
inline constexpr std::array<float, 4> kDeviations = {0.03F, 0.08F, 0.15F, 0.3F};
inline constexpr std::array<float, 3> kCorrelations = {0.1F, 0.3F, 0.6F};
// Variances of luma and chroma that count as noise, in squared steps.
inline constexpr float kRegularization = 0.02F, kNoise = 0.01F;
inline constexpr float kMiddle = 5, kHalf = 3;  // of the logarithms of steps that weights are fitted to

// Filters an image a row of blocks at a time, in place.
class ImageFilter {
  public:
    static constexpr std::size_t kLines = 16;  // of a row of blocks

    // `width` is a multiple of 4. Channels are luma and possibly two of chroma, with a quantizer step each. The
    // strength is between 0, which changes nothing, and 1.
    ImageFilter(std::size_t width, const std::vector<float>& steps, float strength)
        : width_(width),
          stride_(width + 2 * kMargin),
          cells_(width / kCell),
          steps_(steps),
          luma_((kAbove + kLines + kBelow) * stride_),
          sums_(kCellRows * kSums * cells_),
          column_sums_(cells_ + 2),
          local_(kSums * cells_) {
        set_weights<kTaps>(kLumaWeights, level(steps[0]), strength, luma_weights_);
        for (auto& weights : luma_weights_) {
            float sum = 0;
            for (std::size_t i = 0; i < kTaps; ++i) sum += weights[i];
            weights[kTaps] = 1 - 2 * sum;
        }
        for (std::size_t k = 0; k + 1 < steps.size(); ++k)
            set_weights<2>(kChromaWeights, level(steps[k + 1]), strength, chroma_weights_[k]);
    }

    // Filters the 16 lines at `own`; `next` are the lines behind them, of which at least 5 are complete, or null. Lines
    // are `line` values apart and channels `channel`. Rows come from top to bottom.
    void apply(float* own, const float* next, std::size_t line, std::size_t channel) {
        keep_luma(own, next, line);
        const std::size_t first = started_ ? 2 : 1, chromas = steps_.size() - 1;
        if (started_)  // the last two rows of cells are the first two of this row of blocks
            std::copy(sums_.begin() + static_cast<std::ptrdiff_t>(4 * kSums * cells_), sums_.end(), sums_.begin());
        for (std::size_t row = first; row < kCellRows - (next == nullptr); ++row) {
            add_luma(row);
            const float* lines = row <= 4 ? own + (row - 1) * kCell * line : next;
            for (std::size_t k = 0; k < chromas; ++k) add_chroma(row, k, lines + (k + 1) * channel, line);
        }
        if (!started_) copy_sums(1, 0);
        if (next == nullptr) copy_sums(4, 5);
        started_ = true;
        for (std::size_t row = 1; row <= 4; ++row) {
            average(row);
            float* out = own + (row - 1) * kCell * line;
            for (std::size_t cell = 0; cell < cells_; ++cell) {
                filter_luma(row, cell, out + cell * kCell, line);
                for (std::size_t k = 0; k < chromas; ++k)
                    filter_chroma(row, cell, k, out + (k + 1) * channel + cell * kCell, line);
            }
        }
    }

  private:
    using Register = float __attribute__((vector_size(16)));
    static constexpr std::size_t kCell = 4, kMargin = 4, kAbove = 2, kBelow = 5;
    static constexpr std::size_t kCellRows = 6;  // of a row of blocks, one before and one behind
    // Sums over the pixels of a cell: Laplacians of four directions, luma and its square, and for each chroma channel
    // itself, its square and its product with luma.
    enum Sum : std::size_t { kHorizontal, kVertical, kDiagonal, kAntidiagonal, kLuma, kLumaSquare, kChroma };
    static constexpr std::size_t kChromaSums = 3, kSums = kChroma + 2 * kChromaSums;
    static constexpr float kPixels = 16 * kCell * kCell;  // of a weighted sum over 3 x 3 cells

    // Where between the finest and the coarsest steps one lies, from -1 to 1; its logarithm is linear between powers
    // of 2.
    static float level(float step) {
        int exponent = 0;
        const float mantissa = 2 * std::frexp(step, &exponent);
        return std::clamp((static_cast<float>(exponent) + mantissa - 2 - kMiddle) / kHalf, -1.0F, 1.0F);
    }
    // Weights are linear in the level.
    template <std::size_t kCount, std::size_t kClasses, class Weights>
    static void set_weights(const std::int16_t (&trained)[kClasses][2 * kCount], float level, float strength,
                            std::array<Weights, kClasses>& out) {
        for (std::size_t i = 0; i < kClasses; ++i)
            for (std::size_t j = 0; j < kCount; ++j)
                out[i][j] = strength * kWeightUnit *
                            (static_cast<float>(trained[i][j]) + level * static_cast<float>(trained[i][j + kCount]));
    }

    static Register load(const float* from) {
        Register values;
        std::memcpy(&values, from, sizeof values);
        return values;
    }
    static void store(Register values, float* to) { std::memcpy(to, &values, sizeof values); }
    static float total(Register values) { return (values[0] + values[1]) + (values[2] + values[3]); }
    static Register absolute(Register values) { return values > -values ? values : -values; }
    static Register clip(Register values, Register low, Register high) {
        values = values < high ? values : high;
        return values > low ? values : low;
    }

    // Luma of the current row of cells, of 6, and a cell.
    const float* luma(std::size_t row, std::size_t cell) const {
        return luma_.data() + (kAbove + (row - 1) * kCell) * stride_ + kMargin + cell * kCell;
    }
    float& sum(std::size_t row, std::size_t which, std::size_t cell) {
        return sums_[(row * kSums + which) * cells_ + cell];
    }
    // The offset of a neighbor in one of the directions: horizontal, vertical, diagonal, antidiagonal.
    std::ptrdiff_t offset(std::size_t direction) const {
        const auto stride = static_cast<std::ptrdiff_t>(stride_);
        return std::array<std::ptrdiff_t, 4>{1, stride, stride + 1, stride - 1}[direction];
    }

    // Copies luma, with margins that repeat the edges of the image.
    void keep_luma(const float* own, const float* next, std::size_t line) {
        const auto keep = [&](std::size_t at, const float* from) {
            float* to = luma_.data() + at * stride_ + kMargin;
            std::copy(from, from + width_, to);
            std::fill(to - kMargin, to, to[0]);
            std::fill(to + width_, to + width_ + kMargin, to[width_ - 1]);
        };
        for (std::size_t i = 0; i < kAbove; ++i) {
            if (started_)
                std::copy_n(luma_.data() + (i + kLines) * stride_, stride_, luma_.data() + i * stride_);
            else
                keep(i, own);
        }
        for (std::size_t i = 0; i < kLines; ++i) keep(kAbove + i, own + i * line);
        for (std::size_t i = 0; i < kBelow; ++i)
            keep(kAbove + kLines + i, next ? next + i * line : own + (kLines - 1) * line);
    }
    void copy_sums(std::size_t from, std::size_t to) { std::copy_n(&sum(from, 0, 0), kSums * cells_, &sum(to, 0, 0)); }
    void add_luma(std::size_t row) {
        for (std::size_t cell = 0; cell < cells_; ++cell) {
            Register laplacians[4] = {}, values{}, squares{};
            for (std::size_t i = 0; i < kCell; ++i) {
                const float* at = luma(row, cell) + i * stride_;
                const Register own = load(at);
                for (std::size_t k = 0; k < 4; ++k)
                    laplacians[k] += absolute((load(at + offset(k)) - own) + (load(at - offset(k)) - own));
                values += own;
                squares += own * own;
            }
            for (std::size_t k = 0; k < 4; ++k) sum(row, k, cell) = total(laplacians[k]);
            sum(row, kLuma, cell) = total(values);
            sum(row, kLumaSquare, cell) = total(squares);
        }
    }
    void add_chroma(std::size_t row, std::size_t k, const float* lines, std::size_t line) {
        for (std::size_t cell = 0; cell < cells_; ++cell) {
            Register values{}, squares{}, products{};
            for (std::size_t i = 0; i < kCell; ++i) {
                const Register own = load(lines + i * line + cell * kCell);
                values += own;
                squares += own * own;
                products += own * load(luma(row, cell) + i * stride_);
            }
            const std::size_t first = kChroma + k * kChromaSums;
            sum(row, first, cell) = total(values);
            sum(row, first + 1, cell) = total(squares);
            sum(row, first + 2, cell) = total(products);
        }
    }
    // Weighted averages of sums over 3 x 3 cells, into `local_`.
    void average(std::size_t row) {
        const std::size_t used = kChroma + (steps_.size() - 1) * kChromaSums;
        for (std::size_t which = 0; which < used; ++which) {
            const float *above = &sum(row - 1, which, 0), *at = &sum(row, which, 0), *below = &sum(row + 1, which, 0);
            float *sums = column_sums_.data() + 1, *out = local_.data() + which * cells_;
            for (std::size_t i = 0; i < cells_; ++i) sums[i] = (above[i] + below[i]) + 2 * at[i];
            sums[-1] = sums[0], sums[cells_] = sums[cells_ - 1];
            for (std::size_t i = 0; i < cells_; ++i)
                out[i] = ((sums[static_cast<std::ptrdiff_t>(i) - 1] + sums[i + 1]) + 2 * sums[i]) * (1 / kPixels);
        }
    }
    float local(std::size_t which, std::size_t cell) const { return local_[which * cells_ + cell]; }

    // Filters a cell of luma by the filter of its class, turned to the direction of the cell. Flat cells stay as they
    // are.
    void filter_luma(std::size_t row, std::size_t cell, float* out, std::size_t line) const {
        const float horizontal = local(kHorizontal, cell), vertical = local(kVertical, cell);
        int activity = 0;
        for (const float bound : kActivities) activity += horizontal + vertical >= bound * steps_[0];
        if (activity == 0) return;
        const float diagonal = local(kDiagonal, cell), antidiagonal = local(kAntidiagonal, cell);
        const auto [flat, steep] = std::minmax(horizontal, vertical);
        const auto [flat_across, steep_across] = std::minmax(diagonal, antidiagonal);
        const bool across = steep_across * flat > steep * flat_across;
        const float most = across ? steep_across : steep, least = across ? flat_across : flat;
        const int strength = (most > kDirected[0] * least) + (most > kDirected[1] * least);
        const int direction = strength == 0 ? 0 : 2 * strength - 1 + across;
        const bool turned = strength > 0 && (across ? antidiagonal > diagonal : vertical > horizontal);
        const auto& weights = luma_weights_[static_cast<std::size_t>(direction) * (kActivities.size() + 1) +
                                            static_cast<std::size_t>(activity)];
        std::array<std::size_t, 4> directions = {0, 1, 2, 3};
        if (turned) std::swap(directions[across ? 2 : 0], directions[across ? 3 : 1]);
        const Register bound = Register{} + kClipped * steps_[0];
        const float* lines = luma(row, cell);
        Register low[kCell], high[kCell], filtered[kCell];
        for (std::size_t i = 0; i < kCell; ++i) {
            const Register own = load(lines + i * stride_);
            low[i] = own - bound, high[i] = own + bound;
            filtered[i] = weights[kTaps] * own;
        }
        for (std::size_t tap = 0; tap < kTaps / 2; ++tap) {
            const std::ptrdiff_t away = (tap < 4 ? 1 : 2) * offset(directions[tap % 4]);
            for (std::size_t i = 0; i < kCell; ++i) {
                const float* at = lines + i * stride_;
                const Register before = load(at - away), behind = load(at + away);
                filtered[i] += weights[tap] * (before + behind);
                filtered[i] +=
                    weights[tap + kTaps / 2] * (clip(before, low[i], high[i]) + clip(behind, low[i], high[i]));
            }
        }
        for (std::size_t i = 0; i < kCell; ++i) store(filtered[i], out + i * line);
    }
    void filter_chroma(std::size_t row, std::size_t cell, std::size_t k, float* out, std::size_t line) const {
        const std::size_t first = kChroma + k * kChromaSums;
        const float step = steps_[k + 1], square = step * step;
        const float mean = local(first, cell), guide = local(kLuma, cell);
        const float variance = local(first + 1, cell) - mean * mean, covariance = local(first + 2, cell) - mean * guide;
        const float guide_variance = (local(kLumaSquare, cell) - guide * guide) + kRegularization * square;
        const float correlated = guide_variance * (variance + kNoise * square);
        std::size_t index = 0;
        for (const float bound : kDeviations) index += variance >= bound * bound * square;
        index *= kCorrelations.size() + 1;
        for (const float bound : kCorrelations) index += covariance * covariance > bound * correlated;
        // What remains is linear in luma and chroma: regression and mean need not be computed for each pixel.
        const auto& [toward_regression, toward_mean] = chroma_weights_[k][index];
        const float slope = toward_regression * (covariance / guide_variance);
        const float kept = 1 - (toward_regression + toward_mean);
        const float constant = (toward_regression + toward_mean) * mean - slope * guide;
        for (std::size_t i = 0; i < kCell; ++i) {
            const Register guided = slope * load(luma(row, cell) + i * stride_);
            store((guided + kept * load(out + i * line)) + constant, out + i * line);
        }
    }

    std::size_t width_, stride_, cells_;
    std::vector<float> steps_;
    std::array<std::array<float, kTaps + 1>, kLumaClasses> luma_weights_;  // of neighbors, and last of the pixel itself
    std::array<std::array<std::array<float, 2>, kChromaClasses>, 2> chroma_weights_;
    std::vector<float> luma_;         // unfiltered lines, with margins
    std::vector<float> sums_;         // of 6 rows of cells
    std::vector<float> column_sums_;  // of three rows of cells, with a margin
    std::vector<float> local_;        // of one row of cells
    bool started_ = false;
};

}  // namespace nestcode
