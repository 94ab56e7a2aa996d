// Vectors as an index stores them: rows of float32, of float16, or of int8 with one scale per row.
//
// Kernels compare float32. Rows of the other types are expanded into a buffer that stays in the first-level cache, by
// conversions that are exact for float16 and one multiplication for int8, so a distance does not depend on the kernel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "checksum.hpp"
#include "node_blocks.hpp"
#include "parallel.hpp"
#include "simd.hpp"

namespace nestcode {

// A vector that a search compares has NaN or infinities.
struct NotFinite : std::invalid_argument {
    NotFinite()
        : std::invalid_argument(
              "data must be finite and within float32, but some of it is not: drop or impute rows with NaN or inf "
              "first, "
              "as in X[np.isfinite(X).all(axis=1)]") {}
};

enum class VectorType { float32, float16, int8, float64 };  // the last of vectors that a caller gives

inline std::size_t bytes_of(VectorType type) {
    switch (type) {
        case VectorType::float64: return 8;
        case VectorType::float32: return 4;
        case VectorType::float16: return 2;
        default: return 1;
    }
}

inline float half_to_float(std::uint16_t half) {
    // Shifted into place, the exponent lacks the difference of the biases: a multiplication adds it, subnormals too.
    const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, rest = std::uint32_t{half & 0x7fffu} << 13;
    if ((half & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | rest | 0x7f800000u);  // infinite or NaN
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) * 0x1p112f));
}

// Writes `count` float16 as float32.
using HalfExpander = void (*)(const std::uint16_t* from, float* to, std::size_t count);

inline void expand_half_portable(const std::uint16_t* from, float* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = half_to_float(from[i]);
}

#if NESTCODE_NEON
inline void expand_half_neon(const std::uint16_t* from, float* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const float16x8_t eight = vreinterpretq_f16_u16(vld1q_u16(from + i));
        vst1q_f32(to + i, vcvt_f32_f16(vget_low_f16(eight)));
        vst1q_f32(to + i + 4, vcvt_high_f32_f16(eight));
    }
    expand_half_portable(from + i, to + i, count - i);
}
#endif

#if NESTCODE_X86
NESTCODE_TARGET("avx,f16c")
inline void expand_half_f16c(const std::uint16_t* from, float* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    expand_half_portable(from + i, to + i, count - i);
}
#endif

inline HalfExpander half_expander(Simd simd) {
#if NESTCODE_NEON
    if (simd == Simd::neon) return expand_half_neon;
#endif
#if NESTCODE_X86
    if (simd != Simd::portable) return expand_half_f16c;
#endif
    static_cast<void>(simd);
    return expand_half_portable;
}

[[gnu::always_inline]] inline void expand_int8_portable(const std::int8_t* from, float scale, float* to,
                                                        std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = scale * static_cast<float>(from[i]);
}

#if NESTCODE_X86
NESTCODE_AVX2 inline void expand_int8_avx2(const std::int8_t* from, float scale, float* to, std::size_t count) {
    expand_int8_portable(from, scale, to, count);
}
#endif

// Writes `count` int8 times a scale: one rounding, whatever the instructions.
inline void expand_int8(const std::int8_t* from, float scale, float* to, std::size_t count) {
#if NESTCODE_X86
    static const bool avx2 = choose_simd("") != Simd::portable;  // a choice per row would cost time
    if (avx2) return expand_int8_avx2(from, scale, to, count);
#endif
    expand_int8_portable(from, scale, to, count);
}

// The vectors of one segment, by position.
struct VectorRows {
    VectorType type;
    const std::uint8_t* data;
    const float* scales;  // of int8; null for 1
    std::size_t count, features;
    ChecksumGuard *guard = nullptr, *scales_guard = nullptr;
    const NodeBlocks* blocks = nullptr;  // where rows lie in the nodes of a graph, not side by side

    std::size_t row_bytes() const { return features * bytes_of(type); }
    const std::uint8_t* at(std::size_t i) const {
        return blocks == nullptr ? data + i * row_bytes() : blocks->vector(i);
    }

    // Verifies the checksums of row i and of its scale.
    void touch(std::size_t i) const {
        if (guard != nullptr) guard->touch(at(i), row_bytes());
        if (scales_guard != nullptr) scales_guard->touch(scales + i, sizeof(float));
    }

    // Row i as float32: where it lies, or expanded into the buffer.
    const float* row(std::size_t i, HalfExpander expand_half, float* buffer) const {
        const std::uint8_t* from = at(i);
        touch(i);
        switch (type) {
            case VectorType::float32: return reinterpret_cast<const float*>(from);
            case VectorType::float16:
                expand_half(reinterpret_cast<const std::uint16_t*>(from), buffer, features);
                return buffer;
            case VectorType::float64:
                std::transform(reinterpret_cast<const double*>(from), reinterpret_cast<const double*>(from) + features,
                               buffer, [](double value) { return static_cast<float>(value); });
                return buffer;
            default:
                expand_int8(reinterpret_cast<const std::int8_t*>(from), scales != nullptr ? scales[i] : 1, buffer,
                            features);
                return buffer;
        }
    }
};

// The vectors of several segments, by positions that count through all of them.
struct VectorRuns {
    std::vector<VectorRows> runs;
    std::vector<std::size_t> ends;  // of each run's positions
    std::size_t features = 0;

    std::size_t count() const { return ends.empty() ? 0 : ends.back(); }

    void add(const VectorRows& run) {
        ends.push_back(count() + run.count);
        runs.push_back(run);
        features = run.features;
    }

    // Whether a checksum failed in what was read so far.
    bool damaged() const {
        for (const VectorRows& run : runs)
            for (const ChecksumGuard* guard : {run.guard, run.scales_guard})
                if (guard != nullptr && guard->first_damaged() >= 0) return true;
        return false;
    }

    void touch(std::size_t position) const {
        const auto [run, own] = find(position);
        run->touch(own);
    }

    // The run of a position, and the position in it.
    std::pair<const VectorRows*, std::size_t> find(std::size_t position) const {
        if (runs.size() == 1) return {runs.data(), position};
        const auto run = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), position) - ends.begin());
        return {&runs[run], position - (ends[run] - runs[run].count)};
    }
};

// Reads the rows of runs on one thread, which owns the buffer.
class VectorReader {
  public:
    VectorReader(const VectorRuns& runs, HalfExpander expand_half)
        : runs_(&runs), expand_half_(expand_half), buffer_(runs.features) {}

    std::size_t features() const { return runs_->features; }

    const float* row(std::size_t position, float* buffer) const {
        const auto [run, own] = runs_->find(position);
        return run->row(own, expand_half_, buffer);
    }
    const float* row(std::size_t position) { return row(position, buffer_.data()); }

    // The row where it lies, or null where it is not float64.
    const double* row_in_double(std::size_t position) const {
        const auto [run, own] = runs_->find(position);
        return run->type == VectorType::float64 ? reinterpret_cast<const double*>(run->at(own)) : nullptr;
    }

    void prefetch(std::size_t position) const {
        const auto [run, own] = runs_->find(position);
        const std::uint8_t* from = run->at(own);
        for (std::size_t byte = 0; byte < run->row_bytes(); byte += 64) __builtin_prefetch(from + byte);
    }

  private:
    const VectorRuns* runs_;
    HalfExpander expand_half_;
    std::vector<float> buffer_;
};

// Writes the vectors at the positions `items` as float32, (many, features).
inline void expand_vectors(const VectorRuns& vectors, HalfExpander expand_half, const std::int64_t* items,
                           std::size_t many, float* out, std::size_t threads) {
    const std::size_t features = vectors.features;
    parallel_for(many, 1 + (1 << 16) / (features + 1), threads, [=, &vectors](std::size_t begin, std::size_t end) {
        const VectorReader reader(vectors, expand_half);
        for (std::size_t i = begin; i < end; ++i) {
            const float* row = reader.row(static_cast<std::size_t>(items[i]), out + i * features);
            if (row != out + i * features) std::copy_n(row, features, out + i * features);
        }
    });
}

}  // namespace nestcode
