// The network that refines images: every kernel and number of threads gives the same correction.
#include "nestcode/restoration.hpp"
#include "support.hpp"

namespace {

RestorationNetwork random_network(std::size_t fine, std::size_t coarse, Simd simd) {
    std::mt19937 random(1);
    std::vector<Convolution> layers;
    const auto add = [&](std::size_t outputs, std::size_t taps, std::size_t inputs) {
        std::vector<std::int8_t> weights(outputs * taps * inputs);
        for (auto& weight : weights) weight = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
        const std::vector<float> inverse(inputs, 20.0f);
        const std::vector<std::uint8_t> zeros(inputs, 100);
        layers.emplace_back(weights.data(), outputs, taps, inputs, inverse.data(), zeros.data(),
                            restoration_kernels(simd));
    };
    add(fine, 9, 48);
    for (int i = 0; i < 2; ++i) add(fine, 9, fine);
    add(coarse, 4, fine);
    for (int i = 0; i < 2; ++i) add(coarse, 9, coarse);
    for (int i = 0; i < 4; ++i) add(fine, 1, coarse);
    for (int i = 0; i < 2; ++i) add(fine, 9, fine);
    add(48, 9, fine);
    return {{1, 1, 1}, layers};
}

}  // namespace

int main() {
    constexpr std::size_t kHeight = 24, kWidth = 104;
    std::mt19937 random(2);
    std::vector<std::uint8_t> pixels(kHeight * kWidth * 3);
    for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
    std::vector<float> expected;
    for (const Simd simd : available_simd())
        for (const std::size_t threads : {1, 3}) {
            const RestorationNetwork network = random_network(80, 64, simd);
            const std::vector<float> scales(network.scale_count(), 1e-4f), biases(network.bias_count(), 0.5f);
            std::vector<float> out(pixels.size());
            network.correct(pixels.data(), {kHeight, kWidth, false, false}, scales.data(), biases.data(), out.data(),
                            threads);
            if (expected.empty()) expected = out;
            CHECK(out == expected);
            network.correct(pixels.data(), {kHeight, kWidth, true, true}, scales.data(), biases.data(), out.data(),
                            threads);
            CHECK(out != expected);
        }
    CHECK(*std::max_element(expected.begin(), expected.end()) > *std::min_element(expected.begin(), expected.end()));
    bool refused = false;
    try {
        RestorationNetwork({1, 1, 2}, random_network(16, 16, Simd::portable).layers);
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
    print_simd("restoration");
}
