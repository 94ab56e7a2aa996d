// Inner products of all pairs of two sets of rows.
//
// Rows of one set are packed in panels of 32 side by side. A tile of rows of the other set is multiplied with as many
// columns of a panel as fill two vector registers (four of ARM): so many sums hide the latency of additions, and a line
// of the panel is read once for all of them. Only one set is packed, so small batches take less time than by BLAS.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd.hpp"
#include "vector_distance.hpp"
#include "vectors.hpp"

namespace nestcode {

// A tile of `rows` rows and `vectors` vectors of columns.
template <class Register, std::size_t rows, std::size_t vectors>
struct Tile {
    using Floats = Register;
    static constexpr std::size_t kLanes = sizeof(Floats) / sizeof(float), kRows = rows, kVectors = vectors;
};

class Panel {
  public:
    static constexpr std::size_t kRows = 32;

    Panel(std::size_t features, Simd simd);

    // The values of a feature, (32), which those of the next follow.
    float* line(std::size_t feature) { return lines_[2 * feature].values; }

    // Packs 32 rows.
    void pack(const float* const* rows) { kernels_.pack(rows, features_, line(0)); }

    // Writes the first `count` rows, (count, features).
    void unpack(std::size_t count, float* rows) const {
        kernels_.unpack(lines_.front().values, features_, count, rows);
    }

    // Writes the inner products of `count` rows, (count, features), with the 32: those of row i at out + i * stride.
    void multiply(const float* rows, std::size_t count, float* out, std::size_t stride) const {
        kernels_.multiply(lines_.front().values, rows, count, features_, out, stride);
    }

    struct Kernels {
        void (*pack)(const float* const* rows, std::size_t features, float* panel);
        void (*unpack)(const float* panel, std::size_t features, std::size_t count, float* rows);
        void (*multiply)(const float* panel, const float* rows, std::size_t count, std::size_t features, float* out,
                         std::size_t stride);
        ProjectKernel project;  // of many vectors
    };

  private:
    struct alignas(64) Line {
        float values[16];
    };

    std::size_t features_;
    Kernels kernels_;
    std::vector<Line> lines_;  // (features, 2)
};

template <class Tile, std::size_t count>
NESTCODE_INLINE void multiply_rows(const float* panel, const float* rows, std::size_t features, float* out,
                                   std::size_t stride) {
    using Floats = typename Tile::Floats;
    Floats sums[count][Tile::kVectors] = {};
    for (std::size_t f = 0; f < features; ++f) {
        Floats line[Tile::kVectors];
        for (std::size_t j = 0; j < Tile::kVectors; ++j)
            line[j] = load_vector<Floats>(panel + f * Panel::kRows + j * Tile::kLanes);
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < Tile::kVectors; ++j) sums[i][j] += rows[i * features + f] * line[j];
    }
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < Tile::kVectors; ++j) store_vector(sums[i][j], out + i * stride + j * Tile::kLanes);
}

template <class Tile>
NESTCODE_INLINE void multiply_panel(const float* panel, const float* rows, std::size_t count, std::size_t features,
                                    float* out, std::size_t stride) {
    constexpr std::size_t columns = Tile::kVectors * Tile::kLanes, few = Tile::kRows / 3;
    for (std::size_t first = 0; first < Panel::kRows; first += columns, panel += columns, out += columns) {
        std::size_t i = 0;
        for (; i + Tile::kRows <= count; i += Tile::kRows)
            multiply_rows<Tile, Tile::kRows>(panel, rows + i * features, features, out + i * stride, stride);
        for (; i + few <= count; i += few)
            multiply_rows<Tile, few>(panel, rows + i * features, features, out + i * stride, stride);
        for (; i < count; ++i) multiply_rows<Tile, 1>(panel, rows + i * features, features, out + i * stride, stride);
    }
}

template <class Tile>
NESTCODE_INLINE void pack_panel(const float* const* rows, std::size_t features, float* panel) {
    constexpr std::size_t lanes = Tile::kLanes, width = Panel::kRows;
    const std::size_t whole = features / lanes * lanes;
    for (std::size_t first = 0; first < width; first += lanes) {
        for (std::size_t f = 0; f < whole; f += lanes) {
            typename Tile::Floats square[lanes];
            for (std::size_t i = 0; i < lanes; ++i) square[i] = load_vector<typename Tile::Floats>(rows[first + i] + f);
            transpose(square);
            for (std::size_t i = 0; i < lanes; ++i) store_vector(square[i], panel + (f + i) * width + first);
        }
        for (std::size_t i = first; i < first + lanes; ++i)
            for (std::size_t f = whole; f < features; ++f) panel[f * width + i] = rows[i][f];
    }
}

template <class Tile>
NESTCODE_INLINE void unpack_panel(const float* panel, std::size_t features, std::size_t count, float* rows) {
    constexpr std::size_t lanes = Tile::kLanes, width = Panel::kRows;
    const std::size_t whole = features / lanes * lanes;
    for (std::size_t first = 0; first < count; first += lanes) {
        const std::size_t many = std::min(lanes, count - first);
        for (std::size_t f = 0; f < whole; f += lanes) {
            typename Tile::Floats square[lanes];
            for (std::size_t i = 0; i < lanes; ++i)
                square[i] = load_vector<typename Tile::Floats>(panel + (f + i) * width + first);
            transpose(square);
            for (std::size_t i = 0; i < many; ++i) store_vector(square[i], rows + (first + i) * features + f);
        }
        for (std::size_t i = first; i < first + many; ++i)
            for (std::size_t f = whole; f < features; ++f) rows[i * features + f] = panel[f * width + i];
    }
}

// The same for the directions of a projection, which are panels.
template <auto multiply>
void project_many(const ProjectionBlocks& directions, const float* vectors, std::size_t many, float* out) {
    static_assert(ProjectionBlocks::kWidth == Panel::kRows);
    for (std::size_t b = 0; b < directions.blocks; ++b)
        multiply(directions.block(b), vectors, many, directions.features, out + b * Panel::kRows, directions.count());
}

// Defines the kernels of an instruction set.
#define NESTCODE_PANEL_KERNELS(name, target, Tile)                                                                     \
    target inline void pack_##name(const float* const* rows, std::size_t features, float* panel) {                     \
        pack_panel<Tile>(rows, features, panel);                                                                       \
    }                                                                                                                  \
    target inline void unpack_##name(const float* panel, std::size_t features, std::size_t count, float* rows) {       \
        unpack_panel<Tile>(panel, features, count, rows);                                                              \
    }                                                                                                                  \
    target inline void multiply_##name(const float* panel, const float* rows, std::size_t count, std::size_t features, \
                                       float* out, std::size_t stride) {                                               \
        multiply_panel<Tile>(panel, rows, count, features, out, stride);                                               \
    }

#if NESTCODE_NEON
using PortableTile = Tile<Vector<16>::Floats, 6, 4>;
#else
using PortableTile = Tile<Vector<16>::Floats, 6, 2>;
#endif
NESTCODE_PANEL_KERNELS(portable, , PortableTile)
#if NESTCODE_X86
using TileAvx2 = Tile<Vector<32>::Floats, 6, 2>;
using TileAvx512 = Tile<Vector<64>::Floats, 12, 2>;
NESTCODE_PANEL_KERNELS(avx2, NESTCODE_AVX2, TileAvx2)
NESTCODE_PANEL_KERNELS(avx512, NESTCODE_AVX512, TileAvx512)
#endif
#undef NESTCODE_PANEL_KERNELS

inline Panel::Kernels panel_kernels(Simd simd) {
#if NESTCODE_X86
    if (simd == Simd::avx2) return {pack_avx2, unpack_avx2, multiply_avx2, project_many<multiply_avx2>};
    if (simd == Simd::avx512) return {pack_avx512, unpack_avx512, multiply_avx512, project_many<multiply_avx512>};
#endif
    static_cast<void>(simd);
    return {pack_portable, unpack_portable, multiply_portable, project_many<multiply_portable>};
}

inline Panel::Panel(std::size_t features, Simd simd)
    : features_(features), kernels_(panel_kernels(simd)), lines_(2 * std::max<std::size_t>(features, 1)) {}

}  // namespace nestcode
