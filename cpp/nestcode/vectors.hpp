// Vectors as wide as a register, by the compiler's vector extension, in code that serves several instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)  // elsewhere registers have 16 bytes
#include "simd.hpp"
#endif

// For what is inlined into functions for several instruction sets. As nothing else takes or returns vectors of 32
// bytes, how calls pass them does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"
#define NESTCODE_INLINE [[gnu::always_inline]] inline

namespace nestcode {

// Registers of `kBytes`, by the compiler's vector extension.
template <std::size_t kBytes>
struct Vector;
template <>
struct Vector<16> {
    using Floats = float __attribute__((vector_size(16)));
    using Integers = std::int32_t __attribute__((vector_size(16)));
};
template <>
struct Vector<32> {
    using Floats = float __attribute__((vector_size(32)));
    using Integers = std::int32_t __attribute__((vector_size(32)));
};
template <>
struct Vector<64> {
    using Floats = float __attribute__((vector_size(64)));
    using Integers = std::int32_t __attribute__((vector_size(64)));
};
// Copies a vector from and to any address; memcpy would copy its parts.
template <class Values, class Value>
NESTCODE_INLINE Values load_vector(const Value* from) {
    struct [[gnu::packed, gnu::may_alias]] Unaligned {
        Values values;
    };
    return reinterpret_cast<const Unaligned*>(from)->values;
}
template <class Values, class Value>
NESTCODE_INLINE void store_vector(const Values& values, Value* to) {
    struct [[gnu::packed, gnu::may_alias]] Unaligned {
        Values values;
    };
    reinterpret_cast<Unaligned*>(to)->values = values;
}
// Two vectors as one.
NESTCODE_INLINE Vector<32>::Floats join(const Vector<16>::Floats& a, const Vector<16>::Floats& b) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
#else  // GCC before version 12
    return {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]};
#endif
}
// The halves of two vectors, lane by lane in turn: the lower ones, or the upper ones.
template <bool upper, std::size_t... lane, class Floats>
NESTCODE_INLINE Floats interleave(const Floats& a, const Floats& b, std::index_sequence<lane...>) {
    constexpr int count = sizeof...(lane);
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, ((upper ? count : 0) + static_cast<int>(lane)) / 2 + lane % 2 * count...);
#else  // GCC before version 12
    using Integers = typename Vector<sizeof(Floats)>::Integers;
    return __builtin_shuffle(
        a, b, Integers{(((upper ? count : 0) + static_cast<int>(lane)) / 2 + static_cast<int>(lane % 2) * count)...});
#endif
}
// Transposes a square of values, a vector for each row: rows are interleaved with those half of the square away until
// every value has moved.
template <class Floats>
NESTCODE_INLINE void transpose(Floats* rows) {
    constexpr std::size_t lanes = sizeof(Floats) / sizeof(float);
    constexpr std::make_index_sequence<lanes> each{};
    Floats other[lanes];
    for (std::size_t step = 1; step < lanes; step *= 2) {
        for (std::size_t i = 0; i < lanes / 2; ++i) {
            other[2 * i] = interleave<false>(rows[i], rows[i + lanes / 2], each);
            other[2 * i + 1] = interleave<true>(rows[i], rows[i + lanes / 2], each);
        }
        for (std::size_t i = 0; i < lanes; ++i) rows[i] = other[i];
    }
}
// Whether any bit of a vector is set.
template <class Values>
NESTCODE_INLINE bool any_bit(const Values& values) {
    std::uint64_t words[sizeof values / 8], any = 0;
    std::memcpy(words, &values, sizeof values);
    for (const std::uint64_t word : words) any |= word;
    return any != 0;
}

}  // namespace nestcode
