// The encoder of one image: its bitstream, and after every coding pass the rate and the error of what a receiver shows.
#pragma once

#include <utility>

#include "image_reconstruction.hpp"

namespace nestcode {

// The pixels of an image, (height, width, channels), which what a receiver shows is compared with.
template <class Pixel>
struct OriginalImage {
    const Pixel* pixels;  // null if errors are of no interest
    std::size_t height, width;
    float step;
    ColorMatrix colors;

    // The mean squared error of a pixel value, on the scale from 0 to 255, after decoding planes down to `plane`.
    double error(const ImageShape& shape, const std::int32_t* known, int plane) const {
        std::vector<Pixel> shown(height * width * shape.kinds.size());
        ImageReconstruction(shape, known, plane, step, colors).write(height, width, shown.data());
        std::uint64_t sum = 0;  // of 2^32 squared values of 16 bits at least
        for (std::size_t i = 0; i < shown.size(); ++i) {
            const std::int64_t difference = std::int64_t{shown[i]} - pixels[i];
            sum += static_cast<std::uint64_t>(difference * difference);
        }
        const double scale = kScale<Pixel>;
        return static_cast<double>(sum) / static_cast<double>(shown.size()) / (scale * scale);
    }
};

inline constexpr double kUnmeasured = -1;

struct EncodedImage {
    std::vector<std::uint8_t> bytes;
    std::vector<std::pair<std::size_t, double>> passes;  // bytes and error, if it was measured, after every pass
};

// Encodes about `limit` bytes of an image. The model is left in the state that it has at the end.
template <class Pixel>
EncodedImage encode_image(ImageModel& model, const ImageShape& shape, const std::int32_t* coefficients, int planes,
                          std::size_t limit, const OriginalImage<Pixel>& original) {
    EncoderIo io;
    EncodedImage image;
    std::vector<std::int32_t> known(original.pixels ? shape.count() : 0);  // to a receiver of all bytes so far
    BitPlaneTraversal<EncoderIo> traversal(shape, planes, model, coefficients, known.empty() ? nullptr : known.data());
    std::size_t measured = 0;  // bytes at the end of the last pass that was measured
    const auto end_pass = [&] {
        const std::size_t size = io.encoder.bytes().size(), done = image.passes.size() + 1;
        const bool last = done == static_cast<std::size_t>(planes * kPasses);
        // Reconstruction takes as long as coding the pass: what adds less than an eighth is interpolated.
        if (known.empty() || (8 * size < 9 * measured && !last)) return image.passes.emplace_back(size, kUnmeasured);
        measured = size;
        const int plane = planes - static_cast<int>(done) / kPasses;
        return image.passes.emplace_back(size, original.error(shape, known.data(), plane));
    };
    traversal.run(io, [&] { return io.encoder.bytes().size() >= limit; }, end_pass);
    io.encoder.finish();
    image.bytes = io.encoder.bytes();
    model = std::move(traversal.model());
    return image;
}

}  // namespace nestcode
