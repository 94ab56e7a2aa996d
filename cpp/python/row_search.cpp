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
    Vec<double> mean_rest;
    std::size_t coarse;
    nestcode::RowProjection projection;

    PyRowProjection(std::string_view metric, bool normalized, double unit, Vec<double> given_mean,
                    Mat<float> given_directions, std::size_t used, const CoarseArray& coarse_parts,
                    const Mat<float>& complement, Vec<float> given_coefficients, float mean_square,
                    Vec<double> given_rest)
        : mean(std::move(given_mean)),
          directions(std::move(given_directions)),
          mean_coefficients(std::move(given_coefficients)),
          mean_rest(std::move(given_rest)),
          coarse(coarse_parts.shape(0)),
          projection{nestcode::metric_named(metric),
                     normalized,
                     unit,
                     mean.data(),
                     directions.data(),
                     directions.shape(0),
                     used,
                     blocks(used, coarse_parts),
                     coarse_in_directions(coarse_parts),
                     {complement.data(), complement.shape(0), complement.shape(1)},
                     mean_coefficients.data(),
                     mean_square,
                     mean_rest.data(),
                     0} {
        if (mean_rest.size() != mean.size()) throw nb::value_error("the rest of the mean must have its features");
        if (projection.metric != nestcode::Metric::l2)
            projection.rest_norm = std::sqrt(nestcode::squared_norm_in_double(mean_rest.data(), mean_rest.size()));
        if (mean_coefficients.size() != directions.shape(0))
            throw nb::value_error("the mean must have a coefficient for each direction");
        if (complement.shape(1) != mean.size())
            throw nb::value_error("directions outside must have the features of the mean");
        if (normalized && projection.metric != nestcode::Metric::cosine)
            throw nb::value_error("L2-normalized items are compared by the cosine");
        if (!(unit > 0) || (unit != 1 && projection.metric != nestcode::Metric::cosine))
            throw nb::value_error("queries must be scaled to a norm, and only for the cosine");
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

struct PyRowBudget {
    nestcode::RowBudget budget;
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
    nestcode::SearchedSnapshot snapshot;
    nb::object lists;  // None without

    PyRowSearcher(nb::object projection, nb::object scoring, nb::object given_lists,
                  const std::vector<nb::object>& graphs, std::vector<AnyIds> given_ids,
                  const std::vector<nb::object>& id_guards, nb::object vectors, nb::object decoder,
                  std::vector<Packed> given_codes, const std::vector<nb::object>& code_guards)
        : owners(graphs), ids(std::move(given_ids)), codes(std::move(given_codes)), lists(std::move(given_lists)) {
        for (const nb::object& one : {projection, scoring, vectors, decoder}) owners.push_back(one);
        for (const auto* guards : {&id_guards, &code_guards})
            owners.insert(owners.end(), guards->begin(), guards->end());
        std::size_t total = 0;
        if (id_guards.size() != ids.size()) throw nb::value_error("there must be a guard, or None, for each run's ids");
        for (std::size_t i = 0; i < ids.size(); ++i) {
            snapshot.ids.push_back(id_column(ids[i], id_guards[i]));
            snapshot.ends.push_back(total += ids[i].size());
        }
        if (total >= UINT32_MAX) throw nb::value_error("runs must have less than 2^32 items together");
        if (projection.is_none()) {
            compare_codes(code_guards);
            return;
        }
        const PyRowProjection& own = part_of<PyRowProjection>(projection);
        snapshot.projection = &own.projection;
        std::size_t run = 0;
        if (!lists.is_none()) run = add_lists(own, scoring);
        if (run + graphs.size() != ids.size()) throw nb::value_error("there must be ids for each run");
        for (const nb::object& one : graphs) {
            nestcode::SearchedGraph graph = graph_of(one);
            if (graph.records->nodes() != ids[run].size() || graph.projection->features() != own.mean.size())
                throw nb::value_error("a graph must have the features of the projection, and an id for each node");
            graph.offset = static_cast<std::uint32_t>(run == 0 ? 0 : snapshot.ends[run - 1]);
            snapshot.graphs.push_back(graph);
            ++run;
        }
        if (!vectors.is_none()) {
            snapshot.vectors = &vector_runs_of(vectors);
            if (snapshot.vectors->count() != total || snapshot.vectors->features != own.mean.size())
                throw nb::value_error("there must be a vector for each item, with the features of the projection");
        } else if (!decoder.is_none()) {
            add_decoder(own, part_of<PyCoefficientDecoder>(decoder), code_guards);
        }
    }

    // Writes the hits of one query, (k,), or several, (count, k).
    template <class Query, std::size_t Dimensions>
    bool search(nb::handle selection, const View<const Query, Dimensions>& queries, const PyRowBudget& given,
                const View<std::int64_t, Dimensions>& out_ids, const View<float, Dimensions>& distances,
                const View<std::int64_t, 1>& compared, nb::handle rerank, std::size_t threads, std::string_view simd,
                const std::optional<View<double, 1>>& spent) const {
        const std::size_t count = count_of(queries), width = width_of(queries), k = width_of(distances);
        if ((snapshot.projection == nullptr) != std::is_same_v<Query, std::uint8_t> || width != query_width())
            throw nb::value_error("rows must have the features of the projection, or codes the width of the items'");
        if (k == 0 || width_of(out_ids) != k || count_of(out_ids) != count || count_of(distances) != count ||
            compared.size() != count || (spent && spent->size() != count))
            throw nb::value_error("there must be room for the hits of each query, and at least one");
        const nestcode::Selection& chosen_items = checked(selection);
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        nestcode::RowBudget budget = given.budget;
        budget.k = k;
        const nestcode::RowHits hits{out_ids.data(), distances.data(), compared.data(),
                                     spent ? spent->data() : nullptr};
        const nestcode::Reranker reranker = reranker_of(rerank);
        nb::gil_scoped_release released;
        return nestcode::search_rows(snapshot, chosen_items, budget, queries.data(), width, count, hits, reranker,
                                     chosen, threads);
    }

  private:
    std::size_t query_width() const {
        return snapshot.projection != nullptr ? snapshot.projection->features() : snapshot.codes.front().bytes;
    }

    // A function of Python that takes the numbers of queries and positions, (queries, many), and returns distances.
    static nestcode::Reranker reranker_of(nb::handle call) {
        if (call.is_none()) return {};
        return [call](std::span<const std::size_t> queries, std::size_t many, const std::uint32_t* positions,
                      float* distances) {
            const nb::gil_scoped_acquire held;
            const std::size_t shape[] = {queries.size(), many};
            const nb::object found = call(nb::ndarray<nb::numpy, const std::size_t>(queries.data(), 1, shape),
                                          nb::ndarray<nb::numpy, const std::uint32_t>(positions, 2, shape));
            const auto own = nb::cast<Array<const float, 2>>(found);
            if (own.shape(0) != shape[0] || own.shape(1) != shape[1])
                throw nb::value_error("there must be a distance for each position");
            std::copy_n(own.data(), own.size(), distances);
        };
    }

    // Queries are codes, which lists compare by Hamming distance.
    void compare_codes(const std::vector<nb::object>& code_guards) {
        const std::span<const nestcode::InvertedLists> segments = segments_of(lists);
        add_codes(code_guards);
        if (codes.empty() || segments.size() != codes.size() || !std::has_single_bit(number_of_lists(lists)))
            throw nb::value_error("there must be lists for each run of codes, one for each prefix");
        for (const nestcode::InvertedLists& one : segments)
            if (one.codes.bytes != query_width() ||
                static_cast<std::size_t>(std::countr_zero(number_of_lists(lists))) > 8 * one.codes.bytes)
                throw nb::value_error("codes must have one width, and lists no more bits");
    }

    const nestcode::Selection& checked(nb::handle selection) const {
        const SelectedItems selected = selection_of(selection);
        if (selected.lists.ptr() != lists.ptr() || selected.items.graphs.size() != snapshot.graphs.size())
            throw nb::value_error("the selection must be of the same lists, with a bitmap for each graph");
        for (std::size_t g = 0; g < snapshot.graphs.size(); ++g) {
            const auto allowed = selected.items.graphs[g];
            if (!allowed.empty() && allowed.size() * 64 < snapshot.graphs[g].records->nodes())
                throw nb::value_error("a bitmap must have a bit for each node");
        }
        return selected.items;
    }

    std::size_t add_lists(const PyRowProjection& own, nb::handle scoring) {
        const PyListScoring& by = part_of<PyListScoring>(scoring);
        const std::span<const nestcode::InvertedLists> segments = segments_of(lists);
        if (number_of_lists(lists) != by.scoring.coarse * by.scoring.fine || own.coarse != by.scoring.coarse ||
            by.scoring.fine_parts.features > own.projection.used || by.directions() != own.projection.count)
            throw nb::value_error("there must be a centroid for each list, in the directions of the projection");
        if (segments.size() > ids.size()) throw nb::value_error("there must be ids for each run");
        const std::size_t columns = by.groups.is_none() ? 0 : (by.scoring.groups->size() + 1) / 2;
        float bias_unit = 0;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const nestcode::InvertedLists& one = segments[i];
            if (one.codes.count != ids[i].size()) throw nb::value_error("there must be an id for each code");
            if (one.codes.count == 0) continue;
            if (by.groups.is_none() ? one.codes.bytes < by.scoring.bytes || one.norms == nullptr
                                    : one.blocks.centroids != by.scoring.coarse || one.blocks.columns != columns ||
                                          (one.blocks.norms != nullptr) != own.projection.normalized)
                throw nb::value_error("segments must have what the scorer reads");
            if (bias_unit != 0 && one.blocks.bias_unit != bias_unit)
                throw nb::value_error("segments must have the same bias_unit");
            bias_unit = one.blocks.bias_unit;
        }
        snapshot.scoring = &by.scoring;
        return segments.size();
    }

    void add_decoder(const PyRowProjection& own, const PyCoefficientDecoder& decoding,
                     const std::vector<nb::object>& code_guards) {
        if (decoding.decoder.directions != own.projection.count || own.projection.used != own.projection.count)
            throw nb::value_error("codes must decode to coefficients of all directions");
        add_codes(code_guards);
        if (codes.front().shape(1) < decoding.bytes())
            throw nb::value_error("codes must have all bytes that are decoded");
        snapshot.decoder = &decoding.decoder;
    }

    void add_codes(const std::vector<nb::object>& code_guards) {
        if (codes.empty() || codes.size() != ids.size() || code_guards.size() != ids.size())
            throw nb::value_error("there must be codes, and a guard or None, for each run");
        for (std::size_t i = 0; i < codes.size(); ++i) {
            snapshot.codes.push_back(rows_of(codes[i]));
            const std::size_t bytes = codes[i].shape(0) * codes[i].shape(1);
            snapshot.code_guards.push_back(guard_of(code_guards[i], codes[i].data(), bytes));
            if (codes[i].shape(0) != ids[i].size() || codes[i].shape(1) != codes[0].shape(1))
                throw nb::value_error("there must be a code for each item, all of one width");
        }
    }
};

}  // namespace

const nestcode::RowProjection& projection_of(nb::handle projection) {
    return part_of<PyRowProjection>(projection).projection;
}

void add_row_search(nb::module_& m) {
    nb::class_<PyRowProjection>(m, "RowProjection")
        .def(nb::init<std::string_view, bool, double, Vec<double>, Mat<float>, std::size_t, const CoarseArray&,
                      const Mat<float>&, Vec<float>, float, Vec<double>>(),
             "metric"_a, "normalized"_a, "unit"_a, "mean"_a.noconvert(), "directions"_a.noconvert(), "used"_a,
             "coarse"_a.noconvert(), "complement"_a.noconvert(), "mean_coefficients"_a.noconvert(), "mean_square"_a,
             "mean_rest"_a.noconvert());
    nb::class_<PyListScoring>(m, "ListScoring")
        .def(nb::init<Vec<float>, const Mat<float>&, Mat<float>, Mat<float>, Vec<float>, nb::object,
                      const Array<const float, 3>&>(),
             "coarse_offsets"_a.noconvert(), "fine"_a.noconvert(), "scales"_a.noconvert(), "shifts"_a.noconvert(),
             "norms"_a.noconvert(), "groups"_a.none(), "codebooks"_a.noconvert());
    nb::class_<PyCoefficientDecoder>(m, "CoefficientDecoder")
        .def(nb::init<Mat<float>, Vec<std::int32_t>, Mat<float>, Array<const float, 3>>(), "centroids"_a.noconvert(),
             "allocation"_a.noconvert(), "levels"_a.noconvert(), "codebooks"_a.noconvert());
    nb::class_<PyRowBudget>(m, "RowBudget", "How much a search may do, and when a scan takes less.")
        .def(
            "__init__",
            [](PyRowBudget* self, std::uint64_t listed, std::uint64_t most_listed, std::size_t ef, bool widens,
               std::size_t reranked, bool reranks_more, double most_ns, double ns_per_estimated,
               double ns_per_candidate, double ns_per_visited, double ns_per_reranked) {
                if (reranked == 0 || ef == 0) throw nb::value_error("budgets must be at least 1");
                if (!(most_ns >= 0 && ns_per_estimated > 0 && ns_per_candidate > 0 && ns_per_visited > 0 &&
                      ns_per_reranked > 0))
                    throw nb::value_error("costs must be positive");
                new (self) PyRowBudget{{1, listed, most_listed, ef, widens, reranked, reranks_more, most_ns,
                                        ns_per_estimated, ns_per_candidate, ns_per_visited, ns_per_reranked}};
            },
            "listed"_a, "most_listed"_a, "ef"_a, "widens"_a, "reranked"_a, "reranks_more"_a, "most_ns"_a,
            "ns_per_estimated"_a, "ns_per_candidate"_a, "ns_per_visited"_a, "ns_per_reranked"_a);
    nb::class_<PyRowSearcher> searcher(m, "RowSearcher");
    searcher.def(nb::init<nb::object, nb::object, nb::object, const std::vector<nb::object>&, std::vector<AnyIds>,
                          const std::vector<nb::object>&, nb::object, nb::object, std::vector<Packed>,
                          const std::vector<nb::object>&>(),
                 "projection"_a.none(), "scoring"_a.none(), "lists"_a.none(), "graphs"_a, "ids"_a, "id_guards"_a,
                 "vectors"_a.none(), "decoder"_a.none(), "codes"_a, "code_guards"_a);
    const auto add_search = [&](auto search) {
        searcher.def("search", search, "selection"_a, "queries"_a, "budget"_a, "ids"_a, "distances"_a, "compared"_a,
                     "rerank"_a = nb::none(), "threads"_a = 1, "simd"_a = "", "spent"_a = nb::none(),
                     "Write the nearest items of one query or each.");
    };
    add_search(&PyRowSearcher::search<float, 1>);
    add_search(&PyRowSearcher::search<double, 1>);
    add_search(&PyRowSearcher::search<float, 2>);
    add_search(&PyRowSearcher::search<double, 2>);
    add_search(&PyRowSearcher::search<std::uint8_t, 2>);
}
