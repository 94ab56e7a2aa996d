// The walk over a picture: readers learn what writers wrote, however it arrives, and never more than is certain.
#include <vector>

#include "nestcode/pictures.hpp"
#include "support.hpp"

struct Coefficients {
    PictureShape shape;
    int planes;
    std::vector<std::int32_t> numbers;
};

Coefficients some_coefficients(std::mt19937& random, const std::vector<std::size_t>& kinds) {
    Coefficients made{{kinds, 1 + random() % 3, 1 + random() % 3}, static_cast<int>(random() % (kPlanes + 1)), {}};
    made.numbers.resize(made.shape.count());
    for (std::int32_t& number : made.numbers) {
        const unsigned bits = made.planes ? random() % static_cast<unsigned>(made.planes + 1) : 0;
        const auto magnitude = static_cast<std::int32_t>(random() % (1U << bits));
        number = random() % 8 ? 0 : random() % 2 ? magnitude : -magnitude;
    }
    return made;
}

std::vector<std::uint8_t> write(const Coefficients& picture, std::vector<double>& left) {
    PictureWalk<PictureWriting> walk(picture.shape, picture.planes, PictureModel{}, picture.numbers.data(), nullptr);
    PictureWriting io;
    walk.go_on(io, [] { return false; }, [&] { left.push_back(walk.left()); });
    io.encoder.finish();
    return io.encoder.bytes();
}

// What `known` says of a coefficient must hold for it.
bool agrees(std::int32_t number, std::int32_t known) {
    const int twice = std::abs(known), width = twice & -twice, low = (twice - width) / 2;
    if (known == 0) return true;
    return (number < 0) == (known < 0) && std::abs(number) >= low && std::abs(number) < low + width;
}

void roundtrip(std::mt19937& random, const std::vector<std::size_t>& kinds) {
    const Coefficients picture = some_coefficients(random, kinds);
    std::vector<double> left;
    const auto bytes = write(picture, left);
    CHECK(left.size() == static_cast<std::size_t>(picture.planes * kPasses));
    if (!left.empty()) CHECK(left.back() < 1e-6);

    std::vector<std::int32_t> known(picture.numbers.size()), fresh(picture.numbers.size());
    PictureWalk<PictureReading> walk(picture.shape, picture.planes, PictureModel{}, nullptr, known.data());
    PictureReading io;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 500, bytes.size() - at);
        io.decoder.feed(bytes.data() + at, count);
        at += count;
        walk.go_on(io, [] { return false; }, [] {});
        for (std::size_t i = 0; i < known.size(); ++i) CHECK(agrees(picture.numbers[i], known[i]));
    }
    PictureWalk<PictureReading> again(picture.shape, picture.planes, PictureModel{}, nullptr, fresh.data());
    PictureReading at_once;
    at_once.decoder.feed(bytes.data(), bytes.size());
    again.go_on(at_once, [] { return false; }, [] {});
    CHECK(fresh == known);
    for (std::size_t i = 0; i < known.size(); ++i) {
        CHECK((known[i] == 0) == (picture.numbers[i] == 0));
        if (known[i]) CHECK(std::abs(known[i]) == 2 * std::abs(picture.numbers[i]) + 1);
    }
}

void survives_noise(std::mt19937& random) {
    std::vector<std::uint8_t> noise(2000);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
    const PictureShape shape{{0, 1, 2, 3}, 2, 2};
    std::vector<std::int32_t> known(shape.count());
    PictureWalk<PictureReading> walk(shape, kPlanes, PictureModel{}, nullptr, known.data());
    PictureReading io;
    io.decoder.feed(noise.data(), noise.size());
    walk.go_on(io, [] { return false; }, [] {});
}

int main() {
    std::mt19937 random(0);
    for (int i = 0; i < 3; ++i)
        for (const std::vector<std::size_t>& kinds : {std::vector<std::size_t>{0}, {0, 3}, {0, 1, 2}, {0, 1, 2, 3}})
            roundtrip(random, kinds);
    for (int i = 0; i < 4; ++i) survives_noise(random);
    std::puts("pictures: ok");
}
