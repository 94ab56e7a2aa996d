// The range coder and the models: a round trip in pieces of any size, and only bits that do not depend on later bytes.
#include <vector>

#include "nestcode/context_mixing.hpp"
#include "support.hpp"

struct Message {
    std::vector<bool> bits;
    std::vector<Probability> probabilities;
};

Message random_message(std::mt19937& random) {
    Message message;
    for (std::size_t remaining = random() % 3000; remaining > 0; --remaining) {
        const Probability extreme = 1 + random() % 4, any = 1 + random() % (kOne - 1);
        const Probability one = random() % 4 == 0 ? (random() % 2 ? extreme : kOne - extreme) : any;
        message.probabilities.push_back(one);
        message.bits.push_back(random() % kOne < one);
    }
    return message;
}

std::vector<std::uint8_t> encoded(const Message& message) {
    RangeEncoder encoder;
    for (std::size_t i = 0; i < message.bits.size(); ++i) encoder.encode(message.bits[i], message.probabilities[i]);
    encoder.finish();
    return encoder.bytes();
}

// Decodes from bit `got` on and returns how many bits have been decoded.
std::size_t decode(RangeDecoder& decoder, const Message& message, std::size_t got) {
    for (; got < message.bits.size(); ++got) {
        const int bit = decoder.decode(message.probabilities[got]);
        if (bit < 0) break;
        CHECK(bit == message.bits[got]);
    }
    return got;
}

void test_round_trip(std::mt19937& random) {
    const Message message = random_message(random);
    const auto bytes = encoded(message);
    RangeDecoder decoder;
    std::size_t got = decode(decoder, message, 0), at = 0;
    while (at < bytes.size()) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 7, bytes.size() - at);
        decoder.feed(bytes.data() + at, count);
        at += count;
        got = decode(decoder, message, got);
        RangeDecoder fresh;  // all bytes at once give the same
        fresh.feed(bytes.data(), at);
        CHECK(decode(fresh, message, 0) == got);
    }
    CHECK(got == message.bits.size());
}

void test_stretch_and_squash() {
    for (Probability one = 1; one < kOne; ++one) {
        const Probability back = squash(stretch(one));
        CHECK(back > one ? back - one <= 16 + one / 256 : one - back <= 16 + one / 256);
    }
    for (int logit = -kMaxLogit; logit < kMaxLogit; ++logit) CHECK(squash(logit) <= squash(logit + 1));
}

// A model adapts by the exact quotient of integers, so that every machine computes the same probability.
void test_adaptation_rates(std::mt19937& random) {
    for (int n = 0; n <= 1 << 14; n += 1 + n / 8) {
        const std::uint64_t divisor = 2 * static_cast<std::uint64_t>(n) + 3;
        for (int i = 0; i < 100; ++i) {
            const std::uint64_t multiple = random() % (0x1FFFFFFFFULL / divisor) * divisor;
            for (std::uint64_t distance : {std::uint64_t{random()}, multiple / 2, multiple / 2 + 1})
                CHECK(static_cast<std::uint64_t>(static_cast<double>(distance) * tables::adaptation_rate(n)) ==
                      2 * distance / divisor);
        }
    }
}

void test_adaptation(std::mt19937& random) {
    BinaryModel model;
    Mixer<2> mixer;
    const auto logit_of = [&](std::size_t i) { return i == 0 ? model.logit() : 0; };
    for (int i = 0; i < 20000; ++i) {
        const bool bit = random() % 10 == 0;
        mixer.mix(logit_of);
        mixer.update(bit, 2);
        model.update(bit, 1000);
    }
    const double single = model.probability() / double(kOne), mixed = mixer.mix(logit_of) / double(kOne);
    CHECK(single > 0.07 && single < 0.13 && mixed > 0.07 && mixed < 0.13);
}

int main() {
    std::mt19937 random(0);
    for (int i = 0; i < 100; ++i) test_round_trip(random);
    test_stretch_and_squash();
    test_adaptation_rates(random);
    test_adaptation(random);
    std::puts("range_coder: ok");
}
