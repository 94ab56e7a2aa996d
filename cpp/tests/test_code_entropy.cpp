// Entropy coding of codes: a round trip in pieces of any size, and truncation leaves a prefix.
#include <vector>

#include "nestcode/code_entropy.hpp"
#include "support.hpp"

std::vector<std::uint8_t> encoded(const Rows& rows, std::size_t width) {
    CodeEncoder encoder(width);
    for (std::size_t group = 0; 64 * group < width; ++group) encoder.encode(rows, group);
    return encoder.finish();
}

// The codes in the order of a stream without entropy coding.
std::vector<std::uint8_t> in_groups(const Rows& rows) {
    std::vector<std::uint8_t> plain;
    for (std::size_t first = 0; first < rows.bytes; first += 8)
        for (std::size_t i = 0; i < rows.count; ++i)
            plain.insert(plain.end(), rows[i] + first, rows[i] + std::min(first + 8, rows.bytes));
    return plain;
}

void test_round_trip(std::mt19937& random) {
    const std::size_t count = random() % 9, width = random() % 200;
    const Bits codes(count, width, random, random() % 4);
    const auto bytes = encoded(codes.rows, width), plain = in_groups(codes.rows);
    std::vector<std::uint8_t> found(plain.size());
    CodeDecoder decoder(count, width);
    std::uint64_t before = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const std::uint64_t bits = decoder.feed(bytes.data() + at, 1, count * width, found.data());
        CHECK(bits >= before);
        before = bits;
        std::vector<std::uint8_t> fresh(plain.size());  // all bytes at once give the same
        CodeDecoder slow(count, width);                 // with half of the bits held back at first
        CHECK(slow.feed(bytes.data(), at + 1, bits / 2, fresh.data()) == bits / 2);
        CHECK(slow.feed(bytes.data(), 0, count * width, fresh.data()) == bits);
        CHECK(fresh == found);
        for (std::size_t i = 0; i < found.size(); ++i) CHECK((found[i] & ~plain[i]) == 0);
    }
    CHECK(before == count * width);
    CHECK(found == plain);
}

void test_noise(std::mt19937& random) {
    const std::size_t count = random() % 9, width = random() % 200;
    std::vector<std::uint8_t> noise(random() % 500), found(count * ((width + 7) / 8));
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
    CHECK(CodeDecoder(count, width).feed(noise.data(), noise.size(), count * width, found.data()) <= count * width);
}

int main() {
    std::mt19937 random(0);
    for (int i = 0; i < 15; ++i) test_round_trip(random);
    for (int i = 0; i < 60; ++i) test_noise(random);
    std::puts("code_entropy: ok");
}
