// Entropy-coded blocks of streams: the same bits however the bytes arrive, and never more than there are.
#include "input.hpp"
#include "nestcode/code_entropy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    Input input(bytes, size);
    const std::size_t count = input.number(20), width = input.number(140), piece = 1 + input.number(99);
    const std::uint64_t all = count * width, most = input.number(1) ? all : input.number(all);
    const std::vector<std::uint8_t> coded = input.rest();
    std::vector<std::uint8_t> plain(count * ((width + 7) / 8)), again(plain.size());
    const std::uint64_t bits = CodeDecoder(count, width).feed(coded.data(), coded.size(), most, plain.data());
    CHECK(bits <= most);
    CodeDecoder pieces(count, width);
    std::uint64_t found = pieces.feed(nullptr, 0, most, again.data());
    for (std::size_t at = 0; at < coded.size(); at += piece)
        found = pieces.feed(coded.data() + at, std::min(piece, coded.size() - at), most, again.data());
    CHECK(found == bits && again == plain);
    return 0;
}
