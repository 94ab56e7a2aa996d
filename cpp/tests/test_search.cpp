// Search against plain loops: scanning on every instruction set of this processor, choosing cells, keeping the best.
#include "nestcode/cells.hpp"
#include "nestcode/search.hpp"
#include "support.hpp"

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::size_t below(std::mt19937& random, std::size_t count) {
    return random() % count;
}

std::int16_t any_short(std::mt19937& random) {  // often one of the extremes
    constexpr std::int16_t extremes[] = {INT16_MIN, INT16_MIN + 1, -1, 0, 1, INT16_MAX - 1, INT16_MAX};
    return random() % 4 == 0 ? extremes[random() % 7] : static_cast<std::int16_t>(random());
}

// Blocks allocated to the byte: a kernel that reads more is caught.
void test_kernels(std::size_t planes, std::uint8_t most, std::mt19937& random) {
    const std::size_t bytes = planes * block_items;
    const std::unique_ptr<std::uint8_t[]> block(new std::uint8_t[bytes]);
    for (std::size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::uint8_t>(random());
    ScanTables tables;
    tables.entries.resize(planes * 32);
    for (std::uint8_t& entry : tables.entries) entry = most == 0 ? 127 : static_cast<std::uint8_t>(random() % most);
    tables.factor = static_cast<std::int16_t>(random() % 3 == 0 ? 0 : random() % 32735);
    const std::unique_ptr<std::int16_t[]> biases(new std::int16_t[block_items]);
    for (std::size_t i = 0; i < block_items; ++i) biases[i] = any_short(random);
    std::int32_t expected[block_items];
    for (std::size_t i = 0; i < block_items; ++i) {
        const double bias = std::floor(static_cast<double>(biases[i]) * tables.factor / 32768 + 0.5);
        double sum = bias;
        for (std::size_t p = 0; p < planes; ++p) {
            const std::uint8_t both = block[p * block_items + i];
            sum += tables.entries[32 * p + both % 16] + tables.entries[32 * p + 16 + both / 16];
        }
        expected[i] = static_cast<std::int32_t>(std::clamp(sum, -32768.0, 32767.0));
    }
    for (const std::int16_t limit : {any_short(random), any_short(random), std::int16_t{0}, std::int16_t{INT16_MAX}})
        for (const Simd simd : available_simd()) {
            const std::unique_ptr<std::int16_t[]> out(new std::int16_t[block_items]);
            const std::uint32_t mask = scan_kernel(simd)(block.get(), biases.get(), planes, tables, limit, out.get());
            for (std::size_t i = 0; i < block_items; ++i) {
                CHECK(out[i] == expected[i]);
                CHECK((mask >> i & 1) == (expected[i] < limit));
            }
        }
}

// Directions in groups as Scan makes them: the bits of a group's directions lie one after the other at its low end.
struct Scene {
    std::vector<ScanGroup> groups;
    std::size_t directions = 0;
    std::vector<float> query;

    Scene(std::size_t count, float spread, std::mt19937& random) : groups(count) {
        std::normal_distribution<float> normal(0, spread);
        for (ScanGroup& group : groups) {
            int bits = 4;
            std::fill_n(group.directions, 4, -1);
            for (int j = 0; j < 4 && bits > 0; ++j) {
                const int depth = 1 + static_cast<int>(random() % static_cast<unsigned>(bits));
                bits -= depth;
                group.directions[j] = static_cast<std::int32_t>(directions++);
                float numbers[16];
                for (float& number : numbers) number = normal(random);
                for (int value = 0; value < 16; ++value)
                    group.numbers[j][value] = numbers[value >> bits & ((1 << depth) - 1)];
                if (random() % 3 == 0) break;  // a group need not be full
            }
        }
        query.resize(directions);
        for (float& number : query) number = normal(random);
    }

    double distance(const std::vector<int>& values, bool inner) const {
        double sum = 0;
        for (std::size_t g = 0; g < groups.size(); ++g)
            for (int j = 0; j < 4 && groups[g].directions[j] >= 0; ++j) {
                const double r = groups[g].numbers[j][values[g]];
                const double q = query[static_cast<std::size_t>(groups[g].directions[j])];
                sum += inner ? -2 * q * r : r * r - 2 * q * r;
            }
        return sum;
    }
};

// Rough distances are off by at most half an entry for each group, and by what the bias is rounded to.
void test_tables(std::size_t count, float spread, bool inner, std::mt19937& random) {
    const Scene scene(count, spread, random);
    const float unit = spread * spread / 500;
    ScanTables tables;
    fill_tables(scene.groups, scene.query.data(), unit, inner, tables);
    const std::size_t planes = (count + 1) / 2;
    CHECK(tables.entries.size() == planes * 32);
    CHECK(tables.scale > 0 && std::isfinite(tables.scale) && std::isfinite(tables.offset));
    for (const std::uint8_t entry : tables.entries) CHECK(entry <= largest_entry);
    CHECK(tables.factor >= 0 && (!inner || tables.factor == 0));
    std::vector<std::uint8_t> block(planes * block_items);
    std::vector<std::int16_t> biases(block_items), out(block_items);
    std::vector<std::vector<int>> values(block_items, std::vector<int>(count));
    for (std::size_t i = 0; i < block_items; ++i) {
        biases[i] = static_cast<std::int16_t>(static_cast<int>(random() % 2000) - 1000);
        for (std::size_t g = 0; g < count; ++g) {
            values[i][g] = static_cast<int>(random() % 16);
            block[g / 2 * block_items + i] |= static_cast<std::uint8_t>(values[i][g] << (g % 2 != 0 ? 4 : 0));
        }
    }
    scan_portable(block.data(), biases.data(), planes, tables, 0, out.data());
    const float reach = largest_entry / tables.scale;  // entries are cut off there
    for (std::size_t i = 0; i < block_items; ++i) {
        const double bias = inner ? 0 : static_cast<double>(biases[i]) * unit;
        const double expected = scene.distance(values[i], inner) + bias;
        const double rough = tables.offset + static_cast<double>(out[i]) / static_cast<double>(tables.scale);
        const double allowed = (static_cast<double>(count) / 2 + 1) / static_cast<double>(tables.scale) +
                               std::abs(biases[i]) / 32768.0 / static_cast<double>(tables.scale) +
                               1e-4 * std::abs(expected) + 1e-30;
        CHECK(rough <= expected + allowed);  // cutting off makes no item farther
        bool cut = false;
        for (std::size_t g = 0; g < count; ++g)
            cut |=
                tables.entries[32 * (g / 2) + 16 * (g % 2) + static_cast<std::size_t>(values[i][g])] == largest_entry;
        CHECK(cut || rough >= expected - allowed);
        CHECK(!cut || rough >= static_cast<double>(tables.offset) + static_cast<double>(reach) + bias - allowed);
    }
}

// Outliers leave the tables fine enough for the others.
void test_outliers(std::mt19937& random) {
    Scene scene(20, 1, random);
    ScanTables before, after;
    fill_tables(scene.groups, scene.query.data(), 1e-30f, false, before);
    scene.groups[3].numbers[0][15] = 1e6f;
    fill_tables(scene.groups, scene.query.data(), 1e-30f, false, after);
    CHECK(after.scale > before.scale / 100);
    CHECK(after.entries[32 + 16 + 15] == largest_entry);
    // Nor does what is no number at all, from numbers beyond the range of a float.
    for (float& number : scene.query) number = 1e30f;
    for (float& number : scene.groups[5].numbers[0]) number = -3e38f;
    fill_tables(scene.groups, scene.query.data(), 1, false, after);
    for (const std::uint8_t entry : after.entries) CHECK(entry <= largest_entry);
}

// Queries that are NaN, infinite or near the range of a float give tables within bounds, and casts that are defined.
void test_extreme_queries(std::mt19937& random) {
    constexpr float largest = std::numeric_limits<float>::max();
    const float extremes[] = {std::nanf(""), infinity, -infinity, largest, -largest, 1e30f, 1e19f, 1e-45f, 0};
    for (int round = 0; round < 300; ++round) {
        Scene scene(1 + below(random, 12), round % 3 == 0 ? 1e-42f : 1, random);
        for (float& number : scene.query)
            if (random() % 3 == 0) number = extremes[random() % std::size(extremes)];
        for (const float unit : {0.0f, 1e-30f, 1.0f, 1e38f})
            for (const bool inner : {false, true}) {
                ScanTables tables;
                fill_tables(scene.groups, scene.query.data(), unit, inner, tables);
                for (const std::uint8_t entry : tables.entries) CHECK(entry <= largest_entry);
                CHECK(tables.scale > 0 && std::isfinite(tables.scale) && tables.factor >= 0);
            }
    }
}

// A whole search with such queries ends, and finds as many items as there are.
void test_extreme_search(std::mt19937& random) {
    constexpr std::size_t count = 40, planes = 2;
    constexpr float largest = std::numeric_limits<float>::max();
    const Scene scene(2 * planes, 1, random);
    const Bits cells(count, 8 * planes, random);
    const std::uint32_t starts[] = {0, count}, block_starts[] = {0};
    std::vector<std::uint32_t> places(count);
    std::iota(places.begin(), places.end(), 0u);
    std::vector<std::uint8_t> blocks(2 * planes * block_items);
    fill_blocks(cells.rows, places.data(), blocks.data());
    const std::vector<std::int16_t> biases(2 * block_items, 100);
    const std::vector<SearchPart> parts{
        {cells.rows, starts, {block_starts, 1, blocks.data(), biases.data(), planes, 0.01f}}};
    const std::uint32_t sizes[] = {count};
    for (const float value : {std::nanf(""), infinity, -infinity, largest, -largest, 1e20f}) {
        const std::vector<float> query(scene.directions, value);
        const float product = value, norm = 0;
        for (const std::size_t keep : {std::size_t{3}, count}) {
            std::vector<float> scores(keep);
            std::vector<std::uint32_t> found(keep);
            std::int64_t compared = 0;
            search(
                parts, sizes, 1, count, 0, {keep, scores.data(), found.data(), &compared}, 1,
                [&](std::size_t, float* out) { out[0] = value; },
                [&](std::size_t) {
                    return ScanRanking{scan_kernel(available_simd().back()),
                                       &scene.groups,
                                       query.data(),
                                       scene.directions,
                                       nullptr,
                                       0,
                                       0.01f,
                                       false,
                                       &product,
                                       &norm};
                });
            CHECK(compared == count);
            std::sort(found.begin(), found.end());
            CHECK(std::adjacent_find(found.begin(), found.end()) == found.end() && found.back() < count);
        }
    }
}

void test_metric_names() {
    CHECK(metric_named("l2") == Metric::l2 && metric_named("cosine") == Metric::cosine);
    CHECK(metric_named("inner") == Metric::inner);
    bool refused = false;
    try {
        metric_named("manhattan");
    } catch (const std::invalid_argument& error) {
        refused = std::string(error.what()).find("manhattan") != std::string::npos;
    }
    CHECK(refused);
}

void test_blocks(std::mt19937& random) {
    for (const std::size_t planes : {1, 3, 26}) {
        const Bits cells(75, 8 * planes, random);
        std::vector<std::uint32_t> places(75);
        std::iota(places.begin(), places.end(), 40u);
        std::vector<std::uint8_t> out(4 * planes * block_items);
        fill_blocks(cells.rows, places.data(), out.data());
        for (std::size_t place = 0; place < 128; ++place)
            for (std::size_t p = 0; p < planes; ++p) {
                const bool there = place >= 40 && place < 115;
                CHECK(out[(place / 32 * planes + p) * 32 + place % 32] == (there ? cells.rows[place - 40][p] : 0));
            }
    }
}

// All cells by distance, and by number where that is equal, until they hold enough; those that hold nothing do not
// count.
void test_chooser(std::mt19937& random) {
    const std::size_t cells = random() % 4 == 0 ? 1 : 1 + below(random, 700);
    std::vector<std::uint32_t> sizes(cells);
    for (std::uint32_t& size : sizes) size = random() % 3 == 0 ? 0 : static_cast<std::uint32_t>(random() % 50);
    Chooser chooser(sizes);
    for (int round = 0; round < 8; ++round) {
        std::vector<float> distances(cells);
        std::normal_distribution<float> normal(-3, random() % 2 == 0 ? 1 : 1e15f);
        for (float& distance : distances) {
            distance = normal(random);
            if (round % 4 == 1) distance = std::round(distance);  // many are equal
            if (round % 4 == 2) distance = random() % 3 == 0 ? infinity : random() % 3 == 0 ? -infinity : distance;
            if (round % 4 == 3) distance = random() % 50 == 0 ? 1e30f : 7;  // all but a few in one bucket
        }
        const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
        for (const std::uint64_t candidates : {std::uint64_t{1}, total / 3, total, total + 1, UINT64_MAX}) {
            if (candidates == 0) continue;
            std::vector<std::uint32_t> order(cells);
            std::iota(order.begin(), order.end(), 0u);
            std::stable_sort(order.begin(), order.end(),
                             [&](std::uint32_t a, std::uint32_t b) { return distances[a] < distances[b]; });
            std::vector<bool> expected(cells);
            std::uint64_t held = 0;
            for (const std::uint32_t cell : order) {
                if (held >= candidates) break;
                expected[cell] = true;
                held += sizes[cell];
            }
            CHECK(chooser.choose(distances.data(), candidates) == held);
            for (std::size_t c = 0; c < cells; ++c) CHECK(sizes[c] == 0 || (chooser.chosen[c] == 1) == expected[c]);
        }
    }
    // What is no number is chosen or not, and nothing breaks.
    std::vector<float> distances(cells);
    for (float& distance : distances) distance = random() % 2 == 0 ? std::nanf("") : static_cast<float>(random() % 9);
    for (const std::uint64_t candidates : {1u, 100u, 1'000'000u}) {
        std::uint64_t held = 0;
        const std::uint64_t chosen = chooser.choose(distances.data(), candidates);
        for (std::size_t c = 0; c < cells; ++c) held += chooser.chosen[c] * sizes[c];
        CHECK(chosen == held);
    }
}

// Runs hold just the items of the chosen cells, each once, and no run leaves its coarse cell.
void test_runs(std::mt19937& random) {
    const int fine = static_cast<int>(random() % 4);
    const std::size_t cells = std::size_t{1} << (fine + static_cast<int>(random() % 5));
    std::vector<std::vector<std::uint32_t>> starts(2);
    std::vector<SearchPart> parts;
    for (std::vector<std::uint32_t>& own : starts) {
        own.push_back(0);
        for (std::size_t c = 0; c < cells; ++c)
            own.push_back(own.back() + (random() % 3 == 0 ? 0 : static_cast<std::uint32_t>(random() % 20)));
        parts.push_back({{nullptr, own.back(), 0, 0}, own.data(), {}});
    }
    std::vector<std::uint8_t> chosen(cells);
    std::vector<float> distances(cells);
    for (std::size_t c = 0; c < cells; ++c) {
        chosen[c] = random() % 2;
        distances[c] = static_cast<float>(c);
    }
    std::vector<Run> runs;
    find_runs(parts, chosen, distances.data(), fine, runs);
    for (std::size_t p = 0; p < 2; ++p) {
        std::vector<int> seen(starts[p].back());
        for (const Run& run : runs)
            if (run.part == &parts[p]) {
                const std::size_t first = run.coarse << fine, last = (run.coarse + 1) << fine;
                CHECK(run.origin == starts[p][first]);
                CHECK(run.range.begin >= starts[p][first] && run.range.end <= starts[p][last]);
                for (std::uint32_t i = run.range.begin; i < run.range.end; ++i) ++seen[i];
            }
        for (std::size_t c = 0; c < cells; ++c)
            for (std::uint32_t i = starts[p][c]; i < starts[p][c + 1]; ++i) CHECK(seen[i] == chosen[c]);
    }
}

void test_best(std::size_t keep, std::size_t count, std::mt19937& random) {
    Best best(keep);
    for (int round = 0; round < 3; ++round) {
        best.clear();
        CHECK(best.limit == infinity);
        std::vector<std::pair<float, std::uint32_t>> all;
        std::normal_distribution<float> normal;
        for (std::uint32_t i = 0; i < count; ++i) {
            float score = round == 1 ? std::round(normal(random)) : normal(random) * 1e10f;
            if (random() % 20 == 0) score = random() % 2 == 0 ? -infinity : 0;
            all.emplace_back(score, i);
            if (score < best.limit) best.add(score, i);
        }
        std::sort(all.begin(), all.end());
        all.resize(std::min(all.size(), keep));
        const std::vector<std::uint64_t>& hits = best.sorted();
        CHECK(hits.size() == all.size());
        for (std::size_t i = 0; i < hits.size(); ++i) CHECK(Hit::score(hits[i]) == all[i].first);
        for (std::size_t i = 0; i < hits.size() && round != 1; ++i)
            CHECK(Hit::place(hits[i]) == all[i].second || all[i].first == 0 || all[i].first == -infinity);
    }
    // What is infinitely far, or no number, is among the best as long as there is nothing better.
    best.clear();
    best.add(infinity, 7);
    best.add(std::nanf(""), 8);
    best.add(-std::nanf(""), 9);
    if (keep >= 4) {
        best.add(3, 1);
        const std::vector<std::uint64_t>& hits = best.sorted();
        CHECK(hits.size() == 4 && Hit::place(hits[0]) == 1);
        for (std::size_t i = 1; i < 4; ++i) CHECK(Hit::place(hits[i]) == 6 + i);
    }
}

void test_packing(std::mt19937& random) {
    const float numbers[] = {-infinity, -3e38f, -1, -1e-40f, -0.0f, 0, 1e-40f, 1e-30f, 1, 3e38f, infinity};
    for (std::size_t i = 0; i + 1 < std::size(numbers); ++i)
        CHECK(Hit::pack(numbers[i], UINT32_MAX) < Hit::pack(numbers[i + 1], 0));
    for (int round = 0; round < 1000; ++round) {
        const auto score = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        const auto place = static_cast<std::uint32_t>(random());
        const std::uint64_t hit = Hit::pack(score, place);
        CHECK(std::bit_cast<std::uint32_t>(Hit::score(hit)) == std::bit_cast<std::uint32_t>(score));
        CHECK(Hit::place(hit) == place);
    }
}

void test_nearest(std::size_t many, std::size_t k, bool shared, std::mt19937& random) {
    constexpr std::size_t queries = 7;
    std::vector<float> distances(queries * many), near(queries * k);
    std::vector<std::int64_t> ids(shared ? many : queries * many), near_ids(queries * k);
    for (float& distance : distances) {
        distance = static_cast<float>(random() % 20) - 5;
        if (random() % 9 == 0) distance = random() % 2 == 0 ? infinity : std::nanf("");
    }
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = random() % 6 == 0 ? -1 : static_cast<std::int64_t>(i * 7919 % 10'007);
    for (const std::size_t threads : {1, 3}) {
        take_nearest(distances.data(), ids.data(), shared, queries, many, k, near.data(), near_ids.data(), threads);
        for (std::size_t q = 0; q < queries; ++q) {
            std::vector<std::pair<float, std::int64_t>> all;
            for (std::size_t i = 0; i < many; ++i) {
                const std::int64_t id = ids[shared ? i : q * many + i];
                const float distance = distances[q * many + i];
                if (id >= 0) all.emplace_back(std::isnan(distance) ? infinity : distance, id);
            }
            std::sort(all.begin(), all.end());
            all.resize(k, {infinity, -1});
            for (std::size_t i = 0; i < k; ++i)
                CHECK(near[q * k + i] == all[i].first && near_ids[q * k + i] == all[i].second);
        }
    }
}

void test_planes(std::size_t rows, std::size_t first, std::size_t bits, std::mt19937& random) {
    constexpr std::size_t directions = 9, stride = 512;
    std::vector<std::int32_t> owners(bits);
    std::vector<std::size_t> depths(directions);
    for (std::int32_t& owner : owners) {
        owner = static_cast<std::int32_t>(random() % (directions + 1)) - 1;
        if (owner >= 0 && ++depths[static_cast<std::size_t>(owner)] > 8) owner = -1;
    }
    std::vector<float> numbers(directions * stride), out(rows * directions, -1);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const Bits packed(rows, first + bits, random);
    for (const std::size_t threads : {1, 2}) {
        read_planes(packed.rows, owners.data(), bits, first, {numbers.data(), directions, stride}, out.data(), threads);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t d = 0; d < directions; ++d) {
                std::size_t node = 1;
                for (std::size_t j = 0; j < bits; ++j)
                    if (owners[j] == static_cast<std::int32_t>(d)) node = 2 * node + bit(packed.rows[r], first + j);
                CHECK(out[r * directions + d] == numbers[d * stride + node]);
            }
    }
}

void test_rescoring(std::size_t features, std::mt19937& random) {
    constexpr std::size_t rows = 20, queries = 5, many = 6;
    std::normal_distribution<float> normal;
    const std::unique_ptr<float[]> vectors(new float[rows * features]), numbers(new float[queries * features]);
    const std::unique_ptr<float[]> shift(new float[features]), products(new float[queries]);
    for (std::size_t i = 0; i < rows * features; ++i) vectors[i] = i / features == 3 ? 0 : normal(random);
    for (std::size_t i = 0; i < queries * features; ++i) numbers[i] = normal(random);
    for (std::size_t f = 0; f < features; ++f) shift[f] = normal(random);
    for (std::size_t q = 0; q < queries; ++q) products[q] = normal(random);
    std::vector<std::int64_t> items(queries * many);
    std::vector<float> out(items.size());
    for (std::int64_t& item : items) item = static_cast<std::int64_t>(random() % (rows + 1)) - 1;
    const auto check = [&](float scale, Metric metric, const Outside& outside, double allowed) {
        std::vector<float> scaled(vectors.get(), vectors.get() + rows * features);
        for (float& number : scaled) number *= scale;
        rescore(scaled.data(), features, numbers.get(), queries, items.data(), many, metric, outside, out.data(), 2);
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (items[i] < 0) {
                CHECK(out[i] == infinity);
                continue;
            }
            const float* query = numbers.get() + i / many * features;
            const float* row = scaled.data() + static_cast<std::size_t>(items[i]) * features;
            double product = outside.products != nullptr ? outside.products[i / many] : 0, square = outside.square;
            double distance = 0;
            for (std::size_t f = 0; f < features; ++f) {
                const double item = static_cast<double>(row[f]) + (outside.shift != nullptr ? outside.shift[f] : 0.0f);
                product += query[f] * item;
                square += item * item;
                distance += (static_cast<double>(query[f]) - row[f]) * (static_cast<double>(query[f]) - row[f]);
            }
            if (metric == Metric::inner) distance = -product;
            if (metric == Metric::cosine)
                distance = square > 0 ? std::max(2 - 2 * product / std::sqrt(square), 0.0) : 1;
            CHECK(std::abs(out[i] - distance) <= allowed * (1 + std::abs(distance)));
        }
    };
    const double allowed = 1e-5;
    for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner}) check(1, metric, {}, allowed);
    for (const float scale : {1e30f, 1e-30f, 1e-37f}) check(scale, Metric::cosine, {}, allowed);
    check(1, Metric::cosine, {shift.get(), 0.7f, products.get()}, allowed * 30);
    check(1, Metric::inner, {nullptr, 0, products.get()}, allowed);
}

}  // namespace

int main() {
    std::mt19937 random(3);
    for (std::size_t planes = 0; planes <= 128; ++planes)  // the groups of a code are at most 256
        for (const std::uint8_t most : {0, 1, 128}) test_kernels(planes, most, random);
    for (int round = 0; round < 300; ++round) test_kernels(1 + below(random, 30), 128, random);
    for (const std::size_t groups : {1, 2, 3, 15, 52, 255, 256})
        for (const float spread : {1.0f, 1e-12f, 1e12f})
            for (const bool inner : {false, true}) test_tables(groups, spread, inner, random);
    test_outliers(random);
    test_extreme_queries(random);
    test_extreme_search(random);
    test_metric_names();
    test_blocks(random);
    for (int round = 0; round < 200; ++round) test_chooser(random);
    for (int round = 0; round < 200; ++round) test_runs(random);
    for (const std::size_t keep : {1, 2, 4, 5, 64, 1000})
        for (const std::size_t count : {0, 1, 3, 50, 3000}) test_best(keep, count, random);
    test_packing(random);
    for (const std::size_t many : {0, 1, 5, 100, 2000})
        for (const std::size_t k : {1, 4, 100, 130})
            for (const bool shared : {false, true}) test_nearest(many, k, shared, random);
    for (const std::size_t rows : {0, 1, 63, 64, 65, 200})
        for (const std::size_t first : {0, 1, 5, 7, 8, 13})
            for (const std::size_t bits : {0, 1, 3, 8, 41}) test_planes(rows, first, bits, random);
    for (const std::size_t features : {1, 3, 4, 7, 8, 9, 16, 31, 100}) test_rescoring(features, random);
    std::printf("checked:");
    for (const Simd simd : available_simd()) std::printf(" %s", std::string(name_of(simd)).c_str());
    std::printf("\n");
}
