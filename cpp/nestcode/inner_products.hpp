// Inner products of all pairs of two sets of rows.
//
// Rows of one set are packed in panels of 32 side by side. A tile of rows of the other set is multiplied with as many
// columns of a panel as fill two vector registers (four of ARM): their sums hide the latency of additions, and a line
// of the panel is read once for all of them. Only one set is packed, so small batches take less time than by BLAS.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd.hpp"
#include "vector_distance.hpp"
#include "vectors.hpp"

namespace nestcode {

constexpr std::size_t kPanelRows = 32;

// A tile as large as the registers hold: `kRows` rows and `kVectors` vectors of columns.
template <std::size_t register_bytes>
struct Tile {
    using Floats = typename Vector<register_bytes>::Floats;
    static constexpr std::size_t kLanes = register_bytes / sizeof(float), kRows = register_bytes == 64 ? 12 : 6;
#if NESTCODE_NEON
    static constexpr std::size_t kVectors = 4;
#else
    static constexpr std::size_t kVectors = 2;
#endif
};

template <class Tile, std::size_t count>
NESTCODE_INLINE void multiply_rows(const float* panel, const float* rows, std::size_t features, float* out,
                                   std::size_t stride) {
    using Floats = typename Tile::Floats;
    Floats sums[count][Tile::kVectors] = {};
    for (std::size_t f = 0; f < features; ++f) {
        Floats line[Tile::kVectors];
        for (std::size_t j = 0; j < Tile::kVectors; ++j)
            line[j] = load_vector<Floats>(panel + f * kPanelRows + j * Tile::kLanes);
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < Tile::kVectors; ++j) sums[i][j] += rows[i * features + f] * line[j];
    }
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < Tile::kVectors; ++j) store_vector(sums[i][j], out + i * stride + j * Tile::kLanes);
}

struct MultiplyPanel {
    template <std::size_t register_bytes>
    NESTCODE_INLINE static void run(const float* panel, const float* rows, std::size_t count, std::size_t features,
                                    float* out, std::size_t stride) {
        using Tile = nestcode::Tile<register_bytes>;
        constexpr std::size_t columns = Tile::kVectors * Tile::kLanes, few = Tile::kRows / 3;
        for (std::size_t first = 0; first < kPanelRows; first += columns, panel += columns, out += columns) {
            std::size_t i = 0;
            for (; i + Tile::kRows <= count; i += Tile::kRows)
                multiply_rows<Tile, Tile::kRows>(panel, rows + i * features, features, out + i * stride, stride);
            for (; i + few <= count; i += few)
                multiply_rows<Tile, few>(panel, rows + i * features, features, out + i * stride, stride);
            for (; i < count; ++i)
                multiply_rows<Tile, 1>(panel, rows + i * features, features, out + i * stride, stride);
        }
    }
};

struct PackPanel {
    template <std::size_t register_bytes>
    NESTCODE_INLINE static void run(const float* const* rows, std::size_t features, float* panel) {
        using Floats = typename Vector<register_bytes>::Floats;
        constexpr std::size_t lanes = register_bytes / sizeof(float);
        const std::size_t whole = features / lanes * lanes;
        for (std::size_t first = 0; first < kPanelRows; first += lanes) {
            for (std::size_t f = 0; f < whole; f += lanes) {
                Floats square[lanes];
                for (std::size_t i = 0; i < lanes; ++i) square[i] = load_vector<Floats>(rows[first + i] + f);
                transpose(square);
                for (std::size_t i = 0; i < lanes; ++i) store_vector(square[i], panel + (f + i) * kPanelRows + first);
            }
            for (std::size_t i = first; i < first + lanes; ++i)
                for (std::size_t f = whole; f < features; ++f) panel[f * kPanelRows + i] = rows[i][f];
        }
    }
};

struct UnpackPanel {
    template <std::size_t register_bytes>
    NESTCODE_INLINE static void run(const float* panel, std::size_t features, std::size_t count, float* rows) {
        using Floats = typename Vector<register_bytes>::Floats;
        constexpr std::size_t lanes = register_bytes / sizeof(float);
        const std::size_t whole = features / lanes * lanes;
        for (std::size_t first = 0; first < count; first += lanes) {
            const std::size_t last = std::min(first + lanes, count);
            for (std::size_t f = 0; f < whole; f += lanes) {
                Floats square[lanes];
                for (std::size_t i = 0; i < lanes; ++i)
                    square[i] = load_vector<Floats>(panel + (f + i) * kPanelRows + first);
                transpose(square);
                for (std::size_t i = first; i < last; ++i) store_vector(square[i - first], rows + i * features + f);
            }
            for (std::size_t i = first; i < last; ++i)
                for (std::size_t f = whole; f < features; ++f) rows[i * features + f] = panel[f * kPanelRows + i];
        }
    }
};

// The inner products of many vectors with the directions of a projection, which are panels.
struct ProjectMany {
    template <std::size_t register_bytes>
    NESTCODE_INLINE static void run(const ProjectionBlocks& directions, const float* vectors, std::size_t many,
                                    float* out) {
        static_assert(ProjectionBlocks::kWidth == kPanelRows);
        for (std::size_t b = 0; b < directions.blocks; ++b)
            MultiplyPanel::run<register_bytes>(directions.block(b), vectors, many, directions.features,
                                               out + b * kPanelRows, directions.count());
    }
};

class Panel {
  public:
    static constexpr std::size_t kRows = kPanelRows;

    Panel(std::size_t features, Simd simd)
        : features_(features),
          pack_(Compiled<PackPanel>::of(simd)),
          unpack_(Compiled<UnpackPanel>::of(simd)),
          multiply_(Compiled<MultiplyPanel>::of(simd)),
          lines_(2 * std::max<std::size_t>(features, 1)) {}

    // The values of a feature, (32), which those of the next follow.
    float* line(std::size_t feature) { return lines_[2 * feature].values; }

    // Packs 32 rows.
    void pack(const float* const* rows) { pack_(rows, features_, line(0)); }

    // Writes the first `count` rows, (count, features).
    void unpack(std::size_t count, float* rows) const { unpack_(lines_.front().values, features_, count, rows); }

    // Writes the inner products of `count` rows, (count, features), with the 32: those of row i at out + i * stride.
    void multiply(const float* rows, std::size_t count, float* out, std::size_t stride) const {
        multiply_(lines_.front().values, rows, count, features_, out, stride);
    }

  private:
    struct alignas(64) Line {
        float values[16];
    };

    std::size_t features_;
    Compiled<PackPanel>::Pointer pack_;
    Compiled<UnpackPanel>::Pointer unpack_;
    Compiled<MultiplyPanel>::Pointer multiply_;
    std::vector<Line> lines_;  // (features, 2)
};

}  // namespace nestcode
