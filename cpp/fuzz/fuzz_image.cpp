// Bitstreams of images: pixels of whatever arrives, and the same coefficients however it arrives.
#include "input.hpp"
#include "nestcode/image_decoder.hpp"

namespace {

template <class Pixel>
void decode(Input& input) {
    static const std::array<ImageModel, 2> models{ImageModel{AdditiveModel{}}, ImageModel{MixingModel{}}};
    const ImageModel& model = models[input.number(1)];
    const std::size_t height = 1 + input.number(40), width = 1 + input.number(40);
    const std::size_t channels = 1 + input.number(kChannelKinds - 1), piece = 1 + input.number(99);
    const float step = input.number(1) ? 4.0f : 1000.0f;
    const std::vector<std::uint8_t> bytes = input.rest();
    ImageDecoder whole(model, step, height, width, channels), pieces(model, step, height, width, channels);
    const bool accepted = whole.feed(bytes.data(), bytes.size());
    CHECK(accepted == (whole.planes() <= kMaxPlanes));
    for (std::size_t at = 0; at < bytes.size(); at += piece)
        CHECK(pieces.feed(bytes.data() + at, std::min(piece, bytes.size() - at)) == accepted);
    CHECK(pieces.known() == whole.known());
    std::vector<Pixel> pixels(whole.size()), same(whole.size());
    whole.write(pixels.data());
    pieces.write(same.data());
    CHECK(pixels == same);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
    Input input(bytes, count);
    input.with_pixel([&](auto pixel) { decode<decltype(pixel)>(input); });
    return 0;
}
