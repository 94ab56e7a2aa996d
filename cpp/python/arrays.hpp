// Arrays as they come from Python. They come in checked (the Python modules are the public doors) and results are
// written into arrays that Python allocated, so that memory has one owner.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "nestcode/rows.hpp"

namespace nb = nanobind;
using namespace nb::literals;

using Packed = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::device::cpu>;
using Matrix = nb::ndarray<std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Scalar, std::size_t Dimensions>
using Array = nb::ndarray<Scalar, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

inline nestcode::Rows rows_of(const Packed& packed) {
    if (packed.shape(0) > 0 && packed.shape(1) > 1 && packed.stride(1) != 1)
        throw nb::value_error("the bytes of a row must lie side by side");
    return {packed.data(), packed.shape(0), packed.shape(1), packed.stride(0)};
}

template <class Scalar>
using Vec = Array<const Scalar, 1>;

// Each file adds what it knows to the module.
void add_codes(nb::module_& m);
void add_index(nb::module_& m);
void add_pictures(nb::module_& m);
void add_search(nb::module_& m);
void add_streams(nb::module_& m);
