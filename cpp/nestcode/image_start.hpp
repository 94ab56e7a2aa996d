// The first bytes of an image's bitstream: what a decoder has to know before the first coded bit.
//
//     bit planes and flags (1) · rotation of the colors (3) · weights (1 a channel) · planes of subbands (7 a channel)
//
// Flags in the first byte tell which of the others follow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nestcode {

inline constexpr int kMaxPlanes = 15;
inline constexpr int kLevels = 5;  // of subbands: DC, then subbands of 1, 2, 4 and 8 frequencies on a side
inline constexpr std::size_t kSubbandCount = 1 + 3 * (kLevels - 1);
inline constexpr std::size_t kRotationBytes = 3;  // the vector part of a unit quaternion
inline constexpr std::uint8_t kUnweighted = 32;   // the weight 1 in a file

struct ImageStart {
    struct Channel {
        std::uint8_t weight = kUnweighted;                 // of the quantizer's step
        std::array<std::uint8_t, kSubbandCount> planes{};  // bit planes that are not all zeros
    };

    int planes = 0;
    bool rotated = false, weighted = false, by_subband = false;  // what follows the first byte
    std::array<std::int8_t, kRotationBytes> rotation{};
    std::vector<Channel> channels;

    explicit ImageStart(std::size_t count) : channels(count) {}

    // The number of planes, which may be too large, and the number of bytes that a first byte claims.
    static int planes_of(std::uint8_t first) { return first & 0x1F; }
    static std::size_t size_of(std::uint8_t first, std::size_t count) {
        return 1 + (first & kRotated ? kRotationBytes : 0) + (first & kWeighted ? count : 0) +
               (first & kBySubband ? count * kPlaneBytes : 0);
    }

    // Reads `size_of` bytes. A weight of 0 counts as the least one.
    ImageStart(const std::uint8_t* bytes, std::size_t count) : channels(count) {
        planes = planes_of(*bytes);
        rotated = *bytes & kRotated, weighted = *bytes & kWeighted, by_subband = *bytes & kBySubband;
        ++bytes;
        if (rotated)
            for (std::int8_t& part : rotation) part = static_cast<std::int8_t>(*bytes++);
        if (weighted)
            for (Channel& channel : channels) channel.weight = std::max<std::uint8_t>(*bytes++, 1);
        for (Channel& channel : channels) {
            channel.planes.fill(static_cast<std::uint8_t>(planes));
            for (std::size_t k = 0; by_subband && k < kSubbandCount; ++k)
                channel.planes[k] = (bytes[k / 2] >> (k % 2 * 4)) & 15;
            bytes += by_subband ? kPlaneBytes : 0;
        }
    }

    std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> out = {static_cast<std::uint8_t>(
            planes | (rotated ? kRotated : 0) | (weighted ? kWeighted : 0) | (by_subband ? kBySubband : 0))};
        if (rotated)
            for (std::int8_t part : rotation) out.push_back(static_cast<std::uint8_t>(part));
        if (weighted)
            for (const Channel& channel : channels) out.push_back(channel.weight);
        if (by_subband)
            for (const Channel& channel : channels)
                for (std::size_t k = 0; k < kSubbandCount; k += 2)
                    out.push_back(static_cast<std::uint8_t>(channel.planes[k] |
                                                            (k + 1 < kSubbandCount ? channel.planes[k + 1] << 4 : 0)));
        return out;
    }

  private:
    static constexpr std::uint8_t kRotated = 0x80, kBySubband = 0x40, kWeighted = 0x20;
    static constexpr std::size_t kPlaneBytes = (kSubbandCount + 1) / 2;
};

}  // namespace nestcode
