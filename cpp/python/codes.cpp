// Hamming distances, common prefixes and sorting of packed codes: nestcode/codes.py.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "nestcode/hamming.hpp"
#include "nestcode/lexicographic_order.hpp"

namespace {

using Matrix = Array<std::int32_t, 2>;

void check_pairs(const Packed& a, const Packed& b, const Matrix& out) {
    if (a.shape(1) != b.shape(1)) throw nb::value_error("rows must have the same number of bytes");
    if (out.shape(0) != a.shape(0) || out.shape(1) != b.shape(0))
        throw nb::value_error("out must have a row for each row of a and a column for each row of b");
}

void hamming(const Packed& a, const Packed& b, const Matrix& out, std::size_t threads, const std::string& simd) {
    check_pairs(a, b, out);
    const nestcode::Simd chosen = nestcode::choose_simd(simd);
    const nestcode::Rows left = rows_of(a), right = rows_of(b);
    nb::gil_scoped_release released;
    nestcode::hamming(left, right, out.data(), chosen, threads);
}

void common_prefix(const Packed& a, const Packed& b, std::int32_t width, const Matrix& out, std::size_t threads) {
    check_pairs(a, b, out);
    const nestcode::Rows left = rows_of(a), right = rows_of(b);
    nb::gil_scoped_release released;
    nestcode::common_prefix(left, right, width, out.data(), threads);
}

void argsort_rows(const Packed& packed, const Ids& order) {
    if (order.shape(0) != packed.shape(0)) throw nb::value_error("order must have one entry per row");
    const nestcode::Rows rows = rows_of(packed);
    nb::gil_scoped_release released;
    nestcode::argsort_rows(rows, order.data());
}

std::vector<std::string> simd_names() {
    std::vector<std::string> names;
    for (nestcode::Simd simd : nestcode::available_simd()) names.emplace_back(nestcode::name_of(simd));
    return names;
}

}  // namespace

void add_codes(nb::module_& m) {
    m.def("hamming", hamming, "a"_a.noconvert(), "b"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1, "simd"_a = "",
          "Write the Hamming distance of every pair of rows.");
    m.def("common_prefix", common_prefix, "a"_a.noconvert(), "b"_a.noconvert(), "width"_a, "out"_a.noconvert(),
          "threads"_a = 1, "Write the length of the longest common prefix of every pair of rows.");
    m.def("argsort_rows", argsort_rows, "packed"_a.noconvert(), "order"_a.noconvert(),
          "Write the stable argsort of the rows in lexicographic order.");
    m.def("simd_names", simd_names, "Return the instruction sets that this processor supports, slowest first.");
}
