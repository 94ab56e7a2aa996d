// The graph navigated by nested codes: nestcode/graph.
#include <nanobind/stl/string_view.h>

#include "arrays.hpp"
#include "fastscan_groups.hpp"
#include "nestcode/graph_build.hpp"
#include "row_search.hpp"
#include "storage.hpp"
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

void check_degree(std::size_t degree) {
    if (degree == 0 || degree > nestcode::kDegree || degree % 4 != 0)
        throw nb::value_error("the degree must be a multiple of 4 up to 32");
}

void check_entries(const Vec<std::uint32_t>& entries, std::size_t items, std::size_t degree) {
    if (entries.size() % degree != 0) throw nb::value_error("the entry points must fill whole records");
    if (std::any_of(entries.data(), entries.data() + entries.size(), [items](std::uint32_t id) { return id >= items; }))
        throw nb::value_error("entry points must be positions of items");
}

void build_graph(const PyGraphProjection& projection, const Mat<float>& vectors, const Mat<std::uint8_t>& grouped,
                 const Vec<std::uint16_t>& norms, const Vec<std::uint16_t>& factors, const Vec<std::uint32_t>& entries,
                 const Array<std::uint32_t, 2>& neighbors, std::size_t degree, std::size_t ef, std::size_t passes,
                 std::uint64_t seed, std::size_t threads, std::string_view simd) {
    const nestcode::GraphCodes codes = checked_codes(grouped, norms, factors);
    const std::size_t count = codes.grouped.count;
    if (vectors.shape(0) != count || vectors.shape(1) != projection.mean.size() ||
        codes.grouped.bytes != projection.columns() || neighbors.shape(0) != count ||
        neighbors.shape(1) != nestcode::kDegree)
        throw nb::value_error("there must be a vector, a code and 32 neighbors for each item");
    check_degree(degree);
    check_entries(entries, count, nestcode::kDegree);
    nestcode::GraphBuildOptions options;
    options.degree = degree;
    options.ef = ef;
    options.passes = passes;
    options.seed = seed;
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    nb::gil_scoped_release released;
    nestcode::GraphBuilder builder({vectors.data(), vectors.shape(1)}, codes, projection.projection, options, chosen,
                                   threads);
    builder.build({entries.data(), entries.size()}, neighbors.data());
}

// The vectors of a graph's items, or null.
const nestcode::VectorRows* checked_vectors(nb::handle vectors, std::size_t count) {
    if (vectors.is_none()) return nullptr;
    const nestcode::VectorRows& rows = vector_rows_of(vectors);
    if (rows.count != count || (rows.type == nestcode::VectorType::int8 && rows.scales == nullptr))
        throw nb::value_error("there must be a vector for each item, and a scale for each of int8");
    return &rows;
}

// The neighbors of items, of any row stride: those of an index in memory lie in the records.
using Neighbors = nb::ndarray<const std::uint32_t, nb::ndim<2>, nb::device::cpu>;

struct PyGraphRecords {
    Neighbors neighbors;
    Vec<std::uint32_t> entries;
    Mat<std::uint8_t> grouped;
    Vec<std::uint16_t> norms, factors;
    Array<std::uint8_t, 2> data;
    nb::object vectors, owner;
    const nestcode::NodeBlocks* blocks;
    std::size_t degree;
    nestcode::GraphRecords records;
    std::vector<std::uint64_t> duplicates;

    PyGraphRecords(Neighbors given_neighbors, Vec<std::uint32_t> given_entries, Mat<std::uint8_t> given_grouped,
                   Vec<std::uint16_t> given_norms, Vec<std::uint16_t> given_factors, Array<std::uint8_t, 2> room,
                   nb::object given_vectors, nb::object given_blocks, std::size_t given_degree)
        : neighbors(std::move(given_neighbors)),
          entries(std::move(given_entries)),
          grouped(std::move(given_grouped)),
          norms(std::move(given_norms)),
          factors(std::move(given_factors)),
          data(std::move(room)),
          vectors(std::move(given_vectors)),
          owner(std::move(given_blocks)),
          blocks(owner.is_none() ? nullptr : &node_blocks_of(owner)),
          degree(given_degree),
          records(checked_edges(), checked_codes(grouped, norms, factors), blocks == nullptr ? data.data() : nullptr,
                  checked_vectors(vectors, grouped.shape(0))),
          duplicates(blocks == nullptr ? nestcode::find_duplicates(checked_edges())
                                       : nestcode::find_duplicates(blocks->slots)) {
        if (blocks != nullptr) return;
        if (data.shape(0) != records.count() || data.shape(1) != records.record_bytes() ||
            reinterpret_cast<std::uintptr_t>(data.data()) % alignof(float) != 0)
            throw nb::value_error("there must be aligned room for the record of each item and of the entry points");
    }

    void pack(std::size_t threads) const {
        nb::gil_scoped_release released;
        records.pack_all(threads);
    }

  private:
    nestcode::GraphEdges checked_edges() const {
        const std::size_t count = grouped.shape(0);
        check_degree(degree);
        check_entries(entries, count, degree);
        const std::span<const std::uint32_t> starts(entries.data(), entries.size());
        if (blocks != nullptr) {
            if (blocks->slots.size() != count || blocks->degree != degree)
                throw nb::value_error("there must be a node of these neighbors for each item");
            return {nullptr, count, starts, degree, blocks, degree};
        }
        if (neighbors.shape(0) != count || neighbors.shape(1) < degree || neighbors.stride(1) != 1 ||
            (count > 1 && neighbors.stride(0) < static_cast<std::int64_t>(degree)))
            throw nb::value_error("there must be these neighbors for each item, one after the other");
        return {neighbors.data(), count, starts, static_cast<std::size_t>(neighbors.stride(0)), nullptr, degree};
    }
};

// The slots of items, by which a writer lays out the nodes.
void place_nodes(const Mat<std::uint32_t>& neighbors, std::size_t nodes, const Array<std::uint32_t, 1>& slots) {
    if (slots.size() != neighbors.shape(0) || neighbors.shape(1) == 0 || nodes == 0)
        throw nb::value_error("there must be room for the slot of each item, and a node in each block");
    nb::gil_scoped_release released;
    nestcode::place_nodes(neighbors.data(), neighbors.shape(0), neighbors.shape(1), nodes, slots.data());
}

struct PyGraph {
    nb::object records_owner, owner, vectors_owner;
    const PyGraphRecords& packed;
    const PyGraphProjection& projection;
    const nestcode::VectorRows* vectors;

    PyGraph(nb::object given_records, nb::object given_projection, nb::object given_vectors)
        : records_owner(std::move(given_records)),
          owner(std::move(given_projection)),
          vectors_owner(std::move(given_vectors)),
          packed(nb::cast<const PyGraphRecords&>(records_owner)),
          projection(nb::cast<const PyGraphProjection&>(owner)),
          vectors(checked_vectors(vectors_owner, packed.records.nodes())) {
        if (packed.records.columns() != projection.columns())
            throw nb::value_error("there must be a record of these groups for each item");
        if (vectors != nullptr && vectors->features != projection.mean.size())
            throw nb::value_error("vectors must have the features of the projection");
    }

    void search(const View<const float, 2>& queries, std::string_view metric, std::size_t ef,
                const View<const std::uint64_t, 1>& allowed, const View<float, 2>& distances,
                const View<std::uint32_t, 2>& positions, const View<std::int64_t, 1>& visited, std::size_t most,
                std::size_t threads, std::string_view simd) const {
        const nestcode::Metric by = nestcode::metric_named(metric);
        const std::size_t count = queries.shape(0), k = distances.shape(1);
        if (queries.shape(1) != projection.mean.size())
            throw nb::value_error("queries must have the features of the projection");
        if (distances.shape(0) != count || positions.shape(0) != count || positions.shape(1) != k ||
            visited.size() != count || k == 0)
            throw nb::value_error("there must be room for the hits of each query, and at least one");
        if (allowed.size() != 0 && allowed.size() * 64 < packed.records.nodes())
            throw nb::value_error("the bitmap of allowed items must have a bit for each item");
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        const nestcode::SearchResults results{k, distances.data(), positions.data(), visited.data()};
        const std::vector<std::size_t> most_of(count, most);
        const nestcode::GraphItems items{{allowed.data(), allowed.size()}, packed.duplicates};
        nb::gil_scoped_release released;
        nestcode::with_vectors(vectors, queries.shape(1), [&](const auto& rows) {
            nestcode::search_graph(packed.records, rows, projection.projection, by, queries.data(), count, ef, items,
                                   results, chosen, threads, false, {most_of});
        });
    }
};

}  // namespace

nestcode::SearchedGraph graph_of(nb::handle graph) {
    const PyGraph& self = part_of<PyGraph>(graph);
    return {&self.packed.records, &self.projection.projection, self.vectors, self.packed.duplicates};
}

void add_graph(nb::module_& m) {
    nb::class_<PyGraphProjection>(m, "GraphProjection")
        .def(nb::init<Vec<float>, Mat<float>, nb::object, float>(), "mean"_a.noconvert(), "directions"_a.noconvert(),
             "groups"_a, "norm_unit"_a);
    m.def("build_graph", build_graph, "projection"_a, "vectors"_a.noconvert(), "grouped"_a.noconvert(),
          "norms"_a.noconvert(), "factors"_a.noconvert(), "entries"_a.noconvert(), "neighbors"_a.noconvert(),
          "degree"_a, "ef"_a, "passes"_a, "seed"_a, "threads"_a = 1, "simd"_a = "",
          "Write the neighbors of each item, (items, 32), of which `degree` are others.");
    nb::class_<PyGraphRecords>(m, "GraphRecords")
        .def(nb::init<Neighbors, Vec<std::uint32_t>, Mat<std::uint8_t>, Vec<std::uint16_t>, Vec<std::uint16_t>,
                      Array<std::uint8_t, 2>, nb::object, nb::object, std::size_t>(),
             "neighbors"_a.noconvert(), "entries"_a.noconvert(), "grouped"_a.noconvert(), "norms"_a.noconvert(),
             "factors"_a.noconvert(), "data"_a.noconvert(), "vectors"_a.none(), "blocks"_a.none() = nb::none(),
             "degree"_a = nestcode::kDegree)
        .def_prop_ro("nodes", [](const PyGraphRecords& self) { return self.records.nodes(); })
        .def_prop_ro("packed", [](const PyGraphRecords& self) { return self.records.count_packed(); })
        .def_prop_ro("nbytes", [](const PyGraphRecords& self) { return self.data.nbytes(); })
        .def("pack", &PyGraphRecords::pack, "threads"_a = 1, "Pack all records that were not visited yet.");
    m.def("place_nodes", place_nodes, "neighbors"_a.noconvert(), "nodes"_a, "slots"_a.noconvert(),
          "Write the slot of each item in blocks of so many nodes.");
    nb::class_<PyGraph>(m, "Graph")
        .def(nb::init<nb::object, nb::object, nb::object>(), "records"_a, "projection"_a, "vectors"_a.none())
        .def("search", &PyGraph::search, "queries"_a, "metric"_a, "ef"_a, "allowed"_a, "distances"_a, "positions"_a,
             "visited"_a, "most"_a = SIZE_MAX, "threads"_a = 1, "simd"_a = "",
             "Write the nearest items of each query.");
}
