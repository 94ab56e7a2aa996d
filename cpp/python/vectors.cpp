// Stored vectors: reranking and exhaustive scans of the vectors themselves (nestcode/search).
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "nestcode/rerank.hpp"
#include "nestcode/scan.hpp"
#include "row_search.hpp"
#include "storage.hpp"
#include "views.hpp"

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
        if (scales.size() != 0 && (scales.size() != rows.shape(0) || vectors.type != nestcode::VectorType::int8))
            throw nb::value_error("there must be a scale for each row of int8, and none for others");
    }

  private:
    static nestcode::ChecksumGuard* watching(const nb::object& guard, const void* data, std::size_t bytes) {
        return guard.is_none() ? nullptr : guard_of(nb::cast<PyChecksumGuard*>(guard), data, bytes);
    }
};

struct PyVectorRuns {
    std::vector<nb::object> owners;
    AnyMatrix matrix;
    nestcode::VectorRuns runs;

    explicit PyVectorRuns(AnyMatrix given) : matrix(std::move(given)) {
        runs.add({type_of(matrix.dtype()), static_cast<const std::uint8_t*>(matrix.data()), nullptr, matrix.shape(0),
                  matrix.shape(1)});
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

    // Returns scan(positions) of items, uint32 or int64.
    template <class Scan>
    bool with_positions(std::size_t features, const AnyView<1>& items, const View<const std::int64_t, 1>& ids,
                        const Scan& scan) const {
        if (features != runs.features || ids.size() != items.size())
            throw nb::value_error("queries must have the features of the vectors, and each item an id");
        const auto checked = [&](const auto* positions) {
            bool beyond = false;
            for (std::size_t i = 0; i < items.size(); ++i)
                beyond |= static_cast<std::uint64_t>(positions[i]) >= runs.count();
            if (beyond) throw nb::value_error("items must be positions of vectors");
            nb::gil_scoped_release released;
            return scan(positions);
        };
        if (items.holds<std::uint32_t>()) return checked(static_cast<const std::uint32_t*>(items.data()));
        if (items.holds<std::int64_t>()) return checked(static_cast<const std::int64_t*>(items.data()));
        throw nb::value_error("items must be uint32 or int64");
    }

    void rerank(const Mat<float>& queries, const Mat<std::int64_t>& candidates, std::string_view metric,
                const Array<float, 2>& out, std::size_t threads, std::string_view simd) const {
        if (queries.shape(1) != runs.features || candidates.shape(0) != queries.shape(0) ||
            out.shape(0) != candidates.shape(0) || out.shape(1) != candidates.shape(1))
            throw nb::value_error("queries must have the features of the vectors, and out the shape of the candidates");
        check(candidates.data(), candidates.size(), -1);
        const nestcode::Metric by = nestcode::metric_named(metric);
        const nestcode::HalfExpander expand_half = nestcode::half_expander(nestcode::choose_simd(simd));
        nb::gil_scoped_release released;
        nestcode::rerank(nestcode::VectorReader(runs, expand_half), queries.data(), queries.shape(0), candidates.data(),
                         candidates.shape(1), by, {}, out.data(), threads);
    }

    template <class Real>
    bool nearest(const View<const Real, 1>& query, const AnyView<1>& items, const View<const std::int64_t, 1>& ids,
                 std::string_view metric, const View<float, 1>& distances, const View<std::int64_t, 1>& top_ids,
                 std::size_t threads, std::string_view simd) const {
        const nestcode::Metric by = nestcode::metric_named(metric);
        if (distances.size() == 0 || top_ids.size() != distances.size())
            throw nb::value_error("there must be room for the hits, and at least one");
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        return with_positions(query.size(), items, ids, [&](const auto* positions) {
            return nestcode::nearest_vectors(runs, query.data(), positions, ids.data(), items.size(), by,
                                             distances.size(), distances.data(), top_ids.data(), chosen, threads);
        });
    }

    template <class Real>
    bool nearest_of_batch(const View<const Real, 2>& queries, const AnyView<1>& items,
                          const View<const std::int64_t, 1>& ids, std::string_view metric,
                          const View<float, 2>& distances, const View<std::int64_t, 2>& top_ids, std::size_t threads,
                          std::string_view simd) const {
        const nestcode::Metric by = nestcode::metric_named(metric);
        const std::size_t count = queries.shape(0), k = distances.shape(1);
        if (k == 0 || distances.shape(0) != count || top_ids.shape(0) != count || top_ids.shape(1) != k)
            throw nb::value_error("there must be room for the hits of each query, and at least one");
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        return with_positions(queries.shape(1), items, ids, [&](const auto* positions) {
            return nestcode::nearest_vectors_of_batch(runs, queries.data(), count, positions, ids.data(), items.size(),
                                                      by, k, distances.data(), top_ids.data(), chosen, threads);
        });
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

    template <class Real>
    void compare(const Mat<Real>& queries, const Vec<std::int64_t>& pair_queries, const Vec<std::int64_t>& pair_items,
                 std::string_view metric, const Array<double, 1>& out, std::size_t threads,
                 std::string_view simd) const {
        if (queries.shape(1) != runs.features || pair_queries.size() != out.size() || pair_items.size() != out.size())
            throw nb::value_error("queries must have the features of the vectors, and each pair room for its distance");
        if (!std::all_of(pair_queries.data(), pair_queries.data() + pair_queries.size(),
                         [&](std::int64_t q) { return static_cast<std::uint64_t>(q) < queries.shape(0); }))
            throw nb::value_error("pairs must be of the queries");
        check(pair_items.data(), pair_items.size(), 0);
        const nestcode::Metric by = nestcode::metric_named(metric);
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        nb::gil_scoped_release released;
        nestcode::compare_pairs(runs, queries.data(), pair_queries.data(), pair_items.data(), out.size(), by,
                                out.data(), chosen, threads);
    }
};

void squared_norms(const Mat<float>& rows, const Array<float, 1>& out, std::size_t threads, std::string_view simd) {
    if (out.size() != rows.shape(0)) throw nb::value_error("there must be room for each row");
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    nb::gil_scoped_release released;
    nestcode::squared_norms(rows.data(), rows.shape(0), rows.shape(1), out.data(), chosen, threads);
}

struct PyCloseItems {
    nestcode::CloseItems items;
    std::size_t total = 0;  // left of all queries, once they are counted

    PyCloseItems(std::size_t queries, std::size_t k, std::size_t count) : items(queries, k, count) {
        if (k == 0) throw nb::value_error("k must be at least 1");
        if (count >= UINT32_MAX) throw nb::value_error("there must be less than 2^32 items");
    }

    void add(const Mat<float>& products, const Vec<float>& offsets, const Vec<float>& scales, const Vec<float>& shifts,
             const Vec<double>& bounds, std::size_t threads, std::string_view simd) {
        const std::size_t queries = items.queries(), many = products.shape(1);
        if (products.shape(0) != queries || offsets.size() != queries || bounds.size() != queries ||
            scales.size() != many || shifts.size() != many || many > items.items() - items.seen())
            throw nb::value_error("there must be the terms of each query and item, and no more items than announced");
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        nb::gil_scoped_release released;
        items.add({products.data(), many, many, offsets.data(), scales.data(), shifts.data(), bounds.data()}, chosen,
                  threads);
    }

    void count(const Ids& counts) {
        if (counts.size() != items.queries()) throw nb::value_error("there must be room for each query");
        items.count(counts.data());
        total = 0;
        for (std::size_t q = 0; q < counts.size(); ++q) total += static_cast<std::size_t>(counts(q));
    }

    void write(const Ids& out) const {
        if (out.size() != total) throw nb::value_error("there must be room for each item that is left");
        items.write(out.data());
    }

    void rank(const Vec<double>& distances, const Vec<std::int64_t>& ids, const Array<float, 2>& top_distances,
              const Array<std::int64_t, 2>& top_ids) const {
        const auto fits = [&](const auto& array) {
            return array.shape(0) == items.queries() && array.shape(1) == items.k();
        };
        if (distances.size() != total || ids.size() != items.items() || !fits(top_distances) || !fits(top_ids))
            throw nb::value_error("there must be a distance of each item that is left, and room for the hits");
        items.rank(distances.data(), ids.data(), top_distances.data(), top_ids.data());
    }
};

}  // namespace

const nestcode::VectorRuns& vector_runs_of(nb::handle vectors) {
    return part_of<PyVectorRuns>(vectors).runs;
}

void add_vectors(nb::module_& m) {
    nb::class_<PyVectorRows>(m, "VectorRows", "The vectors of one segment: float32, float16, or int8 with scales.")
        .def(nb::init<AnyMatrix, Vec<float>, nb::object, nb::object>(), "rows"_a.noconvert(), "scales"_a.noconvert(),
             "guard"_a.none() = nb::none(), "scales_guard"_a.none() = nb::none());
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
    const auto add_nearest = [&](auto method) {
        runs.def("nearest", method, "queries"_a, "items"_a, "ids"_a, "metric"_a, "distances"_a, "top_ids"_a,
                 "threads"_a = 1, "simd"_a = "",
                 "Write the nearest of some vectors, and return whether float32 distinguished them.");
    };
    const auto add_compare = [&](auto method) {
        runs.def("compare", method, "queries"_a.noconvert(), "pair_queries"_a.noconvert(), "pair_items"_a.noconvert(),
                 "metric"_a, "out"_a.noconvert(), "threads"_a = 1, "simd"_a = "",
                 "Write the distances of pairs in float64.");
    };
    add_compare(&PyVectorRuns::compare<float>);
    add_compare(&PyVectorRuns::compare<double>);
    add_nearest(&PyVectorRuns::nearest<float>);
    add_nearest(&PyVectorRuns::nearest_of_batch<float>);
    add_nearest(&PyVectorRuns::nearest<double>);
    add_nearest(&PyVectorRuns::nearest_of_batch<double>);
    m.def("squared_norms", squared_norms, "rows"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1, "simd"_a = "",
          "Write the squared norms of rows.");
    nb::class_<PyCloseItems>(m, "CloseItems", "The items that may be among the nearest, by estimates of all.")
        .def(nb::init<std::size_t, std::size_t, std::size_t>(), "queries"_a, "k"_a, "items"_a)
        .def("add", &PyCloseItems::add, "products"_a.noconvert(), "offsets"_a.noconvert(), "scales"_a.noconvert(),
             "shifts"_a.noconvert(), "bounds"_a.noconvert(), "threads"_a = 1, "simd"_a = "", "Estimate the next items.")
        .def("count", &PyCloseItems::count, "counts"_a.noconvert(), "Write how many items each query has left.")
        .def("write", &PyCloseItems::write, "items"_a.noconvert(), "Write these items, query by query.")
        .def("rank", &PyCloseItems::rank, "distances"_a.noconvert(), "ids"_a.noconvert(), "top_distances"_a.noconvert(),
             "top_ids"_a.noconvert(), "Write the nearest of each query that has items left.");
}
