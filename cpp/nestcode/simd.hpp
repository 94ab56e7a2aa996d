// Runtime dispatch over SIMD instruction sets.
//
// One wheel serves every processor of an architecture: kernels are compiled for each instruction set and selected at
// run time by what the processor supports.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#define NESTCODE_X86 1
#include <cpuid.h>
#include <immintrin.h>
#define NESTCODE_TARGET(features) __attribute__((target(features)))
#define NESTCODE_AVX2 NESTCODE_TARGET("avx2,fma,f16c")
#define NESTCODE_AVX2_UNFUSED NESTCODE_TARGET("avx2")  // for results that are those of other kernels, bit by bit
#define NESTCODE_AVX512 NESTCODE_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512vl")
#define NESTCODE_AVX512_POPCOUNT NESTCODE_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vpopcntdq")
#define NESTCODE_AVX512_VNNI NESTCODE_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")
#elif defined(__aarch64__)
#define NESTCODE_NEON 1
#include <arm_neon.h>
#endif

namespace nestcode {

// Four floats in a vector register, by the compiler's vector extension: portable to every processor.
using Float4 = float __attribute__((vector_size(16)));

inline Float4 load_float4(const float* from) {
    Float4 values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

inline float horizontal_sum(Float4 values) {
    return values[0] + values[1] + values[2] + values[3];
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

#if NESTCODE_X86
// Which kernels this processor and its operating system can run, read from cpuid: `__builtin_cpu_supports` needs a
// symbol of the compiler's runtime library, which not every toolchain can link into a shared library.
struct X86Features {
    bool avx2 = false, avx512 = false;
    bool avx512_popcount = false, avx512_vnni = false;  // which the first processors with AVX-512 lack
};

inline X86Features read_x86_features() {
    unsigned a, b, d, basic, extended, more;
    if (!__get_cpuid(1, &a, &b, &basic, &d)) return {};
    if (!__get_cpuid_count(7, 0, &a, &extended, &more, &d)) return {};
    const auto all = [](unsigned word, unsigned bits) { return (word & bits) == bits; };
    if (!all(basic, bit_OSXSAVE)) return {};
    unsigned state, high;  // XCR0: the registers that the operating system saves for each thread
    __asm__ volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    X86Features found;
    found.avx2 = all(state, 0x06) && all(basic, bit_AVX | bit_FMA | bit_F16C | bit_POPCNT) && all(extended, bit_AVX2);
    found.avx512 = found.avx2 && all(state, 0xe6) && all(extended, bit_AVX512F | bit_AVX512BW | bit_AVX512VL);
    found.avx512_popcount = found.avx512 && all(more, bit_AVX512VPOPCNTDQ);
    found.avx512_vnni = found.avx512 && all(more, bit_AVX512VNNI);
    return found;
}

inline const X86Features& x86_features() {
    static const X86Features features = read_x86_features();  // cpuid takes long on virtual machines
    return features;
}
#endif

struct UnknownSimd : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// The place of the instruction set with this name, or an error that names the setting.
inline std::size_t find_simd(const std::vector<Simd>& available, std::string_view name, const std::string& setting) {
    const auto found = std::ranges::find(available, name, name_of);
    if (found != available.end()) return static_cast<std::size_t>(found - available.begin());
    std::string known;
    for (const Simd simd : available) known += (known.empty() ? "" : ", ") + std::string(name_of(simd));
    throw UnknownSimd(setting + " must be one of " + known + ", got " + std::string(name) + ": leave it out for " +
                      std::string(name_of(available.back())));
}

// The instruction sets that this processor supports, slowest first, up to the one that the environment names: so an old
// processor's searches are tested and measured on a new one.
inline const std::vector<Simd>& available_simd() {
    static const std::vector<Simd> available = [] {
        std::vector<Simd> found{Simd::portable};
#if NESTCODE_NEON
        found.push_back(Simd::neon);
#endif
#if NESTCODE_X86
        if (x86_features().avx2) found.push_back(Simd::avx2);
        if (x86_features().avx512) found.push_back(Simd::avx512);
#endif
        const char* const last = std::getenv("NESTCODE_SIMD");
        if (last != nullptr && *last != '\0') found.resize(find_simd(found, last, "NESTCODE_SIMD") + 1);
        return found;
    }();
    return available;
}

// The instruction set with this name; the fastest one for an empty name.
inline Simd choose_simd(std::string_view name) {
    const auto& available = available_simd();
    return name.empty() ? available.back() : available[find_simd(available, name, "simd")];
}

// A kernel that is written once, in plain C++ or by the compiler's vector extension, and compiled for every instruction
// set: `Kernel::run<bytes of a register>`, which must be inlined always.
template <class Kernel, class Pointer = decltype(&Kernel::template run<16>)>
struct Compiled;

template <class Kernel, class Result, class... Arguments>
struct Compiled<Kernel, Result (*)(Arguments...)> {
    using Pointer = Result (*)(Arguments...);

    static Result portable(Arguments... arguments) { return Kernel::template run<16>(arguments...); }
#if NESTCODE_X86
    NESTCODE_AVX2 static Result avx2(Arguments... arguments) { return Kernel::template run<32>(arguments...); }
    NESTCODE_AVX512 static Result avx512(Arguments... arguments) { return Kernel::template run<64>(arguments...); }
#endif
    static Pointer of([[maybe_unused]] Simd simd) {
#if NESTCODE_X86
        if (simd == Simd::avx2) return avx2;
        if (simd == Simd::avx512) return avx512;
#endif
        return portable;
    }
};

}  // namespace nestcode
