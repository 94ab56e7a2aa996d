// Panels of inner products and exhaustive search on every instruction set, against plain loops in float64.
#include "nestcode/code_scan.hpp"
#include "support.hpp"

static std::unique_ptr<float[]> random_rows(std::size_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::unique_ptr<float[]> rows(new float[count]);
    std::generate_n(rows.get(), count, [&] { return normal(random); });
    return rows;
}

static void check_panels(Simd simd, std::size_t features, std::size_t count, std::mt19937& random) {
    const auto items = random_rows(Panel::kRows * features, random), queries = random_rows(count * features, random);
    const float* rows[Panel::kRows];
    for (std::size_t i = 0; i < Panel::kRows; ++i) rows[i] = items.get() + i * features;
    Panel panel(features, simd);
    panel.pack(rows);
    const std::size_t some = 1 + random() % Panel::kRows;
    std::unique_ptr<float[]> back(new float[some * features]), products(new float[count * Panel::kRows]);
    panel.unpack(some, back.get());
    CHECK(std::equal(items.get(), items.get() + some * features, back.get()));
    panel.multiply(queries.get(), count, products.get(), Panel::kRows);
    const ProjectionBlocks blocks(items.get(), Panel::kRows, features);
    std::unique_ptr<float[]> projected(new float[count * Panel::kRows]);
    Compiled<ProjectMany>::of(simd)(blocks, queries.get(), count, projected.get());
    CHECK(std::equal(products.get(), products.get() + count * Panel::kRows, projected.get()));
    for (std::size_t q = 0; q < count; ++q)
        for (std::size_t i = 0; i < Panel::kRows; ++i) {
            double sum = 0;
            for (std::size_t f = 0; f < features; ++f)
                sum += static_cast<double>(queries[q * features + f]) * rows[i][f];
            CHECK(std::abs(sum - products[q * Panel::kRows + i]) < 1e-5 * static_cast<double>(features));
        }
}

static void check_entries(Simd simd, std::size_t directions, std::mt19937& random) {
    constexpr std::size_t bytes = 3;
    const auto codebooks = random_rows(bytes * 256 * directions, random);
    const std::uint8_t code[bytes] = {static_cast<std::uint8_t>(random()), 0, 255};
    const auto row = random_rows(directions, random);
    std::unique_ptr<float[]> sum(new float[directions]);
    Compiled<SumEntries>::of(simd)(code, bytes, codebooks.get(), directions, row.get(), sum.get());
    for (std::size_t d = 0; d < directions; ++d) {
        float expected = row[d];
        for (std::size_t b = 0; b < bytes; ++b) expected += codebooks[(256 * b + code[b]) * directions + d];
        CHECK(sum[d] == expected);
    }
}

// Every way of a scan: one query and many, near and far from 0, duplicates.
static void check_scan(Simd simd, Metric metric, std::size_t features, std::size_t count, std::size_t many, float shift,
                       std::mt19937& random) {
    const auto rows = random_rows(many * features, random), queries = random_rows(count * features, random);
    for (std::size_t i = 0; i < many * features; ++i) rows[i] += shift;
    for (std::size_t i = 0; i < count * features; ++i) queries[i] += shift;
    std::copy_n(rows.get(), features, rows.get() + (many - 1) * features);
    std::vector<std::uint32_t> positions(many);
    std::vector<std::int64_t> ids(many);
    std::iota(positions.begin(), positions.end(), 0u);
    std::iota(ids.begin(), ids.end(), std::int64_t{7});
    VectorRuns vectors;
    vectors.add({VectorType::float32, reinterpret_cast<const std::uint8_t*>(rows.get()), nullptr, many, features});
    const std::size_t k = 1 + random() % (many + 2);
    std::vector<float> near(count * k);
    std::vector<std::int64_t> found(count * k, -1);
    scan(VectorItems{vectors, positions.data(), ids.data(), many},
         VectorQueries<float>{queries.get(), features, metric}, count, metric, {k, near.data(), found.data()}, simd, 2);
    ExactDistances exact(metric, features, Simd::portable);
    for (std::size_t q = 0; q < count; ++q) {
        std::vector<RankedItem> expected;
        DoubleRow query;
        query.read(queries.get() + q * features, features, metric);
        for (std::size_t i = 0; i < many; ++i) {
            exact.set(rows.get() + i * features);
            expected.push_back(ranked_item(exact.from(query), ids[i]));
        }
        std::sort(expected.begin(), expected.end());
        for (std::size_t i = 0; i < k; ++i) {
            CHECK((found[q * k + i] >= 0) == (i < many));
            if (i >= many) continue;
            const float wanted = expected[i].first;
            CHECK(std::abs(near[q * k + i] - wanted) <= 1e-6f * std::abs(wanted) + 1e-12f);
        }
    }
}

// Codes of bit planes, around one centroid or several, or of codebooks: hits are those of what they decode to.
static void check_codes(Simd simd, Metric metric, std::size_t centroid_count, std::size_t count, std::size_t many,
                        std::mt19937& random) {
    constexpr std::size_t features = 6, directions = 4, k = 5;  // directions are the first axes
    const bool planes = centroid_count != 0, around_mean = metric == Metric::l2;
    const std::size_t bytes = planes ? 1 : 2, rows = planes ? centroid_count : 1;
    const std::int32_t owners[directions] = {2, 0, 3, 1}, depths[directions] = {2, 2, 2, 2};
    const auto levels = random_rows(directions * 8, random), codebooks = random_rows(bytes * 256 * directions, random),
               queries = random_rows(count * features, random), centroids = random_rows(rows * directions, random);
    const std::vector<double> mean = {3, -1, 2, 0.5, 1, -2}, rest = {0, 0, 0, 0, 1, -2};
    const std::vector<float> axes = [] {
        std::vector<float> identity(directions * features);
        for (std::size_t d = 0; d < directions; ++d) identity[d * features + d] = 1;
        return identity;
    }();
    const std::vector<float> mean_coefficients(mean.begin(), mean.begin() + directions);
    const double rest_norm = around_mean ? 0 : std::sqrt(5.0);
    const RowProjection projection{metric,
                                   false,
                                   1,
                                   mean.data(),
                                   axes.data(),
                                   directions,
                                   directions,
                                   {axes.data(), directions, features},
                                   std::nullopt,
                                   {nullptr, 0, features},
                                   mean_coefficients.data(),
                                   19.25f,
                                   rest.data(),
                                   rest_norm};
    std::vector<float> origins(rows * (features));
    for (std::size_t c = 0; c < rows; ++c) {
        for (std::size_t d = 0; d < directions; ++d)
            origins[c * features + d] =
                (planes ? centroids[c * directions + d] : 0) + (around_mean ? 0 : mean_coefficients[d]);
        origins[c * features + directions] = static_cast<float>(rest_norm);
    }
    std::vector<std::uint8_t> codes(many * bytes);
    std::vector<std::int64_t> owner(many), ids(many);
    std::vector<float> decoded(many * features);
    for (std::uint8_t& byte : codes) byte = static_cast<std::uint8_t>(random());
    for (std::size_t i = 0; i < many; ++i) {
        owner[i] = static_cast<std::int64_t>(random() % rows);
        ids[i] = static_cast<std::int64_t>(i);
        float* const row = decoded.data() + i * features;
        std::copy(mean.begin(), mean.end(), row);
        for (std::size_t d = 0; d < directions; ++d)
            for (std::size_t b = 0; b < bytes && !planes; ++b)
                row[d] += codebooks[(256 * b + codes[i * bytes + b]) * directions + d];
        unsigned left = codes[i * bytes];
        for (std::size_t j = directions; j-- != 0 && planes; left >>= 2) {
            const auto d = static_cast<std::size_t>(owners[j]);
            row[d] += centroids[static_cast<std::size_t>(owner[i]) * directions + d] + levels[d * 8 + 4 + left % 4];
        }
    }
    const CodeFormat format = planes
                                  ? CodeFormat(RegroupedBits{1, directions, owners, depths},
                                               ReconstructionLevels{levels.get(), directions, 8}, origins.data(), rows)
                                  : CodeFormat(codebooks.get(), bytes, directions, origins.data());
    const ScannedCodes run(format, {codes.data(), many, bytes, static_cast<std::ptrdiff_t>(bytes)},
                           rows == 1 ? nullptr : owner.data(), simd);
    ScannedRuns runs{projection, format};
    runs.add(run);
    std::vector<std::uint32_t> positions(many);
    std::iota(positions.begin(), positions.end(), 0u);
    std::vector<float> near(count * k);
    std::vector<std::int64_t> found(count * k, -1);
    scan(CodeItems{runs, positions.data(), ids.data(), many, simd}, CodeQueries<float>{projection, queries.get(), simd},
         count, metric, {k, near.data(), found.data()}, simd, 2);
    ExactDistances exact(metric, features, Simd::portable);
    for (std::size_t q = 0; q < count; ++q) {
        std::vector<float> expected;
        DoubleRow query;
        query.read(queries.get() + q * features, features, metric);
        for (std::size_t i = 0; i < many; ++i) {
            exact.set(decoded.data() + i * features);
            expected.push_back(static_cast<float>(exact.from(query)));
        }
        std::sort(expected.begin(), expected.end());
        for (std::size_t i = 0; i < k; ++i) {
            CHECK((found[q * k + i] >= 0) == (i < many));
            if (i < many) CHECK(std::abs(near[q * k + i] - expected[i]) <= 1e-4f * (1 + std::abs(expected[i])));
        }
    }
}

// Equal items have codes without bits, which decode to the levels of directions without bits.
static void check_codes_without_bits(Simd simd) {
    const float levels[] = {0, 1.5f, 0, -2}, shared[] = {10, 20};  // (directions, stride), (directions)
    const RegroupedDecoder decoder(RegroupedBits{}, ReconstructionLevels{levels, 2, 2});
    RegroupedDecoder::Words words(decoder, simd);
    const std::uint8_t* codes[RegroupedDecoder::kCodes] = {};
    words.read(codes);
    Panel panels[2] = {Panel(2, simd), Panel(2, simd)};
    decoder.decode(words, RegroupedDecoder::kCodes, shared, panels, simd);
    for (Panel& panel : panels)
        for (std::size_t lane = 0; lane < Panel::kRows; ++lane)
            CHECK(panel.line(0)[lane] == 11.5f && panel.line(1)[lane] == 18);
}

int main() {
    std::mt19937 random(1);
    for (const Simd simd : available_simd()) {
        check_codes_without_bits(simd);
        for (const std::size_t features : {1, 3, 16, 37, 100})
            for (const std::size_t count : {1, 2, 5, 13, 31}) {
                check_panels(simd, features, count, random);
                check_entries(simd, features * count, random);
            }
        for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner})
            for (const std::size_t count : {1, 3, 14})
                for (const std::size_t many : {1, 40, 1100})
                    for (const float shift : {0.0f, 1000.0f}) check_scan(simd, metric, 19, count, many, shift, random);
        for (const Metric metric : {Metric::l2, Metric::cosine, Metric::inner})
            for (const std::size_t centroids : {0, 1, 3})
                for (const std::size_t count : {1, 14})
                    for (const std::size_t many : {3, 70, 1100})
                        check_codes(simd, metric, centroids, count, many, random);
    }
    print_simd("scan");
}
