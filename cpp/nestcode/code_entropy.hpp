// Entropy coding of codes in the order of a stream: bits 0-63 of every code, then bits 64-127, and so on.
//
// Context mixing: each bit is predicted by adaptive binary models of four contexts (order 0, its position, the earlier
// bits of its byte, and those with the byte before), which a logistic mixer combines. Models are reset for each group
// of 64 bits, so memory does not grow with the width. Encoder and decoder share the model.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "context_mixing.hpp"
#include "range_coder.hpp"
#include "rows.hpp"

namespace nestcode {

inline constexpr std::size_t kGroup = 64;  // bits of a code that are adjacent in a stream

// The number of bits of each code in a group.
inline std::size_t group_bits(std::size_t width, std::size_t group) {
    return std::min(kGroup, width - kGroup * group);
}

class CodeModel {
  public:
    CodeModel() { reset(); }

    // Resets the models at the start of a group; the mixers keep their weights.
    void reset() {
        bits_.assign(kGroup, {});
        bytes_.assign(8 * 256, {});
        pairs_.assign(8 * 16 * 256, {});
    }

    // Codes one bit by code(probability), which returns it, or -1 if it is not known yet: then nothing is updated.
    // `before` is the byte before this one in the same code, `path` is a 1 followed by the earlier bits of this byte.
    template <class Code>
    int code(std::size_t bit, unsigned before, unsigned path, Code&& code) {
        const std::size_t byte = bit / 8;
        BinaryModel* const models[] = {&all_, &bits_[bit], &bytes_[byte * 256 + path],
                                       &pairs_[(byte * 16 + before / 16) * 256 + path]};
        std::size_t confidence = 0;  // selects a mixer, so that models with few bits get small weights
        for (std::size_t i = 1; i < kInputs; ++i) confidence = confidence * kSteps + step(models[i]->count());
        Mixer<kInputs>& mixer = mixers_[confidence];
        const int found = code(mixer.mix([&](std::size_t i) { return models[i]->logit(); }));
        if (found < 0) return found;
        mixer.update(found, kRate);
        for (BinaryModel* model : models) model->update(found, kLimit);
        return found;
    }

  private:
    static constexpr int kLimit = 1 << 14, kRate = 3;
    static constexpr std::size_t kInputs = 4, kSteps = 6;

    static std::size_t step(int count) {  // 0 or 1, 2 to 7, 8 to 31, …
        return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(count))) / 2,
                                     kSteps - 1);
    }

    BinaryModel all_;
    std::vector<BinaryModel> bits_, bytes_, pairs_;
    std::array<Mixer<kInputs>, kSteps * kSteps * kSteps> mixers_{};
};

class CodeEncoder {
  public:
    explicit CodeEncoder(std::size_t width) : width_(width) {}

    // Encodes a group of bits of all codes; groups must come in order.
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
                    model_.code(bit, before, path, [&](Probability one) {
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

    // Appends bytes and writes every bit that can be decoded into `plain`, at most `most` bits in all, in the order of
    // a stream without entropy coding; `plain` must be 0 before the first call. Returns how many bits have been decoded
    // so far.
    std::uint64_t feed(const std::uint8_t* bytes, std::size_t count, std::uint64_t most, std::uint8_t* plain) {
        decoder_.feed(bytes, count);
        for (; kGroup * group_ < width_; ++group_, item_ = 0, model_.reset()) {
            const std::size_t bits = group_bits(width_, group_), stride = (bits + 7) / 8;
            for (; item_ < count_; ++item_, bit_ = 0) {
                std::uint8_t* code = plain + 8 * group_ * count_ + stride * item_;
                for (; bit_ < bits; ++bit_, ++decoded_) {
                    if (decoded_ >= most) return decoded_;
                    std::uint8_t& byte = code[bit_ / 8];
                    const int bit = model_.code(bit_, before(plain, code), path(byte),
                                                [&](Probability one) { return decoder_.decode(one); });
                    if (bit < 0) return decoded_;
                    byte |= static_cast<std::uint8_t>(bit << (7 - bit_ % 8));
                }
            }
        }
        return decoded_;
    }

  private:
    unsigned before(const std::uint8_t* plain, const std::uint8_t* code) const {
        if (bit_ >= 8) return code[bit_ / 8 - 1];
        return group_ == 0 ? 0 : plain[8 * (group_ - 1) * count_ + 8 * item_ + 7];
    }
    unsigned path(std::uint8_t byte) const { return (256U | byte) >> (8 - bit_ % 8); }

    std::size_t count_, width_, group_ = 0, item_ = 0, bit_ = 0;
    std::uint64_t decoded_ = 0;
    CodeModel model_;
    RangeDecoder decoder_;
};

}  // namespace nestcode
