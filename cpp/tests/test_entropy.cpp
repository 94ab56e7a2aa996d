// The range coder: what went in comes out, whatever arrives when, and nothing that is not certain.
#include <vector>

#include "nestcode/entropy.hpp"
#include "support.hpp"

struct Message {
    std::vector<bool> bits;
    std::vector<Chance> chances;
};

Message some_message(std::mt19937& random) {
    Message message;
    for (std::size_t left = random() % 3000; left > 0; --left) {
        const Chance extreme = 1 + random() % 4, any = 1 + random() % (kSure - 1);
        const Chance one = random() % 4 == 0 ? (random() % 2 ? extreme : kSure - extreme) : any;
        message.chances.push_back(one);
        message.bits.push_back(random() % kSure < one);
    }
    return message;
}

std::vector<std::uint8_t> encoded(const Message& message) {
    RangeEncoder encoder;
    for (std::size_t i = 0; i < message.bits.size(); ++i) encoder.encode(message.bits[i], message.chances[i]);
    encoder.finish();
    return encoder.bytes();
}

// Decodes what is certain, from `got` on; how many bits there are then.
std::size_t decode(RangeDecoder& decoder, const Message& message, std::size_t got) {
    for (; got < message.bits.size(); ++got) {
        const int bit = decoder.decode(message.chances[got]);
        if (bit < 0) break;
        CHECK(bit == message.bits[got]);
    }
    return got;
}

void arrives_in_pieces(std::mt19937& random) {
    const Message message = some_message(random);
    const auto bytes = encoded(message);
    RangeDecoder decoder;
    std::size_t got = decode(decoder, message, 0), at = 0;
    while (at < bytes.size()) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 7, bytes.size() - at);
        decoder.feed(bytes.data() + at, count);
        at += count;
        got = decode(decoder, message, got);
        RangeDecoder fresh;  // pieces make no difference
        fresh.feed(bytes.data(), at);
        CHECK(decode(fresh, message, 0) == got);
    }
    CHECK(got == message.bits.size());
}

void odds_and_chances_agree() {
    for (Chance one = 1; one < kSure; ++one) {
        const Chance back = squash(stretch(one));
        CHECK(back > one ? back - one <= 16 + one / 256 : one - back <= 16 + one / 256);
    }
    for (int odds = -kFarthest; odds < kFarthest; ++odds) CHECK(squash(odds) <= squash(odds + 1));
}

void learns(std::mt19937& random) {
    Learner learner;
    Mixer<2> mixer;
    for (int i = 0; i < 20000; ++i) {
        const bool bit = random() % 10 == 0;
        mixer.set(0, learner.chance());
        mixer.set(1, kSure / 2);
        mixer.chance();
        mixer.learn(bit, 2);
        learner.learn(bit, 1000);
    }
    mixer.set(0, learner.chance());
    mixer.set(1, kSure / 2);
    const double seen = learner.chance() / double(kSure), mixed = mixer.chance() / double(kSure);
    CHECK(seen > 0.07 && seen < 0.13 && mixed > 0.07 && mixed < 0.13);
}

int main() {
    std::mt19937 random(0);
    for (int i = 0; i < 100; ++i) arrives_in_pieces(random);
    odds_and_chances_agree();
    learns(random);
    std::puts("entropy: ok");
}
