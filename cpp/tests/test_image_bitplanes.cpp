// Bit-plane coding of images: a round trip in pieces of any size, and truncation leaves valid bounds.
#include <vector>

#include "nestcode/image_decoder.hpp"
#include "nestcode/image_encoder.hpp"
#include "support.hpp"

struct Image {
    ImageShape shape;
    ImageStart start;
    std::vector<std::int16_t> coefficients;
};

// An image of few blocks, or of so many that the planes of its subbands are coded.
Image random_image(std::mt19937& random, const std::vector<std::size_t>& kinds, bool large) {
    const std::size_t rows = 1 + random() % 3, columns = 1 + random() % 3 + (large ? kManyBlocks : 0);
    Image made{{kinds, rows, columns}, ImageStart(kinds.size()), {}};
    made.start.rotated = random() % 2, made.start.weighted = random() % 2;
    for (auto& channel : made.start.channels)
        channel.weight = made.start.weighted ? static_cast<std::uint8_t>(1 + random() % 255) : kUnweighted;
    made.coefficients.resize(made.shape.count());
    const auto planes = static_cast<unsigned>(random() % (kMaxPlanes + 1));
    for (std::int16_t& value : made.coefficients) {
        const auto magnitude = static_cast<std::int16_t>(random() % (1U << random() % (planes + 1)));
        value = random() % (large ? 80 : 8) ? 0 : static_cast<std::int16_t>(random() % 2 ? magnitude : -magnitude);
    }
    count_planes(made.shape, made.coefficients.data(), made.start);
    return made;
}

// Encodes an image against an original that is gray, so that errors are those of the coefficients' pixels.
template <class Model>
EncodedImage encode(const Image& image) {
    const std::size_t height = kBlock * image.shape.rows, width = kBlock * image.shape.columns;
    const std::vector<std::uint16_t> gray(height * width * image.shape.kinds.size(), 128 * 257);
    ImageModel model{Model{}};
    const OriginalImage original{gray.data(), height, width, 4};
    return encode_image(model, image.shape, image.coefficients.data(), image.start, SIZE_MAX, original);
}

// Whether a coefficient lies in the interval that a decoded value stands for.
bool in_interval(std::int32_t value, std::int32_t decoded) {
    const int twice = std::abs(decoded), width = twice & -twice, low = (twice - width) / 2;
    if (decoded == 0) return true;
    return (value < 0) == (decoded < 0) && std::abs(value) >= low && std::abs(value) < low + width;
}

template <class Model>
void test_round_trip(std::mt19937& random, const std::vector<std::size_t>& kinds, bool large) {
    const Image image = random_image(random, kinds, large);
    const auto [all, planes, whole, passes] = encode<Model>(image);
    CHECK(whole && planes == image.start.planes && passes.size() == static_cast<std::size_t>(planes * kPasses));
    for (std::size_t i = 1; i < passes.size(); ++i) CHECK(passes[i - 1].bytes <= passes[i].bytes);
    for (const CodedPass& pass : passes) {
        CHECK(pass.bytes <= all.size());
        CHECK(pass.pixels == kUnmeasured || (pass.pixels >= 0 && pass.pixels <= 255 * 255));
    }
    if (!passes.empty()) CHECK(passes.back().pixels != kUnmeasured);

    const std::size_t start_size = ImageStart::size_of(all[0], kinds.size());
    const ImageStart start(all.data(), kinds.size());
    CHECK(start.bytes() ==
          std::vector<std::uint8_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(start_size)));
    CHECK(start.by_subband == large && start.rotation == image.start.rotation);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        CHECK(start.channels[i].weight == image.start.channels[i].weight);
        CHECK(start.channels[i].planes == image.start.channels[i].planes);
    }
    const std::vector<std::uint8_t> bytes(all.begin() + static_cast<std::ptrdiff_t>(start_size), all.end());
    std::vector<std::int32_t> decoded(image.coefficients.size()), fresh(image.coefficients.size());
    BitPlaneTraversal<DecoderIo, Model> traversal(image.shape, start, Model{}, nullptr, decoded.data());
    DecoderIo io;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t count = std::min<std::size_t>(1 + random() % (large ? 5000 : 500), bytes.size() - at);
        io.decoder.feed(bytes.data() + at, count);
        at += count;
        traversal.run(io, [] { return false; }, [] {});
        for (std::size_t i = 0; i < decoded.size(); ++i) CHECK(in_interval(image.coefficients[i], decoded[i]));
    }
    BitPlaneTraversal<DecoderIo, Model> again(image.shape, start, Model{}, nullptr, fresh.data());
    DecoderIo at_once;
    at_once.decoder.feed(bytes.data(), bytes.size());
    again.run(at_once, [] { return false; }, [] {});
    CHECK(fresh == decoded);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
        CHECK((decoded[i] == 0) == (image.coefficients[i] == 0));
        if (decoded[i]) CHECK(std::abs(decoded[i]) == 2 * std::abs(image.coefficients[i]) + 1);
    }
}

template <class Model>
void test_noise(std::mt19937& random) {
    std::vector<std::uint8_t> noise(2000);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
    const ImageShape shape{{0, 1, 2, 3}, 2, 2};
    std::vector<std::int32_t> decoded(shape.count());
    const std::uint8_t first = kMaxPlanes;
    BitPlaneTraversal<DecoderIo, Model> traversal(shape, ImageStart(&first, 4), Model{}, nullptr, decoded.data());
    DecoderIo io;
    io.decoder.feed(noise.data(), noise.size());
    traversal.run(io, [] { return false; }, [] {});
}

// Noise as the bitstream of images of all kinds and sizes: pixels in any state.
template <class Model>
void test_decoder_of_noise(std::mt19937& random) {
    const ImageModel model{Model{}};
    for (std::size_t channels = 1; channels <= kChannelKinds; ++channels) {
        const std::size_t height = 1 + random() % 90, width = 1 + random() % 90;
        ImageDecoder decoder(model, 1000, height, width, channels);
        std::vector<std::uint8_t> pixels(decoder.size());
        for (int i = 0; i < 50; ++i) {  // the start has up to 36 bytes
            const std::uint8_t byte = static_cast<std::uint8_t>(i ? random() : random() % 8 << 5 | kMaxPlanes);
            CHECK(decoder.feed(&byte, 1));
            pixels.resize(decoder.size());
            decoder.write(pixels.data());
            pixels.resize(decoder.size(2));
            decoder.write<2>(pixels.data());
            pixels.resize(decoder.size(4));
            decoder.write<4>(pixels.data());
            pixels.resize(decoder.size(8));
            decoder.write<8>(pixels.data());
        }
        ImageDecoder other(model, 4, height, width, channels);
        const std::uint8_t planes = kMaxPlanes + 1;
        CHECK(!other.feed(&planes, 1) && !other.feed(&planes, 1) && other.planes() == planes);
    }
}

// Pixels of the widest registers are those of the narrowest, filtered or not.
template <class Pixel>
void test_registers(std::mt19937& random, const std::vector<std::size_t>& kinds) {
    const Image image = random_image(random, kinds, random() % 2);
    std::vector<std::int32_t> known(image.coefficients.size());
    for (std::size_t i = 0; i < known.size(); ++i)
        if (const int value = image.coefficients[i] >> random() % 8; value != 0)
            known[i] = 2 * value + (value < 0 ? -1 : 1);
    const std::size_t height = kBlock * image.shape.rows - random() % kBlock,
                      width = kBlock * image.shape.columns - random() % kBlock;
    const ImageReconstruction reconstruction(image.shape, known.data(), static_cast<int>(random() % kMaxPlanes), 4,
                                             image.start);
    for (const float reached : {kUnfiltered, 1.5F * kUnfiltered, 20 * kUnfiltered}) {
        std::vector<Pixel> pixels(height * width * kinds.size()), narrow(pixels.size());
        reconstruction.write(height, width, pixels.data(), reached);
        reconstruction.write_rows<16>(height, width, narrow.data(), reached);
        CHECK(pixels == narrow);
    }
}

// After a bit the logit of a sum of weights moves toward it, whatever the weights.
void test_additive_contexts(std::mt19937& random) {
    for (int i = 0; i < 1000; ++i) {
        std::array<LogitWeight, 3> weights{};
        for (LogitWeight& weight : weights) weight = static_cast<LogitWeight>(random() % 16001 - 8000);
        const AdditiveContexts<3> contexts{{&weights[0], &weights[1], &weights[2]}, 44 << kRateBits};
        const bool bit = random() % 2;
        const Probability before = contexts.probability();
        const int sum = weights[0] + weights[1] + weights[2];
        CHECK(before == std::clamp<Probability>(squash(sum >> 3), 16, kOne - 16));
        contexts.update(bit, before);
        CHECK(bit ? contexts.probability() >= before : contexts.probability() <= before);
        CHECK(std::abs(weights[0] + weights[1] + weights[2] - sum) <= 3 * 44 * 2);
    }
}

template <class Model>
void test_model() {
    std::mt19937 random(0);
    for (int i = 0; i < 3; ++i)
        for (const std::vector<std::size_t>& kinds : {std::vector<std::size_t>{0}, {0, 3}, {0, 1, 2}, {0, 1, 2, 3}})
            test_round_trip<Model>(random, kinds, i == 2 && kinds.size() == 3);
    for (int i = 0; i < 4; ++i) test_noise<Model>(random);
    for (int i = 0; i < 4; ++i) test_decoder_of_noise<Model>(random);
}

int main() {
    std::mt19937 random(0);
    test_additive_contexts(random);
    for (const std::vector<std::size_t>& kinds : {std::vector<std::size_t>{0}, {0, 3}, {0, 1, 2}, {0, 1, 2, 3}}) {
        test_registers<std::uint8_t>(random, kinds);
        test_registers<std::uint16_t>(random, kinds);
    }
    test_model<AdditiveModel>();
    test_model<MixingModel>();
    std::puts("image_bitplanes: ok");
}
