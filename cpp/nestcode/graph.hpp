// A graph whose nodes hold the leading bits of their neighbors' codes.
//
// A node's record has everything that a visit needs in one sequential read: the ids of 32 neighbors, their bit planes
// as one fast-scan block, and two values each that correct the estimates. Estimating the distances of all neighbors
// takes one block of fast-scan and no access to the neighbors themselves (Gou, Gao, Xu, Long: "SymphonyQG: towards
// symphonious integration of quantization and graph for approximate nearest neighbor search", 2025).
//
//     record = ids (32 x uint32) | norms (32 x float16) | factors (32 x float16) | fast-scan block (columns x 32 bytes)
//
// A graph of fewer neighbors has narrower records: the same with 24 for 32. Kernels compute 32 lanes then, too, and
// read up to the padding of a record.
//
// An estimate is |y|^2 - 2 factor <q, y'>, where y' is what the bits of y decode to and factor = |y| / |y'| restores
// the length that quantization takes away. Norms |y|^2 are stored in units that suit float16. An item's estimate is the
// same in all records. The records after those of the nodes list the entry points of a search.
#pragma once

#include <span>

#include "checksum.hpp"
#include "fastscan.hpp"
#include "int8_projection.hpp"
#include "parallel.hpp"
#include "vector_distance.hpp"

namespace nestcode {

constexpr std::size_t kDegree = kBlockItems;  // neighbors of a node, at most

struct GraphRecord {
    const std::uint8_t* data;
    std::size_t degree = kDegree;

    const std::uint32_t* ids() const { return reinterpret_cast<const std::uint32_t*>(data); }
    const Half* norms() const { return reinterpret_cast<const Half*>(data + 4 * degree); }
    const Half* factors() const { return norms() + degree; }
    const std::uint8_t* block() const { return data + 8 * degree; }
    std::uint32_t mask() const { return UINT32_MAX >> (kDegree - degree); }  // a bit for each neighbor

    static std::size_t size(std::size_t columns, std::size_t degree = kDegree) {
        return (8 + columns) * degree + 2 * (kDegree - degree);  // lanes of the factors and the last column end there
    }
};

// The codes of all items as records hold them.
struct GraphCodes {
    Rows grouped;         // (items, columns): 4-bit groups, two a byte
    const Half* norms;    // (items)
    const Half* factors;  // (items)
};

// Writes the record of a node's neighbors. Ids are kept in bounds: they lie in a mapped file, which others may change.
inline void pack_record(const std::uint32_t* neighbors, std::size_t degree, const GraphCodes& codes,
                        std::uint8_t* out) {
    const auto last = static_cast<std::uint32_t>(codes.grouped.count - 1);
    auto* ids = reinterpret_cast<std::uint32_t*>(out);
    auto* norms = reinterpret_cast<Half*>(out + 4 * degree);
    auto* factors = norms + degree;
    std::uint8_t* block = out + 8 * degree;
    for (std::size_t i = 0; i < degree; ++i) {
        const std::uint32_t id = std::min(neighbors[i], last);
        ids[i] = id;
        norms[i] = codes.norms[id];
        factors[i] = codes.factors[id];
        for (std::size_t c = 0; c < codes.grouped.bytes; ++c) block[c * degree + i] = codes.grouped[id][c];
    }
    std::uint8_t* end = block + degree * codes.grouped.bytes;
    std::fill(end, out + GraphRecord::size(codes.grouped.bytes, degree), std::uint8_t{0});
}

// The edges of a graph: (nodes, degree) neighbors, side by side or in blocks, and the entry points, a multiple of the
// degree.
struct GraphEdges {
    const std::uint32_t* neighbors;
    std::size_t nodes;
    std::span<const std::uint32_t> entries;
    std::size_t stride = kDegree;        // of the neighbors: they may lie in the records themselves
    const NodeBlocks* blocks = nullptr;  // that have the neighbors, if there are any
    std::size_t degree = kDegree;

    std::size_t records() const { return nodes + entries.size() / degree; }
    const std::uint32_t* operator[](std::size_t record) const {
        if (record >= nodes) return entries.data() + (record - nodes) * degree;
        return blocks == nullptr ? neighbors + record * stride : blocks->neighbors(record);
    }
};

// The records of a graph: those of the nodes, then those of the entry points. A record is packed at its first visit, as
// packing all takes far longer than a search, or before, by `pack_all`; then the node's vector is verified, too.
// Threads may share them and never wait for each other: while one thread packs a record, others pack copies of their
// own. Without room nothing is kept: each visit packs the record.
class GraphRecords {
  public:
    // `data` is room for all records, aligned to 4 bytes, or null. Edges, codes and vectors, if there are any, must
    // outlive them.
    GraphRecords(const GraphEdges& edges, const GraphCodes& codes, std::uint8_t* data,
                 const VectorRows* vectors = nullptr)
        : edges_(edges),
          codes_(codes),
          vectors_(vectors),
          data_(data),
          size_(GraphRecord::size(codes.grouped.bytes, edges.degree)),
          claimed_(data == nullptr ? 0 : edges.records() / 64 + 1),
          packed_(claimed_.size()) {}
    GraphRecords(const GraphRecords&) = delete;
    GraphRecords& operator=(const GraphRecords&) = delete;

    bool are_kept() const { return data_ != nullptr; }
    const NodeBlocks* blocks() const { return edges_.blocks; }
    std::size_t nodes() const { return edges_.nodes; }
    std::size_t count() const { return edges_.records(); }
    std::size_t columns() const { return codes_.grouped.bytes; }
    std::size_t record_bytes() const { return size_; }

    bool is_packed(std::size_t i) const {
        return i / 64 < packed_.size() && (packed_[i / 64].load(std::memory_order_acquire) >> i % 64 & 1);
    }

    std::size_t count_packed() const {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < count(); ++i) sum += is_packed(i);
        return sum;
    }

    // Where a record is, or will be.
    GraphRecord operator[](std::size_t i) const { return {data_ + i * size_, edges_.degree}; }

    // Packs a record, unless another thread does: then it packs a copy. Returns what can be read.
    GraphRecord pack(std::size_t i, std::vector<std::uint8_t>& copy) const {
        if (are_kept() && (claim(i) || is_packed(i))) return (*this)[i];
        copy.resize(size_);
        write(i, copy.data());
        return {copy.data(), edges_.degree};
    }

    void pack_all(std::size_t threads) const {
        if (!are_kept()) return;
        parallel_for(count(), 256, threads, [this](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) claim(i);
        });
    }

  private:
    // Packs a record that no thread has begun to pack, and returns whether it did.
    bool claim(std::size_t i) const {
        const std::uint64_t bit = std::uint64_t{1} << i % 64;
        if (claimed_[i / 64].fetch_or(bit, std::memory_order_relaxed) & bit) return false;
        write(i, data_ + i * size_);
        packed_[i / 64].fetch_or(bit, std::memory_order_release);
        return true;
    }

    void write(std::size_t i, std::uint8_t* out) const {
        if (i < nodes() && vectors_ != nullptr) vectors_->touch(i);
        pack_record(edges_[i], edges_.degree, codes_, out);
    }

    const GraphEdges edges_;
    const GraphCodes codes_;
    const VectorRows* const vectors_;
    std::uint8_t* const data_;
    const std::size_t size_;
    mutable std::vector<std::atomic<std::uint64_t>> claimed_, packed_;  // bitmaps
};

// From the features of a query to its lookup tables: coefficients of an affine projection, then the tables of groups.
struct GraphProjection {
    const float* mean;  // (features)
    const Int8Directions* directions;
    const std::vector<FastScanGroup>* groups;
    float norm_unit;  // of the norms in records

    std::size_t features() const { return directions->rows.features; }
};

// A query as it walks through a graph.
struct GraphQuery {
    const float* features;  // L2-normalized for the cosine
    FastScanTables tables;
    float own;  // what estimates leave out: the squared norm around the mean, or the product with it
    float tie;  // within which estimates may differ by rounding: deviations of a sum of rounded table entries

    // The distance that an estimate stands for: the squared L2 distance, or the negative inner product.
    float distance(float estimate, Metric metric) const {
        return metric == Metric::inner ? estimate / 2 - own : std::max(estimate + own, 0.0f);
    }
};

// Queries prepared a batch at a time, so that the directions are read once for all of them.
class GraphQueries {
  public:
    static constexpr std::size_t kBatch = 32;

    GraphQueries(const GraphProjection& projection, std::size_t count, Metric metric, Simd simd,
                 bool normalized = false)
        : projection_(projection),
          metric_(metric),
          normalized_(normalized),
          sums_(row_sums_kernel<float, false>(simd)),
          products_(int8_kernel(simd)),
          tables_(table_kernels(simd)),
          batch_(std::min(count, kBatch)),
          features_(batch_.size() * projection.features()),
          centered_(projection.features()),
          quantized_(batch_.size(), projection.features()),
          coefficients_(batch_.size() * projection.directions->count) {}

    // Prepares the first queries of (count, features), as many as a batch holds.
    void prepare(const float* queries, std::size_t count) {
        count = std::min(count, batch_.size());
        const std::size_t width = projection_.features();
        for (std::size_t q = 0; q < count; ++q) {
            float *features = &features_[q * width], *centered = centered_.data();
            std::copy_n(queries + q * width, width, features);
            if (metric_ == Metric::cosine && !normalized_) {
                const float norm = std::sqrt(sums_(features, features, width).norm);
                if (norm > 0)
                    for (std::size_t f = 0; f < width; ++f) features[f] /= norm;
            }
            std::copy_n(features, width, centered);
            if (metric_ != Metric::inner)
                for (std::size_t f = 0; f < width; ++f) centered[f] -= projection_.mean[f];
            batch_[q].features = features;
            batch_[q].own = metric_ == Metric::inner ? sums_(features, projection_.mean, width).product
                                                     : sums_(centered, centered, width).norm;
            quantized_.set(q, centered);
        }
        projection_.directions->project(quantized_, count, products_, coefficients_.data());
        // Without biases nothing but the entries bounds the scale. None is clipped: norms are added later, so the
        // nearest items do not have the least products.
        for (std::size_t q = 0; q < count; ++q) {
            fill_tables(*projection_.groups, coefficients_.data() + q * projection_.directions->count, 0, Metric::inner,
                        tables_, batch_[q].tables, false);
            batch_[q].tie = std::sqrt(static_cast<float>(projection_.groups->size())) / (2 * batch_[q].tables.scale);
        }
    }

    const GraphQuery& operator[](std::size_t i) const { return batch_[i]; }

  private:
    const GraphProjection& projection_;
    const Metric metric_;
    const bool normalized_;  // queries are
    const RowSumsKernel<float> sums_;
    const Int8Kernel products_;
    const TableKernels tables_;
    std::vector<GraphQuery> batch_;
    std::vector<float> features_, centered_;
    Int8Rows quantized_;
    std::vector<float> coefficients_;
};

// Cache lines that a walk reads next: those of a vector, then those of a record. A kernel requests one at each step of
// its own work, since a core waits for few lines at a time, and its own reads wait behind them.
struct LinesAhead {
    static constexpr std::size_t kLine = 64;
    const std::uint8_t *vector = nullptr, *record = nullptr;
    std::size_t vector_lines = 0, lines = 0;

    [[gnu::always_inline]] void request(std::size_t line) const {
        const bool is_first = line < vector_lines;
        __builtin_prefetch(is_first ? vector + kLine * line : record + kLine * (line - vector_lines), 0, 2);
    }
    [[gnu::always_inline]] void request_from(std::size_t line) const {
        for (; line < lines; ++line) request(line);
    }
};

// Writes the estimated distances of the neighbors in a record, up to a constant of the query, and returns a mask of
// those that are not above the limit; NaN is not. Requests the lines ahead.
using GraphKernel = std::uint32_t (*)(GraphRecord record, std::size_t columns, const FastScanTables& tables,
                                      float norm_unit, float limit, const LinesAhead& ahead, float* out);

template <class Vectors>
void sum_neighbors(GraphRecord record, std::size_t columns, const FastScanTables& tables, std::int16_t* out) {
    static constexpr std::int16_t no_biases[kDegree] = {};
    const std::uint8_t* entries = tables.entries.data();
    typename Vectors::Sums sums[1];
    Vectors::template look_up<1>(record.block(), columns, &entries, sums, record.degree);
    Vectors::finish(sums[0], no_biases, 0, INT16_MIN, out);
}

inline void sum_neighbors_portable(GraphRecord record, std::size_t columns, const FastScanTables& tables,
                                   std::int16_t* out) {
    for (std::size_t i = 0; i < kDegree; ++i)
        out[i] = i < record.degree ? saturate(sum_entries(record.block() + i, columns, tables, record.degree))
                                   : std::int16_t{0};
}

template <auto scan, auto expand>
std::uint32_t estimate_neighbors(GraphRecord record, std::size_t columns, const FastScanTables& tables, float norm_unit,
                                 float limit, const LinesAhead& ahead, float* out) {
    std::int16_t sums[kDegree];
    float norms[kDegree] = {}, factors[kDegree] = {};
    ahead.request_from(0);
    scan(record, columns, tables, sums);
    expand(record.norms(), norms, record.degree);
    expand(record.factors(), factors, record.degree);
    const float step = 1 / tables.scale;
    for (std::size_t i = 0; i < kDegree; ++i)
        out[i] = norm_unit * norms[i] + factors[i] * (tables.offset + static_cast<float>(sums[i]) * step);
    std::uint32_t mask = 0;
#if NESTCODE_X86
    for (int i = 0; i < 32; i += 4)
        mask |= static_cast<std::uint32_t>(_mm_movemask_ps(_mm_cmpngt_ps(_mm_loadu_ps(out + i), _mm_set1_ps(limit))))
                << i;
#else
    for (int i = 0; i < 32; ++i) mask |= static_cast<std::uint32_t>(!(out[i] > limit)) << i;
#endif
    return mask & record.mask();
}

#if NESTCODE_X86
NESTCODE_AVX512 inline std::uint32_t estimate_neighbors_avx512(GraphRecord record, std::size_t columns,
                                                               const FastScanTables& tables, float norm_unit,
                                                               float limit, const LinesAhead& ahead, float* out) {
    ahead.request_from(columns / 2);
    const __m512i sums = fastscan_sums_avx512(record.block(), columns, tables.entries.data(), record.degree,
                                              [&](std::size_t step) NESTCODE_AVX512 {
                                                  if (step < ahead.lines) ahead.request(step);
                                              });
    const __m512 step = _mm512_set1_ps(1 / tables.scale), offset = _mm512_set1_ps(tables.offset);
    const __m256i halves[2] = {_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1)};
    std::uint32_t mask = 0;
    for (std::size_t i = 0; i < 2; ++i) {
        const auto load = [&](const Half* from) NESTCODE_AVX512 {  // lanes beyond the degree are those of what follows
            return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 16 * i)));
        };
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(halves[i]));
        const __m512 product = _mm512_mul_ps(load(record.factors()), _mm512_fmadd_ps(sum, step, offset));
        const __m512 estimates = _mm512_fmadd_ps(_mm512_set1_ps(norm_unit), load(record.norms()), product);
        _mm512_storeu_ps(out + 16 * i, estimates);
        const __mmask16 near = _mm512_cmp_ps_mask(estimates, _mm512_set1_ps(limit), _CMP_NGT_UQ);
        mask |= std::uint32_t{near} << 16 * i;
    }
    return mask & record.mask();
}
#endif

inline GraphKernel graph_kernel(Simd simd) {
    switch (simd) {
#if NESTCODE_NEON
        case Simd::neon: return estimate_neighbors<sum_neighbors<NeonVectors>, expand_half_neon>;
#endif
#if NESTCODE_X86
        case Simd::avx2: return estimate_neighbors<sum_neighbors<Avx2Vectors>, expand_half_f16c>;
        case Simd::avx512: return estimate_neighbors_avx512;
#endif
        default: return estimate_neighbors<sum_neighbors_portable, expand_half_portable>;
    }
}

struct GraphEstimator {
    std::size_t columns;
    float norm_unit;  // 0 for inner products
    GraphKernel kernel;

    GraphEstimator(const GraphProjection& projection, Metric metric, Simd simd)
        : columns((projection.groups->size() + 1) / 2),
          norm_unit(metric == Metric::inner ? 0 : projection.norm_unit),
          kernel(graph_kernel(simd)) {}

    std::uint32_t operator()(GraphRecord record, const FastScanTables& tables, float limit, const LinesAhead& ahead,
                             float* out) const {
        return kernel(record, columns, tables, norm_unit, limit, ahead, out);
    }
};

}  // namespace nestcode
