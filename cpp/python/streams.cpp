// Entropy coding of codes: nestcode/streams.
#include "arrays.hpp"
#include "nestcode/code_entropy.hpp"

namespace {

using nestcode::CodeDecoder, nestcode::CodeEncoder;

void encode(CodeEncoder& encoder, const Packed& packed, std::size_t group) {
    if (packed.shape(1) <= 8 * group) throw nb::value_error("group must be one of the codes' groups of 64 bits");
    const nestcode::Rows rows = rows_of(packed);
    nb::gil_scoped_release released;
    encoder.encode(rows, group);
}

nb::bytes finish(CodeEncoder& encoder) {
    const std::vector<std::uint8_t>& bytes = encoder.finish();
    return nb::bytes(bytes.data(), bytes.size());
}

// A decoder and the array that it writes into.
class PyCodeDecoder {
  public:
    PyCodeDecoder(std::size_t count, std::size_t width, Array<std::uint8_t, 1> plain)
        : decoder_(count, width), plain_(std::move(plain)) {
        if (plain_.shape(0) != count * ((width + 7) / 8)) throw nb::value_error("plain must have room for every code");
    }
    std::uint64_t feed(const Vec<std::uint8_t>& bytes, std::uint64_t most) {
        const std::uint8_t* data = bytes.data();
        const std::size_t count = bytes.shape(0);
        nb::gil_scoped_release released;
        return decoder_.feed(data, count, most, plain_.data());
    }

  private:
    CodeDecoder decoder_;
    Array<std::uint8_t, 1> plain_;
};

}  // namespace

void add_streams(nb::module_& m) {
    nb::class_<CodeEncoder>(m, "CodeEncoder", "An entropy coder of packed codes, 64 bits of all codes at a time.")
        .def(nb::init<std::size_t>(), "width"_a)
        .def("encode", &encode, "packed"_a, "group"_a,
             "Encode one group of 64 bits of all codes; groups come in order.")
        .def("finish", &finish, "Return the bytes.");
    nb::class_<PyCodeDecoder>(m, "CodeDecoder", "The decoder of a string that arrives in pieces.")
        .def(nb::init<std::size_t, std::size_t, Array<std::uint8_t, 1>>(), "count"_a, "width"_a, "plain"_a)
        .def("feed", &PyCodeDecoder::feed, "data"_a, "most"_a,
             "Append bytes, write every bit that can be decoded, at most `most` in all, and return how many there are "
             "so "
             "far.");
}
