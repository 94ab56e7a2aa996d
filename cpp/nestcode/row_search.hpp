// Search by vectors or codes, from queries to ids and distances, nearest first:
//
//     query ──▶ L2-normalized, projected ──▶ candidates by inverted lists and graphs ──▶ reranked ──▶ top k
//
// Candidates are estimated by 4-bit fast-scan, ADC or Hamming distance in inverted lists (search.hpp) and by walks on
// graphs (graph_search.hpp). They are reranked by stored vectors, by what their codes decode to, or by the caller, who
// is called with positions and returns distances; without any of these, estimates are final.
//
// More lists are probed, walks go on and more candidates are reranked as long as many of the nearest ones were found
// late. So coarse codes cost time and not recall. All work of a query is counted: before it costs more than a scan of
// all allowed items, the search is given up for that scan.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <variant>

#include "adc.hpp"
#include "bit_plane_sums.hpp"
#include "graph_search.hpp"
#include "hamming.hpp"
#include "late_hits.hpp"
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
    Metric metric;                      // of the search
    bool normalized;                    // whether the coder L2-normalizes items
    double unit;                        // the norm that queries of the cosine are scaled to for estimates: an item's
    const double* mean;                 // (features)
    const float* directions;            // (directions, features): orthonormal
    std::size_t count;                  // of directions
    std::size_t used;                   // leading directions that searches project on
    ProjectionBlocks blocks;            // those, and the coarse parts of centroids, in features
    std::optional<CoarseParts> coarse;  // or these in leading directions in use, which are fewer than features
    ProjectionBlocks complement;        // an orthonormal basis of all vectors outside of the directions, or none
    const float* mean_coefficients;     // (directions): of the mean itself
    float mean_square;                  // its squared norm in all features
    const double* mean_rest;            // (features): the part of the mean outside of the directions
    double rest_norm;                   // its norm, 0 for squared distances, which are around the mean

    std::size_t features() const { return blocks.features; }

    // How far a row, (features), reaches in the direction of the mean outside of the directions.
    template <class Real>
    double along_rest(const Real* row) const {
        if (rest_norm == 0) return 0;
        return sum_in_double(features(), [&](std::size_t f) { return row[f] * mean_rest[f]; }) / rest_norm;
    }
    std::size_t coarse_count() const {  // padded
        return coarse ? std::visit([](const auto& parts) { return parts.count(); }, *coarse) : blocks.count() - used;
    }
};

// Queries prepared a batch at a time, so that the directions are read once for all of them.
class RowBatch {
  public:
    static constexpr std::size_t kBatch = 16;
    static constexpr double kLargestSquare = 1e37;  // of a row whose distances fit float32

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

    // Prepares rows, (count, features); returns false if one of them is not finite, or distances to it exceed float32.
    template <class Real>
    bool prepare(const Real* rows, std::size_t count) {
        const std::size_t width = projection_.features();
        for (std::size_t q = 0; q < count; ++q) {
            const Real* row = rows + q * width;
            squares_[q] = sum_in_double(width, [=](std::size_t f) { return static_cast<double>(row[f]) * row[f]; });
            const double product = sum_in_double(width, [&](std::size_t f) { return row[f] * projection_.mean[f]; });
            double scale = 1, centering = 1;
            if (projection_.metric == Metric::cosine) {
                const double norm = std::sqrt(squares_[q]);
                if (!(norm > 1e-140 && norm < 1e140) && norm != 0) return false;
                scale = norm > 0 ? 1 / norm : 0;
            } else if (!(squares_[q] < kLargestSquare)) {
                return false;
            }
            if (projection_.metric == Metric::inner) centering = 0;
            const double estimated = scale * projection_.unit;
            for (std::size_t f = 0; f < width; ++f) {
                features_[q * width + f] = static_cast<float>(scale * row[f]);
                centered_[q * width + f] = static_cast<float>(estimated * row[f] - centering * projection_.mean[f]);
            }
            mean_products_[q] = estimated * product;
        }
        project_(projection_.blocks, centered_.data(), count, products_.data());
        if (projection_.coarse) std::visit([&](const auto& parts) { project_on(parts, count); }, *projection_.coarse);
        return true;
    }

    static bool in_range(double square) { return square > 1e-24 && square < 1e24; }

    const float* features(std::size_t q) const { return features_.data() + q * projection_.features(); }
    const float* centered(std::size_t q) const { return centered_.data() + q * projection_.features(); }
    // Those of the directions in use.
    const float* coefficients(std::size_t q) const { return products_.data() + q * projection_.blocks.count(); }
    const float* coarse_products(std::size_t q) const {
        return projection_.coarse ? coarse_.data() + q * projection_.coarse_count()
                                  : coefficients(q) + projection_.used;
    }
    float mean_product(std::size_t q) const { return static_cast<float>(mean_products_[q]); }
    double square(std::size_t q) const { return squares_[q]; }  // squared norm of the row as it was given

    // A query in the coordinates of what codes decode to: those of the directions, and the part of the mean outside of
    // them; around the mean for squared distances, where that part is 0.
    std::vector<double> coordinates(std::size_t q) const {
        std::vector<double> values(coefficients(q), coefficients(q) + projection_.count);
        if (projection_.metric == Metric::cosine)  // coefficients are around the mean
            for (std::size_t d = 0; d < values.size(); ++d) values[d] += projection_.mean_coefficients[d];
        values.push_back(projection_.along_rest(centered(q)) +
                         (projection_.metric == Metric::cosine ? projection_.rest_norm : 0));
        return values;
    }

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
    const RowProjection* projection = nullptr;  // null where queries are codes, which lists compare by Hamming distance
    const ListScoring* scoring = nullptr;       // where there are lists
    std::vector<SearchedGraph> graphs = {};
    std::vector<IdColumn> ids = {};               // of each run
    std::vector<std::size_t> ends = {};           // of each run's positions
    const VectorRuns* vectors = nullptr;          // what candidates are reranked by,
    const CoefficientDecoder* decoder = nullptr;  // or what their codes decode to; or neither
    std::vector<Rows> codes = {};                 // of each run, for the decoder and for queries that are codes

    std::vector<ChecksumGuard*> code_guards = {};  // of codes that are mapped from files; null in memory

    // Whether a checksum failed in what was read so far.
    bool damaged() const {
        const auto failed = [](const ChecksumGuard* guard) { return guard != nullptr && guard->first_damaged() >= 0; };
        return (vectors != nullptr && vectors->damaged()) || std::ranges::any_of(code_guards, failed) ||
               std::ranges::any_of(graphs, [](const SearchedGraph& graph) { return graph.damaged(); }) ||
               std::ranges::any_of(ids, [&](const IdColumn& own) { return failed(own.guard()); });
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

// The items of a snapshot that a search may return.
struct Selection {
    std::vector<InvertedLists> segments = {};                 // with their bitmaps
    std::vector<std::uint32_t> list_sizes = {};               // allowed items of each list, in all segments
    std::vector<std::span<const std::uint64_t>> graphs = {};  // the bitmap of each; empty where all are allowed

    bool damaged() const {
        return std::ranges::any_of(segments, [](const InvertedLists& lists) { return lists.guards.damaged(); });
    }
};

// What a search may do, and what that costs.
struct RowBudget {
    std::size_t k;              // hits
    std::uint64_t listed;       // candidates in inverted lists
    std::uint64_t most_listed;  // where these were not enough
    std::size_t graphs;         // candidates of a walk
    bool widens;                // whether a walk continues if that kept too few
    std::size_t reranked;       // candidates that are reranked, of the lists and of each graph
    bool reranks_more;          // where that is not enough
    double most_ns;             // of all work: before it costs more, a query is given up
    double ns_per_estimated, ns_per_candidate, ns_per_visited, ns_per_reranked;

    // The cost of keeping the best of some estimates in random order: each one that is among the best so far.
    double ns_of_keeping(std::uint64_t estimated, std::size_t kept) const {
        const auto all = static_cast<double>(estimated), best = static_cast<double>(kept);
        return ns_per_candidate * (all <= best ? all : best * (1 + std::log(all / best)));
    }

    // How many items of this cost are left of the budget.
    std::size_t left(double spent, double ns_per_item) const {
        const double count = std::max(most_ns - spent, 0.0) / ns_per_item;
        return count < 0x1p62 ? static_cast<std::size_t>(count) : SIZE_MAX / 2;
    }
};

// The results of queries, in their order.
struct RowHits {
    std::int64_t* ids;        // (queries, k), nearest first
    float* distances;         // (queries, k)
    std::int64_t* compared;   // items that a query was compared with, kGivenUp where a scan takes less
    double* spent = nullptr;  // ns of a query's work, if they are wanted

    RowHits from(std::size_t query, std::size_t k) const {
        return {ids + query * k, distances + query * k, compared + query, spent == nullptr ? nullptr : spent + query};
    }
};

// Ranks items by what only the caller has: writes the distances from some queries to `many` positions each, of which
// those that are UINT32_MAX are none.
using Reranker = std::function<void(std::span<const std::size_t> queries, std::size_t many,
                                    const std::uint32_t* positions, float* distances)>;

// The candidates of a query that were chosen to be reranked: from graphs, then from lists.
struct Ranking {
    std::vector<std::uint32_t> positions;
    std::vector<std::int64_t> ids;
    std::vector<float> distances;      // NaN until they are reranked
    std::vector<std::size_t> ranks;    // by estimate, of those from lists
    std::vector<std::size_t> pending;  // those to rerank now
    std::size_t from_graphs = 0;
    std::size_t taken = 0, sampled = 0;  // up to which ranks all and every kSampled-th candidate was chosen
    // What they are chosen from: the items of least estimate in the lists that hold `listed` items.
    std::uint64_t listed = 0;
    std::size_t columns = 0;  // of these, that are all reranked
    std::span<const float> estimates;
    std::span<const std::uint32_t> listed_positions;
    const float* list_distances = nullptr;
    float half_way = 0;                                 // a distance that the lists of half of the budget do not exceed
    std::vector<float> wide_estimates, wide_distances;  // where more were estimated than at first
    std::vector<std::uint32_t> wide_positions;

    // Drops all candidates but the first ones, which are those from graphs.
    void keep(std::size_t count) {
        ids.resize(count);
        positions.resize(count);
        distances.resize(count);
        ranks.resize(count);
        taken = sampled = 0;
    }
};

// Searches on one thread, batch by batch:
//
//     begin(queries) ──▶ next(q): which candidates to rerank ──▶ rerank(q), or put(q) by the caller ─┐
//                          ▲                                                                         │
//                          └──────── until the nearest candidates come early, then finish(q) ◀───────┘
class RowSearch {
  public:
    // Of `count` queries at a time. `reranks` tells whether candidates are reranked.
    RowSearch(const SearchedSnapshot& snapshot, const Selection& selection, const RowBudget& budget, std::size_t count,
              bool reranks, Simd simd)
        : snapshot_(snapshot), selection_(selection), budget_(budget), reranks_(reranks), simd_(simd) {
        if (!reranks) {
            budget_.reranked = budget.k;
            budget_.reranks_more = false;
        }
        if (snapshot.projection != nullptr)
            batch_.emplace(*snapshot.projection, std::min(count, RowBatch::kBatch), simd);
        if (snapshot.vectors != nullptr) sums_.emplace(*snapshot.vectors, metric(), simd);
        const std::size_t from_graphs = std::min<std::size_t>(budget_.reranked, budget.graphs);
        if (!selection.segments.empty()) list_columns_ = columns_to_keep(budget_.reranked);
        columns_ = list_columns_;
        for (const SearchedGraph& graph : snapshot.graphs) {
            graph_columns_.push_back(graph.vectors != nullptr ? budget.k : from_graphs);
            columns_ += graph_columns_.back();
        }
    }

    // Finds the candidates of at most kBatch queries: rows, (count, features), or codes; returns false if a row is not
    // finite, or distances to it exceed float32.
    template <class Query>
    bool begin(const Query* queries, std::size_t count, const RowHits& hits) {
        if constexpr (std::is_same_v<Query, std::uint8_t>) {
            const std::size_t bytes = snapshot_.codes.front().bytes;
            codes_ = {queries, count, bytes, static_cast<std::ptrdiff_t>(bytes)};
        } else if (!batch_->prepare(queries, count)) {
            return false;
        }
        count_ = count;
        hits_ = hits;
        find(count, hits.compared);
        return true;
    }

    // Chooses the first candidates of a query.
    void start(std::size_t q, Ranking& own) const {
        own.pending.clear();
        own.listed = budget_.listed;
        own.columns = budget_.reranked;
        own.estimates = {scores_.data() + q * list_columns_, list_columns_};
        own.listed_positions = {positions_.data() + q * list_columns_, list_columns_};
        own.list_distances = list_distances_.data() + q * selection_.list_sizes.size();
        if (list_columns_ != 0) own.half_way = half_way_[q];
        take_from_graphs(q, own);
        take_listed(own);
    }

    // Returns whether there are candidates to rerank now, and pays for them. If not, the query is done, or given up.
    bool next(std::size_t q, Ranking& own) {
        for (const std::size_t i : own.pending)  // of damaged values: NaN would be reranked again and again
            if (std::isnan(own.distances[i])) own.distances[i] = std::numeric_limits<float>::infinity();
        while (hits_.compared[q] != kGivenUp) {
            own.pending.clear();
            for (std::size_t i = 0; i < own.distances.size(); ++i)
                if (std::isnan(own.distances[i])) own.pending.push_back(i);
            const std::size_t many = own.pending.size();
            if (many == 0 && !goes_on(q, own)) return false;
            if (many == 0) continue;
            if (budget_.left(spent_[q], budget_.ns_per_reranked) < many) break;
            spent_[q] += budget_.ns_per_reranked * static_cast<double>(many);
            return true;
        }
        hits_.compared[q] = kGivenUp;
        return false;
    }

    // Computes the distances of the candidates to rerank.
    void rerank(std::size_t q, Ranking& own) {
        if (snapshot_.decoder != nullptr) return rerank_codes(q, own);
        const auto position = [&](std::size_t i) { return own.positions[own.pending[i]]; };
        const float* const query = batch_->features(q);
        (*sums_)(query, own.pending.size(), position, [&](std::size_t i, const RowSums& sums) {
            const bool fits = metric() != Metric::cosine || (sums.norm > kLeastSquare && sums.norm < kLargestSquare);
            const float* const row = fits ? nullptr : sums_->row(position(i));
            own.distances[own.pending[i]] = distance_of(metric(), sums, query, row, snapshot_.vectors->features);
        });
    }

    // Writes the hits of a query, unless it was given up; returns false if they are not to be trusted.
    bool finish(std::size_t q, const Ranking& own) const {
        if (hits_.spent != nullptr) hits_.spent[q] = spent_[q];
        if (hits_.compared[q] == kGivenUp) return true;
        // Distances that exceed float32 come in no order.
        constexpr float largest = std::numeric_limits<float>::max();
        if (!std::ranges::all_of(own.distances, [](float distance) { return distance < largest; })) return false;
        const RowHits hits = hits_.from(q, budget_.k);
        select_top_k(own.distances.data(), own.ids.data(), false, 1, own.ids.size(), budget_.k, hits.distances,
                     hits.ids, 1);
        return true;
    }

  private:
    Metric metric() const { return snapshot_.projection->metric; }

    // Finds the candidates of all queries: those of least estimated distance.
    void find(std::size_t count, std::int64_t* compared) {
        scores_.resize(count * columns_);
        positions_.resize(count * columns_);
        visited_.resize(count);
        passed_.resize(count);
        spent_.assign(count, 0);
        std::fill_n(compared, count, 0);
        if (!selection_.segments.empty()) {
            list_distances_.resize(count * selection_.list_sizes.size());
            half_way_.assign(count, std::numeric_limits<float>::infinity());
            estimate_lists(0, count, budget_.listed,
                           {list_columns_, scores_.data(), positions_.data(), compared, list_distances_.data(),
                            half_way_.data(), passed_.data()});
            in_lists_.assign(compared, compared + count);
        }
        std::size_t column = list_columns_;
        for (std::size_t g = 0; g < snapshot_.graphs.size(); column += graph_columns_[g++]) {
            const SearchedGraph& graph = snapshot_.graphs[g];
            most_visited_.resize(count);
            for (std::size_t q = 0; q < count; ++q)
                most_visited_[q] = compared[q] == kGivenUp ? 0 : budget_.left(spent_[q], budget_.ns_per_visited);
            graph.search(metric(), batch_->features(0), count, budget_.graphs, {most_visited_, budget_.widens},
                         {selection_.graphs[g], graph.duplicates},
                         {graph_columns_[g], scores_.data() + count * column, positions_.data() + count * column,
                          visited_.data(), nullptr, nullptr, passed_.data()},
                         simd_);
            for (std::size_t q = 0; q < count; ++q) {
                spent_[q] += budget_.ns_per_visited * static_cast<double>(passed_[q]);
                compared[q] = std::min(compared[q], visited_[q]) == kGivenUp ? kGivenUp : compared[q] + visited_[q];
            }
        }
    }

    // Writes the best of queries `first` to `first + count` by inverted lists with this number of candidates.
    void estimate_lists(std::size_t first, std::size_t count, std::uint64_t candidates, const SearchResults& results) {
        const double keeping = budget_.ns_of_keeping(candidates, results.k);
        const ListBudget budget{candidates, budget_.left(spent_[first] + keeping, budget_.ns_per_estimated)};
        if (snapshot_.projection == nullptr)
            hamming(first, count, budget, results);
        else
            estimate_rows(first, count, budget, results);
        for (std::size_t q = 0; q < count; ++q)
            if (results.compared[q] != kGivenUp)
                spent_[first + q] += keeping + budget_.ns_per_estimated * static_cast<double>(results.passed[q]);
    }

    void hamming(std::size_t first, std::size_t count, const ListBudget& budget, const SearchResults& results) const {
        const HammingKernel kernel = hamming_kernel(simd_);
        const Rows codes = codes_.slice(first, first + count);
        probe(count, 0, PrefixHammingDistances{codes, std::countr_zero(selection_.list_sizes.size())}, budget, results,
              [&](std::size_t q) { return HammingScorer{kernel, codes[q]}; });
    }

    void estimate_rows(std::size_t first, std::size_t count, const ListBudget& budget, const SearchResults& results) {
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
            const float *coefficients = batch_->coefficients(first + q), *products = batch_->coarse_products(first + q);
            for (std::size_t c = 0; c < scoring.coarse; ++c)
                coarse_[q * scoring.coarse + c] = products[c] + scoring.coarse_offsets[c];
            if (by_angle) offsets_[q] = batch_->mean_product(first + q);
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
        if (scoring.groups != nullptr)
            fastscan(first, count, centroids, budget, results);
        else
            adc(count, centroids, budget, results);
    }

    template <class Centroids, class ScorerOf>
    void probe(std::size_t count, int fine_bits, const Centroids& centroids, const ListBudget& budget,
               const SearchResults& results, const ScorerOf& scorer_of) const {
        nestcode::search(selection_.segments, selection_.list_sizes, count, budget, fine_bits, results, 1, centroids,
                         scorer_of);
    }

    void fastscan(std::size_t first, std::size_t count, const CentroidDistances& centroids, const ListBudget& budget,
                  const SearchResults& results) const {
        const ListScoring& scoring = *snapshot_.scoring;
        const RowProjection& projection = *snapshot_.projection;
        float bias_unit = 0;
        for (const InvertedLists& lists : selection_.segments) bias_unit = std::max(bias_unit, lists.blocks.bias_unit);
        const FastScanKernel kernel = fastscan_kernel(simd_);
        const TableKernels tables = table_kernels(simd_);
        const int shift = std::countr_zero(scoring.coarse) - std::countr_zero(scoring.parent_count);
        probe(count, std::countr_zero(scoring.fine), centroids, budget, results, [&](std::size_t q) {
            return FastScanScorer{
                kernel,
                tables,
                scoring.groups,
                estimating_.data() + q * projection.count,
                projection.count,
                metric() == Metric::inner ? nullptr : scoring.parents,
                shift,
                bias_unit,
                metric(),
                centroids.coarse_products + q * scoring.coarse,
                scoring.norms,
                projection.normalized ? projection.mean_square - 2 * batch_->mean_product(first + q) : 0};
        });
    }

    void adc(std::size_t count, const CentroidDistances& centroids, const ListBudget& budget,
             const SearchResults& results) {
        const ListScoring& scoring = *snapshot_.scoring;
        for (float& value : estimating_) value *= -2;
        tables_.resize(count * scoring.codebooks->count());
        project_kernel(simd_)(*scoring.codebooks, estimating_.data(), count, tables_.data());
        probe(count, 0, centroids, budget, results, [&](std::size_t q) {
            return AdcScorer{tables_.data() + q * scoring.codebooks->count(), scoring.bytes, metric()};
        });
    }

    // Chooses more candidates of a query, or candidates of more lists, while many of the nearest come late; returns
    // false where they do not.
    bool goes_on(std::size_t q, Ranking& own) {
        const std::size_t lists = selection_.list_sizes.size(), room = own.estimates.size();
        if (!budget_.reranks_more || room == 0) return false;
        const bool all = own.listed_positions.back() == UINT32_MAX;  // candidates of these lists
        if ((!all && (ends_in_ties(own.estimates) || may_hide(own))) ||
            many_late(own, 0, [&](std::size_t i) { return own.ranks[i] < own.columns; })) {
            own.columns *= kWiden;
            if (all || columns_to_keep(own.columns, kAhead / kWiden) <= room) {
                take_listed(own);
                return true;
            }
        } else if (own.listed < budget_.most_listed && lists > 1 && many_late(own, kLateProbed, [&](std::size_t i) {
                       return i < own.from_graphs || own.list_distances[list_of(own.positions[i])] <= own.half_way;
                   })) {
            own.listed *= kProbe;
            own.keep(own.from_graphs);
        } else {
            return false;
        }
        return estimate_more(q, own);
    }

    // Estimates a query's lists again, of which there are more, or more candidates are kept. Gives the query up where
    // that would exceed the budget.
    bool estimate_more(std::size_t q, Ranking& own) {
        const std::size_t room = columns_to_keep(own.columns);
        own.wide_estimates.resize(room);
        own.wide_positions.resize(room);
        own.wide_distances.resize(selection_.list_sizes.size());
        std::int64_t again = 0;
        estimate_lists(q, 1, own.listed,
                       {room, own.wide_estimates.data(), own.wide_positions.data(), &again, own.wide_distances.data(),
                        &own.half_way, passed_.data()});
        if (again == kGivenUp) {
            hits_.compared[q] = kGivenUp;
            return false;
        }
        hits_.compared[q] += again - in_lists_[q];
        in_lists_[q] = again;
        own.estimates = own.wide_estimates;
        own.listed_positions = own.wide_positions;
        own.list_distances = own.wide_distances.data();
        for (std::size_t i = own.from_graphs; i < own.positions.size(); ++i)
            if (own.wide_positions[own.ranks[i]] != own.positions[i])  // others of equal estimates
                own.keep(own.from_graphs);
        take_listed(own);
        return true;
    }

    // How many estimates are kept where `columns` are reranked: those that the sample is drawn from. Beyond what the
    // budget reranks few are of use.
    std::size_t columns_to_keep(std::size_t columns, std::size_t ahead = kAhead) const {
        if (!budget_.reranks_more) return columns;
        const std::size_t most = budget_.left(0, budget_.ns_per_reranked);
        const std::size_t kept = std::min(ahead * columns, std::max(kWiden * columns, most));
        return std::max(columns, static_cast<std::size_t>(std::min<std::uint64_t>(kept, budget_.most_listed)));
    }

    // Whether the errors of estimates may hide nearer items behind the last one that is kept.
    bool may_hide(const Ranking& own) {
        if (snapshot_.projection == nullptr) return false;  // Hamming distances have another scale
        const double unit = snapshot_.projection->unit;     // of estimates by angle
        const double scale = metric() == Metric::l2 ? 1
                             : metric() == Metric::inner
                                 ? 0.5
                                 : 1 / (snapshot_.scoring->groups != nullptr ? unit : unit * unit);
        estimated_.clear();
        for (std::size_t i = own.from_graphs; i < own.ranks.size(); ++i)
            estimated_.push_back(own.estimates[own.ranks[i]]);
        return may_hide_nearer(estimated_, std::span(own.distances).subspan(own.from_graphs), own.estimates.back(),
                               scale, budget_.k, sorted_);
    }

    template <class Early>
    bool many_late(const Ranking& own, double share, const Early& early) {
        return finds_many_late(own.distances, budget_.k, share, early, sorted_);
    }

    // The inverted list of an item.
    std::size_t list_of(std::uint32_t position) const {
        const InvertedLists* lists = &selection_.segments.front();
        for (const InvertedLists& one : selection_.segments)
            if (one.offset <= position && position < one.offset + one.codes.count) lists = &one;
        const std::uint32_t* const last = lists->starts + selection_.list_sizes.size() + 1;
        return static_cast<std::size_t>(std::upper_bound(lists->starts, last, position - lists->offset) -
                                        lists->starts) -
               1;
    }

    static void take(Ranking& own, std::uint32_t position, std::int64_t id, float distance, std::size_t rank = 0) {
        own.positions.push_back(position);
        own.ids.push_back(id);
        own.distances.push_back(distance);
        own.ranks.push_back(rank);
    }

    // The distance of a candidate that was not reranked.
    float unranked(float estimate) const { return reranks_ ? std::numeric_limits<float>::quiet_NaN() : estimate; }

    // Chooses a query's candidates from graphs, with the distances that a walk computed from the same float16.
    void take_from_graphs(std::size_t q, Ranking& own) const {
        own.keep(0);
        std::size_t column = list_columns_;
        for (std::size_t g = 0; g < snapshot_.graphs.size(); column += graph_columns_[g++]) {
            const SearchedGraph& graph = snapshot_.graphs[g];
            const bool compared = snapshot_.vectors != nullptr && graph.compares_halves();
            const std::size_t first = count_ * column + q * graph_columns_[g];
            for (std::size_t i = first; i < first + graph_columns_[g] && positions_[i] != UINT32_MAX; ++i) {
                const std::uint32_t position = positions_[i] + graph.offset;
                take(own, position, snapshot_.id_at(position),
                     compared ? std::max(scores_[i], 0.0f) : unranked(scores_[i]));
                if (compared) snapshot_.vectors->touch(position);
            }
        }
        own.from_graphs = own.positions.size();
    }

    // Chooses candidates from lists that were not chosen before: the first ones, and a sample of the others.
    void take_listed(Ranking& own) const {
        const std::size_t room = own.estimates.size();
        const auto take_at = [&](std::size_t rank) {
            const std::uint32_t position = own.listed_positions[rank];
            if (position != UINT32_MAX)
                take(own, position, snapshot_.id_at(position), unranked(own.estimates[rank]), rank);
        };
        for (; own.taken < std::min(own.columns, room); ++own.taken)
            if (own.taken >= own.sampled || own.taken % kSampled != 0) take_at(own.taken);
        own.sampled = std::max(own.sampled, (own.taken + kSampled - 1) / kSampled * kSampled);
        for (; own.sampled < room; own.sampled += kSampled) take_at(own.sampled);
    }

    // Those to rerank are the last ones.
    void rerank_codes(std::size_t q, Ranking& own) {
        const std::vector<double> coordinates = batch_->coordinates(q);
        const bool by_angle = metric() == Metric::cosine;
        const double scale = !by_angle ? 1 : batch_->square(q) == 0 ? 0 : 1 / snapshot_.projection->unit;
        query_.resize(coordinates.size());
        for (std::size_t d = 0; d < query_.size(); ++d) query_[d] = static_cast<float>(scale * coordinates[d]);
        const auto mean = static_cast<float>(snapshot_.projection->rest_norm);
        const RowSums outside{query_.back() * mean, metric() == Metric::l2 ? batch_->outside(q) : mean * mean};
        if (!rerank_bit_planes(own, outside)) rerank_decoded(own, outside);
    }

    // Ranks codes without decoding them, and returns false where that is not possible.
    bool rerank_bit_planes(Ranking& own, RowSums outside) {
        const CoefficientDecoder& decoder = *snapshot_.decoder;
        const BitPlaneKernel kernel = bit_plane_kernel(simd_);
        if (kernel == nullptr || decoder.codebooks != nullptr || decoder.centroid_bits != 0) return false;
        const std::size_t bytes = snapshot_.codes.front().bytes;
        shifts_.assign(snapshot_.projection->mean_coefficients,
                       snapshot_.projection->mean_coefficients + decoder.directions);
        for (std::size_t d = 0; d < decoder.directions && metric() == Metric::l2; ++d) shifts_[d] = -query_[d];
        packed_.resize(bytes * kLanes);
        for (std::size_t first = own.pending[0]; first < own.positions.size(); first += kLanes) {
            const std::size_t many = std::min(kLanes, own.positions.size() - first);
            for (std::size_t i = 0; i < many; ++i) {
                const std::uint8_t* code = code_of(own.positions[first + i]);
                for (std::size_t b = 0; b < bytes; ++b) packed_[b * kLanes + i] = code[b];
            }
            float products[kLanes], norms[kLanes];
            kernel(packed_.data(), decoder.direction_bits, decoder.levels, {query_.data(), shifts_.data()}, products,
                   norms);
            for (std::size_t i = 0; i < many; ++i) {
                const float square = norms[i] + outside.norm;
                if (metric() == Metric::cosine && !(square > kLeastSquare && square < kLargestSquare)) return false;
                own.distances[first + i] = distance_of(metric(), {products[i], norms[i]}, nullptr, nullptr, 0, outside);
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

    void rerank_decoded(Ranking& own, RowSums outside) {
        const CoefficientDecoder& decoder = *snapshot_.decoder;
        const std::size_t many = own.pending.size(), directions = decoder.directions;
        const std::size_t bytes = snapshot_.codes.front().bytes;
        packed_.resize(many * bytes);
        for (std::size_t i = 0; i < many; ++i)
            std::copy_n(code_of(own.positions[own.pending[i]]), bytes, packed_.data() + i * bytes);
        decoded_.resize(many * directions);
        decoder({packed_.data(), many, bytes, static_cast<std::ptrdiff_t>(bytes)}, decoded_.data());
        const float* const mean = snapshot_.projection->mean_coefficients;
        const auto sums_of =
            metric() == Metric::l2 ? row_sums_kernel<float, true>(simd_) : row_sums_kernel<float, false>(simd_);
        for (std::size_t i = 0; i < many; ++i) {
            float* const row = decoded_.data() + i * directions;
            for (std::size_t d = 0; d < directions && metric() != Metric::l2; ++d) row[d] += mean[d];
            own.distances[own.pending[i]] =
                distance_of(metric(), sums_of(query_.data(), row, directions), query_.data(), row, directions, outside);
        }
    }

    const SearchedSnapshot& snapshot_;
    const Selection& selection_;
    RowBudget budget_;
    const bool reranks_;
    const Simd simd_;
    std::optional<RowBatch> batch_;  // of rows
    Rows codes_ = {};                // or the queries' codes
    std::optional<VectorSums> sums_;
    RowHits hits_ = {};
    std::size_t count_ = 0, columns_ = 0, list_columns_ = 0;
    std::vector<std::size_t> graph_columns_;
    std::vector<float> scores_, coarse_, offsets_, fine_rows_, fine_, estimating_, tables_, decoded_, query_, shifts_,
        list_distances_, half_way_, sorted_, estimated_;
    std::vector<std::uint32_t> positions_;
    std::vector<std::int64_t> visited_, in_lists_;
    std::vector<std::uint64_t> passed_;
    std::vector<std::size_t> most_visited_;
    std::vector<double> spent_;  // ns of each query's work so far
    std::vector<std::uint8_t> packed_;
};

// Searches for `count` of the queries with a reranker, which is called on this thread with the candidates of all of
// them at once.
template <class Query>
bool search_with(const Reranker& rerank, const SearchedSnapshot& snapshot, const Selection& selection,
                 const RowBudget& budget, const Query* queries, std::size_t width, std::size_t begin, std::size_t count,
                 const RowHits& hits, Simd simd, std::size_t threads) {
    constexpr std::size_t batch = RowBatch::kBatch, most_positions = 1 << 18;  // of a call
    std::vector<std::unique_ptr<RowSearch>> searches((count + batch - 1) / batch);
    std::vector<Ranking> rankings(count);
    std::vector<std::uint8_t> waits(count);
    std::atomic<bool> done = true;
    const auto for_each_query = [&](const auto& act) {  // act(search, query, its number there)
        parallel_for(searches.size(), 1, threads, [&](std::size_t from, std::size_t to) {
            for (std::size_t q = from * batch; q < std::min(to * batch, count); ++q)
                act(*searches[q / batch], q, q % batch);
        });
    };
    parallel_for(searches.size(), 1, threads, [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
            const std::size_t first = i * batch, many = std::min(batch, count - first);
            searches[i] = std::make_unique<RowSearch>(snapshot, selection, budget, many, true, simd);
            if (!searches[i]->begin(queries + (begin + first) * width, many, hits.from(begin + first, budget.k)))
                done = false;
        }
    });
    if (!done) return false;
    for_each_query([&](RowSearch& search, std::size_t q, std::size_t own) {
        search.start(own, rankings[q]);
        waits[q] = search.next(own, rankings[q]);
    });
    std::vector<std::size_t> called;
    std::vector<std::uint32_t> positions;
    std::vector<float> distances;
    for (;;) {
        std::size_t many = 0;
        called.clear();
        for (std::size_t q = 0; q < count; ++q) {
            const std::size_t wider = std::max(many, rankings[q].pending.size());
            if (!waits[q] || (!called.empty() && (called.size() + 1) * wider > most_positions)) continue;
            called.push_back(begin + q);
            many = wider;
        }
        if (called.empty()) break;
        positions.assign(called.size() * many, UINT32_MAX);
        distances.resize(positions.size());
        for (std::size_t c = 0; c < called.size(); ++c) {
            const Ranking& own = rankings[called[c] - begin];
            for (std::size_t i = 0; i < own.pending.size(); ++i)
                positions[c * many + i] = own.positions[own.pending[i]];
        }
        rerank(called, many, positions.data(), distances.data());
        for (std::size_t c = 0; c < called.size(); ++c) {
            Ranking& own = rankings[called[c] - begin];
            for (std::size_t i = 0; i < own.pending.size(); ++i)
                own.distances[own.pending[i]] = clamp_to_finite(distances[c * many + i]);
            own.pending.clear();
        }
        for_each_query([&](RowSearch& search, std::size_t q, std::size_t own) {
            if (waits[q] && rankings[q].pending.empty()) waits[q] = search.next(own, rankings[q]);
        });
    }
    for_each_query([&](RowSearch& search, std::size_t q, std::size_t own) {
        if (!search.finish(own, rankings[q])) done = false;
    });
    return done;
}

// Writes the k nearest items of each query, which are rows, (count, features), or codes: `width` values each. Returns
// false, with nothing to be trusted, if a row or a distance exceeds float32, or what was read is damaged.
template <class Query>
bool search_rows(const SearchedSnapshot& snapshot, const Selection& selection, const RowBudget& budget,
                 const Query* queries, std::size_t width, std::size_t count, const RowHits& hits,
                 const Reranker& rerank, Simd simd, std::size_t threads) {
    constexpr std::size_t together = 256;  // queries whose candidates a reranker has at once
    std::atomic<bool> done = true;
    const bool reranks = snapshot.vectors != nullptr || snapshot.decoder != nullptr;
    for (std::size_t q = 0; rerank && q < count && done; q += together)
        done = search_with(rerank, snapshot, selection, budget, queries, width, q, std::min(together, count - q), hits,
                           simd, threads);
    if (!rerank)
        parallel_for(count, 1, threads, [&](std::size_t begin, std::size_t end) {
            RowSearch search(snapshot, selection, budget, end - begin, reranks, simd);
            Ranking ranking;
            for (std::size_t first = begin; first < end && done; first += RowBatch::kBatch) {
                const std::size_t many = std::min(RowBatch::kBatch, end - first);
                if (!search.begin(queries + first * width, many, hits.from(first, budget.k))) done = false;
                for (std::size_t q = 0; q < many && done; ++q) {
                    search.start(q, ranking);
                    while (search.next(q, ranking)) search.rerank(q, ranking);
                    if (!search.finish(q, ranking)) done = false;
                }
            }
        });
    return done && !snapshot.damaged() && !selection.damaged();
}

}  // namespace nestcode
