// Adaptive binary models and logistic mixing: the probabilities that the range coder codes with.
//
// Each context has an adaptive binary model, a running estimate of the probability of a 1. The models of several
// contexts are combined by logistic mixing, as in Mahoney's PAQ: a weighted sum of their logits, with weights trained
// online by gradient descent on the coding cost. All arithmetic is in integers, in tables evaluated at compile time, so
// that encoder and decoder compute the same probabilities on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "range_coder.hpp"

namespace nestcode {

// Logits, ln(p / (1 - p)), in units of 1 / 256.
inline constexpr int kMaxLogit = 2839;  // ln 65535 * 256

namespace tables {
// e^(x / 256).
constexpr double exponential(int x) {
    double term = 1, sum = 1;
    for (int i = 1; i < 30; ++i) sum += term *= x / 256.0 / 16 / i;
    for (int i = 0; i < 4; ++i) sum *= sum;
    return sum;
}
constexpr auto make_squash() {
    std::array<std::uint16_t, 2 * kMaxLogit + 1> table{};
    for (int x = -kMaxLogit; x <= kMaxLogit; ++x) {
        const double e = exponential(x < 0 ? -x : x), small = kOne / (1 + e);
        const double one = x < 0 ? small : kOne - small;
        table[static_cast<std::size_t>(x + kMaxLogit)] = static_cast<std::uint16_t>(one < 1       ? 1
                                                                                    : one > 65535 ? 65535
                                                                                                  : one + 0.5);
    }
    return table;
}
inline constexpr auto kSquash = make_squash();

constexpr auto make_stretch() {  // for probabilities in steps of 1/4096, at the middle of each step
    std::array<std::int16_t, 4096> table{};
    int x = -kMaxLogit;
    for (std::size_t i = 0; i < table.size(); ++i) {
        while (x < kMaxLogit && kSquash[static_cast<std::size_t>(x + kMaxLogit)] < 16 * i + 8) ++x;
        table[i] = static_cast<std::int16_t>(x);
    }
    return table;
}
inline constexpr auto kStretch = make_stretch();

constexpr auto make_stretch_tail() {  // for probabilities below 1/16 in steps of 1/65536, where 1/4096 is too coarse
    std::array<std::int16_t, 4096> table{};
    int x = -kMaxLogit;
    for (std::size_t i = 0; i < table.size(); ++i) {
        while (x < kMaxLogit && kSquash[static_cast<std::size_t>(x + kMaxLogit)] < i) ++x;
        table[i] = static_cast<std::int16_t>(x);
    }
    return table;
}
inline constexpr auto kStretchTail = make_stretch_tail();
}  // namespace tables

// The probability of a logit: the logistic function.
inline Probability squash(int logit) {
    return tables::kSquash[static_cast<std::size_t>(std::clamp(logit, -kMaxLogit, kMaxLogit) + kMaxLogit)];
}
// The logit of a probability: the inverse of squash.
inline int stretch(Probability one) {
    if (one < 4096) return tables::kStretchTail[one];
    if (one > kOne - 4096) return -tables::kStretchTail[kOne - one];
    return tables::kStretch[one >> 4];
}

// An adaptive binary model of one context: the probability of a 1 as a running mean of the bits coded so far, which
// becomes an exponential moving average once `limit` bits have been counted.
class BinaryModel {
  public:
    Probability probability() const { return std::clamp<Probability>(one_ >> 16, 1, kOne - 1); }
    // The number of bits coded so far, at most the limit.
    int count() const { return count_; }
    void restore(Probability one, int count) {
        one_ = one << 16;
        count_ = count;
    }
    void update(bool bit, int limit) {
        const std::int64_t target = bit ? 0xFFFFFFFFLL : 0;
        one_ = static_cast<std::uint32_t>(one_ + (target - one_) * 2 / (2 * count_ + 3));
        if (count_ < limit) ++count_;
    }

  private:
    std::uint32_t one_ = 1U << 31;  // in units of 2^-32
    std::int32_t count_ = 0;
};

// A logistic mixer: the probability whose logit is a weighted sum of the inputs' logits. Weights are 16.16 fixed point.
template <std::size_t kInputs>
class Mixer {
  public:
    Mixer() { weights_.fill(kUnit * 4 / (3 * static_cast<int>(kInputs) + 1)); }
    std::array<std::int32_t, kInputs>& weights() { return weights_; }
    void set(std::size_t input, Probability one) { logits_[input] = stretch(one); }
    Probability mix() {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < kInputs; ++i) sum += std::int64_t{weights_[i]} * logits_[i];
        mixed_ = squash(static_cast<int>(std::clamp<std::int64_t>(sum >> 16, -kMaxLogit, kMaxLogit)));
        return mixed_;
    }
    // A step of gradient descent on the cost of coding `bit`.
    void update(bool bit, int rate) {
        const std::int64_t error = ((static_cast<std::int64_t>(bit) << 16) - mixed_) * rate;
        for (std::size_t i = 0; i < kInputs; ++i)
            weights_[i] = static_cast<std::int32_t>(
                std::clamp<std::int64_t>(weights_[i] + ((logits_[i] * error) >> 18), -16 * kUnit, 16 * kUnit));
    }

  private:
    static constexpr int kUnit = 1 << 16;
    std::array<std::int32_t, kInputs> weights_{};
    std::array<std::int32_t, kInputs> logits_{};
    Probability mixed_ = kOne / 2;
};

}  // namespace nestcode
