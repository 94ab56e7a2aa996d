// Scalar, residual and adaptive quantizers, ADC and bit planes against plain loops.
#include "nestcode/adaptive_quantizer.hpp"
#include "nestcode/bit_plane_panels.hpp"
#include "nestcode/bit_plane_sums.hpp"
#include "nestcode/centering.hpp"
#include "nestcode/residual_quantizer.hpp"
#include "nestcode/scalar_quantizer.hpp"
#include "nestcode/two_means_tree.hpp"
#include "support.hpp"

namespace {

void test_scalar_quantizer(std::mt19937& random) {
    constexpr std::size_t rows = 37, count = 5, stride = 256;
    const std::uint8_t depths[count] = {0, 1, 3, 8, 2};
    std::vector<float> thresholds(count * stride), coefficients(rows * count);
    std::normal_distribution<float> normal;
    for (float& coefficient : coefficients) coefficient = normal(random);
    for (float& threshold : thresholds) threshold = normal(random);
    std::vector<std::uint8_t> intervals(rows * count);
    quantize_scalars(coefficients.data(), rows, {thresholds.data(), depths, count, stride}, intervals.data(), 2);
    for (std::size_t i = 0; i < rows * count; ++i) {
        std::size_t node = 1;
        for (unsigned level = 0; level < depths[i % count]; ++level) {
            const bool up = coefficients[i] > thresholds[i % count * stride + node];
            CHECK(bit(&intervals[i], level) == up);
            node = 2 * node + up;
        }
        for (unsigned level = depths[i % count]; level < 8; ++level) CHECK(!bit(&intervals[i], level));
    }
}

void test_centering(std::size_t rows, std::size_t features, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> items(rows * features), mean(features), whole(items.size()), parts(items.size());
    for (float& value : items) value = normal(random);
    for (float& value : mean) value = normal(random);
    CHECK(center_rows(items.data(), rows, features, mean.data(), true, 100.0f, whole.data(), 1));
    CHECK(center_rows(items.data(), rows, features, mean.data(), true, 100.0f, parts.data(), 3));
    CHECK(whole == parts);
    std::vector<double> norms(rows);
    squared_norms(items.data(), rows, features, norms.data(), 3);
    for (std::size_t i = 0; i < rows; ++i) {
        double square = 0;
        for (std::size_t f = 0; f < features; ++f) square += std::pow(static_cast<double>(items[i * features + f]), 2);
        CHECK(std::abs(norms[i] - square) <= 1e-12 * square);
        for (std::size_t f = 0; f < features; ++f)
            CHECK(std::abs(items[i * features + f] / std::sqrt(square) - mean[f] - whole[i * features + f]) < 1e-5);
    }
    items.back() = NAN;
    CHECK(!center_rows(items.data(), rows, features, mean.data(), false, INFINITY, whole.data(), 3));
    CHECK(center_rows(items.data(), rows - 1, features, mean.data(), false, INFINITY, whole.data(), 3));
}

void test_permutation(std::size_t rows, std::size_t out_bytes, std::mt19937& random) {
    const Bits bits(rows, 77, random);
    std::vector<std::int32_t> sources(8 * out_bytes);
    for (std::int32_t& source : sources) source = static_cast<std::int32_t>(random() % 80) - 3;
    std::vector<std::uint8_t> out(rows * out_bytes);
    permute_bits(bits.rows, sources.data(), out.data(), out_bytes, 2);
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t j = 0; j < sources.size(); ++j)
            CHECK(bit(&out[r * out_bytes], j) ==
                  (sources[j] >= 0 && bit(bits.rows[r], static_cast<std::size_t>(sources[j]))));
}

// The adaptive quantizer of one item in plain steps: all log-scales are sorted again for every byte.
struct PlainState {
    std::vector<int> log_scales;
    std::vector<double> sum;

    explicit PlainState(const AdaptiveCodebooks& codebooks)
        : log_scales(codebooks.log_scales, codebooks.log_scales + codebooks.directions), sum(codebooks.directions) {}

    std::vector<std::size_t> highest() const {
        std::vector<std::size_t> order(log_scales.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return log_scales[a] > log_scales[b]; });
        return order;
    }

    void apply(const AdaptiveCodebooks& codebooks, std::size_t stage, std::size_t entry) {
        const std::vector<std::size_t> order = highest();
        for (std::size_t j = 0; j < codebooks.dims; ++j) {
            const float value = codebooks.entries[(stage * codebooks.dims + j) * kEntries + entry];
            const int change = codebooks.changes[(stage * kEntries + entry) * codebooks.dims + j];
            sum[order[j]] += value * std::exp2(log_scales[order[j]] / double{kLogScaleSteps});
            log_scales[order[j]] = std::clamp(log_scales[order[j]] + change, kLowestLogScale, kHighestLogScale);
        }
    }

    double error(const float* row) const {
        double error = 0;
        for (std::size_t d = 0; d < sum.size(); ++d) error += (row[d] - sum[d]) * (row[d] - sum[d]);
        return error;
    }
};

void test_adaptive(std::size_t directions, std::size_t dims, std::size_t stages, std::mt19937& random) {
    constexpr std::size_t count = 20;
    std::vector<std::int16_t> log_scales(directions), changes(stages * kEntries * dims);
    std::vector<float> entries(stages * dims * kEntries), rows(count * directions), decoded(rows.size());
    std::normal_distribution<float> normal;
    for (std::int16_t& log_scale : log_scales) log_scale = static_cast<std::int16_t>(random() % 4 * 50);  // with ties
    for (std::int16_t& change : changes) change = static_cast<std::int16_t>(random() % 5 * 50 - 150);
    for (int i = 0; i < 9; ++i) changes[random() % changes.size()] = i % 2 ? 32767 : -32768;
    for (float& value : entries) value = normal(random);
    for (float& value : rows) value = normal(random);
    const AdaptiveCodebooks codebooks{directions, stages, dims, log_scales.data(), entries.data(), changes.data()};

    std::vector<std::int32_t> found(dims);
    find_largest_scales(log_scales.data(), 1, directions, dims, found.data(), 1);
    const std::vector<std::size_t> order = PlainState(codebooks).highest();
    CHECK(std::equal(found.begin(), found.end(), order.begin(),
                     [](std::int32_t a, std::size_t b) { return static_cast<std::size_t>(a) == b; }));

    const Bits bits(count, 8 * stages, random);
    decode_adaptive(codebooks, bits.rows, decoded.data(), 2);
    for (std::size_t i = 0; i < count; ++i) {
        PlainState state(codebooks);
        for (std::size_t t = 0; t < stages; ++t) state.apply(codebooks, t, bits.rows[i][t]);
        for (std::size_t d = 0; d < directions; ++d) {
            const double value = decoded[i * directions + d];
            CHECK(std::abs(value - state.sum[d]) <= 1e-4 * (1 + std::abs(state.sum[d])));
        }
    }

    for (std::int16_t& change : changes) change = std::clamp<std::int16_t>(change, -300, 300);
    std::vector<std::uint8_t> codes(count * stages), again(codes.size());
    encode_adaptive(codebooks, rows.data(), count, 1, codes.data(), 2);
    encode_adaptive(codebooks, rows.data(), count, 1, again.data(), 1);
    CHECK(codes == again);
    for (std::size_t i = 0; i < count; ++i) {  // one beam selects the best entry at each stage
        PlainState state(codebooks);
        for (std::size_t t = 0; t < stages; ++t) {
            PlainState chosen = state;
            chosen.apply(codebooks, t, codes[i * stages + t]);
            const double error = chosen.error(&rows[i * directions]);
            for (std::size_t e = 0; e < kEntries; ++e) {
                PlainState other = state;
                other.apply(codebooks, t, e);
                CHECK(error <= other.error(&rows[i * directions]) * (1 + 1e-4) + 1e-4);
            }
            state = chosen;
        }
    }
    encode_adaptive(codebooks, rows.data(), count, 300, codes.data(), 2);  // more beams than a codebook has entries
}

// The nearest leaf of each row, by a tree, inner products and beams of one entry.
void test_codebook(std::size_t rows, std::size_t features, std::size_t bits, std::mt19937& random) {
    const std::size_t entries = std::size_t{1} << bits;
    std::vector<float> data(rows * features), starts((entries - 1) * features), leaves(entries * features);
    std::normal_distribution<float> normal;
    for (float& value : data) value = normal(random);
    for (float& value : starts) value = normal(random);
    grow_two_means_tree({features, data.data(), starts.data()}, rows, bits, leaves.data(), 2);
    std::vector<float> products(rows * entries), norms(entries), halves(entries), errors(rows), best(rows);
    for (std::size_t e = 0; e < entries; ++e) {
        norms[e] = inner_product(&leaves[e * features], &leaves[e * features], features);
        halves[e] = norms[e] / 2;
        for (std::size_t i = 0; i < rows; ++i)
            products[i * entries + e] = inner_product(&data[i * features], &leaves[e * features], features);
    }
    std::vector<std::uint32_t> ancestors(rows);
    std::iota(ancestors.begin(), ancestors.end(), 0u);
    std::vector<std::uint16_t> from(rows), entry(rows);
    extend_beams({rows, 1, entries, 1, 0, errors.data(), ancestors.data(), products.data(), nullptr, nullptr,
                  norms.data(), from.data(), entry.data(), best.data()},
                 2);
    std::vector<std::int64_t> nearest(rows);
    nearest_entries(products.data(), halves.data(), rows, entries, nearest.data(), 2);
    std::vector<float> sums(entries * features), plain(entries * features);
    sum_rows_by_entry(data.data(), ancestors.data(), nearest.data(), rows, features, sums.data(), 2);
    for (std::size_t i = 0; i < rows; ++i) {
        const auto e = static_cast<std::size_t>(nearest[i]);
        CHECK(std::abs(norms[e] - 2 * products[i * entries + e] - best[i]) < 1e-4f);
        for (std::size_t other = 0; other < entries; ++other)
            CHECK(best[i] <= norms[other] - 2 * products[i * entries + other] + 1e-4f);
        for (std::size_t f = 0; f < features; ++f) plain[e * features + f] += data[i * features + f];
    }
    CHECK(sums == plain);
}

void test_bit_planes(std::size_t rows, std::size_t first, std::size_t bits, std::mt19937& random) {
    constexpr std::size_t directions = 9, stride = 512;
    std::vector<std::int32_t> allocation(bits);
    std::vector<std::size_t> depths(directions);
    for (std::int32_t& owner : allocation) {
        owner = static_cast<std::int32_t>(random() % (directions + 1)) - 1;
        if (owner >= 0 && ++depths[static_cast<std::size_t>(owner)] > 8) owner = -1;
    }
    std::vector<float> levels(directions * stride), out(rows * directions, -1);
    for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = static_cast<float>(i);
    const Bits packed(rows, first + bits, random);
    std::vector<float> query(directions), shifts(directions);
    for (float& value : query) value = static_cast<float>(random() % 9) - 4;
    for (float& value : shifts) value = static_cast<float>(random() % 9) - 4;
    for (const std::size_t threads : {1, 2}) {
        decode_bit_planes(packed.rows, allocation.data(), bits, first, {levels.data(), directions, stride}, out.data(),
                          threads);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t d = 0; d < directions; ++d) {
                std::size_t node = 1;
                for (std::size_t j = 0; j < bits; ++j)
                    if (allocation[j] == static_cast<std::int32_t>(d)) node = 2 * node + bit(packed.rows[r], first + j);
                CHECK(out[r * directions + d] == levels[d * stride + node]);
            }
    }
    const DirectionBits planes(allocation.data(), bits, first, directions);
    std::vector<std::uint8_t> bytes(packed.rows.bytes * kLanes);
    for (std::size_t r = 0; r < std::min(rows, kLanes); ++r)
        for (std::size_t b = 0; b < packed.rows.bytes; ++b) bytes[b * kLanes + r] = packed.rows[r][b];
    for (const Simd simd : available_simd()) {
        const BitPlaneKernel kernel = bit_plane_kernel(simd);
        if (kernel == nullptr) continue;
        float products[kLanes], norms[kLanes];
        kernel(bytes.data(), planes, {levels.data(), directions, stride}, {query.data(), shifts.data()}, products,
               norms);
        for (std::size_t r = 0; r < std::min(rows, kLanes); ++r) {
            double product = 0, norm = 0, bound = 0;
            for (std::size_t d = 0; d < directions; ++d) {
                const double x = static_cast<double>(out[r * directions + d]) + static_cast<double>(shifts[d]);
                product += static_cast<double>(query[d]) * x;
                norm += x * x;
                bound += std::abs(static_cast<double>(query[d]) * x);
            }
            CHECK(std::abs(static_cast<double>(products[r]) - product) <= 1e-5 * bound);
            CHECK(std::abs(static_cast<double>(norms[r]) - norm) <= 1e-5 * norm);
        }
    }
}

void test_regrouped_codes(std::mt19937& random) {
    constexpr std::size_t bytes = 9, most = 3, directions = 14, stride = 512, many = RegroupedDecoder::kCodes;
    const std::int32_t depths[bytes][most] = {{8}, {7, 1}, {6, 2}, {5, 3}, {4, 4}, {3, 2, 1}, {6}, {5}, {}};
    const std::int32_t owners[bytes][most] = {{3}, {0, 12}, {1, 5}, {2, 4}, {6, 7}, {8, 9, 10}, {11}, {13}, {}};
    std::vector<float> values(directions * stride), centroids(many * directions), query(directions);
    for (std::vector<float>* some : {&values, &centroids, &query})
        for (float& value : *some) value = static_cast<float>(random() % 1000) - 500;
    const RegroupedDecoder decoder({bytes, most, owners[0], depths[0]}, {values.data(), directions, stride});
    const Bits packed(many, 8 * bytes, random);
    std::vector<float> plain(many * directions);
    for (std::size_t r = 0; r < many; ++r) {
        for (std::size_t d = 0; d < directions; ++d) plain[r * directions + d] = values[d * stride + 1];
        for (std::size_t b = 0; b < bytes; ++b) {
            unsigned left = packed.rows[r][b];
            for (std::size_t j = most; j-- != 0; left >>= depths[b][j]) {
                const std::size_t d = static_cast<std::size_t>(owners[b][j]), leaves = std::size_t{1} << depths[b][j];
                if (leaves > 1) plain[r * directions + d] = values[d * stride + leaves + left % leaves];
            }
        }
    }
    const std::uint8_t* codes[many];
    const float* added[many];
    for (std::size_t r = 0; r < many; ++r) {
        codes[r] = packed.rows[r];
        added[r] = centroids.data() + r * directions;
    }
    for (const Simd simd : available_simd()) {
        RegroupedDecoder::Words words(decoder, simd);
        words.read(codes);
        Panel panels[2] = {Panel(directions, simd), Panel(directions, simd)};
        std::vector<float> rows(many * directions);
        for (const float* const shared :
             {static_cast<const float*>(nullptr), static_cast<const float*>(centroids.data())})
            for (const std::size_t some : {many, many - 20, std::size_t{7}}) {
                for (std::size_t i = 0; i < 2; ++i) panels[i].pack(added + i * Panel::kRows);
                decoder.decode(words, some, shared, panels, simd);
                for (std::size_t i = 0; i < 2; ++i)
                    panels[i].unpack(Panel::kRows, rows.data() + i * Panel::kRows * directions);
                for (std::size_t i = 0; i < some * directions; ++i)
                    CHECK(rows[i] == plain[i] + (shared != nullptr ? shared[i % directions] : centroids[i]));
            }
        std::vector<float> few(20 * directions, -1);
        panels[1].unpack(20, few.data());
        CHECK(std::equal(few.begin(), few.end(), rows.data() + Panel::kRows * directions));
#if NESTCODE_X86
        if (simd != Simd::avx512) continue;
        float products[many];
        decoder.multiply(words, query.data(), products);
        for (std::size_t r = 0; r < many; ++r)  // of integers: exact
            CHECK(products[r] == std::inner_product(query.begin(), query.end(), plain.data() + r * directions, 0.0f));
#endif
    }
}

}  // namespace

int main() {
    std::mt19937 random(1);
    test_scalar_quantizer(random);
    test_centering(9000, 3, random);
    test_centering(40, 700, random);
    for (const std::size_t rows : {0, 1, 50, 64, 200})
        for (const std::size_t out_bytes : {0, 1, 6}) test_permutation(rows, out_bytes, random);
    for (const std::size_t rows : {0, 1, 63, 64, 65, 200})
        for (const std::size_t first : {0, 1, 5, 7, 8, 13})
            for (const std::size_t bits : {0, 1, 3, 8, 41}) test_bit_planes(rows, first, bits, random);
    test_regrouped_codes(random);
    test_codebook(1, 1, 0, random);
    test_codebook(3, 40, 2, random);
    test_codebook(300, 70, 5, random);
    test_adaptive(1, 1, 3, random);
    test_adaptive(13, 4, 3, random);
    test_adaptive(40, 40, 2, random);
    std::puts("quantizers: ok");
}
