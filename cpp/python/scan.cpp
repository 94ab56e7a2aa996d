// Exhaustive search of vectors and codes: nestcode/scan, nestcode/code_scan.
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <numeric>
#include <optional>

#include "nestcode/code_scan.hpp"
#include "row_search.hpp"
#include "views.hpp"

namespace {

constexpr double kLargestSquare = 1e37;  // of a row whose distances fit float32: LARGEST_SQUARE in arrays.py

// Whether rows are finite, and whether distances to them may fit float32.
struct Range {
    bool finite = true, fits = true;

    template <class Real>
    Range(const Real* rows, std::size_t count, std::size_t features, nestcode::Metric metric) {
        for (std::size_t q = 0; q < count; ++q) {
            const Real* row = rows + q * features;
            const double square =
                nestcode::sum_in_double(features, [=](std::size_t f) { return static_cast<double>(row[f]) * row[f]; });
            if (square < kLargestSquare) continue;
            fits = fits && metric == nestcode::Metric::cosine;
            finite = finite && std::all_of(row, row + features, [](Real value) { return std::isfinite(value); });
        }
    }
};

// The hits of each query, with room that was checked.
template <std::size_t Dimensions>
nestcode::NearestHits hits_of(std::size_t count, const View<float, Dimensions>& distances,
                              const View<std::int64_t, Dimensions>& ids) {
    const std::size_t k = width_of(distances);
    if (k == 0 || width_of(ids) != k || count_of(distances) != count || count_of(ids) != count)
        throw nb::value_error("there must be room for the hits of each query, and at least one");
    return {k, distances.data(), ids.data()};
}

// Whether all distances are within float32.
bool fit(const nestcode::NearestHits& hits, std::size_t count) {
    for (std::size_t i = 0; i < count * hits.k; ++i)
        if (hits.ids[i] >= 0 && !(std::abs(hits.distances[i]) < std::numeric_limits<float>::max())) return false;
    return true;
}

// Calls scan(positions) of items, uint32 or int64.
template <class Scan>
void with_positions(const AnyView<1>& items, std::size_t count, const Scan& scan) {
    const auto checked = [&](const auto* positions) {
        bool beyond = false;
        for (std::size_t i = 0; i < items.size(); ++i) beyond |= static_cast<std::uint64_t>(positions[i]) >= count;
        if (beyond) throw nb::value_error("items must be positions of vectors");
        nb::gil_scoped_release released;
        scan(positions);
    };
    if (items.holds<std::uint32_t>()) return checked(static_cast<const std::uint32_t*>(items.data()));
    if (items.holds<std::int64_t>()) return checked(static_cast<const std::int64_t*>(items.data()));
    throw nb::value_error("items must be uint32 or int64");
}

template <class Real, std::size_t Dimensions>
bool scan_vectors(nb::handle vectors, const View<const Real, Dimensions>& queries, const AnyView<1>& items,
                  const View<const std::int64_t, 1>& ids, std::string_view metric,
                  const View<float, Dimensions>& distances, const View<std::int64_t, Dimensions>& top_ids,
                  std::size_t threads, std::string_view simd) {
    const nestcode::VectorRuns& runs = vector_runs_of(vectors);
    const nestcode::Metric by = nestcode::metric_named(metric);
    const std::size_t count = count_of(queries);
    if (width_of(queries) != runs.features || ids.size() != items.size())
        throw nb::value_error("queries must have the features of the vectors, and each item an id");
    if (items.size() >= UINT32_MAX) throw nb::value_error("there must be less than 2^32 items");
    const nestcode::NearestHits hits = hits_of(count, distances, top_ids);
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    const Range range(queries.data(), count, runs.features, by);
    if (!range.finite) return false;
    with_positions(items, runs.count(), [&](const auto* positions) {
        nestcode::scan_vectors(runs, queries.data(), count, positions, ids.data(), items.size(), by, hits, chosen,
                               threads);
    });
    return range.fits && fit(hits, count);
}

void scan_hamming(const Packed& queries, const Packed& codes, const Vec<std::int64_t>& ids,
                  const View<float, 2>& distances, const View<std::int64_t, 2>& top_ids, std::size_t threads,
                  std::string_view simd) {
    const nestcode::Rows rows = rows_of(queries), items = rows_of(codes);
    if (rows.bytes != items.bytes || ids.size() != items.count)
        throw nb::value_error("queries and codes must be of the same width, and each code have an id");
    const nestcode::NearestHits hits = hits_of(rows.count, distances, top_ids);
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    nb::gil_scoped_release released;
    nestcode::scan_hamming(rows, items, ids.data(), hits, chosen, threads);
}

template <class Integer>
bool below(const Integer* values, std::size_t count, std::size_t limit) {
    return std::all_of(values, values + count,
                       [limit](Integer value) { return static_cast<std::uint64_t>(value) < limit; });
}

struct PyScannedFormat {
    Mat<std::int32_t> directions, depths;
    Mat<float> levels, centroids;
    Array<const float, 3> codebooks;
    std::optional<nestcode::ScannedFormat> format;

    PyScannedFormat(Mat<std::int32_t> given_directions, Mat<std::int32_t> given_depths, Mat<float> given_levels,
                    Mat<float> given_centroids)
        : directions(std::move(given_directions)),
          depths(std::move(given_depths)),
          levels(std::move(given_levels)),
          centroids(std::move(given_centroids)) {
        const std::size_t count = levels.shape(0), bytes = directions.shape(0), most = directions.shape(1);
        if (!below(directions.data(), directions.size(), count))
            throw nb::value_error("bits must be of directions that have levels");
        if (depths.shape(0) != bytes || depths.shape(1) != most)
            throw nb::value_error("there must be a depth for each direction of a byte");
        for (std::size_t b = 0; b < bytes; ++b) {
            const std::int32_t* const own = depths.data() + b * most;
            if (!below(own, most, 9) || std::accumulate(own, own + most, 0) > 8)
                throw nb::value_error("the directions of a byte must have at most 8 bits");
            for (std::size_t j = 0; j < most; ++j)
                if (std::size_t{2} << own[j] > levels.shape(1)) throw nb::value_error("each node must have a level");
        }
        if (levels.shape(1) < 2 || centroids.shape(1) != count)
            throw nb::value_error("each direction must have a level without bits, and each centroid a coefficient");
        format.emplace(nestcode::RegroupedBits{bytes, most, directions.data(), depths.data()},
                       nestcode::ReconstructionLevels{levels.data(), count, levels.shape(1)}, centroids.data(),
                       centroids.shape(0));
    }

    explicit PyScannedFormat(Array<const float, 3> given) : codebooks(std::move(given)) {
        if (codebooks.shape(1) != 256) throw nb::value_error("codebooks must have 256 entries");
        format.emplace(codebooks.data(), codebooks.shape(0), codebooks.shape(2));
    }
};

// The items of one run: codes as the format takes them, centroids or none, squares, norms.
struct PyScannedCodes {
    Packed codes;
    Vec<std::int64_t> centroids;
    Vec<float> squares, norms;
    std::optional<nestcode::ScannedCodes> items;

    PyScannedCodes(Packed given_codes, Vec<std::int64_t> given_centroids, Vec<float> given_squares,
                   Vec<float> given_norms)
        : codes(std::move(given_codes)),
          centroids(std::move(given_centroids)),
          squares(std::move(given_squares)),
          norms(std::move(given_norms)) {
        const std::size_t count = codes.shape(0);
        if (squares.size() != count || norms.size() != count || (centroids.size() != 0 && centroids.size() != count))
            throw nb::value_error("there must be a square and a norm of each item, and a centroid or none");
        items.emplace(rows_of(codes), centroids.size() != 0 ? centroids.data() : nullptr, squares.data(), norms.data());
    }
};

struct PyCodeScan {
    nb::object projection, format;
    std::vector<nb::object> owners;
    std::optional<nestcode::CodeScan> scan;

    PyCodeScan(nb::object given_projection, nb::object given_format, std::vector<nb::object> given_runs)
        : projection(std::move(given_projection)), format(std::move(given_format)), owners(std::move(given_runs)) {
        const nestcode::RowProjection& own = projection_of(projection);
        const nestcode::ScannedFormat& by = *part_of<PyScannedFormat>(format).format;
        if (by.directions != own.count || own.used != own.count)
            throw nb::value_error("codes must decode to coefficients of all directions");
        std::vector<nestcode::ScannedCodes> runs;
        for (const nb::object& object : owners) {
            const nestcode::ScannedCodes& one = *part_of<PyScannedCodes>(object).items;
            runs.push_back(one);
            if (one.codes.count == 0) continue;
            if (one.codes.bytes < by.bytes) throw nb::value_error("codes must have all bytes");
            if ((one.centroids != nullptr) != (by.centroid_count() != 0) ||
                (one.centroids != nullptr && !below(one.centroids, one.codes.count, by.centroid_count())))
                throw nb::value_error("each item must have one of the centroids, if there are any");
        }
        scan.emplace(own, by, std::move(runs));
        if (scan->count() >= UINT32_MAX) throw nb::value_error("there must be less than 2^32 items");
    }

    template <class Real, std::size_t Dimensions>
    bool search(const View<const Real, Dimensions>& rows, const View<const std::uint32_t, 1>& items,
                const View<const std::int64_t, 1>& ids, std::string_view metric,
                const View<float, Dimensions>& distances, const View<std::int64_t, Dimensions>& top_ids,
                std::size_t threads, std::string_view simd) const {
        const nestcode::RowProjection& own = projection_of(projection);
        const nestcode::Metric by = nestcode::metric_named(metric);
        const std::size_t count = count_of(rows);
        if (width_of(rows) != own.features()) throw nb::value_error("rows must have the features of the projection");
        if (by != own.metric && own.metric != nestcode::Metric::l2)
            throw nb::value_error("codes of L2-normalized items are compared by the cosine");
        if (ids.size() != items.size() || !below(items.data(), items.size(), scan->count()))
            throw nb::value_error("items must be positions of codes, and have an id each");
        const nestcode::NearestHits hits = hits_of(count, distances, top_ids);
        const nestcode::Simd chosen = nestcode::choose_simd(simd);
        const Range range(rows.data(), count, own.features(), by);
        if (!range.finite) return false;
        nb::gil_scoped_release released;
        scan->search(rows.data(), count, {items.data(), ids.data(), items.size()}, by, hits, chosen, threads);
        return range.fits && fit(hits, count);
    }
};

}  // namespace

void add_scan(nb::module_& m) {
    nb::class_<PyScannedFormat>(m, "ScannedFormat")
        .def(nb::init<Mat<std::int32_t>, Mat<std::int32_t>, Mat<float>, Mat<float>>(), "directions"_a.noconvert(),
             "depths"_a.noconvert(), "levels"_a.noconvert(), "centroids"_a.noconvert())
        .def(nb::init<Array<const float, 3>>(), "codebooks"_a.noconvert());
    nb::class_<PyScannedCodes>(m, "ScannedCodes")
        .def(nb::init<Packed, Vec<std::int64_t>, Vec<float>, Vec<float>>(), "codes"_a.noconvert(),
             "centroids"_a.noconvert(), "squares"_a.noconvert(), "norms"_a.noconvert());
    nb::class_<PyCodeScan> scan(m, "CodeScan");
    scan.def(nb::init<nb::object, nb::object, std::vector<nb::object>>(), "projection"_a, "how"_a, "runs"_a);
    const auto add_searches = [&]<class Real>(Real) {
        const auto add = [&](auto vectors, auto codes) {
            m.def("scan_vectors", vectors, "vectors"_a, "queries"_a, "items"_a, "ids"_a, "metric"_a, "distances"_a,
                  "top_ids"_a, "threads"_a = 1, "simd"_a = "",
                  "Add the nearest of some vectors to the hits of one query or each.");
            scan.def("search", codes, "rows"_a, "items"_a, "ids"_a, "metric"_a, "distances"_a, "top_ids"_a,
                     "threads"_a = 1, "simd"_a = "", "Add the nearest of some items to the hits of one row or each.");
        };
        add(scan_vectors<Real, 1>, &PyCodeScan::search<Real, 1>);
        add(scan_vectors<Real, 2>, &PyCodeScan::search<Real, 2>);
    };
    add_searches(float{});
    add_searches(double{});
    m.def("scan_hamming", scan_hamming, "queries"_a.noconvert(), "codes"_a.noconvert(), "ids"_a.noconvert(),
          "distances"_a, "top_ids"_a, "threads"_a = 1, "simd"_a = "",
          "Add the nearest codes by Hamming distance to the hits of each query.");
}
