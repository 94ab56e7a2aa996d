// Packed codes in row-major order: the input of every kernel.
//
// A row is one code of `bytes` bytes, most significant bit first; unused bits of the last byte are 0, as np.packbits
// leaves them. Therefore memcmp orders rows as the prefix tree does. The stride is free, also negative, so that rows
// can be views: prefixes of wider codes, or every second item of an array.
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
    std::size_t bytes;      // per row
    std::ptrdiff_t stride;  // from one row to the next, in bytes

    const std::uint8_t* operator[](std::size_t i) const { return data + static_cast<std::ptrdiff_t>(i) * stride; }

    Rows slice(std::size_t begin, std::size_t end) const { return {(*this)[begin], end - begin, bytes, stride}; }
};

// Loads up to eight bytes as a big-endian word, missing bytes as zeros: words compare as the bytes do.
inline std::uint64_t load_big_endian(const std::uint8_t* bytes, std::size_t available) {
    std::uint64_t word = 0;
    if (available >= 8)
        std::memcpy(&word, bytes, 8);  // one instruction, where the size is known
    else
        std::memcpy(&word, bytes, available);
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    return word;
}

}  // namespace nestcode
