// Block checksums, and memory-mapped data that is verified when it is first touched.
//
// An index on disk is memory-mapped: opening it reads nothing. The data is divided into blocks, by default of 64 KiB,
// with one 64-bit checksum each, and a block is verified the first time that a kernel reads from it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace nestcode {

constexpr std::size_t kBlockBytes = 1 << 16;

// A multiply-rotate hash in four lanes, in the manner of xxHash64; lane i takes words i, i + 4, … Each step is a
// bijection of the lane and of the word, so a change of one word always changes the checksum; words are multiplied
// before they are added, so that flipped bits of one word do not cancel those of another. It detects accidental
// corruption, not tampering.
inline std::uint64_t checksum(const std::uint8_t* data, std::size_t bytes) {
    constexpr std::uint64_t word_prime = 0x9e3779b97f4a7c15, lane_prime = 0xd1b54a32d192ed03;
    const auto mix = [](std::uint64_t lane, std::uint64_t word) {
        return std::rotl(lane + word * word_prime, 31) * lane_prime;
    };
    std::uint64_t lanes[4] = {1, 2, 3, 4};
    const auto absorb = [&](const std::uint8_t* stripe) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
            std::uint64_t word;
            std::memcpy(&word, stripe + 8 * lane, 8);
            if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
            lanes[lane] = mix(lanes[lane], word);
        }
    };
    std::size_t done = 0;
    for (; done + 32 <= bytes; done += 32) absorb(data + done);
    if (done < bytes) {
        std::uint8_t last[32] = {};
        std::memcpy(last, data + done, bytes - done);
        absorb(last);
    }
    std::uint64_t sum = bytes;
    for (const std::uint64_t lane : lanes) sum = mix(sum, lane);
    return sum ^ sum >> 32;
}

inline std::size_t block_count(std::size_t bytes, std::size_t block_bytes = kBlockBytes) {
    return (bytes + block_bytes - 1) / block_bytes;
}

inline std::uint64_t block_checksum(const std::uint8_t* data, std::size_t bytes, std::size_t block,
                                    std::size_t block_bytes = kBlockBytes) {
    const std::size_t begin = block * block_bytes;
    return checksum(data + begin, begin + block_bytes < bytes ? block_bytes : bytes - begin);
}

// Memory-mapped data with the checksums of its blocks. Kernels call touch() before they read and go on whatever it
// finds; their caller must look at first_damaged() before it uses their results. Threads may share a guard.
class ChecksumGuard {
  public:
    ChecksumGuard(const std::uint8_t* data, std::size_t bytes, const std::uint64_t* checksums,
                  std::size_t block_bytes = kBlockBytes)
        : data_(data),
          bytes_(bytes),
          block_bytes_(block_bytes),
          checksums_(checksums, checksums + block_count(bytes, block_bytes)),
          verified_(block_count(bytes, block_bytes)) {}

    // Verifies the blocks of a range of bytes that have not been verified yet.
    void touch(const void* begin, std::size_t bytes) {
        const auto offset = static_cast<std::size_t>(static_cast<const std::uint8_t*>(begin) - data_);
        const std::size_t last = (offset + bytes - 1) / block_bytes_;
        for (std::size_t block = offset / block_bytes_; block <= last; ++block)
            if (!verified_[block].load(std::memory_order_relaxed)) check(block);
    }

    std::size_t block_bytes() const { return block_bytes_; }
    bool is_verified(std::size_t block) const { return verified_[block].load(std::memory_order_relaxed); }

    // Verifies every block, including those that were verified before.
    void verify() {
        for (std::size_t block = 0; block < verified_.size(); ++block) check(block);
    }

    // The damaged block nearest to the start of the data among those checked so far, -1 if there is none.
    std::int64_t first_damaged() const { return first_damaged_.load(std::memory_order_relaxed); }

  private:
    void check(std::size_t block) {
        if (block_checksum(data_, bytes_, block, block_bytes_) == checksums_[block]) {
            verified_[block].store(true, std::memory_order_relaxed);
            return;
        }
        const auto found = static_cast<std::int64_t>(block);
        std::int64_t first = first_damaged();
        while ((first < 0 || found < first) &&
               !first_damaged_.compare_exchange_weak(first, found, std::memory_order_relaxed)) {
        }
    }

    const std::uint8_t* data_;
    std::size_t bytes_, block_bytes_;
    std::vector<std::uint64_t> checksums_;
    std::vector<std::atomic<bool>> verified_;
    std::atomic<std::int64_t> first_damaged_ = -1;
};

}  // namespace nestcode
