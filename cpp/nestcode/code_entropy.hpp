// Entropy coding of codes in the order of a stream: bits 0-63 of every code, then 64-127, and so on.
//
// What is likely is learnt from the codes that came before, group of 64 bits by group, and forgotten with the group:
// the memory does not grow with the width. Encoder and decoder share one model, which sees what both of them know.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "nestcode/entropy.hpp"
#include "nestcode/rows.hpp"

namespace nestcode {

inline constexpr std::size_t kGroup = 64;  // bits of a code that lie side by side in a stream

// How many bits of each code a group has.
inline std::size_t group_bits(std::size_t width, std::size_t group) {
    return std::min(kGroup, width - kGroup * group);
}

// The chances of bits: of any bit, of its place, after the bits of its byte so far, and with the byte before them.
class CodeModel {
  public:
    CodeModel() { reset(); }

    // Forgets what was learnt of a group: another one begins. How much to believe whom is kept.
    void reset() {
        bits_.assign(kGroup, {});
        bytes_.assign(8 * 256, {});
        pairs_.assign(8 * 16 * 256, {});
    }

    // Codes one bit by code(chance), which gives it, or -1 where it is not known yet: then nothing is learnt.
    // `before` is the byte before this one in the same code, `path` a 1 followed by the bits of this byte so far.
    template <class Code>
    int code(std::size_t bit, unsigned before, unsigned path, Code&& code) {
        const std::size_t byte = bit / 8;
        Learner* const learners[] = {&all_, &bits_[bit], &bytes_[byte * 256 + path],
                                     &pairs_[(byte * 16 + before / 16) * 256 + path]};
        std::size_t known = 0;  // who has seen little is believed little
        for (std::size_t i = 1; i < kInputs; ++i) known = known * kSteps + step(learners[i]->seen());
        Mixer<kInputs>& mixer = mixers_[known];
        for (std::size_t i = 0; i < kInputs; ++i) mixer.set(i, learners[i]->chance());
        const int found = code(mixer.chance());
        if (found < 0) return found;
        mixer.learn(found, kRate);
        for (Learner* learner : learners) learner->learn(found, kMemory);
        return found;
    }

  private:
    static constexpr int kMemory = 1 << 14, kRate = 3;
    static constexpr std::size_t kInputs = 4, kSteps = 6;

    static std::size_t step(int seen) {  // 0 or 1, 2 to 7, 8 to 31, …
        return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(seen))) / 2,
                                     kSteps - 1);
    }

    Learner all_;
    std::vector<Learner> bits_, bytes_, pairs_;
    std::array<Mixer<kInputs>, kSteps * kSteps * kSteps> mixers_{};
};

class CodeEncoder {
  public:
    explicit CodeEncoder(std::size_t width) : width_(width) {}

    // Encodes a group of bits of all codes; groups come in order.
    void encode(const Rows& rows, std::size_t group) {
        model_.reset();
        const std::size_t bits = group_bits(width_, group);
        for (std::size_t item = 0; item < rows.count; ++item) {
            const std::uint8_t* bytes = rows[item] + 8 * group;
            unsigned before = group == 0 ? 0 : bytes[-1];
            for (std::size_t bit = 0; bit < bits;) {
                const unsigned byte = bytes[bit / 8];
                for (unsigned path = 1; path < 256 && bit < bits; ++bit) {
                    const int next = byte >> (7 - bit % 8) & 1;
                    model_.code(bit, before, path, [&](Chance one) {
                        encoder_.encode(next, one);
                        return next;
                    });
                    path = path << 1 | static_cast<unsigned>(next);
                }
                before = byte;
            }
        }
    }

    const std::vector<std::uint8_t>& finish() {
        encoder_.finish();
        return encoder_.bytes();
    }

  private:
    std::size_t width_;
    CodeModel model_;
    RangeEncoder encoder_;
};

class CodeDecoder {
  public:
    CodeDecoder(std::size_t count, std::size_t width) : count_(count), width_(width) {}

    // Takes more bytes and writes every bit that is certain now into `plain`, group after group as a stream without
    // entropy coding has them, all 0 before; how many bits there are by now.
    std::uint64_t feed(const std::uint8_t* bytes, std::size_t count, std::uint8_t* plain) {
        decoder_.feed(bytes, count);
        for (; kGroup * group_ < width_; ++group_, item_ = 0, model_.reset()) {
            const std::size_t bits = group_bits(width_, group_), stride = (bits + 7) / 8;
            for (; item_ < count_; ++item_, bit_ = 0) {
                std::uint8_t* code = plain + 8 * group_ * count_ + stride * item_;
                for (; bit_ < bits; ++bit_, ++certain_) {
                    std::uint8_t& byte = code[bit_ / 8];
                    const int bit = model_.code(bit_, before(plain, code), path(byte),
                                                [&](Chance one) { return decoder_.decode(one); });
                    if (bit < 0) return certain_;
                    byte |= static_cast<std::uint8_t>(bit << (7 - bit_ % 8));
                }
            }
        }
        return certain_;
    }

  private:
    unsigned before(const std::uint8_t* plain, const std::uint8_t* code) const {
        if (bit_ >= 8) return code[bit_ / 8 - 1];
        return group_ == 0 ? 0 : plain[8 * (group_ - 1) * count_ + 8 * item_ + 7];
    }
    unsigned path(std::uint8_t byte) const { return (256U | byte) >> (8 - bit_ % 8); }

    std::size_t count_, width_, group_ = 0, item_ = 0, bit_ = 0;
    std::uint64_t certain_ = 0;
    CodeModel model_;
    RangeDecoder decoder_;
};

}  // namespace nestcode
