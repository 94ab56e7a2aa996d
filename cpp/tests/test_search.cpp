// Probing of inverted lists, top-k selection and reranking against plain loops.
#include <numeric>

#include "fastscan_scene.hpp"
#include "nestcode/adc.hpp"
#include "nestcode/hamming.hpp"
#include "nestcode/rerank.hpp"
#include "nestcode/search.hpp"

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A search with queries that are NaN, infinite or near the range of a float finds as many items as there are.
void test_extreme_search(std::mt19937& random) {
    constexpr std::size_t count = 40, columns = 2;
    constexpr float largest = std::numeric_limits<float>::max();
    const Scene scene(2 * columns, 1, random);
    const Bits codes(count, 8 * columns, random);
    const std::uint32_t starts[] = {0, count}, block_starts[] = {0};
    std::vector<std::uint32_t> slots(count);
    std::iota(slots.begin(), slots.end(), 0u);
    std::vector<std::uint8_t> blocks(2 * columns * kBlockItems);
    pack_blocks(codes.rows, slots.data(), blocks.data());
    const std::vector<std::int16_t> biases(2 * kBlockItems, 100);
    std::vector<float> norms(2 * kBlockItems, 0.9f);
    norms[7] = 0;
    const std::uint32_t sizes[] = {count};
    for (const float value : {std::nanf(""), kInfinity, -kInfinity, largest, -largest, 1e20f, 1.0f}) {
        const std::vector<float> query(scene.directions, value);
        const float product = value, norm = 0;
        for (const auto& [keep, by_angle] :
             {std::pair{std::size_t{3}, false}, {count, false}, {std::size_t{3}, true}, {count, true}}) {
            const std::vector<InvertedLists> segments{
                {codes.rows,
                 starts,
                 {block_starts, 1, blocks.data(), biases.data(), columns, 0.01f, by_angle ? norms.data() : nullptr}}};
            std::vector<float> scores(keep);
            std::vector<std::uint32_t> found(keep);
            std::int64_t compared = 0;
            search(
                segments, sizes, 1, {count}, 0, {keep, scores.data(), found.data(), &compared}, 1,
                [&](std::size_t, float* out) { out[0] = value; },
                [&](std::size_t) {
                    return FastScanScorer{fastscan_kernel(available_simd().back()),
                                          table_kernels(available_simd().back()),
                                          &scene.groups,
                                          query.data(),
                                          scene.directions,
                                          nullptr,
                                          0,
                                          0.01f,
                                          Metric::l2,
                                          &product,
                                          &norm,
                                          value};
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

// The selected lists are the nearest ones, ties in order, until they hold enough items; empty lists do not matter.
void test_probe_selector(std::mt19937& random) {
    const std::size_t lists = random() % 4 == 0 ? 1 : 1 + random() % 700;
    std::vector<std::uint32_t> sizes(lists);
    for (std::uint32_t& size : sizes) size = random() % 3 == 0 ? 0 : static_cast<std::uint32_t>(random() % 50);
    ProbeSelector selector(sizes);
    for (int round = 0; round < 8; ++round) {
        std::vector<float> distances(lists);
        std::normal_distribution<float> normal(-3, random() % 2 == 0 ? 1 : 1e15f);
        for (float& distance : distances) {
            distance = normal(random);
            if (round % 4 == 1) distance = std::round(distance);  // many are equal
            if (round % 4 == 2) distance = random() % 3 == 0 ? kInfinity : random() % 3 == 0 ? -kInfinity : distance;
            if (round % 4 == 3) distance = random() % 50 == 0 ? 1e30f : 7;  // all but a few in one bucket
        }
        const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
        for (const std::uint64_t candidates : {std::uint64_t{1}, total / 3, total, total + 1, UINT64_MAX}) {
            if (candidates == 0) continue;
            std::vector<std::uint32_t> order(lists);
            std::iota(order.begin(), order.end(), 0u);
            std::stable_sort(order.begin(), order.end(),
                             [&](std::uint32_t a, std::uint32_t b) { return distances[a] < distances[b]; });
            std::vector<bool> expected(lists);
            std::uint64_t held = 0;
            for (const std::uint32_t list : order) {
                if (held >= candidates) break;
                expected[list] = true;
                held += sizes[list];
            }
            CHECK(selector.select(distances.data(), candidates) == held);
            for (std::size_t i = 0; i < lists; ++i) CHECK(sizes[i] == 0 || (selector.probed[i] == 1) == expected[i]);
        }
    }
    // Lists at distance NaN may be selected or not; the count is right either way.
    std::vector<float> distances(lists);
    for (float& distance : distances) distance = random() % 2 == 0 ? std::nanf("") : static_cast<float>(random() % 9);
    for (const std::uint64_t candidates : {1u, 100u, 1'000'000u}) {
        std::uint64_t held = 0;
        const std::uint64_t selected = selector.select(distances.data(), candidates);
        for (std::size_t i = 0; i < lists; ++i) held += selector.probed[i] * sizes[i];
        CHECK(selected == held);
    }
}

// Scan ranges cover the items of the probed lists, each once, and none crosses from one centroid to another.
void test_runs(std::mt19937& random) {
    const int fine_bits = static_cast<int>(random() % 4);
    const std::size_t lists = std::size_t{1} << (fine_bits + static_cast<int>(random() % 5));
    std::vector<std::vector<std::uint32_t>> starts(2);
    std::vector<InvertedLists> segments;
    for (std::vector<std::uint32_t>& own : starts) {
        own.push_back(0);
        for (std::size_t i = 0; i < lists; ++i)
            own.push_back(own.back() + (random() % 3 == 0 ? 0 : static_cast<std::uint32_t>(random() % 20)));
        segments.push_back({{nullptr, own.back(), 0, 0}, own.data(), {}});
    }
    std::vector<std::uint8_t> probed(lists);
    std::vector<float> distances(lists);
    for (std::size_t i = 0; i < lists; ++i) {
        probed[i] = random() % 2;
        distances[i] = static_cast<float>(i);
    }
    std::vector<ScanRange> ranges;
    find_scan_ranges(segments, probed, distances.data(), fine_bits, ranges);
    for (std::size_t p = 0; p < 2; ++p) {
        std::vector<int> seen(starts[p].back());
        for (const ScanRange& scan : ranges)
            if (scan.lists == &segments[p]) {
                const std::size_t first = scan.centroid << fine_bits, last = (scan.centroid + 1) << fine_bits;
                CHECK(scan.centroid_begin == starts[p][first]);
                CHECK(scan.range.begin >= starts[p][first] && scan.range.end <= starts[p][last]);
                for (std::uint32_t i = scan.range.begin; i < scan.range.end; ++i) ++seen[i];
            }
        for (std::size_t list = 0; list < lists; ++list)
            for (std::uint32_t i = starts[p][list]; i < starts[p][list + 1]; ++i) CHECK(seen[i] == probed[list]);
    }
}

// A bitmap counts the allowed items of a range as a loop does.
void test_bitmap(std::mt19937& random) {
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % 300);
    std::vector<std::uint64_t> words(count / 64 + 1);
    for (std::uint64_t& word : words) word = std::uint64_t{random()} << 32 | random();
    const Bitmap some{words.data()}, all;
    for (int round = 0; round < 50; ++round) {
        const auto begin = static_cast<std::uint32_t>(random() % count);
        const Range range{begin, begin + static_cast<std::uint32_t>(random() % (count - begin + 1))};
        std::uint32_t counted = 0;
        for (std::uint32_t i = range.begin; i < range.end; ++i) {
            CHECK(some.contains(i) == (words[i / 64] >> i % 64 & 1) && all.contains(i));
            counted += some.contains(i);
        }
        CHECK(some.count(range) == counted && all.count(range) == range.size());
    }
}

void test_top_k(std::size_t k, std::size_t count, std::mt19937& random) {
    TopK top(k);
    for (int round = 0; round < 3; ++round) {
        top.clear();
        CHECK(top.threshold == kInfinity);
        std::vector<std::pair<float, std::uint32_t>> all;
        std::normal_distribution<float> normal;
        for (std::uint32_t i = 0; i < count; ++i) {
            float score = round == 1 ? std::round(normal(random)) : normal(random) * 1e10f;
            if (random() % 20 == 0) score = random() % 2 == 0 ? -kInfinity : 0;
            all.emplace_back(score, i);
            if (score < top.threshold) top.add(score, i);
        }
        std::sort(all.begin(), all.end());
        all.resize(std::min(all.size(), k));
        const std::vector<std::uint64_t>& hits = top.sorted();
        CHECK(hits.size() == all.size());
        for (std::size_t i = 0; i < hits.size(); ++i) CHECK(Hit::score(hits[i]) == all[i].first);
        for (std::size_t i = 0; i < hits.size() && round != 1; ++i)
            CHECK(Hit::position(hits[i]) == all[i].second || all[i].first == 0 || all[i].first == -kInfinity);
    }
    // Items at infinity or NaN are found as long as there are no better ones.
    top.clear();
    top.add(kInfinity, 7);
    top.add(std::nanf(""), 8);
    top.add(-std::nanf(""), 9);
    if (k >= 4) {
        top.add(3, 1);
        const std::vector<std::uint64_t>& hits = top.sorted();
        CHECK(hits.size() == 4 && Hit::position(hits[0]) == 1);
        for (std::size_t i = 1; i < 4; ++i) CHECK(Hit::position(hits[i]) == 6 + i);
    }
}

void test_packed_hits(std::mt19937& random) {
    const float scores[] = {-kInfinity, -3e38f, -1, -1e-40f, -0.0f, 0, 1e-40f, 1e-30f, 1, 3e38f, kInfinity};
    for (std::size_t i = 0; i + 1 < std::size(scores); ++i)
        CHECK(Hit::pack(scores[i], UINT32_MAX) < Hit::pack(scores[i + 1], 0));
    for (int round = 0; round < 1000; ++round) {
        const auto score = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        const auto position = static_cast<std::uint32_t>(random());
        const std::uint64_t hit = Hit::pack(score, position);
        CHECK(std::bit_cast<std::uint32_t>(Hit::score(hit)) == std::bit_cast<std::uint32_t>(score));
        CHECK(Hit::position(hit) == position);
    }
}

void test_select_top_k(std::size_t many, std::size_t k, bool shared, std::mt19937& random) {
    constexpr std::size_t queries = 7;
    std::vector<float> distances(queries * many), near(queries * k);
    std::vector<std::int64_t> ids(shared ? many : queries * many), near_ids(queries * k);
    for (float& distance : distances) {
        distance = static_cast<float>(random() % 20) - 5;
        if (random() % 9 == 0) distance = random() % 2 == 0 ? kInfinity : std::nanf("");
    }
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = random() % 6 == 0 ? -1 : static_cast<std::int64_t>(i * 7919 % 10'007);
    for (const std::size_t threads : {1, 3}) {
        select_top_k(distances.data(), ids.data(), shared, queries, many, k, near.data(), near_ids.data(), threads);
        for (std::size_t q = 0; q < queries; ++q) {
            std::vector<std::pair<float, std::int64_t>> all;
            for (std::size_t i = 0; i < many; ++i) {
                const std::int64_t id = ids[shared ? i : q * many + i];
                const float distance = distances[q * many + i];
                if (id >= 0) all.emplace_back(std::isnan(distance) ? kInfinity : distance, id);
            }
            std::sort(all.begin(), all.end());
            all.resize(k, {kInfinity, -1});
            for (std::size_t i = 0; i < k; ++i)
                CHECK(near[q * k + i] == all[i].first && near_ids[q * k + i] == all[i].second);
        }
    }
}

// Every float16 is expanded exactly, by every kernel.
void test_half() {
    std::vector<std::uint16_t> all(1 << 16);
    std::iota(all.begin(), all.end(), std::uint16_t{0});
    std::vector<float> floats(all.size());
    for (const Simd simd : available_simd()) {
        half_expander(simd)(all.data(), floats.data(), all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            const int exponent = all[i] >> 10 & 31, fraction = all[i] & 1023;
            const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
            const double value = all[i] >> 15 ? -size : size;
            if (exponent == 31)
                CHECK(fraction == 0 ? floats[i] == (all[i] >> 15 ? -kInfinity : kInfinity) : std::isnan(floats[i]));
            else
                CHECK(floats[i] == value && std::signbit(floats[i]) == (all[i] >> 15 != 0));
        }
    }
}

// Stored vectors of all types, in several runs, have the distances of their expanded rows.
void test_stored_vectors(std::size_t features, std::mt19937& random) {
    constexpr std::size_t rows = 20, queries = 5, many = 6;
    std::normal_distribution<float> normal;
    std::vector<float> expanded(3 * rows * features), coefficients(queries * features), scales(rows);
    const std::vector<float> floats = [&] {
        std::vector<float> values(rows * features);
        for (float& value : values) value = normal(random);
        return values;
    }();
    std::vector<std::uint16_t> halves(rows * features);
    std::vector<std::int8_t> bytes(rows * features);
    for (std::uint16_t& half : halves) half = static_cast<std::uint16_t>(random() % 0x4800 | (random() % 2) << 15);
    for (std::int8_t& byte : bytes) byte = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
    for (float& scale : scales) scale = std::abs(normal(random));
    for (float& value : coefficients) value = normal(random);
    for (std::size_t i = 0; i < rows * features; ++i) {
        expanded[i] = floats[i];
        expanded[rows * features + i] = half_to_float(halves[i]);
        expanded[2 * rows * features + i] = scales[i / features] * static_cast<float>(bytes[i]);
    }
    const auto data = [](const auto& values) { return reinterpret_cast<const std::uint8_t*>(values.data()); };
    VectorRuns runs;
    runs.add({VectorType::float32, data(floats), nullptr, rows, features});
    runs.add({VectorType::float16, data(halves), nullptr, rows, features});
    runs.add({VectorType::int8, data(bytes), scales.data(), rows, features});
    std::vector<std::int64_t> items(queries * many);
    for (std::int64_t& item : items) item = static_cast<std::int64_t>(random() % (3 * rows + 1)) - 1;
    std::vector<float> near(items.size()), expected(items.size());
    for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner})
        for (const Simd simd : available_simd()) {
            VectorRuns floats_only;
            floats_only.add({VectorType::float32, data(expanded), nullptr, 3 * rows, features});
            const auto rerank_by = [&](const VectorRuns& some, std::vector<float>& out) {
                rerank(some, coefficients.data(), queries, items.data(), many, metric, out.data(), simd, 2);
            };
            rerank_by(floats_only, expected);
            rerank_by(runs, near);
            CHECK(near == expected);
        }
}

void test_rerank(std::size_t features, std::mt19937& random) {
    constexpr std::size_t rows = 20, queries = 5, many = 6;
    std::normal_distribution<float> normal;
    const std::unique_ptr<float[]> vectors(new float[rows * features]), coefficients(new float[queries * features]);
    for (std::size_t i = 0; i < rows * features; ++i) vectors[i] = i / features == 3 ? 0 : normal(random);
    for (std::size_t i = 0; i < queries * features; ++i) coefficients[i] = normal(random);
    std::vector<std::int64_t> items(queries * many);
    std::vector<float> out(items.size());
    for (std::int64_t& item : items) item = static_cast<std::int64_t>(random() % (rows + 1)) - 1;
    const auto check = [&](float scale, Metric metric, Simd simd) {
        std::vector<float> scaled(vectors.get(), vectors.get() + rows * features);
        for (float& value : scaled) value *= scale;
        VectorRuns runs;
        runs.add({VectorType::float32, reinterpret_cast<const std::uint8_t*>(scaled.data()), nullptr, rows, features});
        rerank(runs, coefficients.get(), queries, items.data(), many, metric, out.data(), simd, 2);
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (items[i] < 0) {
                CHECK(out[i] == kInfinity);
                continue;
            }
            const float* query = coefficients.get() + i / many * features;
            const float* row = scaled.data() + static_cast<std::size_t>(items[i]) * features;
            double product = 0, square = 0, distance = 0;
            for (std::size_t f = 0; f < features; ++f) {
                const double item = row[f];
                product += query[f] * item;
                square += item * item;
                distance += (static_cast<double>(query[f]) - row[f]) * (static_cast<double>(query[f]) - row[f]);
            }
            if (metric == Metric::inner) distance = -product;
            if (metric == Metric::cosine)
                distance = square > 0 ? std::max(2 - 2 * product / std::sqrt(square), 0.0) : 2;
            CHECK(std::abs(out[i] - distance) <= 1e-5 * (1 + std::abs(distance)));
        }
    };
    for (const Simd simd : available_simd()) {
        for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner}) check(1, metric, simd);
        for (const float scale : {1e30f, 1e-30f, 1e-37f}) check(scale, Metric::cosine, simd);
    }
}

}  // namespace

int main() {
    std::mt19937 random(3);
    test_extreme_search(random);
    for (int round = 0; round < 20; ++round) test_bitmap(random);
    test_metric_names();
    for (int round = 0; round < 200; ++round) test_probe_selector(random);
    for (int round = 0; round < 200; ++round) test_runs(random);
    for (const std::size_t k : {1, 2, 4, 5, 64, 1000})
        for (const std::size_t count : {0, 1, 3, 50, 3000}) test_top_k(k, count, random);
    test_packed_hits(random);
    for (const std::size_t many : {0, 1, 5, 100, 2000})
        for (const std::size_t k : {1, 4, 100, 130})
            for (const bool shared : {false, true}) test_select_top_k(many, k, shared, random);
    for (const std::size_t features : {1, 3, 4, 7, 8, 9, 16, 31, 100}) {
        test_rerank(features, random);
        test_stored_vectors(features, random);
    }
    test_half();
    std::puts("search: ok");
}
