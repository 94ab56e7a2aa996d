// Lossless coding of an image whose lossy reconstruction the decoder has: the residual, pixels minus shown ones.
//
//     shown pixels, coded pixels ──least squares──▶ prediction ──▶ error ──adaptive binary models, mixed──▶ range coder
//
// Samples are coded line by line, each line channel by channel: green, red, blue, alpha. The residual of a sample is
// predicted linearly from coded residuals around it, from those of the channels before, and from the shown pixels on
// all sides; the weights are those of weighted least squares over the samples so far, solved again every few of them
// (as in Wu, Barthel and Zhang, 1998, with exponential forgetting for a training window). The prediction error is
// binarized as a sign and an Elias gamma code, whose bits have contexts of neighboring errors, as in CALIC and PAQ.
//
// Floating point, in one order of operations: compiled with -ffp-contract=off and without -ffast-math, every machine
// predicts the same. One traversal serves encoder and decoder, so that their models cannot diverge.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <vector>

#include "context_mixing.hpp"
#include "image_bitplanes.hpp"

namespace nestcode {

// Linear prediction by weighted least squares: the more samples ago, the exponentially less weight.
class LeastSquares {
  public:
    static constexpr std::size_t kMost = 24;
    using Values = std::array<double, kMost>;  // those behind the features in use are 0

    explicit LeastSquares(std::size_t count) : count_(count) {}

    double predict(const Values& features) const {
        double sums[kLanes]{};
        for (std::size_t i = 0; i < kMost; i += kLanes)
            for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights_[i + lane] * features[i + lane];
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
    void add(const Values& features, double target, double weight) {
        // What precedes is not scaled down: what follows is scaled up.
        scale_ *= 1 / kForgetting;
        weight *= scale_;
        for (std::size_t i = 0; i < count_; ++i) {
            const double factor = weight * features[i];
            for (std::size_t j = i / kLanes * kLanes; j < kMost; ++j) squares_[i][j] += factor * features[j];
            products_[i] += factor * target;
        }
        if (++added_ % kSolveEvery == 0) solve();
    }

  private:
    static constexpr std::size_t kLanes = 4, kSolveEvery = 32;
    static constexpr double kForgetting = 0.999, kRidge = 1, kLargestScale = 1LL << 40, kLeastPivot = 1e-9;

    // Solves the normal equations by Gaussian elimination: they are symmetric and positive definite.
    void solve() {
        if (scale_ > kLargestScale) {
            for (auto& row : squares_)
                for (double& value : row) value /= kLargestScale;
            for (double& value : products_) value /= kLargestScale;
            scale_ /= kLargestScale;
        }
        std::array<Values, kMost> rows = squares_;
        Values right = products_;
        for (std::size_t i = 0; i < count_; ++i) rows[i][i] += kRidge * scale_;
        for (std::size_t k = 0; k < count_; ++k) {
            if (!(rows[k][k] > kLeastPivot * scale_)) return;
            for (std::size_t i = k + 1; i < count_; ++i) {
                const double factor = rows[k][i] / rows[k][k];
                for (std::size_t j = i / kLanes * kLanes; j < kMost; ++j) rows[i][j] -= factor * rows[k][j];
                right[i] -= factor * right[k];
            }
        }
        for (std::size_t i = count_; i-- > 0;) {
            double sum = right[i];
            for (std::size_t j = i + 1; j < count_; ++j) sum -= rows[i][j] * weights_[j];
            weights_[i] = sum / rows[i][i];
        }
    }

    std::size_t count_, added_ = 0;
    double scale_ = 1;
    std::array<Values, kMost> squares_{};  // the upper triangle
    Values products_{}, weights_{};
};

// Codes the samples of an image of which a receiver has the shown pixels. An encoder reads `pixels`; a decoder writes
// them, and they may be the shown ones in place.
template <class Pixel, class Io>
class ResidualTraversal {
  public:
    using Pixels = std::conditional_t<Io::kEncodes, const Pixel, Pixel>;

    ResidualTraversal(std::size_t height, std::size_t width, std::size_t channels, const Pixel* shown, Pixels* pixels)
        : height_(height), width_(width), channels_(channels), shown_(shown), pixels_(pixels) {
        for (std::size_t k = 0; k < channels; ++k) {
            const bool colors = channels >= 3, alpha = channels % 2 == 0 && k + 1 == channels;
            constexpr std::array<std::size_t, 3> green_first = {1, 0, 2};
            coders_.emplace_back(colors && !alpha ? green_first[k] : k, alpha ? 0 : k, width);
        }
    }

    // Codes until a bit has not arrived; it can be called again to continue.
    void run(Io& io) {
        for (; row_ < height_; ++row_, channel_ = 0)
            for (; channel_ < channels_; ++channel_, column_ = 0) {
                if (column_ == 0) begin_line();
                const Line line = current_line();
                const bool all = io.ahead([&](auto& coder) { return code_line(coder, line); });
                if (!all && !code_line(io, line)) return;
            }
    }
    // The lines of which all channels have been coded.
    std::size_t lines() const { return row_; }

  private:
    static constexpr std::ptrdiff_t kMargin = 2;                    // values around a line that features reach to
    static constexpr std::size_t kLines = 3;                        // that are kept of each kind
    static constexpr std::size_t kOwn = 7, kShown = 8, kOther = 4;  // features
    static_assert(kOwn + kShown + 2 * kOther <= LeastSquares::kMost);
    static constexpr int kUnit = 16;    // of prediction errors in a pixel value
    static constexpr int kWidest = 17;  // bits of the largest magnitude
    // Bits of a sample: its sign, whether its magnitude has more bits than 1, 2, …, and of each number of bits the
    // highest two below the leading one; bits below these are coded with even probabilities.
    static constexpr int kSign = 0, kWider = 0, kHighest = kWidest, kModeled = 12, kNodes = kHighest + 3 * kModeled;
    static constexpr std::size_t kMostBits = 2 * kWidest;  // of a sample
    static constexpr int kModels = 6, kLimit = 255, kRate = 3, kActivities = 4;
    static constexpr std::array<std::size_t, kModels> kContexts = {64 * 4, 16 * 16, 24 * 24, 24 * 16, 27 * 16, 40 * 8};
    static constexpr auto kStarts = table_starts(kContexts);

    using Ring = std::array<std::vector<std::int32_t>, kLines>;
    struct Channel {
        std::size_t place;   // in a pixel
        std::size_t others;  // channels before it that predict it
        LeastSquares predictor;
        Ring shown, residuals, errors;  // lines; errors in units of 1 / kUnit
        std::vector<BinaryModel> models{kStarts.back() * kNodes};
        std::vector<Mixer<kModels + 1>> mixers{kNodes * kActivities};

        Channel(std::size_t at, std::size_t before, std::size_t width)
            : place(at), others(before), predictor(kOwn + kShown + kOther * before) {
            for (Ring* ring : {&shown, &residuals, &errors})
                for (auto& line : *ring) line.assign(width + 2 * kMargin, 0);
        }
    };
    // Lines of a channel, the current one first, then those above.
    struct Lines {
        std::int32_t *own, *above;
        const std::int32_t* top;
    };
    struct Line {
        Channel* channel;
        const std::int32_t *shown, *above, *below;
        Lines residuals, errors;
        std::array<const std::int32_t*, 2> other_residuals, above_residuals, other_errors;
    };
    // The bits of a sample that were decoded before one that has not arrived.
    struct Decided {
        std::uint64_t bits = 0;
        int count = 0, next = 0;
    };

    static std::int32_t* find(Ring& ring, std::size_t row) { return ring[row % kLines].data() + kMargin; }
    Lines lines_of(Ring& ring) const {
        return {find(ring, row_), find(ring, row_ + 2), find(ring, row_ + 1)};  // modulo kLines
    }

    void begin_line() {
        Channel& channel = coders_[channel_];
        if (row_ == 0) load(channel, 0, 2), load(channel, 0, 0);
        load(channel, std::min(row_ + 1, height_ - 1), row_ + 1);
    }
    void load(Channel& channel, std::size_t row, std::size_t place) const {
        std::int32_t* line = find(channel.shown, place);
        const Pixel* from = shown_ + row * width_ * channels_ + channel.place;
        for (std::size_t x = 0; x < width_; ++x) line[x] = from[x * channels_];
        std::fill(line - kMargin, line, line[0]);
        std::fill_n(line + width_, kMargin, line[width_ - 1]);
    }
    Line current_line() {
        Channel& channel = coders_[channel_];
        Line line{&channel,
                  find(channel.shown, row_),
                  find(channel.shown, row_ + 2),
                  find(channel.shown, row_ + 1),
                  lines_of(channel.residuals),
                  lines_of(channel.errors),
                  {},
                  {},
                  {}};
        for (std::size_t k = 0; k < channel.others; ++k) {
            line.other_residuals[k] = find(coders_[k].residuals, row_);
            line.above_residuals[k] = find(coders_[k].residuals, row_ + 2);
            line.other_errors[k] = find(coders_[k].errors, row_);
        }
        return line;
    }

    // Codes the rest of a line; returns false if it stopped before.
    template <class Coder>
    bool code_line(Coder& coder, const Line& line) {
        for (; column_ < width_; ++column_)
            if (!coder.ready(kMostBits) || !code_sample(coder, line)) return false;
        return true;
    }

    static std::uint32_t size(std::int32_t value) { return static_cast<std::uint32_t>(std::abs(value)); }
    static std::size_t sign(std::int32_t error) { return error > kUnit / 2 ? 1 : error < -kUnit / 2 ? 2 : 0; }
    // The class of a sum of errors by its logarithm: there are `classes` in an octave.
    static std::size_t log_class(std::uint32_t sum, unsigned classes, std::size_t count) {
        ++sum;
        const int octave = std::bit_width(sum) - 1;
        const unsigned share = (octave >= 4 ? sum >> (octave - 4) : sum << (4 - octave)) & 15;
        return std::min<std::size_t>(static_cast<unsigned>(octave) * classes + share * classes / 16, count - 1);
    }

    template <class Coder>
    bool code_sample(Coder& coder, const Line& line) {
        constexpr double largest = std::numeric_limits<Pixel>::max();
        const auto x = static_cast<std::ptrdiff_t>(column_);
        const auto &residuals = line.residuals, &errors = line.errors;
        const std::int32_t *here = line.shown, *above = line.above, *below = line.below, shown = here[x];

        LeastSquares::Values features{};
        std::size_t next = 0;
        for (std::int32_t own : {residuals.own[x - 1], residuals.own[x - 2], residuals.above[x - 1], residuals.above[x],
                                 residuals.above[x + 1], residuals.above[x + 2], residuals.top[x]})
            features[next++] = own;
        for (std::int32_t one :
             {here[x - 1], here[x + 1], above[x - 1], above[x], above[x + 1], below[x - 1], below[x], below[x + 1]})
            features[next++] = one - shown;
        // Errors in the channels before: around this sample in the last one, and at this sample in all.
        std::uint32_t around = 0, same = 0;
        std::size_t other_sign = 0;
        for (std::size_t k = 0; k < line.channel->others; ++k) {
            const std::int32_t *other = line.other_residuals[k], *other_error = line.other_errors[k];
            for (std::int32_t one : {other[x - 1], other[x], other[x + 1], line.above_residuals[k][x]})
                features[next++] = one;
            around = size(other_error[x - 1]) + 2 * size(other_error[x]) + size(other_error[x + 1]);
            same += size(other_error[x]);
            other_sign = sign(other_error[x]);
        }
        double predicted = shown + line.channel->predictor.predict(features);
        predicted = predicted > 0 ? predicted : 0;
        predicted = predicted < largest ? predicted : largest;
        const auto fixed = static_cast<std::int32_t>(std::floor(predicted * kUnit));
        const std::int32_t whole = fixed / kUnit, fraction = fixed % kUnit;

        const std::uint32_t west = 2 * size(errors.own[x - 1]) + size(errors.own[x - 2]);
        const std::uint32_t north =
            size(errors.above[x - 1]) + 2 * size(errors.above[x]) + size(errors.above[x + 1]) + size(errors.top[x]);
        const std::uint32_t own = west + north, all = line.channel->others ? own / 2 + around : own;  // of 8 errors
        const std::uint32_t gradient = size(here[x + 1] - here[x - 1]) + size(below[x] - above[x]) +
                                       size(below[x + 1] - above[x - 1]) + size(below[x - 1] - above[x + 1]);
        const auto classes = [](std::uint32_t sum, unsigned octave, std::size_t count) {
            return log_class(sizeof(Pixel) == 1 ? sum : sum / kUnit, octave, count);
        };
        const std::size_t activity = classes(all / 16, 2, 16);
        const std::size_t signs = (other_sign * 3 + sign(errors.own[x - 1])) * 3 + sign(errors.above[x]);
        const std::array<std::size_t, kModels> contexts = {
            log_class(all / 4, 4, 64) * 4 + static_cast<std::size_t>(fraction / 4),
            classes(west / 6, 2, 16) * 16 + classes(north / 10, 2, 16),
            classes(around / 8, 2, 24) * 24 + classes(own / 16, 2, 24),
            classes(gradient, 2, 24) * 16 + activity,
            signs * 16 + activity,
            classes(size(errors.own[x - 1] + errors.above[x]) / 4 + same / 2, 3, 40) * 8 +
                static_cast<std::size_t>(fraction / 2)};
        std::array<BinaryModel*, kModels> models;
        for (std::size_t i = 0; i < kModels; ++i)
            models[i] = line.channel->models.data() + (kStarts[i] + contexts[i]) * kNodes;
        Mixer<kModels + 1>* mixers = line.channel->mixers.data() + classes(all / 16, 1, 2 * kActivities) / 2 * kNodes;

        decided_.next = 0;
        const auto code = [&](int node, bool bit) { return code_bit(coder, models, mixers, node, bit); };
        Pixels& pixel = pixels_[(row_ * width_ + column_) * channels_ + line.channel->place];
        const std::int32_t value = Io::kEncodes ? pixel : 0;
        const int up = code(kSign, value > whole);
        if (up < 0) return false;
        const auto magnitude = static_cast<std::uint32_t>(up ? value - whole : whole + 1 - value);  // 1 or more
        int bits = 1;
        for (; bits < kWidest; ++bits) {
            const int wider = code(kWider + bits, magnitude >> bits != 0);
            if (wider < 0) return false;
            if (!wider) break;
        }
        std::int32_t decoded = 1;
        for (int i = bits - 2, tree = 0; i >= 0; --i) {
            const bool modeled = bits - 2 - i < 2;
            const int node = modeled ? kHighest + 3 * (std::min(bits - 2, kModeled - 1)) + tree : kEven;
            const int bit = code(node, magnitude >> i & 1);
            if (bit < 0) return false;
            decoded = 2 * decoded + bit;
            tree = 1 + bit;
        }
        decided_ = {};
        // Only damaged bytes decode to values out of range.
        const std::int32_t coded =
            std::clamp<std::int32_t>(up ? whole + decoded : whole + 1 - decoded, 0, std::numeric_limits<Pixel>::max());
        if constexpr (!Io::kEncodes) pixel = static_cast<Pixel>(coded);
        residuals.own[x] = coded - shown;
        errors.own[x] = coded * kUnit - fixed;
        // The predictor is fitted to every second sample, which takes half the time. A sample counts by how precisely
        // those around it were predicted.
        if ((row_ + column_) % 2 == 0) {
            const double deviation = all / (8.0 * kUnit);
            line.channel->predictor.add(features, coded - shown, 1 / (deviation * deviation + 0.5));
        }
        return true;
    }

    static constexpr int kEven = -1;  // the node of bits without a model

    // Codes a bit, or returns one that was decoded before; -1 if it has not arrived.
    template <class Coder>
    int code_bit(Coder& coder, const std::array<BinaryModel*, kModels>& models, Mixer<kModels + 1>* mixers, int node,
                 bool value) {
        if (decided_.next < decided_.count) return decided_.bits >> decided_.next++ & 1;
        int bit;
        if (node == kEven) {
            bit = coder.bit(kOne / 2, value);
            if (bit < 0) return bit;
        } else {
            Mixer<kModels + 1>& mixer = mixers[node];
            // The last input is a constant, the bias.
            const Probability one =
                mixer.mix([&](std::size_t i) { return i < kModels ? models[i][node].logit() : stretch(kOne * 5 / 8); });
            bit = coder.bit(std::clamp<Probability>(one, 16, kOne - 16), value);
            if (bit < 0) return bit;
            mixer.update(bit, kRate);
            for (BinaryModel* model : models) model[node].update(bit, kLimit);
        }
        decided_.bits |= static_cast<std::uint64_t>(bit) << decided_.count++;
        decided_.next = decided_.count;
        return bit;
    }

    std::size_t height_, width_, channels_;
    const Pixel* shown_;
    Pixels* pixels_;
    std::vector<Channel> coders_;
    std::size_t row_ = 0, channel_ = 0, column_ = 0;
    Decided decided_;
};

// Returns the residual of an image as bytes.
template <class Pixel>
std::vector<std::uint8_t> encode_residual(std::size_t height, std::size_t width, std::size_t channels,
                                          const Pixel* shown, const Pixel* pixels) {
    EncoderIo io;
    ResidualTraversal<Pixel, EncoderIo> traversal(height, width, channels, shown, pixels);
    traversal.run(io);
    io.encoder.finish();
    return io.encoder.bytes();
}

// Turns shown pixels into those of the image in place, as the bytes of its residual arrive.
template <class Pixel>
class ResidualDecoder {
  public:
    ResidualDecoder(std::size_t height, std::size_t width, std::size_t channels, Pixel* pixels)
        : traversal_(height, width, channels, pixels, pixels) {}

    void feed(const std::uint8_t* bytes, std::size_t count) {
        io_.decoder.feed(bytes, count);
        traversal_.run(io_);
    }
    // The lines of pixels that are those of the image.
    std::size_t lines() const { return traversal_.lines(); }

  private:
    DecoderIo io_;
    ResidualTraversal<Pixel, DecoderIo> traversal_;
};

}  // namespace nestcode
