// Quantizers: nestcode/coders.
#include <bit>

#include "arrays.hpp"
#include "nestcode/adaptive_quantizer.hpp"
#include "nestcode/centering.hpp"
#include "nestcode/residual_quantizer.hpp"
#include "nestcode/scalar_quantizer.hpp"
#include "nestcode/two_means_tree.hpp"
#include "views.hpp"

namespace {

template <class Real, class Out>
bool center_rows(const View<const Real, 2>& rows, const View<const Real, 1>& mean, bool normalize, Real most,
                 const View<Out, 2>& out, std::size_t threads) {
    const std::size_t count = rows.shape(0), features = rows.shape(1);
    if (out.shape(0) != count || out.shape(1) != features || (mean.size() != 0 && mean.size() != features))
        throw nb::value_error("the mean must have the features of the rows, or none, and out their shape");
    nb::gil_scoped_release released;
    return nestcode::center_rows(rows.data(), count, features, mean.size() != 0 ? mean.data() : nullptr, normalize,
                                 most, out.data(), threads);
}

template <class Real>
void sum_squares(const View<const Real, 2>& rows, const View<double, 1>& out, std::size_t threads) {
    if (out.size() != rows.shape(0)) throw nb::value_error("there must be room for each row");
    nb::gil_scoped_release released;
    nestcode::squared_norms(rows.data(), rows.shape(0), rows.shape(1), out.data(), threads);
}

double split_intervals(const Vec<double>& values, const Vec<double>& sums, const Vec<std::int64_t>& edges,
                       const Vec<double>& levels, const Array<std::int64_t, 1>& parts,
                       const Array<float, 1>& thresholds, const Array<double, 1>& means) {
    const auto count = static_cast<std::int64_t>(values.size());
    const std::size_t intervals = levels.size();
    if (sums.size() != values.size() + 1 || edges.size() != intervals + 1 || count == 0)
        throw nb::value_error("there must be values, a sum before each and after all, and a level for each interval");
    if (thresholds.size() != intervals || means.size() != 2 * intervals || parts.size() != 2 * intervals + 1)
        throw nb::value_error("there must be room for a threshold, two means and two parts of each interval");
    for (std::size_t i = 0; i < edges.size(); ++i)
        if (edges(i) < (i == 0 ? 0 : edges(i - 1)) || edges(i) > count)
            throw nb::value_error("edges must be places in the values, in order");
    nb::gil_scoped_release released;
    return nestcode::split_intervals(values.data(), sums.data(), edges.data(), levels.data(), intervals, parts.data(),
                                     thresholds.data(), means.data());
}

void quantize_scalars(const Mat<float>& coefficients, const Mat<float>& thresholds, const Vec<std::uint8_t>& depths,
                      const Array<std::uint8_t, 2>& intervals, std::size_t threads) {
    const std::size_t directions = depths.shape(0), rows = coefficients.shape(0);
    if (coefficients.shape(1) != directions || thresholds.shape(0) != directions)
        throw nb::value_error("coefficients, thresholds and depths must have the same number of directions");
    if (intervals.shape(0) != rows || intervals.shape(1) != directions)
        throw nb::value_error("intervals must have the shape of the coefficients");
    for (std::size_t d = 0; d < directions; ++d)
        if (depths(d) > 8 || thresholds.shape(1) < (std::size_t{1} << depths(d)))
            throw nb::value_error("a tree must have a depth of at most 8, and 2^depth thresholds");
    const nestcode::ThresholdTrees trees{thresholds.data(), depths.data(), directions, thresholds.shape(1)};
    nb::gil_scoped_release released;
    nestcode::quantize_scalars(coefficients.data(), rows, trees, intervals.data(), threads);
}

void permute_bits(const Packed& packed, const Vec<std::int32_t>& sources, const Array<std::uint8_t, 2>& out,
                  std::size_t threads) {
    if (out.shape(0) != packed.shape(0) || 8 * out.shape(1) != sources.shape(0))
        throw nb::value_error("out must have a row for each row, and a byte for each 8 sources");
    const auto bits = static_cast<std::int64_t>(8 * packed.shape(1));
    for (std::size_t j = 0; j < sources.shape(0); ++j)
        if (sources(j) >= bits) throw nb::value_error("sources must be bits of the row");
    const nestcode::Rows rows = rows_of(packed);
    nb::gil_scoped_release released;
    nestcode::permute_bits(rows, sources.data(), out.data(), out.shape(1), threads);
}

void decode_bit_planes(const Packed& packed, const Vec<std::int32_t>& allocation, std::size_t first,
                       const Mat<float>& levels, const Array<float, 2>& out, std::size_t threads) {
    const std::size_t directions = levels.shape(0);
    if (out.shape(0) != packed.shape(0) || out.shape(1) != directions ||
        (allocation.size() != 0 && first + allocation.size() > 8 * packed.shape(1)))
        throw nb::value_error("out must have a column for each direction, and allocation no more bits than a row");
    std::vector<std::size_t> nodes(directions, 2);
    for (std::size_t j = 0; j < allocation.size(); ++j) {
        if (allocation(j) < 0) continue;
        if (static_cast<std::size_t>(allocation(j)) >= directions)
            throw nb::value_error("the allocation must name directions, or -1");
        std::size_t& count = nodes[static_cast<std::size_t>(allocation(j))];
        count *= 2;
        if (count > std::min<std::size_t>(512, levels.shape(1)))
            throw nb::value_error("a direction must have at most 8 bits, and a level for each node");
    }
    if (directions != 0 && levels.shape(1) < 2) throw nb::value_error("a direction must have a level for its root");
    const nestcode::Rows rows = rows_of(packed);
    nb::gil_scoped_release released;
    nestcode::decode_bit_planes(rows, allocation.data(), allocation.size(), first,
                                {levels.data(), directions, levels.shape(1)}, out.data(), threads);
}

void extend_beams(const Mat<float>& errors, const Mat<std::uint32_t>& ancestors, const Mat<float>& products,
                  const Array<const std::uint8_t, 3>& recent, const Array<const float, 3>& tables,
                  const Vec<float>& norms, const Array<std::uint16_t, 2>& from, const Array<std::uint16_t, 2>& entry,
                  const Array<float, 2>& new_errors, std::size_t threads) {
    const nestcode::BeamStep step{errors.shape(0), errors.shape(1),  norms.shape(0),  from.shape(1),    tables.shape(0),
                                  errors.data(),   ancestors.data(), products.data(), recent.data(),    tables.data(),
                                  norms.data(),    from.data(),      entry.data(),    new_errors.data()};
    if (ancestors.shape(0) != step.items || ancestors.shape(1) != step.beams || products.shape(1) != step.entries)
        throw nb::value_error("there must be an ancestor for each beam, and a product for each ancestor and entry");
    if (recent.shape(0) != step.items || recent.shape(1) != step.beams || recent.shape(2) != step.lag)
        throw nb::value_error("there must be a recent entry for each beam and table");
    if (step.lag > step.kMostLag || tables.shape(1) != 256 || tables.shape(2) != step.entries)
        throw nb::value_error("there must be at most 4 tables, of 256 rows of a product for each entry");
    for (const auto* out : {&from, &entry})
        if (out->shape(0) != step.items || out->shape(1) != step.kept)
            throw nb::value_error("there must be room for each beam that is kept");
    if (new_errors.shape(0) != step.items || new_errors.shape(1) != step.kept)
        throw nb::value_error("there must be room for each beam that is kept");
    if (step.kept < 1 || step.kept > step.beams * step.entries || step.beams * step.entries > 1 << 24)
        throw nb::value_error("at least one beam must be kept, and no more than there are candidates");
    nb::gil_scoped_release released;
    for (std::size_t i = 0; i < step.items * step.beams; ++i)
        if (step.ancestors[i] >= products.shape(0)) throw std::invalid_argument("there must be a product per ancestor");
    nestcode::extend_beams(step, threads);
}

void nearest_entries(const Mat<float>& products, const Vec<float>& half_norms, const Array<std::int64_t, 1>& nearest,
                     std::size_t threads) {
    if (products.shape(1) != half_norms.shape(0) || products.shape(0) != nearest.shape(0))
        throw nb::value_error("there must be a product for each row and entry, and room for each row");
    nb::gil_scoped_release released;
    nestcode::nearest_entries(products.data(), half_norms.data(), products.shape(0), products.shape(1), nearest.data(),
                              threads);
}

void sum_rows_by_entry(const Mat<float>& rows, const Vec<std::uint32_t>& sources, const Vec<std::int64_t>& entries,
                       const Array<float, 2>& sums, std::size_t threads) {
    if (entries.shape(0) != sources.shape(0) || sums.shape(1) != rows.shape(1))
        throw nb::value_error("there must be an entry for each source, and a sum for each feature");
    const auto count = static_cast<std::int64_t>(sums.shape(0));
    nb::gil_scoped_release released;
    for (std::size_t i = 0; i < sources.shape(0); ++i) {
        if (entries.data()[i] < 0 || entries.data()[i] >= count)
            throw std::invalid_argument("there must be a row of sums for each entry");
        if (sources.data()[i] >= rows.shape(0)) throw std::invalid_argument("there must be a row for each source");
    }
    nestcode::sum_rows_by_entry(rows.data(), sources.data(), entries.data(), sources.shape(0), rows.shape(1),
                                sums.data(), threads);
}

void grow_two_means_tree(const Mat<float>& rows, const Mat<float>& starts, const Array<float, 2>& leaves,
                         std::size_t threads) {
    const std::size_t features = rows.shape(1), nodes = leaves.shape(0);
    if (rows.shape(0) < 1 || rows.shape(0) > UINT32_MAX || !std::has_single_bit(nodes))
        throw nb::value_error("there must be rows, and leaves for each value of some bits");
    if (starts.shape(0) + 1 != nodes || starts.shape(1) != features || leaves.shape(1) != features)
        throw nb::value_error("there must be a start for each node but the leaves");
    nb::gil_scoped_release released;
    nestcode::grow_two_means_tree({features, rows.data(), starts.data()}, rows.shape(0),
                                  static_cast<std::size_t>(std::countr_zero(nodes)), leaves.data(), threads);
}

void sum_codebook_entries(const Packed& codes, const Array<const float, 3>& codebooks, const Array<float, 2>& out,
                          std::size_t threads) {
    if (codebooks.shape(0) != codes.shape(1) || codebooks.shape(1) != 256)
        throw nb::value_error("there must be a codebook of 256 entries for each byte of a code");
    if (out.shape(0) != codes.shape(0) || out.shape(1) != codebooks.shape(2))
        throw nb::value_error("out must have a row of features for each code");
    const nestcode::Rows rows = rows_of(codes);
    nb::gil_scoped_release released;
    nestcode::sum_codebook_entries(rows, codebooks.data(), codebooks.shape(2), out.data(), threads);
}

void find_largest_scales(const Mat<std::int16_t>& log_scales, const Array<std::int32_t, 2>& out, std::size_t threads) {
    const std::size_t count = log_scales.shape(0), directions = log_scales.shape(1), dims = out.shape(1);
    if (out.shape(0) != count || dims < 1 || dims > directions || directions > 0xFFFF)
        throw nb::value_error("out must have a row of 1 to all of the coordinates for each row of log-scales");
    nb::gil_scoped_release released;
    nestcode::find_largest_scales(log_scales.data(), count, directions, dims, out.data(), threads);
}

nestcode::AdaptiveCodebooks codebooks_of(const Vec<std::int16_t>& log_scales, const Array<const float, 3>& entries,
                                         const Array<const std::int16_t, 3>& changes) {
    const std::size_t directions = log_scales.shape(0), stages = entries.shape(0), dims = entries.shape(1);
    if (entries.shape(2) != nestcode::kEntries || dims < 1 || dims > directions || directions > 0xFFFF)
        throw nb::value_error("codebooks must have 256 entries for 1 to all of the coordinates");
    if (changes.shape(0) != stages || changes.shape(1) != nestcode::kEntries || changes.shape(2) != dims)
        throw nb::value_error("there must be a change of log-scale for each value of the codebooks");
    return {directions, stages, dims, log_scales.data(), entries.data(), changes.data()};
}

void encode_adaptive(const Mat<float>& rows, const Vec<std::int16_t>& log_scales, const Array<const float, 3>& entries,
                     const Array<const std::int16_t, 3>& changes, std::size_t beams, const Array<std::uint8_t, 2>& out,
                     std::size_t threads) {
    const nestcode::AdaptiveCodebooks codebooks = codebooks_of(log_scales, entries, changes);
    if (rows.shape(1) != codebooks.directions || out.shape(0) != rows.shape(0) || out.shape(1) != codebooks.stages)
        throw nb::value_error("rows must have all coordinates, and out a byte for each codebook");
    if (beams < 1 || beams > 1024) throw nb::value_error("there must be 1 to 1024 beams");
    nb::gil_scoped_release released;
    nestcode::encode_adaptive(codebooks, rows.data(), rows.shape(0), beams, out.data(), threads);
}

void decode_adaptive(const Packed& codes, const Vec<std::int16_t>& log_scales, const Array<const float, 3>& entries,
                     const Array<const std::int16_t, 3>& changes, const Array<float, 2>& out, std::size_t threads) {
    const nestcode::AdaptiveCodebooks codebooks = codebooks_of(log_scales, entries, changes);
    const nestcode::Rows rows = rows_of(codes);
    if (rows.bytes != codebooks.stages || out.shape(0) != rows.count || out.shape(1) != codebooks.directions)
        throw nb::value_error("codes must have a byte for each codebook, and out a row of coordinates for each code");
    nb::gil_scoped_release released;
    nestcode::decode_adaptive(codebooks, rows, out.data(), threads);
}

}  // namespace

void add_coders(nb::module_& m) {
    const auto add_center_rows = [&](auto function) {
        m.def("center_rows", function, "rows"_a, "mean"_a, "normalize"_a, "most"_a, "out"_a, "threads"_a = 1,
              "Write rows, L2-normalized and less the mean, and return whether no value is NaN or above `most`.");
    };
    add_center_rows(center_rows<float, float>);
    add_center_rows(center_rows<double, double>);
    add_center_rows(center_rows<double, float>);
    m.def("sum_squares", sum_squares<float>, "rows"_a, "out"_a, "threads"_a = 1,
          "Write the squared norms of rows in float64.");
    m.def("sum_squares", sum_squares<double>, "rows"_a, "out"_a, "threads"_a = 1);
    m.def("split_intervals", split_intervals, "values"_a.noconvert(), "sums"_a.noconvert(), "edges"_a.noconvert(),
          "levels"_a.noconvert(), "parts"_a.noconvert(), "thresholds"_a.noconvert(), "means"_a.noconvert(),
          "Write two-means splits of the intervals of sorted values, and return by how much explained squares rise.");
    m.def("quantize_scalars", quantize_scalars, "coefficients"_a.noconvert(), "thresholds"_a.noconvert(),
          "depths"_a.noconvert(), "intervals"_a.noconvert(), "threads"_a = 1,
          "Write the interval of each coefficient in its direction's tree of thresholds.");
    m.def("permute_bits", permute_bits, "packed"_a.noconvert(), "sources"_a.noconvert(), "out"_a.noconvert(),
          "threads"_a = 1, "Write rows whose bit j is bit sources[j] of the row, or 0 if that is negative.");
    m.def("decode_bit_planes", decode_bit_planes, "packed"_a.noconvert(), "allocation"_a.noconvert(), "first"_a,
          "levels"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
          "Write the coefficients that bit planes decode to.");
    m.def("extend_beams", extend_beams, "errors"_a.noconvert(), "ancestors"_a.noconvert(), "products"_a.noconvert(),
          "recent"_a.noconvert(), "tables"_a.noconvert(), "norms"_a.noconvert(), "from_beam"_a.noconvert(),
          "entry"_a.noconvert(), "new_errors"_a.noconvert(), "threads"_a = 1,
          "Write the best continuations of each item's beams by one more codebook entry.");
    m.def("grow_two_means_tree", grow_two_means_tree, "rows"_a.noconvert(), "starts"_a.noconvert(),
          "leaves"_a.noconvert(), "threads"_a = 1, "Write the means of the leaves of a tree of two-means splits.");
    m.def("nearest_entries", nearest_entries, "products"_a.noconvert(), "half_norms"_a.noconvert(),
          "nearest"_a.noconvert(), "threads"_a = 1,
          "Write the entry of each row whose product, less half of the entry's squared norm, is largest.");
    m.def("sum_rows_by_entry", sum_rows_by_entry, "rows"_a.noconvert(), "sources"_a.noconvert(),
          "entries"_a.noconvert(), "sums"_a.noconvert(), "threads"_a = 1,
          "Add the row of each source to the row of sums that its entry names.");
    m.def("sum_codebook_entries", sum_codebook_entries, "codes"_a.noconvert(), "codebooks"_a.noconvert(),
          "out"_a.noconvert(), "threads"_a = 1, "Add the codebook entries that codes select to the rows of out.");
    m.def("find_largest_scales", find_largest_scales, "log_scales"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
          "Write the coordinates of the largest scales of each row, largest first.");
    m.def("encode_adaptive", encode_adaptive, "rows"_a.noconvert(), "log_scales"_a.noconvert(), "entries"_a.noconvert(),
          "changes"_a.noconvert(), "beams"_a, "out"_a.noconvert(), "threads"_a = 1,
          "Write the codes of rows by backward-adaptive residual quantization with beam search.");
    m.def("decode_adaptive", decode_adaptive, "codes"_a.noconvert(), "log_scales"_a.noconvert(),
          "entries"_a.noconvert(), "changes"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
          "Write the rows that such codes decode to.");
}
