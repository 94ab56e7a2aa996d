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

// Positions of items, checked, as uint32: `converted` holds those of int64.
const std::uint32_t* positions_of(const AnyView<1>& items, std::size_t count, std::vector<std::uint32_t>& converted) {
    const auto check = [&](const auto* positions) {
        bool beyond = false;
        for (std::size_t i = 0; i < items.size(); ++i) beyond |= static_cast<std::uint64_t>(positions[i]) >= count;
        if (beyond) throw nb::value_error("items must be positions of vectors or codes");
        return positions;
    };
    if (count >= UINT32_MAX) throw nb::value_error("there must be less than 2^32 items");
    if (items.holds<std::uint32_t>()) return check(static_cast<const std::uint32_t*>(items.data()));
    if (!items.holds<std::int64_t>()) throw nb::value_error("items must be uint32 or int64");
    const auto* const positions = check(static_cast<const std::int64_t*>(items.data()));
    converted.assign(positions, positions + items.size());
    return converted.data();
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

struct PyCodeFormat {
    Mat<std::int32_t> directions, depths;
    Mat<float> levels, centroids;
    Array<const float, 3> codebooks;
    std::optional<nestcode::CodeFormat> format;

    PyCodeFormat(Mat<std::int32_t> given_directions, Mat<std::int32_t> given_depths, Mat<float> given_levels,
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
        if (levels.shape(1) < 2) throw nb::value_error("each direction must have a level without bits");
        check_centroids(count);
        format.emplace(nestcode::RegroupedBits{bytes, most, directions.data(), depths.data()},
                       nestcode::ReconstructionLevels{levels.data(), count, levels.shape(1)}, centroids.data(),
                       centroids.shape(0));
    }

    PyCodeFormat(Array<const float, 3> given_codebooks, Mat<float> given_centroids)
        : centroids(std::move(given_centroids)), codebooks(std::move(given_codebooks)) {
        if (codebooks.shape(1) != 256) throw nb::value_error("codebooks must have 256 entries");
        check_centroids(codebooks.shape(2));
        format.emplace(codebooks.data(), codebooks.shape(0), codebooks.shape(2), centroids.data());
    }

  private:
    void check_centroids(std::size_t count) const {
        if (centroids.shape(0) == 0 || centroids.shape(1) != count + 2)
            throw nb::value_error("there must be a centroid, with two coordinates more than directions");
    }
};

// The items of one run: codes as the format takes them, and their centroids; none where there is only one.
struct PyScannedCodes {
    nb::object format;
    Packed codes;
    Vec<std::int64_t> centroids;
    std::optional<nestcode::ScannedCodes> items;

    PyScannedCodes(nb::object given_format, Packed given_codes, Vec<std::int64_t> given_centroids)
        : format(std::move(given_format)), codes(std::move(given_codes)), centroids(std::move(given_centroids)) {
        const nestcode::CodeFormat& by = *part_of<PyCodeFormat>(format).format;
        const bool shared = by.centroid_count() == 1;
        if (codes.shape(1) < by.bytes) throw nb::value_error("codes must have all bytes");
        if (centroids.size() != (shared ? 0 : codes.shape(0)) ||
            !below(centroids.data(), centroids.size(), by.centroid_count()))
            throw nb::value_error("each item must have one of the centroids, if there are several");
        const nestcode::Rows rows = rows_of(codes);
        nb::gil_scoped_release released;
        items.emplace(by, rows, shared ? nullptr : centroids.data(), nestcode::choose_simd(""));
    }

    std::size_t nbytes() const { return codes.nbytes() + centroids.nbytes() + items->squares.size() * sizeof(float); }
};

struct PyScannedRuns {
    nb::object projection, format;
    std::vector<nb::object> owners;
    std::optional<nestcode::ScannedRuns> runs;

    PyScannedRuns(nb::object given_projection, nb::object given_format, std::vector<nb::object> given_runs)
        : projection(std::move(given_projection)), format(std::move(given_format)), owners(std::move(given_runs)) {
        const nestcode::RowProjection& own = projection_of(projection);
        const nestcode::CodeFormat& by = *part_of<PyCodeFormat>(format).format;
        if (by.directions != own.count || own.used != own.count)
            throw nb::value_error("codes must decode to coefficients of all directions");
        runs.emplace(own, by);
        for (const nb::object& object : owners) {
            const PyScannedCodes& one = part_of<PyScannedCodes>(object);
            if (!one.format.is(format)) throw nb::value_error("the codes of all runs must have this format");
            runs->add(*one.items);
        }
    }
};

// Scans vectors or codes, (…, count) of which are items; returns whether distances fit float32.
template <class Real, std::size_t Dimensions>
bool scan(nb::handle rows, const View<const Real, Dimensions>& queries, const AnyView<1>& items,
          const View<const std::int64_t, 1>& ids, std::string_view metric, const View<float, Dimensions>& distances,
          const View<std::int64_t, Dimensions>& top_ids, std::size_t threads, std::string_view simd) {
    PyScannedRuns* coded = nullptr;
    nb::try_cast<PyScannedRuns*>(rows, coded);
    const nestcode::ScannedRuns* const codes = coded != nullptr ? &*coded->runs : nullptr;
    const nestcode::VectorRuns* const vectors = codes == nullptr ? &vector_runs_of(rows) : nullptr;
    const nestcode::Metric by = nestcode::metric_named(metric);
    const std::size_t count = count_of(queries), many = items.size(),
                      features = codes != nullptr ? codes->projection.features() : vectors->features;
    if (width_of(queries) != features || ids.size() != many)
        throw nb::value_error("queries must have the features of the items, and each item an id");
    if (codes != nullptr && codes->projection.metric != by) throw nb::value_error("codes have another metric");
    std::vector<std::uint32_t> converted;
    const std::uint32_t* const positions =
        positions_of(items, codes != nullptr ? codes->count() : vectors->count(), converted);
    const nestcode::NearestHits hits = hits_of(count, distances, top_ids);
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    const Range range(queries.data(), count, features, by);
    if (!range.finite) return false;
    nb::gil_scoped_release released;
    if (codes != nullptr)
        nestcode::scan(nestcode::CodeItems{*codes, positions, ids.data(), many, chosen},
                       nestcode::CodeQueries<Real>{codes->projection, queries.data(), chosen}, count, by, hits, chosen,
                       threads);
    else
        nestcode::scan(nestcode::VectorItems{*vectors, positions, ids.data(), many},
                       nestcode::VectorQueries<Real>{queries.data(), features, by}, count, by, hits, chosen, threads);
    return range.fits && fit(hits, count);
}

}  // namespace

void add_scan(nb::module_& m) {
    nb::class_<PyCodeFormat>(m, "CodeFormat")
        .def(nb::init<Mat<std::int32_t>, Mat<std::int32_t>, Mat<float>, Mat<float>>(), "directions"_a.noconvert(),
             "depths"_a.noconvert(), "levels"_a.noconvert(), "centroids"_a.noconvert())
        .def(nb::init<Array<const float, 3>, Mat<float>>(), "codebooks"_a.noconvert(), "centroids"_a.noconvert());
    nb::class_<PyScannedCodes>(m, "ScannedCodes")
        .def(nb::init<nb::object, Packed, Vec<std::int64_t>>(), "how"_a, "codes"_a.noconvert(),
             "centroids"_a.noconvert())
        .def_prop_ro("nbytes", &PyScannedCodes::nbytes, "Bytes of codes, centroids and norms.");
    nb::class_<PyScannedRuns>(m, "ScannedRuns")
        .def(nb::init<nb::object, nb::object, std::vector<nb::object>>(), "projection"_a, "how"_a, "runs"_a);
    const auto add_scan_of = [&](auto scan) {
        m.def("scan", scan, "rows"_a, "queries"_a, "items"_a, "ids"_a, "metric"_a, "distances"_a, "top_ids"_a,
              "threads"_a = 1, "simd"_a = "", "Add the nearest of some items to the hits of one query or each.");
    };
    add_scan_of(scan<float, 1>);
    add_scan_of(scan<float, 2>);
    add_scan_of(scan<double, 1>);
    add_scan_of(scan<double, 2>);
    m.def("scan_hamming", scan_hamming, "queries"_a.noconvert(), "codes"_a.noconvert(), "ids"_a.noconvert(),
          "distances"_a, "top_ids"_a, "threads"_a = 1, "simd"_a = "",
          "Add the nearest codes by Hamming distance to the hits of each query.");
}
