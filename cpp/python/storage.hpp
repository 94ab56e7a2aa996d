// Memory-mapped arrays with checksum guards, shared by the bindings of storage and index.
#pragma once

#include "arrays.hpp"
#include "nestcode/checksum.hpp"
#include "nestcode/prefix_tables.hpp"

struct PyChecksumGuard {
    Vec<std::uint8_t> data;
    nestcode::ChecksumGuard guard;

    PyChecksumGuard(Vec<std::uint8_t> memory, const Vec<std::uint64_t>& checksums, std::size_t block)
        : data(std::move(memory)), guard(data.data(), data.size(), checked(data, checksums, block), block) {}

  private:
    static const std::uint64_t* checked(const Vec<std::uint8_t>& data, const Vec<std::uint64_t>& checksums,
                                        std::size_t block) {
        if (block == 0 || checksums.size() != nestcode::block_count(data.size(), block))
            throw nb::value_error("there must be one checksum per block");
        return checksums.data();
    }
};

// The guard of an array, which must watch this array and no other.
inline nestcode::ChecksumGuard* guard_of(PyChecksumGuard* guard, const void* data, std::size_t bytes) {
    if (guard == nullptr) return nullptr;
    if (guard->data.size() != bytes || (bytes != 0 && static_cast<const void*>(guard->data.data()) != data))
        throw nb::value_error("a guard must watch the array that it is passed with");
    return &guard->guard;
}

template <class Scalar>
nestcode::Column<Scalar> column_of(const Vec<Scalar>& array, PyChecksumGuard* guard = nullptr) {
    return {array.data(), array.size(), guard_of(guard, array.data(), array.nbytes())};
}

// A NumPy array that owns the values of a vector.
template <class Scalar>
nb::ndarray<nb::numpy, Scalar, nb::ndim<1>> array_of(std::vector<Scalar> values) {
    auto* const kept = new std::vector<Scalar>(std::move(values));
    const nb::capsule owner(kept, [](void* vector) noexcept { delete static_cast<std::vector<Scalar>*>(vector); });
    return {kept->data(), {kept->size()}, owner};
}
