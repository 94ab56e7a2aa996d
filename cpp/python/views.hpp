// NumPy arrays as searches of one query take them, for the time of a call. They are read from NumPy's own structure: a
// view by the buffer protocol or by DLPack takes 0.3 µs, and such a search has 20.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>

#include "arrays.hpp"

// A contiguous array of any type.
template <std::size_t Dimensions>
class AnyView {
  public:
    // Whether an object is such an array; if so, refers to it.
    bool set(nb::handle object, int flags) noexcept {
        static PyTypeObject* const type =
            reinterpret_cast<PyTypeObject*>(nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr());
        if (!PyObject_TypeCheck(object.ptr(), type)) return false;
        array_ = reinterpret_cast<PyArrayObject*>(object.ptr());
        return PyArray_NDIM(array_) == static_cast<int>(Dimensions) && PyArray_CHKFLAGS(array_, flags) &&
               (PyArray_DESCR(array_)->byteorder == '=' || PyArray_DESCR(array_)->byteorder == '|');
    }

    template <class Scalar>
    bool holds() const {
        const int type = PyArray_DESCR(array_)->type_num;
        if constexpr (std::is_same_v<Scalar, float>) return type == NPY_FLOAT;
        if constexpr (std::is_same_v<Scalar, double>) return type == NPY_DOUBLE;
        if constexpr (std::is_same_v<Scalar, std::uint8_t>) return type == NPY_UINT8;
        if constexpr (std::is_same_v<Scalar, std::uint32_t>) return type == NPY_UINT32;
        if constexpr (std::is_same_v<Scalar, std::uint64_t>) return type == NPY_UINT64 || type == NPY_ULONGLONG;
        if constexpr (std::is_same_v<Scalar, std::int64_t>) return type == NPY_INT64 || type == NPY_LONGLONG;
        return false;
    }

    static constexpr std::size_t dimensions() { return Dimensions; }
    void* data() const { return PyArray_DATA(array_); }
    std::size_t shape(std::size_t i) const { return static_cast<std::size_t>(PyArray_DIMS(array_)[i]); }
    std::size_t size() const {
        std::size_t product = 1;
        for (std::size_t i = 0; i < Dimensions; ++i) product *= shape(i);
        return product;
    }

  private:
    PyArrayObject* array_ = nullptr;
};

template <class Scalar, std::size_t Dimensions>
struct View : AnyView<Dimensions> {
    Scalar* data() const { return static_cast<Scalar*>(AnyView<Dimensions>::data()); }
};

// One query, (features), or several.
template <class Array>
inline std::size_t count_of(const Array& rows) {
    return rows.dimensions() == 1 ? 1 : rows.shape(0);
}
template <class Array>
inline std::size_t width_of(const Array& rows) {
    return rows.shape(rows.dimensions() - 1);
}

namespace nanobind::detail {

template <std::size_t Dimensions>
struct type_caster<AnyView<Dimensions>> {
    NB_TYPE_CASTER(AnyView<Dimensions>, const_name("numpy.ndarray"))

    bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
        return value.set(source, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED);
    }
};

template <class Scalar, std::size_t Dimensions>
struct type_caster<View<Scalar, Dimensions>> {
    using Array = View<Scalar, Dimensions>;
    NB_TYPE_CASTER(Array, const_name("numpy.ndarray"))

    bool from_python(handle source, std::uint32_t, cleanup_list*) noexcept {
        constexpr int writable = std::is_const_v<Scalar> ? 0 : NPY_ARRAY_WRITEABLE;
        return value.set(source, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | writable) &&
               value.template holds<std::remove_const_t<Scalar>>();
    }
};

}  // namespace nanobind::detail
