// Embedded bit-plane coding of an image's transform coefficients, with context mixing.
//
// Coefficients are integers, (channels, rows, columns, 16, 16): square tiles of a lapped DCT, low frequencies first. As
// in EBCOT (Taubman, 2000; JPEG 2000) magnitudes are coded plane by plane from the highest bit to the lowest, each
// plane in three passes: the significance pass codes insignificant coefficients that have significant neighbors, the
// refinement pass the next bit of significant ones, and the cleanup pass the rest. So bits come in order of the
// distortion that they remove, and the stream can be truncated at any byte. A tile's coefficients are grouped into
// bands of similar frequency, and one flag codes that a band of a tile is still all zeros. The DC coefficients of 4 x 4
// tiles, a DC block, have been transformed once more. Each bit is predicted by adaptive binary models of several
// contexts (neighboring frequencies, neighboring tiles, the other channels), combined by logistic mixing. One traversal
// serves encoder and decoder, so that their models cannot diverge.
#pragma once

#include <cstdlib>
#include <utility>

#include "context_mixing.hpp"
#include "range_coder.hpp"

namespace nestcode {

inline constexpr std::size_t kChannelKinds = 4;  // luma, two of chroma, alpha
inline constexpr int kTile = 16;                 // pixels on a side
inline constexpr int kLevels = 5;                // of bands: DC, then bands of 1, 2, 4 and 8 frequencies on a side
inline constexpr int kDcBlock = 4;               // tiles on a side whose DC coefficients are transformed together
inline constexpr int kMaxPlanes = 15;
inline constexpr int kPasses = 3;  // significance, refinement, cleanup

// Quantizers of sums of neighboring magnitudes into 12 and 6 context classes.
inline int fine_class(int sum) {
    constexpr std::array<std::uint8_t, 24> classes = {0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 7,
                                                      8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9};
    return sum < 24 ? classes[static_cast<std::size_t>(sum)] : sum < 40 ? 10 : 11;
}
inline int coarse_class(int sum) {
    return sum < 3 ? sum : sum < 5 ? 3 : sum < 10 ? 4 : 5;
}

// The models of one bit in several contexts, and the mixer that combines them.
template <std::size_t kContexts>
struct MixedContexts {
    std::array<BinaryModel*, kContexts> models;
    Mixer<kContexts + 1>* mixer;

    Probability probability() const {
        for (std::size_t i = 0; i < kContexts; ++i) mixer->set(i, models[i]->probability());
        mixer->set(kContexts, kOne * 5 / 8);  // a constant input: the bias
        return std::clamp<Probability>(mixer->mix(), 16, kOne - 16);
    }
    void update(bool bit, int limit) const {
        mixer->update(bit, 6);
        for (BinaryModel* model : models) model->update(bit, limit);
    }
};

// All models and mixers of the coder. A trained state is the starting point for the next image.
struct ImageModel {
    static constexpr std::array<std::size_t, 7> kSignificance = {1440, 13056, 5184, 10368, 32640, 31104, 6912};
    static constexpr std::array<std::size_t, 4> kBandFlags = {1600, 2560, 2400, 1200};
    static constexpr std::size_t kRefinement = 1536, kDc = 256, kMixers = 480, kFlagMixers = 20;

    std::array<std::vector<BinaryModel>, 7> significance;  // of coefficients, by 7 contexts
    std::array<std::vector<BinaryModel>, 4> band_flags;    // whether a band of a tile has a significant coefficient
    std::vector<BinaryModel> refinement;                   // bits of significant coefficients
    std::vector<BinaryModel> dc;                           // signs and refinement bits of the means of DC blocks
    std::vector<Mixer<8>> mixers;
    std::vector<Mixer<5>> flag_mixers;

    ImageModel() : refinement(kRefinement), dc(kDc), mixers(kMixers), flag_mixers(kFlagMixers) {
        for (std::size_t i = 0; i < significance.size(); ++i) significance[i].resize(kSignificance[i]);
        for (std::size_t i = 0; i < band_flags.size(); ++i) band_flags[i].resize(kBandFlags[i]);
    }

    template <class Visit>
    void each_model(Visit visit) {
        for (auto& table : significance)
            for (BinaryModel& model : table) visit(model);
        for (auto& table : band_flags)
            for (BinaryModel& model : table) visit(model);
        for (BinaryModel& model : refinement) visit(model);
        for (BinaryModel& model : dc) visit(model);
    }
    template <class Visit>
    void each_weight(Visit visit) {
        for (auto& mixer : mixers)
            for (std::int32_t& weight : mixer.weights()) visit(weight);
        for (auto& mixer : flag_mixers)
            for (std::int32_t& weight : mixer.weights()) visit(weight);
    }
};

struct ImageShape {
    std::vector<std::size_t> kinds;  // of the channels: 0 luma, 1 and 2 chroma, 3 alpha
    std::size_t rows, columns;       // of tiles

    std::size_t tiles() const { return rows * columns; }
    std::size_t count() const { return kinds.size() * tiles() * kTile * kTile; }
};

// `side` x `side` frequencies of a tile that are coded together, as the subbands of a wavelet transform are.
struct Band {
    int level, orientation, row, column, side;  // orientation: 0 DC, 1 horizontal, 2 vertical, 3 diagonal
};
inline constexpr auto kBands = [] {
    std::array<Band, 1 + 3 * (kLevels - 1)> bands{};
    bands[0] = {0, 0, 0, 0, 1};
    std::size_t next = 1;
    for (int level = 1, side = 1; level < kLevels; ++level, side *= 2)
        for (int way = 1; way < 4; ++way) bands[next++] = {level, way, way & 2 ? side : 0, way & 1 ? side : 0, side};
    return bands;
}();

// The traversal of bit planes. `Io` codes bits: io.bit(probability, bit) encodes `bit` and returns it, or decodes a bit
// and returns it, or -1 if it has not arrived.
template <class Io>
class BitPlaneTraversal {
  public:
    // An encoder passes `coefficients`, a decoder `decoded`, both (channels, rows, columns, 16, 16); the other is null.
    // A decoded value is (2 m + 1) 2^p, with the sign, for a magnitude in [m 2^p, (m + 1) 2^p): its lowest set bit
    // tells the precision. It is 0 while a coefficient is insignificant.
    BitPlaneTraversal(ImageShape shape, int planes, ImageModel model, const std::int32_t* coefficients,
                      std::int32_t* decoded)
        : shape_(std::move(shape)),
          model_(std::move(model)),
          coefficients_(coefficients),
          decoded_(decoded),
          magnitudes_(shape_.kinds.size() * shape_.tiles() * kArea),
          coded_plane_(magnitudes_.size()),
          dc_(shape_.kinds.size() * shape_.tiles()),
          band_significant_(shape_.kinds.size() * kBands.size() * (shape_.rows + 2) * (shape_.columns + 2)),
          plane_(planes - 1) {
        for (std::size_t i = 0; coefficients && i < shape_.count(); ++i)
            distortion_ += squared_error(coefficients[i], 0);
    }

    // Codes until a bit has not arrived, or until `stop()` is true before a band of a tile; it can be called again to
    // continue. Calls `end_pass()` after every pass.
    template <class Stop, class EndPass>
    void run(Io& io, Stop stop, EndPass end_pass) {
        for (; plane_ >= 0; --plane_, pass_ = 0)
            for (; pass_ < kPasses; ++pass_, band_ = 0) {
                for (; band_ < kBands.size(); ++band_, channel_ = 0)
                    for (; channel_ < shape_.kinds.size(); ++channel_, row_ = 0)
                        for (; row_ < shape_.rows; ++row_, column_ = 0)
                            for (; column_ < shape_.columns; ++column_, index_ = 0, newly_significant_ = false)
                                if (stop() || !code_band(io)) return;
                end_pass();
            }
    }

    ImageModel& model() { return model_; }
    // The lowest plane that has been coded completely.
    int plane() const { return plane_ + 1; }
    // The squared error of what has been coded so far; for encoders.
    double distortion() const { return distortion_; }

  private:
    static constexpr std::ptrdiff_t kMargin = 2, kStride = kTile + 2 * kMargin;
    static constexpr std::size_t kArea = kStride * kStride;
    enum Pass { kSignificancePass, kRefinementPass, kCleanupPass };
    using Magnitudes = const std::uint16_t*;

    std::size_t tile(std::size_t channel, std::size_t row, std::size_t column) const {
        return (channel * shape_.rows + row) * shape_.columns + column;
    }
    std::uint8_t& band_significant(std::size_t channel, std::size_t band, std::size_t row, std::size_t column) {
        return band_significant_[((channel * kBands.size() + band) * (shape_.rows + 2) + row) * (shape_.columns + 2) +
                                 column];
    }
    // The magnitudes of another tile or channel; all zeros outside of the image.
    Magnitudes neighbor(std::size_t channel, std::ptrdiff_t down, std::ptrdiff_t right) const {
        const std::size_t row = row_ + static_cast<std::size_t>(down),
                          column = column_ + static_cast<std::size_t>(right);
        if (row >= shape_.rows || column >= shape_.columns) return kZeros.data();
        return magnitudes_.data() + tile(channel, row, column) * kArea;
    }

    // Codes the current band of the current tile in the current pass. Returns false if a bit has not arrived.
    bool code_band(Io& io) {
        const Band& band = kBands[band_];
        std::uint8_t& significant = band_significant(channel_, band_, row_ + 1, column_ + 1);
        const std::size_t at = tile(channel_, row_, column_);
        const std::int32_t* coefficients = coefficients_ ? coefficients_ + at * kTile * kTile : nullptr;
        if (!significant && band.side > 1) {
            if (pass_ != kCleanupPass) return true;
            if (!code_band_flag(io, coefficients)) return false;
            if (!significant) return true;
            newly_significant_ = true;
        }
        std::uint16_t* own = magnitudes_.data() + at * kArea;
        std::uint8_t* coded_plane = coded_plane_.data() + at * kArea;
        std::int32_t* decoded = decoded_ ? decoded_ + at * kTile * kTile : nullptr;
        const std::ptrdiff_t step = band_ == 0 ? kDcBlock : 1;  // to the next tile with the same frequency
        const Neighbors neighbors{own,
                                  neighbor(channel_, 0, -step),
                                  neighbor(channel_, -step, 0),
                                  neighbor(channel_, 0, step),
                                  neighbor(channel_, step, 0),
                                  earlier_channel(0),
                                  earlier_channel(1)};
        for (; index_ < band.side * band.side; ++index_) {
            const int row = band.row + index_ / band.side, column = band.column + index_ % band.side;
            const std::ptrdiff_t here = (row + kMargin) * kStride + column + kMargin;
            if (coded_plane[here] == plane_ + 1 && !sign_pending_) continue;
            const std::int32_t value = coefficients ? coefficients[row * kTile + column] : 0;
            const int magnitude = std::abs(value), before = own[here];
            int negative = band_ == 0 ? dc_[at] < 0 : decoded && decoded[row * kTile + column] < 0;
            if (own[here] != 0) {
                if (pass_ != kRefinementPass) continue;
                BinaryModel& model =
                    is_block_mean() ? mean_refinement_model(own[here]) : refinement_model(neighbors, here);
                const int bit = io.bit(bounded(model.probability()), magnitude >> plane_ & 1);
                if (bit < 0) return false;
                model.update(bit, 1000);
                own[here] = static_cast<std::uint16_t>((own[here] >> (plane_ + 2) << 1 | bit) << 1 | 1) << plane_;
            } else {
                if (pass_ == kRefinementPass) continue;
                if (!sign_pending_) {
                    const Activity activity = neighbor_activity(neighbors, here);
                    if (pass_ == kSignificancePass && activity.within + activity.across == 0) continue;
                    const auto contexts = significance_contexts(neighbors, here, activity, row, column);
                    const int bit = io.bit(contexts.probability(), magnitude >> plane_ != 0);
                    if (bit < 0) return false;
                    contexts.update(bit, 400);
                    coded_plane[here] = static_cast<std::uint8_t>(plane_ + 1);
                    if (!bit) continue;
                    sign_pending_ = true;
                }
                BinaryModel* model = is_block_mean() ? &mean_sign_model() : nullptr;
                negative = io.bit(model ? bounded(model->probability()) : kOne / 2, value < 0);
                if (negative < 0) return false;
                if (model) model->update(negative, 250);
                sign_pending_ = false;
                significant = 1;
                own[here] = static_cast<std::uint16_t>(3 << plane_);
            }
            coded_plane[here] = static_cast<std::uint8_t>(plane_ + 1);
            if (coefficients) distortion_ += squared_error(magnitude, own[here]) - squared_error(magnitude, before);
            if (band_ == 0) dc_[at] = negative ? -own[here] : own[here];
            if (decoded) decoded[row * kTile + column] = negative ? -own[here] : own[here];
        }
        return true;
    }

    // Codes whether a band that was all zeros so far becomes significant in this plane. Returns false if the bit has
    // not arrived.
    bool code_band_flag(Io& io, const std::int32_t* coefficients) {
        const Band& band = kBands[band_];
        bool any = false;
        for (int i = 0; coefficients && i < band.side * band.side && !any; ++i)
            any = std::abs(coefficients[(band.row + i / band.side) * kTile + band.column + i % band.side]) >> plane_;
        const std::size_t kind = shape_.kinds[channel_];
        const auto flag = [&](std::size_t channel, std::size_t band, int down, int right) {
            return static_cast<std::size_t>(band_significant(channel, band, row_ + static_cast<std::size_t>(1 + down),
                                                             column_ + static_cast<std::size_t>(1 + right)));
        };
        const std::size_t west = flag(channel_, band_, 0, -1), north = flag(channel_, band_, -1, 0);
        const std::size_t four = west + north + flag(channel_, band_, 0, 1) + flag(channel_, band_, 1, 0);
        const std::size_t coarser = flag(channel_, band_ - 3, 0, 0);
        const std::size_t siblings = (band.orientation > 1 ? flag(channel_, band_ - 1, 0, 0) : 0) +
                                     (band.orientation > 2 ? 2 * flag(channel_, band_ - 2, 0, 0) : 0);
        std::size_t channels = 0;  // that were coded before this one
        if (kind == 1 || kind == 2) channels = flag(0, band_, 0, 0) + (kind == 2 ? 2 * flag(1, band_, 0, 0) : 0);
        const Band& parent = kBands[band_ - 3];  // the coarser band of the same orientation
        const std::uint16_t* own = magnitudes_.data() + tile(channel_, row_, column_) * kArea;
        int active = 0;  // coefficients of the parent band
        for (int i = 0; i < parent.side * parent.side; ++i)
            active +=
                own[(parent.row + i / parent.side + kMargin) * kStride + parent.column + i % parent.side + kMargin] >>
                    (plane_ + 1) !=
                0;
        const std::size_t base =
            (kind * kLevels + static_cast<std::size_t>(band.level)) * 4 + static_cast<std::size_t>(band.orientation);
        const std::size_t active_class = static_cast<std::size_t>(coarse_class(active));
        auto& flags = model_.band_flags;
        const MixedContexts<4> contexts{{&flags[0][(base * 5 + four) * 4 + 2 * west + north],
                                         &flags[1][((base * 2 + coarser) * 4 + siblings) * 4 + channels],
                                         &flags[2][(base * 6 + active_class) * 5 + four],
                                         &flags[3][base * kMaxPlanes + static_cast<std::size_t>(plane_)]},
                                        &model_.flag_mixers[kind * kLevels + static_cast<std::size_t>(band.level)]};
        const int bit = io.bit(contexts.probability(), any);
        if (bit < 0) return false;
        contexts.update(bit, 250);
        if (bit) band_significant(channel_, band_, row_ + 1, column_ + 1) = 1;
        return true;
    }

    // The squared error of a decoded magnitude; the quantization of the coefficient to an integer is not counted.
    static double squared_error(int magnitude, int decoded) {
        const double error = magnitude == 0 ? 0 : std::abs(magnitude) + 0.5 - decoded / 2.0;
        return error * error;
    }

    struct Neighbors {
        Magnitudes own, west, north, east, south, luma, chroma;
    };
    // Sums of magnitudes: of neighboring frequencies within the tile, and of the same frequency in adjacent tiles.
    struct Activity {
        int within, across;
    };

    // The same tile in a channel that is coded before this one; alpha has no such channel.
    Magnitudes earlier_channel(std::size_t kind) const {
        const std::size_t own = shape_.kinds[channel_];
        return own < 3 && kind < own ? neighbor(kind, 0, 0) : kZeros.data();
    }
    // A decoded magnitude in units of the current plane.
    int scaled(Magnitudes tile, std::ptrdiff_t here) const { return tile[here] >> (plane_ + 1); }
    int four(Magnitudes tile, std::ptrdiff_t here) const {
        return scaled(tile, here - 1) + scaled(tile, here + 1) + scaled(tile, here - kStride) +
               scaled(tile, here + kStride);
    }
    Activity neighbor_activity(const Neighbors& n, std::ptrdiff_t here) const {
        if (band_ == 0) {
            int near = 0;
            for (const auto& [down, right] : {std::pair{0, -1}, {-1, 0}, {0, 1}, {1, 0}, {-1, -1}})
                near += 2 * scaled(dc_block_neighbor(down, right), here);
            return {near, scaled(n.west, here) + scaled(n.north, here) + scaled(n.east, here) + scaled(n.south, here)};
        }
        const int near = 2 * four(n.own, here) + scaled(n.own, here - kStride - 1) + scaled(n.own, here - kStride + 1) +
                         scaled(n.own, here + kStride - 1) + scaled(n.own, here - 2) +
                         scaled(n.own, here - 2 * kStride);
        return {near, scaled(n.west, here) + scaled(n.north, here) + scaled(n.east, here) + scaled(n.south, here)};
    }

    MixedContexts<7> significance_contexts(const Neighbors& n, std::ptrdiff_t here, Activity activity, int row,
                                           int column) {
        const auto [near, across] = activity;
        const Band& band = kBands[band_];
        const int kind = static_cast<int>(shape_.kinds[channel_]);
        const int west = scaled(n.own, here - 1), north = scaled(n.own, here - kStride);
        const int corners = scaled(n.own, here - kStride - 1) + scaled(n.own, here - kStride + 1) +
                            scaled(n.own, here - 2) + scaled(n.own, here - 2 * kStride);
        const int ahead = scaled(n.own, here + 1) + scaled(n.own, here + kStride);
        const int far_west = scaled(n.west, here), far_north = scaled(n.north, here);
        const int far_ahead = scaled(n.east, here) + scaled(n.south, here);
        const int beyond = four(n.west, here) + four(n.north, here);
        const int luma = scaled(n.luma, here), chroma = scaled(n.chroma, here), lumas = four(n.luma, here);
        const int in_block = static_cast<int>(row_ % kDcBlock * kDcBlock + column_ % kDcBlock);
        const int place = kind * (kTile * kTile + kDcBlock * kDcBlock) +
                          (band_ == 0 ? kTile * kTile + in_block : row * kTile + column);
        const bool fresh = band_ == 0 ? in_block != 0 : newly_significant_;
        const int level = kind * kLevels + band.level;
        const auto f = [](int sum) { return fine_class(sum); };
        const auto c = [](int sum) { return coarse_class(sum); };
        const std::array<int, 7> contexts = {
            (level * 12 + f(near)) * 6 + c(across),
            place * 12 + f(2 * across + beyond),
            (((kind * 6 + c(west + north)) * 6 + c(far_west + far_north)) * 6 + c(ahead)) * 6 + c(far_ahead),
            (((kind * 6 + c(luma)) * 6 + c(chroma)) * 6 + c(lumas)) * 12 + f(near / 2 + across),
            is_block_mean()
                ? place * 2 * kMaxPlanes + std::min(2 * kMaxPlanes - 1, 2 * std::abs(predicted_mean()) >> plane_)
                : (place * kMaxPlanes + plane_) * 2 + fresh,
            ((((kind * 6 + c(west)) * 6 + c(north)) * 6 + c(far_west)) * 6 + c(far_north)) * 6 + c(corners),
            ((kind * 12 + f(near / 2)) * 12 + f(across + beyond / 2)) * 12 + f(luma + chroma + lumas / 2),
        };
        MixedContexts<7> mixed{};
        for (std::size_t i = 0; i < contexts.size(); ++i)
            mixed.models[i] = &model_.significance[i][static_cast<std::size_t>(contexts[i])];
        mixed.mixer = &model_.mixers[static_cast<std::size_t>((level * 12 + f(near / 2 + across)) * 2 + fresh)];
        return mixed;
    }

    BinaryModel& refinement_model(const Neighbors& n, std::ptrdiff_t here) {
        const int kind = static_cast<int>(shape_.kinds[channel_]), so_far = std::min(n.own[here] >> (plane_ + 2), 7);
        const int adjacent = std::min(coarse_class(scaled(n.west, here) + scaled(n.north, here)), 3);
        const int context = ((kind * 8 + so_far) * 12 + fine_class(four(n.own, here) / 2)) * 4 + adjacent;
        return model_.refinement[static_cast<std::size_t>(context)];
    }

    // Whether the coefficient is the first of its DC block, which is the block's mean.
    bool is_block_mean() const { return band_ == 0 && row_ % kDcBlock == 0 && column_ % kDcBlock == 0; }
    // Another tile of the same DC block.
    Magnitudes dc_block_neighbor(int down, int right) const {
        const int row = static_cast<int>(row_ % kDcBlock) + down, column = static_cast<int>(column_ % kDcBlock) + right;
        const bool inside = row >= 0 && row < kDcBlock && column >= 0 && column < kDcBlock;
        return inside ? neighbor(channel_, down, right) : kZeros.data();
    }
    // The prediction of a block's mean from those of the adjacent blocks, as a decoded value.
    int predicted_mean() const {
        int sum = 0, count = 0;
        const auto add = [&](std::ptrdiff_t down, std::ptrdiff_t right, int weight) {
            const std::size_t row = row_ + static_cast<std::size_t>(down),
                              column = column_ + static_cast<std::size_t>(right);
            if (row >= shape_.rows || column >= shape_.columns) return;
            sum += weight * dc_[tile(channel_, row, column)];
            count += weight;
        };
        add(0, -kDcBlock, 2), add(-kDcBlock, 0, 2), add(0, kDcBlock, 1), add(kDcBlock, 0, 1);
        return count ? sum / count : 0;
    }
    BinaryModel& dc_model(int context) {
        return model_.dc[shape_.kinds[channel_] * 64 + static_cast<std::size_t>(context)];
    }
    BinaryModel& mean_sign_model() {
        const int predicted = predicted_mean();
        return dc_model((predicted < 0 ? 8 : 0) + std::min(7, std::abs(predicted) >> plane_));
    }
    BinaryModel& mean_refinement_model(int own) {
        const int predicted = dc_[tile(channel_, row_, column_)] < 0 ? -predicted_mean() : predicted_mean();
        return dc_model(16 + std::clamp((predicted - own) / (1 << plane_) + 12, 0, 23));
    }

    static Probability bounded(Probability one) { return std::clamp<Probability>(one, 64, kOne - 64); }

    static constexpr std::array<std::uint16_t, kArea> kZeros{};
    ImageShape shape_;
    ImageModel model_;
    const std::int32_t* coefficients_;
    std::int32_t* decoded_;
    std::vector<std::uint16_t> magnitudes_;       // decoded values without signs; tiles have a margin of zeros
    std::vector<std::uint8_t> coded_plane_;       // 1 + the plane in which a coefficient was last coded
    std::vector<std::int32_t> dc_;                // decoded values of each tile's first coefficient
    std::vector<std::uint8_t> band_significant_;  // by channel, band and tile, with a margin of zeros
    double distortion_ = 0;
    // The state of the traversal, so that it can stop at any bit.
    int plane_, pass_ = 0, index_ = 0;
    std::size_t band_ = 0, channel_ = 0, row_ = 0, column_ = 0;
    bool newly_significant_ = false;  // the band, in this plane
    bool sign_pending_ = false;       // the coefficient is significant, its sign comes next
};

struct EncoderIo {
    RangeEncoder encoder;
    int bit(Probability one, bool bit) {
        encoder.encode(bit, one);
        return bit;
    }
};
struct DecoderIo {
    RangeDecoder decoder;
    int bit(Probability one, bool) { return decoder.decode(one); }
};

}  // namespace nestcode
