// Nested bits of a picture: its coefficients plane by plane, each bit with the chance that what is known gives it.
//
// A picture comes as channels of square tiles of whole numbers, in each tile the low frequencies first. Planes go from
// the highest bit of the magnitudes to the lowest, so that a bit gains about as much as those beside it in the stream,
// wherever in the picture it lies. The means of 4 x 4 tiles, a span, come transformed once more. Where a picture is
// flat, zeros that everybody expects cost nearly nothing. In a plane come first the coefficients whose neighbours are
// known not to be zero, then the next bits of those that are not zero themselves, then the rest. One walk serves for
// writing and for reading, so that both learn the same.
#pragma once

#include <cstdlib>
#include <utility>

#include "entropy.hpp"

namespace nestcode {

inline constexpr std::size_t kKinds = 4;  // of channels: lightness, two colors, opacity
inline constexpr int kTile = 16;          // pixels on a side
inline constexpr int kLevels = 5;   // of bands in a tile: its mean, then bands of 1, 2, 4 and 8 frequencies on a side
inline constexpr int kSpan = 4;     // tiles on a side whose means are transformed together
inline constexpr int kPlanes = 15;  // at most
inline constexpr int kPasses = 3;   // likely, next bits, rest

// Few classes for sums of neighbours' magnitudes: 12, or 6.
inline int fine_class(int sum) {
    constexpr std::array<std::uint8_t, 24> classes = {0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 7,
                                                      8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9};
    return sum < 24 ? classes[static_cast<std::size_t>(sum)] : sum < 40 ? 10 : 11;
}
inline int coarse_class(int sum) {
    return sum < 3 ? sum : sum < 5 ? 3 : sum < 10 ? 4 : 5;
}

// A bit seen in several contexts, each of which has learnt a chance for it; the mixer has learnt whom to believe.
template <std::size_t kViews>
struct Views {
    std::array<Learner*, kViews> learners;
    Mixer<kViews + 1>* mixer;

    Chance chance() const {
        for (std::size_t i = 0; i < kViews; ++i) mixer->set(i, learners[i]->chance());
        mixer->set(kViews, kSure * 5 / 8);  // a constant, for a bias
        return std::clamp<Chance>(mixer->chance(), 16, kSure - 16);
    }
    void learn(bool bit, int memory) const {
        mixer->learn(bit, 6);
        for (Learner* learner : learners) learner->learn(bit, memory);
    }
};

// What is learnt from bits, of this picture and of those before it.
struct PictureModel {
    static constexpr std::array<std::size_t, 7> kViews = {1440, 13056, 5184, 10368, 32640, 31104, 6912};
    static constexpr std::array<std::size_t, 4> kGates = {1600, 2560, 2400, 1200};
    static constexpr std::size_t kNext = 1536, kMeans = 256, kMixers = 480, kGateMixers = 20;

    std::array<std::vector<Learner>, 7> views;  // is a coefficient not zero?
    std::array<std::vector<Learner>, 4> gates;  // is any of a band in a tile not zero?
    std::vector<Learner> next;                  // the bits after the first
    std::vector<Learner> means;                 // signs and next bits of tiles' means, by those around them
    std::vector<Mixer<8>> mixers;
    std::vector<Mixer<5>> gate_mixers;

    PictureModel() : next(kNext), means(kMeans), mixers(kMixers), gate_mixers(kGateMixers) {
        for (std::size_t i = 0; i < views.size(); ++i) views[i].resize(kViews[i]);
        for (std::size_t i = 0; i < gates.size(); ++i) gates[i].resize(kGates[i]);
    }

    template <class Visit>
    void each_learner(Visit visit) {
        for (auto& table : views)
            for (Learner& learner : table) visit(learner);
        for (auto& table : gates)
            for (Learner& learner : table) visit(learner);
        for (Learner& learner : next) visit(learner);
        for (Learner& learner : means) visit(learner);
    }
    template <class Visit>
    void each_weight(Visit visit) {
        for (auto& mixer : mixers)
            for (std::int32_t& weight : mixer.weights()) visit(weight);
        for (auto& mixer : gate_mixers)
            for (std::int32_t& weight : mixer.weights()) visit(weight);
    }
};

struct PictureShape {
    std::vector<std::size_t> kinds;  // of the channels
    std::size_t rows, columns;       // of tiles

    std::size_t tiles() const { return rows * columns; }
    std::size_t count() const { return kinds.size() * tiles() * kTile * kTile; }
};

// Frequencies of a tile that are coded together: `side` x `side` of them.
struct Band {
    int level, way, row, column, side;
};
inline constexpr auto kBands = [] {
    std::array<Band, 1 + 3 * (kLevels - 1)> bands{};
    bands[0] = {0, 0, 0, 0, 1};
    std::size_t next = 1;
    for (int level = 1, side = 1; level < kLevels; ++level, side *= 2)
        for (int way = 1; way < 4; ++way) bands[next++] = {level, way, way & 2 ? side : 0, way & 1 ? side : 0, side};
    return bands;
}();

// Reads `truth`, or writes what `io` gives in its place: `io.bit(chance, truth)` is the bit, or -1 where it is not
// known.
template <class Io>
class PictureWalk {
  public:
    // `known` holds what readers know of each coefficient, (2 m + 1) 2^p for a magnitude from m 2^p up to (m + 1) 2^p,
    // with its sign, or 0; `truth` is null for them. Both are (channels, rows, columns, tile, tile).
    PictureWalk(PictureShape shape, int planes, PictureModel model, const std::int32_t* truth, std::int32_t* known)
        : shape_(std::move(shape)),
          model_(std::move(model)),
          truth_(truth),
          known_(known),
          magnitudes_(shape_.kinds.size() * shape_.tiles() * kArea),
          planes_seen_(magnitudes_.size()),
          means_(shape_.kinds.size() * shape_.tiles()),
          open_(shape_.kinds.size() * kBands.size() * (shape_.rows + 2) * (shape_.columns + 2)),
          plane_(planes - 1) {
        for (std::size_t i = 0; truth && i < shape_.count(); ++i) left_ += square_left(truth[i], 0);
    }

    // Goes on as far as bits are known, or until `enough()` after a tile's band; `passed()` is called after every pass.
    template <class Enough, class Passed>
    void go_on(Io& io, Enough enough, Passed passed) {
        for (; plane_ >= 0; --plane_, pass_ = 0)
            for (; pass_ < kPasses; ++pass_, band_ = 0) {
                for (; band_ < kBands.size(); ++band_, channel_ = 0)
                    for (; channel_ < shape_.kinds.size(); ++channel_, row_ = 0)
                        for (; row_ < shape_.rows; ++row_, column_ = 0)
                            for (; column_ < shape_.columns; ++column_, place_ = 0, opened_ = false)
                                if (enough() || !visit(io)) return;
                passed();
            }
    }

    PictureModel& model() { return model_; }
    // The lowest plane that is known of all coefficients.
    int plane() const { return plane_ + 1; }
    // The sum of squares that readers are missing so far.
    double left() const { return left_; }

  private:
    static constexpr std::ptrdiff_t kMargin = 2, kStride = kTile + 2 * kMargin;
    static constexpr std::size_t kArea = kStride * kStride;
    enum Pass { kLikely, kNext, kRest };
    using Magnitudes = const std::uint16_t*;

    std::size_t tile(std::size_t channel, std::size_t row, std::size_t column) const {
        return (channel * shape_.rows + row) * shape_.columns + column;
    }
    std::uint8_t& open(std::size_t channel, std::size_t band, std::size_t row, std::size_t column) {
        return open_[((channel * kBands.size() + band) * (shape_.rows + 2) + row) * (shape_.columns + 2) + column];
    }
    // The tile of another place in the picture or another channel; of nothing but zeros where there is none.
    Magnitudes beside(std::size_t channel, std::ptrdiff_t down, std::ptrdiff_t right) const {
        const std::size_t row = row_ + static_cast<std::size_t>(down),
                          column = column_ + static_cast<std::size_t>(right);
        if (row >= shape_.rows || column >= shape_.columns) return kNothing.data();
        return magnitudes_.data() + tile(channel, row, column) * kArea;
    }

    bool visit(Io& io) {
        const Band& band = kBands[band_];
        std::uint8_t& open = this->open(channel_, band_, row_ + 1, column_ + 1);
        const std::size_t at = tile(channel_, row_, column_);
        const std::int32_t* truth = truth_ ? truth_ + at * kTile * kTile : nullptr;
        if (!open && band.side > 1) {
            if (pass_ != kRest) return true;
            if (!try_to_open(io, truth)) return false;
            if (!open) return true;
            opened_ = true;
        }
        std::uint16_t* own = magnitudes_.data() + at * kArea;
        std::uint8_t* seen = planes_seen_.data() + at * kArea;
        std::int32_t* known = known_ ? known_ + at * kTile * kTile : nullptr;
        const std::ptrdiff_t apart = band_ == 0 ? kSpan : 1;  // tiles whose coefficients are of the same frequency
        const Around around{own,
                            beside(channel_, 0, -apart),
                            beside(channel_, -apart, 0),
                            beside(channel_, 0, apart),
                            beside(channel_, apart, 0),
                            other(0),
                            other(1)};
        for (; place_ < band.side * band.side; ++place_) {
            const int row = band.row + place_ / band.side, column = band.column + place_ % band.side;
            const std::ptrdiff_t here = (row + kMargin) * kStride + column + kMargin;
            if (seen[here] == plane_ + 1 && !signing_) continue;
            const std::int32_t value = truth ? truth[row * kTile + column] : 0;
            const int magnitude = std::abs(value), before = own[here];
            int negative = band_ == 0 ? means_[at] < 0 : known && known[row * kTile + column] < 0;
            if (own[here] != 0) {
                if (pass_ != kNext) continue;
                Learner& learner = is_mean() ? next_bit_of_mean(own[here]) : next_bit(around, here);
                const int bit = io.bit(bounded(learner.chance()), magnitude >> plane_ & 1);
                if (bit < 0) return false;
                learner.learn(bit, 1000);
                own[here] = static_cast<std::uint16_t>((own[here] >> (plane_ + 2) << 1 | bit) << 1 | 1) << plane_;
            } else {
                if (pass_ == kNext) continue;
                if (!signing_) {
                    const Seen sums = look(around, here);
                    if (pass_ == kLikely && sums.near + sums.across == 0) continue;
                    const auto views = coefficient(around, here, sums, row, column);
                    const int bit = io.bit(views.chance(), magnitude >> plane_ != 0);
                    if (bit < 0) return false;
                    views.learn(bit, 400);
                    seen[here] = static_cast<std::uint8_t>(plane_ + 1);
                    if (!bit) continue;
                    signing_ = true;
                }
                Learner* learner = is_mean() ? &sign_of_mean() : nullptr;
                negative = io.bit(learner ? bounded(learner->chance()) : kSure / 2, value < 0);
                if (negative < 0) return false;
                if (learner) learner->learn(negative, 250);
                signing_ = false;
                open = 1;
                own[here] = static_cast<std::uint16_t>(3 << plane_);
            }
            seen[here] = static_cast<std::uint8_t>(plane_ + 1);
            if (truth) left_ += square_left(magnitude, own[here]) - square_left(magnitude, before);
            if (band_ == 0) means_[at] = negative ? -own[here] : own[here];
            if (known) known[row * kTile + column] = negative ? -own[here] : own[here];
        }
        return true;
    }

    // Whether a band of a tile that was all zeros so far still is. False where the bit is not known.
    bool try_to_open(Io& io, const std::int32_t* truth) {
        const Band& band = kBands[band_];
        bool any = false;
        for (int i = 0; truth && i < band.side * band.side && !any; ++i)
            any = std::abs(truth[(band.row + i / band.side) * kTile + band.column + i % band.side]) >> plane_;
        const std::size_t kind = shape_.kinds[channel_];
        const auto is_open = [&](std::size_t channel, std::size_t band, int down, int right) {
            return static_cast<std::size_t>(open(channel, band, row_ + static_cast<std::size_t>(1 + down),
                                                 column_ + static_cast<std::size_t>(1 + right)));
        };
        const std::size_t west = is_open(channel_, band_, 0, -1), north = is_open(channel_, band_, -1, 0);
        const std::size_t four = west + north + is_open(channel_, band_, 0, 1) + is_open(channel_, band_, 1, 0);
        const std::size_t coarser = is_open(channel_, band_ - 3, 0, 0);
        const std::size_t siblings = (band.way > 1 ? is_open(channel_, band_ - 1, 0, 0) : 0) +
                                     (band.way > 2 ? 2 * is_open(channel_, band_ - 2, 0, 0) : 0);
        std::size_t colors = 0;
        if (kind == 1 || kind == 2) colors = is_open(0, band_, 0, 0) + (kind == 2 ? 2 * is_open(1, band_, 0, 0) : 0);
        const Band& wider = kBands[band_ - 3];
        const std::uint16_t* own = magnitudes_.data() + tile(channel_, row_, column_) * kArea;
        int busy = 0;
        for (int i = 0; i < wider.side * wider.side; ++i)
            busy += own[(wider.row + i / wider.side + kMargin) * kStride + wider.column + i % wider.side + kMargin] >>
                        (plane_ + 1) !=
                    0;
        const std::size_t what =
            (kind * kLevels + static_cast<std::size_t>(band.level)) * 4 + static_cast<std::size_t>(band.way);
        const std::size_t class_of_busy = static_cast<std::size_t>(coarse_class(busy));
        auto& gates = model_.gates;
        const Views<4> views{{&gates[0][(what * 5 + four) * 4 + 2 * west + north],
                              &gates[1][((what * 2 + coarser) * 4 + siblings) * 4 + colors],
                              &gates[2][(what * 6 + class_of_busy) * 5 + four],
                              &gates[3][what * kPlanes + static_cast<std::size_t>(plane_)]},
                             &model_.gate_mixers[kind * kLevels + static_cast<std::size_t>(band.level)]};
        const int bit = io.bit(views.chance(), any);
        if (bit < 0) return false;
        views.learn(bit, 250);
        if (bit) open(channel_, band_, row_ + 1, column_ + 1) = 1;
        return true;
    }

    // The square of what is missing where a magnitude, rounded down, is known as in `known`; the rounding not counted.
    static double square_left(int magnitude, int known) {
        const double missing = magnitude == 0 ? 0 : std::abs(magnitude) + 0.5 - known / 2.0;
        return missing * missing;
    }

    struct Around {
        Magnitudes own, west, north, east, south, light, color;
    };
    struct Seen {
        int near, across;
    };

    Magnitudes other(std::size_t kind) const {
        const std::size_t own = shape_.kinds[channel_];
        return own < 3 && kind < own ? beside(kind, 0, 0) : kNothing.data();
    }
    // A magnitude that is known, in units of this plane.
    int unit(Magnitudes tile, std::ptrdiff_t here) const { return tile[here] >> (plane_ + 1); }
    int four(Magnitudes tile, std::ptrdiff_t here) const {
        return unit(tile, here - 1) + unit(tile, here + 1) + unit(tile, here - kStride) + unit(tile, here + kStride);
    }
    // Near frequencies in the tile, and the same frequency in the tiles around it.
    Seen look(const Around& a, std::ptrdiff_t here) const {
        if (band_ == 0) {
            int near = 0;
            for (const auto& [down, right] : {std::pair{0, -1}, {-1, 0}, {0, 1}, {1, 0}, {-1, -1}})
                near += 2 * unit(within_span(down, right), here);
            return {near, unit(a.west, here) + unit(a.north, here) + unit(a.east, here) + unit(a.south, here)};
        }
        const int near = 2 * four(a.own, here) + unit(a.own, here - kStride - 1) + unit(a.own, here - kStride + 1) +
                         unit(a.own, here + kStride - 1) + unit(a.own, here - 2) + unit(a.own, here - 2 * kStride);
        return {near, unit(a.west, here) + unit(a.north, here) + unit(a.east, here) + unit(a.south, here)};
    }

    Views<7> coefficient(const Around& a, std::ptrdiff_t here, Seen sums, int row, int column) {
        const auto [near, across] = sums;
        const Band& band = kBands[band_];
        const int kind = static_cast<int>(shape_.kinds[channel_]);
        const int west = unit(a.own, here - 1), north = unit(a.own, here - kStride);
        const int corners = unit(a.own, here - kStride - 1) + unit(a.own, here - kStride + 1) + unit(a.own, here - 2) +
                            unit(a.own, here - 2 * kStride);
        const int ahead = unit(a.own, here + 1) + unit(a.own, here + kStride);
        const int far_west = unit(a.west, here), far_north = unit(a.north, here);
        const int far_ahead = unit(a.east, here) + unit(a.south, here);
        const int beyond = four(a.west, here) + four(a.north, here);
        const int light = unit(a.light, here), color = unit(a.color, here), lights = four(a.light, here);
        const int within = static_cast<int>(row_ % kSpan * kSpan + column_ % kSpan);
        const int place =
            kind * (kTile * kTile + kSpan * kSpan) + (band_ == 0 ? kTile * kTile + within : row * kTile + column);
        const bool opened = band_ == 0 ? within != 0 : opened_;
        const int level = kind * kLevels + band.level;
        const auto f = [](int sum) { return fine_class(sum); };
        const auto c = [](int sum) { return coarse_class(sum); };
        const std::array<int, 7> contexts = {
            (level * 12 + f(near)) * 6 + c(across),
            place * 12 + f(2 * across + beyond),
            (((kind * 6 + c(west + north)) * 6 + c(far_west + far_north)) * 6 + c(ahead)) * 6 + c(far_ahead),
            (((kind * 6 + c(light)) * 6 + c(color)) * 6 + c(lights)) * 12 + f(near / 2 + across),
            is_mean() ? place * 2 * kPlanes + std::min(2 * kPlanes - 1, 2 * std::abs(expected_mean()) >> plane_)
                      : (place * kPlanes + plane_) * 2 + opened,
            ((((kind * 6 + c(west)) * 6 + c(north)) * 6 + c(far_west)) * 6 + c(far_north)) * 6 + c(corners),
            ((kind * 12 + f(near / 2)) * 12 + f(across + beyond / 2)) * 12 + f(light + color + lights / 2),
        };
        Views<7> views{};
        for (std::size_t i = 0; i < contexts.size(); ++i)
            views.learners[i] = &model_.views[i][static_cast<std::size_t>(contexts[i])];
        views.mixer = &model_.mixers[static_cast<std::size_t>((level * 12 + f(near / 2 + across)) * 2 + opened)];
        return views;
    }

    Learner& next_bit(const Around& a, std::ptrdiff_t here) {
        const int kind = static_cast<int>(shape_.kinds[channel_]), sofar = std::min(a.own[here] >> (plane_ + 2), 7);
        const int far = std::min(coarse_class(unit(a.west, here) + unit(a.north, here)), 3);
        const int context = ((kind * 8 + sofar) * 12 + fine_class(four(a.own, here) / 2)) * 4 + far;
        return model_.next[static_cast<std::size_t>(context)];
    }

    // Whether it is the first coefficient of a span: a mean, as are those of the spans around it.
    bool is_mean() const { return band_ == 0 && row_ % kSpan == 0 && column_ % kSpan == 0; }
    // The tile of another place in the same span.
    Magnitudes within_span(int down, int right) const {
        const int row = static_cast<int>(row_ % kSpan) + down, column = static_cast<int>(column_ % kSpan) + right;
        const bool inside = row >= 0 && row < kSpan && column >= 0 && column < kSpan;
        return inside ? beside(channel_, down, right) : kNothing.data();
    }
    // What the means of the spans around make of this one's, as in `known`.
    int expected_mean() const {
        int sum = 0, count = 0;
        const auto add = [&](std::ptrdiff_t down, std::ptrdiff_t right, int weight) {
            const std::size_t row = row_ + static_cast<std::size_t>(down),
                              column = column_ + static_cast<std::size_t>(right);
            if (row >= shape_.rows || column >= shape_.columns) return;
            sum += weight * means_[tile(channel_, row, column)];
            count += weight;
        };
        add(0, -kSpan, 2), add(-kSpan, 0, 2), add(0, kSpan, 1), add(kSpan, 0, 1);
        return count ? sum / count : 0;
    }
    Learner& mean_learner(int place) {
        return model_.means[shape_.kinds[channel_] * 64 + static_cast<std::size_t>(place)];
    }
    Learner& sign_of_mean() {
        const int expected = expected_mean();
        return mean_learner((expected < 0 ? 8 : 0) + std::min(7, std::abs(expected) >> plane_));
    }
    Learner& next_bit_of_mean(int own) {
        const int expected = means_[tile(channel_, row_, column_)] < 0 ? -expected_mean() : expected_mean();
        return mean_learner(16 + std::clamp((expected - own) / (1 << plane_) + 12, 0, 23));
    }

    static Chance bounded(Chance one) { return std::clamp<Chance>(one, 64, kSure - 64); }

    static constexpr std::array<std::uint16_t, kArea> kNothing{};
    PictureShape shape_;
    PictureModel model_;
    const std::int32_t* truth_;
    std::int32_t* known_;
    std::vector<std::uint16_t> magnitudes_;  // as `known`, without signs, each tile with a margin of zeros
    std::vector<std::uint8_t> planes_seen_;  // 1 + the plane at which a coefficient was last coded
    std::vector<std::int32_t> means_;        // as `known`, of the first coefficient of each tile
    std::vector<std::uint8_t> open_;         // whether a band of a tile is known not to be all zeros
    double left_ = 0;
    int plane_, pass_ = 0, place_ = 0;  // where the walk is
    std::size_t band_ = 0, channel_ = 0, row_ = 0, column_ = 0;
    bool opened_ = false, signing_ = false;
};

struct PictureWriting {
    RangeEncoder encoder;
    int bit(Chance one, bool truth) {
        encoder.encode(truth, one);
        return truth;
    }
};
struct PictureReading {
    RangeDecoder decoder;
    int bit(Chance one, bool) { return decoder.decode(one); }
};

}  // namespace nestcode
