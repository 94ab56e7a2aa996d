// Kernels over packed bits: nestcode/codes.py and the coders.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "nestcode/adaptive.hpp"
#include "nestcode/cells.hpp"
#include "nestcode/hamming.hpp"
#include "nestcode/order.hpp"
#include "nestcode/residual.hpp"

namespace {

void check_pairs(const Packed& a, const Packed& b, const Matrix& out) {
    if (a.shape(1) != b.shape(1)) throw nb::value_error("rows must have the same number of bytes");
    if (out.shape(0) != a.shape(0) || out.shape(1) != b.shape(0))
        throw nb::value_error("out must have a row for each of a and a column for each of b");
}

void hamming(const Packed& a, const Packed& b, const Matrix& out, std::size_t threads, const std::string& simd) {
    check_pairs(a, b, out);
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    const nestcode::Rows left = rows_of(a), right = rows_of(b);
    std::int32_t* distances = out.data();
    nb::gil_scoped_release released;
    nestcode::hamming(left, right, distances, chosen, threads);
}

void common_prefix(const Packed& a, const Packed& b, std::int32_t width, const Matrix& out, std::size_t threads) {
    check_pairs(a, b, out);
    const nestcode::Rows left = rows_of(a), right = rows_of(b);
    std::int32_t* shared = out.data();
    nb::gil_scoped_release released;
    nestcode::common_prefix(left, right, width, shared, threads);
}

void sort_order(const Packed& packed, const Vector& order) {
    if (order.shape(0) != packed.shape(0)) throw nb::value_error("order must have one entry for each row");
    const nestcode::Rows rows = rows_of(packed);
    std::int64_t* sorted = order.data();
    nb::gil_scoped_release released;
    nestcode::sort_order(rows, sorted);
}

void find_cells(const Array<const float, 2>& numbers, const Array<const float, 2>& thresholds,
                const Array<const std::uint8_t, 1>& depths, const Array<std::uint8_t, 2>& cells, std::size_t threads) {
    const std::size_t count = depths.shape(0);
    if (numbers.shape(1) != count || thresholds.shape(0) != count)
        throw nb::value_error("numbers, thresholds and depths must have the same number of dimensions");
    if (cells.shape(0) != numbers.shape(0) || cells.shape(1) != count)
        throw nb::value_error("cells must have the shape of numbers");
    for (std::size_t d = 0; d < count; ++d)
        if (depths(d) > 8 || thresholds.shape(1) < (std::size_t{1} << depths(d)))
            throw nb::value_error("a tree of some depth needs 2^depth thresholds, and no tree is deeper than 8");
    const nestcode::Trees trees{thresholds.data(), depths.data(), count, thresholds.shape(1)};
    const float* data = numbers.data();
    const std::size_t rows = numbers.shape(0);
    std::uint8_t* found = cells.data();
    nb::gil_scoped_release released;
    nestcode::find_cells(data, rows, trees, found, threads);
}

void permute_bits(const Packed& packed, const Array<const std::int32_t, 1>& sources, const Array<std::uint8_t, 2>& out,
                  std::size_t threads) {
    if (out.shape(0) != packed.shape(0) || 8 * out.shape(1) != sources.shape(0))
        throw nb::value_error("out must have a row for each row, and a byte for each 8 sources");
    const auto bits = static_cast<std::int64_t>(8 * packed.shape(1));
    for (std::size_t j = 0; j < sources.shape(0); ++j)
        if (sources(j) >= bits) throw nb::value_error("a source lies beyond the row");
    const nestcode::Rows rows = rows_of(packed);
    const std::int32_t* from = sources.data();
    std::uint8_t* to = out.data();
    const std::size_t out_bytes = out.shape(1);
    nb::gil_scoped_release released;
    nestcode::permute_bits(rows, from, to, out_bytes, threads);
}

void read_planes(const Packed& packed, const Vec<std::int32_t>& owners, std::size_t first,
                 const Array<const float, 2>& numbers, const Array<float, 2>& out, std::size_t threads) {
    const std::size_t directions = numbers.shape(0);
    if (out.shape(0) != packed.shape(0) || out.shape(1) != directions ||
        (owners.size() != 0 && first + owners.size() > 8 * packed.shape(1)))
        throw nb::value_error("out must have a number for each direction, and owners no more bits than a row");
    std::vector<std::size_t> nodes(directions, 2);
    for (std::size_t j = 0; j < owners.size(); ++j) {
        if (owners(j) < 0) continue;
        if (static_cast<std::size_t>(owners(j)) >= directions) throw nb::value_error("an owner must be a direction");
        std::size_t& most = nodes[static_cast<std::size_t>(owners(j))];
        most *= 2;
        if (most > std::min<std::size_t>(512, numbers.shape(1)))
            throw nb::value_error("a direction has at most 8 bits, and a number for each node");
    }
    if (directions != 0 && numbers.shape(1) < 2) throw nb::value_error("a direction has a number for its root");
    const nestcode::Rows rows = rows_of(packed);
    nb::gil_scoped_release released;
    nestcode::read_planes(rows, owners.data(), owners.size(), first, {numbers.data(), directions, numbers.shape(1)},
                          out.data(), threads);
}

void sum_tables(const Packed& cells, const Array<const float, 3>& tables, const Array<float, 2>& out,
                std::size_t threads) {
    if (tables.shape(1) != cells.shape(1) || tables.shape(2) != 256)
        throw nb::value_error("tables must have 256 entries for each byte of a row");
    if (out.shape(0) != tables.shape(0) || out.shape(1) != cells.shape(0))
        throw nb::value_error("out must have a row for each query and a column for each row of cells");
    const nestcode::Rows rows = rows_of(cells);
    const float* entries = tables.data();
    const std::size_t queries = tables.shape(0);
    float* sums = out.data();
    nb::gil_scoped_release released;
    nestcode::sum_tables(rows, entries, queries, sums, threads);
}

void extend_beams(const Array<const float, 2>& errors, const Array<const float, 3>& products,
                  const Array<const float, 1>& norms, const Array<std::uint16_t, 2>& from,
                  const Array<std::uint16_t, 2>& entry, const Array<float, 2>& new_errors, std::size_t threads) {
    const nestcode::BeamStep step{errors.shape(0), errors.shape(1), norms.shape(0), from.shape(1), errors.data(),
                                  products.data(), norms.data(),    from.data(),    entry.data(),  new_errors.data()};
    if (products.shape(0) != step.items || products.shape(1) != step.beams || products.shape(2) != step.entries)
        throw nb::value_error("there must be a product for each item, beam and entry");
    for (const auto* out : {&from, &entry})
        if (out->shape(0) != step.items || out->shape(1) != step.kept)
            throw nb::value_error("there must be room for each beam that is kept");
    if (new_errors.shape(0) != step.items || new_errors.shape(1) != step.kept)
        throw nb::value_error("there must be room for each beam that is kept");
    if (step.kept < 1 || step.kept > step.beams * step.entries || step.beams * step.entries > 1 << 24)
        throw nb::value_error("at least one beam, and no more than there are choices, can be kept");
    nb::gil_scoped_release released;
    nestcode::extend_beams(step, threads);
}

void sum_entries(const Packed& cells, const Array<const float, 3>& codebooks, const Array<float, 2>& out,
                 std::size_t threads) {
    if (codebooks.shape(0) != cells.shape(1) || codebooks.shape(1) != 256)
        throw nb::value_error("there must be a codebook of 256 entries for each byte of a row");
    if (out.shape(0) != cells.shape(0) || out.shape(1) != codebooks.shape(2))
        throw nb::value_error("out must have a row of features for each row of cells");
    const nestcode::Rows rows = rows_of(cells);
    nb::gil_scoped_release released;
    nestcode::sum_entries(rows, codebooks.data(), codebooks.shape(2), out.data(), threads);
}

void find_widest(const Array<const std::int16_t, 2>& levels, const Array<std::int32_t, 2>& out, std::size_t threads) {
    const std::size_t count = levels.shape(0), directions = levels.shape(1), dims = out.shape(1);
    if (out.shape(0) != count || dims < 1 || dims > directions || directions > 0xFFFF)
        throw nb::value_error("out must have a row of 1 to all of the coordinates for each row of levels");
    nb::gil_scoped_release released;
    nestcode::find_widest(levels.data(), count, directions, dims, out.data(), threads);
}

nestcode::Adaptive adaptive_of(const Vec<std::int16_t>& levels, const Array<const float, 3>& books,
                               const Array<const std::int16_t, 3>& changes) {
    const std::size_t directions = levels.shape(0), stages = books.shape(0), dims = books.shape(1);
    if (books.shape(2) != nestcode::kEntries || dims < 1 || dims > directions || directions > 0xFFFF)
        throw nb::value_error("books must have 256 entries for 1 to all of the coordinates");
    if (changes.shape(0) != stages || changes.shape(1) != nestcode::kEntries || changes.shape(2) != dims)
        throw nb::value_error("there must be a change of level for each number of the books");
    return {directions, stages, dims, levels.data(), books.data(), changes.data()};
}

void encode_adaptive(const Array<const float, 2>& rows, const Vec<std::int16_t>& levels,
                     const Array<const float, 3>& books, const Array<const std::int16_t, 3>& changes, std::size_t beams,
                     const Array<std::uint8_t, 2>& out, std::size_t threads) {
    const nestcode::Adaptive coder = adaptive_of(levels, books, changes);
    if (rows.shape(1) != coder.directions || out.shape(0) != rows.shape(0) || out.shape(1) != coder.stages)
        throw nb::value_error("rows must have all coordinates, and out a byte for each book");
    if (beams < 1 || beams > 1024) throw nb::value_error("there must be 1 to 1024 beams");
    nb::gil_scoped_release released;
    nestcode::encode_adaptive(coder, rows.data(), rows.shape(0), beams, out.data(), threads);
}

void decode_adaptive(const Packed& codes, const Vec<std::int16_t>& levels, const Array<const float, 3>& books,
                     const Array<const std::int16_t, 3>& changes, const Array<float, 2>& out, std::size_t threads) {
    const nestcode::Adaptive coder = adaptive_of(levels, books, changes);
    const nestcode::Rows rows = rows_of(codes);
    if (rows.bytes != coder.stages || out.shape(0) != rows.count || out.shape(1) != coder.directions)
        throw nb::value_error("codes must have a byte for each book, and out a row of coordinates for each code");
    nb::gil_scoped_release released;
    nestcode::decode_adaptive(coder, rows, out.data(), threads);
}

std::vector<std::string> simd_names() {
    std::vector<std::string> names;
    for (nestcode::Simd simd : nestcode::available_simd()) names.emplace_back(nestcode::name_of(simd));
    return names;
}

}  // namespace

void add_codes(nb::module_& m) {
    m.def("hamming", hamming, "a"_a.noconvert(), "b"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1, "simd"_a = "",
          "Write the Hamming distance of every pair of rows into out.");
    m.def("common_prefix", common_prefix, "a"_a.noconvert(), "b"_a.noconvert(), "width"_a, "out"_a.noconvert(),
          "threads"_a = 1, "Write the number of shared leading bits of every pair of rows into out.");
    m.def("sort_order", sort_order, "packed"_a.noconvert(), "order"_a.noconvert(),
          "Write the lexicographic order of the rows into order.");
    m.def("find_cells", find_cells, "numbers"_a.noconvert(), "thresholds"_a.noconvert(), "depths"_a.noconvert(),
          "cells"_a.noconvert(), "threads"_a = 1, "Write which cell of its dimension's tree each number falls into.");
    m.def("permute_bits", permute_bits, "packed"_a.noconvert(), "sources"_a.noconvert(), "out"_a.noconvert(),
          "threads"_a = 1, "Write rows whose bit j is bit sources[j] of the given row, or 0 where that is negative.");
    m.def("read_planes", read_planes, "packed"_a.noconvert(), "owners"_a.noconvert(), "first"_a,
          "numbers"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
          "Write what the bits of rows say of each direction.");
    m.def("sum_tables", sum_tables, "cells"_a.noconvert(), "tables"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
          "Write, for each query and row, the sum of one table entry for each byte of the row.");
    m.def("extend_beams", extend_beams, "errors"_a.noconvert(), "products"_a.noconvert(), "norms"_a.noconvert(),
          "from_beam"_a.noconvert(), "entry"_a.noconvert(), "new_errors"_a.noconvert(), "threads"_a = 1,
          "Write the best continuations of each item's partial sums by one more entry.");
    m.def("sum_entries", sum_entries, "cells"_a.noconvert(), "codebooks"_a.noconvert(), "out"_a.noconvert(),
          "threads"_a = 1, "Add, to each row, the entries that its cells name in the codebooks.");
    m.def("find_widest", find_widest, "levels"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1,
          "Write which coordinates of each row have the highest levels, highest first.");
    m.def("encode_adaptive", encode_adaptive, "rows"_a.noconvert(), "levels"_a.noconvert(), "books"_a.noconvert(),
          "changes"_a.noconvert(), "beams"_a, "out"_a.noconvert(), "threads"_a = 1,
          "Write codes whose bytes refine the coordinates that are least known, found by beam search.");
    m.def("decode_adaptive", decode_adaptive, "codes"_a.noconvert(), "levels"_a.noconvert(), "books"_a.noconvert(),
          "changes"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1, "Write what such codes stand for.");
    m.def("simd_names", simd_names, "The instruction sets this processor runs, slowest first.");
}
