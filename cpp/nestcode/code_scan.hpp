// Codes as rows of a scan (scan.hpp), decoded a block at a time.
//
// Rows are coordinates in an orthonormal basis: the directions of a projection, the part of the mean outside of them,
// and the part of a query outside of both, where items have 0. So distances by all metrics are those of features. For
// squared distances, coordinates are relative to the mean.
//
// One query is multiplied with codes by lookup tables, or by the levels that AVX-512 selects in registers.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "bit_plane_panels.hpp"
#include "hamming.hpp"
#include "row_search.hpp"
#include "scan.hpp"

namespace nestcode {

// Writes the sum of a row and of the codebook entries that the bytes of a code select; codebooks are (bytes, 256,
// directions).
template <class Floats, std::size_t together>
NESTCODE_INLINE std::size_t sum_entries_from(std::size_t d, const std::uint8_t* code, std::size_t bytes,
                                             const float* codebooks, std::size_t directions, const float* row,
                                             float* out) {
    constexpr std::size_t lanes = sizeof(Floats) / sizeof(float);
    for (; d + together * lanes <= directions; d += together * lanes) {  // sums stay in registers
        Floats sums[together];
        for (std::size_t i = 0; i < together; ++i) sums[i] = load_vector<Floats>(row + d + i * lanes);
        for (std::size_t b = 0; b < bytes; ++b) {
            const float* const entry = codebooks + (256 * b + code[b]) * directions + d;
            for (std::size_t i = 0; i < together; ++i) sums[i] += load_vector<Floats>(entry + i * lanes);
        }
        for (std::size_t i = 0; i < together; ++i) store_vector(sums[i], out + d + i * lanes);
    }
    return d;
}

struct SumEntries {
    template <std::size_t register_bytes>
    NESTCODE_INLINE static void run(const std::uint8_t* code, std::size_t bytes, const float* codebooks,
                                    std::size_t directions, const float* row, float* out) {
        using Floats = typename Vector<register_bytes>::Floats;
        std::size_t d = sum_entries_from<Floats, 8>(0, code, bytes, codebooks, directions, row, out);
        d = sum_entries_from<Floats, 1>(d, code, bytes, codebooks, directions, row, out);
        for (; d < directions; ++d) {
            out[d] = row[d];
            for (std::size_t b = 0; b < bytes; ++b) out[d] += codebooks[(256 * b + code[b]) * directions + d];
        }
    }
};

// What codes decode to: a centroid, (features), and the levels of bit planes, with their bits regrouped to bytes, or
// the sum of codebook entries, which the bytes of a code select.
class CodeFormat {
  public:
    static constexpr std::size_t kCodes = RegroupedDecoder::kCodes;  // decoded at once

    CodeFormat(const RegroupedBits& bits, ReconstructionLevels levels, const float* centroids, std::size_t count)
        : CodeFormat(levels.directions, bits.bytes, centroids, count) {
        bits_ = bits;
        levels_ = levels;
        planes_.emplace(bits, levels);
        for (std::size_t c = 0; c < count; ++c)  // levels are rows less a centroid
            longest_ = std::max(longest_, norm(centroids + c * features, features));
        longest_ *= 2;
    }

    CodeFormat(const float* codebooks, std::size_t count, std::size_t width, const float* centroid)
        : CodeFormat(width, count, centroid, 1) {
        codebooks_ = codebooks;
        longest_ = norm(centroid, features);
        for (std::size_t book = 0; book < count; ++book) {
            double longest = 0;
            for (std::size_t entry = 0; entry < 256; ++entry)
                longest = std::max(longest, norm(codebooks + (256 * book + entry) * width, width));
            longest_ += longest;
        }
    }

    const std::size_t directions, features, bytes;  // of a code, or of its regrouped bits

    std::size_t centroid_count() const { return centroid_count_; }

    // At least the norm of any part of a sum that decodes a code, given the largest norm of a row.
    double largest_part(double largest) const { return largest + longest_; }

    // Whether one query takes as long by decoding codes as by lookup tables.
    bool multiplies(Simd simd) const { return simd == Simd::avx512 && planes_; }

    // 64 codes, and the rows that they decode to in two panels.
    class Block {
      public:
        std::vector<Panel> panels = {};
        const std::uint8_t* codes[kCodes];
        std::size_t centroids[kCodes] = {};

        Block(const CodeFormat& format, Simd simd)
            : format_(format), simd_(simd), sum_(Compiled<SumEntries>::of(simd)) {
            if (format.planes_) words_.emplace(*format.planes_, simd);
        }

        // Decodes the first `count` codes; other rows may be any.
        void decode(std::size_t count) {
            const float* rows[kCodes];
            if (panels.empty()) make_panels();
            if (!format_.planes_) {
                for (std::size_t first = 0; first < count; first += Panel::kRows) {
                    for (std::size_t i = 0; i < Panel::kRows; ++i) {
                        float* const row = rows_.data() + i * format_.features;
                        if (first + i < count)
                            sum_(codes[first + i], format_.bytes, format_.codebooks_, format_.directions,
                                 format_.centroids_, row);
                        rows[i] = row;
                    }
                    panels[first / Panel::kRows].pack(rows);
                }
                return;
            }
            words_->read(codes);
            const bool shared = format_.centroid_count_ == 1;
            for (std::size_t i = 0; i < kCodes && !shared; ++i)
                rows[i] = format_.centroids_ + centroids[i] * format_.features;
            for (std::size_t i = 0; i < 2 && !shared; ++i) panels[i].pack(rows + i * Panel::kRows);
            format_.planes_->decode(*words_, count, shared ? format_.centroids_ : nullptr, panels.data(), simd_);
        }

#if NESTCODE_X86
        // Writes the inner products of a row and of the levels of all codes.
        void multiply(const float* row, float* out) {
            words_->read(codes);
            format_.planes_->multiply(*words_, row, out);
        }
#endif

      private:
        // All rows are the first centroid, to which decoding adds.
        void make_panels() {
            const float* rows[Panel::kRows];
            std::ranges::fill(rows, format_.centroids_);
            for (std::size_t i = 0; i < 2; ++i) panels.emplace_back(format_.features, simd_).pack(rows);
            for (std::size_t i = 0; i < Panel::kRows && !format_.planes_; ++i)
                rows_.insert(rows_.end(), format_.centroids_, format_.centroids_ + format_.features);
        }

        const CodeFormat& format_;
        const Simd simd_;
        const Compiled<SumEntries>::Pointer sum_;
        std::optional<RegroupedDecoder::Words> words_;
        std::vector<float> rows_;  // (32, features), of codebook entries
    };

    // Lookup tables of the inner products of a row with what each byte of a code adds, (bytes, 256).
    std::vector<float> tables(const float* row, Simd simd) const {
        std::vector<float> tables(bytes * 256);
        const RowSumsKernel<float> sums_of = row_sums_kernel<float, false>(simd);
        for (std::size_t b = 0; b < bytes; ++b)
            if (planes_)
                fill_table(b, row, tables.data() + b * 256);
            else
                for (std::size_t entry = 256 * b; entry < 256 * (b + 1); ++entry)
                    tables[entry] = sums_of(row, codebooks_ + entry * directions, directions).product;
        return tables;
    }

    // The inner products of a row with all centroids.
    std::vector<float> multiply_centroids(const float* row, Simd simd) const {
        std::vector<float> products(centroid_blocks_.count());
        project_kernel(simd)(centroid_blocks_, row, 1, products.data());
        return products;
    }

  private:
    CodeFormat(std::size_t width, std::size_t code_bytes, const float* centroids, std::size_t count)
        : directions(width),
          features(width + 2),
          bytes(code_bytes),
          centroids_(centroids),
          centroid_blocks_(centroids, count, features),
          centroid_count_(count) {}

    static double norm(const float* row, std::size_t size) { return std::sqrt(squared_norm_in_double(row, size)); }

    // Writes the 256 sums of a byte's levels: those of its lowest bits, then of one direction more at a time.
    void fill_table(std::size_t byte, const float* row, float* table) const {
        table[0] = 0;
        std::size_t size = 1;
        for (std::size_t j = bits_.most; j-- != 0;) {
            const std::size_t slot = byte * bits_.most + j, count = std::size_t{1} << bits_.depths[slot];
            if (count == 1) continue;
            const auto direction = static_cast<std::size_t>(bits_.directions[slot]);
            const float* const levels = levels_.values + direction * levels_.stride + count;
            for (std::size_t level = count; level-- != 0;) {
                const float value = row[direction] * levels[level];
                for (std::size_t i = 0; i < size; ++i) table[level * size + i] = table[i] + value;
            }
            size *= count;
        }
        for (; size < 256; size *= 2) std::copy_n(table, size, table + size);
    }

    RegroupedBits bits_ = {};
    ReconstructionLevels levels_ = {};
    std::optional<RegroupedDecoder> planes_;
    const float* centroids_;  // (count, features)
    ProjectionBlocks centroid_blocks_;
    std::size_t centroid_count_;
    const float* codebooks_ = nullptr;  // (bytes, 256, directions)
    double longest_ = 0;                // of a part of a sum, beside rows
};

// The codes of a run.
struct ScannedCodes {
    Rows codes;                                                            // as the format takes them
    const std::int64_t* centroids;                                         // null where there is only one
    std::vector<float> squares = {};                                       // squared norms of the rows
    float largest = 0, shortest = std::numeric_limits<float>::infinity();  // of squares

    ScannedCodes(const CodeFormat& format, Rows rows, const std::int64_t* centroids_of, Simd simd)
        : codes(rows), centroids(centroids_of) {
        constexpr std::size_t together = CodeFormat::kCodes;
        CodeFormat::Block block(format, simd);
        squares.resize(codes.count);
        for (std::size_t first = 0; first < codes.count; first += together) {
            const std::size_t count = std::min(together, codes.count - first);
            for (std::size_t i = 0; i < together; ++i) read(first + std::min(i, count - 1), i, block);
            block.decode(count);
            float sums[together] = {};
            for (std::size_t f = 0; f < format.features; ++f)
                for (std::size_t i = 0; i < together; ++i) {
                    const float value = block.panels[i / Panel::kRows].line(f)[i % Panel::kRows];
                    sums[i] += value * value;
                }
            std::copy_n(sums, count, squares.data() + first);
        }
        for (const float square : squares) {
            largest = std::max(largest, square);
            shortest = std::min(shortest, square);
        }
    }

    void read(std::size_t at, std::size_t i, CodeFormat::Block& block) const {
        block.codes[i] = codes[at];
        if (centroids != nullptr) block.centroids[i] = static_cast<std::size_t>(centroids[at]);
    }
};

// The codes of some runs, by positions that count through all of them.
struct ScannedRuns {
    const RowProjection& projection;  // of the queries
    const CodeFormat& format;
    std::vector<const ScannedCodes*> runs = {};
    std::vector<std::size_t> ends = {};                                    // of the runs
    float largest = 0, shortest = std::numeric_limits<float>::infinity();  // squared norm of a row

    void add(const ScannedCodes& run) {
        ends.push_back(count() + run.codes.count);
        runs.push_back(&run);
        largest = std::max(largest, run.largest);
        shortest = std::min(shortest, run.shortest);
    }

    std::size_t count() const { return ends.empty() ? 0 : ends.back(); }

    // The run of a position, and the place there.
    std::pair<const ScannedCodes*, std::size_t> find(std::size_t position) const {
        if (runs.size() == 1) return {runs.front(), position};
        const auto run = static_cast<std::size_t>(std::ranges::upper_bound(ends, position) - ends.begin());
        return {runs[run], position - (run == 0 ? 0 : ends[run - 1])};
    }
};

// Codes at some positions, as rows of a scan.
struct CodeItems {
    const ScannedRuns& runs;
    const std::uint32_t* positions;
    const std::int64_t* ids;
    std::size_t count;
    Simd simd;
    std::size_t features = runs.format.features;
    std::size_t alone = runs.format.multiplies(simd) ? 1 : 7;
    static constexpr bool differences = false;
    static constexpr std::size_t kCodes = CodeFormat::kCodes;

    std::vector<float> center(const std::vector<DoubleRow>&, Metric) const { return {}; }

    // Reads 64 codes and the squared norms of their rows; the last one fills up.
    template <class ItemAt>
    void read(std::size_t many, const ItemAt& item_at, CodeFormat::Block& block, float* squares) const {
        const ScannedCodes* const only = runs.runs.size() == 1 ? runs.runs.front() : nullptr;
        for (std::size_t i = 0; i < kCodes; ++i) {
            const std::size_t position = positions[item_at(std::min(i, many - 1))];
            const auto [run, at] = only != nullptr ? std::pair{only, position} : runs.find(position);
            run->read(at, i, block);
            squares[i] = run->squares[at];
        }
    }

    class Reader {
      public:
        static constexpr std::size_t kTogether = kCodes;
        ExactDistances distances;

        Reader(const CodeItems& items, Metric metric, Simd simd)
            : distances(metric, items.features, simd),
              items_(items),
              by_angle_(metric == Metric::cosine),
              block_(items.runs.format, simd) {}

        Panel* panels() { return block_.panels.data(); }

        bool pack(std::size_t first, std::size_t many, const float*, float* squares) {
            items_.read(many, [=](std::size_t i) { return first + i; }, block_, squares);
            block_.decode(many);
            return !by_angle_ ||
                   std::all_of(squares, squares + many, [](float square) { return square > kLeastSquare; });
        }

        template <class ItemAt, class Take>
        void each(std::size_t many, const ItemAt& item_at, const Take& take) {
            const std::size_t features = items_.features;
            rows_.resize(kCodes * features);
            float squares[kCodes];
            for (std::size_t first = 0; first < many; first += kCodes) {
                const std::size_t some = std::min(kCodes, many - first);
                items_.read(
                    some, [&](std::size_t i) { return static_cast<std::size_t>(item_at(first + i)); }, block_, squares);
                block_.decode(some);
                for (std::size_t row = 0; row < some; row += Panel::kRows)
                    block_.panels[row / Panel::kRows].unpack(std::min(Panel::kRows, some - row),
                                                             rows_.data() + row * features);
                for (std::size_t i = 0; i < some; ++i) {
                    distances.set(rows_.data() + i * features);
                    take(first + i);
                }
            }
        }

      private:
        const CodeItems& items_;
        const bool by_angle_;
        CodeFormat::Block block_;
        std::vector<float> rows_;  // (64, features)
    };

    std::optional<EstimateErrors> estimate(const DoubleRow& query, Metric metric, float* out, Simd simd,
                                           std::size_t threads) const {
        const CodeFormat& format = runs.format;
        if (metric == Metric::cosine && !(runs.shortest > kLeastSquare)) return std::nullopt;
        const std::vector<float> row(query.values.begin(), query.values.end());
        const std::vector<float> centroids = format.multiply_centroids(row.data(), simd);
        const bool multiplies = format.multiplies(simd);
        const std::vector<float> tables = multiplies ? std::vector<float>{} : format.tables(row.data(), simd);
        parallel_for((count + kCodes - 1) / kCodes, 64, threads, [&](std::size_t begin, std::size_t end) {
            CodeFormat::Block block(format, simd);
            float sums[kCodes], squares[kCodes];
            for (std::size_t first = begin * kCodes; first < std::min(end * kCodes, count); first += kCodes) {
                const std::size_t many = std::min(kCodes, count - first);
                read(many, [=](std::size_t i) { return first + i; }, block, squares);
#if NESTCODE_X86
                if (multiplies) block.multiply(row.data(), sums);
#endif
                for (std::size_t i = 0; i < kCodes && !multiplies; i += 4) {  // four hide the latency of additions
                    float four[4] = {};
                    for (std::size_t b = 0; b < format.bytes; ++b)
                        for (std::size_t j = 0; j < 4; ++j) four[j] += tables[b * 256 + block.codes[i + j][b]];
                    std::copy_n(four, 4, sums + i);
                }
                for (std::size_t i = 0; i < many; ++i) {
                    const ProductDistance by(metric, squares[i]);
                    out[first + i] = by.scale * (sums[i] + centroids[block.centroids[i]]) + by.shift;
                }
            }
        });
        const double length = std::sqrt(squared_norm_in_double(query.values.data(), features));
        return EstimateErrors{bound_of_products(metric, features + 2 * format.bytes, length,
                                                format.largest_part(std::sqrt(runs.largest)),
                                                std::sqrt(runs.shortest))};
    }
};

// Queries that are compared with codes, (…, features of the projection), in the coordinates of rows.
template <class Real>
struct CodeQueries {
    const RowProjection& projection;
    const Real* rows;
    Simd simd;

    std::vector<DoubleRow> operator()(std::size_t first, std::size_t count) const {
        const std::size_t features = projection.features();
        std::vector<DoubleRow> queries(count);
        std::vector<Real> usable;         // rows that float32 can project
        std::vector<std::size_t> places;  // of these
        for (std::size_t q = 0; q < count; ++q) {
            const Real* const row = rows + (first + q) * features;
            if (RowBatch::in_range(squared_norm_in_double(row, features))) {
                usable.insert(usable.end(), row, row + features);
                places.push_back(q);
            } else {
                queries[q] = in_double(row);
            }
        }
        if (places.empty()) return queries;
        RowBatch batch(projection, places.size(), simd,
                       places.size() == 1 ? project_kernel(simd) : Compiled<ProjectMany>::of(simd));
        batch.prepare(usable.data(), places.size());
        for (std::size_t i = 0; i < places.size(); ++i) queries[places[i]] = coordinates(batch, i);
        return queries;
    }

  private:
    DoubleRow coordinates(const RowBatch& batch, std::size_t q) const {
        const double outside_of = projection.metric == Metric::inner ? 0 : outside(batch, q);
        const double mean = projection.metric == Metric::cosine ? projection.rest_norm : 0;
        return with_rest(batch.coordinates(q), outside_of, mean);
    }

    // The same of a row of any length, in float64.
    DoubleRow in_double(const Real* row) const {
        const std::size_t features = projection.features();
        DoubleRow query;
        query.read(row, features, projection.metric);
        std::vector<double>&rest = query.values, values;
        for (std::size_t f = 0; f < features && projection.metric == Metric::l2; ++f) rest[f] -= projection.mean[f];
        for (std::size_t d = 0; d < projection.count; ++d) {
            const float* direction = projection.directions + d * features;
            values.push_back(sum_in_double(features, [&](std::size_t f) { return rest[f] * direction[f]; }));
        }
        for (std::size_t d = 0; d < projection.count; ++d)
            for (std::size_t f = 0; f < features; ++f) rest[f] -= values[d] * projection.directions[d * features + f];
        values.push_back(projection.along_rest(rest.data()));
        return with_rest(std::move(values), squared_norm_in_double(rest.data(), features), 0);
    }

    // Adds the coordinate of what is outside of all others, given the squared distance to the span of the directions:
    // that of a point around one of which the last coordinate is `origin`.
    DoubleRow with_rest(std::vector<double> values, double outside, double origin) const {
        const double along = values.back() - origin;
        values.push_back(std::sqrt(std::max(outside - along * along, 0.0)));
        DoubleRow query;
        query.zero = projection.metric == Metric::cosine && !normalize(values);
        query.values = std::move(values);
        return query;
    }

    // The squared distance of a row to the span of the directions: a difference of squares where it cancels little.
    double outside(const RowBatch& batch, std::size_t q) const {
        const double square = squared_norm_in_double(batch.centered(q), projection.features());
        const double rest = square - squared_norm_in_double(batch.coefficients(q), projection.count);
        return rest > square / 16 ? rest : batch.outside(q);
    }
};

// Adds the nearest codes by Hamming distance to the hits of each query.
inline void scan_hamming(Rows queries, Rows codes, const std::int64_t* ids, const NearestHits& hits, Simd simd,
                         std::size_t threads) {
    const HammingKernel kernel = hamming_kernel(simd);
    std::vector<std::size_t> every(queries.count);
    std::iota(every.begin(), every.end(), std::size_t{0});
    compare_all(every, codes.count, hits, threads, [&](std::size_t begin, std::size_t end, auto some, auto& nearest) {
        constexpr std::size_t tile = 256;  // codes that stay in the first-level cache for all queries
        std::int32_t distances[tile];
        for (std::size_t first = begin; first < end; first += tile)
            for (std::size_t q = 0; q < some.size(); ++q) {
                const std::size_t last = std::min(first + tile, end);
                kernel(queries[some[q]], codes.slice(first, last), distances);
                for (std::size_t i = first; i < last; ++i) {
                    const auto distance = static_cast<float>(distances[i - first]);
                    if (nearest[q].admits(distance)) nearest[q].add({distance, ids[i]});
                }
            }
    });
}

}  // namespace nestcode
