// Shared by the fuzz targets (libFuzzer): one for each kind of bytes of a file that C++ reads. The headers around them,
// manifests and coders are parsed in Python.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cpp/tests/support.hpp"

// The bytes that libFuzzer made up: sizes are taken from their start, contents from the rest. Past the end they are 0.
class Input {
  public:
    Input(const std::uint8_t* bytes, std::size_t count) : bytes_(bytes), left_(count) {}

    // A number from 0 to `most`.
    std::size_t number(std::size_t most) {
        std::uint16_t taken = 0;
        fill(&taken, 1);
        return taken % (most + 1);
    }

    // Values of any bit pattern, allocated to the byte.
    template <class T>
    std::vector<T> values(std::size_t count) {
        std::vector<T> taken(count);
        fill(taken.data(), count);
        return taken;
    }

    std::vector<std::uint8_t> rest() { return values<std::uint8_t>(left_); }

    // Calls with a value of either type of pixels.
    template <class Call>
    void with_pixel(Call call) {
        if (number(1))
            call(std::uint8_t{});
        else
            call(std::uint16_t{});
    }

  private:
    template <class T>
    void fill(T* out, std::size_t count) {
        const std::size_t taken = std::min(left_, count * sizeof(T));
        if (taken != 0) std::memcpy(out, bytes_, taken);
        bytes_ += taken;
        left_ -= taken;
    }

    const std::uint8_t* bytes_;
    std::size_t left_;
};
