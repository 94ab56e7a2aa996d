// 4-bit fast-scan against plain loops, on every instruction set of this processor.
#include "fastscan_scene.hpp"

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::int16_t any_short(std::mt19937& random) {  // often one of the extremes
    constexpr std::int16_t extremes[] = {INT16_MIN, INT16_MIN + 1, -1, 0, 1, INT16_MAX - 1, INT16_MAX};
    return random() % 4 == 0 ? extremes[random() % 7] : static_cast<std::int16_t>(random());
}

// Blocks are allocated to the byte, so that a kernel that reads past them is caught.
void test_kernels(std::size_t columns, std::uint8_t most, std::mt19937& random) {
    const std::size_t bytes = columns * kBlockItems;
    const std::unique_ptr<std::uint8_t[]> block(new std::uint8_t[bytes]);
    for (std::size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::uint8_t>(random());
    const std::unique_ptr<std::int16_t[]> biases(new std::int16_t[kBlockItems]);
    for (std::size_t i = 0; i < kBlockItems; ++i) biases[i] = any_short(random);
    FastScanTables tables[kTileQueries];
    std::int32_t expected[kTileQueries][kBlockItems];
    for (std::size_t q = 0; q < kTileQueries; ++q) {
        std::vector<std::uint8_t>& entries = tables[q].entries;
        entries.resize(columns * 32);
        for (std::uint8_t& entry : entries) entry = most == 0 ? 127 : static_cast<std::uint8_t>(random() % most);
        tables[q].bias_factor = static_cast<std::int16_t>(random() % 3 == 0 ? 0 : random() % 32735);
        for (std::size_t i = 0; i < kBlockItems; ++i) {
            double sum = std::floor(static_cast<double>(biases[i]) * tables[q].bias_factor / 32768 + 0.5);
            for (std::size_t c = 0; c < columns; ++c) {
                const std::uint8_t nibbles = block[c * kBlockItems + i];
                sum += entries[32 * c + nibbles % 16] + entries[32 * c + 16 + nibbles / 16];
            }
            expected[q][i] = static_cast<std::int32_t>(std::clamp(sum, -32768.0, 32767.0));
        }
    }
    const std::int16_t extremes[] = {any_short(random), any_short(random), 0, INT16_MAX};
    for (std::size_t queries = 1; queries <= kTileQueries; ++queries)
        for (const Simd simd : available_simd()) {
            FastScanTile tile;
            tile.queries = queries;
            for (std::size_t q = 0; q < queries; ++q) {
                tile.tables[q] = &tables[q];
                tile.limits[q] = extremes[(q + queries) % 4];
            }
            fastscan_kernel(simd)(block.get(), biases.get(), columns, tile);
            for (std::size_t q = 0; q < queries; ++q)
                for (std::size_t i = 0; i < kBlockItems; ++i) {
                    CHECK(tile.sums[q][i] == expected[q][i]);
                    CHECK((tile.below[q] >> i & 1) == (expected[q][i] < tile.limits[q]));
                }
        }
}

// The error of an estimate is at most half a quantization step per group, and that of the bias.
void test_tables(std::size_t count, float spread, Metric metric, Simd simd, std::mt19937& random) {
    const Scene scene(count, spread, random);
    const float unit = spread * spread / 500;
    FastScanTables tables, plain;
    fill_tables(scene.groups, scene.query.data(), unit, metric, table_kernels(simd), tables);
    fill_tables(scene.groups, scene.query.data(), unit, metric, table_kernels(Simd::portable), plain);
    CHECK(tables.scale == plain.scale && tables.offset == plain.offset && tables.entries == plain.entries);
    const bool inner = metric == Metric::inner;
    const std::size_t columns = (count + 1) / 2;
    CHECK(tables.entries.size() == columns * 32);
    CHECK(tables.scale > 0 && std::isfinite(tables.scale) && std::isfinite(tables.offset));
    for (const std::uint8_t entry : tables.entries) CHECK(entry <= kLargestEntry);
    CHECK(tables.bias_factor >= 0 && (!inner || tables.bias_factor == 0));
    std::vector<std::uint8_t> block(columns * kBlockItems);
    std::vector<std::int16_t> biases(kBlockItems), out(kBlockItems);
    std::vector<std::vector<int>> values(kBlockItems, std::vector<int>(count));
    for (std::size_t i = 0; i < kBlockItems; ++i) {
        biases[i] = static_cast<std::int16_t>(static_cast<int>(random() % 2000) - 1000);
        for (std::size_t g = 0; g < count; ++g) {
            values[i][g] = static_cast<int>(random() % 16);
            block[g / 2 * kBlockItems + i] |= static_cast<std::uint8_t>(values[i][g] << (g % 2 != 0 ? 4 : 0));
        }
    }
    fastscan_portable(block.data(), biases.data(), columns, tables, 0, out.data());
    const float clip = kLargestEntry / tables.scale;  // of entries
    for (std::size_t i = 0; i < kBlockItems; ++i) {
        const double bias = inner ? 0 : static_cast<double>(biases[i]) * unit;
        const double expected = scene.distance(values[i], metric) + bias;
        const double estimate = tables.offset + static_cast<double>(out[i]) / static_cast<double>(tables.scale);
        const double allowed = (static_cast<double>(count) / 2 + 1) / static_cast<double>(tables.scale) +
                               std::abs(biases[i]) / 32768.0 / static_cast<double>(tables.scale) +
                               1e-4 * std::abs(expected) + 1e-30;
        CHECK(estimate <= expected + allowed);  // clipping makes no item farther
        bool clipped = false;
        for (std::size_t g = 0; g < count; ++g)
            clipped |=
                tables.entries[32 * (g / 2) + 16 * (g % 2) + static_cast<std::size_t>(values[i][g])] == kLargestEntry;
        CHECK(clipped || estimate >= expected - allowed);
        CHECK(!clipped || estimate >= static_cast<double>(tables.offset) + static_cast<double>(clip) + bias - allowed);
    }
}

// Outliers do not make the quantization coarse for the other groups.
void test_outliers(Simd simd, std::mt19937& random) {
    Scene scene(20, 1, random);
    FastScanTables before, after;
    const TableKernels kernels = table_kernels(simd);
    fill_tables(scene.groups, scene.query.data(), 1e-30f, Metric::l2, kernels, before);
    scene.groups[3].levels[0][15] = 1e6f;
    fill_tables(scene.groups, scene.query.data(), 1e-30f, Metric::l2, kernels, after);
    CHECK(after.scale > before.scale / 100);
    CHECK(after.entries[32 + 16 + 15] == kLargestEntry);
    // Nor do infinite entries.
    for (float& coefficient : scene.query) coefficient = 1e30f;
    for (float& level : scene.groups[5].levels[0]) level = -3e38f;
    fill_tables(scene.groups, scene.query.data(), 1, Metric::l2, kernels, after);
    for (const std::uint8_t entry : after.entries) CHECK(entry <= kLargestEntry);
}

// Queries that are NaN, infinite or near the range of a float give tables in range, and casts that are defined.
void test_extreme_queries(Simd simd, std::mt19937& random) {
    constexpr float largest = std::numeric_limits<float>::max();
    const float extremes[] = {std::nanf(""), kInfinity, -kInfinity, largest, -largest, 1e30f, 1e19f, 1e-45f, 0};
    for (int round = 0; round < 300; ++round) {
        Scene scene(1 + random() % 12, round % 3 == 0 ? 1e-42f : 1, random);
        for (float& coefficient : scene.query)
            if (random() % 3 == 0) coefficient = extremes[random() % std::size(extremes)];
        for (const float unit : {0.0f, 1e-30f, 1.0f, 1e38f})
            for (const Metric metric : {Metric::l2, Metric::inner}) {
                FastScanTables tables;
                fill_tables(scene.groups, scene.query.data(), unit, metric, table_kernels(simd), tables);
                for (const std::uint8_t entry : tables.entries) CHECK(entry <= kLargestEntry);
                CHECK(tables.scale > 0 && std::isfinite(tables.scale) && tables.bias_factor >= 0);
            }
    }
}

void test_blocks(std::mt19937& random) {
    for (const std::size_t columns : {1, 3, 26}) {
        const Bits grouped(75, 8 * columns, random);
        std::vector<std::uint32_t> slots(75);
        std::iota(slots.begin(), slots.end(), 40u);
        std::vector<std::uint8_t> out(4 * columns * kBlockItems);
        pack_blocks(grouped.rows, slots.data(), out.data());
        for (std::size_t slot = 0; slot < 128; ++slot)
            for (std::size_t c = 0; c < columns; ++c) {
                const bool used = slot >= 40 && slot < 115;
                CHECK(out[(slot / 32 * columns + c) * 32 + slot % 32] == (used ? grouped.rows[slot - 40][c] : 0));
            }
    }
}

}  // namespace

int main() {
    std::mt19937 random(3);
    for (std::size_t columns = 0; columns <= 128; ++columns)  // codes have at most 256 groups
        for (const std::uint8_t most : {0, 1, 128}) test_kernels(columns, most, random);
    for (int round = 0; round < 300; ++round) test_kernels(1 + random() % 30, 128, random);
    for (const Simd simd : available_simd()) {
        for (const std::size_t groups : {1, 2, 3, 15, 52, 255, 256})
            for (const float spread : {1.0f, 1e-12f, 1e12f})
                for (const Metric metric : {Metric::l2, Metric::inner})
                    test_tables(groups, spread, metric, simd, random);
        test_outliers(simd, random);
        test_extreme_queries(simd, random);
    }
    test_blocks(random);
    print_simd("fastscan");
}
