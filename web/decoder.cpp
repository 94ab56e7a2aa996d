// The image decoder as a WebAssembly module: what src/nestcode/serve/static/nest/decoder.js calls.
#include "nestcode/image_decoder.hpp"

#define EXPORT(name) __attribute__((export_name(#name))) name

using namespace nestcode;

extern "C" {

void* EXPORT(allocate)(std::size_t bytes) {
    return std::malloc(bytes);
}
void EXPORT(release)(void* memory) {
    std::free(memory);
}

ImageModel* EXPORT(make_model)(const LogitWeight* weights) {
    AdditiveModel model;
    model.restore(weights);
    return new ImageModel(std::move(model));
}
std::size_t EXPORT(model_weights)() {
    return AdditiveModel().size();
}
// Of codecs of version 1.
ImageModel* EXPORT(make_mixing_model)(const std::uint16_t* probabilities, const std::uint8_t* counts,
                                      const std::int32_t* weights) {
    MixingModel model;
    model.restore(probabilities, counts, weights);
    return new ImageModel(std::move(model));
}
std::size_t EXPORT(mixing_model_contexts)() {
    std::size_t count = 0;
    MixingModel().each_model([&](BinaryModel&) { ++count; });
    return count;
}
std::size_t EXPORT(mixing_model_weights)() {
    std::size_t count = 0;
    MixingModel().each_weight([&](std::int32_t&) { ++count; });
    return count;
}

ImageDecoder* EXPORT(make_decoder)(const ImageModel* model, float step, std::size_t height, std::size_t width,
                                   std::size_t channels) {
    return new ImageDecoder(*model, step, height, width, channels);
}
void EXPORT(release_decoder)(ImageDecoder* decoder) {
    delete decoder;
}
// Returns 0, or the number of bit planes that the image claims if it is too large.
int EXPORT(feed)(ImageDecoder* decoder, const std::uint8_t* bytes, std::size_t count) {
    return decoder->feed(bytes, count) ? 0 : decoder->planes();
}
void EXPORT(write)(const ImageDecoder* decoder, std::uint8_t* pixels) {
    decoder->write(pixels);
}
}
