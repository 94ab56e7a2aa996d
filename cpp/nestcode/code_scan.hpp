// Exhaustive search of codes, exact in three passes as that of vectors (scan.hpp).
//
// Distances are those of coefficients: of a query's, and of those that codes decode to. For one query lookup tables
// score the bytes of codes; for several, codes are decoded a block at a time and multiplied with all queries.
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

// Writes the sum of the codebook entries that the bytes of a code select; codebooks are (bytes, 256, directions).
template <class Floats, std::size_t together>
NESTCODE_INLINE std::size_t sum_entries_from(std::size_t d, const std::uint8_t* code, std::size_t bytes,
                                             const float* codebooks, std::size_t directions, float* out) {
    constexpr std::size_t lanes = sizeof(Floats) / sizeof(float);
    for (; d + together * lanes <= directions; d += together * lanes) {  // sums stay in registers
        Floats sums[together] = {};
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
                                    std::size_t directions, float* out) {
        using Floats = typename Vector<register_bytes>::Floats;
        std::size_t d = sum_entries_from<Floats, 8>(0, code, bytes, codebooks, directions, out);
        d = sum_entries_from<Floats, 1>(d, code, bytes, codebooks, directions, out);
        for (; d < directions; ++d) {
            out[d] = 0;
            for (std::size_t b = 0; b < bytes; ++b) out[d] += codebooks[(256 * b + code[b]) * directions + d];
        }
    }
};
// What codes decode to, in the directions of a projection: bit planes with their bits regrouped to bytes, around the
// centroids of a coarse quantizer if there is one; or sums of codebook entries, which the bytes of a code select.
class ScannedFormat {
  public:
    static constexpr std::size_t kCodes = RegroupedDecoder::kCodes;  // decoded at once

    ScannedFormat(const RegroupedBits& bits, ReconstructionLevels levels, const float* centroids, std::size_t count)
        : directions(levels.directions),
          bytes(bits.bytes),
          bits_(bits),
          levels_(levels),
          planes_(std::in_place, bits, levels),
          centroids_(centroids),
          centroid_blocks_(std::in_place, centroids, count, directions),
          centroid_count_(count) {
        for (std::size_t c = 0; c < count; ++c) longest_ = std::max(longest_, norm(centroids + c * directions));
    }

    ScannedFormat(const float* codebooks, std::size_t count, std::size_t width)
        : directions(width), bytes(count), codebooks_(codebooks) {
        for (std::size_t book = 0; book < count; ++book) {
            double longest = 0;
            for (std::size_t entry = 0; entry < 256; ++entry)
                longest = std::max(longest, norm(codebooks + (256 * book + entry) * width));
            longest_ += longest;
        }
    }

    const std::size_t directions, bytes;  // bytes of a code, or of its regrouped bits

    std::size_t centroid_count() const { return centroid_count_; }

    const float* centroid(std::size_t i) const { return centroids_ + i * directions; }

    // At least the norm of any part of a sum that decodes a code, given the largest norm of those that it decodes to.
    double largest_part(double largest) const { return codebooks_ == nullptr ? largest + 2 * longest_ : longest_; }

    // Whether one query takes as long by decoding codes as by lookup tables.
    bool multiplies(Simd simd) const { return simd == Simd::avx512 && planes_; }

    // Writes what a code decodes to.
    void decode(const std::uint8_t* code, const float* centroid, float* out) const {
        if (codebooks_ != nullptr) return Compiled<SumEntries>::portable(code, bytes, codebooks_, directions, out);
        planes_->decode(code, out);
        for (std::size_t d = 0; d < directions && centroid != nullptr; ++d) out[d] += centroid[d];
    }

    // 64 codes, decoded to two panels.
    class Decoded {
      public:
        Decoded(const ScannedFormat& format, Simd simd)
            : panels{Panel(format.directions, simd), Panel(format.directions, simd)},
              simd_(simd),
              sum_(Compiled<SumEntries>::of(simd)),
              rows_(format.codebooks_ == nullptr ? 0 : Panel::kRows * format.directions) {
            if (format.planes_) words_.emplace(*format.planes_, simd);
        }

        Panel panels[2];

      private:
        friend ScannedFormat;
        const Simd simd_;
        const Compiled<SumEntries>::Pointer sum_;
        std::optional<RegroupedDecoder::Words> words_;
        std::vector<float> rows_;  // (32, directions)
    };

    // Centroids are null without a coarse quantizer.
    void decode(const std::uint8_t* const* codes, const float* const* centroids, Decoded& out) const {
        if (planes_) {
            out.words_->read(codes);
            return planes_->decode(*out.words_, centroids, out.panels, out.simd_);
        }
        for (Panel& panel : out.panels) {
            const float* rows[Panel::kRows];
            for (std::size_t i = 0; i < Panel::kRows; ++i) {
                float* const row = out.rows_.data() + i * directions;
                out.sum_(*codes++, bytes, codebooks_, directions, row);
                rows[i] = row;
            }
            panel.pack(rows);
        }
    }

    // Multiplies one row with what codes decode to, without their centroids.
    class Products {
      public:
        Products(const ScannedFormat& format, std::vector<float> row, Simd simd)
            : format_(format), simd_(simd), row_(std::move(row)) {
            if (format.multiplies(simd)) return;
            tables_.resize(format.bytes * 256);
            const RowSumsKernel<float> sums_of = row_sums_kernel<float, false>(simd);
            const std::size_t directions = format.directions;
            for (std::size_t b = 0; b < format.bytes; ++b)
                if (format.planes_)
                    format.fill_table(b, row_.data(), tables_.data() + b * 256);
                else
                    for (std::size_t entry = 256 * b; entry < 256 * (b + 1); ++entry)
                        tables_[entry] =
                            sums_of(row_.data(), format.codebooks_ + entry * directions, directions).product;
        }

        // A thread's own part.
        struct Room {
            std::optional<RegroupedDecoder::Words> words;
        };
        Room room() const {
            Room own;
            if (format_.multiplies(simd_)) own.words.emplace(*format_.planes_, simd_);
            return own;
        }

        // Writes the products of 64 codes.
        void write(const std::uint8_t* const* codes, Room& room, float* out) const {
#if NESTCODE_X86
            if (room.words) {
                room.words->read(codes);
                return format_.planes_->multiply(*room.words, row_.data(), out);
            }
#endif
            static_cast<void>(room);
            for (std::size_t i = 0; i < kCodes; i += 4) {  // four sums at once hide the latency of additions
                float sums[4] = {};
                for (std::size_t b = 0; b < format_.bytes; ++b)
                    for (std::size_t j = 0; j < 4; ++j) sums[j] += tables_[b * 256 + codes[i + j][b]];
                std::copy_n(sums, 4, out + i);
            }
        }

      private:
        const ScannedFormat& format_;
        const Simd simd_;
        const std::vector<float> row_;  // (directions)
        std::vector<float> tables_;     // (bytes, 256)
    };

    // Writes the inner products of a row and of all centroids.
    std::vector<float> multiply_centroids(const std::vector<float>& row, Simd simd) const {
        std::vector<float> products(centroid_count_ == 0 ? 0 : centroid_blocks_->count());
        if (!products.empty()) project_kernel(simd)(*centroid_blocks_, row.data(), 1, products.data());
        return products;
    }

  private:
    double norm(const float* row) const { return std::sqrt(squared_norm_in_double(row, directions)); }

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
    const float* centroids_ = nullptr;
    std::optional<ProjectionBlocks> centroid_blocks_;
    std::size_t centroid_count_ = 0;
    const float* codebooks_ = nullptr;  // (bytes, 256, directions)
    double longest_ = 0;                // of the centroids, or of any sum of codebook entries
};

// The codes of a run.
struct ScannedCodes {
    Rows codes;                     // as the format takes them
    const std::int64_t* centroids;  // null without a coarse quantizer
    const float* squares;           // squared norms of the coefficients
    const float* norms;             // of what codes decode to in features, the mean included
    float largest = 0, shortest = std::numeric_limits<float>::infinity(), longest = 0;  // of squares, and of norms

    ScannedCodes(Rows rows, const std::int64_t* own_centroids, const float* own_squares, const float* own_norms)
        : codes(rows), centroids(own_centroids), squares(own_squares), norms(own_norms) {
        for (std::size_t i = 0; i < codes.count; ++i) {
            largest = std::max(largest, squares[i]);
            shortest = std::min(shortest, norms[i]);
            longest = std::max(longest, norms[i]);
        }
    }
};

// Searches some items of runs, by positions that count through all of them.
class CodeScan {
  public:
    CodeScan(const RowProjection& projection, const ScannedFormat& format, std::vector<ScannedCodes> runs)
        : projection_(projection), format_(format), runs_(std::move(runs)) {
        float largest = 0;
        std::size_t count = 0;
        for (const ScannedCodes& run : runs_) {
            ends_.push_back(count += run.codes.count);
            largest = std::max(largest, run.largest);
            shortest_ = std::min(shortest_, run.shortest);
            longest_ = std::max(longest_, run.longest);
        }
        largest_ = format.largest_part(std::sqrt(static_cast<double>(largest)) * (1 + 0x1p-10));
        const double* mean = projection.mean;
        const std::size_t features = projection.features();
        mean_square_ = squared_norm_in_double(mean, features);
        for (std::size_t d = 0; d < projection.count; ++d) {
            const float* direction = projection.directions + d * features;
            mean_.push_back(sum_in_double(features, [=](std::size_t f) { return mean[f] * direction[f]; }));
        }
    }

    std::size_t count() const { return ends_.empty() ? 0 : ends_.back(); }

    // The items that a search compares.
    struct Items {
        const std::uint32_t* positions;
        const std::int64_t* ids;
        std::size_t count;
    };

    // Adds the k nearest items to the hits of each row, (count, features). The metric is that of the projection, or any
    // for l2.
    template <class Real>
    void search(const Real* rows, std::size_t count, const Items& items, Metric metric, const NearestHits& hits,
                Simd simd, std::size_t threads) const {
        constexpr std::size_t most = 256;  // rows at once
        const std::size_t features = projection_.features();
        const std::size_t alone = format_.multiplies(simd) ? 1 : 7;  // rows that tables score in less time
        std::vector<std::uint8_t> done(count);
        if (count > alone)
            parallel_for(count, 12, threads, [&](std::size_t begin, std::size_t end) {
                for (std::size_t q = begin; q < end; q += most)
                    search_together(rows + q * features, std::min(most, end - q), items, metric, hits, q, done.data(),
                                    simd);
            });
        else
            for (std::size_t q = 0; q < count; ++q)
                done[q] = search_alone(rows + q * features, items, metric, hits, q, simd, threads);
        std::vector<std::size_t> left;
        std::vector<Query> queries(count);
        for (std::size_t q = 0; q < count; ++q)
            if (!done[q]) {
                left.push_back(q);
                queries[q] = in_double(rows + q * features, metric);
            }
        compare_in_double(
            left, items.count, items.ids, hits, threads, [&] { return Reader(*this, items, metric, simd); },
            [&](const Reader& reader, std::size_t q) { return reader.distance(queries[q]); });
    }

  private:
    static constexpr std::size_t kCodes = ScannedFormat::kCodes;

    struct Query {
        std::vector<double> weights;  // (directions): what decoded coefficients are compared or multiplied with
        double constant = 0;  // the squared distance to the span of the directions; or the product with the mean
        double square = 0;    // of the row around the mean
        double reach = 0;     // the magnitude that rounding errors are relative to
        bool zero = false;    // of the cosine
    };

    bool is_own(Metric metric) const { return metric == projection_.metric; }

    // A row as squared distances of coefficients take it: of the l2 metric, or of the cosine of L2-normalized items.
    Query around_mean(const RowBatch& batch, std::size_t q, double outside) const {
        Query query{{batch.coefficients(q), batch.coefficients(q) + projection_.count}, outside};
        query.square = squared_norm_in_double(query.weights.data(), projection_.count) + query.constant;
        const double longest = std::sqrt(query.square) + largest_;
        query.reach = longest * longest;
        if (projection_.metric == Metric::l2) return query;
        query.reach += (longest_ + 1.0) * (longest_ + 1.0) + projection_.mean_square;
        query.reach /= std::min<double>(shortest_, static_cast<double>(shortest_) * shortest_);  // infinite for 0
        return query;
    }

    // A row as inner products take it, L2-normalized for the cosine, where items are not.
    Query around_zero(const RowBatch& batch, std::size_t q, Metric metric) const {
        Query query;
        const double norm = std::sqrt(batch.square(q)), scale = metric == Metric::cosine ? 1 / norm : 1;
        query.constant = scale * batch.mean_product_in_double(q);
        for (std::size_t d = 0; d < projection_.count; ++d)
            query.weights.push_back(scale * (batch.coefficients(q)[d] + mean_[d]));
        const double length = scale * (2 * norm + std::sqrt(mean_square_));
        query.reach = length * largest_;
        if (metric == Metric::cosine) query.reach = 2 * (length + 1) * (largest_ + std::sqrt(mean_square_)) / shortest_;
        return query;
    }

    Query prepared(const RowBatch& batch, std::size_t q, Metric metric) const {
        return is_own(metric) ? around_mean(batch, q, outside(batch, q)) : around_zero(batch, q, metric);
    }

    // The same of a row of any length, in float64.
    template <class Real>
    Query in_double(const Real* row, Metric metric) const {
        const std::size_t features = projection_.features();
        const double* mean = projection_.mean;
        std::vector<double> values(row, row + features);
        Query query;
        query.zero = metric == Metric::cosine && !normalize(values);
        query.constant = sum_in_double(features, [&](std::size_t f) { return values[f] * mean[f]; });
        for (std::size_t f = 0; f < features && is_own(metric); ++f) values[f] -= mean[f];
        for (std::size_t d = 0; d < projection_.count; ++d) {
            const float* direction = projection_.directions + d * features;
            query.weights.push_back(sum_in_double(features, [&](std::size_t f) { return values[f] * direction[f]; }));
        }
        if (!is_own(metric)) return query;
        for (std::size_t d = 0; d < projection_.count; ++d)
            for (std::size_t f = 0; f < features; ++f)
                values[f] -= query.weights[d] * projection_.directions[d * features + f];
        query.constant = squared_norm_in_double(values.data(), features);
        return query;
    }

    // Whether coefficients around the mean tell a row's own: float32 loses rows that are far shorter than the mean.
    bool keeps_digits(double square, Metric metric) const { return is_own(metric) || 256 * square >= mean_square_; }

    // The squared distance of a row to the span of the directions: a difference of squares where it cancels little.
    double outside(const RowBatch& batch, std::size_t q) const {
        const double square = squared_norm_in_double(batch.centered(q), projection_.features());
        const double rest = square - squared_norm_in_double(batch.coefficients(q), projection_.count);
        return rest > square / 16 ? rest : batch.outside(q);
    }

    // What the errors of estimates are at most, given how many roundings a product goes through.
    static double bound(const Query& query, std::size_t roundings) {
        return 2 * static_cast<double>(roundings) * kUnit * query.reach;
    }

    // The run of a position, and the place there.
    std::pair<const ScannedCodes*, std::size_t> find(std::size_t position) const {
        if (runs_.size() == 1) return {runs_.data(), position};
        const auto run = static_cast<std::size_t>(std::ranges::upper_bound(ends_, position) - ends_.begin());
        return {&runs_[run], position - (run == 0 ? 0 : ends_[run - 1])};
    }

    // 64 items, the last of which fills up.
    struct Block {
        const std::uint8_t* codes[kCodes];
        std::size_t centroids[kCodes] = {};
        float squares[kCodes], norms[kCodes];  // norms only for the cosine

        // position_at(i) is that of one of `count` items.
        template <class PositionAt>
        Block(const CodeScan& scan, std::size_t count, bool by_angle, const PositionAt& position_at) {
            if (scan.runs_.size() == 1) {  // loops that branch on nothing
                const ScannedCodes& run = scan.runs_.front();
                std::size_t at[kCodes];
                bool adjacent = count == kCodes;
                for (std::size_t i = 0; i < count; ++i) {
                    at[i] = position_at(i);
                    adjacent &= at[i] == at[0] + i;
                }
                if (adjacent && run.centroids == nullptr) {
                    const std::uint8_t* code = run.codes[at[0]];
                    for (std::size_t i = 0; i < kCodes; ++i, code += run.codes.stride) codes[i] = code;
                    std::copy_n(run.squares + at[0], kCodes, squares);
                    if (by_angle) std::copy_n(run.norms + at[0], kCodes, norms);
                    return;
                }
                std::fill(at + count, at + kCodes, at[count - 1]);
                for (std::size_t i = 0; i < kCodes; ++i) codes[i] = run.codes[at[i]];
                for (std::size_t i = 0; i < kCodes; ++i) squares[i] = run.squares[at[i]];
                for (std::size_t i = 0; i < kCodes && by_angle; ++i) norms[i] = run.norms[at[i]];
                for (std::size_t i = 0; i < kCodes && run.centroids != nullptr; ++i)
                    centroids[i] = static_cast<std::size_t>(run.centroids[at[i]]);
                return;
            }
            for (std::size_t i = 0; i < kCodes; ++i) {
                const auto [run, at] = scan.find(position_at(std::min(i, count - 1)));
                codes[i] = run->codes[at];
                squares[i] = run->squares[at];
                norms[i] = run->norms[at];
                if (run->centroids != nullptr) centroids[i] = static_cast<std::size_t>(run->centroids[at]);
            }
        }
    };

    // The squared norm of coefficients in features, the mean included: where these cancel, directions that are not
    // quite orthonormal would leave the sum of their squares too few digits.
    double square_in_features(const float* coefficients) const {
        const std::size_t features = projection_.features();
        std::vector<double> values(projection_.mean, projection_.mean + features);
        for (std::size_t d = 0; d < projection_.count; ++d)
            for (std::size_t f = 0; f < features; ++f)
                values[f] += static_cast<double>(coefficients[d]) * projection_.directions[d * features + f];
        return squared_norm_in_double(values.data(), features);
    }

    // Decodes items on one thread, and compares the latest with queries in float64.
    class Reader {
      public:
        Reader(const CodeScan& scan, const Items& items, Metric metric, Simd simd)
            : scan_(scan),
              items_(items),
              own_(scan.is_own(metric)),
              by_angle_(metric == Metric::cosine),
              kernels_(simd),
              decoded_(scan.format_.directions) {}

        void read(std::size_t item) {
            const auto [run, at] = scan_.find(items_.positions[item]);
            const std::int64_t* const own = run->centroids;
            const float* const centroid =
                own == nullptr ? nullptr : scan_.format_.centroid(static_cast<std::size_t>(own[at]));
            scan_.format_.decode(run->codes[at], centroid, decoded_.data());
            take(decoded_.data());
        }

        // Compares what was decoded already, until the next call.
        void take(const float* decoded) {
            const std::size_t directions = scan_.format_.directions;
            item_ = decoded;
            if (!by_angle_) return;
            const double own = kernels_.norm(item_, directions);
            double square = own + 2 * kernels_.product(scan_.mean_.data(), item_, directions) + scan_.mean_square_;
            if (4 * square < own) square = scan_.square_in_features(item_);
            norm_ = std::sqrt(std::max(square, 0.0));
        }

        // Angles are those of squared distances where items are L2-normalized, as inner products differ too little
        // where all items point the same way.
        double distance(const Query& query) const {
            const std::size_t directions = scan_.format_.directions;
            if (by_angle_ && (query.zero || !(norm_ > 0))) return 2;
            if (own_) {
                const double square = query.constant + kernels_.square(query.weights.data(), item_, 1, directions);
                return by_angle_ ? std::max(square - (norm_ - 1) * (norm_ - 1), 0.0) / norm_ : square;
            }
            const double product = query.constant + kernels_.product(query.weights.data(), item_, directions);
            return by_angle_ ? std::max(2 - 2 * product / norm_, 0.0) : -product;
        }

      private:
        const CodeScan& scan_;
        const Items& items_;
        const bool own_, by_angle_;
        const DoubleKernels<float> kernels_;
        std::vector<float> decoded_;
        const float* item_ = nullptr;
        double norm_ = 0;  // in features
    };

    // Adds the nearest items to the hits of one row, or returns false where float32 does not tell them apart.
    template <class Real>
    bool search_alone(const Real* row, const Items& items, Metric metric, const NearestHits& hits, std::size_t q,
                      Simd simd, std::size_t threads) const {
        RowBatch batch(projection_, 1, simd);
        if (!batch.prepare(row, 1)) return false;
        if (!RowBatch::in_range(batch.square(0)) || !keeps_digits(batch.square(0), metric)) return false;
        const Query query = prepared(batch, 0, metric);
        std::vector<float> estimates(items.count);
        estimate(query, items, metric, estimates.data(), simd, threads);
        const double most = bound(query, 2 * format_.bytes + 2 * format_.directions + 16);
        const auto limit_of = [=](float kth) { return limit_of_estimates(kth, most); };
        Reader reader(*this, items, metric, simd);
        const auto exact = [&](const std::vector<std::size_t>& close, double* out) {
            for (const std::size_t item : close) {
                reader.read(item);
                *out++ = reader.distance(query);
            }
        };
        return rank_by_estimates(estimates, limit_of, items.ids, hits, q, exact);
    }

    // Estimates all distances from one query.
    void estimate(const Query& query, const Items& items, Metric metric, float* out, Simd simd,
                  std::size_t threads) const {
        const bool own = is_own(metric);
        std::vector<float> weights;
        for (const double weight : query.weights) weights.push_back(static_cast<float>((own ? -2 : -1) * weight));
        const std::vector<float> centroids = format_.multiply_centroids(weights, simd);
        const bool quantizes = !centroids.empty();
        const ScannedFormat::Products products(format_, std::move(weights), simd);
        const auto shift = static_cast<float>(own ? query.square : -query.constant);
        parallel_for((items.count + kCodes - 1) / kCodes, 64, threads, [&](std::size_t begin, std::size_t end) {
            ScannedFormat::Products::Room room = products.room();
            float sums[kCodes];
            for (std::size_t first = begin * kCodes; first < std::min(end * kCodes, items.count); first += kCodes) {
                const std::size_t count = std::min(kCodes, items.count - first);
                const Block block(*this, count, metric == Metric::cosine,
                                  [&](std::size_t i) { return items.positions[first + i]; });
                products.write(block.codes, room, sums);
                for (std::size_t i = 0; i < kCodes && quantizes; ++i) sums[i] += centroids[block.centroids[i]];
                for (std::size_t i = 0; i < kCodes && own; ++i) sums[i] += block.squares[i];
                for (std::size_t i = 0; i < kCodes && metric == Metric::cosine; ++i) {
                    const float norm = block.norms[i], excess = norm - 1, sum = sums[i] + shift;
                    sums[i] = own ? (sum - excess * excess) / norm : 2 + 2 * sum / norm;
                }
                std::copy_n(sums, count, out + first);
            }
        });
    }

    void decode(const Block& block, ScannedFormat::Decoded& out) const {
        if (format_.centroid_count() == 0) return format_.decode(block.codes, nullptr, out);
        const float* centroids[kCodes];
        for (std::size_t i = 0; i < kCodes; ++i) centroids[i] = format_.centroid(block.centroids[i]);
        format_.decode(block.codes, centroids, out);
    }

    // Adds the nearest items to the hits of rows from `first` on, and writes which had it done.
    template <class Real>
    void search_together(const Real* rows, std::size_t count, const Items& items, Metric metric,
                         const NearestHits& hits, std::size_t first, std::uint8_t* done, Simd simd) const {
        const std::size_t directions = projection_.count, features = projection_.features();
        RowBatch batch(projection_, count, simd, Compiled<ProjectMany>::of(simd));
        std::vector<Real> usable;         // rows that float32 can compare
        std::vector<std::size_t> places;  // of these
        for (std::size_t q = 0; q < count; ++q) {
            const double square = squared_norm_in_double(rows + q * features, features);
            if (!RowBatch::in_range(square) || !keeps_digits(square, metric)) continue;
            usable.insert(usable.end(), rows + q * features, rows + (q + 1) * features);
            places.push_back(first + q);
        }
        count = places.size();
        if (count == 0) return;
        batch.prepare(usable.data(), count);
        std::vector<Query> queries;
        std::vector<float> weights, offsets(count);
        std::vector<double> bounds(count);
        for (std::size_t q = 0; q < count; ++q) {
            queries.push_back(prepared(batch, q, metric));
            const Query& query = queries.back();
            weights.insert(weights.end(), query.weights.begin(), query.weights.end());
            if (metric == Metric::cosine)
                offsets[q] = static_cast<float>(is_own(metric) ? -query.square / 2 : query.constant);
            bounds[q] = bound(query, directions + 16);
        }
        CloseItems close(count, hits.k, items.count);
        ScannedFormat::Decoded decoded(format_, simd);
        estimate(weights, offsets, bounds, items, metric, close, decoded, simd);
        std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;  // queries and items
        for (std::uint32_t q = 0; q < count; ++q)
            if (close.usable(q)) {
                done[places[q]] = true;
                for (const auto& [estimate, item] : close.of(q)) pairs.emplace_back(q, item);
            }
        std::vector<float> vectors(kCodes * directions);
        std::vector<RankedItem> ranked;
        Reader reader(*this, items, metric, simd);
        for (std::size_t pair = 0; pair < pairs.size(); ++pair) {
            if (pair % kCodes == 0) {
                const std::size_t many = std::min(kCodes, pairs.size() - pair);
                decode(
                    Block(*this, many, false, [&](std::size_t i) { return items.positions[pairs[pair + i].second]; }),
                    decoded);
                for (std::size_t i = 0; i < 2; ++i)
                    decoded.panels[i].unpack(Panel::kRows, vectors.data() + i * Panel::kRows * directions);
            }
            const auto [q, item] = pairs[pair];
            reader.take(vectors.data() + pair % kCodes * directions);
            ranked.push_back(ranked_item(reader.distance(queries[q]), items.ids[item]));
            if (pair + 1 < pairs.size() && pairs[pair + 1].first == q) continue;
            hits.add(places[q], ranked);
            ranked.clear();
        }
    }

    // Decodes and estimates all items, in the terms of `distance`.
    void estimate(const std::vector<float>& weights, const std::vector<float>& offsets,
                  const std::vector<double>& bounds, const Items& items, Metric metric, CloseItems& close,
                  ScannedFormat::Decoded& decoded, Simd simd) const {
        constexpr std::size_t most = BlockEstimates::kItems;
        static_assert(most % kCodes == 0);
        const bool own = is_own(metric);
        const std::size_t room = std::min(most, (items.count + kCodes - 1) / kCodes * kCodes);
        BlockEstimates estimates(weights.data(), offsets.size(), projection_.count, room, simd);
        for (std::size_t first = 0; first < items.count; first += most) {
            const std::size_t size = std::min(most, items.count - first);
            for (std::size_t at = 0; at < size; at += kCodes) {
                const Block block(*this, std::min(kCodes, size - at), metric == Metric::cosine,
                                  [&](std::size_t i) { return items.positions[first + at + i]; });
                for (std::size_t i = 0; i < kCodes; ++i) {
                    const float square = block.squares[i], norm = metric == Metric::cosine ? block.norms[i] : 1,
                                excess = norm - 1;
                    estimates.scales[at + i] = metric == Metric::cosine ? -2 / norm : own ? -2 : -1;
                    estimates.shifts[at + i] = !own                       ? 0
                                               : metric == Metric::cosine ? (square - excess * excess) / norm
                                                                          : square;
                }
                decode(block, decoded);
                for (std::size_t i = 0; i < 2 && at + i * Panel::kRows < size; ++i)
                    estimates.multiply(at + i * Panel::kRows, decoded.panels[i]);
            }
            estimates.collect(size, offsets.data(), bounds.data(), close);
        }
    }

    const RowProjection& projection_;
    const ScannedFormat& format_;
    const std::vector<ScannedCodes> runs_;
    std::vector<std::size_t> ends_;  // of the runs
    double largest_ = 0;             // at least the norm of any part of a sum that decodes a code
    float shortest_ = std::numeric_limits<float>::infinity(), longest_ = 0;
    std::vector<double> mean_;  // (directions): coefficients of the mean
    double mean_square_ = 0;
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
