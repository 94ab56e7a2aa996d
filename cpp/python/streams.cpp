// Entropy coding of codes: nestcode/streams.
#include "arrays.hpp"
#include "nestcode/code_entropy.hpp"

namespace {

using nestcode::CodeDecoder, nestcode::CodeEncoder;

void encode(CodeEncoder& encoder, const Packed& packed, std::size_t group) {
    if (packed.shape(1) <= 8 * group) throw nb::value_error("there is no such group");
    const nestcode::Rows rows = rows_of(packed);
    nb::gil_scoped_release released;
    encoder.encode(rows, group);
}

nb::bytes finish(CodeEncoder& encoder) {
    const std::vector<std::uint8_t>& bytes = encoder.finish();
    return nb::bytes(bytes.data(), bytes.size());
}

// A decoder and the array it writes into.
class Decoder {
  public:
    Decoder(std::size_t count, std::size_t width, Array<std::uint8_t, 1> plain)
        : decoder_(count, width), plain_(std::move(plain)) {
        if (plain_.shape(0) != count * ((width + 7) / 8)) throw nb::value_error("plain must hold every code");
    }
    std::uint64_t feed(const Vec<std::uint8_t>& bytes) {
        const std::uint8_t* data = bytes.data();
        const std::size_t count = bytes.shape(0);
        nb::gil_scoped_release released;
        return decoder_.feed(data, count, plain_.data());
    }

  private:
    CodeDecoder decoder_;
    Array<std::uint8_t, 1> plain_;
};

}  // namespace

void add_streams(nb::module_& m) {
    nb::class_<CodeEncoder>(m, "CodeEncoder")
        .def(nb::init<std::size_t>(), "width"_a)
        .def("encode", &encode, "packed"_a, "group"_a)
        .def("finish", &finish);
    nb::class_<Decoder>(m, "CodeDecoder")
        .def(nb::init<std::size_t, std::size_t, Array<std::uint8_t, 1>>(), "count"_a, "width"_a, "plain"_a)
        .def("feed", &Decoder::feed, "data"_a);
}
