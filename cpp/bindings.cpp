// nestcode._core: the kernels of cpp/nestcode for Python.
//
// Nothing is decided here. Arrays come in checked (src/nestcode/codes.py is the public door) and
// results are written into arrays that Python allocated, so that memory has one owner.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "nestcode/hamming.hpp"
#include "nestcode/order.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Packed = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::device::cpu>;
using Matrix = nb::ndarray<std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nestcode::Rows rows_of(const Packed& packed) {
    if (packed.shape(0) > 0 && packed.shape(1) > 1 && packed.stride(1) != 1)
        throw nb::value_error("the bytes of a row must lie side by side");
    return {packed.data(), packed.shape(0), packed.shape(1), packed.stride(0)};
}

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

std::vector<std::string> simd_names() {
    std::vector<std::string> names;
    for (nestcode::Simd simd : nestcode::available_simd()) names.emplace_back(nestcode::name_of(simd));
    return names;
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "Kernels over packed bits. Use nestcode.Codes.";
    m.def("hamming", hamming, "a"_a, "b"_a, "out"_a, "threads"_a = 1, "simd"_a = "",
          "Write the Hamming distance of every pair of rows into out.");
    m.def("common_prefix", common_prefix, "a"_a, "b"_a, "width"_a, "out"_a, "threads"_a = 1,
          "Write the number of shared leading bits of every pair of rows into out.");
    m.def("sort_order", sort_order, "packed"_a, "order"_a, "Write the lexicographic order of the rows into order.");
    m.def("simd_names", simd_names, "The instruction sets this processor runs, slowest first.");
}
