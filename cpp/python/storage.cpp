// Block checksums of memory-mapped files: nestcode/storage.py.
#include "storage.hpp"

namespace {

auto block_checksums(const Vec<std::uint8_t>& data) {
    std::vector<std::uint64_t> checksums(nestcode::block_count(data.size()));
    {
        nb::gil_scoped_release released;
        for (std::size_t block = 0; block < checksums.size(); ++block)
            checksums[block] = nestcode::block_checksum(data.data(), data.size(), block);
    }
    return array_of(std::move(checksums));
}

}  // namespace

void add_storage(nb::module_& m) {
    nb::class_<PyChecksumGuard>(m, "ChecksumGuard", "Memory-mapped data whose blocks are verified when first touched.")
        .def(nb::init<Vec<std::uint8_t>, const Vec<std::uint64_t>&>(), "data"_a.noconvert(), "checksums"_a.noconvert())
        .def(
            "touch",
            [](PyChecksumGuard& self, std::size_t begin, std::size_t end) {
                if (begin > end || end > self.data.size()) throw nb::value_error("the range must lie within the data");
                if (begin < end) self.guard.touch(self.data.data() + begin, end - begin);
            },
            "begin"_a, "end"_a, nb::call_guard<nb::gil_scoped_release>(), "Verify the blocks of a range of bytes.")
        .def(
            "verify", [](PyChecksumGuard& self) { self.guard.verify(); }, nb::call_guard<nb::gil_scoped_release>(),
            "Verify every block, including those that were verified before.")
        .def_prop_ro(
            "first_damaged", [](const PyChecksumGuard& self) { return self.guard.first_damaged(); },
            "The first damaged block among those checked so far, -1 if there is none.");
    m.def("block_checksums", block_checksums, "data"_a.noconvert(),
          "Return the checksum of each block of 65,536 bytes.");
}
