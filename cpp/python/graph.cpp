// The graph navigated by nested codes: nestcode/graph.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include "arrays.hpp"
#include "fastscan_groups.hpp"
#include "nestcode/graph_build.hpp"
#include "row_search.hpp"
#include "views.hpp"

namespace {

struct PyGraphProjection {
    Vec<float> mean;
    nestcode::Int8Directions directions;
    nb::object owner;
    nestcode::GraphProjection projection;

    PyGraphProjection(Vec<float> given_mean, const Mat<float>& given_directions, nb::object given_groups,
                      float norm_unit)
        : mean(std::move(given_mean)),
          directions(given_directions.data(), given_directions.shape(0), given_directions.shape(1)),
          owner(std::move(given_groups)) {
        const PyFastScanGroups& groups = nb::cast<PyFastScanGroups&>(owner);
        if (directions.rows.features != mean.size())
            throw nb::value_error("directions must have the features of the mean");
        for (const nestcode::FastScanGroup& group : groups.groups)
            for (const std::int32_t direction : group.directions)
                if (direction >= static_cast<std::int32_t>(given_directions.shape(0)))
                    throw nb::value_error("there must be a direction for each one of the groups");
        projection = {mean.data(), &directions, &groups.groups, norm_unit};
    }

    std::size_t columns() const { return (projection.groups->size() + 1) / 2; }
};

nestcode::GraphCodes checked_codes(const Mat<std::uint8_t>& grouped, const Vec<std::uint16_t>& norms,
                                   const Vec<std::uint16_t>& factors) {
    if (norms.size() != grouped.shape(0) || factors.size() != grouped.shape(0))
        throw nb::value_error("there must be a norm and a factor for each code");
    if (grouped.shape(0) >= 1u << 31) throw nb::value_error("a graph must have less than 2^31 items");
    return {{grouped.data(), grouped.shape(0), grouped.shape(1), static_cast<std::ptrdiff_t>(grouped.shape(1))},
            norms.data(),
            factors.data()};
}

void check_ids(const std::uint32_t* ids, std::size_t count, std::size_t items) {
    if (count % nestcode::kDegree != 0) throw nb::value_error("there must be a multiple of 32 entry points");
    if (std::any_of(ids, ids + count, [items](std::uint32_t id) { return id >= items; }))
        throw nb::value_error("neighbors and entry points must be positions of items");
}

void build_graph(const PyGraphProjection& projection, const Mat<float>& vectors, const Mat<std::uint8_t>& grouped,
                 const Vec<std::uint16_t>& norms, const Vec<std::uint16_t>& factors, const Vec<std::uint32_t>& entries,
                 const Array<std::uint32_t, 2>& neighbors, std::size_t ef, std::size_t passes, std::uint64_t seed,
                 std::size_t threads, std::string_view simd) {
    const nestcode::GraphCodes codes = checked_codes(grouped, norms, factors);
    const std::size_t count = codes.grouped.count;
    if (vectors.shape(0) != count || vectors.shape(1) != projection.mean.size() ||
        codes.grouped.bytes != projection.columns() || neighbors.shape(0) != count ||
        neighbors.shape(1) != nestcode::kDegree)
        throw nb::value_error("there must be a vector, a code and 32 neighbors for each item");
    check_ids(entries.data(), entries.size(), count);
    nestcode::GraphBuildOptions options;
    options.ef = ef;
    options.passes = passes;
    options.seed = seed;
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    nb::gil_scoped_release released;
    nestcode::GraphBuilder builder({vectors.data(), vectors.shape(1)}, codes, projection.projection, options, chosen,
                                   threads);
    builder.build({entries.data(), entries.size()}, neighbors.data());
}

void pack_graph(const Mat<std::uint32_t>& neighbors, const Vec<std::uint32_t>& entries,
                const Mat<std::uint8_t>& grouped, const Vec<std::uint16_t>& norms, const Vec<std::uint16_t>& factors,
                const Array<std::uint8_t, 2>& out, std::size_t threads) {
    const nestcode::GraphCodes codes = checked_codes(grouped, norms, factors);
    const std::size_t count = codes.grouped.count;
    if (neighbors.shape(0) != count || neighbors.shape(1) != nestcode::kDegree)
        throw nb::value_error("there must be 32 neighbors for each item");
    check_ids(entries.data(), entries.size(), count);
    check_ids(neighbors.data(), neighbors.size(), count);
    if (out.shape(0) != count + entries.size() / nestcode::kDegree ||
        out.shape(1) != nestcode::GraphRecord::size(codes.grouped.bytes))
        throw nb::value_error("there must be room for the record of each item and of 32 entry points each");
    nb::gil_scoped_release released;
    nestcode::pack_graph(neighbors.data(), count, entries.data(), entries.size(), codes, out.data(), threads);
}

using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

struct PyGraph {
    Mat<std::uint8_t> data;
    nb::object owner;
    const PyGraphProjection& projection;
    std::optional<AnyMatrix> vectors;
    nestcode::GraphRecords records;
    std::vector<std::uint64_t> duplicates;

    PyGraph(Mat<std::uint8_t> given, std::size_t nodes, nb::object given_projection,
            std::optional<AnyMatrix> given_vectors)
        : data(std::move(given)),
          owner(std::move(given_projection)),
          projection(nb::cast<PyGraphProjection&>(owner)),
          vectors(std::move(given_vectors)) {
        const std::size_t columns = projection.columns(), features = projection.mean.size();
        if (data.shape(1) != nestcode::GraphRecord::size(columns) || data.shape(0) < nodes ||
            reinterpret_cast<std::uintptr_t>(data.data()) % alignof(float) != 0)
            throw nb::value_error("there must be an aligned record of these groups for each item");
        if (vectors && (vectors->shape(0) != nodes || vectors->shape(1) != features ||
                        vectors->dtype().code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) ||
                        (vectors->dtype().bits != 16 && vectors->dtype().bits != 32)))
            throw nb::value_error("there must be a vector of float16 or float32 for each item");
        records = {data.data(), nodes, data.shape(0), columns};
        duplicates = nestcode::find_duplicates(records);
    }

    void search(const View<const float, 2>& queries, std::string_view metric, std::size_t ef,
                const View<const std::uint64_t, 1>& skipped, const View<float, 2>& distances,
                const View<std::uint32_t, 2>& positions, const View<std::int64_t, 1>& visited, std::size_t most,
                std::size_t threads, std::string_view simd) const {
        const nestcode::Metric by = nestcode::metric_named(metric);
        const std::size_t count = queries.shape(0), k = distances.shape(1);
        if (queries.shape(1) != projection.mean.size())
            throw nb::value_error("queries must have the features of the projection");
        if (distances.shape(0) != count || positions.shape(0) != count || positions.shape(1) != k ||
            visited.size() != count || k == 0)
            throw nb::value_error("there must be room for the hits of each query, and at least one");
        if (skipped.size() != 0 && skipped.size() * 64 < records.nodes)
            throw nb::value_error("the bitmap of skipped items must have a bit for each item");
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        const nestcode::SearchResults results{k, distances.data(), positions.data(), visited.data()};
        const nestcode::GraphItems items{{skipped.data(), skipped.size()}, duplicates};
        nb::gil_scoped_release released;
        const auto run = [&]<class Element>(const Element* rows) {
            nestcode::search_graph(records, nestcode::GraphVectors<Element>{rows, queries.shape(1)},
                                   projection.projection, by, queries.data(), count, ef, items, results, chosen,
                                   threads, false, most);
        };
        if (vectors && vectors->dtype().bits == 16)
            run(static_cast<const nestcode::Half*>(vectors->data()));
        else
            run(vectors ? static_cast<const float*>(vectors->data()) : nullptr);
    }
};

}  // namespace

nestcode::SearchedGraph graph_of(nb::handle graph) {
    const PyGraph& self = part_of<PyGraph>(graph);
    nestcode::SearchedGraph found{self.records, &self.projection.projection};
    found.items.duplicates = self.duplicates;
    if (self.vectors && self.vectors->dtype().bits == 16)
        found.halves = static_cast<const nestcode::Half*>(self.vectors->data());
    else if (self.vectors)
        found.floats = static_cast<const float*>(self.vectors->data());
    return found;
}

void add_graph(nb::module_& m) {
    nb::class_<PyGraphProjection>(m, "GraphProjection")
        .def(nb::init<Vec<float>, Mat<float>, nb::object, float>(), "mean"_a.noconvert(), "directions"_a.noconvert(),
             "groups"_a, "norm_unit"_a);
    m.def("build_graph", build_graph, "projection"_a, "vectors"_a.noconvert(), "grouped"_a.noconvert(),
          "norms"_a.noconvert(), "factors"_a.noconvert(), "entries"_a.noconvert(), "neighbors"_a.noconvert(), "ef"_a,
          "passes"_a, "seed"_a, "threads"_a = 1, "simd"_a = "", "Write the neighbors of each item, (items, 32).");
    m.def("pack_graph", pack_graph, "neighbors"_a.noconvert(), "entries"_a.noconvert(), "grouped"_a.noconvert(),
          "norms"_a.noconvert(), "factors"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
          "Write the records of all items and of the entry points.");
    nb::class_<PyGraph>(m, "Graph")
        .def(nb::init<Mat<std::uint8_t>, std::size_t, nb::object, std::optional<AnyMatrix>>(), "records"_a.noconvert(),
             "nodes"_a, "projection"_a, "vectors"_a.noconvert().none())
        .def("search", &PyGraph::search, "queries"_a, "metric"_a, "ef"_a, "skipped"_a, "distances"_a, "positions"_a,
             "visited"_a, "most"_a = SIZE_MAX, "threads"_a = 1, "simd"_a = "",
             "Write the nearest items of each query.");
}
