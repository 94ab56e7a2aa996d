// The context models of the bit-plane coder: the probability of each bit from what was coded around it.
//
// An AdditiveModel is online logistic regression: the logit of a bit is the sum of one weight for each of its contexts,
// and after the bit all of them take the same step of gradient descent on the coding cost. A MixingModel, of codecs of
// version 1, has an adaptive binary model for each context, and mixes their logits. The traversal of bit planes
// computes what both read. All arithmetic is in integers.
#pragma once

#include <array>
#include <variant>
#include <vector>

#include "context_mixing.hpp"
#include "image_start.hpp"

namespace nestcode {

inline constexpr std::size_t kChannelKinds = 4;  // luma, two of chroma, alpha
inline constexpr int kBlock = 16;                // pixels on a side
inline constexpr int kMacroblock = 4;            // blocks on a side whose DC coefficients are transformed together
// Places of a coefficient: in its block, and for DC coefficients in their macroblock.
inline constexpr int kPlaces = kBlock * kBlock + kMacroblock * kMacroblock;
inline constexpr int kScales = 2 * kMaxPlanes;

// Magnitudes of neighbors, in units of the current plane, are exact below this: all classes of larger sums are equal.
inline constexpr int kLargeMagnitude = 80;

// Quantizes weighted sums of neighboring magnitudes, of weights of at most `kWeights`, into context classes.
template <std::size_t kWeights, std::size_t kBounds>
constexpr auto make_classes(const std::array<int, kBounds>& bounds) {
    std::array<std::uint8_t, kWeights*(kLargeMagnitude + 2)> classes{};
    for (std::size_t sum = 0; sum < classes.size(); ++sum)
        for (int bound : bounds) classes[sum] += static_cast<int>(sum) >= bound;
    return classes;
}
inline constexpr auto kFineClasses = make_classes<16>(std::array{1, 2, 3, 4, 5, 7, 9, 12, 16, 24, 40});
inline constexpr auto kCoarseClasses = make_classes<4>(std::array{1, 2, 3, 5, 10});
inline constexpr int kFine = 12, kCoarse = 6;  // classes
inline int fine_class(int sum) {
    return kFineClasses[static_cast<std::size_t>(sum)];
}
inline int coarse_class(int sum) {
    return kCoarseClasses[static_cast<std::size_t>(sum)];
}

// Where a coefficient is, and in which plane.
struct Position {
    int at;      // below kPlaces
    int scale;   // below kScales: twice the plane and `fresh`, or the predicted mean of a macroblock in units of the
                 // plane
    bool fresh;  // the subband became significant in this plane
};
// Magnitudes around a coefficient, in units of the plane; all are 0 for a coefficient without significant neighbors.
struct Neighborhood {
    int near;                       // a weighted sum of those in the block
    int left, above, right, below;  // adjacent ones in the block
    int corners;                    // further ones in the block
    int west, north, ahead;         // of the same frequency in adjacent blocks; `ahead` is the sum of east and south
    int beyond;                     // sum of those adjacent to `west` and to `north`
    int luma, chroma, lumas;        // in the channels before: at the same place, and adjacent ones of luma

    int across() const { return west + north + ahead; }
    int activity() const { return fine_class(near / 2 + across()); }
};
// Significant subbands around that of a block, as indices of contexts.
struct SubbandNeighborhood {
    std::size_t beside;  // 4 four + 2 west + north, where `four` is the number of significant ones in adjacent blocks
    std::size_t
        others;  // in the block: the coarser one of the same orientation, those of others; in the channels before
    std::size_t active;  // 5 times the class of the coarser subband's number of significant coefficients, and `four`
};
// Magnitudes around a coefficient that is significant.
struct RefinementContext {
    int so_far, near, adjacent;

    std::size_t index() const { return static_cast<std::size_t>((so_far * kFine + near) * 4 + adjacent); }
};

// Contexts of one model are tables behind each other.
template <std::size_t kTables>
constexpr auto table_starts(const std::array<std::size_t, kTables>& sizes) {
    std::array<std::size_t, kTables + 1> starts{};
    for (std::size_t i = 0; i < kTables; ++i) starts[i + 1] = starts[i] + sizes[i];
    return starts;
}

// The probabilities of logits between -kMost and kMost, in units of 1 / 256; none is below 16 / 65536.
inline constexpr int kMostLogit = 2130;
inline constexpr auto kBoundedSquash = [] {
    std::array<std::uint16_t, 2 * kMostLogit + 1> table{};
    for (int i = 0; i < 2 * kMostLogit + 1; ++i)
        table[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(
            std::clamp<int>(tables::kSquash[static_cast<std::size_t>(i - kMostLogit + kMaxLogit)], 16, kOne - 16));
    return table;
}();

// The weights of a bit's contexts. The logit is their sum, in units of 1 / 2048. A weight that leaves 16 bits wraps
// around, on all machines alike: only bits made for that get there.
using LogitWeight = std::int16_t;
inline constexpr int kRateBits = 8,
                     kStepBits = 15 + kRateBits;  // of the rate that images are coded with, halved 8 times
template <std::size_t kContexts>
struct AdditiveContexts {
    std::array<LogitWeight*, kContexts> weights;
    std::int64_t rate;  // of learning: in units of 1 / 1024, times that of AdditiveModel

    Probability probability() const {
        int sum = 0;
        for (const LogitWeight* weight : weights) sum += *weight;
        return kBoundedSquash[static_cast<std::size_t>(std::clamp(sum >> 3, -kMostLogit, kMostLogit) + kMostLogit)];
    }
    // A step of gradient descent on the coding cost.
    void update(bool bit, Probability one) const {
        const int error = (bit ? static_cast<int>(kOne) : 0) - static_cast<int>(one);
        const auto step = static_cast<LogitWeight>((error * rate + (1 << (kStepBits - 1))) >> kStepBits);
        for (LogitWeight* weight : weights) *weight = static_cast<LogitWeight>(*weight + step);
    }
};

class AdditiveModel {
  public:
    static constexpr bool kAhead = true;  // bits that arrived are decoded by code of their own
    // The tables of a subband.
    struct Row {
        std::array<LogitWeight*, 4> significance, flag;
        LogitWeight* refinement;
        std::int64_t significance_rate, flag_rate, refinement_rate;
    };
    Row row(std::size_t kind, std::size_t level, std::size_t orientation, std::size_t plane) {
        const std::size_t places = kind * kPlaces, at_level = kind * kLevels + level, base = at_level * 4 + orientation;
        return {
            {find(0, at_level * 72), find(1, places * kFine), find(2, kind * 2592), find(3, places * kScales)},
            {find(4, base * 20), find(5, base * 32), find(6, base * kCoarse * 5), find(7, base * kMaxPlanes + plane)},
            find(8, kind * 384),
            44 * rate_,
            100 * rate_,
            14 * rate_};
    }
    static AdditiveContexts<4> significance(const Row& row, const Position& position, const Neighborhood& around) {
        const auto& tables = row.significance;
        const auto c = [](int sum) { return coarse_class(sum); };
        const int across = around.across();
        return {{tables[0] + fine_class(around.near) * kCoarse + c(across),
                 tables[1] + position.at * kFine + fine_class(2 * across + around.beyond),
                 tables[2] + ((c(around.luma) * kCoarse + c(around.chroma)) * kCoarse + c(around.lumas)) * kFine +
                     around.activity(),
                 tables[3] + position.scale * kPlaces + position.at},
                row.significance_rate};
    }
    static AdditiveContexts<4> subband_flag(const Row& row, const SubbandNeighborhood& around) {
        return {{row.flag[0] + around.beside, row.flag[1] + around.others, row.flag[2] + around.active, row.flag[3]},
                row.flag_rate};
    }
    static AdditiveContexts<1> refinement(const Row& row, const RefinementContext& context) {
        return {{row.refinement + context.index()}, row.refinement_rate};
    }
    // Signs and refinement bits of the means of macroblocks.
    AdditiveContexts<1> mean_sign(std::size_t kind, std::size_t context) {
        return {{find(9, kind * 64 + context)}, 60 * rate_};
    }
    AdditiveContexts<1> mean_refinement(std::size_t kind, std::size_t context) {
        return {{find(9, kind * 64 + 16 + context)}, 60 * rate_};
    }

    std::size_t size() const { return weights_.size(); }
    // Restores the weights in a file, and writes them. In files the scales of a place are next to each other; while
    // coding, the places of a scale, as only two scales are in use at a time.
    void restore(const LogitWeight* weights) {
        for (std::size_t i = 0; i < size(); ++i) weights_[place_in_memory(i)] = weights[i];
    }
    void save(LogitWeight* weights) const {
        for (std::size_t i = 0; i < size(); ++i) weights[i] = weights_[place_in_memory(i)];
    }
    // Adapts at 2^-times the rate that images are coded with.
    void halve_rate(int times) { rate_ = std::int64_t{1} << (kRateBits - times); }

  private:
    static constexpr auto kStarts = table_starts(std::array<std::size_t, 10>{
        kChannelKinds * kLevels * 72, kChannelKinds * kPlaces * kFine, kChannelKinds * 2592,
        kChannelKinds * kPlaces * kScales, 1600, 2560, 2400, 1200, kChannelKinds * 384, kChannelKinds * 64});
    LogitWeight* find(std::size_t table, std::size_t context) { return weights_.data() + kStarts[table] + context; }
    static std::size_t place_in_memory(std::size_t in_file) {
        if (in_file < kStarts[3] || in_file >= kStarts[4]) return in_file;
        const std::size_t context = in_file - kStarts[3], place = context / kScales % kPlaces;
        const std::size_t kind = context / (kPlaces * kScales);
        return kStarts[3] + (kind * kScales + context % kScales) * kPlaces + place;
    }

    std::vector<LogitWeight> weights_ = std::vector<LogitWeight>(kStarts.back());
    std::int64_t rate_ = 1 << kRateBits;
};

// An adaptive binary model alone.
template <int kLimit>
struct SingleContext {
    BinaryModel* model;

    Probability probability() const { return std::clamp<Probability>(model->probability(), 64, kOne - 64); }
    void update(bool bit, Probability) const { model->update(bit, kLimit); }
};
// The models of one bit in several contexts, and the mixer that combines them.
template <std::size_t kContexts, int kLimit>
struct MixedContexts {
    std::array<BinaryModel*, kContexts> models;
    Mixer<kContexts + 1>* mixer;

    Probability probability() const {
        // The last input is a constant, the bias.
        const Probability one =
            mixer->mix([&](std::size_t i) { return i < kContexts ? models[i]->logit() : stretch(kOne * 5 / 8); });
        return std::min(std::max(one, Probability{16}), kOne - 16);
    }
    void update(bool bit, Probability) const {
        mixer->update(bit, 6);
        for (BinaryModel* model : models) model->update(bit, kLimit);
    }
};

class MixingModel {
  public:
    static constexpr bool kAhead = false;  // of codecs for earlier streams, which need not be as fast
    struct Row {
        std::array<BinaryModel*, 7> models;
        std::array<BinaryModel*, 4> flag;
        BinaryModel* refinement;
        Mixer<8>* mixers;
        Mixer<5>* flag_mixer;
    };
    Row row(std::size_t kind, std::size_t level, std::size_t orientation, std::size_t plane) {
        const std::size_t places = kind * kPlaces, at_level = kind * kLevels + level, base = at_level * 4 + orientation;
        return {{find(0, at_level * 72), find(1, places * kFine), find(2, kind * 1296), find(3, kind * 2592),
                 find(4, places * kScales), find(5, kind * 7776), find(6, kind * 1728)},
                {find(7, base * 20), find(8, base * 32), find(9, base * 30), find(10, base * kMaxPlanes + plane)},
                find(11, kind * 384),
                &mixers_[at_level * 24],
                &flag_mixers_[at_level]};
    }
    static MixedContexts<7, 400> significance(const Row& row, const Position& position, const Neighborhood& around) {
        const auto& models = row.models;
        const auto f = [](int sum) { return fine_class(sum); };
        const auto c = [](int sum) { return coarse_class(sum); };
        const int activity = around.activity(), across = around.across();
        return {
            {
                models[0] + f(around.near) * 6 + c(across),
                models[1] + position.at * 12 + f(2 * across + around.beyond),
                models[2] +
                    ((c(around.left + around.above) * 6 + c(around.west + around.north)) * 6 +
                     c(around.right + around.below)) *
                        6 +
                    c(around.ahead),
                models[3] + ((c(around.luma) * 6 + c(around.chroma)) * 6 + c(around.lumas)) * 12 + activity,
                models[4] + position.at * kScales + position.scale,
                models[5] + (((c(around.left) * 6 + c(around.above)) * 6 + c(around.west)) * 6 + c(around.north)) * 6 +
                    c(around.corners),
                models[6] + (f(around.near / 2) * 12 + f(across + around.beyond / 2)) * 12 +
                    f(around.luma + around.chroma + around.lumas / 2),
            },
            row.mixers + activity * 2 + position.fresh};
    }
    static MixedContexts<4, 250> subband_flag(const Row& row, const SubbandNeighborhood& around) {
        return {{row.flag[0] + around.beside, row.flag[1] + around.others, row.flag[2] + around.active, row.flag[3]},
                row.flag_mixer};
    }
    static SingleContext<1000> refinement(const Row& row, const RefinementContext& context) {
        return {row.refinement + context.index()};
    }
    SingleContext<250> mean_sign(std::size_t kind, std::size_t context) { return {find(12, kind * 64 + context)}; }
    SingleContext<1000> mean_refinement(std::size_t kind, std::size_t context) {
        return {find(12, kind * 64 + 16 + context)};
    }

    // Restores the state in a file: probabilities and counts of all models, weights of all mixers.
    void restore(const std::uint16_t* probabilities, const std::uint8_t* counts, const std::int32_t* weights) {
        each_model([&](BinaryModel& one) { one.restore(std::max<Probability>(*probabilities++, 1), *counts++); });
        each_weight([&](std::int32_t& weight) { weight = std::clamp(*weights++, -(1 << 20), 1 << 20); });
    }
    template <class Visit>
    void each_model(Visit visit) {
        for (BinaryModel& model : models_) visit(model);
    }
    template <class Visit>
    void each_weight(Visit visit) {
        for (auto& mixer : mixers_)
            for (std::int32_t& weight : mixer.weights()) visit(weight);
        for (auto& mixer : flag_mixers_)
            for (std::int32_t& weight : mixer.weights()) visit(weight);
    }

  private:
    static constexpr auto kStarts = table_starts(
        std::array<std::size_t, 13>{1440, 13056, 5184, 10368, 32640, 31104, 6912, 1600, 2560, 2400, 1200, 1536, 256});
    BinaryModel* find(std::size_t table, std::size_t context) { return models_.data() + kStarts[table] + context; }

    std::vector<BinaryModel> models_{kStarts.back()};
    std::vector<Mixer<8>> mixers_{kChannelKinds * kLevels * 24};
    std::vector<Mixer<5>> flag_mixers_{kChannelKinds * kLevels};
};

// The model of a codec. A trained state is the starting point for every image.
using ImageModel = std::variant<AdditiveModel, MixingModel>;

}  // namespace nestcode
