// The kernels against plain loops over single bits, on every instruction set of this processor.
#include "nestcode/cells.hpp"
#include "nestcode/hamming.hpp"
#include "nestcode/order.hpp"
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
    sort_order(bits.rows, order.data());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(), [&](std::int64_t i, std::int64_t j) {
        const std::uint8_t *left = bits.rows[static_cast<std::size_t>(i)],
                           *right = bits.rows[static_cast<std::size_t>(j)];
        return std::lexicographical_compare(left, left + bits.rows.bytes, right, right + bits.rows.bytes);
    });
    CHECK(order == expected);
}

void test_large(std::mt19937& random) {  // long enough for lanes to overflow, and for threads to be used
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
    const Rows backwards{bits.rows[6], 7, bits.rows.bytes, -bits.rows.step};
    std::vector<std::int32_t> out(7);
    hamming(bits.rows.slice(2, 3), backwards, out.data(), available_simd().back(), 1);
    CHECK(out[4] == 0);
}

void test_cells(std::mt19937& random) {
    constexpr std::size_t rows = 37, count = 5, stride = 256;
    const std::uint8_t depths[count] = {0, 1, 3, 8, 2};
    std::vector<float> thresholds(count * stride), numbers(rows * count);
    std::normal_distribution<float> normal;
    for (float& number : numbers) number = normal(random);
    for (float& threshold : thresholds) threshold = normal(random);
    std::vector<std::uint8_t> cells(rows * count);
    find_cells(numbers.data(), rows, {thresholds.data(), depths, count, stride}, cells.data(), 2);
    for (std::size_t i = 0; i < rows * count; ++i) {
        std::size_t node = 1;
        for (unsigned level = 0; level < depths[i % count]; ++level) {
            const bool up = numbers[i] > thresholds[i % count * stride + node];
            CHECK(bit(&cells[i], level) == up);
            node = 2 * node + up;
        }
        for (unsigned level = depths[i % count]; level < 8; ++level) CHECK(!bit(&cells[i], level));
    }
}

void test_permutation_and_tables(std::mt19937& random) {
    const Bits bits(50, 77, random);
    std::vector<std::int32_t> sources(48);
    for (std::int32_t& source : sources) source = static_cast<std::int32_t>(random() % 80) - 3;
    std::vector<std::uint8_t> out(50 * 6);
    permute_bits(bits.rows, sources.data(), out.data(), 6, 2);
    for (std::size_t r = 0; r < 50; ++r)
        for (std::size_t j = 0; j < 48; ++j)
            CHECK(bit(&out[r * 6], j) == (sources[j] >= 0 && bit(bits.rows[r], static_cast<std::size_t>(sources[j]))));

    std::vector<float> tables(3 * 6 * 256), sums(3 * 50);
    for (float& entry : tables) entry = static_cast<float>(random() % 100);
    sum_tables({out.data(), 50, 6, 6}, tables.data(), 3, sums.data(), 2);
    for (std::size_t q = 0; q < 3; ++q)
        for (std::size_t r = 0; r < 50; ++r) {
            float sum = 0;
            for (std::size_t g = 0; g < 6; ++g) sum += tables[(q * 6 + g) * 256 + out[r * 6 + g]];
            CHECK(sums[q * 50 + r] == sum);
        }
}

}  // namespace

int main() {
    std::mt19937 random(1);
    for (std::size_t width = 1; width <= 1100; ++width) test_pairs(width, random);
    for (const std::size_t width : {1, 7, 8, 63, 64, 65, 200, 2049})
        for (const unsigned agree : {0, 9, 400}) test_sorting(width, agree, random);
    test_large(random);
    test_reversed_rows(random);
    test_cells(random);
    test_permutation_and_tables(random);
    std::printf("checked:");
    for (const Simd simd : available_simd()) std::printf(" %s", std::string(name_of(simd)).c_str());
    std::printf("\n");
}
