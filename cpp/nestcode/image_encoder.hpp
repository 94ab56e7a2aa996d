// The encoder of one image: its bitstream, and after every coding pass the rate and the error of what a receiver shows.
#pragma once

#include <utility>
#include <variant>

#include "image_reconstruction.hpp"

namespace nestcode {

// The pixels of an image, (height, width, channels), which what a receiver shows is compared with.
struct OriginalImage {
    std::variant<const std::uint8_t*, const std::uint16_t*> pixels;  // null if errors are of no interest
    std::size_t height, width;
    float step;

    bool given() const {
        return std::visit([](const auto* own) { return own != nullptr; }, pixels);
    }
    // The mean squared error of a pixel value, on the scale from 0 to 255, after decoding planes down to `plane`, and
    // `passes` in all.
    double error(const ImageShape& shape, const ImageStart& start, const std::int32_t* known, int plane,
                 float passes) const {
        const ImageReconstruction reconstruction(shape, known, plane, step, start);
        const float reached = reached_step(step, passes);
        return std::visit([&](const auto* own) { return error_of(own, shape, reconstruction, reached); }, pixels);
    }

  private:
    template <class Pixel>
    double error_of(const Pixel* own, const ImageShape& shape, const ImageReconstruction& reconstruction,
                    float reached) const {
        std::vector<Pixel> shown(height * width * shape.kinds.size());
        reconstruction.write(height, width, shown.data(), reached);
        std::uint64_t sum = 0;  // of 2^32 squared values of 16 bits at least
        for (std::size_t i = 0; i < shown.size(); ++i) {
            const std::int64_t difference = std::int64_t{shown[i]} - own[i];
            sum += static_cast<std::uint64_t>(difference * difference);
        }
        const double scale = kScale<Pixel>;
        return static_cast<double>(sum) / static_cast<double>(shown.size()) / (scale * scale);
    }
};

inline constexpr double kUnmeasured = -1;

// What is known after a coding pass: bytes so far, the squared error of the coefficients, and the mean squared error of
// the pixels, if it was measured.
struct CodedPass {
    std::size_t bytes;
    double coefficients, pixels;
};
struct EncodedImage {
    std::vector<std::uint8_t> bytes;
    int planes;
    bool whole;  // or the last pass is incomplete
    std::vector<CodedPass> passes;
};

// Quantizes coefficients with a dead zone: truncated toward 0. Returns the squared error, in steps, if magnitudes are
// reconstructed in the middle of their interval.
inline double quantize(const float* coefficients, std::size_t count, float step, float weight, std::int16_t* out) {
    constexpr float largest = (1 << kMaxPlanes) - 1;
    double sum = 0;
    for (std::size_t first = 0; first < count; first += kBlock) {  // rows of blocks: floats are exact enough for a row
        float errors[kBlock];
        for (std::size_t i = 0; i < kBlock; ++i) {
            const float value = std::clamp(coefficients[first + i] / step / weight, -largest, largest);
            const float whole = static_cast<float>(static_cast<std::int32_t>(value));
            const float left = std::abs(value - whole) - (whole != 0 ? 0.5F : 0.0F);
            out[first + i] = static_cast<std::int16_t>(whole);
            errors[i] = left * left;
        }
        float row = 0;
        for (const float error : errors) row += error;
        sum += double{row};
    }
    return sum;
}

inline constexpr std::size_t kManyBlocks = 64;  // from which on the planes of subbands are worth their bytes

// Counts the bit planes of an image, and of each subband in large images.
inline void count_planes(const ImageShape& shape, const std::int16_t* coefficients, ImageStart& start) {
    for (ImageStart::Channel& channel : start.channels) {
        std::array<unsigned, kBlock * kBlock> bits{};  // that are set in any magnitude
        for (std::size_t block = 0; block < shape.blocks(); ++block, coefficients += bits.size())
            for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= static_cast<unsigned>(std::abs(coefficients[i]));
        for (std::size_t k = 0; k < kSubbandCount; ++k) {
            const Subband& subband = kSubbands[k];
            unsigned any = 0;
            for (int i = subband.row; i < subband.row + subband.side; ++i)
                for (int j = subband.column; j < subband.column + subband.side; ++j)
                    any |= bits[static_cast<std::size_t>(i * kBlock + j)];
            channel.planes[k] = static_cast<std::uint8_t>(std::bit_width(any));
            start.planes = std::max<int>(start.planes, channel.planes[k]);
        }
    }
    start.by_subband = shape.blocks() >= kManyBlocks;
    for (ImageStart::Channel& channel : start.channels)
        if (!start.by_subband) channel.planes.fill(static_cast<std::uint8_t>(start.planes));
}

// Encodes about `limit` bytes of an image; `start` has the rotation and the weights of its coefficients. The model is
// left in the state that it has at the end.
template <class Model>
EncodedImage encode_image(Model& model, const ImageShape& shape, const std::int16_t* coefficients, ImageStart start,
                          std::size_t limit, const OriginalImage& original) {
    count_planes(shape, coefficients, start);
    EncodedImage image{start.bytes(), start.planes, true, {}};
    EncoderIo io;
    std::vector<std::int32_t> known(original.given() ? shape.count() : 0);  // to a receiver of all bytes so far
    BitPlaneTraversal<EncoderIo, Model> traversal(shape, start, model, coefficients,
                                                  known.empty() ? nullptr : known.data());
    const auto size = [&] { return image.bytes.size() + io.encoder.bytes().size(); };
    std::size_t measured = 0;  // bytes at the end of the last pass that was measured
    const auto add_pass = [&](std::size_t complete, float passes, bool near_end) {
        const std::size_t now = size();
        CodedPass& pass = image.passes.emplace_back(CodedPass{now, traversal.error(), kUnmeasured});
        // Reconstruction takes as long as coding a pass. The ratio of both errors changes slowly, but for the end.
        if (known.empty() || (now < 3 * measured && !near_end)) return;
        measured = now;
        const int plane = start.planes - static_cast<int>(complete) / kPasses;
        pass.pixels = original.error(shape, start, known.data(), plane, passes);
    };
    const auto all = static_cast<std::size_t>(start.planes * kPasses), empty = kPasses * kMaxPlanes - all;
    const auto end_pass = [&] {
        const std::size_t complete = image.passes.size() + 1;
        add_pass(complete, static_cast<float>(empty + complete), complete + 1 >= all);
    };
    traversal.run(io, [&] { return size() >= limit; }, end_pass);
    image.whole = image.passes.size() == all;
    if (!image.whole) add_pass(image.passes.size(), traversal.passes(), true);
    io.encoder.finish();
    image.bytes.insert(image.bytes.end(), io.encoder.bytes().begin(), io.encoder.bytes().end());
    model = std::move(traversal.model());
    return image;
}
inline EncodedImage encode_image(ImageModel& model, const ImageShape& shape, const std::int16_t* coefficients,
                                 const ImageStart& start, std::size_t limit, const OriginalImage& original) {
    return std::visit([&](auto& one) { return encode_image(one, shape, coefficients, start, limit, original); }, model);
}

}  // namespace nestcode
