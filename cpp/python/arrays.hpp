// NumPy arrays as the kernels take them.
//
// Values were checked by the Python modules that call the core; the bindings check only what keeps memory accesses in
// bounds. Results are written into arrays that Python allocated, so that memory has one owner.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "nestcode/rows.hpp"

namespace nb = nanobind;
using namespace nb::literals;

template <class Scalar, std::size_t Dimensions>
using Array = nb::ndarray<Scalar, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

template <class Scalar>
using Vec = Array<const Scalar, 1>;
template <class Scalar>
using Mat = Array<const Scalar, 2>;

using Packed = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::device::cpu>;  // packed codes, of any row stride
using Ids = Array<std::int64_t, 1>;
using Positions = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // uint32 or int64

inline nestcode::Rows rows_of(const Packed& packed) {
    if (packed.shape(0) > 0 && packed.shape(1) > 1 && packed.stride(1) != 1)
        throw nb::value_error("the bytes of a row must be contiguous: copy the array");
    return {packed.data(), packed.shape(0), packed.shape(1), packed.stride(0)};
}

// Each file adds its functions and classes to the module.
void add_codes(nb::module_& m);
void add_coders(nb::module_& m);
void add_storage(nb::module_& m);
void add_index(nb::module_& m);
void add_search(nb::module_& m);
void add_graph(nb::module_& m);
void add_row_search(nb::module_& m);
void add_scan(nb::module_& m);
void add_vectors(nb::module_& m);
void add_streams(nb::module_& m);
void add_images(nb::module_& m);
