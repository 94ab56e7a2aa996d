// Embedded bit-plane coding of images: nestcode/images.
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "arrays.hpp"
#include "nestcode/image_decoder.hpp"
#include "nestcode/image_encoder.hpp"
#include "nestcode/image_residual.hpp"
#include "nestcode/restoration.hpp"

namespace {

using nestcode::AdditiveModel, nestcode::BinaryModel, nestcode::ImageDecoder, nestcode::ImageModel,
    nestcode::ImageShape, nestcode::ImageStart, nestcode::MixingModel, nestcode::kBlock;
using Kinds = std::vector<std::size_t>;

constexpr int kMaxCount = 255;  // of a binary model in a file

// A context model, in a class of its own since nanobind would convert a variant.
struct Model {
    ImageModel model;

    int version() const { return std::holds_alternative<MixingModel>(model) ? 1 : 2; }
    void halve_rate(int times) {
        if (times < -8 || times > 8) throw nb::value_error("a rate is halved at most 8 times");
        if (auto* additive = std::get_if<AdditiveModel>(&model)) additive->halve_rate(times);
    }
};

std::vector<std::size_t> model_sizes(int version) {
    if (version == 2) return {AdditiveModel().size()};
    std::size_t models = 0, weights = 0;
    MixingModel model;
    model.each_model([&](BinaryModel&) { ++models; });
    model.each_weight([&](std::int32_t&) { ++weights; });
    return {models, models, weights};
}
void check_sizes(int version, const std::vector<std::size_t>& sizes) {
    if (sizes != model_sizes(version))
        throw nb::value_error("arrays must have the sizes that image_model_sizes returns");
}

void save_additive(Model& self, const Array<std::int16_t, 1>& out) {
    check_sizes(self.version(), {out.shape(0)});
    std::get<AdditiveModel>(self.model).save(out.data());
}
void save_mixing(Model& self, const Array<std::uint16_t, 1>& probabilities, const Array<std::uint8_t, 1>& counts,
                 const Array<std::int32_t, 1>& weights) {
    check_sizes(self.version(), {probabilities.shape(0), counts.shape(0), weights.shape(0)});
    auto& model = std::get<MixingModel>(self.model);
    std::size_t i = 0, j = 0;
    model.each_model([&](BinaryModel& one) {
        probabilities.data()[i] = static_cast<std::uint16_t>(one.probability());
        counts.data()[i++] = static_cast<std::uint8_t>(std::min(one.count(), kMaxCount));
    });
    model.each_weight([&](std::int32_t& weight) { weights.data()[j++] = weight; });
}
void load_additive(Model& self, const Vec<std::int16_t>& weights) {
    check_sizes(2, {weights.shape(0)});
    AdditiveModel model;
    model.restore(weights.data());
    self.model = std::move(model);
}
void load_mixing(Model& self, const Vec<std::uint16_t>& probabilities, const Vec<std::uint8_t>& counts,
                 const Vec<std::int32_t>& weights) {
    check_sizes(1, {probabilities.shape(0), counts.shape(0), weights.shape(0)});
    MixingModel model;
    model.restore(probabilities.data(), counts.data(), weights.data());
    self.model = std::move(model);
}

ImageShape shape_of(const Kinds& kinds, const Array<const std::int16_t, 5>& coefficients) {
    if (kinds.size() != coefficients.shape(0) || coefficients.shape(3) != kBlock || coefficients.shape(4) != kBlock)
        throw nb::value_error("coefficients must be (channels, rows, columns, 16, 16)");
    for (std::size_t i = 0; i < kinds.size(); ++i)
        if (kinds[i] >= nestcode::kChannelKinds || (kinds[i] < 3 && kinds[i] != i))
            throw nb::value_error("channels must be luma, two of chroma and alpha, in this order");
    return {kinds, coefficients.shape(1), coefficients.shape(2)};
}

// Returns what a bitstream begins with, from the rotation of its colors, if any, and the weights of its channels, if
// any.
ImageStart start_of(std::size_t channels, const std::vector<std::int8_t>& rotation,
                    const std::vector<std::uint8_t>& weights) {
    ImageStart start(channels);
    start.rotated = !rotation.empty(), start.weighted = !weights.empty();
    if (start.rotated && rotation.size() != start.rotation.size())
        throw nb::value_error("a rotation must have 3 values");
    if (start.weighted && weights.size() != channels) throw nb::value_error("weights must be those of all channels");
    std::copy(rotation.begin(), rotation.end(), start.rotation.begin());
    for (std::size_t i = 0; i < weights.size(); ++i) start.channels[i].weight = weights[i];
    return start;
}

double quantize(const Array<const float, 4>& coefficients, float step, float weight,
                const Array<std::int16_t, 4>& out) {
    if (coefficients.size() != out.size() || out.size() % kBlock != 0)
        throw nb::value_error("coefficients and quantized ones must be (rows, columns, 16, 16)");
    nb::gil_scoped_release released;
    return nestcode::quantize(coefficients.data(), out.size(), step, weight, out.data());
}

// Returns the bitstream of an image, of about `limit` bytes at most, its number of bit planes, whether it is whole, and
// after every pass the number of bytes, the squared error of coefficients, and the error against `original`, if that is
// not empty and was measured.
template <class Pixel>
std::tuple<nb::bytes, int, bool, std::vector<std::tuple<std::size_t, double, double>>> encode_image(
    Model& model, const Kinds& kinds, const Array<const std::int16_t, 5>& coefficients, std::size_t limit, bool train,
    const Array<const Pixel, 3>& original, float step, const std::vector<std::int8_t>& rotation,
    const std::vector<std::uint8_t>& weights) {
    const ImageShape shape = shape_of(kinds, coefficients);
    if (original.size() && (original.shape(2) != kinds.size() || original.shape(0) > kBlock * shape.rows ||
                            original.shape(1) > kBlock * shape.columns))
        throw nb::value_error("the original must be (height, width, channels) of the coefficients");
    const Pixel* const pixels = original.size() ? original.data() : nullptr;
    const nestcode::OriginalImage compared{pixels, original.shape(0), original.shape(1), step};
    const ImageStart start = start_of(kinds.size(), rotation, weights);
    nestcode::EncodedImage image;
    {
        nb::gil_scoped_release released;
        ImageModel adapted = model.model;
        image = nestcode::encode_image(adapted, shape, coefficients.data(), start, limit, compared);
        if (train) model.model = std::move(adapted);
    }
    std::vector<std::tuple<std::size_t, double, double>> passes;
    for (const nestcode::CodedPass& pass : image.passes)
        passes.emplace_back(pass.bytes, pass.coefficients, pass.pixels);
    return {nb::bytes(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size()), image.planes, image.whole,
            std::move(passes)};
}

void make_decoder(ImageDecoder* self, const Model& model, float step, std::size_t height, std::size_t width,
                  std::size_t channels) {
    if (height == 0 || width == 0 || channels == 0 || channels > nestcode::kChannelKinds)
        throw nb::value_error("an image must have pixels, of 1 to 4 channels");
    new (self) ImageDecoder(model.model, step, height, width, channels);
}

bool feed(ImageDecoder& decoder, const nb::bytes& bytes) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const std::size_t count = bytes.size();
    nb::gil_scoped_release released;
    return decoder.feed(data, count);
}

template <class Pixel>
void write_pixels(const ImageDecoder& decoder, const Array<Pixel, 1>& pixels, std::size_t reduction, bool filtered) {
    if (reduction != 1 && reduction != 2 && reduction != 4 && reduction != 8)
        throw nb::value_error("reduction must be 1, 2, 4 or 8");
    if (pixels.shape(0) != decoder.size(reduction))
        throw nb::value_error("pixels must be height * width * channels values");
    Pixel* out = pixels.data();
    nb::gil_scoped_release released;
    switch (reduction) {
        case 1: return decoder.write<1>(out, filtered);
        case 2: return decoder.write<2>(out);
        case 4: return decoder.write<4>(out);
        default: return decoder.write<8>(out);
    }
}

void check_residual(std::size_t height, std::size_t width, std::size_t channels) {
    if (height == 0 || width == 0 || channels == 0 || channels > nestcode::kChannelKinds)
        throw nb::value_error("pixels must be (height, width, channels), of 1 to 4 channels");
}
template <class Pixel>
nb::bytes encode_residual(const Array<const Pixel, 3>& shown, const Array<const Pixel, 3>& pixels) {
    const std::size_t height = shown.shape(0), width = shown.shape(1), channels = shown.shape(2);
    check_residual(height, width, channels);
    if (pixels.shape(0) != height || pixels.shape(1) != width || pixels.shape(2) != channels)
        throw nb::value_error("shown and original pixels must have the same shape");
    std::vector<std::uint8_t> bytes;
    {
        nb::gil_scoped_release released;
        bytes = nestcode::encode_residual(height, width, channels, shown.data(), pixels.data());
    }
    return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Of pixels of 8 or of 16 bits, in an array that Python keeps alive.
struct ResidualDecoder {
    std::variant<nestcode::ResidualDecoder<std::uint8_t>, nestcode::ResidualDecoder<std::uint16_t>> decoder;

    std::size_t lines() const {
        return std::visit([](const auto& one) { return one.lines(); }, decoder);
    }
    void feed(const nb::bytes& bytes) {
        const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
        const std::size_t count = bytes.size();
        nb::gil_scoped_release released;
        std::visit([&](auto& one) { one.feed(data, count); }, decoder);
    }
};
template <class Pixel>
void make_residual_decoder(ResidualDecoder* self, const Array<Pixel, 3>& pixels) {
    const std::size_t height = pixels.shape(0), width = pixels.shape(1), channels = pixels.shape(2);
    check_residual(height, width, channels);
    new (self) ResidualDecoder{nestcode::ResidualDecoder<Pixel>(height, width, channels, pixels.data())};
}

using Rows = std::vector<std::vector<float>>;

template <std::size_t kRows, std::size_t kColumns>
Rows rows_of(const std::int16_t (&weights)[kRows][kColumns]) {
    Rows rows;
    for (const auto& row : weights) {
        rows.emplace_back(std::begin(row), std::end(row));
        for (float& weight : rows.back()) weight *= nestcode::kWeightUnit;
    }
    return rows;
}
std::pair<Rows, Rows> filter_weights() {
    return {rows_of(nestcode::kLumaWeights), rows_of(nestcode::kChromaWeights)};
}

using nestcode::Convolution, nestcode::RestorationNetwork;
using Layer = std::tuple<Array<const std::int8_t, 3>, Vec<float>, Vec<std::uint8_t>>;

void make_network(RestorationNetwork* self, std::array<std::size_t, 3> blocks, const std::vector<Layer>& layers,
                  const std::string& simd) {
    const auto kernels = nestcode::restoration_kernels(nestcode::choose_simd(simd));
    std::vector<Convolution> convolutions;
    for (const auto& [weights, inverse, zeros] : layers) {
        if (inverse.shape(0) != weights.shape(2) || zeros.shape(0) != weights.shape(2))
            throw nb::value_error("each input of a convolution must have a scale and a zero point");
        convolutions.emplace_back(weights.data(), weights.shape(0), weights.shape(1), weights.shape(2), inverse.data(),
                                  zeros.data(), kernels);
    }
    new (self) RestorationNetwork(blocks, std::move(convolutions));
}

void correct(const RestorationNetwork& network, const Array<const std::uint8_t, 3>& pixels, const Vec<float>& scales,
             const Vec<float>& biases, const Array<float, 3>& out, bool transposed, bool turned, std::size_t threads) {
    const std::size_t height = pixels.shape(0), width = pixels.shape(1);
    if (height % 8 != 0 || width % 8 != 0 || pixels.shape(2) != 3 || out.shape(0) != height || out.shape(1) != width ||
        out.shape(2) != 3 || scales.shape(0) != network.scale_count() || biases.shape(0) != network.bias_count())
        throw nb::value_error("pixels and corrections must be (8n, 8m, 3), with scales and biases of all outputs");
    nb::gil_scoped_release released;
    network.correct(pixels.data(), {height, width, transposed, turned}, scales.data(), biases.data(), out.data(),
                    threads);
}

}  // namespace

void add_images(nb::module_& m) {
    nb::class_<Model>(m, "ImageModel", "The context model of the bit-plane coder.")
        .def(nb::init<>())
        .def_prop_ro("version", &Model::version, "1: adaptive binary models and mixers; 2: additive weights.")
        .def("halve_rate", &Model::halve_rate, "times"_a, "Adapt at 2^-times the rate that images are coded with.")
        .def("save", &save_additive, "weights"_a.noconvert(), "Write the state of a model of version 2.")
        .def("save", &save_mixing, "probabilities"_a.noconvert(), "counts"_a.noconvert(), "weights"_a.noconvert(),
             "Write the state of a model of version 1.")
        .def("load", &load_additive, "weights"_a.noconvert(), "Become a model of version 2 in a state that was saved.")
        .def("load", &load_mixing, "probabilities"_a.noconvert(), "counts"_a.noconvert(), "weights"_a.noconvert(),
             "Become a model of version 1 in a state that was saved.");
    nb::class_<ImageDecoder>(m, "ImageDecoder", "The decoder of one image that arrives in pieces.")
        .def("__init__", &make_decoder, "model"_a, "step"_a, "height"_a, "width"_a, "channels"_a,
             nb::keep_alive<1, 2>())
        .def("feed", &feed, "data"_a,
             "Append bytes and decode as far as they reach; return False if the image claims too many bit planes.")
        .def("write", &write_pixels<std::uint8_t>, "pixels"_a.noconvert(), "reduction"_a = 1, "filtered"_a = true,
             "Write the pixels from what arrived so far, at a scale of 1 / reduction; those of scale 1 are filtered.")
        .def("write", &write_pixels<std::uint16_t>, "pixels"_a.noconvert(), "reduction"_a = 1, "filtered"_a = true)
        .def_prop_ro("planes", &ImageDecoder::planes, "The number of bit planes that the first byte claims.")
        .def_prop_ro("passes", &ImageDecoder::passes, "How many of the 45 coding passes arrived.")
        .def_prop_ro("weight", &ImageDecoder::weight, "The weight of the first channel's quantizer step.")
        .def_prop_ro("known", &ImageDecoder::known, "What is known of each coefficient.");
    nb::class_<ResidualDecoder>(m, "ResidualDecoder", "Turns shown pixels into those of the image, in place.")
        .def("__init__", &make_residual_decoder<std::uint8_t>, "pixels"_a.noconvert(), nb::keep_alive<1, 2>())
        .def("__init__", &make_residual_decoder<std::uint16_t>, "pixels"_a.noconvert(), nb::keep_alive<1, 2>())
        .def("feed", &ResidualDecoder::feed, "data"_a, "Append bytes and decode as far as they reach.")
        .def_prop_ro("lines", &ResidualDecoder::lines, "How many lines of pixels are those of the image.");
    nb::class_<RestorationNetwork>(m, "RestorationNetwork", "The network that refines images, in 8-bit integers.")
        .def("__init__", &make_network, "blocks"_a, "layers"_a, "simd"_a = "")
        .def("correct", &correct, "pixels"_a.noconvert(), "scales"_a.noconvert(), "biases"_a.noconvert(),
             "out"_a.noconvert(), "transposed"_a = false, "turned"_a = false, "threads"_a = 1,
             "Write the correction of pixels, computed for a view of them.");
    m.def("image_filter_weights", &filter_weights,
          "Return the weights of the filter of decoded images: of luma by class, and of chroma.");
    m.def("encode_residual", &encode_residual<std::uint8_t>, "shown"_a.noconvert(), "pixels"_a.noconvert(),
          "Return what turns shown pixels into those of the image, as bytes.");
    m.def("encode_residual", &encode_residual<std::uint16_t>, "shown"_a.noconvert(), "pixels"_a.noconvert());
    m.def("image_model_sizes", &model_sizes, "version"_a, "Return the sizes of the arrays that a model is saved as.");
    m.def("quantize_coefficients", &quantize, "coefficients"_a.noconvert(), "step"_a, "weight"_a, "out"_a.noconvert(),
          "Quantize coefficients, and return the squared error in steps.");
    m.def(
        "encode_image", &encode_image<std::uint8_t>, "model"_a, "kinds"_a, "coefficients"_a.noconvert(), "limit"_a,
        "train"_a, "original"_a.noconvert(), "step"_a, "rotation"_a, "weights"_a,
        "Return the bitstream, its number of planes, whether it is whole, and after every pass, of which the last "
        "may be incomplete, its bytes, the squared error of coefficients, and the mean squared error of pixels or -1.");
    m.def("encode_image", &encode_image<std::uint16_t>, "model"_a, "kinds"_a, "coefficients"_a.noconvert(), "limit"_a,
          "train"_a, "original"_a.noconvert(), "step"_a, "rotation"_a, "weights"_a);
}
