// Block checksums of memory-mapped files: nestcode/storage/.
#include "storage.hpp"

#include "nestcode/read_ahead.hpp"

namespace {

auto block_checksums(const Vec<std::uint8_t>& data, std::size_t block_bytes) {
    if (block_bytes == 0) throw nb::value_error("a block must have at least one byte");
    std::vector<std::uint64_t> checksums(nestcode::block_count(data.size(), block_bytes));
    {
        nb::gil_scoped_release released;
        for (std::size_t block = 0; block < checksums.size(); ++block)
            checksums[block] = nestcode::block_checksum(data.data(), data.size(), block, block_bytes);
    }
    return array_of(std::move(checksums));
}

bool read_ahead(const nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>& rows, PyChecksumGuard* guard,
                const Vec<std::int64_t>& positions) {
    std::vector<std::size_t> wanted;
    for (std::size_t i = 0; i < positions.size(); ++i) {
        if (positions(i) < 0 || positions(i) >= static_cast<std::int64_t>(rows.shape(0)))
            throw nb::value_error("positions must be rows of the array");
        wanted.push_back(static_cast<std::size_t>(positions(i)));
    }
    if (wanted.empty()) return false;
    const nestcode::ChecksumGuard* watching = guard_of(guard, rows.data(), rows.nbytes());
    nb::gil_scoped_release released;
    return nestcode::read_ahead(static_cast<const std::uint8_t*>(rows.data()), rows.nbytes(),
                                rows.nbytes() / rows.shape(0), watching, std::move(wanted));
}

}  // namespace

void add_storage(nb::module_& m) {
    nb::class_<PyChecksumGuard>(m, "ChecksumGuard", "Memory-mapped data whose blocks are verified when first touched.")
        .def(nb::init<Vec<std::uint8_t>, const Vec<std::uint64_t>&, std::size_t>(), "data"_a.noconvert(),
             "checksums"_a.noconvert(), "block"_a = nestcode::kBlockBytes)
        .def(
            "touch",
            [](PyChecksumGuard& self, std::size_t begin, std::size_t end) {
                if (begin > end || end > self.data.size()) throw nb::value_error("the range must lie within the data");
                if (begin < end) self.guard.touch(self.data.data() + begin, end - begin);
            },
            "begin"_a, "end"_a, nb::call_guard<nb::gil_scoped_release>(), "Verify the blocks of a range of bytes.")
        .def(
            "touch_rows",
            [](PyChecksumGuard& self, const Vec<std::uint32_t>& positions, std::size_t row_bytes) {
                if (row_bytes == 0) return;
                const std::size_t rows = self.data.size() / row_bytes;
                for (std::size_t i = 0; i < positions.size(); ++i)
                    if (positions(i) < rows) self.guard.touch(self.data.data() + positions(i) * row_bytes, row_bytes);
            },
            "positions"_a.noconvert(), "row_bytes"_a, nb::call_guard<nb::gil_scoped_release>(),
            "Verify the blocks of some rows; positions beyond the last row are ignored.")
        .def(
            "verify", [](PyChecksumGuard& self) { self.guard.verify(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Verify every block, including those that were verified before.")
        .def_prop_ro(
            "first_damaged", [](const PyChecksumGuard& self) { return self.guard.first_damaged(); },
            "The first damaged block among those checked so far, -1 if there is none.");
    m.def("read_ahead", read_ahead, "rows"_a.noconvert(), "guard"_a.none(), "positions"_a.noconvert(),
          "Ask the system for rows of a mapped array that are not in memory, and return whether there were any.");
    m.def("block_checksums", block_checksums, "data"_a.noconvert(), "block"_a = nestcode::kBlockBytes,
          "Return the checksum of each block.");
}
