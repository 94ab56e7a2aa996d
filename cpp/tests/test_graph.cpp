// The graph against plain loops: distances of rows, selection of neighbors, the walk, and builds on several threads.
#include <map>
#include <set>

#include "nestcode/graph_build.hpp"
#include "support.hpp"

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The nearest float16 of small integers and quarters is exact.
Half to_half(float value) {
    if (value == 0) return 0;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<Half>((bits >> 16 & 0x8000u) | ((bits >> 23 & 0xffu) - 112) << 10 | (bits >> 13 & 0x3ffu));
}

template <class Element>
void test_distances(std::size_t features, std::mt19937& random) {
    const std::unique_ptr<float[]> query(new float[features]);
    const std::unique_ptr<Element[]> row(new Element[features]);
    double square = 0, product = 0, norm = 0;
    for (std::size_t f = 0; f < features; ++f) {
        const float item = static_cast<float>(static_cast<int>(random() % 33) - 16) / 4;
        query[f] = static_cast<float>(static_cast<int>(random() % 33) - 16) / 4;
        if constexpr (std::is_same_v<Element, float>)
            row[f] = item;
        else
            row[f] = to_half(item);
        square += static_cast<double>((query[f] - item) * (query[f] - item));
        product += static_cast<double>(query[f] * item);
        norm += static_cast<double>(item * item);
    }
    const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-4 * (1 + std::abs(b)); };
    for (const Simd simd : available_simd()) {
        const auto distance = [&](Metric metric) {
            return static_cast<double>(RowDistance<Element>(metric, features, simd)(query.get(), row.get()));
        };
        CHECK(near(distance(Metric::l2), square));
        CHECK(near(distance(Metric::inner), -product));
        CHECK(near(distance(Metric::cosine), norm > 0 ? 2 - 2 * product / std::sqrt(norm) : 2));
    }
}

float some_of(float, std::mt19937& random) {
    return std::normal_distribution<float>()(random);
}

Half some_of(Half, std::mt19937& random) {
    return static_cast<Half>((random() & 0x83ffu) | (0x3000 + (random() % 4 << 10)));  // up to 2
}

template <class Element>
void test_project(std::size_t count, std::size_t features, std::size_t many, std::mt19937& random) {
    std::vector<Element> rows(count * features);
    std::vector<float> vectors(many * features);
    for (Element& value : rows) value = some_of(value, random);
    for (float& value : vectors) value = some_of(value, random);
    for (const Simd simd : available_simd()) {
        const BlocksOf<Element> blocks(rows.data(), count, features);
        std::vector<float> out(many * blocks.count());
        project_kernel<Element>(simd)(blocks, vectors.data(), many, out.data());
        for (std::size_t v = 0; v < many; ++v)
            for (std::size_t r = 0; r < count; ++r) {
                double sum = 0;
                for (std::size_t f = 0; f < features; ++f)
                    sum += static_cast<double>(to_float(rows[r * features + f])) *
                           static_cast<double>(vectors[v * features + f]);
                CHECK(std::abs(static_cast<double>(out[v * blocks.count() + r]) - sum) < 1e-3);
            }
    }
}

// Products of int8 against plain loops: the same on all instruction sets, and as near as the quantization allows.
void test_project_int8(std::size_t count, std::size_t features, std::size_t many, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> rows(count * features), vectors(many * features);
    for (float& value : rows) value = normal(random);
    for (float& value : vectors) value = 1e30f * normal(random);
    const Int8Directions directions(rows.data(), count, features);
    Int8Rows quantized(many, features);
    for (std::size_t v = 0; v < many; ++v) quantized.set(v, vectors.data() + v * features);
    std::vector<float> expected(many * directions.count);
    directions.project(quantized, many, int8_products_portable, expected.data());
    for (std::size_t v = 0; v < many; ++v)
        for (std::size_t r = 0; r < count; ++r) {
            double sum = 0, bound = 0;
            for (std::size_t f = 0; f < features; ++f) {
                const auto row = static_cast<double>(rows[r * features + f]),
                           value = static_cast<double>(vectors[v * features + f]),
                           row_step = static_cast<double>(directions.rows.scales[r]),
                           step = static_cast<double>(quantized.scales[v]);
                sum += row * value;
                bound += 0.51 * (std::abs(row) * step + std::abs(value) * row_step + step * row_step);
            }
            CHECK(std::abs(static_cast<double>(expected[v * directions.count + r]) - sum) <= bound);
        }
    for (const Simd simd : available_simd()) {
        std::vector<float> out(many * directions.count);
        directions.project(quantized, many, int8_kernel(simd), out.data());
        CHECK(out == expected);
    }
}

// The largest products, and rows that have no largest value.
void test_int8_extremes() {
    for (const std::size_t features : {1u << 5, 1u << 19}) {
        const std::vector<float> ones(features, -1e-20f);
        const Int8Directions directions(ones.data(), 1, features);
        Int8Rows quantized(1, features);
        quantized.set(0, ones.data());
        for (const Simd simd : available_simd()) {
            float out[kInt8Rows];
            directions.project(quantized, 1, int8_kernel(simd), out);
            CHECK(std::abs(out[0] / (1e-40f * static_cast<float>(features)) - 1) < 1e-3f && out[1] == 0);
        }
    }
    for (const float odd : {kInfinity, -kInfinity, std::nanf("")})
        for (const std::size_t at : {0, 8}) {
            float row[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
            row[at] = odd;
            Int8Rows quantized(1, 9);
            quantized.set(0, row);
            CHECK(std::isnan(quantized.scales[0]) && quantized[0][1] == 0);
        }
    const float none[3] = {0, -0.0f, 1e-44f};
    Int8Rows quantized(1, 3);
    quantized.set(0, none);
    CHECK(quantized[0][2] == 0 && quantized.scales[0] < 1e-40f);
}

// Distances to rows of int8 against the plain formula: the same on all instruction sets, and as near as the query's 15
// bits allow.
void test_int8_distances(std::size_t features, std::mt19937& random) {
    std::normal_distribution<float> normal;
    const std::unique_ptr<float[]> query(new float[features]);
    const std::unique_ptr<std::int8_t[]> row(new std::int8_t[features]);
    const float scale = 1e-3f;
    double square = 0, product = 0, norm = 0, length = 0;
    float most = 0;
    for (std::size_t f = 0; f < features; ++f) {
        query[f] = 0.1f * normal(random);
        row[f] = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
        const double item = static_cast<double>(scale) * row[f], value = static_cast<double>(query[f]);
        square += (value - item) * (value - item);
        product += value * item;
        norm += item * item;
        length += value * value;
        most = std::max(most, std::abs(query[f]));
    }
    // Of the rounded query, a vector of half a step for each feature.
    const double rounding = std::sqrt(static_cast<double>(features)) * static_cast<double>(most) / (127 * 128);
    for (const Metric metric : {Metric::l2, Metric::inner, Metric::cosine}) {
        std::vector<float> distances;
        for (const Simd simd : available_simd()) {
            Int8Distance distance(metric, features, simd);
            distance.set(query.get());
            distances.push_back(distance(row.get(), scale));
        }
        CHECK(std::ranges::count(distances, distances[0]) == static_cast<std::ptrdiff_t>(distances.size()));
        const double found = static_cast<double>(distances[0]), root = std::sqrt(norm);
        if (metric == Metric::l2) {
            CHECK(std::abs(found - square) <= 2 * rounding * (std::sqrt(square) + rounding) + 1e-6 * square);
        } else if (metric == Metric::inner) {
            CHECK(std::abs(found + product) <= rounding * root + 1e-6 * root * std::sqrt(length));
        } else {
            CHECK(std::abs(found - (norm > 0 ? 2 - 2 * product / root : 2)) <= 2 * rounding + 1e-6);
        }
    }
}

// The largest sums, and queries that have no largest value.
void test_int8_distance_extremes() {
    for (const Simd simd : available_simd()) {
        const std::size_t features = (1u << 18) + 9;
        const std::vector<float> query(features, -2.0f);
        const std::vector<std::int8_t> row(features, 127);
        Int8Distance distance(Metric::inner, features, simd);
        distance.set(query.data());
        CHECK(std::abs(distance(row.data(), 1) / (254 * static_cast<float>(features)) - 1) < 1e-6f);
        const std::vector<float> none(features, -1e-44f);
        distance.set(none.data());
        CHECK(distance(row.data(), 1) == 0);
        for (const float odd : {kInfinity, -kInfinity, std::nanf("")}) {
            std::vector<float> extreme(features, 1.0f);
            extreme[features - 1] = odd;
            distance.set(extreme.data());
            CHECK(std::isnan(distance(row.data(), 1)));
        }
    }
}

// Keys enter a pool as they would a set, but for items that are there, visited or not.
void test_insert(std::size_t size, std::size_t count, std::mt19937& random) {
    struct alignas(64) Block {
        std::uint64_t keys[8];
    };
    const auto some = [&random] { return (random() % 2 ? random() % 64 : std::uint64_t{random()} << 32) & ~kVisited; };
    std::map<std::uint64_t, std::uint64_t> expected;  // by item, as keys without the bit
    while (expected.size() < size) {
        const std::uint64_t key = some();
        expected[key] = key | random() % 2;
    }
    std::vector<std::uint64_t> pool, given(count);
    for (const auto& [item, key] : expected) pool.push_back(key);
    for (std::uint64_t& key : given) key = some();
    for (const std::uint64_t key : given) expected.emplace(key, key);
    for (const Simd simd : available_simd()) {
        std::vector<Block> blocks((size + count) / 8 + 1);
        std::uint64_t *keys = blocks[0].keys, found[kDegree];
        std::fill(std::copy(pool.begin(), pool.end(), keys), keys + 8 * blocks.size(), kNoKey);
        std::copy(given.begin(), given.end(), found);
        const std::size_t added = insert_kernel(simd)(keys, size, found, count);
        CHECK(added == expected.size() - size);
        for (const auto& [item, key] : expected) CHECK(*keys++ == key);
        CHECK(keys == blocks.back().keys + 8 || *keys == kNoKey);
        for (std::size_t i = 0; i < added; ++i) CHECK(expected.contains(found[i]));
    }
}

// Items on a plane: each of two directions has 2 bits, so a group of 4 bits is a code.
struct Plane {
    static constexpr std::size_t features = 2;
    std::size_t count;
    std::vector<float> vectors;
    std::vector<std::uint8_t> grouped;
    std::vector<Half> norms, factors;
    std::vector<FastScanGroup> groups;
    std::vector<std::uint32_t> entries;
    const float mean[features] = {0, 0}, identity[features * features] = {1, 0, 0, 1};
    const Int8Directions directions{identity, features, features};

    Plane(std::size_t items, std::mt19937& random) : count(items), groups(1), entries(kDegree) {
        std::normal_distribution<float> normal;
        for (int j = 0; j < 4; ++j) groups[0].directions[j] = j < 2 ? j : -1;
        for (int value = 0; value < 16; ++value) {
            groups[0].levels[0][value] = static_cast<float>(value >> 2) - 1.5f;
            groups[0].levels[1][value] = static_cast<float>(value & 3) - 1.5f;
        }
        const auto level = [](float x) { return std::clamp(static_cast<int>(std::floor(x)) + 2, 0, 3); };
        for (std::size_t i = 0; i < count; ++i) {
            const float x = normal(random), y = normal(random);
            vectors.insert(vectors.end(), {x, y});
            grouped.push_back(static_cast<std::uint8_t>(level(x) << 2 | level(y)));
            norms.push_back(to_half(static_cast<float>(1 + random() % 8) / 4));
            factors.push_back(to_half(1));
        }
        for (std::uint32_t& entry : entries) entry = static_cast<std::uint32_t>(random() % count);
    }

    GraphCodes codes() const { return {{grouped.data(), count, 1, 1}, norms.data(), factors.data()}; }
    GraphProjection projection() const { return {mean, &directions, &groups, 1}; }

    std::vector<std::uint32_t> build(std::size_t threads, Simd simd, std::size_t degree = kDegree) const {
        GraphBuildOptions options;
        options.degree = degree;
        options.ef = 40;
        options.leaf = 16;
        options.seed = 3;
        std::vector<std::uint32_t> neighbors(count * kDegree);
        const GraphProjection projected = projection();
        GraphBuilder builder({vectors.data(), features}, codes(), projected, options, simd, threads);
        builder.build(entries, neighbors.data());
        return neighbors;
    }
};

void test_build(std::size_t count, std::mt19937& random) {
    const Plane plane(count, random);
    for (const Simd simd : available_simd()) {
        const std::vector<std::uint32_t> neighbors = plane.build(1, simd);
        CHECK(plane.build(4, simd) == neighbors);  // whatever the threads
        const std::vector<std::uint32_t> fewer = plane.build(1, simd, 24);
        for (std::size_t i = 0; i < count; ++i)
            CHECK(std::all_of(&fewer[i * kDegree + 24], &fewer[i * kDegree] + kDegree,
                              [i](std::uint32_t id) { return id == i; }));
        for (std::size_t i = 0; i < count; ++i) {
            std::set<std::uint32_t> distinct;
            for (std::size_t j = 0; j < kDegree; ++j) {
                const std::uint32_t id = neighbors[i * kDegree + j];
                CHECK(id < count);
                if (id != i) CHECK(distinct.insert(id).second);
            }
            CHECK(count == 1 || !distinct.empty());
        }
    }
}

// A candidate is kept unless a kept one is nearer to it; the nearest others fill up.
void test_selection(std::mt19937& random) {
    const Plane plane(120, random);
    const RowDistance<float> by(Metric::l2, 2, Simd::portable);
    const auto distance = [&](std::uint32_t a, std::uint32_t b) {
        return by(&plane.vectors[2 * a], &plane.vectors[2 * b]);
    };
    for (const std::size_t many : {0, 1, 20, 32, 33, 119})
        for (const float slack : {0.7f, 1.0f, 1.5f}) {
            std::vector<std::uint64_t> candidates;
            for (std::uint32_t i = 1; i <= many; ++i) candidates.push_back(Hit::pack(distance(0, i), i));
            std::sort(candidates.begin(), candidates.end());
            std::vector<std::uint64_t> kept, others;
            for (const std::uint64_t key : candidates) {
                const bool occluded = std::any_of(kept.begin(), kept.end(), [&](std::uint64_t near) {
                    return slack * slack * distance(Hit::position(near), Hit::position(key)) < Hit::score(key);
                });
                (occluded || kept.size() == kDegree ? others : kept).push_back(key);
            }
            others.resize(std::min(others.size(), kDegree - kept.size()));
            kept.insert(kept.end(), others.begin(), others.end());
            select_neighbors(candidates, slack, distance);
            CHECK(candidates == kept);
        }
}

// The walk against sets: the same items are visited in the same order, and the same ones are found.
void test_walk(std::size_t count, std::size_t ef, unsigned skip, Simd simd, std::mt19937& random) {
    const Plane plane(count, random);
    const std::vector<std::uint32_t> neighbors = plane.build(1, simd);
    const GraphProjection projection = plane.projection();
    std::vector<std::uint8_t> data((count + 1) * GraphRecord::size(1));
    const GraphRecords records({neighbors.data(), count, plane.entries}, plane.codes(), data.data());
    std::vector<std::uint64_t> bitmap(skip == 0 ? 0 : count / 64 + 1);
    for (std::size_t i = 0; skip != 0 && i < count; ++i)
        if (random() % skip != 0) bitmap[i / 64] |= std::uint64_t{1} << i % 64;
    const auto allowed = [&](std::uint32_t id) { return bitmap.empty() || (bitmap[id / 64] >> id % 64 & 1); };

    const float query[2] = {0.3f, -0.2f};
    GraphQueries batch(projection, 1, Metric::l2, simd);
    batch.prepare(query, 1);
    const GraphEstimator estimate(projection, Metric::l2, simd);
    std::map<std::uint32_t, float> estimates;
    for (std::size_t i = 0; i <= count; ++i) {
        float out[kDegree];
        std::vector<std::uint8_t> copy;
        const GraphRecord record = records.pack(i, copy);
        const std::uint32_t near = estimate(record, batch[0].tables, 0.5f, {}, out);
        for (std::size_t j = 0; j < kDegree; ++j) {
            CHECK((near >> j & 1) == (out[j] <= 0.5f));
            const auto [place, fresh] = estimates.emplace(record.ids()[j], out[j]);
            CHECK(fresh || place->second == out[j]);  // the same in all records
        }
    }
    std::set<std::pair<float, std::uint32_t>> seen;
    std::set<std::uint32_t> done;
    std::vector<std::uint32_t> order;
    const auto add = [&](const std::uint32_t* ids) {
        for (std::size_t j = 0; j < kDegree; ++j) seen.emplace(estimates[ids[j]], ids[j]);
    };
    add(plane.entries.data());
    // Those up to the `many`-th that may be returned, and the ties with the nearest.
    const auto pool_of = [&](std::size_t many) {
        std::set<std::pair<float, std::uint32_t>> pool;
        std::size_t counted = 0;
        for (const auto& [value, id] : seen) {
            const bool ties = value <= seen.begin()->first + batch[0].tie && pool.size() < GraphPool::kMostTies * many;
            if (counted >= many && !ties) break;
            pool.emplace(value, id);
            counted += allowed(id);
        }
        return pool;
    };
    seen = pool_of(std::min(ef, kStarts));
    for (bool more = true; more;) {
        more = false;
        for (const auto& [value, id] : pool_of(ef))
            if (done.insert(id).second) {
                order.push_back(id);
                add(&neighbors[id * kDegree]);
                more = true;
                break;
            }
    }
    GraphPool pool(simd);
    const GraphVectors<float> vectors{plane.vectors.data(), 2};
    const RowDistance<float> distance(Metric::l2, 2, simd);
    std::vector<std::uint32_t> visited;
    const GraphWalker<float> walker(records, vectors, projection, Metric::l2, simd);
    walker.start(batch[0], ef, SIZE_MAX, {bitmap}, pool);
    VisitDistance<float> own(vectors, Metric::l2, simd);
    own.set(batch[0].features);
    BeamReader reader(nullptr);
    while (walker.step(batch[0], own, pool, reader, [&](std::uint32_t id, float) { visited.push_back(id); })) {
    }
    CHECK(visited == order);

    // A walk that may visit few nodes visits the first of these.
    const std::size_t most = random() % (order.size() + 1);
    visited.clear();
    walker.start(batch[0], ef, most, {bitmap}, pool);
    while (visited.size() < most &&
           walker.step(batch[0], own, pool, reader, [&](std::uint32_t id, float) { visited.push_back(id); })) {
    }
    CHECK(visited.size() == most && std::equal(visited.begin(), visited.end(), order.begin()));

    constexpr std::size_t k = 5;
    std::vector<std::pair<float, std::uint32_t>> nearest;
    for (const std::uint32_t id : order)
        if (allowed(id)) nearest.emplace_back(distance(query, vectors[id]), id);
    std::sort(nearest.begin(), nearest.end());
    float scores[k];
    std::uint32_t positions[k];
    std::int64_t compared;
    if (ef < k) return;
    search_graph(records, vectors, projection, Metric::l2, query, 1, ef, {bitmap}, {k, scores, positions, &compared},
                 simd, 1);
    CHECK(compared == static_cast<std::int64_t>(order.size()));
    for (std::size_t i = 0; i < k; ++i)
        CHECK(i < nearest.size() ? positions[i] == nearest[i].second : positions[i] == UINT32_MAX);
}

// Records that threads pack at their first visits equal those that are packed one by one.
void test_records(std::size_t count, std::mt19937& random) {
    const Plane plane(count, random);
    std::vector<std::uint32_t> neighbors(count * kDegree);
    for (std::uint32_t& id : neighbors) id = static_cast<std::uint32_t>(random() % count);
    const GraphEdges edges{neighbors.data(), count, plane.entries};
    const std::size_t size = GraphRecord::size(1);
    std::vector<std::uint8_t> data(edges.records() * size), expected(data.size());
    for (std::size_t i = 0; i < edges.records(); ++i)
        pack_record(edges[i], kDegree, plane.codes(), &expected[i * size]);
    const GraphRecords records(edges, plane.codes(), data.data());
    const auto equal = [&](GraphRecord record, std::size_t i) {
        return std::equal(record.data, record.data + size, &expected[i * size]);
    };
    parallel_for(4, 1, 4, [&](std::size_t part, std::size_t) {
        std::vector<std::uint8_t> copy;
        for (std::size_t i = 0; part < 3 && i < edges.records(); i += 2) CHECK(equal(records.pack(i, copy), i));
        if (part == 3) records.pack_all(2);
    });
    for (std::size_t i = 0; i < edges.records(); ++i) CHECK(records.is_packed(i));
    CHECK(data == expected);
}

// Estimates of several columns against decoded levels, where the tables are exact.
void test_estimates(std::size_t columns, std::size_t degree, std::mt19937& random) {
    FastScanTables tables;
    tables.offset = -1;
    tables.scale = 4;
    tables.entries.resize(columns * 32);
    for (std::uint8_t& entry : tables.entries) entry = static_cast<std::uint8_t>(random() % 128);
    const std::size_t size = GraphRecord::size(columns, degree);
    const std::unique_ptr<std::uint8_t[]> data(new std::uint8_t[size]);
    for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::uint8_t>(random());
    auto* corrections = reinterpret_cast<Half*>(data.get() + 4 * degree);
    for (std::size_t i = 0; i < 2 * degree; ++i) corrections[i] = to_half(static_cast<float>(random() % 9) / 4);
    const GraphRecord record{data.get(), degree};
    float expected[kDegree];
    for (std::size_t i = 0; i < degree; ++i) {
        int sum = 0;
        for (std::size_t c = 0; c < columns; ++c) {
            const std::uint8_t nibbles = record.block()[c * degree + i];
            sum += tables.entries[32 * c + nibbles % 16] + tables.entries[32 * c + 16 + nibbles / 16];
        }
        expected[i] = 2 * to_float(corrections[i]) +
                      to_float(corrections[degree + i]) * (tables.offset + static_cast<float>(sum) / tables.scale);
    }
    for (const Simd simd : available_simd())
        for (const float limit : {-kInfinity, expected[7], kInfinity}) {
            float out[kDegree];
            const std::uint32_t near = graph_kernel(simd)(record, columns, tables, 2, limit, {}, out);
            CHECK((near & ~record.mask()) == 0);
            for (std::size_t i = 0; i < degree; ++i) {
                CHECK(out[i] == expected[i]);
                CHECK((near >> i & 1) == (expected[i] <= limit));
            }
        }
}

// Queries in a batch find what each of them finds alone.
void test_batches(std::size_t queries, Simd simd, std::mt19937& random) {
    constexpr std::size_t count = 300, k = 5;
    const Plane plane(count, random);
    const std::vector<std::uint32_t> neighbors = plane.build(1, simd);
    const GraphProjection projection = plane.projection();
    std::vector<std::uint8_t> data((count + 1) * GraphRecord::size(1));
    const GraphRecords records({neighbors.data(), count, plane.entries}, plane.codes(), data.data());
    std::normal_distribution<float> normal;
    std::vector<float> rows(2 * queries);
    for (float& value : rows) value = normal(random);
    for (const bool exact : {true, false}) {
        const GraphVectors<float> vectors{exact ? plane.vectors.data() : nullptr, 2};
        std::vector<float> scores(queries * k);
        std::vector<std::uint32_t> positions(queries * k);
        std::vector<std::int64_t> compared(queries);
        search_graph(records, vectors, projection, Metric::l2, rows.data(), queries, 12, {},
                     {k, scores.data(), positions.data(), compared.data()}, simd, 2);
        for (std::size_t q = 0; q < queries; ++q) {
            float score[k];
            std::uint32_t position[k];
            std::int64_t visited;
            search_graph(records, vectors, projection, Metric::l2, &rows[2 * q], 1, 12, {},
                         {k, score, position, &visited}, simd, 1);
            CHECK(std::equal(score, score + k, &scores[q * k]) &&
                  std::equal(position, position + k, &positions[q * k]));
            CHECK(visited == compared[q]);
        }
    }
}

// Each node has a slot of its own, and lies beside neighbors; a walk through blocks finds what it finds in memory.
void test_blocks(std::size_t features, Simd simd, std::mt19937& random) {
    constexpr std::size_t count = 300, k = 5;
    const Plane plane(count, random);
    std::vector<std::uint32_t> neighbors = plane.build(1, simd);
    const NodeLayout layout(kDegree, features * sizeof(float));
    CHECK(layout.block_bytes % kPage == 0 && layout.nodes * layout.node_bytes <= layout.block_bytes);
    std::vector<std::uint32_t> slots(count), sorted;
    place_nodes(neighbors.data(), count, kDegree, layout.nodes, slots.data());
    sorted = slots;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < count; ++i) CHECK(sorted[i] == i);
    const auto inside = [&](const std::vector<std::uint32_t>& places) {  // edges that do not leave their block
        std::size_t sum = 0;
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < kDegree; ++j)
                sum += places[i] / layout.nodes == places[neighbors[i * kDegree + j]] / layout.nodes;
        return sum;
    };
    std::shuffle(sorted.begin(), sorted.end(), random);
    if (layout.nodes > 1) CHECK(inside(slots) > 2 * inside(sorted));

    const std::size_t blocks = (count + layout.nodes - 1) / layout.nodes;
    std::vector<std::uint64_t> data(blocks * layout.block_bytes / sizeof(std::uint64_t));
    auto* const bytes = reinterpret_cast<std::uint8_t*>(data.data());
    const NodeBlocks nodes{layout, kDegree, bytes, slots, blocks, nullptr};
    CHECK(nodes.fit());
    for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(bytes + (nodes.vector(i) - bytes), &plane.vectors[2 * i], 2 * sizeof(float));
        std::memcpy(bytes + (reinterpret_cast<const std::uint8_t*>(nodes.neighbors(i)) - bytes),
                    &neighbors[i * kDegree], kDegree * sizeof(std::uint32_t));
    }
    const GraphProjection projection = plane.projection();
    std::vector<std::uint8_t> room((count + 1) * GraphRecord::size(1));
    const GraphRecords in_memory({neighbors.data(), count, plane.entries}, plane.codes(), room.data());
    const GraphRecords in_blocks({nullptr, count, plane.entries, kDegree, &nodes}, plane.codes(), nullptr);
    CHECK(!in_blocks.is_packed(0) && in_blocks.count_packed() == 0);
    float scores[2][k];
    std::uint32_t positions[2][k];
    std::int64_t compared[2];
    for (int query = 0; query < 20; ++query) {
        const float row[2] = {some_of(0.0f, random), some_of(0.0f, random)};
        search_graph(in_memory, GraphVectors<float>{plane.vectors.data(), 2}, projection, Metric::l2, row, 1, 12, {},
                     {k, scores[0], positions[0], &compared[0]}, simd, 1);
        const auto* vectors = reinterpret_cast<const float*>(bytes);
        search_graph(in_blocks, GraphVectors<float>{vectors, 2, nullptr, &nodes}, projection, Metric::l2, row, 1, 12,
                     {}, {k, scores[1], positions[1], &compared[1]}, simd, 1);
        CHECK(compared[0] == compared[1] && std::equal(scores[0], scores[0] + k, scores[1]) &&
              std::equal(positions[0], positions[0] + k, positions[1]));
    }
    neighbors[7 * kDegree] = 7;
    place_nodes(neighbors.data(), count, kDegree, layout.nodes, slots.data());
    CHECK(slots[7] == kNoNode && nodes.block_of(7) == nodes.block_of(6) && nodes.fit());
    slots[0] = static_cast<std::uint32_t>(blocks * layout.nodes);
    CHECK(!nodes.fit());
}

}  // namespace

int main() {
    std::mt19937 random(5);
    for (const std::size_t features : {0, 1, 7, 8, 15, 16, 31, 32, 33, 64, 100}) {
        test_distances<float>(features, random);
        test_distances<Half>(features, random);
        test_int8_distances(features, random);
        for (const std::size_t count : {1, 31, 32, 40}) {
            test_project<float>(count, features, 3, random);
            test_project<Half>(count, features, 3, random);
            test_project_int8(count, features, 3, random);
        }
    }
    test_int8_extremes();
    test_int8_distance_extremes();
    for (const std::size_t size : {0, 1, 7, 8, 24, 30, 64, 100, 190, 193})
        for (std::size_t count = 0; count <= kDegree; ++count) test_insert(size, count, random);
    for (const std::size_t count : {1, 2, 20, 33, 300}) test_build(count, random);
    test_selection(random);
    for (const std::size_t count : {1, 63, 300}) test_records(count, random);
    for (const Simd simd : available_simd())
        for (const std::size_t ef : {1, 5, 20, 400})
            for (const unsigned skip : {0u, 1u, 2u, 7u}) test_walk(300, ef, skip, simd, random);
    for (const std::size_t columns : {0, 1, 2, 7, 40, 128})
        for (const std::size_t degree : {4, 24, 32}) test_estimates(columns, degree, random);
    for (const Simd simd : available_simd())
        for (const std::size_t queries : {1, 3, 70}) test_batches(queries, simd, random);
    for (const Simd simd : available_simd())
        for (const std::size_t features : {2, 500, 3000}) test_blocks(features, simd, random);
    print_simd("graph");
}
