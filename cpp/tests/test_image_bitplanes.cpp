// Bit-plane coding of images: a round trip in pieces of any size, and truncation leaves valid bounds.
#include <vector>

#include "nestcode/image_decoder.hpp"
#include "nestcode/image_encoder.hpp"
#include "support.hpp"

struct Image {
    ImageShape shape;
    int planes;
    std::vector<std::int32_t> coefficients;
};

Image random_image(std::mt19937& random, const std::vector<std::size_t>& kinds) {
    Image made{{kinds, 1 + random() % 3, 1 + random() % 3}, static_cast<int>(random() % (kMaxPlanes + 1)), {}};
    made.coefficients.resize(made.shape.count());
    for (std::int32_t& value : made.coefficients) {
        const unsigned bits = made.planes ? random() % static_cast<unsigned>(made.planes + 1) : 0;
        const auto magnitude = static_cast<std::int32_t>(random() % (1U << bits));
        value = random() % 8 ? 0 : random() % 2 ? magnitude : -magnitude;
    }
    return made;
}

// Encodes an image against an original that is gray, so that errors are those of the coefficients' pixels.
EncodedImage encode(const Image& image) {
    const std::size_t height = kBlock * image.shape.rows, width = kBlock * image.shape.columns;
    const std::vector<std::uint16_t> gray(height * width * image.shape.kinds.size(), 128 * 257);
    ImageModel model;
    const OriginalImage<std::uint16_t> original{gray.data(), height, width, 4, color_matrix({})};
    return encode_image(model, image.shape, image.coefficients.data(), image.planes, SIZE_MAX, original);
}

// Whether a coefficient lies in the interval that a decoded value stands for.
bool in_interval(std::int32_t value, std::int32_t decoded) {
    const int twice = std::abs(decoded), width = twice & -twice, low = (twice - width) / 2;
    if (decoded == 0) return true;
    return (value < 0) == (decoded < 0) && std::abs(value) >= low && std::abs(value) < low + width;
}

void test_round_trip(std::mt19937& random, const std::vector<std::size_t>& kinds) {
    const Image image = random_image(random, kinds);
    const auto [bytes, passes] = encode(image);
    CHECK(passes.size() == static_cast<std::size_t>(image.planes * kPasses));
    for (std::size_t i = 1; i < passes.size(); ++i) CHECK(passes[i - 1].first <= passes[i].first);
    for (const auto& [size, error] : passes) {
        CHECK(size <= bytes.size());
        CHECK(error == kUnmeasured || (error >= 0 && error <= 255 * 255));
    }
    if (!passes.empty()) CHECK(passes.back().second != kUnmeasured);

    std::vector<std::int32_t> decoded(image.coefficients.size()), fresh(image.coefficients.size());
    BitPlaneTraversal<DecoderIo> traversal(image.shape, image.planes, ImageModel{}, nullptr, decoded.data());
    DecoderIo io;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 500, bytes.size() - at);
        io.decoder.feed(bytes.data() + at, count);
        at += count;
        traversal.run(io, [] { return false; }, [] {});
        for (std::size_t i = 0; i < decoded.size(); ++i) CHECK(in_interval(image.coefficients[i], decoded[i]));
    }
    BitPlaneTraversal<DecoderIo> again(image.shape, image.planes, ImageModel{}, nullptr, fresh.data());
    DecoderIo at_once;
    at_once.decoder.feed(bytes.data(), bytes.size());
    again.run(at_once, [] { return false; }, [] {});
    CHECK(fresh == decoded);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
        CHECK((decoded[i] == 0) == (image.coefficients[i] == 0));
        if (decoded[i]) CHECK(std::abs(decoded[i]) == 2 * std::abs(image.coefficients[i]) + 1);
    }
}

void test_noise(std::mt19937& random) {
    std::vector<std::uint8_t> noise(2000);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
    const ImageShape shape{{0, 1, 2, 3}, 2, 2};
    std::vector<std::int32_t> decoded(shape.count());
    BitPlaneTraversal<DecoderIo> traversal(shape, kMaxPlanes, ImageModel{}, nullptr, decoded.data());
    DecoderIo io;
    io.decoder.feed(noise.data(), noise.size());
    traversal.run(io, [] { return false; }, [] {});
}

// Noise as the bitstream of images of all kinds and sizes: pixels in any state.
void test_decoder_of_noise(std::mt19937& random) {
    const ImageModel model;
    for (std::size_t channels = 1; channels <= kChannelKinds; ++channels) {
        const std::size_t height = 1 + random() % 90, width = 1 + random() % 90;
        ImageDecoder decoder(model, 1000, height, width, channels);
        std::vector<std::uint8_t> pixels(decoder.size());
        for (int i = 0; i < 12; ++i) {
            const std::uint8_t byte = i ? static_cast<std::uint8_t>(random()) : 0x80 | kMaxPlanes;
            CHECK(decoder.feed(&byte, 1));
            decoder.write(pixels.data());
        }
        ImageDecoder other(model, 4, height, width, channels);
        const std::uint8_t planes = kMaxPlanes + 1;
        CHECK(!other.feed(&planes, 1) && !other.feed(&planes, 1) && other.planes() == planes);
    }
}

int main() {
    std::mt19937 random(0);
    for (int i = 0; i < 3; ++i)
        for (const std::vector<std::size_t>& kinds : {std::vector<std::size_t>{0}, {0, 3}, {0, 1, 2}, {0, 1, 2, 3}})
            test_round_trip(random, kinds);
    for (int i = 0; i < 4; ++i) test_noise(random);
    for (int i = 0; i < 4; ++i) test_decoder_of_noise(random);
    std::puts("image_bitplanes: ok");
}
