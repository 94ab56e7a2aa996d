// The kernels against plain loops over single bits, on every instruction set of this processor.
#include "nestcode/adaptive.hpp"
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

// The way of one item in plain steps: all levels are sorted again for every byte.
struct PlainWay {
    std::vector<int> levels;
    std::vector<double> sum;

    explicit PlainWay(const Adaptive& coder)
        : levels(coder.levels, coder.levels + coder.directions), sum(coder.directions) {}

    std::vector<std::size_t> widest() const {
        std::vector<std::size_t> order(levels.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return levels[a] > levels[b]; });
        return order;
    }

    void apply(const Adaptive& coder, std::size_t stage, std::size_t entry) {
        const std::vector<std::size_t> order = widest();
        for (std::size_t j = 0; j < coder.dims; ++j) {
            const float number = coder.books[(stage * coder.dims + j) * kEntries + entry];
            const int change = coder.changes[(stage * kEntries + entry) * coder.dims + j];
            sum[order[j]] += number * std::exp2(levels[order[j]] / double{kLevelSteps});
            levels[order[j]] = std::clamp(levels[order[j]] + change, kLowestLevel, kHighestLevel);
        }
    }

    double error(const float* row) const {
        double left = 0;
        for (std::size_t d = 0; d < sum.size(); ++d) left += (row[d] - sum[d]) * (row[d] - sum[d]);
        return left;
    }
};

void test_adaptive(std::size_t directions, std::size_t dims, std::size_t stages, std::mt19937& random) {
    constexpr std::size_t count = 20;
    std::vector<std::int16_t> levels(directions), changes(stages * kEntries * dims);
    std::vector<float> books(stages * dims * kEntries), rows(count * directions), decoded(rows.size());
    std::normal_distribution<float> normal;
    for (std::int16_t& level : levels) level = static_cast<std::int16_t>(random() % 4 * 50);  // with ties
    for (std::int16_t& change : changes) change = static_cast<std::int16_t>(random() % 5 * 50 - 150);
    for (int i = 0; i < 9; ++i) changes[random() % changes.size()] = i % 2 ? 32767 : -32768;
    for (float& number : books) number = normal(random);
    for (float& number : rows) number = normal(random);
    const Adaptive coder{directions, stages, dims, levels.data(), books.data(), changes.data()};

    std::vector<std::int32_t> found(dims);
    find_widest(levels.data(), 1, directions, dims, found.data(), 1);
    const std::vector<std::size_t> order = PlainWay(coder).widest();
    CHECK(std::equal(found.begin(), found.end(), order.begin(),
                     [](std::int32_t a, std::size_t b) { return static_cast<std::size_t>(a) == b; }));

    const Bits bits(count, 8 * stages, random);
    decode_adaptive(coder, bits.rows, decoded.data(), 2);
    for (std::size_t i = 0; i < count; ++i) {
        PlainWay way(coder);
        for (std::size_t t = 0; t < stages; ++t) way.apply(coder, t, bits.rows[i][t]);
        for (std::size_t d = 0; d < directions; ++d) {
            const double number = decoded[i * directions + d];
            CHECK(std::abs(number - way.sum[d]) <= 1e-4 * (1 + std::abs(way.sum[d])));
        }
    }

    for (std::int16_t& change : changes) change = std::clamp<std::int16_t>(change, -300, 300);
    std::vector<std::uint8_t> codes(count * stages), again(codes.size());
    encode_adaptive(coder, rows.data(), count, 1, codes.data(), 2);
    encode_adaptive(coder, rows.data(), count, 1, again.data(), 1);
    CHECK(codes == again);
    for (std::size_t i = 0; i < count; ++i) {  // one beam takes the best entry each time
        PlainWay way(coder);
        for (std::size_t t = 0; t < stages; ++t) {
            PlainWay chosen = way;
            chosen.apply(coder, t, codes[i * stages + t]);
            const double error = chosen.error(&rows[i * directions]);
            for (std::size_t e = 0; e < kEntries; ++e) {
                PlainWay other = way;
                other.apply(coder, t, e);
                CHECK(error <= other.error(&rows[i * directions]) * (1 + 1e-4) + 1e-4);
            }
            way = chosen;
        }
    }
    encode_adaptive(coder, rows.data(), count, 300, codes.data(), 2);  // more beams than a book has entries
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
    test_adaptive(1, 1, 3, random);
    test_adaptive(13, 4, 3, random);
    test_adaptive(40, 40, 2, random);
    std::printf("checked:");
    for (const Simd simd : available_simd()) std::printf(" %s", std::string(name_of(simd)).c_str());
    std::printf("\n");
}
