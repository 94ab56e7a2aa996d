// Search by vectors, from rows of floats to ids and distances, nearest first:
//
//     row ──▶ L2-normalized, projected ──▶ candidates by inverted lists and graphs ──▶ reranked ──▶ top k
//
// Nothing but the rows changes between two searches of a snapshot, so a search allocates little and takes no other
// input. It serves searches by the coder's own metric. Candidates are estimated by 4-bit fast-scan or ADC (search.hpp)
// and by walks on graphs (graph_search.hpp), and reranked by stored vectors or by what their codes decode to.
#pragma once

#include <atomic>
#include <memory>
#include <numeric>
#include <optional>
#include <variant>

#include "adc.hpp"
#include "bit_plane_panels.hpp"
#include "bit_plane_sums.hpp"
#include "graph_search.hpp"
#include "prefix_tables.hpp"
#include "rerank.hpp"
#include "residual_quantizer.hpp"
#include "scalar_quantizer.hpp"
#include "scan.hpp"

namespace nestcode {

// The inverted lists' centroids, as a search ranks them, and the scorer of their items: fast-scan where there are
// groups, else ADC.
struct ListScoring {
    std::size_t coarse, fine;  // how many parts: a centroid is the sum of a coarse and a fine one
    ProjectionBlocks fine_parts;
    const float* coarse_offsets;  // (coarse): added to the products of queries around the mean
    const float* scales;          // (coarse, fine)
    const float* shifts;          // (coarse, fine)
    const std::vector<FastScanGroup>* groups = nullptr;
    const float* norms = nullptr;    // (coarse): of the centroids, for fast-scan
    const float* parents = nullptr;  // (parents, directions)
    std::size_t parent_count = 0;
    std::size_t bytes = 0;  // of a code, for ADC
    std::optional<ProjectionBlocks> codebooks = {};
};

// What the whole codes decode to, in the directions of the projection: bit planes around centroids, or sums of codebook
// entries.
struct CoefficientDecoder {
    std::size_t directions;
    const float* centroids = nullptr;  // (2^centroid_bits, directions)
    int centroid_bits = 0;
    const std::int32_t* allocation = nullptr;
    std::size_t bits = 0;
    ReconstructionLevels levels = {};
    const float* codebooks = nullptr;   // (bytes, 256, directions); null for bit planes
    DirectionBits direction_bits = {};  // of bit planes

    void operator()(Rows codes, float* out) const {
        if (codebooks != nullptr) {
            std::fill_n(out, codes.count * directions, 0.0f);
            return sum_codebook_entries(codes, codebooks, directions, out, 1);
        }
        decode_bit_planes(codes, allocation, bits, static_cast<std::size_t>(centroid_bits), levels, out, 1);
        if (centroid_bits == 0) return;
        for (std::size_t i = 0; i < codes.count; ++i) {
            const std::uint64_t centroid = load_big_endian(codes[i], codes.bytes) >> (64 - centroid_bits);
            for (std::size_t d = 0; d < directions; ++d)
                out[i * directions + d] += centroids[centroid * directions + d];
        }
    }
};

using CoarseParts = std::variant<ProjectionBlocks, HalfProjectionBlocks>;

// The projection of a coder: coefficients are inner products of directions with rows around the mean.
struct RowProjection {
    Metric metric;                      // l2 or cosine
    const double* mean;                 // (features)
    const float* directions;            // (directions, features): orthonormal
    std::size_t count;                  // of directions
    std::size_t used;                   // leading directions that searches project on
    ProjectionBlocks blocks;            // those, and the coarse parts of centroids, in features
    std::optional<CoarseParts> coarse;  // or these in leading directions in use, which are fewer than features
    ProjectionBlocks complement;        // an orthonormal basis of all vectors outside of the directions, or none
    const float* mean_coefficients;     // (directions): of the mean itself
    float mean_square;                  // its squared norm in all features
    float mean_outside;                 // and outside of the directions

    std::size_t features() const { return blocks.features; }
    std::size_t coarse_count() const {  // padded
        return coarse ? std::visit([](const auto& parts) { return parts.count(); }, *coarse) : blocks.count() - used;
    }
};

// Queries prepared a batch at a time, so that the directions are read once for all of them.
class RowBatch {
  public:
    static constexpr std::size_t kBatch = 16;

    RowBatch(const RowProjection& projection, std::size_t count, Simd simd)
        : RowBatch(projection, count, simd, project_kernel(simd)) {}

    RowBatch(const RowProjection& projection, std::size_t count, Simd simd, ProjectKernel project)
        : projection_(projection),
          project_(project),
          project_halves_(project_kernel<Half>(simd)),
          features_(count * projection.features()),
          centered_(features_.size()),
          products_(count * projection.blocks.count()),
          coarse_(projection.coarse ? count * projection.coarse_count() : 0),
          mean_products_(count),
          squares_(count) {}

    // Prepares rows, (count, features); returns false if one of them is better left to float64: a zero row has no
    // direction, and squares of the largest and smallest floats leave their range.
    template <class Real>
    bool prepare(const Real* rows, std::size_t count) {
        const std::size_t width = projection_.features();
        for (std::size_t q = 0; q < count; ++q) {
            const Real* row = rows + q * width;
            const double norm = squares_[q] =
                sum_in_double(width, [=](std::size_t f) { return static_cast<double>(row[f]) * row[f]; });
            const double product = sum_in_double(width, [&](std::size_t f) { return row[f] * projection_.mean[f]; });
            if (!(norm > 1e-24 && norm < 1e24)) return false;
            const double scale = projection_.metric == Metric::cosine ? 1 / std::sqrt(norm) : 1;
            for (std::size_t f = 0; f < width; ++f) {
                features_[q * width + f] = static_cast<float>(scale * row[f]);
                centered_[q * width + f] = static_cast<float>(scale * row[f] - projection_.mean[f]);
            }
            mean_products_[q] = scale * product;
        }
        project_(projection_.blocks, centered_.data(), count, products_.data());
        if (projection_.coarse) std::visit([&](const auto& parts) { project_on(parts, count); }, *projection_.coarse);
        return true;
    }

    const float* features(std::size_t q) const { return features_.data() + q * projection_.features(); }
    const float* centered(std::size_t q) const { return centered_.data() + q * projection_.features(); }
    // Those of the directions in use.
    const float* coefficients(std::size_t q) const { return products_.data() + q * projection_.blocks.count(); }
    const float* coarse_products(std::size_t q) const {
        return projection_.coarse ? coarse_.data() + q * projection_.coarse_count()
                                  : coefficients(q) + projection_.used;
    }
    float mean_product(std::size_t q) const { return static_cast<float>(mean_products_[q]); }
    double mean_product_in_double(std::size_t q) const { return mean_products_[q]; }
    double square(std::size_t q) const { return squares_[q]; }  // squared norm of the row as it was given

    // The squared distance of a query to the span of the directions.
    float outside(std::size_t q) const {
        if (projection_.count >= projection_.features()) return 0;  // there is nothing else
        const std::size_t width = projection_.features();
        if (projection_.complement.blocks != 0) {
            std::vector<float> products(projection_.complement.count());
            project_(projection_.complement, centered(q), 1, products.data());
            return std::inner_product(products.begin(), products.end(), products.begin(), 0.0f);
        }
        std::vector<float> rest(centered_.begin() + static_cast<std::ptrdiff_t>(q * width),
                                centered_.begin() + static_cast<std::ptrdiff_t>((q + 1) * width));
        std::size_t d = 0;
        for (; d + 4 <= projection_.count; d += 4) {  // four at once read and write the rest once
            const float *own = coefficients(q) + d, *first = projection_.directions + d * width;
            for (std::size_t f = 0; f < width; ++f)
                rest[f] -= own[0] * first[f] + own[1] * first[width + f] + own[2] * first[2 * width + f] +
                           own[3] * first[3 * width + f];
        }
        for (; d < projection_.count; ++d)
            for (std::size_t f = 0; f < width; ++f)
                rest[f] -= coefficients(q)[d] * projection_.directions[d * width + f];
        float sum = 0;
        for (const float value : rest) sum += value * value;
        return sum;
    }

  private:
    // Multiplies the leading coefficients with the coarse parts of centroids.
    template <class Element>
    void project_on(const BlocksOf<Element>& parts, std::size_t count) {
        leading_.resize(count * parts.features);
        for (std::size_t q = 0; q < count; ++q)
            std::copy_n(coefficients(q), parts.features, leading_.data() + q * parts.features);
        if constexpr (std::is_same_v<Element, Half>)
            project_halves_(parts, leading_.data(), count, coarse_.data());
        else
            project_(parts, leading_.data(), count, coarse_.data());
    }

    const RowProjection& projection_;
    const ProjectKernel project_;
    const ProjectKernelOf<Half> project_halves_;
    std::vector<float> features_, centered_, products_, coarse_, leading_;
    std::vector<double> mean_products_, squares_;
};

// A snapshot as searches read it. Positions count through all runs: those in inverted lists, then those with graphs.
struct SearchedSnapshot {
    const RowProjection* projection;
    const ListScoring* scoring = nullptr;  // where there are lists
    std::span<const InvertedLists> segments = {};
    std::span<const std::uint32_t> list_sizes = {};
    std::vector<SearchedGraph> graphs = {};
    std::vector<IdColumn> ids = {};               // of each run
    std::vector<std::size_t> ends = {};           // of each run's positions
    const VectorRuns* vectors = nullptr;          // what candidates are reranked by,
    const CoefficientDecoder* decoder = nullptr;  // or what their codes decode to
    std::vector<Rows> codes = {};                 // of each run, for the decoder

    std::vector<ChecksumGuard*> code_guards = {};  // of codes that are mapped from files; null in memory

    // Whether a checksum failed in what was read so far.
    bool damaged() const {
        const auto failed = [](const ChecksumGuard* guard) { return guard != nullptr && guard->first_damaged() >= 0; };
        return (vectors != nullptr && vectors->damaged()) || std::ranges::any_of(code_guards, failed) ||
               std::ranges::any_of(ids, [&](const IdColumn& own) { return failed(own.guard()); }) ||
               std::ranges::any_of(segments, [](const InvertedLists& lists) { return lists.guards.damaged(); });
    }

    std::pair<std::size_t, std::size_t> find(std::size_t position) const {
        const auto run = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), position) - ends.begin());
        return {run, position - (run == 0 ? 0 : ends[run - 1])};
    }
    std::int64_t id_at(std::size_t position) const {
        const auto [run, own] = find(position);
        return ids[run][own];
    }
};

struct RowBudget {
    std::size_t k;         // hits
    std::uint64_t lists;   // candidates in inverted lists
    std::size_t graphs;    // candidates of a walk
    std::size_t reranked;  // candidates reranked, of the lists and of each graph
};

// Searches on one thread, batch by batch.
class RowSearch {
  public:
    RowSearch(const SearchedSnapshot& snapshot, const RowBudget& budget, std::size_t count, Simd simd)
        : snapshot_(snapshot),
          budget_(budget),
          simd_(simd),
          batch_(*snapshot.projection, std::min(count, RowBatch::kBatch), simd) {
        if (snapshot.vectors != nullptr) sums_.emplace(*snapshot.vectors, metric(), simd);
        const std::size_t from_graphs = std::min<std::size_t>(budget.reranked, budget.graphs);
        columns_ = snapshot.scoring != nullptr ? budget.reranked : 0;
        for (const SearchedGraph& graph : snapshot.graphs) {
            graph_columns_.push_back(graph.has_vectors() ? budget.k : from_graphs);
            columns_ += graph_columns_.back();
        }
    }

    // Writes the hits of rows, (count, features), at most kBatch of them; returns false if they are not to be trusted.
    template <class Real>
    bool search(const Real* rows, std::size_t count, std::int64_t* ids, float* distances, std::int64_t* compared) {
        if (!batch_.prepare(rows, count)) return false;
        scores_.resize(count * columns_);
        positions_.resize(count * columns_);
        visited_.resize(count);
        std::fill_n(compared, count, 0);
        std::size_t column = 0;
        const auto results = [&](std::size_t k) {
            return SearchResults{k, scores_.data() + count * column, positions_.data() + count * column,
                                 visited_.data()};
        };
        const auto add_visited = [&] {
            for (std::size_t q = 0; q < count; ++q) compared[q] += visited_[q];
        };
        if (snapshot_.scoring != nullptr) {
            estimate_lists(count, results(budget_.reranked));
            add_visited();
            column += budget_.reranked;
        }
        for (std::size_t g = 0; g < snapshot_.graphs.size(); ++g) {
            snapshot_.graphs[g].search(metric(), batch_.features(0), count, budget_.graphs, results(graph_columns_[g]),
                                       simd_);
            add_visited();
            column += graph_columns_[g];
        }
        for (std::size_t q = 0; q < count; ++q) {
            gather(q, count);
            rerank(q);
            // Distances that exceed float32 come in no order.
            constexpr float largest = std::numeric_limits<float>::max();
            if (!std::ranges::all_of(near_, [](float distance) { return distance < largest; })) return false;
            select_top_k(near_.data(), ids_.data(), false, 1, ids_.size(), budget_.k, distances + q * budget_.k,
                         ids + q * budget_.k, 1);
        }
        return true;
    }

  private:
    Metric metric() const { return snapshot_.projection->metric; }

    void estimate_lists(std::size_t count, const SearchResults& results) {
        const ListScoring& scoring = *snapshot_.scoring;
        const RowProjection& projection = *snapshot_.projection;
        const bool by_angle = metric() == Metric::cosine;
        coarse_.resize(count * scoring.coarse);
        offsets_.assign(count, 0);
        const std::size_t dims = scoring.fine_parts.features;
        fine_rows_.resize(count * dims);
        fine_.resize(count * scoring.fine_parts.count());
        estimating_.assign(count * projection.count, 0);
        for (std::size_t q = 0; q < count; ++q) {
            const float *coefficients = batch_.coefficients(q), *products = batch_.coarse_products(q);
            for (std::size_t c = 0; c < scoring.coarse; ++c)
                coarse_[q * scoring.coarse + c] = products[c] + scoring.coarse_offsets[c];
            if (by_angle) offsets_[q] = batch_.mean_product(q);
            for (std::size_t d = 0; d < dims; ++d)
                fine_rows_[q * dims + d] = coefficients[d] + (by_angle ? projection.mean_coefficients[d] : 0);
            std::copy_n(coefficients, projection.used, estimating_.data() + q * projection.count);
        }
        project_kernel(simd_)(scoring.fine_parts, fine_rows_.data(), count, fine_.data());
        const std::size_t stride = scoring.fine_parts.count();  // padded
        if (stride != scoring.fine)
            for (std::size_t q = 1; q < count; ++q)
                std::copy_n(fine_.data() + q * stride, scoring.fine, fine_.data() + q * scoring.fine);
        const CentroidDistances centroids{coarse_.data(), fine_.data(),   offsets_.data(), scoring.scales,
                                          scoring.shifts, scoring.coarse, scoring.fine};
        if (scoring.groups != nullptr) return fastscan(count, centroids, results);
        adc(count, centroids, results);
    }

    void fastscan(std::size_t count, const CentroidDistances& centroids, const SearchResults& results) const {
        const ListScoring& scoring = *snapshot_.scoring;
        const RowProjection& projection = *snapshot_.projection;
        float bias_unit = 0;
        for (const InvertedLists& lists : snapshot_.segments) bias_unit = std::max(bias_unit, lists.blocks.bias_unit);
        const bool by_angle = metric() == Metric::cosine;
        const FastScanKernel kernel = fastscan_kernel(simd_);
        const TableKernels tables = table_kernels(simd_);
        const int shift = std::countr_zero(scoring.coarse) - std::countr_zero(scoring.parent_count);
        nestcode::search(snapshot_.segments, snapshot_.list_sizes, count, budget_.lists, std::countr_zero(scoring.fine),
                         results, 1, centroids, [&](std::size_t q) {
                             return FastScanScorer{kernel,
                                                   tables,
                                                   scoring.groups,
                                                   estimating_.data() + q * projection.count,
                                                   projection.count,
                                                   scoring.parents,
                                                   shift,
                                                   bias_unit,
                                                   metric(),
                                                   centroids.coarse_products + q * scoring.coarse,
                                                   scoring.norms,
                                                   by_angle ? projection.mean_square - 2 * batch_.mean_product(q) : 0};
                         });
    }

    void adc(std::size_t count, const CentroidDistances& centroids, const SearchResults& results) {
        const ListScoring& scoring = *snapshot_.scoring;
        for (float& value : estimating_) value *= -2;
        tables_.resize(count * scoring.codebooks->count());
        project_kernel(simd_)(*scoring.codebooks, estimating_.data(), count, tables_.data());
        nestcode::search(snapshot_.segments, snapshot_.list_sizes, count, budget_.lists, 0, results, 1, centroids,
                         [&](std::size_t q) {
                             return AdcScorer{tables_.data() + q * scoring.codebooks->count(), scoring.bytes, metric()};
                         });
    }

    // Collects the positions and ids of a query's candidates, and the distances that a walk computed from the same
    // float16; the others are NaN.
    void gather(std::size_t q, std::size_t count) {
        ids_.clear();
        found_.clear();
        near_.clear();
        std::size_t column = 0;
        const auto take = [&](std::size_t many, std::uint32_t offset, bool compared) {
            const std::size_t first = count * column + q * many;
            for (std::size_t i = first; i < first + many && positions_[i] != UINT32_MAX; ++i) {
                const std::uint32_t position = positions_[i] + offset;
                found_.push_back(position);
                ids_.push_back(snapshot_.id_at(position));
                near_.push_back(compared ? std::max(scores_[i], 0.0f) : std::numeric_limits<float>::quiet_NaN());
                if (compared) snapshot_.vectors->touch(position);
            }
            column += many;
        };
        if (snapshot_.scoring != nullptr) take(budget_.reranked, 0, false);
        for (std::size_t g = 0; g < snapshot_.graphs.size(); ++g)
            take(graph_columns_[g], snapshot_.graphs[g].offset,
                 snapshot_.vectors != nullptr && snapshot_.graphs[g].halves != nullptr);
    }

    void rerank(std::size_t q) {
        if (snapshot_.decoder != nullptr) return rerank_codes(q);
        order_.clear();
        for (std::size_t i = 0; i < found_.size(); ++i)
            if (std::isnan(near_[i])) order_.push_back(static_cast<std::int64_t>(i));
        const auto own = [&](std::size_t i) { return static_cast<std::size_t>(order_[i]); };
        (*sums_)(
            batch_.features(q), order_.size(), [&](std::size_t i) { return found_[own(i)]; },
            [&](std::size_t i, const RowSums& sums) {
                near_[own(i)] = metric() == Metric::l2 ? sums.norm : cosine_distance(q, found_[own(i)], sums);
            });
    }

    float cosine_distance(std::size_t q, std::size_t position, const RowSums& sums) {
        if (sums.norm > 1e-30f && sums.norm < 1e30f) return std::max(2 - 2 * sums.product / std::sqrt(sums.norm), 0.0f);
        return cosine_distance_in_double(batch_.features(q), sums_->row(position), snapshot_.vectors->features, {}, 0);
    }

    void rerank_codes(std::size_t q) {
        if (!rerank_bit_planes(q)) rerank_decoded(q);
    }

    // Ranks codes without decoding them, and returns false where that is not possible.
    bool rerank_bit_planes(std::size_t q) {
        const RowProjection& projection = *snapshot_.projection;
        const CoefficientDecoder& decoder = *snapshot_.decoder;
        const BitPlaneKernel kernel = bit_plane_kernel(simd_);
        if (kernel == nullptr || decoder.codebooks != nullptr || decoder.centroid_bits != 0) return false;
        const bool by_angle = metric() == Metric::cosine;
        const std::size_t bytes = snapshot_.codes.front().bytes;
        const float* coefficients = batch_.coefficients(q);
        around_zero_.resize(decoder.directions);
        float product = batch_.mean_product(q);
        for (std::size_t d = 0; d < decoder.directions; ++d) {
            around_zero_[d] = by_angle ? coefficients[d] + projection.mean_coefficients[d] : -coefficients[d];
            product -= around_zero_[d] * projection.mean_coefficients[d];
        }
        const ShiftedQuery query{around_zero_.data(), by_angle ? projection.mean_coefficients : around_zero_.data()};
        const float outside = by_angle ? projection.mean_outside : batch_.outside(q);
        packed_.resize(bytes * kLanes);
        for (std::size_t first = 0; first < found_.size(); first += kLanes) {
            const std::size_t many = std::min(kLanes, found_.size() - first);
            for (std::size_t i = 0; i < many; ++i) {
                const std::uint8_t* code = code_of(found_[first + i]);
                for (std::size_t b = 0; b < bytes; ++b) packed_[b * kLanes + i] = code[b];
            }
            float products[kLanes], norms[kLanes];
            kernel(packed_.data(), decoder.direction_bits, decoder.levels, query, products, norms);
            for (std::size_t i = 0; i < many; ++i) {
                const float norm = norms[i] + outside;
                if (by_angle && !(norm > 1e-30f && norm < 1e30f)) return false;
                near_[first + i] = by_angle ? std::max(2 - 2 * (products[i] + product) / std::sqrt(norm), 0.0f) : norm;
            }
        }
        return true;
    }

    const std::uint8_t* code_of(std::size_t position) const {
        const auto [run, own] = snapshot_.find(position);
        const std::uint8_t* code = snapshot_.codes[run][own];
        if (snapshot_.code_guards[run] != nullptr)
            snapshot_.code_guards[run]->touch(code, snapshot_.codes.front().bytes);
        return code;
    }

    void rerank_decoded(std::size_t q) {
        const RowProjection& projection = *snapshot_.projection;
        const CoefficientDecoder& decoder = *snapshot_.decoder;
        const std::size_t many = found_.size(), directions = decoder.directions;
        const std::size_t bytes = snapshot_.codes.front().bytes;
        packed_.resize(many * bytes);
        for (std::size_t i = 0; i < many; ++i) std::copy_n(code_of(found_[i]), bytes, packed_.data() + i * bytes);
        decoded_.resize(many * directions);
        decoder({packed_.data(), many, bytes, static_cast<std::ptrdiff_t>(bytes)}, decoded_.data());
        const float* coefficients = batch_.coefficients(q);
        if (metric() == Metric::l2) {
            const float outside = batch_.outside(q);
            for (std::size_t i = 0; i < many; ++i)
                near_[i] = squared_distance(coefficients, decoded_.data() + i * directions, directions) + outside;
            return;
        }
        around_zero_.resize(directions);
        float product = batch_.mean_product(q);
        for (std::size_t d = 0; d < directions; ++d) {
            around_zero_[d] = coefficients[d] + projection.mean_coefficients[d];
            product -= around_zero_[d] * projection.mean_coefficients[d];
        }
        order_.resize(many);
        for (std::size_t i = 0; i < many; ++i) order_[i] = static_cast<std::int64_t>(i);
        nestcode::rerank(MatrixReader{decoded_.data(), directions}, around_zero_.data(), 1, order_.data(), many,
                         Metric::cosine, {projection.mean_coefficients, projection.mean_outside, &product},
                         near_.data(), 1);
    }

    const SearchedSnapshot& snapshot_;
    const RowBudget& budget_;
    const Simd simd_;
    RowBatch batch_;
    std::optional<VectorSums> sums_;
    std::size_t columns_;
    std::vector<std::size_t> graph_columns_;
    std::vector<float> scores_, coarse_, offsets_, fine_rows_, fine_, estimating_, tables_, near_, decoded_,
        around_zero_;
    std::vector<std::uint32_t> positions_, found_;
    std::vector<std::int64_t> visited_, ids_, order_;
    std::vector<std::uint8_t> packed_;
};

// Writes the k nearest items of each row, (count, k), nearest first, and how many items each was compared with. Returns
// false, with nothing to be trusted, if a row takes float64, distances exceed float32, or what was read is damaged.
template <class Real>
bool search_rows(const SearchedSnapshot& snapshot, const RowBudget& budget, const Real* rows, std::size_t count,
                 std::int64_t* ids, float* distances, std::int64_t* compared, Simd simd, std::size_t threads) {
    std::atomic<bool> done = true;
    const std::size_t features = snapshot.projection->features();
    parallel_for(count, 1, threads, [&](std::size_t begin, std::size_t end) {
        RowSearch search(snapshot, budget, end - begin, simd);
        for (std::size_t q = begin; q < end && done; q += RowBatch::kBatch)
            if (!search.search(rows + q * features, std::min(RowBatch::kBatch, end - q), ids + q * budget.k,
                               distances + q * budget.k, compared + q))
                done = false;
    });
    return done && !snapshot.damaged();
}

// Items that may be found, as lookup tables over all bits of their codes score them.
struct ScannedCodes {
    Rows indices;                             // of the tables' entries, a byte each
    const std::int64_t* centroids = nullptr;  // null without a coarse quantizer
    const float* squares = nullptr;           // squared norms of the coefficients
    const float* norms = nullptr;             // of what codes decode to in features, the mean included
};

// What ranks codes: lookup tables, or levels that their regrouped bits select.
struct ScanTables {
    RegroupedBits bits;
    const float* entries;  // (bytes, most, 256): levels by byte
    double operations;     // how many roundings an inner product goes through at most
};

// Exhaustive search of codes, exact in two passes as that of vectors (scan.hpp).
class CodeScan {
  public:
    CodeScan(const SearchedSnapshot& snapshot, const ScanTables& tables, std::span<const ScannedCodes> runs,
             const std::int64_t* ids)
        : snapshot_(snapshot),
          tables_(tables),
          runs_(runs),
          ids_(ids),
          decoder_(tables.bits, snapshot.decoder->levels) {
        float largest = 0;
        for (const ScannedCodes& run : runs) {
            count_ += run.indices.count;
            ends_.push_back(count_);
            for (std::size_t i = 0; i < run.indices.count; ++i) {
                shortest_ = std::min(shortest_, run.norms[i]);
                longest_ = std::max(longest_, run.norms[i]);
                largest = std::max(largest, run.squares[i]);
            }
        }
        const RowProjection& projection = *snapshot.projection;
        const double* mean = projection.mean;
        const std::size_t features = projection.features();
        mean_square_ = sum_in_double(features, [=](std::size_t f) { return mean[f] * mean[f]; });
        for (std::size_t d = 0; d < projection.count; ++d) {
            const float* direction = projection.directions + d * features;
            mean_.push_back(sum_in_double(features, [=](std::size_t f) { return mean[f] * direction[f]; }));
        }
        const CoefficientDecoder& decoder = *snapshot.decoder;
        const std::size_t centroids = decoder.centroid_bits == 0 ? 0 : std::size_t{1} << decoder.centroid_bits;
        double longest = 0;  // of the centroids
        for (std::size_t c = 0; c < centroids; ++c) {
            const float* centroid = decoder.centroids + c * projection.count;
            mean_products_.push_back(
                sum_in_double(projection.count, [&](std::size_t d) { return mean_[d] * centroid[d]; }));
            longest = std::max(longest, squared_norm(centroid, projection.count));
        }
        largest_ = std::sqrt(static_cast<double>(largest)) * (1 + 0x1p-10) + 2 * std::sqrt(longest);
    }

    // Writes the k nearest items of a row, or returns false where that takes a batch in float64. The metric is that of
    // the projection, or any for l2.
    template <class Real>
    bool search(const Real* row, Metric metric, std::size_t k, float* top_distances, std::int64_t* top_ids, Simd simd,
                std::size_t threads) const {
        const RowProjection& projection = *snapshot_.projection;
        RowBatch batch(projection, 1, simd);
        if (!batch.prepare(row, 1) || !keeps_digits(batch, 0, metric)) return false;
        const Query query =
            metric == projection.metric ? around_mean(batch, 0, outside(batch, 0)) : around_zero(batch, 0, metric);
        std::vector<float> estimates;
        estimate(batch, query, metric, estimates, simd, threads);
        const auto exact = [&](const std::vector<std::size_t>& close, double* out) {
            std::vector<float> decoded(projection.count);
            for (const std::size_t item : close) {
                const auto [run, at] = find(item);
                decoder_.decode(run->indices[at], decoded.data());
                const float* const own = centroid(*run, at);
                for (std::size_t d = 0; d < projection.count && own != nullptr; ++d) decoded[d] += own[d];
                *out++ = distance(query, batch.coefficients(0), decoded.data(), metric);
            }
        };
        const double roundings = tables_.operations + 2 * static_cast<double>(projection.features());
        return rank_by_estimates(estimates, bound(query, roundings), 0, ids_, k, top_distances, top_ids, exact);
    }

    // Writes the k nearest items of each row, (count, k), or returns false where that takes a batch in float64, and for
    // other instruction sets than AVX-512: there BLAS multiplies.
    template <class Real>
    bool search_batch(const Real* rows, std::size_t count, Metric metric, std::size_t k, float* top_distances,
                      std::int64_t* top_ids, Simd simd, std::size_t threads) const {
#if NESTCODE_X86
        if (simd != Simd::avx512) return false;
        constexpr std::size_t most = 256;  // rows at once
        const std::size_t features = snapshot_.projection->features();
        std::atomic<bool> done = true;
        parallel_for(count, 12, threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t q = begin; q < end && done; q += most)
                if (!search_together(rows + q * features, std::min(most, end - q), metric, k, top_distances + q * k,
                                     top_ids + q * k))
                    done = false;
        });
        return done;
#else
        return false;
#endif
    }

  private:
    struct Query {
        std::vector<double> weights;  // (directions): what decoded coefficients are multiplied by
        double scale = 1;             // of the row's own coefficients in them
        double constant = 0;  // the squared distance to the span of the directions; or the product with the mean
        double square = 0;    // of the row around the mean
        double reach = 0;     // the magnitude that rounding errors are relative to
    };

    // A row as squared distances of coefficients take it: of the l2 metric, or of the cosine of L2-normalized items.
    Query around_mean(const RowBatch& batch, std::size_t q, double outside) const {
        const RowProjection& projection = *snapshot_.projection;
        Query query{{batch.coefficients(q), batch.coefficients(q) + projection.count}, 1, outside};
        query.square = squared_norm(query.weights.data(), projection.count) + query.constant;
        const double longest = std::sqrt(query.square) + largest_;
        query.reach = longest * longest;
        if (projection.metric == Metric::l2) return query;
        query.reach += (longest_ + 1.0) * (longest_ + 1.0) + projection.mean_square;
        query.reach /= std::min<double>(shortest_, static_cast<double>(shortest_) * shortest_);  // infinite for 0
        return query;
    }

    // Whether coefficients around the mean tell those around zero: float32 loses rows that are far shorter than it.
    bool keeps_digits(const RowBatch& batch, std::size_t q, Metric metric) const {
        return metric == snapshot_.projection->metric || 256 * batch.square(q) >= mean_square_;
    }

    // A row as inner products take it, L2-normalized for the cosine, where items are not.
    Query around_zero(const RowBatch& batch, std::size_t q, Metric metric) const {
        const RowProjection& projection = *snapshot_.projection;
        Query query;
        const double norm = std::sqrt(batch.square(q));
        if (metric == Metric::cosine) query.scale = 1 / norm;
        query.constant = query.scale * batch.mean_product_in_double(q);
        for (std::size_t d = 0; d < projection.count; ++d)
            query.weights.push_back(query.scale * (batch.coefficients(q)[d] + mean_[d]));
        const double length = query.scale * (2 * norm + std::sqrt(mean_square_));
        query.reach = length * largest_;
        if (metric == Metric::cosine) query.reach = 2 * (length + 1) * (largest_ + std::sqrt(mean_square_)) / shortest_;
        return query;
    }

    // The squared distance of a row to the span of the directions: a difference of squares where it cancels little.
    double outside(const RowBatch& batch, std::size_t q) const {
        const RowProjection& projection = *snapshot_.projection;
        const double square = squared_norm(batch.centered(q), projection.features());
        const double rest = square - squared_norm(batch.coefficients(q), projection.count);
        return rest > square / 16 ? rest : batch.outside(q);
    }

    template <class Real>
    static double squared_norm(const Real* values, std::size_t count) {
        return sum_in_double(count, [=](std::size_t i) { return static_cast<double>(values[i]) * values[i]; });
    }

    // What the errors of estimates are at most, given how many roundings a product goes through.
    static double bound(const Query& query, double roundings) { return 2 * roundings * kUnit * query.reach; }

    // The run of an item, and its place there.
    std::pair<const ScannedCodes*, std::size_t> find(std::size_t item) const {
        const auto run = static_cast<std::size_t>(std::ranges::upper_bound(ends_, item) - ends_.begin());
        return {&runs_[run], item - (run == 0 ? 0 : ends_[run - 1])};
    }

    const float* centroid(const ScannedCodes& run, std::size_t at) const {
        if (run.centroids == nullptr) return nullptr;
        return snapshot_.decoder->centroids + static_cast<std::size_t>(run.centroids[at]) * snapshot_.projection->count;
    }

#if NESTCODE_X86
    static constexpr std::size_t kCodes = RegroupedDecoder::kCodes;

    // Codes decoded 64 at a time.
    struct Decoded {
        RegroupedDecoder::Words words;
        Panel panels[2];

        Decoded(const RegroupedDecoder& decoder, std::size_t directions)
            : words(decoder), panels{Panel(directions), Panel(directions)} {}
    };

    // Decodes `count` items, at most 64; item_at(i) returns the run and the place of one.
    template <class ItemAt>
    void decode(std::size_t count, const ItemAt& item_at, Decoded& out) const {
        const std::uint8_t* codes[kCodes];
        const float* centroids[kCodes];
        for (std::size_t i = 0; i < kCodes; ++i) {
            const auto [run, at] = item_at(std::min(i, count - 1));  // the last one fills up
            codes[i] = run->indices[at];
            centroids[i] = centroid(*run, at);
        }
        out.words.read(codes);
        decoder_.decode(out.words, centroids[0] == nullptr ? nullptr : centroids, out.panels);
    }

    template <class Real>
    NESTCODE_AVX512 bool search_together(const Real* rows, std::size_t count, Metric metric, std::size_t k,
                                         float* top_distances, std::int64_t* top_ids) const {
        const RowProjection& projection = *snapshot_.projection;
        const std::size_t directions = projection.count;
        RowBatch batch(projection, count, Simd::avx512, project_many);
        if (!batch.prepare(rows, count)) return false;
        const bool own = metric == projection.metric;
        std::vector<Query> queries;
        std::vector<float> weights(count * directions), offsets(count);
        std::vector<double> bounds(count);
        for (std::size_t q = 0; q < count; ++q) {
            if (!keeps_digits(batch, q, metric)) return false;
            queries.push_back(own ? around_mean(batch, q, outside(batch, q)) : around_zero(batch, q, metric));
            const Query& query = queries.back();
            std::copy(query.weights.begin(), query.weights.end(), weights.data() + q * directions);
            if (metric == Metric::cosine) offsets[q] = static_cast<float>(own ? -query.square / 2 : query.constant);
            bounds[q] = bound(query, static_cast<double>(directions) + 16);
        }
        CloseItems close(count, k, count_);
        Decoded decoded(decoder_, directions);
        estimate(weights, offsets, bounds, metric, close, decoded);
        std::vector<std::int64_t> counts(count);
        close.count(counts.data());
        if (std::ranges::count(counts, 0) != 0) return false;
        std::vector<std::int64_t> items(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0l)));
        close.write(items.data());
        std::vector<double> distances(items.size());
        std::vector<float> vectors(kCodes * directions);
        for (std::size_t pair = 0, q = 0, left = static_cast<std::size_t>(counts[0]); pair < items.size(); ++pair) {
            if (pair % kCodes == 0) {
                const std::size_t many = std::min(kCodes, items.size() - pair);
                decode(many, [&](std::size_t i) { return find(static_cast<std::size_t>(items[pair + i])); }, decoded);
                for (std::size_t i = 0; i < 2; ++i)
                    decoded.panels[i].unpack(Panel::kRows, vectors.data() + i * Panel::kRows * directions);
            }
            for (; left == 0; left = static_cast<std::size_t>(counts[q])) ++q;
            --left;
            distances[pair] =
                distance(queries[q], batch.coefficients(q), vectors.data() + pair % kCodes * directions, metric);
        }
        close.rank(distances.data(), ids_, top_distances, top_ids);
        return true;
    }

    // Decodes and estimates all items, in the terms of `distance`.
    void estimate(const std::vector<float>& weights, const std::vector<float>& offsets,
                  const std::vector<double>& bounds, Metric metric, CloseItems& close, Decoded& decoded) const {
        constexpr std::size_t most = BlockEstimates::kItems;
        const bool own = metric == snapshot_.projection->metric;
        BlockEstimates estimates(weights.data(), offsets.size(), snapshot_.projection->count, std::min(most, count_));
        for (const ScannedCodes& run : runs_)
            for (std::size_t first = 0; first < run.indices.count; first += most) {
                const std::size_t size = std::min(most, run.indices.count - first);
                for (std::size_t i = 0; i < size; ++i) {
                    const float square = run.squares[first + i], norm = run.norms[first + i], excess = norm - 1;
                    estimates.scales[i] = metric == Metric::cosine ? -2 / norm : own ? -2 : -1;
                    estimates.shifts[i] = !own                       ? 0
                                          : metric == Metric::cosine ? (square - excess * excess) / norm
                                                                     : square;
                }
                for (std::size_t at = 0; at < size; at += kCodes) {
                    decode(
                        std::min(kCodes, size - at), [&](std::size_t i) { return std::pair(&run, first + at + i); },
                        decoded);
                    for (std::size_t i = 0; i < 2 && at + i * Panel::kRows < size; ++i)
                        estimates.multiply(at + i * Panel::kRows, decoded.panels[i]);
                }
                estimates.collect(size, offsets.data(), bounds.data(), close);
            }
    }

    // Writes the inner products of a row and of what the codes of a run decode to, without their centroids.
    void multiply(const ScannedCodes& run, const std::vector<double>& row, double factor, float* out,
                  std::size_t threads) const {
        std::vector<float> weights(row.size());
        for (std::size_t d = 0; d < row.size(); ++d) weights[d] = static_cast<float>(factor * row[d]);
        const std::size_t count = run.indices.count;
        parallel_for((count + kCodes - 1) / kCodes, 64, threads, [&](std::size_t begin, std::size_t end) {
            RegroupedDecoder::Words words(decoder_);
            const std::uint8_t* codes[kCodes];
            float products[kCodes];
            for (std::size_t first = begin * kCodes; first < std::min(end * kCodes, count); first += kCodes) {
                const std::size_t many = std::min(kCodes, count - first);
                for (std::size_t i = 0; i < kCodes; ++i) codes[i] = run.indices[first + std::min(i, many - 1)];
                words.read(codes);
                decoder_.multiply(words, weights.data(), products);
                std::copy_n(products, many, out + first);
            }
        });
    }
#endif

    // Writes the 256 sums of a byte's levels: those of its lowest bits, then of one direction more at a time.
    void fill_table(std::size_t byte, const std::vector<double>& weights, double factor, float* table) const {
        table[0] = 0;
        std::size_t size = 1;
        for (std::size_t j = tables_.bits.most; j-- != 0;) {
            const std::size_t slot = byte * tables_.bits.most + j, levels = std::size_t{1} << tables_.bits.depths[slot];
            const auto weight =
                static_cast<float>(factor * weights[static_cast<std::size_t>(tables_.bits.directions[slot])]);
            for (std::size_t level = levels; level-- != 0;) {
                const float value = weight * tables_.entries[slot * 256 + level * size];
                for (std::size_t i = 0; i < size; ++i) table[level * size + i] = table[i] + value;
            }
            size *= levels;
        }
        for (; size < 256; size *= 2) std::copy_n(table, size, table + size);
    }

    void estimate(const RowBatch& batch, const Query& query, Metric metric, std::vector<float>& out, Simd simd,
                  std::size_t threads) const {
        const bool own = metric == snapshot_.projection->metric;
        const double factor = own ? -2 : -1;
        const std::size_t bytes = tables_.bits.bytes;
        std::vector<float> tables(simd == Simd::avx512 ? 0 : bytes * 256);
        for (std::size_t b = 0; b < tables.size() / 256; ++b)
            fill_table(b, query.weights, factor, tables.data() + b * 256);
        std::vector<float> centroids;
        for (std::size_t c = 0; c < mean_products_.size(); ++c) {
            const double product = batch.coarse_products(0)[c] + (own ? 0 : mean_products_[c]);
            centroids.push_back(static_cast<float>(factor * query.scale * product));
        }
        for (const ScannedCodes& run : runs_) {
            const std::size_t first = out.size(), count = run.indices.count;
            out.resize(first + count);
            float* products = out.data() + first;
#if NESTCODE_X86
            if (simd == Simd::avx512) multiply(run, query.weights, factor, products, threads);
#endif
            if (simd != Simd::avx512) sum_lookup_tables(run.indices, tables.data(), 1, products, threads);
            if (run.centroids != nullptr)
                for (std::size_t i = 0; i < count; ++i)
                    products[i] += centroids[static_cast<std::size_t>(run.centroids[i])];
            if (own)
                for (std::size_t i = 0; i < count; ++i) products[i] += run.squares[i];
            if (metric != Metric::cosine) continue;
            const auto shift = static_cast<float>(own ? query.square : -query.constant);
            for (std::size_t i = 0; i < count; ++i) {
                const float excess = run.norms[i] - 1, sum = products[i] + shift;
                products[i] = own ? (sum - excess * excess) / run.norms[i] : 2 + 2 * sum / run.norms[i];
            }
        }
    }

    [[gnu::always_inline]] double distance(const Query& query, const float* coefficients, const float* decoded,
                                           Metric metric) const {
        return metric == snapshot_.projection->metric ? distance(coefficients, decoded, query.constant)
                                                      : distance_around_zero(query, decoded, metric);
    }

    // The distance of a query to a decoded code in float64; angles are those of squared distances, as inner products
    // differ too little where all items point the same way.
    [[gnu::always_inline]] double distance(const float* coefficients, const float* decoded, double outside) const {
        const RowProjection& projection = *snapshot_.projection;
        const double distance = outside + sum_in_double(projection.count, [=](std::size_t d) {
                                    const double difference = static_cast<double>(coefficients[d]) - decoded[d];
                                    return difference * difference;
                                });
        if (projection.metric == Metric::l2) return distance;
        const float* mean = projection.mean_coefficients;  // [=] would copy all of the projection
        const double square = projection.mean_square + sum_in_double(projection.count, [=](std::size_t d) {
                                  return decoded[d] * (decoded[d] + 2.0 * mean[d]);
                              });
        const double norm = std::sqrt(std::max(square, 0.0));
        return norm > 0 ? std::max(distance - (norm - 1) * (norm - 1), 0.0) / norm : 2;
    }

    // The negative inner product, or 2 - 2 cos of it.
    [[gnu::always_inline]] double distance_around_zero(const Query& query, const float* decoded, Metric metric) const {
        const double product = query.constant + sum_in_double(query.weights.size(), [&](std::size_t d) {
                                   return query.weights[d] * decoded[d];
                               });
        if (metric == Metric::inner) return -product;
        const double square = mean_square_ + sum_in_double(mean_.size(), [&](std::size_t d) {
                                  return decoded[d] * (decoded[d] + 2 * mean_[d]);
                              });
        return square > 0 ? std::max(2 - 2 * product / std::sqrt(square), 0.0) : 2;
    }

    const SearchedSnapshot& snapshot_;
    const ScanTables tables_;
    const std::span<const ScannedCodes> runs_;
    const std::int64_t* ids_;
    const RegroupedDecoder decoder_;
    std::size_t count_ = 0;
    std::vector<std::size_t> ends_;  // of the runs
    double largest_ = 0;             // at least the norm of any part of a sum that decodes a code
    float shortest_ = std::numeric_limits<float>::infinity(), longest_ = 0;
    std::vector<double> mean_;           // (directions): coefficients of the mean
    std::vector<double> mean_products_;  // (centroids): inner products of the mean with the centroids
    double mean_square_ = 0;
};

}  // namespace nestcode
