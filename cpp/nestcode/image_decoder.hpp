// The progressive decoder of one image: bytes of its bitstream in, pixels out.
//
// A bitstream begins with an ImageStart; the rest is the output of a range coder. Bits are decoded once, as they
// arrive; pixels are reconstructed when they are requested.
#pragma once

#include <optional>
#include <variant>

#include "image_reconstruction.hpp"

namespace nestcode {

class ImageDecoder {
  public:
    // The model must outlive the decoder. There are 1 to 4 channels, pixels are (height, width, channels).
    ImageDecoder(const ImageModel& model, float step, std::size_t height, std::size_t width, std::size_t channels)
        : model_(model),
          step_(step),
          height_(height),
          width_(width),
          shape_{kinds_of(channels), (height + kBlock - 1) / kBlock, (width + kBlock - 1) / kBlock} {}

    // Takes the next bytes and decodes as far as they reach. Returns false if the image claims too many bit planes.
    bool feed(const std::uint8_t* bytes, std::size_t count) {
        for (; count > 0 && bytes_.size() < start_size(); --count) bytes_.push_back(*bytes++);
        if (planes() > kMaxPlanes) return false;
        if (!start_ && bytes_.size() == start_size()) begin();
        if (!start_) return true;
        io_.decoder.feed(bytes, count);
        visit(*this, [this](auto& traversal) { traversal.run(io_, [] { return false; }, [] {}); });
        return true;
    }

    // Writes the pixels, of 8 or 16 bits, from what arrived so far; before the first bits they are gray, and opaque. At
    // a scale of 1 / `kReduction`, which is 1, 2, 4 or 8, they are means of squares of pixels, which are not filtered.
    template <std::size_t kReduction = 1, class Pixel>
    void write(Pixel* pixels, bool filtered = true) const {
        if (!start_) return write_gray(pixels, size(kReduction));
        if constexpr (kReduction == 1)
            reconstruction().write(height_, width_, pixels, filtered ? reached_step(step_, passes()) : kUnfiltered);
        else
            reconstruction().write_scaled<kBlock / kReduction>(height_, width_, pixels);
    }

    std::size_t size(std::size_t reduction = 1) const {
        return (height_ + reduction - 1) / reduction * ((width_ + reduction - 1) / reduction) * shape_.kinds.size();
    }
    // The number of bit planes that the first byte claims.
    int planes() const { return bytes_.empty() ? 0 : ImageStart::planes_of(bytes_[0]); }
    // How many coding passes arrived, from 0 to kPasses * kMaxPlanes.
    float passes() const {
        float passes = 0;
        visit(*this, [&](const auto& traversal) { passes = traversal.passes(); });
        return passes;
    }
    // The weight of the first channel's step, which is luma's in color images.
    float weight() const { return start_ ? start_->channels[0].weight / float{kUnweighted} : 1; }
    // What is known of each coefficient, as BitPlaneTraversal writes it; empty until the first bits arrive.
    const std::vector<std::int32_t>& known() const { return known_; }

    // Luma, two chroma channels if there are 3 or 4 channels, alpha if there are 2 or 4.
    static std::vector<std::size_t> kinds_of(std::size_t channels) {
        std::vector<std::size_t> kinds = {0};
        if (channels >= 3) kinds.insert(kinds.end(), {1, 2});
        if (channels % 2 == 0) kinds.push_back(3);
        return kinds;
    }

  private:
    std::size_t start_size() const { return bytes_.empty() ? 1 : ImageStart::size_of(bytes_[0], shape_.kinds.size()); }

    ImageReconstruction reconstruction() const {
        int plane = 0;
        visit(*this, [&](const auto& traversal) { plane = traversal.plane(); });
        return {shape_, known_.data(), plane, step_, *start_};
    }
    template <class Pixel>
    void write_gray(Pixel* pixels, std::size_t count) const {
        const std::size_t channels = shape_.kinds.size();
        std::fill(pixels, pixels + count, static_cast<Pixel>(kGray * kScale<Pixel>));
        for (std::size_t i = channels - 1; channels % 2 == 0 && i < count; i += channels)
            pixels[i] = static_cast<Pixel>(kOpaque * kScale<Pixel>);
    }

    void begin() {
        start_.emplace(bytes_.data(), shape_.kinds.size());
        known_.resize(shape_.count());
        std::visit(
            [this]<class Model>(const Model& model) {
                traversal_.template emplace<Traversal<Model>>(shape_, *start_, model, nullptr, known_.data());
            },
            model_);
    }
    // Calls with the traversal, once it began.
    template <class Self, class Call>
    static void visit(Self& self, Call call) {
        if (auto* one = std::get_if<Traversal<AdditiveModel>>(&self.traversal_)) call(*one);
        if (auto* one = std::get_if<Traversal<MixingModel>>(&self.traversal_)) call(*one);
    }

    template <class Model>
    using Traversal = BitPlaneTraversal<DecoderIo, Model>;
    const ImageModel& model_;
    float step_;
    std::size_t height_, width_;
    ImageShape shape_;
    std::vector<std::uint8_t> bytes_;  // of the start that arrived
    std::optional<ImageStart> start_;
    std::vector<std::int32_t> known_;
    DecoderIo io_;
    std::variant<std::monostate, Traversal<AdditiveModel>, Traversal<MixingModel>> traversal_;
};

}  // namespace nestcode
