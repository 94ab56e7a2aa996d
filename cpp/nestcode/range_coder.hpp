// A binary range coder whose output can be truncated at any byte.
//
// A carry-less range coder (Martin, 1979; the 32-bit form of Subbotin and of lpaq): every coded bit narrows an interval
// of 32-bit integers, and leading bytes on which both ends agree are written. The decoder tracks the least and the
// greatest value that the missing bytes of a truncated string may have, and returns exactly the bits that do not depend
// on them; it continues when more bytes arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nestcode {

// The probability that the next bit is 1, in units of 1 / 65536; never 0 or 65536.
using Probability = std::uint32_t;
inline constexpr Probability kOne = 1U << 16;

// The interval [low, high] of a range coder.
struct Interval {
    std::uint32_t low = 0, high = 0xFFFFFFFFU;

    // The last value of the subinterval that codes a 1.
    std::uint32_t split(Probability one) const {
        return low + static_cast<std::uint32_t>((std::uint64_t{high - low} * one) >> 16);
    }
    void narrow(bool bit, std::uint32_t split) {
        if (bit)
            high = split;
        else
            low = split + 1;
    }
    // Whether the leading byte is the same for all values.
    bool leading_byte_known() const { return ((low ^ high) & 0xFF000000U) == 0; }
    void shift_byte() {
        low <<= 8;
        high = high << 8 | 0xFF;
    }
};

class RangeEncoder {
  public:
    void encode(bool bit, Probability one) {
        interval_.narrow(bit, interval_.split(one));
        for (; interval_.leading_byte_known(); interval_.shift_byte())
            bytes_.push_back(static_cast<std::uint8_t>(interval_.high >> 24));
    }

    // Flushes with the fewest bytes that make every bit decodable.
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
    static constexpr std::size_t kMostBytes = 4;  // that a bit takes: the whole window

    // Decodes bits of which all bytes have arrived. Its few values fit into registers, so it is used by copy.
    class Arrived {
      public:
        explicit Arrived(const RangeDecoder& decoder)
            : interval_(decoder.interval_),
              value_(decoder.least_),
              next_(decoder.bytes_.data() + decoder.position_ + kMostBytes),
              end_(decoder.bytes_.data() + decoder.bytes_.size()) {}

        // Whether the bytes of that many bits have arrived, whatever the bits are.
        bool has_arrived(std::size_t bits) const { return static_cast<std::size_t>(end_ - next_) >= bits * kMostBytes; }

        bool decode(Probability one) {
            const std::uint32_t split = interval_.split(one);
            const bool bit = value_ <= split;
            interval_.narrow(bit, split);
            for (; interval_.leading_byte_known(); interval_.shift_byte()) value_ = value_ << 8 | *next_++;
            return bit;
        }

      private:
        friend RangeDecoder;
        Interval interval_;
        std::uint32_t value_;
        const std::uint8_t *next_, *end_;
    };
    // Whether the window has arrived, so that an Arrived can begin.
    bool window_arrived() const { return position_ + kMostBytes <= bytes_.size(); }
    // Goes on behind the bits that `arrived` decoded.
    void resume(const Arrived& arrived) {
        interval_ = arrived.interval_;
        least_ = greatest_ = arrived.value_;
        position_ = static_cast<std::size_t>(arrived.next_ - bytes_.data()) - kMostBytes;
    }

    // Appends bytes of the string; bits that were decoded do not change.
    void feed(const std::uint8_t* bytes, std::size_t count) {
        bytes_.insert(bytes_.end(), bytes, bytes + count);
        for (std::size_t i = 0; i < 4; ++i) load(position_ + i);
    }

    // The next bit, or -1 if it depends on bytes that have not arrived.
    int decode(Probability one) {
        const std::uint32_t split = interval_.split(one);
        const bool bit = greatest_ <= split;
        if (!bit && least_ <= split) return -1;
        interval_.narrow(bit, split);
        for (; interval_.leading_byte_known(); interval_.shift_byte()) {
            least_ <<= 8;
            greatest_ = greatest_ << 8 | 0xFF;
            ++position_;
            if (position_ + 3 < bytes_.size()) {
                least_ |= bytes_[position_ + 3];
                greatest_ &= 0xFFFFFF00U | bytes_[position_ + 3];
            }
        }
        return bit;
    }

  private:
    // Loads a byte into the window of four, if it has arrived.
    void load(std::size_t at) {
        if (at >= bytes_.size()) return;
        const int shift = 24 - 8 * static_cast<int>(at - position_);
        const std::uint32_t mask = 0xFFU << shift, byte = static_cast<std::uint32_t>(bytes_[at]) << shift;
        least_ = (least_ & ~mask) | byte;
        greatest_ = (greatest_ & ~mask) | byte;
    }

    Interval interval_;
    std::vector<std::uint8_t> bytes_;
    std::size_t position_ = 0;                          // of the window's first byte
    std::uint32_t least_ = 0, greatest_ = 0xFFFFFFFFU;  // bounds of the window's value
};

}  // namespace nestcode
