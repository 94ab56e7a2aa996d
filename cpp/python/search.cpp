// Search over inverted lists, reranking and top-k selection: nestcode/search.
#include "nestcode/search.hpp"

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "fastscan_groups.hpp"
#include "nestcode/adc.hpp"
#include "nestcode/hamming.hpp"
#include "nestcode/rerank.hpp"
#include "row_search.hpp"
#include "storage.hpp"

namespace {

// The inverted lists of one segment, with the arrays that they refer to.
struct PyInvertedLists {
    Packed codes;
    Vec<std::uint32_t> starts;
    Array<const std::uint8_t, 3> blocks;
    Vec<std::uint32_t> block_starts;
    Vec<std::int16_t> biases;
    Vec<float> norms;
    std::unique_ptr<nestcode::Tombstones> tombstones;
    nestcode::InvertedLists lists;

    PyInvertedLists(Packed given_codes, Vec<std::uint32_t> given_starts, const Vec<std::uint32_t>& deleted,
                    Array<const std::uint8_t, 3> given_blocks, Vec<std::uint32_t> given_block_starts,
                    Vec<std::int16_t> given_biases, float bias_unit, Vec<float> given_norms,
                    PyChecksumGuard* codes_guard, PyChecksumGuard* blocks_guard, PyChecksumGuard* biases_guard,
                    PyChecksumGuard* norms_guard)
        : codes(std::move(given_codes)),
          starts(std::move(given_starts)),
          blocks(std::move(given_blocks)),
          block_starts(std::move(given_block_starts)),
          biases(std::move(given_biases)),
          norms(std::move(given_norms)) {
        const std::size_t count = codes.shape(0);
        if (starts.size() < 2 || starts(0) != 0 || starts(starts.size() - 1) != count ||
            !std::is_sorted(starts.data(), starts.data() + starts.size()))
            throw nb::value_error("the starts of lists must ascend from 0 to the number of codes");
        check_blocks(bias_unit);
        const bool scanned = block_starts.size() != 0;
        if (norms.size() != 0 && norms.size() != (scanned ? biases.size() : count))
            throw nb::value_error("there must be a norm for each code, or for each item of the blocks");
        for (std::size_t i = 0; i < deleted.size(); ++i)
            if (deleted(i) >= count || (i > 0 && deleted(i) <= deleted(i - 1)))
                throw nb::value_error("tombstones must be ascending positions of codes");
        if (deleted.size() != 0)
            tombstones = std::make_unique<nestcode::Tombstones>(std::span(deleted.data(), deleted.size()), count);
        const float* const own_norms = norms.size() != 0 ? norms.data() : nullptr;
        lists = {rows_of(codes), starts.data(), {}, scanned ? nullptr : own_norms, tombstones.get()};
        if (scanned)
            lists.blocks = {block_starts.data(), block_starts.size(), blocks.data(), biases.data(),
                            blocks.shape(1),     bias_unit,           own_norms};
        lists.guards = {guard_of(codes_guard, codes.data(), count * codes.shape(1)),
                        guard_of(blocks_guard, blocks.data(), blocks.nbytes()),
                        guard_of(biases_guard, biases.data(), biases.nbytes()),
                        guard_of(norms_guard, norms.data(), norms.nbytes())};
    }

  private:
    void check_blocks(float bias_unit) const {
        const std::size_t centroids = block_starts.size(), count = starts.size() - 1;
        if (centroids == 0) return;
        if (!(bias_unit >= 0) || !std::isfinite(bias_unit))
            throw nb::value_error("bias_unit must be finite and not negative");
        if (blocks.shape(2) != nestcode::kBlockItems || biases.size() != blocks.shape(0) * nestcode::kBlockItems)
            throw nb::value_error("blocks must have 32 items each, and biases one value for each item");
        if (!std::has_single_bit(centroids) || !std::has_single_bit(count) || centroids > count)
            throw nb::value_error("the numbers of centroids and lists must be powers of two, and lists no fewer");
        for (std::size_t c = 0; c < centroids; ++c) {
            const std::size_t items = starts((c + 1) * (count / centroids)) - starts(c * (count / centroids));
            if (block_starts(c) + (items + nestcode::kBlockItems - 1) / nestcode::kBlockItems > blocks.shape(0))
                throw nb::value_error("there must be blocks for all items of a centroid");
        }
    }
};

struct PySearchResults {
    Array<float, 2> scores;
    Array<std::uint32_t, 2> positions;
    Ids compared;
    Ids passed;
};

struct PySearcher {
    std::vector<nb::object> owners;
    std::vector<nestcode::InvertedLists> segments;
    std::vector<std::uint32_t> sizes;  // live items of each list

    explicit PySearcher(const std::vector<nb::object>& given) : owners(given) {
        std::size_t total = 0;
        for (const nb::object& object : given) {
            const PyInvertedLists& one = nb::cast<PyInvertedLists&>(object);
            if (sizes.empty()) sizes.resize(one.starts.size() - 1);
            if (one.starts.size() != sizes.size() + 1) throw nb::value_error("segments must have the same lists");
            segments.push_back(one.lists);
            segments.back().offset = static_cast<std::uint32_t>(total);
            total += one.lists.codes.count;
            if (total >= UINT32_MAX) throw nb::value_error("segments must have less than 2^32 items together");
            for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] += one.lists.live(one.lists.range(i, i + 1));
        }
        if (segments.empty()) throw nb::value_error("there must be at least one segment");
    }

    nestcode::SearchResults checked(std::size_t queries, const PySearchResults& out) const {
        const std::size_t k = out.scores.shape(1);
        if (k == 0) throw nb::value_error("there must be room for at least one hit");
        const auto fits = [&](const auto& array) { return array.shape(0) == queries && array.shape(1) == k; };
        if (!fits(out.scores) || !fits(out.positions) || out.compared.size() != queries || out.passed.size() != queries)
            throw nb::value_error("there must be room for the hits of each query");
        return {k, out.scores.data(), out.positions.data(), out.compared.data(), out.passed.data()};
    }

    template <class DistancesOf, class ScorerOf>
    void search(std::size_t queries, std::uint64_t candidates, int fine_bits, const nestcode::SearchResults& results,
                std::size_t threads, const DistancesOf& distances_of, const ScorerOf& scorer_of) const {
        nb::gil_scoped_release released;
        nestcode::search(segments, sizes, queries, candidates, fine_bits, results, threads, distances_of, scorer_of);
    }
};

struct PyCentroidDistances {
    Mat<float> coarse_products, fine_products;
    Vec<float> offsets;
    Mat<float> scales, shifts;

    std::size_t queries() const { return coarse_products.shape(0); }

    nestcode::CentroidDistances checked(const PySearcher& searcher) const {
        const std::size_t coarse = coarse_products.shape(1), fine = fine_products.shape(1);
        if (fine_products.shape(0) != queries() || offsets.size() != queries() || !std::has_single_bit(coarse) ||
            !std::has_single_bit(fine) || coarse * fine != searcher.sizes.size())
            throw nb::value_error("there must be products for each query and for both parts of each centroid");
        for (const Mat<float>* values : {&scales, &shifts})
            if (values->shape(0) != coarse || values->shape(1) != fine)
                throw nb::value_error("there must be a scale and a shift for each list");
        return {
            coarse_products.data(), fine_products.data(), offsets.data(), scales.data(), shifts.data(), coarse, fine};
    }
};

void search_fastscan(const PySearcher& self, const PyCentroidDistances& centroids, const Vec<float>& norms,
                     const Mat<float>& queries, const Vec<float>& mean_terms, const PyFastScanGroups& groups,
                     std::string_view metric, std::uint64_t candidates, const PySearchResults& out, std::size_t threads,
                     std::string_view simd) {
    const nestcode::Metric by = nestcode::metric_named(metric);
    const nestcode::SearchResults results = self.checked(centroids.queries(), out);
    const nestcode::CentroidDistances distances = centroids.checked(self);
    const std::size_t columns = (groups.groups.size() + 1) / 2, directions = groups.parents.shape(1);
    float bias_unit = 0;
    for (const nestcode::InvertedLists& lists : self.segments) {
        if (lists.blocks.centroids != distances.coarse || lists.blocks.columns != columns)
            throw nb::value_error("segments must have blocks of these groups and centroids");
        bias_unit = std::max(bias_unit, lists.blocks.bias_unit);
    }
    for (const nestcode::InvertedLists& lists : self.segments)
        if (lists.codes.count != 0 && lists.blocks.bias_unit != bias_unit)
            throw nb::value_error("segments must have the same bias_unit");
    const bool by_angle = std::ranges::any_of(self.segments, [](const auto& lists) { return lists.blocks.norms; });
    if (by_angle != (by == nestcode::Metric::cosine && mean_terms.size() != 0) ||
        mean_terms.size() != (by_angle ? queries.shape(0) : 0) ||
        std::ranges::any_of(self.segments, [=](const auto& lists) {
            return lists.codes.count != 0 && (lists.blocks.norms != nullptr) != by_angle;
        }))
        throw nb::value_error("angles need norms of all items, and a term of the mean for each query");
    if (queries.shape(0) != centroids.queries() || queries.shape(1) != directions || norms.size() != distances.coarse ||
        groups.parents.shape(0) > distances.coarse)
        throw nb::value_error("queries must have a coefficient for each direction, and each centroid a norm");
    const int parent_shift = std::countr_zero(distances.coarse) - std::countr_zero(groups.parents.shape(0));
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    const nestcode::FastScanKernel kernel = nestcode::fastscan_kernel(chosen);
    const nestcode::TableKernels tables = nestcode::table_kernels(chosen);
    self.search(centroids.queries(), candidates, std::countr_zero(distances.fine), results, threads, distances,
                [&](std::size_t q) {
                    return nestcode::FastScanScorer{kernel,
                                                    tables,
                                                    &groups.groups,
                                                    queries.data() + q * directions,
                                                    directions,
                                                    by == nestcode::Metric::inner ? nullptr : groups.parents.data(),
                                                    parent_shift,
                                                    bias_unit,
                                                    by,
                                                    distances.coarse_products + q * distances.coarse,
                                                    norms.data(),
                                                    by_angle ? mean_terms(q) : 0};
                });
}

void search_adc(const PySearcher& self, const PyCentroidDistances& centroids, const Array<const float, 3>& tables,
                std::string_view metric, std::uint64_t candidates, const PySearchResults& out, std::size_t threads) {
    const nestcode::Metric by = nestcode::metric_named(metric);
    const nestcode::SearchResults results = self.checked(centroids.queries(), out);
    const std::size_t bytes = tables.shape(1);
    if (tables.shape(0) != centroids.queries() || tables.shape(2) != 256)
        throw nb::value_error("there must be tables of 256 entries for each query");
    for (const nestcode::InvertedLists& lists : self.segments)
        if (lists.codes.bytes < bytes || (lists.codes.count != 0 && lists.norms == nullptr))
            throw nb::value_error("codes must have a byte for each table, and norms");
    self.search(centroids.queries(), candidates, 0, results, threads, centroids.checked(self),
                [&](std::size_t q) { return nestcode::AdcScorer{tables.data() + q * bytes * 256, bytes, by}; });
}

void search_hamming(const PySearcher& self, const Packed& queries, std::uint64_t candidates, const PySearchResults& out,
                    std::size_t threads, std::string_view simd) {
    const nestcode::Rows rows = rows_of(queries);
    const nestcode::SearchResults results = self.checked(rows.count, out);
    const int list_bits = std::countr_zero(self.sizes.size());
    for (const nestcode::InvertedLists& lists : self.segments)
        if (lists.codes.bytes != rows.bytes || static_cast<std::size_t>(list_bits) > 8 * rows.bytes)
            throw nb::value_error("queries must have the width of the codes, and lists no more bits");
    if (!std::has_single_bit(self.sizes.size())) throw nb::value_error("there must be a list for each prefix");
    const nestcode::HammingKernel kernel = nestcode::hamming_kernel(nestcode::choose_simd(simd));
    self.search(rows.count, candidates, 0, results, threads, nestcode::PrefixHammingDistances{rows, list_bits},
                [&](std::size_t q) { return nestcode::HammingScorer{kernel, rows[q]}; });
}

void rerank(const Mat<float>& vectors, const Mat<float>& queries, const Mat<std::int64_t>& candidates,
            std::string_view metric, const Array<float, 2>& out, std::size_t threads, const Vec<float>& mean,
            float norm, const Vec<float>& products) {
    if (queries.shape(1) != vectors.shape(1) || candidates.shape(0) != queries.shape(0) ||
        out.shape(0) != candidates.shape(0) || out.shape(1) != candidates.shape(1))
        throw nb::value_error("queries must have the features of the vectors, and out the shape of the candidates");
    if ((mean.size() != 0 && mean.size() != vectors.shape(1)) ||
        (products.size() != 0 && products.size() != queries.shape(0)))
        throw nb::value_error("the mean must have all features, and each query a product");
    for (std::size_t i = 0; i < candidates.size(); ++i)
        if (candidates.data()[i] >= static_cast<std::int64_t>(vectors.shape(0)))
            throw nb::value_error("candidates must be rows of the vectors");
    const nestcode::Metric by = nestcode::metric_named(metric);
    const nestcode::Complement complement{mean.size() != 0 ? mean.data() : nullptr, norm,
                                          products.size() != 0 ? products.data() : nullptr};
    nb::gil_scoped_release released;
    nestcode::rerank(nestcode::MatrixReader{vectors.data(), vectors.shape(1)}, queries.data(), queries.shape(0),
                     candidates.data(), candidates.shape(1), by, complement, out.data(), threads);
}

void select_top_k(const Mat<float>& distances, const Mat<std::int64_t>& ids, const Array<float, 2>& top_distances,
                  const Array<std::int64_t, 2>& top_ids, std::size_t threads) {
    const std::size_t queries = distances.shape(0), k = top_distances.shape(1);
    if ((ids.shape(0) != queries && ids.shape(0) != 1) || ids.shape(1) != distances.shape(1) ||
        top_distances.shape(0) != queries || top_ids.shape(0) != queries || top_ids.shape(1) != k || k == 0)
        throw nb::value_error("there must be an id for each distance, and room for each query");
    nb::gil_scoped_release released;
    nestcode::select_top_k(distances.data(), ids.data(), ids.shape(0) != queries, queries, ids.shape(1), k,
                           top_distances.data(), top_ids.data(), threads);
}

void correct_items(const PyFastScanGroups& self, const Packed& grouped, const Vec<std::int64_t>& owners,
                   const Vec<std::uint32_t>& slots, const Mat<float>& centroids, const Mat<float>& offsets,
                   const Vec<float>& mean, const Vec<double>& squares, float bias_unit,
                   const Array<std::int16_t, 1>& biases, const Array<float, 1>& norms, std::size_t threads) {
    const nestcode::Rows rows = rows_of(grouped);
    const std::size_t directions = self.parents.shape(1);
    if (rows.bytes != (self.groups.size() + 1) / 2 || owners.size() != rows.count || slots.size() != rows.count)
        throw nb::value_error("there must be a centroid and a slot for each item of these groups");
    if (centroids.shape(1) != directions || offsets.shape(0) != centroids.shape(0) || offsets.shape(1) != directions)
        throw nb::value_error("centroids and their offsets must have all directions");
    const bool by_angle = squares.size() != 0;
    if (by_angle && (mean.size() != directions || squares.size() != centroids.shape(0)))
        throw nb::value_error("the mean must have all directions, and each centroid a squared norm");
    for (std::size_t i = 0; i < rows.count; ++i)
        if (slots(i) >= biases.size() || (by_angle && slots(i) >= norms.size()) || owners(i) < 0 ||
            static_cast<std::size_t>(owners(i)) >= centroids.shape(0))
            throw nb::value_error("slots must lie in the biases and norms, and items have one of the centroids");
    const nestcode::ItemCorrections with{
        centroids.data(), offsets.data(), mean.data(), by_angle ? squares.data() : nullptr, directions, bias_unit};
    nb::gil_scoped_release released;
    nestcode::correct_items(self.groups, rows, owners.data(), slots.data(), with, biases.data(), norms.data(), threads);
}

void sum_group_tables(const Packed& grouped, const Mat<double>& tables, const Array<double, 1>& out,
                      std::size_t threads) {
    if (tables.shape(1) != 16 || (tables.shape(0) + 1) / 2 != grouped.shape(1) || out.size() != grouped.shape(0))
        throw nb::value_error("there must be a table of 16 entries for each group, and room for each item");
    const nestcode::Rows rows = rows_of(grouped);
    nb::gil_scoped_release released;
    nestcode::sum_group_tables(rows, tables.data(), tables.shape(0), out.data(), threads);
}

void pack_blocks(const Packed& grouped, const Vec<std::uint32_t>& slots, const Array<std::uint8_t, 3>& out) {
    if (slots.size() != grouped.shape(0) || out.shape(1) != grouped.shape(1) || out.shape(2) != nestcode::kBlockItems)
        throw nb::value_error("there must be a slot for each row, and blocks of 32 items with as many bytes");
    for (std::size_t i = 0; i < slots.size(); ++i)
        if (slots(i) >= out.shape(0) * nestcode::kBlockItems) throw nb::value_error("slots must lie in the blocks");
    const nestcode::Rows rows = rows_of(grouped);
    nb::gil_scoped_release released;
    nestcode::pack_blocks(rows, slots.data(), out.data());
}

}  // namespace

SearchedLists lists_of(nb::handle searcher) {
    const PySearcher& self = part_of<PySearcher>(searcher);
    return {self.segments, self.sizes};
}

void add_search(nb::module_& m) {
    nb::class_<PyInvertedLists>(m, "InvertedLists", "The inverted lists of one segment: sorted codes and scorer data.")
        .def(nb::init<Packed, Vec<std::uint32_t>, const Vec<std::uint32_t>&, Array<const std::uint8_t, 3>,
                      Vec<std::uint32_t>, Vec<std::int16_t>, float, Vec<float>, PyChecksumGuard*, PyChecksumGuard*,
                      PyChecksumGuard*, PyChecksumGuard*>(),
             "codes"_a.noconvert(), "starts"_a.noconvert(), "tombstones"_a.noconvert(), "blocks"_a.noconvert(),
             "block_starts"_a.noconvert(), "biases"_a.noconvert(), "bias_unit"_a, "norms"_a.noconvert(),
             "codes_guard"_a.none() = nb::none(), "blocks_guard"_a.none() = nb::none(),
             "biases_guard"_a.none() = nb::none(), "norms_guard"_a.none() = nb::none());
    nb::class_<PyFastScanGroups>(m, "FastScanGroups", "The 4-bit groups of codes, and what their values decode to.")
        .def(nb::init<const Mat<std::int32_t>&, const Array<const float, 3>&, Mat<float>>(), "directions"_a.noconvert(),
             "levels"_a.noconvert(), "parents"_a.noconvert())
        .def("correct_items", correct_items, "grouped"_a.noconvert(), "owners"_a.noconvert(), "slots"_a.noconvert(),
             "centroids"_a.noconvert(), "offsets"_a.noconvert(), "mean"_a.noconvert(), "squares"_a.noconvert(),
             "bias_unit"_a, "biases"_a.noconvert(), "norms"_a.noconvert(), "threads"_a = 1,
             "Write the biases and norms of grouped items into their slots.");
    nb::class_<PySearchResults>(m, "SearchResults", "The arrays that a search writes into.")
        .def(nb::init<Array<float, 2>, Array<std::uint32_t, 2>, Ids, Ids>(), "scores"_a.noconvert(),
             "positions"_a.noconvert(), "compared"_a.noconvert(), "passed"_a.noconvert());
    nb::class_<PyCentroidDistances>(m, "CentroidDistances", "Distances from queries to list centroids, by products.")
        .def(nb::init<Mat<float>, Mat<float>, Vec<float>, Mat<float>, Mat<float>>(), "coarse_products"_a.noconvert(),
             "fine_products"_a.noconvert(), "offsets"_a.noconvert(), "scales"_a.noconvert(), "shifts"_a.noconvert());
    nb::class_<PySearcher>(m, "Searcher", "Segments of inverted lists that are searched as one.")
        .def(nb::init<const std::vector<nb::object>&>(), "segments"_a)
        .def_prop_ro(
            "damaged",
            [](const PySearcher& self) {
                return std::ranges::any_of(self.segments, [](const auto& lists) { return lists.guards.damaged(); });
            },
            "Whether a search read from a damaged block: its results must be discarded.")
        .def("fastscan", search_fastscan, "centroids"_a, "norms"_a.noconvert(), "queries"_a.noconvert(),
             "mean_terms"_a.noconvert(), "groups"_a, "metric"_a, "candidates"_a, "out"_a, "threads"_a = 1,
             "simd"_a = "", "Write the hits of least estimated distance by 4-bit fast-scan.")
        .def("adc", search_adc, "centroids"_a, "tables"_a.noconvert(), "metric"_a, "candidates"_a, "out"_a,
             "threads"_a = 1, "Write the hits of least estimated distance by ADC.")
        .def("hamming", search_hamming, "queries"_a.noconvert(), "candidates"_a, "out"_a, "threads"_a = 1,
             "simd"_a = "", "Write the hits of least Hamming distance.");
    m.def("rerank", rerank, "vectors"_a.noconvert(), "queries"_a.noconvert(), "candidates"_a.noconvert(), "metric"_a,
          "out"_a.noconvert(), "threads"_a, "mean"_a.noconvert(), "norm"_a, "products"_a.noconvert(),
          "Write the distances from each query to its candidates.");
    m.def("select_top_k", select_top_k, "distances"_a.noconvert(), "ids"_a.noconvert(), "top_distances"_a.noconvert(),
          "top_ids"_a.noconvert(), "threads"_a = 1, "Write the k nearest items of each query, nearest first.");
    m.def("sum_group_tables", sum_group_tables, "grouped"_a.noconvert(), "tables"_a.noconvert(), "out"_a.noconvert(),
          "threads"_a = 1, "Write the sums of the table entries that 4-bit groups select.");
    m.def("pack_blocks", pack_blocks, "grouped"_a.noconvert(), "slots"_a.noconvert(), "out"_a.noconvert(),
          "Write grouped codes into the slots of fast-scan blocks.");
}
