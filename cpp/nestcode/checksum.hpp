// Checksums of blocks, and memory that is checked when it is first touched.
//
// An index on disk is mapped, not read: opening it costs nothing, and what a query touches is proved to be what was
// written before it is believed.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace nestcode {

constexpr std::size_t block_bytes = 1 << 16;

// Four lanes take every fourth word. Each step is a bijection of the lane and of the word, so a change of one word
// always changes the sum; words are multiplied before they are mixed in, so that no few flipped bits of one cancel
// those of another. Against accidents, not against malice.
inline std::uint64_t checksum(const std::uint8_t* data, std::size_t bytes) {
    constexpr std::uint64_t for_words = 0x9e3779b97f4a7c15, for_lanes = 0xd1b54a32d192ed03;
    const auto mix = [](std::uint64_t lane, std::uint64_t word) {
        return std::rotl(lane + word * for_words, 31) * for_lanes;
    };
    std::uint64_t lanes[4] = {1, 2, 3, 4};
    const auto take = [&](const std::uint8_t* stripe) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
            std::uint64_t word;
            std::memcpy(&word, stripe + 8 * lane, 8);
            if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
            lanes[lane] = mix(lanes[lane], word);
        }
    };
    std::size_t done = 0;
    for (; done + 32 <= bytes; done += 32) take(data + done);
    if (done < bytes) {
        std::uint8_t last[32] = {};
        std::memcpy(last, data + done, bytes - done);
        take(last);
    }
    std::uint64_t sum = bytes;
    for (const std::uint64_t lane : lanes) sum = mix(sum, lane);
    return sum ^ sum >> 32;
}

inline std::size_t block_count(std::size_t bytes) {
    return (bytes + block_bytes - 1) / block_bytes;
}

inline std::uint64_t block_sum(const std::uint8_t* data, std::size_t bytes, std::size_t block) {
    const std::size_t begin = block * block_bytes;
    return checksum(data + begin, begin + block_bytes < bytes ? block_bytes : bytes - begin);
}

// Mapped memory with the checksums of its blocks. Touching a damaged block is remembered, and whoever asked must
// look at `damaged()` before the answer leaves the core.
class Guard {
  public:
    Guard(const std::uint8_t* data, std::size_t bytes, const std::uint64_t* sums)
        : data_(data), bytes_(bytes), sums_(sums, sums + block_count(bytes)), seen_(block_count(bytes)) {}

    void touch(const void* begin, std::size_t bytes) {
        const auto offset = static_cast<std::size_t>(static_cast<const std::uint8_t*>(begin) - data_);
        const std::size_t last = (offset + bytes - 1) / block_bytes;
        for (std::size_t block = offset / block_bytes; block <= last; ++block)
            if (!seen_[block].load(std::memory_order_relaxed)) check(block);
    }

    // Check every block, also those that were touched before.
    void verify() {
        for (std::size_t block = 0; block < seen_.size(); ++block) check(block);
    }

    // The first damaged block, in the order of the file, among those checked so far; -1 if there is none.
    std::int64_t damaged() const { return damaged_.load(std::memory_order_relaxed); }

  private:
    void check(std::size_t block) {
        if (block_sum(data_, bytes_, block) == sums_[block]) {
            seen_[block].store(true, std::memory_order_relaxed);
            return;
        }
        const auto found = static_cast<std::int64_t>(block);
        std::int64_t first = damaged();
        while ((first < 0 || found < first) &&
               !damaged_.compare_exchange_weak(first, found, std::memory_order_relaxed)) {
        }
    }

    const std::uint8_t* data_;
    std::size_t bytes_;
    std::vector<std::uint64_t> sums_;
    std::vector<std::atomic<bool>> seen_;
    std::atomic<std::int64_t> damaged_ = -1;
};

}  // namespace nestcode
