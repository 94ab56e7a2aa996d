// Entropy coding of bits that can be cut at any byte: a range coder, probabilities that learn, and how they are mixed.
//
// Everything is in whole numbers, so that whoever decodes, on whatever machine, finds the same probabilities. Of a
// string cut short, the decoder gives the bits that are certain, whatever would have followed, and no more.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nestcode {

// Probabilities that the next bit is 1, times 65536; never 0 nor 65536.
using Chance = std::uint32_t;
inline constexpr Chance kSure = 1U << 16;

// Narrows an interval of 32-bit numbers by one bit after another; its leading bytes that are settled are the output.
struct Interval {
    std::uint32_t low = 0, high = 0xFFFFFFFFU;

    // The last number that stands for a 1.
    std::uint32_t middle(Chance one) const {
        return low + static_cast<std::uint32_t>((std::uint64_t{high - low} * one) >> 16);
    }
    void narrow(bool bit, std::uint32_t middle) {
        if (bit)
            high = middle;
        else
            low = middle + 1;
    }
    bool settled() const { return ((low ^ high) & 0xFF000000U) == 0; }
    void shift() {
        low <<= 8;
        high = high << 8 | 0xFF;
    }
};

class RangeEncoder {
  public:
    void encode(bool bit, Chance one) {
        interval_.narrow(bit, interval_.middle(one));
        for (; interval_.settled(); interval_.shift())
            bytes_.push_back(static_cast<std::uint8_t>(interval_.high >> 24));
    }

    // Writes the fewest bytes that make every bit certain.
    void finish() {
        for (int kept = 8; kept <= 32; kept += 8) {
            const std::uint32_t rest = kept == 32 ? 0 : 0xFFFFFFFFU >> kept;
            const std::uint64_t first = (std::uint64_t{interval_.low} + rest) & ~std::uint64_t{rest};
            if (first + rest > interval_.high) continue;
            for (int shift = 24; shift >= 32 - kept; shift -= 8)
                bytes_.push_back(static_cast<std::uint8_t>(first >> shift));
            break;
        }
        interval_ = Interval{};
    }

    const std::vector<std::uint8_t>& bytes() const { return bytes_; }

  private:
    Interval interval_;
    std::vector<std::uint8_t> bytes_;
};

class RangeDecoder {
  public:
    // Gives more of the string; what was decoded stays as it is.
    void feed(const std::uint8_t* bytes, std::size_t count) {
        bytes_.insert(bytes_.end(), bytes, bytes + count);
        for (std::size_t i = 0; i < 4; ++i) take(place_ + i);
    }

    // The next bit, or -1 where it is not certain yet.
    int decode(Chance one) {
        const std::uint32_t middle = interval_.middle(one);
        if (least_ <= middle && most_ > middle) return -1;
        const bool bit = most_ <= middle;
        interval_.narrow(bit, middle);
        for (; interval_.settled(); interval_.shift()) {
            least_ <<= 8;
            most_ = most_ << 8 | 0xFF;
            ++place_;
            if (place_ + 3 < bytes_.size()) least_ |= bytes_[place_ + 3], most_ &= 0xFFFFFF00U | bytes_[place_ + 3];
        }
        return bit;
    }

  private:
    // Puts the byte at a place in the window of four, if it has arrived.
    void take(std::size_t at) {
        if (at >= bytes_.size()) return;
        const int shift = 24 - 8 * static_cast<int>(at - place_);
        const std::uint32_t mask = 0xFFU << shift, byte = static_cast<std::uint32_t>(bytes_[at]) << shift;
        least_ = (least_ & ~mask) | byte;
        most_ = (most_ & ~mask) | byte;
    }

    Interval interval_;
    std::vector<std::uint8_t> bytes_;
    std::size_t place_ = 0;                         // of the window's first byte
    std::uint32_t least_ = 0, most_ = 0xFFFFFFFFU;  // what the window may hold
};

// How likely a 1 is, as its logarithmic odds in steps of 1/256.
inline constexpr int kFarthest = 2839;  // ln 65535 * 256

namespace tables {
// e^(x / 256); evaluated by the compiler, so that all machines have the same tables.
constexpr double exponential(int x) {
    double term = 1, sum = 1;
    for (int i = 1; i < 30; ++i) sum += term *= x / 256.0 / 16 / i;
    for (int i = 0; i < 4; ++i) sum *= sum;
    return sum;
}
constexpr auto make_squash() {
    std::array<std::uint16_t, 2 * kFarthest + 1> table{};
    for (int x = -kFarthest; x <= kFarthest; ++x) {
        const double e = exponential(x < 0 ? -x : x), small = kSure / (1 + e);
        const double chance = x < 0 ? small : kSure - small;
        table[static_cast<std::size_t>(x + kFarthest)] = static_cast<std::uint16_t>(chance < 1       ? 1
                                                                                    : chance > 65535 ? 65535
                                                                                                     : chance + 0.5);
    }
    return table;
}
inline constexpr auto kSquash = make_squash();

constexpr auto make_stretch() {  // of chances in steps of 1/4096, the middle of each
    std::array<std::int16_t, 4096> table{};
    int x = -kFarthest;
    for (std::size_t i = 0; i < table.size(); ++i) {
        while (x < kFarthest && kSquash[static_cast<std::size_t>(x + kFarthest)] < 16 * i + 8) ++x;
        table[i] = static_cast<std::int16_t>(x);
    }
    return table;
}
inline constexpr auto kStretch = make_stretch();

constexpr auto make_ends() {  // of chances below 1/16 in steps of 1/65536, where the middles are too coarse
    std::array<std::int16_t, 4096> table{};
    int x = -kFarthest;
    for (std::size_t i = 0; i < table.size(); ++i) {
        while (x < kFarthest && kSquash[static_cast<std::size_t>(x + kFarthest)] < i) ++x;
        table[i] = static_cast<std::int16_t>(x);
    }
    return table;
}
inline constexpr auto kEnds = make_ends();
}  // namespace tables

inline Chance squash(int odds) {
    return tables::kSquash[static_cast<std::size_t>(std::clamp(odds, -kFarthest, kFarthest) + kFarthest)];
}
inline int stretch(Chance one) {
    if (one < 4096) return tables::kEnds[one];
    if (one > kSure - 4096) return -tables::kEnds[kSure - one];
    return tables::kStretch[one >> 4];
}

// The chance of a 1 in one context: an average of what was seen, of the recent past more than of the distant one.
class Learner {
  public:
    Chance chance() const { return std::clamp<Chance>(one_ >> 16, 1, kSure - 1); }
    int seen() const { return seen_; }
    // As if it had seen that much.
    void recall(Chance one, int seen) {
        one_ = one << 16;
        seen_ = seen;
    }
    void learn(bool bit, int memory) {
        const std::int64_t target = bit ? 0xFFFFFFFFLL : 0;
        one_ = static_cast<std::uint32_t>(one_ + (target - one_) * 2 / (2 * seen_ + 3));
        if (seen_ < memory) ++seen_;
    }

  private:
    std::uint32_t one_ = 1U << 31;
    std::int32_t seen_ = 0;
};

// One chance out of several: a sum of their odds, with weights that learn which of them to believe.
template <std::size_t kInputs>
class Mixer {
  public:
    Mixer() { weights_.fill(kOne * 4 / (3 * static_cast<int>(kInputs) + 1)); }
    std::array<std::int32_t, kInputs>& weights() { return weights_; }
    void set(std::size_t input, Chance one) { odds_[input] = stretch(one); }
    Chance chance() {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < kInputs; ++i) sum += std::int64_t{weights_[i]} * odds_[i];
        mixed_ = squash(static_cast<int>(std::clamp<std::int64_t>(sum >> 16, -kFarthest, kFarthest)));
        return mixed_;
    }
    void learn(bool bit, int rate) {
        const std::int64_t error = ((static_cast<std::int64_t>(bit) << 16) - mixed_) * rate;
        for (std::size_t i = 0; i < kInputs; ++i)
            weights_[i] = static_cast<std::int32_t>(
                std::clamp<std::int64_t>(weights_[i] + ((odds_[i] * error) >> 18), -16 * kOne, 16 * kOne));
    }

  private:
    static constexpr int kOne = 1 << 16;
    std::array<std::int32_t, kInputs> weights_{};
    std::array<std::int32_t, kInputs> odds_{};
    Chance mixed_ = kSure / 2;
};

}  // namespace nestcode
