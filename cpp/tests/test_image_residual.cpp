// Lossless residuals of images: a round trip in pieces of any size, whole lines as they arrive, and any bytes decode.
#include <vector>

#include "nestcode/checksum.hpp"
#include "nestcode/image_residual.hpp"
#include "support.hpp"

template <class Pixel>
struct Scene {
    std::size_t height, width, channels;
    std::vector<Pixel> pixels, shown;

    std::size_t line() const { return width * channels; }
};

// An image of some kind, and what a lossy coder might show of it: near the image, far from it, or gray.
template <class Pixel>
Scene<Pixel> random_scene(std::mt19937& random) {
    const std::size_t longest = 1 + random() % 40;
    Scene<Pixel> scene{1 + random() % longest, 1 + random() % longest, 1 + random() % 4, {}, {}};
    constexpr int most = std::numeric_limits<Pixel>::max();
    const int noise = 1 << random() % (8 * sizeof(Pixel) + 1), slope = static_cast<int>(random() % 2000);
    const int loss = random() % 4 ? 1 + static_cast<int>(random() % 40) : most, flat = random() % 3 == 0;
    for (std::size_t i = 0; i < scene.height * scene.line(); ++i) {
        const int ramp = flat ? most : slope * static_cast<int>(i % scene.line()) / 64;
        const int value =
            std::clamp(ramp + (flat ? 0 : static_cast<int>(random() % static_cast<unsigned>(noise))), 0, most);
        scene.pixels.push_back(static_cast<Pixel>(value));
        scene.shown.push_back(
            static_cast<Pixel>(loss == most ? most / 2 : std::min(value / loss * loss + loss / 2, most)));
    }
    return scene;
}

template <class Pixel>
void test_round_trip(std::mt19937& random) {
    const Scene<Pixel> scene = random_scene<Pixel>(random);
    const auto bytes =
        encode_residual(scene.height, scene.width, scene.channels, scene.shown.data(), scene.pixels.data());
    std::vector<Pixel> decoded = scene.shown;
    ResidualDecoder<Pixel> decoder(scene.height, scene.width, scene.channels, decoded.data());
    CHECK(decoder.lines() == 0);
    const std::size_t piece = 1 + random() % 300;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        decoder.feed(bytes.data() + at, std::min(piece, bytes.size() - at));
        for (std::size_t i = 0; i < decoder.lines() * scene.line(); ++i) CHECK(decoded[i] == scene.pixels[i]);
        for (std::size_t i = (decoder.lines() + 1) * scene.line(); i < decoded.size(); ++i)
            CHECK(decoded[i] == scene.shown[i]);
    }
    CHECK(decoder.lines() == scene.height && decoded == scene.pixels);
}

template <class Pixel>
void test_noise(std::mt19937& random) {
    const Scene<Pixel> scene = random_scene<Pixel>(random);
    std::vector<std::uint8_t> bytes(random() % 3000);
    const auto range = 1 + random() % 256;
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() % range);
    std::vector<Pixel> whole = scene.shown, pieces = scene.shown;
    ResidualDecoder<Pixel> decoder(scene.height, scene.width, scene.channels, whole.data());
    ResidualDecoder<Pixel> other(scene.height, scene.width, scene.channels, pieces.data());
    decoder.feed(bytes.data(), bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += 7)
        other.feed(bytes.data() + at, std::min<std::size_t>(7, bytes.size() - at));
    CHECK(decoder.lines() == other.lines() && whole == pieces);
}

// All processors write the same bytes, whatever their instruction set.
template <class Pixel>
std::uint64_t digest() {
    std::mt19937 random(2);
    std::vector<std::uint8_t> all;
    for (int i = 0; i < 20; ++i) {
        const Scene<Pixel> scene = random_scene<Pixel>(random);
        const auto bytes =
            encode_residual(scene.height, scene.width, scene.channels, scene.shown.data(), scene.pixels.data());
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return checksum(all.data(), all.size());
}

int main() {
    CHECK(digest<std::uint8_t>() == 7941261669744286223u);
    CHECK(digest<std::uint16_t>() == 14028088743604116646u);
    std::mt19937 random(1);
    for (int i = 0; i < 40; ++i) {
        test_round_trip<std::uint8_t>(random);
        test_round_trip<std::uint16_t>(random);
        test_noise<std::uint8_t>(random);
        test_noise<std::uint16_t>(random);
    }
}
