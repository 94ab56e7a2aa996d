// Stored vectors: reranking by the vectors themselves (nestcode/search).
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "nestcode/rerank.hpp"
#include "row_search.hpp"
#include "storage.hpp"

namespace {

using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

nestcode::VectorType type_of(nb::dlpack::dtype dtype) {
    const auto is = [&](nb::dlpack::dtype_code code, std::uint8_t bits) {
        return dtype.code == static_cast<std::uint8_t>(code) && dtype.bits == bits && dtype.lanes == 1;
    };
    if (is(nb::dlpack::dtype_code::Float, 32)) return nestcode::VectorType::float32;
    if (is(nb::dlpack::dtype_code::Float, 16)) return nestcode::VectorType::float16;
    if (is(nb::dlpack::dtype_code::Int, 8)) return nestcode::VectorType::int8;
    throw nb::value_error("vectors must be float32, float16 or int8");
}

// The nodes of a graph in a mapped file.
struct PyNodeBlocks {
    Mat<std::uint8_t> data;
    Vec<std::uint32_t> slots;
    nb::object guard;
    std::size_t vector_bytes;
    nestcode::NodeBlocks blocks;

    PyNodeBlocks(Mat<std::uint8_t> given, Vec<std::uint32_t> given_slots, std::size_t degree, std::size_t bytes,
                 nb::object given_guard)
        : data(std::move(given)),
          slots(std::move(given_slots)),
          guard(std::move(given_guard)),
          vector_bytes(bytes),
          blocks{{degree, bytes},
                 degree,
                 data.data(),
                 {slots.data(), slots.size()},
                 data.shape(0),
                 guard.is_none() ? nullptr : guard_of(nb::cast<PyChecksumGuard*>(guard), data.data(), data.nbytes())} {
        if (data.shape(1) != blocks.layout.block_bytes || reinterpret_cast<std::uintptr_t>(data.data()) % 4 != 0)
            throw nb::value_error("blocks must have the size of the nodes' layout, and be aligned");
        if (!blocks.fit()) throw nb::value_error("all slots must lie in the blocks");
    }
};

// The vectors of one segment, with the arrays that they refer to.
struct PyVectorRows {
    AnyMatrix rows;
    Vec<float> scales;
    nb::object guard, scales_guard;
    nestcode::VectorRows vectors;

    PyVectorRows(AnyMatrix given, Vec<float> given_scales, nb::object given_guard, nb::object given_scales_guard)
        : rows(std::move(given)),
          scales(std::move(given_scales)),
          guard(std::move(given_guard)),
          scales_guard(std::move(given_scales_guard)),
          vectors{type_of(rows.dtype()),
                  static_cast<const std::uint8_t*>(rows.data()),
                  scales.size() != 0 ? scales.data() : nullptr,
                  rows.shape(0),
                  rows.shape(1),
                  watching(guard, rows.data(), rows.nbytes()),
                  watching(scales_guard, scales.data(), scales.nbytes())} {
        check_scales();
    }

    // Rows in nodes: `like` has their type and shape.
    PyVectorRows(nb::object in_nodes, AnyMatrix like, Vec<float> given_scales, nb::object given_scales_guard)
        : rows(std::move(like)),
          scales(std::move(given_scales)),
          guard(std::move(in_nodes)),
          scales_guard(std::move(given_scales_guard)),
          vectors{type_of(rows.dtype()),
                  nodes().blocks.data,
                  scales.size() != 0 ? scales.data() : nullptr,
                  rows.shape(0),
                  rows.shape(1),
                  nodes().blocks.guard,
                  watching(scales_guard, scales.data(), scales.nbytes()),
                  &nodes().blocks} {
        check_scales();
        if (nodes().slots.size() != rows.shape(0) || nodes().vector_bytes != vectors.row_bytes())
            throw nb::value_error("there must be a node with a vector of this type for each item");
    }

  private:
    const PyNodeBlocks& nodes() const { return part_of<PyNodeBlocks>(guard); }

    void check_scales() const {
        if (scales.size() != 0 && (scales.size() != rows.shape(0) || vectors.type != nestcode::VectorType::int8))
            throw nb::value_error("there must be a scale for each row of int8, and none for others");
    }

    static nestcode::ChecksumGuard* watching(const nb::object& guard, const void* data, std::size_t bytes) {
        return guard.is_none() ? nullptr : guard_of(nb::cast<PyChecksumGuard*>(guard), data, bytes);
    }
};

struct PyVectorRuns {
    std::vector<nb::object> owners;
    AnyMatrix matrix;
    nestcode::VectorRuns runs;

    explicit PyVectorRuns(AnyMatrix given) : matrix(std::move(given)) {
        const bool is_double = matrix.dtype() == nb::dtype<double>();
        runs.add({is_double ? nestcode::VectorType::float64 : type_of(matrix.dtype()),
                  static_cast<const std::uint8_t*>(matrix.data()), nullptr, matrix.shape(0), matrix.shape(1)});
    }

    explicit PyVectorRuns(const std::vector<nb::object>& given) : owners(given) {
        for (const nb::object& object : given) {
            const nestcode::VectorRows& one = part_of<PyVectorRows>(object).vectors;
            if (!runs.runs.empty() && one.features != runs.features)
                throw nb::value_error("runs must have the same features");
            runs.add(one);
        }
    }

    void check(const std::int64_t* items, std::size_t count, std::int64_t least) const {
        for (std::size_t i = 0; i < count; ++i)
            if (items[i] < least || items[i] >= static_cast<std::int64_t>(runs.count()))
                throw nb::value_error("items must be positions of vectors");
    }

    void rerank(const Mat<float>& queries, const Mat<std::int64_t>& candidates, std::string_view metric,
                const Array<float, 2>& out, std::size_t threads, std::string_view simd) const {
        if (queries.shape(1) != runs.features || candidates.shape(0) != queries.shape(0) ||
            out.shape(0) != candidates.shape(0) || out.shape(1) != candidates.shape(1))
            throw nb::value_error("queries must have the features of the vectors, and out the shape of the candidates");
        check(candidates.data(), candidates.size(), -1);
        const nestcode::Metric by = nestcode::metric_named(metric);
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        nb::gil_scoped_release released;
        nestcode::rerank(runs, queries.data(), queries.shape(0), candidates.data(), candidates.shape(1), by, out.data(),
                         chosen, threads);
    }

    void expand(const Vec<std::int64_t>& items, const Array<float, 2>& out, std::size_t threads,
                std::string_view simd) const {
        if (out.shape(0) != items.size() || out.shape(1) != runs.features)
            throw nb::value_error("there must be room for each vector");
        check(items.data(), items.size(), 0);
        const nestcode::HalfExpander expand_half = nestcode::half_expander(nestcode::choose_simd(simd));
        nb::gil_scoped_release released;
        nestcode::expand_vectors(runs, expand_half, items.data(), items.size(), out.data(), threads);
    }
};

}  // namespace

const nestcode::NodeBlocks& node_blocks_of(nb::handle blocks) {
    return part_of<PyNodeBlocks>(blocks).blocks;
}

const nestcode::VectorRows& vector_rows_of(nb::handle vectors) {
    return part_of<PyVectorRows>(vectors).vectors;
}

const nestcode::VectorRuns& vector_runs_of(nb::handle vectors) {
    return part_of<PyVectorRuns>(vectors).runs;
}

void add_vectors(nb::module_& m) {
    nb::class_<PyVectorRows>(m, "VectorRows", "The vectors of one segment: float32, float16, or int8 with scales.")
        .def(nb::init<AnyMatrix, Vec<float>, nb::object, nb::object>(), "rows"_a.noconvert(), "scales"_a.noconvert(),
             "guard"_a.none() = nb::none(), "scales_guard"_a.none() = nb::none())
        .def(nb::init<nb::object, AnyMatrix, Vec<float>, nb::object>(), "blocks"_a, "like"_a.noconvert(),
             "scales"_a.noconvert(), "scales_guard"_a.none());
    nb::class_<PyNodeBlocks>(m, "NodeBlocks", "The nodes of a graph in a mapped file: neighbors and vectors.")
        .def(nb::init<Mat<std::uint8_t>, Vec<std::uint32_t>, std::size_t, std::size_t, nb::object>(),
             "data"_a.noconvert(), "slots"_a.noconvert(), "degree"_a, "vector_bytes"_a, "guard"_a.none())
        .def_static(
            "layout",
            [](std::size_t degree, std::size_t vector_bytes) {
                const nestcode::NodeLayout layout(degree, vector_bytes);
                return std::make_tuple(layout.node_bytes, layout.nodes, layout.block_bytes);
            },
            "degree"_a, "vector_bytes"_a, "Return the bytes of a node, the nodes of a block and its bytes.");
    nb::class_<PyVectorRuns> runs(m, "VectorRuns", "The vectors of several segments, by positions in all of them.");
    runs.def(nb::init<AnyMatrix>(), "rows"_a.noconvert())  // first: an array is a sequence, too
        .def(nb::init<const std::vector<nb::object>&>(), "runs"_a)
        .def_prop_ro(
            "count", [](const PyVectorRuns& self) { return self.runs.count(); }, "How many vectors there are.")
        .def("rerank", &PyVectorRuns::rerank, "queries"_a.noconvert(), "candidates"_a.noconvert(), "metric"_a,
             "out"_a.noconvert(), "threads"_a = 1, "simd"_a = "",
             "Write the distances from each query to its candidates.")
        .def("expand", &PyVectorRuns::expand, "items"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
             "simd"_a = "", "Write vectors as float32.");
}
