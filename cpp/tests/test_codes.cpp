// Hamming distances, common prefixes and sorting against loops over single bits, on every instruction set of this
// processor.
#include "nestcode/hamming.hpp"
#include "nestcode/lexicographic_order.hpp"
#include "support.hpp"

namespace {

void test_pairs(std::size_t width, std::mt19937& random) {
    const Bits a(3, width, random, random() % 12), b(1 + random() % 9, width, random, 9);
    const std::size_t pairs = a.rows.count * b.rows.count;
    std::vector<std::int32_t> distance(pairs), shared(pairs), out(pairs);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        const std::uint8_t *left = a.rows[pair / b.rows.count], *right = b.rows[pair % b.rows.count];
        for (std::size_t i = 0; i < width; ++i) distance[pair] += bit(left, i) != bit(right, i);
        std::size_t i = 0;
        while (i < width && bit(left, i) == bit(right, i)) ++i;
        shared[pair] = static_cast<std::int32_t>(i);
    }
    for (const Simd simd : available_simd())
        for (const std::size_t threads : {1, 3}) {
            hamming(a.rows, b.rows, out.data(), simd, threads);
            CHECK(out == distance);
        }
    common_prefix(a.rows, b.rows, static_cast<std::int32_t>(width), out.data(), 2);
    CHECK(out == shared);
}

void test_sorting(std::size_t width, unsigned agree, std::mt19937& random) {
    const Bits bits(200, width, random, agree);
    std::vector<std::int64_t> order(200), expected(200);
    argsort_rows(bits.rows, order.data());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(), [&](std::int64_t i, std::int64_t j) {
        const std::uint8_t *left = bits.rows[static_cast<std::size_t>(i)],
                           *right = bits.rows[static_cast<std::size_t>(j)];
        return std::lexicographical_compare(left, left + bits.rows.bytes, right, right + bits.rows.bytes);
    });
    CHECK(order == expected);
}

// Rows long enough to overflow byte counters, and for several threads.
void test_large(std::mt19937& random) {
    const Bits a(1, 1 << 20, random);
    Bits inverted(5, 1 << 20, random);
    for (std::size_t i = 0; i < 5 * inverted.rows.bytes; ++i)
        inverted.data[i] = static_cast<std::uint8_t>(~a.data[i % a.rows.bytes]);
    std::vector<std::int32_t> out(5);
    for (const Simd simd : available_simd()) {
        hamming(a.rows, inverted.rows, out.data(), simd, 2);
        for (const std::int32_t distance : out) CHECK(distance == 1 << 20);
    }
}

void test_reversed_rows(std::mt19937& random) {
    const Bits bits(7, 300, random);
    const Rows backwards{bits.rows[6], 7, bits.rows.bytes, -bits.rows.stride};
    std::vector<std::int32_t> out(7);
    hamming(bits.rows.slice(2, 3), backwards, out.data(), available_simd().back(), 1);
    CHECK(out[4] == 0);
}

}  // namespace

int main() {
    std::mt19937 random(1);
    for (std::size_t width = 1; width <= 1100; ++width) test_pairs(width, random);
    for (const std::size_t width : {1, 7, 8, 63, 64, 65, 200, 2049})
        for (const unsigned agree : {0, 9, 400}) test_sorting(width, agree, random);
    test_large(random);
    test_reversed_rows(random);
    print_simd("codes");
}
