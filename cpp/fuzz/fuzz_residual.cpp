// Residuals of lossless images: pixels of whatever arrives, and the same however it arrives.
#include "input.hpp"
#include "nestcode/image_residual.hpp"

namespace {

template <class Pixel>
void decode(Input& input) {
    const std::size_t height = 1 + input.number(15), width = 1 + input.number(15), channels = 1 + input.number(3);
    const std::size_t piece = 1 + input.number(99);
    std::vector<Pixel> whole = input.values<Pixel>(height * width * channels), pieces = whole;
    const std::vector<std::uint8_t> bytes = input.rest();
    ResidualDecoder<Pixel> decoder(height, width, channels, whole.data());
    ResidualDecoder<Pixel> other(height, width, channels, pieces.data());
    decoder.feed(bytes.data(), bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += piece)
        other.feed(bytes.data() + at, std::min(piece, bytes.size() - at));
    CHECK(decoder.lines() == other.lines() && decoder.lines() <= height);
    CHECK(whole == pieces);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
    Input input(bytes, count);
    input.with_pixel([&](auto pixel) { decode<decltype(pixel)>(input); });
    return 0;
}
