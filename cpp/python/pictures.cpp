// Nested bits of pictures: nestcode/coders/pictures.py.
#include "nestcode/pictures.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "arrays.hpp"

namespace {

using nestcode::kKinds, nestcode::kTile, nestcode::PictureModel, nestcode::PictureShape;
using Kinds = std::vector<std::size_t>;

constexpr int kRemembered = 255;  // bits that a learner of a model is worth at most

struct Sizes {
    std::size_t learners = 0, weights = 0;
};
Sizes sizes_of(PictureModel& model) {
    Sizes sizes;
    model.each_learner([&](nestcode::Learner&) { ++sizes.learners; });
    model.each_weight([&](std::int32_t&) { ++sizes.weights; });
    return sizes;
}

std::pair<std::size_t, std::size_t> model_sizes() {
    PictureModel model;
    const Sizes sizes = sizes_of(model);
    return {sizes.learners, sizes.weights};
}

void check_model(PictureModel& model, std::size_t chances, std::size_t seen, std::size_t weights) {
    const Sizes sizes = sizes_of(model);
    if (chances != sizes.learners || seen != sizes.learners || weights != sizes.weights)
        throw nb::value_error("a model of pictures must have the sizes that picture_model_sizes gives");
}

void write_model(PictureModel& model, const Array<std::uint16_t, 1>& chances, const Array<std::uint8_t, 1>& seen,
                 const Array<std::int32_t, 1>& weights) {
    check_model(model, chances.shape(0), seen.shape(0), weights.shape(0));
    std::size_t i = 0, j = 0;
    model.each_learner([&](nestcode::Learner& learner) {
        chances.data()[i] = static_cast<std::uint16_t>(learner.chance());
        seen.data()[i++] = static_cast<std::uint8_t>(std::min(learner.seen(), kRemembered));
    });
    model.each_weight([&](std::int32_t& weight) { weights.data()[j++] = weight; });
}

void read_model(PictureModel& model, const Array<const std::uint16_t, 1>& chances,
                const Array<const std::uint8_t, 1>& seen, const Array<const std::int32_t, 1>& weights) {
    check_model(model, chances.shape(0), seen.shape(0), weights.shape(0));
    std::size_t i = 0, j = 0;
    model.each_learner([&](nestcode::Learner& learner) {
        learner.recall(std::max<nestcode::Chance>(chances.data()[i], 1), seen.data()[i]);
        ++i;
    });
    model.each_weight([&](std::int32_t& weight) { weight = std::clamp(weights.data()[j++], -(1 << 20), 1 << 20); });
}

PictureShape shape_of(const Kinds& kinds, const Array<std::int32_t, 5>& numbers, int planes) {
    if (kinds.size() != numbers.shape(0) || numbers.shape(3) != kTile || numbers.shape(4) != kTile)
        throw nb::value_error("coefficients must be (channels, rows, columns, 16, 16)");
    for (std::size_t i = 0; i < kinds.size(); ++i)
        if (kinds[i] >= kKinds || (kinds[i] < 3 && kinds[i] != i))
            throw nb::value_error("channels must be lightness, two colors and opacity, in this order");
    if (planes < 0 || planes > nestcode::kPlanes) throw nb::value_error("planes must be between 0 and 15");
    return {kinds, numbers.shape(1), numbers.shape(2)};
}

// The bits of a picture, at most about `limit` bytes, and after every pass how many bytes there are and the sum of
// squares that they leave.
std::pair<nb::bytes, std::vector<std::pair<std::size_t, double>>> encode_picture(PictureModel& model,
                                                                                 const Kinds& kinds,
                                                                                 const Array<std::int32_t, 5>& numbers,
                                                                                 int planes, std::size_t limit,
                                                                                 bool learn) {
    const PictureShape shape = shape_of(kinds, numbers, planes);
    const std::int32_t* truth = numbers.data();
    nestcode::PictureWriting io;
    std::vector<std::pair<std::size_t, double>> passes;
    {
        nb::gil_scoped_release released;
        nestcode::PictureWalk<nestcode::PictureWriting> walk(shape, planes, model, truth, nullptr);
        walk.go_on(
            io, [&] { return io.encoder.bytes().size() >= limit; },
            [&] { passes.emplace_back(io.encoder.bytes().size(), walk.left()); });
        io.encoder.finish();
        if (learn) model = std::move(walk.model());
    }
    const auto& bytes = io.encoder.bytes();
    return {nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size()), std::move(passes)};
}

// Writes what is known of the coefficients into an array as bytes come.
class PictureReader {
  public:
    PictureReader(const PictureModel& model, const Kinds& kinds, int planes, Array<std::int32_t, 5> known)
        : known_(std::move(known)), walk_(shape_of(kinds, known_, planes), planes, model, nullptr, known_.data()) {}

    void feed(const nb::bytes& bytes) {
        const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
        const std::size_t count = bytes.size();
        nb::gil_scoped_release released;
        io_.decoder.feed(data, count);
        walk_.go_on(io_, [] { return false; }, [] {});
    }

    int plane() const { return walk_.plane(); }

  private:
    Array<std::int32_t, 5> known_;
    nestcode::PictureReading io_;
    nestcode::PictureWalk<nestcode::PictureReading> walk_;
};

}  // namespace

void add_pictures(nb::module_& m) {
    nb::class_<PictureModel>(m, "PictureModel")
        .def(nb::init<>())
        .def("write", &write_model, "chances"_a.noconvert(), "seen"_a.noconvert(), "weights"_a.noconvert())
        .def("read", &read_model, "chances"_a.noconvert(), "seen"_a.noconvert(), "weights"_a.noconvert());
    nb::class_<PictureReader>(m, "PictureReader")
        .def(nb::init<const PictureModel&, const Kinds&, int, Array<std::int32_t, 5>>(), "model"_a, "kinds"_a,
             "planes"_a, "known"_a.noconvert())
        .def("feed", &PictureReader::feed, "data"_a)
        .def_prop_ro("plane", &PictureReader::plane);
    m.def("picture_model_sizes", &model_sizes);
    m.def("encode_picture", &encode_picture, "model"_a, "kinds"_a, "numbers"_a.noconvert(), "planes"_a, "limit"_a,
          "learn"_a);
}
