// Shared by the native tests. Buffers are allocated to the byte, so that the address sanitizer catches a kernel that
// reads past a row.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>

#include "nestcode/rows.hpp"
#include "nestcode/simd.hpp"

using namespace nestcode;

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (false)

// Random packed codes that share their first `agree` bytes.
struct Bits {
    std::unique_ptr<std::uint8_t[]> data;
    Rows rows;

    Bits(std::size_t count, std::size_t width, std::mt19937& random, unsigned agree = 0)
        : data(new std::uint8_t[count * ((width + 7) / 8)]),
          rows{data.get(), count, (width + 7) / 8, static_cast<std::ptrdiff_t>((width + 7) / 8)} {
        for (std::size_t i = 0; i < count * rows.bytes; ++i)
            data[i] = static_cast<std::uint8_t>(i % rows.bytes < agree ? 0x5a : random());
        if (width % 8)
            for (std::size_t i = 0; i < count; ++i)
                data[(i + 1) * rows.bytes - 1] &= static_cast<std::uint8_t>(0xff << (8 - width % 8));
    }
};

inline bool bit(const std::uint8_t* row, std::size_t i) {
    return row[i / 8] >> (7 - i % 8) & 1;
}

inline void print_simd(const char* test) {
    std::printf("%s:", test);
    for (const Simd simd : available_simd()) std::printf(" %s", std::string(name_of(simd)).c_str());
    std::printf(" ok\n");
}
