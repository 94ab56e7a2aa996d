// Which instructions this processor has, asked once at run time.
//
// One wheel serves every processor of an architecture, so the kernels are compiled for each set of
// instructions and picked when they are called.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#define NESTCODE_X86 1
#include <immintrin.h>
#define NESTCODE_TARGET(features) __attribute__((target(features)))
#elif defined(__aarch64__)
#define NESTCODE_NEON 1
#include <arm_neon.h>
#endif

namespace nestcode {

// Four numbers that the compiler adds and multiplies at once, on every processor.
using Four = float __attribute__((vector_size(16)));

inline Four load_four(const float* from) {
    Four four;
    std::memcpy(&four, from, sizeof four);
    return four;
}

enum class Simd { portable, neon, avx2, avx512 };

inline std::string_view name_of(Simd simd) {
    switch (simd) {
        case Simd::neon: return "neon";
        case Simd::avx2: return "avx2";
        case Simd::avx512: return "avx512";
        default: return "portable";
    }
}

// The sets this processor runs, slowest first.
inline const std::vector<Simd>& available_simd() {
    static const std::vector<Simd> available = [] {
        std::vector<Simd> found{Simd::portable};
#if NESTCODE_NEON
        found.push_back(Simd::neon);
#endif
#if NESTCODE_X86
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")) found.push_back(Simd::avx2);
        if (__builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl"))
            found.push_back(Simd::avx512);
#endif
        return found;
    }();
    return available;
}

// The set with this name, or the fastest for an empty name.
inline Simd choose_simd(std::string_view name) {
    const auto& available = available_simd();
    if (name.empty()) return available.back();
    for (Simd simd : available)
        if (name_of(simd) == name) return simd;
    std::string known;
    for (Simd simd : available) known += (known.empty() ? "" : ", ") + std::string(name_of(simd));
    throw std::invalid_argument("simd must be one of " + known + ", got " + std::string(name));
}

}  // namespace nestcode
