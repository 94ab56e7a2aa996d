// The instruction sets read from cpuid are those that the compiler's runtime library reports.
#include "nestcode/int8_projection.hpp"
#include "support.hpp"

int main() {
#if NESTCODE_X86
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c") && __builtin_cpu_supports("popcnt");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl");
    CHECK(x86_features().avx2 == avx2);
    CHECK(x86_features().avx512 == avx512);
    CHECK(x86_features().avx512_popcount == (avx512 && __builtin_cpu_supports("avx512vpopcntdq")));
    CHECK(x86_features().avx512_vnni == (avx512 && __builtin_cpu_supports("avx512vnni")));
#endif
    CHECK(available_simd().front() == Simd::portable);
    for (const Simd simd : available_simd()) CHECK(choose_simd(name_of(simd)) == simd);
    CHECK(choose_simd("") == available_simd().back());
    bool refused = false;
    try {
        choose_simd("sse9");
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
    std::printf("simd:");
    for (const Simd simd : available_simd()) std::printf(" %s", std::string(name_of(simd)).c_str());
#if NESTCODE_DOT_PRODUCTS
    if (has_dot_products()) std::printf(" dot_products");
#endif
    std::printf(" ok\n");
}
