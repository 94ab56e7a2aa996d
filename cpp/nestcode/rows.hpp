// Rows of packed bits: what every kernel of the core reads.
//
// A row is one code, most significant bit first, its last byte padded with zeros. Rows may be
// views: a prefix of longer codes or every second item of an array, so the step from one row to the
// next is free, also negative.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nestcode {

struct Rows {
    const std::uint8_t* data;
    std::size_t count;
    std::size_t bytes;    // of one row
    std::ptrdiff_t step;  // from one row to the next, in bytes

    const std::uint8_t* operator[](std::size_t i) const { return data + static_cast<std::ptrdiff_t>(i) * step; }

    Rows slice(std::size_t begin, std::size_t end) const { return {(*this)[begin], end - begin, bytes, step}; }
};

// Up to eight bytes as a number that orders as the bytes do: the first byte is the most significant
// one, missing bytes are zeros.
inline std::uint64_t load_ordered(const std::uint8_t* bytes, std::size_t available) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, std::min<std::size_t>(available, 8));
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    return word;
}

}  // namespace nestcode
