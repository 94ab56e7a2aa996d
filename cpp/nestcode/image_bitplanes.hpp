// Embedded bit-plane coding of an image's transform coefficients, with context mixing.
//
// Coefficients are integers, (channels, rows, columns, 16, 16): square blocks of a lapped DCT, low frequencies first.
// As in EBCOT (Taubman, 2000; JPEG 2000) magnitudes are coded plane by plane from the highest bit to the lowest, each
// plane in three passes: the significance pass codes insignificant coefficients that have significant neighbors, the
// refinement pass the next bit of significant ones, and the cleanup pass the rest. So bits come in order of the
// distortion that they remove, and the stream can be truncated at any byte. A block's coefficients are grouped into
// subbands of similar frequency, and one flag codes that a subband of a block is still all zeros. The DC coefficients
// of 4 x 4 blocks, a macroblock, have been transformed once more. Each bit is predicted by adaptive binary models of
// several contexts (neighboring frequencies, neighboring blocks, the other channels), combined by logistic mixing. One
// traversal serves encoder and decoder, so that their models cannot diverge.
#pragma once

#include <cstdlib>
#include <utility>

#include "context_mixing.hpp"
#include "range_coder.hpp"

namespace nestcode {

inline constexpr std::size_t kChannelKinds = 4;  // luma, two of chroma, alpha
inline constexpr int kBlock = 16;                // pixels on a side
inline constexpr int kLevels = 5;      // of subbands: DC, then subbands of 1, 2, 4 and 8 frequencies on a side
inline constexpr int kMacroblock = 4;  // blocks on a side whose DC coefficients are transformed together
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
    static constexpr std::array<std::size_t, 4> kSubbandFlags = {1600, 2560, 2400, 1200};
    static constexpr std::size_t kRefinement = 1536, kDc = 256, kMixers = 480, kFlagMixers = 20;

    std::array<std::vector<BinaryModel>, 7> significance;   // of coefficients, by 7 contexts
    std::array<std::vector<BinaryModel>, 4> subband_flags;  // whether a subband of a block is significant
    std::vector<BinaryModel> refinement;                    // bits of significant coefficients
    std::vector<BinaryModel> dc;                            // signs and refinement bits of the means of macroblocks
    std::vector<Mixer<8>> mixers;
    std::vector<Mixer<5>> flag_mixers;

    ImageModel() : refinement(kRefinement), dc(kDc), mixers(kMixers), flag_mixers(kFlagMixers) {
        for (std::size_t i = 0; i < significance.size(); ++i) significance[i].resize(kSignificance[i]);
        for (std::size_t i = 0; i < subband_flags.size(); ++i) subband_flags[i].resize(kSubbandFlags[i]);
    }

    // Restores the state in a file: probabilities and counts of all models, weights of all mixers.
    void restore(const std::uint16_t* probabilities, const std::uint8_t* counts, const std::int32_t* weights) {
        each_model([&](BinaryModel& one) { one.restore(std::max<Probability>(*probabilities++, 1), *counts++); });
        each_weight([&](std::int32_t& weight) { weight = std::clamp(*weights++, -(1 << 20), 1 << 20); });
    }

    template <class Visit>
    void each_model(Visit visit) {
        for (auto& table : significance)
            for (BinaryModel& model : table) visit(model);
        for (auto& table : subband_flags)
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
    std::size_t rows, columns;       // of blocks

    std::size_t blocks() const { return rows * columns; }
    std::size_t count() const { return kinds.size() * blocks() * kBlock * kBlock; }
};

// `side` x `side` frequencies of a block that are coded together, as the subbands of a wavelet transform are.
struct Subband {
    int level, orientation, row, column, side;  // orientation: 0 DC, 1 horizontal, 2 vertical, 3 diagonal
};
inline constexpr auto kSubbands = [] {
    std::array<Subband, 1 + 3 * (kLevels - 1)> subbands{};
    subbands[0] = {0, 0, 0, 0, 1};
    std::size_t next = 1;
    for (int level = 1, side = 1; level < kLevels; ++level, side *= 2)
        for (int way = 1; way < 4; ++way) subbands[next++] = {level, way, way & 2 ? side : 0, way & 1 ? side : 0, side};
    return subbands;
}();

// The traversal of bit planes. `Io` codes bits: io.bit(probability, bit) encodes `bit` and returns it, or decodes a bit
// and returns it, or -1 if it has not arrived.
template <class Io>
class BitPlaneTraversal {
  public:
    // An encoder passes `coefficients`, a decoder `decoded`, both (channels, rows, columns, 16, 16); the other is null,
    // or in an encoder what a decoder knows.
    // A decoded value is (2 m + 1) 2^p, with the sign, for a magnitude in [m 2^p, (m + 1) 2^p): its lowest set bit
    // tells the precision. It is 0 while a coefficient is insignificant.
    BitPlaneTraversal(ImageShape shape, int planes, ImageModel model, const std::int32_t* coefficients,
                      std::int32_t* decoded)
        : shape_(std::move(shape)),
          model_(std::move(model)),
          coefficients_(coefficients),
          decoded_(decoded),
          magnitudes_(shape_.kinds.size() * shape_.blocks() * kArea),
          coded_plane_(magnitudes_.size()),
          dc_(shape_.kinds.size() * shape_.blocks()),
          subband_significant_(shape_.kinds.size() * kSubbands.size() * (shape_.rows + 2) * (shape_.columns + 2)),
          plane_(planes - 1) {}

    // Codes until a bit has not arrived, or until `stop()` is true before a subband of a block; it can be called again
    // to continue. Calls `end_pass()` after every pass.
    template <class Stop, class EndPass>
    void run(Io& io, Stop stop, EndPass end_pass) {
        for (; plane_ >= 0; --plane_, pass_ = 0)
            for (; pass_ < kPasses; ++pass_, subband_ = 0) {
                for (; subband_ < kSubbands.size(); ++subband_, channel_ = 0)
                    for (; channel_ < shape_.kinds.size(); ++channel_, row_ = 0)
                        for (; row_ < shape_.rows; ++row_, column_ = 0)
                            for (; column_ < shape_.columns; ++column_, index_ = 0, newly_significant_ = false)
                                if (stop() || !code_subband(io)) return;
                end_pass();
            }
    }

    ImageModel& model() { return model_; }
    // The lowest plane that has been coded completely.
    int plane() const { return plane_ + 1; }

  private:
    static constexpr std::ptrdiff_t kMargin = 2, kStride = kBlock + 2 * kMargin;
    static constexpr std::size_t kArea = kStride * kStride;
    enum Pass { kSignificancePass, kRefinementPass, kCleanupPass };
    using Magnitudes = const std::uint16_t*;

    std::size_t block_index(std::size_t channel, std::size_t row, std::size_t column) const {
        return (channel * shape_.rows + row) * shape_.columns + column;
    }
    std::uint8_t& subband_significant(std::size_t channel, std::size_t subband, std::size_t row, std::size_t column) {
        return subband_significant_[((channel * kSubbands.size() + subband) * (shape_.rows + 2) + row) *
                                        (shape_.columns + 2) +
                                    column];
    }
    // The magnitudes of another block or channel; all zeros outside of the image.
    Magnitudes neighbor(std::size_t channel, std::ptrdiff_t down, std::ptrdiff_t right) const {
        const std::size_t row = row_ + static_cast<std::size_t>(down),
                          column = column_ + static_cast<std::size_t>(right);
        if (row >= shape_.rows || column >= shape_.columns) return kZeros.data();
        return magnitudes_.data() + block_index(channel, row, column) * kArea;
    }

    struct Neighbors {
        Magnitudes own, west, north, east, south, luma, chroma;
    };
    // Sums of magnitudes: of neighboring frequencies within the block, and of the same frequency in adjacent blocks.
    struct Activity {
        int within, across;
    };
    // The coefficients of the current block.
    struct Block {
        std::size_t index;
        const std::int32_t* coefficients;  // null in a decoder
        std::int32_t* decoded;             // may be null in an encoder
        std::uint16_t* magnitudes;         // with a margin, as `coded_plane`
        std::uint8_t* coded_plane;
        Neighbors neighbors;
    };
    // A coefficient's row and column in the block, its index there, and its index with the margin.
    struct Place {
        int row, column, index;
        std::ptrdiff_t here;
    };

    // Codes the current subband of the current block in the current pass. Returns false if a bit has not arrived.
    bool code_subband(Io& io) {
        const std::size_t index = block_index(channel_, row_, column_);
        const std::int32_t* coefficients = coefficients_ ? coefficients_ + index * kBlock * kBlock : nullptr;
        if (!is_significant() && kSubbands[subband_].side > 1) {
            if (pass_ != kCleanupPass) return true;
            if (!code_subband_flag(io, coefficients)) return false;
            if (!is_significant()) return true;
            newly_significant_ = true;
        }
        const std::ptrdiff_t step = subband_ == 0 ? kMacroblock : 1;  // to the next block with the same frequency
        std::uint16_t* own = magnitudes_.data() + index * kArea;
        const Block block{index,
                          coefficients,
                          decoded_ ? decoded_ + index * kBlock * kBlock : nullptr,
                          own,
                          coded_plane_.data() + index * kArea,
                          {own, neighbor(channel_, 0, -step), neighbor(channel_, -step, 0), neighbor(channel_, 0, step),
                           neighbor(channel_, step, 0), earlier_channel(0), earlier_channel(1)}};
        switch (pass_) {
            case kSignificancePass: return significance_pass(io, block);
            case kRefinementPass: return refinement_pass(io, block);
            default: return cleanup_pass(io, block);
        }
    }

    // The significance pass codes insignificant coefficients that have significant neighbors.
    bool significance_pass(Io& io, const Block& block) {
        for (const int count = coefficient_count(); index_ < count; ++index_) {
            const Place place = current_place();
            if (block.magnitudes[place.here] != 0) continue;
            const Activity activity = neighbor_activity(block.neighbors, place.here);
            if (activity.within + activity.across == 0) continue;
            if (!code_significance(io, block, place, activity)) return false;
        }
        return true;
    }
    // The refinement pass codes the next bit of coefficients that became significant in earlier planes.
    bool refinement_pass(Io& io, const Block& block) {
        for (const int count = coefficient_count(); index_ < count; ++index_) {
            const Place place = current_place();
            if (block.magnitudes[place.here] == 0 || is_coded(block, place)) continue;
            if (!code_refinement(io, block, place)) return false;
        }
        return true;
    }
    // The cleanup pass codes the coefficients that the other two left out; all of them are insignificant.
    bool cleanup_pass(Io& io, const Block& block) {
        for (const int count = coefficient_count(); index_ < count; ++index_) {
            const Place place = current_place();
            if (is_coded(block, place) && !sign_pending_) continue;
            const Activity activity = neighbor_activity(block.neighbors, place.here);
            if (!code_significance(io, block, place, activity)) return false;
        }
        return true;
    }

    int coefficient_count() const { return kSubbands[subband_].side * kSubbands[subband_].side; }
    Place current_place() const {
        const Subband& subband = kSubbands[subband_];
        const int row = subband.row + index_ / subband.side, column = subband.column + index_ % subband.side;
        return {row, column, row * kBlock + column, (row + kMargin) * kStride + column + kMargin};
    }
    bool is_coded(const Block& block, const Place& place) const {  // in the current plane
        return block.coded_plane[place.here] == plane_ + 1;
    }
    std::uint8_t& is_significant() { return subband_significant(channel_, subband_, row_ + 1, column_ + 1); }

    // Codes whether a coefficient becomes significant in this plane, and its sign if so. Returns false if a bit has not
    // arrived.
    bool code_significance(Io& io, const Block& block, const Place& place, Activity activity) {
        const std::int32_t value = block.coefficients ? block.coefficients[place.index] : 0;
        if (!sign_pending_) {
            const auto contexts = significance_contexts(block.neighbors, place.here, activity, place.row, place.column);
            const int bit = io.bit(contexts.probability(), std::abs(value) >> plane_ != 0);
            if (bit < 0) return false;
            contexts.update(bit, 400);
            block.coded_plane[place.here] = static_cast<std::uint8_t>(plane_ + 1);
            if (!bit) return true;
            sign_pending_ = true;
        }
        BinaryModel* model = is_macroblock_mean() ? &mean_sign_model() : nullptr;
        const int negative = io.bit(model ? bounded(model->probability()) : kOne / 2, value < 0);
        if (negative < 0) return false;
        if (model) model->update(negative, 250);
        sign_pending_ = false;
        is_significant() = 1;
        set_magnitude(block, place, 3 << plane_, negative);
        return true;
    }

    // Codes the next bit of a significant coefficient. Returns false if it has not arrived.
    bool code_refinement(Io& io, const Block& block, const Place& place) {
        const std::uint16_t before = block.magnitudes[place.here];
        const int magnitude = block.coefficients ? std::abs(block.coefficients[place.index]) : 0;
        BinaryModel& model =
            is_macroblock_mean() ? mean_refinement_model(before) : refinement_model(block.neighbors, place.here);
        const int bit = io.bit(bounded(model.probability()), magnitude >> plane_ & 1);
        if (bit < 0) return false;
        model.update(bit, 1000);
        const bool negative = subband_ == 0 ? dc_[block.index] < 0 : block.decoded && block.decoded[place.index] < 0;
        block.coded_plane[place.here] = static_cast<std::uint8_t>(plane_ + 1);
        set_magnitude(block, place, ((before >> (plane_ + 2) << 1 | bit) << 1 | 1) << plane_, negative);
        return true;
    }

    void set_magnitude(const Block& block, const Place& place, int magnitude, bool negative) {
        std::uint16_t& own = block.magnitudes[place.here];
        own = static_cast<std::uint16_t>(magnitude);
        if (subband_ == 0) dc_[block.index] = negative ? -magnitude : magnitude;
        if (block.decoded) block.decoded[place.index] = negative ? -magnitude : magnitude;
    }

    // Codes whether a subband that was all zeros so far becomes significant in this plane. Returns false if the bit has
    // not arrived.
    bool code_subband_flag(Io& io, const std::int32_t* coefficients) {
        const Subband& subband = kSubbands[subband_];
        bool any = false;
        for (int i = 0; coefficients && i < subband.side * subband.side && !any; ++i)
            any =
                std::abs(coefficients[(subband.row + i / subband.side) * kBlock + subband.column + i % subband.side]) >>
                plane_;
        const std::size_t kind = shape_.kinds[channel_];
        const auto flag = [&](std::size_t channel, std::size_t subband, int down, int right) {
            return static_cast<std::size_t>(subband_significant(channel, subband,
                                                                row_ + static_cast<std::size_t>(1 + down),
                                                                column_ + static_cast<std::size_t>(1 + right)));
        };
        const std::size_t west = flag(channel_, subband_, 0, -1), north = flag(channel_, subband_, -1, 0);
        const std::size_t four = west + north + flag(channel_, subband_, 0, 1) + flag(channel_, subband_, 1, 0);
        const std::size_t coarser = flag(channel_, subband_ - 3, 0, 0);
        const std::size_t siblings = (subband.orientation > 1 ? flag(channel_, subband_ - 1, 0, 0) : 0) +
                                     (subband.orientation > 2 ? 2 * flag(channel_, subband_ - 2, 0, 0) : 0);
        std::size_t channels = 0;  // that were coded before this one
        if (kind == 1 || kind == 2) channels = flag(0, subband_, 0, 0) + (kind == 2 ? 2 * flag(1, subband_, 0, 0) : 0);
        const Subband& parent = kSubbands[subband_ - 3];  // the coarser subband of the same orientation
        const std::uint16_t* own = magnitudes_.data() + block_index(channel_, row_, column_) * kArea;
        int active = 0;  // coefficients of the parent subband
        for (int i = 0; i < parent.side * parent.side; ++i)
            active +=
                own[(parent.row + i / parent.side + kMargin) * kStride + parent.column + i % parent.side + kMargin] >>
                    (plane_ + 1) !=
                0;
        const std::size_t base = (kind * kLevels + static_cast<std::size_t>(subband.level)) * 4 +
                                 static_cast<std::size_t>(subband.orientation);
        const std::size_t active_class = static_cast<std::size_t>(coarse_class(active));
        auto& flags = model_.subband_flags;
        const MixedContexts<4> contexts{{&flags[0][(base * 5 + four) * 4 + 2 * west + north],
                                         &flags[1][((base * 2 + coarser) * 4 + siblings) * 4 + channels],
                                         &flags[2][(base * 6 + active_class) * 5 + four],
                                         &flags[3][base * kMaxPlanes + static_cast<std::size_t>(plane_)]},
                                        &model_.flag_mixers[kind * kLevels + static_cast<std::size_t>(subband.level)]};
        const int bit = io.bit(contexts.probability(), any);
        if (bit < 0) return false;
        contexts.update(bit, 250);
        if (bit) subband_significant(channel_, subband_, row_ + 1, column_ + 1) = 1;
        return true;
    }

    // The same block in a channel that is coded before this one; alpha has no such channel.
    Magnitudes earlier_channel(std::size_t kind) const {
        const std::size_t own = shape_.kinds[channel_];
        return own < 3 && kind < own ? neighbor(kind, 0, 0) : kZeros.data();
    }
    // A decoded magnitude in units of the current plane.
    int scaled(Magnitudes block, std::ptrdiff_t here) const { return block[here] >> (plane_ + 1); }
    int four(Magnitudes block, std::ptrdiff_t here) const {
        return scaled(block, here - 1) + scaled(block, here + 1) + scaled(block, here - kStride) +
               scaled(block, here + kStride);
    }
    Activity neighbor_activity(const Neighbors& n, std::ptrdiff_t here) const {
        if (subband_ == 0) {
            int near = 0;
            for (const auto& [down, right] : {std::pair{0, -1}, {-1, 0}, {0, 1}, {1, 0}, {-1, -1}})
                near += 2 * scaled(macroblock_neighbor(down, right), here);
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
        const Subband& subband = kSubbands[subband_];
        const int kind = static_cast<int>(shape_.kinds[channel_]);
        const int west = scaled(n.own, here - 1), north = scaled(n.own, here - kStride);
        const int corners = scaled(n.own, here - kStride - 1) + scaled(n.own, here - kStride + 1) +
                            scaled(n.own, here - 2) + scaled(n.own, here - 2 * kStride);
        const int ahead = scaled(n.own, here + 1) + scaled(n.own, here + kStride);
        const int far_west = scaled(n.west, here), far_north = scaled(n.north, here);
        const int far_ahead = scaled(n.east, here) + scaled(n.south, here);
        const int beyond = four(n.west, here) + four(n.north, here);
        const int luma = scaled(n.luma, here), chroma = scaled(n.chroma, here), lumas = four(n.luma, here);
        const int in_macroblock = static_cast<int>(row_ % kMacroblock * kMacroblock + column_ % kMacroblock);
        const int place = kind * (kBlock * kBlock + kMacroblock * kMacroblock) +
                          (subband_ == 0 ? kBlock * kBlock + in_macroblock : row * kBlock + column);
        const bool fresh = subband_ == 0 ? in_macroblock != 0 : newly_significant_;
        const int level = kind * kLevels + subband.level;
        const auto f = [](int sum) { return fine_class(sum); };
        const auto c = [](int sum) { return coarse_class(sum); };
        const std::array<int, 7> contexts = {
            (level * 12 + f(near)) * 6 + c(across),
            place * 12 + f(2 * across + beyond),
            (((kind * 6 + c(west + north)) * 6 + c(far_west + far_north)) * 6 + c(ahead)) * 6 + c(far_ahead),
            (((kind * 6 + c(luma)) * 6 + c(chroma)) * 6 + c(lumas)) * 12 + f(near / 2 + across),
            is_macroblock_mean()
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

    // Whether the coefficient is the first of its macroblock, which is the macroblock's mean.
    bool is_macroblock_mean() const { return subband_ == 0 && row_ % kMacroblock == 0 && column_ % kMacroblock == 0; }
    // Another block of the same macroblock.
    Magnitudes macroblock_neighbor(int down, int right) const {
        const int row = static_cast<int>(row_ % kMacroblock) + down,
                  column = static_cast<int>(column_ % kMacroblock) + right;
        const bool inside = row >= 0 && row < kMacroblock && column >= 0 && column < kMacroblock;
        return inside ? neighbor(channel_, down, right) : kZeros.data();
    }
    // The prediction of a macroblock's mean from those of the adjacent macroblocks, as a decoded value.
    int predicted_mean() const {
        int sum = 0, count = 0;
        const auto add = [&](std::ptrdiff_t down, std::ptrdiff_t right, int weight) {
            const std::size_t row = row_ + static_cast<std::size_t>(down),
                              column = column_ + static_cast<std::size_t>(right);
            if (row >= shape_.rows || column >= shape_.columns) return;
            sum += weight * dc_[block_index(channel_, row, column)];
            count += weight;
        };
        add(0, -kMacroblock, 2), add(-kMacroblock, 0, 2), add(0, kMacroblock, 1), add(kMacroblock, 0, 1);
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
        const int predicted = dc_[block_index(channel_, row_, column_)] < 0 ? -predicted_mean() : predicted_mean();
        return dc_model(16 + std::clamp((predicted - own) / (1 << plane_) + 12, 0, 23));
    }

    static Probability bounded(Probability one) { return std::clamp<Probability>(one, 64, kOne - 64); }

    static constexpr std::array<std::uint16_t, kArea> kZeros{};
    ImageShape shape_;
    ImageModel model_;
    const std::int32_t* coefficients_;
    std::int32_t* decoded_;
    std::vector<std::uint16_t> magnitudes_;          // decoded values without signs; blocks have a margin of zeros
    std::vector<std::uint8_t> coded_plane_;          // 1 + the plane in which a coefficient was last coded
    std::vector<std::int32_t> dc_;                   // decoded values of each block's first coefficient
    std::vector<std::uint8_t> subband_significant_;  // by channel, subband and block, with a margin of zeros
    // The state of the traversal, so that it can stop at any bit.
    int plane_, pass_ = 0, index_ = 0;
    std::size_t subband_ = 0, channel_ = 0, row_ = 0, column_ = 0;
    bool newly_significant_ = false;  // the subband, in this plane
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
