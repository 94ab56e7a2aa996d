// Search by vectors, from rows of floats to ids: nestcode/row_search.
#include "row_search.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "fastscan_groups.hpp"
#include "nestcode/row_search.hpp"
#include "storage.hpp"
#include "views.hpp"

namespace {

using CoarseArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // float32, or bits of float16

struct PyRowProjection {
    Vec<double> mean;
    Mat<float> directions;
    Vec<float> mean_coefficients;
    std::size_t coarse;
    nestcode::RowProjection projection;

    PyRowProjection(std::string_view metric, Vec<double> given_mean, Mat<float> given_directions, std::size_t used,
                    const CoarseArray& coarse_parts, const Mat<float>& complement, Vec<float> given_coefficients,
                    float mean_square, float mean_outside)
        : mean(std::move(given_mean)),
          directions(std::move(given_directions)),
          mean_coefficients(std::move(given_coefficients)),
          coarse(coarse_parts.shape(0)),
          projection{nestcode::metric_named(metric),
                     mean.data(),
                     directions.data(),
                     directions.shape(0),
                     used,
                     blocks(used, coarse_parts),
                     coarse_in_directions(coarse_parts),
                     {complement.data(), complement.shape(0), complement.shape(1)},
                     mean_coefficients.data(),
                     mean_square,
                     mean_outside} {
        if (mean_coefficients.size() != directions.shape(0))
            throw nb::value_error("the mean must have a coefficient for each direction");
        if (complement.shape(1) != mean.size())
            throw nb::value_error("directions outside must have the features of the mean");
        if (projection.metric == nestcode::Metric::inner)
            throw nb::value_error("rows are projected for the metrics of coders, l2 and cosine");
    }

  private:
    static bool in_halves(const CoarseArray& parts) { return parts.dtype() == nb::dtype<nestcode::Half>(); }

    nestcode::ProjectionBlocks blocks(std::size_t used, const CoarseArray& parts) const {
        const std::size_t features = mean.size();
        if (directions.shape(1) != features || used > directions.shape(0) ||
            (parts.shape(1) != features && parts.shape(1) > used))
            throw nb::value_error(
                "directions and centroids must have the features of the mean, or these the directions");
        if (!in_halves(parts) && parts.dtype() != nb::dtype<float>())
            throw nb::value_error("centroids must be float32, or the bits of float16");
        std::vector<float> rows(directions.data(), directions.data() + used * features);
        if (parts.shape(1) == features) {
            if (in_halves(parts)) throw nb::value_error("centroids in features must be float32");
            const auto* values = static_cast<const float*>(parts.data());
            rows.insert(rows.end(), values, values + parts.size());
        }
        return {rows.data(), rows.size() / features, features};
    }

    std::optional<nestcode::CoarseParts> coarse_in_directions(const CoarseArray& parts) const {
        if (parts.shape(1) == mean.size()) return std::nullopt;
        const auto in_blocks = [&](const auto* values) {
            return nestcode::BlocksOf(values, parts.shape(0), parts.shape(1));
        };
        if (in_halves(parts)) return in_blocks(static_cast<const nestcode::Half*>(parts.data()));
        return in_blocks(static_cast<const float*>(parts.data()));
    }
};

struct PyListScoring {
    Vec<float> coarse_offsets;
    Mat<float> scales, shifts;
    Vec<float> norms;
    nb::object groups;
    nestcode::ListScoring scoring;

    PyListScoring(Vec<float> given_offsets, const Mat<float>& fine, Mat<float> given_scales, Mat<float> given_shifts,
                  Vec<float> given_norms, nb::object given_groups, const Array<const float, 3>& codebooks)
        : coarse_offsets(std::move(given_offsets)),
          scales(std::move(given_scales)),
          shifts(std::move(given_shifts)),
          norms(std::move(given_norms)),
          groups(std::move(given_groups)),
          scoring{coarse_offsets.size(), fine.shape(0), {fine.data(), fine.shape(0), fine.shape(1)},
                  coarse_offsets.data(), scales.data(), shifts.data()} {
        if (!std::has_single_bit(scoring.coarse) || !std::has_single_bit(scoring.fine))
            throw nb::value_error("the numbers of coarse and of fine parts must be powers of two");
        for (const Mat<float>* values : {&scales, &shifts})
            if (values->shape(0) != scoring.coarse || values->shape(1) != scoring.fine)
                throw nb::value_error("there must be a scale and a shift for each list");
        if (groups.is_none()) {
            if (codebooks.shape(1) != 256) throw nb::value_error("codebooks must have 256 entries");
            scoring.bytes = codebooks.shape(0);
            scoring.codebooks.emplace(codebooks.data(), 256 * scoring.bytes, codebooks.shape(2));
            return;
        }
        const PyFastScanGroups& own = part_of<PyFastScanGroups>(groups);
        if (norms.size() != scoring.coarse || own.parents.shape(0) > scoring.coarse)
            throw nb::value_error("each centroid must have a norm and a parent");
        scoring.groups = &own.groups;
        scoring.norms = norms.data();
        scoring.parents = own.parents.data();
        scoring.parent_count = own.parents.shape(0);
    }

    std::size_t directions() const {
        return groups.is_none() ? scoring.codebooks->features : part_of<PyFastScanGroups>(groups).parents.shape(1);
    }
};

struct PyCoefficientDecoder {
    Mat<float> centroids;
    Vec<std::int32_t> allocation;
    Mat<float> levels;
    Array<const float, 3> codebooks;
    nestcode::CoefficientDecoder decoder;

    PyCoefficientDecoder(Mat<float> given_centroids, Vec<std::int32_t> given_allocation, Mat<float> given_levels,
                         Array<const float, 3> given_codebooks)
        : centroids(std::move(given_centroids)),
          allocation(std::move(given_allocation)),
          levels(std::move(given_levels)),
          codebooks(std::move(given_codebooks)) {
        if (codebooks.shape(0) != 0) {
            if (codebooks.shape(1) != 256) throw nb::value_error("codebooks must have 256 entries");
            decoder = {.directions = codebooks.shape(2), .codebooks = codebooks.data()};
            return;
        }
        const std::size_t directions = levels.shape(0);
        if (!std::has_single_bit(centroids.shape(0)) || centroids.shape(1) != directions)
            throw nb::value_error("there must be a power of two of centroids, with a coefficient for each direction");
        std::vector<std::size_t> depths(directions);
        for (std::size_t j = 0; j < allocation.size(); ++j) {
            if (allocation(j) >= static_cast<std::int32_t>(directions))
                throw nb::value_error("bits must be allocated to directions");
            if (allocation(j) >= 0 && ++depths[static_cast<std::size_t>(allocation(j))] > 8)
                throw nb::value_error("a direction must have at most 8 bits");
        }
        for (const std::size_t depth : depths)
            if (std::size_t{2} << depth > levels.shape(1)) throw nb::value_error("each node must have a level");
        decoder = {directions,        centroids.data(),  std::countr_zero(centroids.shape(0)),
                   allocation.data(), allocation.size(), {levels.data(), directions, levels.shape(1)}};
        decoder.direction_bits = {allocation.data(), allocation.size(), static_cast<std::size_t>(decoder.centroid_bits),
                                  directions};
    }

    // Bytes that codes must have.
    std::size_t bytes() const {
        if (codebooks.shape(0) != 0) return codebooks.shape(0);
        return (static_cast<std::size_t>(decoder.centroid_bits) + decoder.bits + 7) / 8;
    }
};

using AnyIds = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nestcode::ChecksumGuard* guard_of(nb::handle guard, const void* data, std::size_t bytes) {
    return guard.is_none() ? nullptr : guard_of(&part_of<PyChecksumGuard>(guard), data, bytes);
}

nestcode::IdColumn id_column(const AnyIds& ids, nb::handle guard) {
    nestcode::ChecksumGuard* const watching = guard_of(guard, ids.data(), ids.nbytes());
    if (ids.dtype() == nb::dtype<std::uint32_t>())
        return {{static_cast<const std::uint32_t*>(ids.data()), ids.size(), watching}, {}};
    if (ids.dtype() == nb::dtype<std::int64_t>())
        return {{}, {static_cast<const std::int64_t*>(ids.data()), ids.size(), watching}};
    throw nb::value_error("ids must be uint32 or int64");
}

struct PyRowSearcher {
    std::vector<nb::object> owners;
    std::vector<AnyIds> ids;
    std::vector<Packed> codes;
    std::vector<Vec<std::uint64_t>> skipped;
    nestcode::SearchedSnapshot snapshot;

    PyRowSearcher(nb::object projection, nb::object scoring, nb::object lists, const std::vector<nb::object>& graphs,
                  std::vector<Vec<std::uint64_t>> given_skipped, std::vector<AnyIds> given_ids,
                  const std::vector<nb::object>& id_guards, nb::object vectors, nb::object decoder,
                  std::vector<Packed> given_codes, const std::vector<nb::object>& code_guards)
        : owners(graphs), ids(std::move(given_ids)), codes(std::move(given_codes)), skipped(std::move(given_skipped)) {
        for (const nb::object& one : {projection, scoring, lists, vectors, decoder}) owners.push_back(one);
        for (const auto* guards : {&id_guards, &code_guards})
            owners.insert(owners.end(), guards->begin(), guards->end());
        const PyRowProjection& own = part_of<PyRowProjection>(projection);
        snapshot.projection = &own.projection;
        std::size_t total = 0;
        if (id_guards.size() != ids.size()) throw nb::value_error("there must be a guard, or None, for each run's ids");
        for (std::size_t i = 0; i < ids.size(); ++i) {
            snapshot.ids.push_back(id_column(ids[i], id_guards[i]));
            snapshot.ends.push_back(total += ids[i].size());
        }
        if (total >= UINT32_MAX) throw nb::value_error("runs must have less than 2^32 items together");
        if (!lists.is_none()) add_lists(own, scoring, lists);
        if (graphs.size() != skipped.size()) throw nb::value_error("there must be a bitmap for each graph");
        std::size_t run = snapshot.segments.size();
        if (run + graphs.size() != ids.size()) throw nb::value_error("there must be ids for each run");
        for (std::size_t g = 0; g < graphs.size(); ++g, ++run) {
            nestcode::SearchedGraph graph = graph_of(graphs[g]);
            if (graph.records->nodes() != ids[run].size() || graph.projection->features() != own.mean.size() ||
                (skipped[g].size() != 0 && skipped[g].size() * 64 < graph.records->nodes()))
                throw nb::value_error("a graph must have the features of the projection, and an id for each node");
            graph.items.skipped = {skipped[g].data(), skipped[g].size()};
            graph.offset = static_cast<std::uint32_t>(run == 0 ? 0 : snapshot.ends[run - 1]);
            snapshot.graphs.push_back(graph);
        }
        if (!vectors.is_none()) {
            snapshot.vectors = &vector_runs_of(vectors);
            if (snapshot.vectors->count() != total || snapshot.vectors->features != own.mean.size())
                throw nb::value_error("there must be a vector for each item, with the features of the projection");
            return;
        }
        const PyCoefficientDecoder& decoding = part_of<PyCoefficientDecoder>(decoder);
        if (decoding.decoder.directions != own.projection.count || own.projection.used != own.projection.count)
            throw nb::value_error("codes must decode to coefficients of all directions");
        if (codes.size() != ids.size() || code_guards.size() != ids.size())
            throw nb::value_error("there must be codes, and a guard or None, for each run");
        for (std::size_t i = 0; i < codes.size(); ++i) {
            snapshot.codes.push_back(rows_of(codes[i]));
            const std::size_t bytes = codes[i].shape(0) * codes[i].shape(1);
            snapshot.code_guards.push_back(guard_of(code_guards[i], codes[i].data(), bytes));
            if (codes[i].shape(0) != ids[i].size() || codes[i].shape(1) < decoding.bytes() ||
                codes[i].shape(1) != codes[0].shape(1))
                throw nb::value_error("there must be a code for each item, with all bytes that are decoded");
        }
        snapshot.decoder = &decoding.decoder;
    }

    template <class Real>
    bool search(const Mat<Real>& rows, std::size_t k, std::uint64_t lists, std::size_t graphs, std::size_t reranked,
                const Array<std::int64_t, 2>& out_ids, const Array<float, 2>& distances, const Ids& compared,
                std::size_t threads, std::string_view simd) const {
        const std::size_t count = rows.shape(0);
        if (rows.shape(1) != snapshot.projection->features())
            throw nb::value_error("rows must have the features of the projection");
        if (k == 0 || reranked == 0 || graphs == 0) throw nb::value_error("budgets must be at least 1");
        const auto fits = [&](const auto& array) { return array.shape(0) == count && array.shape(1) == k; };
        if (!fits(out_ids) || !fits(distances) || compared.size() != count)
            throw nb::value_error("there must be room for the hits of each row");
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        nb::gil_scoped_release released;
        return nestcode::search_rows(snapshot, {k, lists, graphs, reranked}, rows.data(), count, out_ids.data(),
                                     distances.data(), compared.data(), chosen, threads);
    }

    // Writes the hits of one row, (k,), and returns how many items it was compared with, -1 where `search` is false.
    template <class Real>
    std::int64_t search_one(const View<const Real, 1>& row, std::size_t k, std::uint64_t lists, std::size_t graphs,
                            std::size_t reranked, const View<std::int64_t, 1>& out_ids,
                            const View<float, 1>& distances) const {
        if (row.size() != snapshot.projection->features())
            throw nb::value_error("the row must have the features of the projection");
        if (k == 0 || reranked == 0 || graphs == 0) throw nb::value_error("budgets must be at least 1");
        if (out_ids.size() != k || distances.size() != k) throw nb::value_error("there must be room for the hits");
        const nestcode::Simd chosen = nestcode::choose_simd("");
        std::int64_t compared = 0;
        nb::gil_scoped_release released;
        const bool done = nestcode::search_rows(snapshot, {k, lists, graphs, reranked}, row.data(), 1, out_ids.data(),
                                                distances.data(), &compared, chosen, 1);
        return done ? compared : -1;
    }

  private:
    void add_lists(const PyRowProjection& own, nb::handle scoring, nb::handle lists) {
        const PyListScoring& by = part_of<PyListScoring>(scoring);
        const auto [segments, sizes] = lists_of(lists);
        if (sizes.size() != by.scoring.coarse * by.scoring.fine || own.coarse != by.scoring.coarse ||
            by.scoring.fine_parts.features > own.projection.used || by.directions() != own.projection.count)
            throw nb::value_error("there must be a centroid for each list, in the directions of the projection");
        if (segments.size() > ids.size()) throw nb::value_error("there must be ids for each run");
        const std::size_t columns = by.groups.is_none() ? 0 : (by.scoring.groups->size() + 1) / 2;
        const bool by_angle = own.projection.metric == nestcode::Metric::cosine;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const nestcode::InvertedLists& one = segments[i];
            if (one.codes.count != ids[i].size()) throw nb::value_error("there must be an id for each code");
            if (one.codes.count == 0) continue;
            if (by.groups.is_none() ? one.codes.bytes < by.scoring.bytes || one.norms == nullptr
                                    : one.blocks.centroids != by.scoring.coarse || one.blocks.columns != columns ||
                                          (one.blocks.norms != nullptr) != by_angle)
                throw nb::value_error("segments must have what the scorer reads");
        }
        snapshot.scoring = &by.scoring;
        snapshot.segments = segments;
        snapshot.list_sizes = sizes;
    }
};

// The items of one run: table indices, centroids or none, squares, norms.
struct PyScannedCodes {
    Packed indices;
    Vec<std::int64_t> centroids;
    Vec<float> squares, norms;
};

struct PyCodeScan {
    nb::object owner;
    Mat<std::int32_t> directions, depths;
    Array<const float, 3> entries;
    std::vector<nb::object> owners;
    Vec<std::int64_t> ids;
    std::vector<nestcode::ScannedCodes> runs;
    std::optional<nestcode::CodeScan> scan;

    PyCodeScan(nb::object searcher, Mat<std::int32_t> given_directions, Mat<std::int32_t> given_depths,
               Array<const float, 3> given_entries, double operations, std::vector<nb::object> given_runs,
               Vec<std::int64_t> given_ids)
        : owner(std::move(searcher)),
          directions(std::move(given_directions)),
          depths(std::move(given_depths)),
          entries(std::move(given_entries)),
          owners(std::move(given_runs)),
          ids(std::move(given_ids)) {
        const nestcode::SearchedSnapshot& snapshot = part_of<PyRowSearcher>(owner).snapshot;
        if (snapshot.decoder == nullptr || snapshot.decoder->codebooks != nullptr)
            throw nb::value_error("codes are scanned where they are what items rank by, and of bit planes");
        const std::size_t count = snapshot.projection->count, bytes = directions.shape(0);
        if (entries.shape(0) != bytes || entries.shape(1) != directions.shape(1) || entries.shape(2) != 256)
            throw nb::value_error("there must be 256 levels for each direction of a byte");
        if (!below(directions.data(), directions.size(), count))
            throw nb::value_error("tables must be of directions of the projection");
        if (depths.shape(0) != bytes || depths.shape(1) != directions.shape(1))
            throw nb::value_error("there must be a depth for each direction of a byte");
        for (std::size_t b = 0; b < bytes; ++b) {
            const std::int32_t* const own = depths.data() + b * depths.shape(1);
            if (!below(own, depths.shape(1), 9) || std::accumulate(own, own + depths.shape(1), 0) > 8)
                throw nb::value_error("the directions of a byte must have at most 8 bits");
            for (std::size_t j = 0; j < depths.shape(1); ++j)
                if (std::size_t{2} << own[j] > snapshot.decoder->levels.stride)
                    throw nb::value_error("each node must have a level");
        }
        const int bits = snapshot.decoder->centroid_bits;
        const std::size_t centroids = bits == 0 ? 0 : std::size_t{1} << bits;
        if (centroids > snapshot.projection->coarse_count())
            throw nb::value_error("centroids must be those of the projection");
        std::size_t total = 0;
        for (const nb::object& object : owners) {
            const PyScannedCodes& one = part_of<PyScannedCodes>(object);
            const std::size_t items = one.indices.shape(0);
            if (one.indices.shape(1) != bytes || one.squares.size() != items || one.norms.size() != items ||
                (one.centroids.size() != 0 && one.centroids.size() != items))
                throw nb::value_error("there must be indices of all tables, a square and a norm for each item");
            if (!below(one.centroids.data(), one.centroids.size(), centroids))
                throw nb::value_error("centroids must be those of the decoder");
            runs.push_back({rows_of(one.indices), one.centroids.size() != 0 ? one.centroids.data() : nullptr,
                            one.squares.data(), one.norms.data()});
            total += items;
        }
        if (ids.size() != total) throw nb::value_error("there must be an id for each item");
        const nestcode::RegroupedBits grouped{bytes, directions.shape(1), directions.data(), depths.data()};
        scan.emplace(snapshot, nestcode::ScanTables{grouped, entries.data(), operations}, runs, ids.data());
    }

    template <class Real>
    bool search(const View<const Real, 1>& row, std::string_view metric, const View<float, 1>& distances,
                const View<std::int64_t, 1>& top_ids, std::size_t threads) const {
        const nestcode::Metric by = checked_metric(metric, row.size());
        if (distances.size() == 0 || top_ids.size() != distances.size())
            throw nb::value_error("there must be room for the hits, and at least one");
        const nestcode::Simd chosen = nestcode::choose_simd("");
        nb::gil_scoped_release released;
        return scan->search(row.data(), by, distances.size(), distances.data(), top_ids.data(), chosen, threads);
    }

    template <class Real>
    bool search_batch(const Mat<Real>& rows, std::string_view metric, const Array<float, 2>& distances,
                      const Array<std::int64_t, 2>& top_ids, std::size_t threads) const {
        const nestcode::Metric by = checked_metric(metric, rows.shape(1));
        const std::size_t count = rows.shape(0), k = distances.shape(1);
        if (k == 0 || distances.shape(0) != count || top_ids.shape(0) != count || top_ids.shape(1) != k)
            throw nb::value_error("there must be room for the hits of each row, and at least one");
        const nestcode::Simd chosen = nestcode::choose_simd("");
        nb::gil_scoped_release released;
        return scan->search_batch(rows.data(), count, by, k, distances.data(), top_ids.data(), chosen, threads);
    }

  private:
    nestcode::Metric checked_metric(std::string_view name, std::size_t features) const {
        const nestcode::RowProjection& projection = *part_of<PyRowSearcher>(owner).snapshot.projection;
        const nestcode::Metric metric = nestcode::metric_named(name);
        if (features != projection.features()) throw nb::value_error("rows must have the features of the projection");
        if (metric != projection.metric && projection.metric != nestcode::Metric::l2)
            throw nb::value_error("codes of L2-normalized items are compared by the cosine");
        return metric;
    }

    template <class Integer>
    static bool below(const Integer* values, std::size_t count, std::size_t limit) {
        return std::all_of(values, values + count,
                           [limit](Integer value) { return static_cast<std::uint64_t>(value) < limit; });
    }
};

}  // namespace

void add_row_search(nb::module_& m) {
    nb::class_<PyRowProjection>(m, "RowProjection")
        .def(nb::init<std::string_view, Vec<double>, Mat<float>, std::size_t, const CoarseArray&, const Mat<float>&,
                      Vec<float>, float, float>(),
             "metric"_a, "mean"_a.noconvert(), "directions"_a.noconvert(), "used"_a, "coarse"_a.noconvert(),
             "complement"_a.noconvert(), "mean_coefficients"_a.noconvert(), "mean_square"_a, "mean_outside"_a);
    nb::class_<PyListScoring>(m, "ListScoring")
        .def(nb::init<Vec<float>, const Mat<float>&, Mat<float>, Mat<float>, Vec<float>, nb::object,
                      const Array<const float, 3>&>(),
             "coarse_offsets"_a.noconvert(), "fine"_a.noconvert(), "scales"_a.noconvert(), "shifts"_a.noconvert(),
             "norms"_a.noconvert(), "groups"_a.none(), "codebooks"_a.noconvert());
    nb::class_<PyCoefficientDecoder>(m, "CoefficientDecoder")
        .def(nb::init<Mat<float>, Vec<std::int32_t>, Mat<float>, Array<const float, 3>>(), "centroids"_a.noconvert(),
             "allocation"_a.noconvert(), "levels"_a.noconvert(), "codebooks"_a.noconvert());
    nb::class_<PyRowSearcher> searcher(m, "RowSearcher");
    searcher.def(nb::init<nb::object, nb::object, nb::object, const std::vector<nb::object>&,
                          std::vector<Vec<std::uint64_t>>, std::vector<AnyIds>, const std::vector<nb::object>&,
                          nb::object, nb::object, std::vector<Packed>, const std::vector<nb::object>&>(),
                 "projection"_a, "scoring"_a.none(), "lists"_a.none(), "graphs"_a, "skipped"_a, "ids"_a, "id_guards"_a,
                 "vectors"_a.none(), "decoder"_a.none(), "codes"_a, "code_guards"_a);
    nb::class_<PyScannedCodes>(m, "ScannedCodes")
        .def(nb::init<Packed, Vec<std::int64_t>, Vec<float>, Vec<float>>(), "indices"_a.noconvert(),
             "centroids"_a.noconvert(), "squares"_a.noconvert(), "norms"_a.noconvert());
    nb::class_<PyCodeScan> scan(m, "CodeScan");
    scan.def(nb::init<nb::object, Mat<std::int32_t>, Mat<std::int32_t>, Array<const float, 3>, double,
                      std::vector<nb::object>, Vec<std::int64_t>>(),
             "searcher"_a, "directions"_a.noconvert(), "depths"_a.noconvert(), "entries"_a.noconvert(), "operations"_a,
             "runs"_a, "ids"_a.noconvert());
    const auto add_searches = [&]<class Real>(Real) {
        searcher.def("search", &PyRowSearcher::search<Real>, "rows"_a.noconvert(), "k"_a, "lists"_a, "graphs"_a,
                     "reranked"_a, "ids"_a.noconvert(), "distances"_a.noconvert(), "compared"_a.noconvert(),
                     "threads"_a = 1, "simd"_a = "", "Write the nearest items of each row.");
        searcher.def("search_one", &PyRowSearcher::search_one<Real>, "row"_a, "k"_a, "lists"_a, "graphs"_a,
                     "reranked"_a, "ids"_a, "distances"_a,
                     "Write the nearest items of one row, and return how many it was compared with.");
        scan.def("search", &PyCodeScan::search<Real>, "rows"_a, "metric"_a, "distances"_a, "top_ids"_a, "threads"_a = 1,
                 "Write the nearest of all items.");
        scan.def("search", &PyCodeScan::search_batch<Real>, "rows"_a.noconvert(), "metric"_a, "distances"_a.noconvert(),
                 "top_ids"_a.noconvert(), "threads"_a = 1, "Write the nearest of all items for each row.");
    };
    add_searches(float{});
    add_searches(double{});
}
