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

// Logits of probabilities, at `stretch_index`: below 1/16 and above 15/16 in steps of 1/65536, between in steps of
// 1/4096, at the middle of each step.
constexpr std::size_t stretch_index(Probability one) {
    constexpr Probability tail = kOne / 16;
    const Probability middle = (one >> 4) + tail, high = one - (kOne - tail) + 2 * tail;
    const Probability upper = one > kOne - tail ? high : middle;
    const Probability low = Probability{0} - (one < tail);  // a mask, as compilers would branch
    return (one & low) | (upper & ~low);
}
constexpr auto make_stretch() {
    std::array<std::int16_t, 3 * 4096> table{};
    int x = -kMaxLogit, y = -kMaxLogit;
    for (Probability i = 0; i < 4096; ++i) {
        while (x < kMaxLogit && kSquash[static_cast<std::size_t>(x + kMaxLogit)] < i) ++x;
        while (y < kMaxLogit && kSquash[static_cast<std::size_t>(y + kMaxLogit)] < 16 * i + 8) ++y;
        table[i] = static_cast<std::int16_t>(x);
        table[4096 + i] = static_cast<std::int16_t>(y);
        if (i > 0) table[3 * 4096 - i] = static_cast<std::int16_t>(-x);
    }
    return table;
}
inline constexpr auto kStretch = make_stretch();

// The rate at which a model that counted n bits adapts: 2 / (2 n + 3), rounded up by more than products with 32-bit
// integers are rounded and by less than their distance to the next integer, so that truncation gives exact quotients.
constexpr double adaptation_rate(int n) {
    return 2.0 / (2 * n + 3) * (1 + 1.0 / (1ULL << 50));
}
inline constexpr auto kRates = [] {
    std::array<double, 1024> table{};
    for (std::size_t n = 0; n < table.size(); ++n) table[n] = adaptation_rate(static_cast<int>(n));
    return table;
}();
}  // namespace tables

// The probability of a logit: the logistic function.
inline Probability squash(int logit) {
    return tables::kSquash[static_cast<std::size_t>(std::clamp(logit, -kMaxLogit, kMaxLogit) + kMaxLogit)];
}
// The logit of a probability: the inverse of squash.
inline int stretch(Probability one) {
    return tables::kStretch[tables::stretch_index(one)];
}

// An adaptive binary model of one context: the probability of a 1 as a running mean of the bits coded so far, which
// becomes an exponential moving average once `limit` bits have been counted.
class BinaryModel {
  public:
    Probability probability() const { return std::max<Probability>(one_ >> 16, 1); }
    int logit() const { return stretch(one_ >> 16); }
    // The number of bits coded so far, at most the limit.
    int count() const { return count_; }
    void restore(Probability one, int count) {
        one_ = one << 16;
        count_ = count;
    }
    void update(bool bit, int limit) {
        const std::uint32_t distance = bit ? ~one_ : one_;
        const bool tabulated = limit < static_cast<int>(tables::kRates.size());
        const double rate =
            tabulated ? tables::kRates[static_cast<std::size_t>(count_)] : tables::adaptation_rate(count_);
        const auto step = static_cast<std::uint32_t>(distance * rate);
        one_ = bit ? one_ + step : one_ - step;
        count_ += count_ < limit;
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
    // `logit_of(i)` is the logit of input i. Each is stored and multiplied at once: vectors of them that were loaded
    // again would wait for the stores.
    template <class LogitOf>
    Probability mix(LogitOf logit_of) {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < kInputs; ++i) {
            const int logit = logit_of(i);
            sum += std::int64_t{weights_[i]} * logit;
            logits_[i] = logit;
        }
        const std::int64_t mean = sum >> 16, most = kMaxLogit;
        const std::int64_t bounded = mean < -most ? -most : mean > most ? most : mean;
        mixed_ = tables::kSquash[static_cast<std::size_t>(bounded + most)];
        return mixed_;
    }
    // A step of gradient descent on the cost of coding `bit`; `rate` is at most 11.
    void update(bool bit, int rate) {
        const std::int32_t error = ((bit ? kUnit : 0) - static_cast<std::int32_t>(mixed_)) * rate;
        for (std::size_t i = 0; i < kInputs; ++i)
            weights_[i] = std::clamp(weights_[i] + ((logits_[i] * error) >> 18), -16 * kUnit, 16 * kUnit);
    }

  private:
    static constexpr int kUnit = 1 << 16;
    std::array<std::int32_t, kInputs> weights_{};
    std::array<std::int32_t, kInputs> logits_{};
    Probability mixed_ = kOne / 2;
};

}  // namespace nestcode
