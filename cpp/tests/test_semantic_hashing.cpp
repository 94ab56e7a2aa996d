// The semantic hashing of the benchmarks against the Hamming distance of every pair.
#include "benchmarks/semantic_hashing.cpp"
#include "nestcode/lexicographic_order.hpp"
#include "support.hpp"

namespace {

void test_ball(std::size_t width, std::mt19937& random) {
    const Bits bits(300, width, random), queries(5, width, random);
    std::vector<std::int64_t> order(300);
    argsort_rows(bits.rows, order.data());
    std::vector<std::uint8_t> sorted;
    for (const std::int64_t i : order) {
        const std::uint8_t* row = bits.rows[static_cast<std::size_t>(i)];
        sorted.insert(sorted.end(), row, row + bits.rows.bytes);
    }
    const HashTable table({sorted.data(), 300, bits.rows.bytes, bits.rows.stride});
    for (std::size_t q = 0; q < 5; ++q)
        for (std::int32_t radius = 0; radius < 4; ++radius) {
            std::uint64_t expected = 0;
            for (std::size_t i = 0; i < 300; ++i) {
                std::int32_t distance = 0;
                for (std::size_t b = 0; b < width; ++b) distance += bit(bits.rows[i], b) != bit(queries.rows[q], b);
                expected += distance <= radius;
            }
            const auto found = table.search(queries.rows[q], static_cast<std::int32_t>(width), radius, UINT64_MAX);
            CHECK(found.items == expected);
            CHECK(table.search(queries.rows[q], static_cast<std::int32_t>(width), radius, 3).probes <= 3);
        }
}

}  // namespace

int main() {
    std::mt19937 random(7);
    for (const std::size_t width : {4, 9, 16}) test_ball(width, random);
    std::puts("semantic_hashing: ok");
}
