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
#include "vectors.hpp"

namespace nestcode {

// Ratios of Laplacians from which on a cell of luma has a direction, and a strong one; and bounds of their sum, in
// steps.
inline constexpr std::array<float, 2> kDirected = {1.5F, 3};
inline constexpr std::array<float, 5> kActivities = {0.03F, 0.1F, 0.25F, 0.6F, 1.2F};
// The sum of horizontal and vertical Laplacians, in steps, from which on a cell of luma is texture: it stays as it is,
// as the filter cannot tell its noise from its detail. Not beyond a step of 16: residuals of lossless streams, which
// begin at steps above it, add to pixels that were filtered before this rule.
inline constexpr float kTexture = 4.5F, kCoarsestTextureStep = 16;
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

    // `width` is a multiple of 16. Channels are luma and possibly two of chroma, with a quantizer step each. The
    // strength is between 0, which changes nothing, and 1. Cells of luma with an activity of `texture` steps stay as
    // they are.
    ImageFilter(std::size_t width, const std::vector<float>& steps, float strength, float texture)
        : width_(width),
          stride_(width + 2 * kMargin),
          cells_(width / kCell),
          steps_(steps),
          texture_(texture * steps[0]),
          luma_((kAbove + kLines + kBelow) * stride_),
          sums_(kCellRows * kSums * cells_),
          column_sums_(cells_ + 2),
          local_(kSums * cells_),
          luma_classes_(cells_),
          turns_(cells_),
          chroma_classes_(cells_),
          slopes_(cells_) {
        const auto down = static_cast<std::ptrdiff_t>(stride_);
        offsets_ = {{{1, down, down + 1, down - 1}, {down, 1, down + 1, down - 1}, {1, down, down - 1, down + 1}}};
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
    // are `line` values apart and channels `channel`. Rows come from top to bottom. Registers are of `kBytes`.
    template <std::size_t kBytes>
    NESTCODE_INLINE void apply(float* own, const float* next, std::size_t line, std::size_t channel) {
        keep_luma(own, next, line);
        const std::size_t first = started_ ? 2 : 1, chromas = steps_.size() - 1;
        if (started_)  // the last two rows of cells are the first two of this row of blocks
            std::copy(sums_.begin() + static_cast<std::ptrdiff_t>(4 * kSums * cells_), sums_.end(), sums_.begin());
        for (std::size_t row = first; row < kCellRows - (next == nullptr); ++row) {
            add_luma<kBytes>(row);
            const float* lines = row <= 4 ? own + (row - 1) * kCell * line : next;
            for (std::size_t k = 0; k < chromas; ++k) add_chroma<kBytes>(row, k, lines + (k + 1) * channel, line);
        }
        if (!started_) copy_sums(1, 0);
        if (next == nullptr) copy_sums(4, 5);
        started_ = true;
        for (std::size_t row = 1; row <= 4; ++row) {
            average(row);
            float* out = own + (row - 1) * kCell * line;
            classify_luma();
            for (std::size_t cell = 0; cell < cells_; ++cell)
                if (luma_classes_[cell] != kUnchanged) filter_luma<kBytes>(row, cell, out + cell * kCell, line);
            for (std::size_t k = 0; k < chromas; ++k) {
                classify_chroma(k);
                for (std::size_t cell = 0; cell < cells_; ++cell)
                    filter_chroma(row, cell, k, out + (k + 1) * channel + cell * kCell, line);
            }
        }
    }

  private:
    template <std::size_t kBytes>
    using Register = typename Vector<kBytes>::Floats;
    using Row = Register<16>;  // of a cell
    static constexpr std::size_t kCell = 4, kMargin = 4, kAbove = 2, kBelow = 5;
    static constexpr std::size_t kCellRows = 6;  // of a row of blocks, one before and one behind
    // Sums over the pixels of a cell: Laplacians of four directions, luma and its square, and for each chroma channel
    // itself, its square and its product with luma.
    enum Sum : std::size_t { kHorizontal, kVertical, kDiagonal, kAntidiagonal, kLuma, kLumaSquare, kChroma };
    static constexpr std::size_t kChromaSums = 3, kSums = kChroma + 2 * kChromaSums;
    static constexpr int kUnchanged = -1;                 // the class of flat cells of luma, and of texture
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

    template <class Values>
    NESTCODE_INLINE static void load(const float* from, Values& values) {
        values = load_vector<Values>(from);
    }
    // As many rows of a cell as a register has, `line` values apart.
    template <class Values>
    NESTCODE_INLINE static void load_rows(const float* from, std::size_t line, Values& rows) {
        Row first, second;
        load(from, first);
        if constexpr (sizeof rows == sizeof(Row)) {
            rows = first;
        } else {
            load(from + line, second);
            rows = join(first, second);
        }
    }
    template <class Values>
    NESTCODE_INLINE static void store_rows(const Values& rows, float* to, std::size_t line) {
        if constexpr (sizeof rows == sizeof(Row)) {
            store_vector(rows, to);
        } else {
            store_rows(Row{rows[0], rows[1], rows[2], rows[3]}, to, line);
            store_rows(Row{rows[4], rows[5], rows[6], rows[7]}, to + line, line);
        }
    }
    template <class Values>
    NESTCODE_INLINE static Values absolute(const Values& values) {
        return values > -values ? values : -values;
    }
    template <class Values>
    NESTCODE_INLINE static Values clip(Values values, const Values& low, const Values& high) {
        values = values < high ? values : high;
        return values > low ? values : low;
    }
    // Sums of the four values of each cell.
    template <class Values>
    NESTCODE_INLINE static void store_totals(const Values& values, float* to) {
        for (std::size_t i = 0; i < sizeof values / sizeof(Row); ++i)
            to[i] = (values[4 * i] + values[4 * i + 1]) + (values[4 * i + 2] + values[4 * i + 3]);
    }

    // Luma of the current row of cells, of 6, and a cell.
    const float* luma(std::size_t row, std::size_t cell) const {
        return luma_.data() + (kAbove + (row - 1) * kCell) * stride_ + kMargin + cell * kCell;
    }
    float& sum(std::size_t row, std::size_t which, std::size_t cell) {
        return sums_[(row * kSums + which) * cells_ + cell];
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
    template <std::size_t kBytes>
    NESTCODE_INLINE void add_luma(std::size_t row) {
        constexpr std::size_t cells = kBytes / sizeof(Row);  // in a register
        for (std::size_t cell = 0; cell < cells_; cell += cells) {
            Register<kBytes> laplacians[4] = {}, values{}, squares{};
            for (std::size_t i = 0; i < kCell; ++i) {
                const float* at = luma(row, cell) + i * stride_;
                Register<kBytes> own, before, behind;
                load(at, own);
                for (std::size_t k = 0; k < 4; ++k) {
                    load(at - offsets_[0][k], before), load(at + offsets_[0][k], behind);
                    laplacians[k] += absolute<Register<kBytes>>((behind - own) + (before - own));
                }
                values += own;
                squares += own * own;
            }
            for (std::size_t k = 0; k < 4; ++k) store_totals(laplacians[k], &sum(row, k, cell));
            store_totals(values, &sum(row, kLuma, cell));
            store_totals(squares, &sum(row, kLumaSquare, cell));
        }
    }
    template <std::size_t kBytes>
    NESTCODE_INLINE void add_chroma(std::size_t row, std::size_t k, const float* lines, std::size_t line) {
        const std::size_t first = kChroma + k * kChromaSums;
        for (std::size_t cell = 0; cell < cells_; cell += kBytes / sizeof(Row)) {
            Register<kBytes> values{}, squares{}, products{};
            for (std::size_t i = 0; i < kCell; ++i) {
                Register<kBytes> own, guide;
                load(lines + i * line + cell * kCell, own), load(luma(row, cell) + i * stride_, guide);
                values += own;
                squares += own * own;
                products += own * guide;
            }
            store_totals(values, &sum(row, first, cell));
            store_totals(squares, &sum(row, first + 1, cell));
            store_totals(products, &sum(row, first + 2, cell));
        }
    }
    // Weighted averages of sums over 3 x 3 cells, into `local_`.
    NESTCODE_INLINE void average(std::size_t row) {
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
    const float* local(std::size_t which) const { return local_.data() + which * cells_; }

    // Finds the classes of a row of cells of luma, without branches.
    NESTCODE_INLINE void classify_luma() {
        const float *horizontals = local(kHorizontal), *verticals = local(kVertical);
        const float *diagonals = local(kDiagonal), *antidiagonals = local(kAntidiagonal);
        std::int32_t *classes = luma_classes_.data(), *turns = turns_.data();
        const float step = steps_[0];
        for (std::size_t cell = 0, cells = cells_; cell < cells; ++cell) {
            const float horizontal = horizontals[cell], vertical = verticals[cell];
            const float diagonal = diagonals[cell], antidiagonal = antidiagonals[cell];
            std::int32_t activity = 0;
            for (const float bound : kActivities) activity += horizontal + vertical >= bound * step;
            const bool upright = vertical > horizontal, backward = antidiagonal > diagonal;
            const float flat = upright ? horizontal : vertical, steep = upright ? vertical : horizontal;
            const float flat_across = backward ? diagonal : antidiagonal,
                        steep_across = backward ? antidiagonal : diagonal;
            const bool across = steep_across * flat > steep * flat_across;
            const float most = across ? steep_across : steep, least = across ? flat_across : flat;
            const bool directed = most > kDirected[0] * least, strongly = most > kDirected[1] * least;
            const std::int32_t direction = (directed ? 1 + across : 0) + (strongly ? 2 : 0);
            const std::int32_t turn = across ? (backward ? 2 : 0) : (upright ? 1 : 0);
            const std::int32_t own = direction * (static_cast<std::int32_t>(kActivities.size()) + 1) + activity;
            classes[cell] = (activity == 0) | (horizontal + vertical >= texture_) ? kUnchanged : own;
            turns[cell] = directed ? turn : 0;
        }
    }
    // Filters a cell of luma by the filter of its class, turned to the direction of the cell.
    template <std::size_t kBytes>
    NESTCODE_INLINE void filter_luma(std::size_t row, std::size_t cell, float* out, std::size_t line) const {
        using Rows = Register<kBytes>;
        constexpr std::size_t step = kBytes / sizeof(Row), count = kCell / step;
        const auto& weights = luma_weights_[static_cast<std::size_t>(luma_classes_[cell])];
        const auto& offsets = offsets_[static_cast<std::size_t>(turns_[cell])];
        const Rows bound = Rows{} + kClipped * steps_[0];
        const float* lines = luma(row, cell);
        Rows low[count], high[count], filtered[count];
        for (std::size_t i = 0; i < count; ++i) {
            Rows own;
            load_rows(lines + i * step * stride_, stride_, own);
            low[i] = own - bound, high[i] = own + bound;
            filtered[i] = weights[kTaps] * own;
        }
        for (std::size_t tap = 0; tap < kTaps / 2; ++tap) {
            const std::ptrdiff_t away = (tap < 4 ? 1 : 2) * offsets[tap % 4];
            for (std::size_t i = 0; i < count; ++i) {
                const float* at = lines + i * step * stride_;
                Rows before, behind;
                load_rows(at - away, stride_, before), load_rows(at + away, stride_, behind);
                filtered[i] += weights[tap] * (before + behind);
                filtered[i] +=
                    weights[tap + kTaps / 2] * (clip(before, low[i], high[i]) + clip(behind, low[i], high[i]));
            }
        }
        for (std::size_t i = 0; i < count; ++i) store_rows(filtered[i], out + i * step * line, line);
    }
    // Finds the classes of a row of cells of chroma, and the slopes of their regressions on luma.
    NESTCODE_INLINE void classify_chroma(std::size_t k) {
        const std::size_t first = kChroma + k * kChromaSums;
        const float *means = local(first), *squares = local(first + 1), *products = local(first + 2);
        const float *guides = local(kLuma), *guide_squares = local(kLumaSquare);
        const float step = steps_[k + 1], square = step * step;
        std::int32_t* classes = chroma_classes_.data();
        float* slopes = slopes_.data();
        for (std::size_t cell = 0, cells = cells_; cell < cells; ++cell) {
            const float mean = means[cell], guide = guides[cell];
            const float variance = squares[cell] - mean * mean, covariance = products[cell] - mean * guide;
            const float guide_variance = (guide_squares[cell] - guide * guide) + kRegularization * square;
            const float correlated = guide_variance * (variance + kNoise * square);
            std::int32_t deviation = 0, correlation = 0;
            for (const float bound : kDeviations) deviation += variance >= bound * bound * square;
            for (const float bound : kCorrelations) correlation += covariance * covariance > bound * correlated;
            classes[cell] = deviation * (static_cast<std::int32_t>(kCorrelations.size()) + 1) + correlation;
            slopes[cell] = covariance / guide_variance;
        }
    }
    NESTCODE_INLINE void filter_chroma(std::size_t row, std::size_t cell, std::size_t k, float* out,
                                       std::size_t line) const {
        const float mean = local(kChroma + k * kChromaSums)[cell], guide = local(kLuma)[cell];
        // What remains is linear in luma and chroma: regression and mean need not be computed for each pixel.
        const auto& [toward_regression, toward_mean] =
            chroma_weights_[k][static_cast<std::size_t>(chroma_classes_[cell])];
        const float slope = toward_regression * slopes_[cell];
        const float kept = 1 - (toward_regression + toward_mean);
        const float constant = (toward_regression + toward_mean) * mean - slope * guide;
        for (std::size_t i = 0; i < kCell; ++i) {
            Row own, guided;
            load(out + i * line, own), load(luma(row, cell) + i * stride_, guided);
            store_rows<Row>((slope * guided + kept * own) + constant, out + i * line, line);
        }
    }

    std::size_t width_, stride_, cells_;
    std::vector<float> steps_;
    float texture_;                                                        // the activity of texture
    std::array<std::array<float, kTaps + 1>, kLumaClasses> luma_weights_;  // of neighbors, and last of the pixel itself
    std::array<std::array<std::array<float, 2>, kChromaClasses>, 2> chroma_weights_;
    std::vector<float> luma_;         // unfiltered lines, with margins
    std::vector<float> sums_;         // of 6 rows of cells
    std::vector<float> column_sums_;  // of three rows of cells, with a margin
    std::vector<float> local_;        // of one row of cells, as what follows
    std::vector<std::int32_t> luma_classes_, turns_, chroma_classes_;
    std::vector<float> slopes_;  // of the regressions of a chroma channel on luma
    // Of neighbors of luma: horizontal, vertical, diagonal, antidiagonal; and with either two of them exchanged.
    std::array<std::array<std::ptrdiff_t, 4>, 3> offsets_;
    bool started_ = false;
};

}  // namespace nestcode
