// Embedded bit-plane coding of an image's transform coefficients, with context mixing.
//
// Coefficients are integers, (channels, rows, columns, 16, 16): square blocks of a lapped DCT, low frequencies first.
// As in EBCOT (Taubman, 2000; JPEG 2000) magnitudes are coded plane by plane from the highest bit to the lowest, each
// plane in three passes: the significance pass codes insignificant coefficients that have significant neighbors, the
// refinement pass the next bit of significant ones, and the cleanup pass the rest. So bits come in order of the
// distortion that they remove, and the stream can be truncated at any byte. A block's coefficients are grouped into
// subbands of similar frequency, and one flag codes that a subband of a block is still all zeros. The DC coefficients
// of 4 x 4 blocks, a macroblock, have been transformed once more. A context model predicts each bit from neighboring
// frequencies, neighboring blocks and the other channels. One traversal serves encoder and decoder, so that their
// models cannot diverge.
#pragma once

#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "image_models.hpp"
#include "range_coder.hpp"
#include "vectors.hpp"

namespace nestcode {

inline constexpr int kPasses = 3;  // significance, refinement, cleanup

struct ImageShape {
    std::vector<std::size_t> kinds;  // of the channels: 0 luma, 1 and 2 chroma, 3 alpha
    std::size_t rows, columns;       // of blocks

    std::size_t blocks() const { return rows * columns; }
    std::size_t count() const { return kinds.size() * blocks() * kBlock * kBlock; }
};

// `side` x `side` frequencies of a block that are coded together, as the subbands of a wavelet transform are.
struct Subband {
    int level, orientation, row, column, side;  // orientation: 0 DC, 1 horizontal, 2 vertical, 3 diagonal

    int log_side() const { return level ? level - 1 : 0; }
};
inline constexpr auto kSubbands = [] {
    std::array<Subband, 1 + 3 * (kLevels - 1)> subbands{};
    subbands[0] = {0, 0, 0, 0, 1};
    std::size_t next = 1;
    for (int level = 1, side = 1; level < kLevels; ++level, side *= 2)
        for (int way = 1; way < 4; ++way) subbands[next++] = {level, way, way & 2 ? side : 0, way & 1 ? side : 0, side};
    return subbands;
}();

// Estimates a coefficient, in steps, from a decoded value of BitPlaneTraversal: inside its interval, below the middle,
// since small magnitudes are more frequent.
inline float midpoint(std::int32_t known) {
    const std::int32_t doubled = std::abs(known), interval = doubled & -doubled, low = (doubled - interval) >> 1;
    const float value = static_cast<float>(interval) * (low == interval ? 0.4F : 0.48F) + static_cast<float>(low);
    return known < 0 ? -value : value;
}

// Scales magnitudes to the next plane, 16 at once.
inline void scale_magnitudes(std::uint8_t* first, std::size_t count) {
    using Bytes = std::uint8_t __attribute__((vector_size(16)));
    constexpr std::uint8_t most = kLargeMagnitude;
    for (std::uint8_t* end = first + count; first != end; first += sizeof(Bytes)) {
        Bytes own;
        std::memcpy(&own, first, sizeof own);
        own = own + own - (own != 0);  // true is -1
        own = own < most ? own : Bytes{} + most;
        std::memcpy(first, &own, sizeof own);
    }
}

// The traversal of bit planes. `Io` codes bits: io.bit(probability, bit) encodes `bit` and returns it, or decodes a bit
// and returns it, or -1 if it has not arrived.
template <class Io, class Model>
class BitPlaneTraversal {
  public:
    // An encoder passes `coefficients`, a decoder `decoded`, both (channels, rows, columns, 16, 16); the other is null,
    // or in an encoder what a decoder knows.
    // A decoded value is (2 m + 1) 2^p, with the sign, for a magnitude in [m 2^p, (m + 1) 2^p): its lowest set bit
    // tells the precision. It is 0 while a coefficient is insignificant.
    BitPlaneTraversal(ImageShape shape, const ImageStart& start, Model model, const std::int16_t* coefficients,
                      std::int32_t* decoded)
        : shape_(std::move(shape)),
          channels_(start.channels),
          model_(std::move(model)),
          coefficients_(coefficients),
          decoded_(decoded),
          across_(shape_.columns + 1),
          magnitudes_(padded_blocks() * kArea + kTail),
          maps_(padded_blocks()),
          coded_(padded_blocks()),
          dc_(shape_.kinds.size() * shape_.blocks()),
          dc_magnitudes_(shape_.kinds.size() * macroblocks(shape_.rows) * macroblocks(shape_.columns) * kDcArea),
          subband_significant_(shape_.kinds.size() * kSubbands.size() * (shape_.rows + 2) * (shape_.columns + 2)),
          subband_counts_(subband_significant_.size()),
          flag_contexts_(3 * shape_.columns),
          plane_(start.planes - 1) {
        if (Io::kEncodes) count_subband_planes();
        if (Io::kEncodes && decoded_) add_errors();
    }

    // Codes until a bit has not arrived, or until `stop()` is true before a subband of a block; it can be called again
    // to continue. Calls `end_pass()` after every pass.
    template <class Stop, class EndPass>
    void run(Io& io, Stop stop, EndPass end_pass) {
        for (; plane_ >= 0; begin_plane(plane_ - 1))
            for (; pass_ < kPasses; ++pass_, subband_ = 0) {
                for (; subband_ < kSubbands.size(); ++subband_, channel_ = 0)
                    for (; channel_ < shape_.kinds.size(); ++channel_, row_ = 0) {
                        if (plane_ >= channels_[channel_].planes[subband_]) continue;  // all zeros
                        for (; row_ < shape_.rows; ++row_, column_ = 0) {
                            const BlockRow row = current_row();
                            bool all = false;
                            if constexpr (Model::kAhead)
                                all = io.ahead([&](auto& coder) { return code_arrived_row(coder, row, stop); });
                            if (!all && !code_row(io, row, stop)) return;
                        }
                    }
                end_pass();
            }
    }

    Model& model() { return model_; }
    // In an encoder that writes `decoded`: the squared error of what a decoder knows of the quantized coefficients,
    // each channel's times the square of its weight.
    double error() const { return error_; }
    // The lowest plane that has been coded completely.
    int plane() const { return plane_ + 1; }
    // How many passes have been coded, those of planes above the highest included; of the current one the fraction of
    // its coefficients.
    float passes() const {
        const auto whole = static_cast<float>(kPasses * (kMaxPlanes - 1 - plane_) + pass_);
        if (plane_ < 0 || subband_ == kSubbands.size()) return whole;
        int area = 0;  // frequencies of a block
        for (std::size_t k = 0; k < subband_; ++k) area += kSubbands[k].side * kSubbands[k].side;
        const auto rows = static_cast<float>(channel_ * shape_.rows + row_);
        const auto all = static_cast<float>(shape_.kinds.size() * shape_.rows);
        const int side = kSubbands[subband_].side;
        return whole + (static_cast<float>(area) + static_cast<float>(side * side) * rows / all) / (kBlock * kBlock);
    }

  private:
    // The margin behind a row or a block is the one before the next.
    static constexpr std::ptrdiff_t kMargin = 2, kStride = kBlock + kMargin;
    static constexpr std::size_t kArea = kStride * kStride, kTail = kMargin * kStride;
    // DC coefficients of a macroblock with a margin, and so many more that 16 are scaled at once.
    static constexpr std::ptrdiff_t kDcStride = kMacroblock + 2, kDcArea = (kDcStride * kDcStride + 15) / 16 * 16;
    static constexpr std::size_t kMostBits = 1 + 2 * 64;  // of a subband of a block: its flag, significance and signs
    enum Pass { kSignificancePass, kRefinementPass, kCleanupPass };
    // What is coded: constants in all functions, as these are inlined.
    struct Step {
        Pass pass;
        bool dc;
    };
    // A coefficient's place in the block, by row.
    struct Place {
        int at;

        int row() const { return at / kBlock; }
        std::size_t index() const { return static_cast<std::size_t>(at); }
        std::ptrdiff_t with_margin() const { return at + row() * kMargin + kMargin * (kStride + 1); }
        std::uint16_t bit() const { return static_cast<std::uint16_t>(1 << at % kBlock); }
    };
    // Rows of a block as bits, column 0 the lowest; 8 of them, by the compiler's vector extension.
    using Rows = std::uint16_t __attribute__((vector_size(16)));
    static Rows load(const std::uint16_t* from) {
        Rows rows;
        std::memcpy(&rows, from, sizeof rows);
        return rows;
    }
    // Four rows, as they are in memory.
    using Corner = std::uint64_t;
    // Which coefficients of a block are significant: small, so that those of many blocks are in the cache.
    struct SignificanceMap {
        std::array<std::uint16_t, kBlock + 2 * kMargin> significant{};  // with a margin of zeros

        // The rows from row i on.
        Rows rows(int i) const { return load(significant.data() + i + kMargin); }
        // Where one of the four neighbors is significant.
        Rows cross(int i) const { return rows(i) << 1 | rows(i) >> 1 | rows(i - 1) | rows(i + 1); }
        // Where one of the neighbors within the block that make up a context is significant.
        Rows around(int i) const {
            const Rows above = rows(i - 1);
            return cross(i) | above << 1 | above >> 1 | rows(i + 1) << 1 | rows(i) << 2 | rows(i - 2);
        }
        // The first four rows.
        Corner corner() const {
            Corner rows;
            std::memcpy(&rows, significant.data() + kMargin, sizeof rows);
            return rows;
        }
    };
    using CodedMap = std::array<std::uint16_t, kBlock>;
    // Where the single coefficient of each of the first four subbands is, with the four adjacent ones, and its
    // neighbors within the block that make up a context.
    struct CornerMasks {
        Corner own, cross, around;
    };
    static constexpr auto kCornerMasks = [] {
        std::array<CornerMasks, 4> masks{};
        const auto places = [](const Subband& at, std::initializer_list<std::pair<int, int>> offsets) {
            std::array<std::uint16_t, 4> rows{};
            for (const auto& [down, right] : offsets)
                if (const int row = at.row + down, column = at.column + right; row >= 0 && column >= 0)
                    rows[static_cast<std::size_t>(row)] |= static_cast<std::uint16_t>(1 << column);
            return std::bit_cast<Corner>(rows);
        };
        for (std::size_t k = 0; k < masks.size(); ++k) {
            masks[k].own = places(kSubbands[k], {{0, 0}});
            masks[k].cross = places(kSubbands[k], {{0, 0}, {0, -1}, {0, 1}, {-1, 0}, {1, 0}});
            masks[k].around =
                places(kSubbands[k], {{0, -2}, {0, -1}, {0, 1}, {-2, 0}, {-1, -1}, {-1, 0}, {-1, 1}, {1, -1}, {1, 0}});
        }
        return masks;
    }();
    // The coefficients of a subband as bits, 8 to a row.
    using Bits = std::uint64_t;
    static constexpr int kBits = 64, kRowBits = 8;
    static Bits in_subband(Rows rows, const Subband& subband) {
        using Bytes = std::uint8_t __attribute__((vector_size(8)));
        const Bytes bytes = __builtin_convertvector(rows >> static_cast<std::uint16_t>(subband.column), Bytes);
        Bits bits;
        std::memcpy(&bits, &bytes, sizeof bits);
        if constexpr (std::endian::native == std::endian::big) bits = __builtin_bswap64(bits);
        return bits & kWhole[static_cast<std::size_t>(subband.log_side())];
    }
    // All coefficients, by the logarithm of the subband's side.
    static constexpr std::array<Bits, 4> kWhole = {0x1, 0x0303, 0x0F0F0F0F, ~Bits{0}};
    // Those behind a coefficient that have it as a neighbor within the block.
    static constexpr auto kNeighborsBehind = [] {
        std::array<Bits, kBits> behind{};
        for (int i = 0; i < kBits; ++i)
            for (const auto& [down, right] : {std::pair{0, 1}, {0, 2}, {1, -1}, {1, 0}, {1, 1}, {2, 0}}) {
                const int row = i / kRowBits + down, column = i % kRowBits + right;
                if (row < kRowBits && column >= 0 && column < kRowBits)
                    behind[static_cast<std::size_t>(i)] |= Bits{1} << (row * kRowBits + column);
            }
        return behind;
    }();
    // The current block: its index, and that in arrays of blocks with a margin.
    struct Block {
        std::size_t index, own;
    };
    static constexpr std::size_t kOutside = 0;  // a block of the margin, whose coefficients are never significant
    // The magnitudes at a place of blocks.
    struct Magnitudes {
        const std::uint8_t *own, *west, *north, *east, *south;
    };
    // What the blocks of a row have in common: the first one, how many blocks back the channels before are, and the
    // models of the current subband.
    struct BlockRow {
        Block first;
        std::size_t kind, luma, chroma;
        const std::uint8_t* dc;  // the first magnitude of DC coefficients
        typename Model::Row models;

        // Whether channels before predict this one: chroma follows luma, alpha is on its own.
        bool predicted() const { return kind == 1 || kind == 2; }
    };

    std::size_t block_index(std::size_t channel, std::size_t row, std::size_t column) const {
        return (channel * shape_.rows + row) * shape_.columns + column;
    }
    // The same in arrays of blocks with a margin: a row of blocks before each channel and behind the last one, and a
    // block before each row.
    std::size_t padded_index(std::size_t channel, std::size_t row, std::size_t column) const {
        return (channel * (shape_.rows + 1) + row + 1) * across_ + column + 1;
    }
    std::size_t padded_blocks() const { return (shape_.kinds.size() * (shape_.rows + 1) + 1) * across_; }
    // A block of the current channel, `down` and `right` of the current one.
    bool is_inside(std::ptrdiff_t down, std::ptrdiff_t right) const {
        return row_ + static_cast<std::size_t>(down) < shape_.rows &&
               column_ + static_cast<std::size_t>(right) < shape_.columns;
    }
    BlockRow current_row() {
        const std::size_t kind = shape_.kinds[channel_], area = (shape_.rows + 1) * across_;
        const Subband& subband = kSubbands[subband_];
        return {{block_index(channel_, row_, 0), padded_index(channel_, row_, 0)},
                kind,
                kind * area,
                area,
                dc_magnitude(0),
                model_.row(kind, static_cast<std::size_t>(subband.level), static_cast<std::size_t>(subband.orientation),
                           static_cast<std::size_t>(plane_))};
    }
    Block current_block(const BlockRow& row) const { return {row.first.index + column_, row.first.own + column_}; }
    // Those at a place of the current block and of adjacent ones.
    Magnitudes magnitudes_at(const Block& block, const Place& place) const {
        const std::uint8_t* own = magnitudes_.data() + block.own * kArea + place.with_margin();
        const std::size_t down = across_ * kArea;
        return {own, own - kArea, own - down, own + kArea, own + down};
    }
    // A block of the current channel at the same place in another macroblock, `down` and `right` of the current one.
    std::size_t neighbor(const Block& block, std::ptrdiff_t down, std::ptrdiff_t right) const {
        return is_inside(down, right)
                   ? block.own + static_cast<std::size_t>(down * static_cast<std::ptrdiff_t>(across_) + right)
                   : kOutside;
    }
    // The magnitudes of DC coefficients of the current block and of those in adjacent macroblocks.
    Magnitudes dc_magnitudes_at(const Block& block) const {
        const auto at = [&](std::size_t one) { return magnitudes_.data() + Place{0}.with_margin() + one * kArea; };
        return {at(block.own), at(neighbor(block, 0, -kMacroblock)), at(neighbor(block, -kMacroblock, 0)),
                at(neighbor(block, 0, kMacroblock)), at(neighbor(block, kMacroblock, 0))};
    }
    // Macroblocks along an axis, with a margin.
    static std::size_t macroblocks(std::size_t blocks) { return (blocks + kMacroblock - 1) / kMacroblock + 2; }
    // The magnitude of the DC coefficient of a block of the current row.
    std::uint8_t* dc_magnitude(std::size_t column) {
        const std::size_t row = channel_ * macroblocks(shape_.rows) + row_ / kMacroblock + 1;
        const std::size_t macroblock = row * macroblocks(shape_.columns) + column / kMacroblock + 1;
        return &dc_magnitudes_[macroblock * kDcArea + (row_ % kMacroblock + 1) * kDcStride + column % kMacroblock + 1];
    }
    std::size_t subband_index(std::size_t channel, std::size_t subband, std::size_t row, std::size_t column) const {
        return ((channel * kSubbands.size() + subband) * (shape_.rows + 2) + row) * (shape_.columns + 2) + column;
    }
    std::uint8_t& subband_significant(std::size_t channel, std::size_t subband, std::size_t row, std::size_t column) {
        return subband_significant_[subband_index(channel, subband, row, column)];
    }

    // Counts the bit planes of each subband of each block in an encoder, so that it knows when one becomes significant.
    void count_subband_planes() {
        subband_planes_.resize(subband_significant_.size());
        for (std::size_t channel = 0; channel < shape_.kinds.size(); ++channel)
            for (std::size_t row = 0; row < shape_.rows; ++row)
                for (std::size_t column = 0; column < shape_.columns; ++column) {
                    const std::int16_t* block = coefficients_ + block_index(channel, row, column) * kBlock * kBlock;
                    for (std::size_t k = 0; k < kSubbands.size(); ++k) {
                        const std::uint8_t* flag = &subband_significant(channel, k, row + 1, column + 1);
                        subband_planes_[static_cast<std::size_t>(flag - subband_significant_.data())] =
                            count_planes(block, kSubbands[k]);
                    }
                }
    }
    void add_errors() {
        for (std::size_t block = 0; block < dc_.size(); ++block)
            for (std::size_t i = 0; i < kBlock * kBlock; ++i) error_ += squared_error(block, i, 0);
    }
    // Of a decoded value, if the coefficient is in the middle of its quantizer's interval.
    double squared_error(std::size_t block, std::size_t index, std::int32_t value) const {
        const std::int32_t coefficient = coefficients_[block * kBlock * kBlock + index];
        const double middle = coefficient + 0.5 * ((coefficient > 0) - (coefficient < 0));
        return (middle - midpoint(value)) * (middle - midpoint(value)) * squared_weight(block);
    }
    double squared_weight(std::size_t block) const {
        const double weight = channels_[block / shape_.blocks()].weight / double{kUnweighted};
        return weight * weight;
    }
    static std::uint8_t count_planes(const std::int16_t* block, const Subband& subband) {
        unsigned bits = 0;  // that are set in any magnitude
        for (int i = subband.row; i < subband.row + subband.side; ++i)
            for (int j = subband.column; j < subband.column + subband.side; ++j)
                bits |= static_cast<unsigned>(std::abs(block[i * kBlock + j]));
        return static_cast<std::uint8_t>(std::bit_width(bits));
    }

    // Scales magnitudes to the next plane: what is known of one is now in the middle of twice the interval.
    void begin_plane(int plane) {
        plane_ = plane;
        pass_ = 0;
        std::fill(coded_.begin(), coded_.end(), CodedMap{});
        scale_magnitudes(dc_magnitudes_.data(), dc_magnitudes_.size());
        constexpr int half = kBlock / 2;
        for (std::size_t block = 0; block < maps_.size(); ++block)
            for (int row : {0, half})
                if (any_bit(maps_[block].rows(row)))
                    scale_magnitudes(magnitudes_.data() + block * kArea + (row + kMargin) * kStride, half * kStride);
    }

    // Codes the current subband of a row of blocks in the current pass. Returns false if a bit has not arrived.
    template <class Coder, class Stop>
    bool code_row(Coder& io, const BlockRow& row, Stop stop) {
        if (kSubbands[subband_].side > 1) switch (pass_) {
                case kSignificancePass: return code_significant(io, row, stop, {kSignificancePass, false});
                case kRefinementPass: return code_significant(io, row, stop, {kRefinementPass, false});
                default: return code_all(io, row, stop);
            }
        const bool dc = subband_ == 0;
        switch (pass_) {
            case kSignificancePass:
                return dc ? code_singles(io, row, stop, {kSignificancePass, true})
                          : code_singles(io, row, stop, {kSignificancePass, false});
            case kRefinementPass:
                return dc ? code_singles(io, row, stop, {kRefinementPass, true})
                          : code_singles(io, row, stop, {kRefinementPass, false});
            default:
                return dc ? code_singles(io, row, stop, {kCleanupPass, true})
                          : code_singles(io, row, stop, {kCleanupPass, false});
        }
    }
    // The same, inlined as a whole with the decoder in registers: most of the time of a decoder is spent here.
    template <class Coder, class Stop>
    [[gnu::flatten]] bool code_arrived_row(Coder& io, const BlockRow& row, Stop stop) {
        Coder own = io;
        const bool all = code_row(own, row, stop);
        io = own;
        return all;
    }
    // The subbands that are significant.
    template <class Coder, class Stop>
    bool code_significant(Coder& io, const BlockRow& row, Stop stop, Step step) {
        const std::uint8_t* significant = &subband_significant(channel_, subband_, row_ + 1, 1);
        for (; column_ < shape_.columns; ++column_, index_ = 0) {
            if (!significant[column_]) {
                const void* found = std::memchr(significant + column_, 1, shape_.columns - column_);
                if (!found) break;
                column_ = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - significant);
            }
            if (stop() || !io.ready(kMostBits)) return false;
            const Block block = current_block(row);
            if (step.pass == kRefinementPass
                    ? !refinement_pass(io, row, block)
                    : !code_pending_sign(io, block, step) || !significance_pass(io, row, block))
                return false;
        }
        return true;
    }
    // Subbands of one coefficient, which have no flag.
    template <class Coder, class Stop>
    bool code_singles(Coder& io, const BlockRow& row, Stop stop, Step step) {
        const std::uint8_t* significant = &subband_significant(channel_, subband_, row_ + 1, 1);
        const Place place = place_at(0);
        for (; column_ < shape_.columns; ++column_) {
            if (significant[column_] != (step.pass == kRefinementPass)) continue;
            const Block block = current_block(row);
            const bool coded = coded_[block.own][static_cast<std::size_t>(place.row())] & place.bit();
            if (step.pass != kSignificancePass && coded) continue;
            if (stop() || !io.ready(kMostBits)) return false;
            if (step.pass == kRefinementPass ? !code_refinement(io, row, block, place, step)
                : sign_pending_              ? !code_sign(io, block, place, step)
                : step.dc                    ? !code_dc_significance(io, row, block, step)
                                             : !code_single(io, row, block, place, step))
                return false;
        }
        return true;
    }
    // All subbands in the cleanup pass, after the flags of those that were insignificant.
    template <class Coder, class Stop>
    bool code_all(Coder& io, const BlockRow& row, Stop stop) {
        std::uint8_t* significant = &subband_significant(channel_, subband_, row_ + 1, 1);
        find_flag_contexts(row, significant);
        for (; column_ < shape_.columns; ++column_, index_ = 0, newly_significant_ = false) {
            if (stop() || !io.ready(kMostBits)) return false;
            if (!significant[column_]) {
                if (!code_subband_flag(io, row, significant + column_)) return false;
                if (!significant[column_]) continue;
                newly_significant_ = true;
            }
            const Block block = current_block(row);
            if (!code_pending_sign(io, block, {kCleanupPass, false}) || !cleanup_pass(io, row, block)) return false;
        }
        return true;
    }
    template <class Coder>
    bool code_pending_sign(Coder& io, const Block& block, Step step) {
        if (!sign_pending_) return true;
        if (!code_sign(io, block, place_at(index_), step)) return false;
        ++index_;
        return true;
    }

    // The significance pass codes insignificant coefficients that have significant neighbors.
    template <class Coder>
    bool significance_pass(Coder& io, const BlockRow& row, const Block& block) {
        const Subband& subband = kSubbands[subband_];
        const int first = subband.row;
        const SignificanceMap& own = maps_[block.own];
        const Bits insignificant = in_subband(~own.rows(first), subband);
        const Rows near = own.around(first) | adjacent_rows(block, first);
        Position position = position_of(place_at(0));
        Bits coded = 0;
        const bool all =
            each_coefficient(in_subband(near, subband) & insignificant, [&](int index, const Place& place, Bits& rest) {
                position.at = place.at;
                const int bit = code_significance(
                    io, block, place, significance(row, position, neighborhood(row, magnitudes_at(block, place))),
                    {kSignificancePass, false});
                if (bit == 1) rest |= kNeighborsBehind[static_cast<std::size_t>(index)] & insignificant;
                coded |= Bits{bit >= 0} << index;
                return bit >= 0;
            });
        add_coded(coded_[block.own].data() + first, coded, subband);
        return all;
    }
    // The refinement pass codes the next bit of coefficients that became significant in earlier planes.
    template <class Coder>
    bool refinement_pass(Coder& io, const BlockRow& row, const Block& block) {
        const Subband& subband = kSubbands[subband_];
        const Rows earlier = maps_[block.own].rows(subband.row) & ~load(coded_[block.own].data() + subband.row);
        const Bits selected = in_subband(earlier, subband);
        const std::int32_t* decoded = decoded_ + block.index * kBlock * kBlock + subband.row * kBlock + subband.column;
        for (int i = 0; !Io::kEncodes && i < subband.side; ++i)
            if (selected >> (i * kRowBits) & 0xFF) __builtin_prefetch(decoded + i * kBlock, 1);
        return each_coefficient(selected, [&](int, const Place& place, Bits&) {
            return code_refinement(io, row, block, place, {kRefinementPass, false});
        });
    }
    // The cleanup pass codes the coefficients that the other two left out; all of them are insignificant.
    template <class Coder>
    bool cleanup_pass(Coder& io, const BlockRow& row, const Block& block) {
        const Subband& subband = kSubbands[subband_];
        const int first = subband.row;
        const SignificanceMap *maps = maps_.data(), &own = maps[block.own], &west = maps[block.own - 1],
                              &north = maps[block.own - across_];
        const Bits left = in_subband(~(own.rows(first) | load(coded_[block.own].data() + first)), subband);
        Rows near = own.around(first) | adjacent_rows(block, first) | west.cross(first) | north.cross(first);
        if (row.predicted()) near |= (&own - row.luma)->rows(first) | (&own - row.luma)->cross(first);
        if (row.kind == 2) near |= (&own - row.chroma)->rows(first);
        Bits active = in_subband(near, subband);  // those with any significant neighbor
        Position position = position_of(place_at(0));
        return each_coefficient(left, [&](int index, const Place& place, Bits&) {
            const bool quiet = !(active >> index & 1);
            position.at = place.at;
            const int bit =
                code_significance(io, block, place,
                                  quiet ? significance(row, position, {})
                                        : significance(row, position, neighborhood(row, magnitudes_at(block, place))),
                                  {kCleanupPass, false});
            if (bit == 1) active |= kNeighborsBehind[static_cast<std::size_t>(index)];
            return bit >= 0;
        });
    }
    // Where adjacent blocks are significant.
    Rows adjacent_rows(const Block& block, int i) const {
        const SignificanceMap* own = &maps_[block.own];
        return own[-1].rows(i) | (own - across_)->rows(i) | own[1].rows(i) | own[across_].rows(i);
    }
    // The same in the channels before, within the masks of a single coefficient.
    static Corner predicting_corner(const BlockRow& row, const SignificanceMap* own, const CornerMasks& masks) {
        if (!row.predicted()) return 0;
        const Corner luma = (own - row.luma)->corner() & masks.cross;
        return row.kind == 2 ? luma | ((own - row.chroma)->corner() & masks.own) : luma;
    }
    // Codes the significance of the only coefficient of a subband, in the significance pass if its activity is not 0.
    template <class Coder>
    bool code_single(Coder& io, const BlockRow& row, const Block& block, const Place& place, Step step) {
        const CornerMasks& masks = kCornerMasks[subband_];
        const SignificanceMap* own = &maps_[block.own];
        const Corner before = own[-1].corner() | (own - across_)->corner();
        Corner active =
            (own->corner() & masks.around) | ((before | own[1].corner() | own[across_].corner()) & masks.own);
        if (step.pass == kSignificancePass && active == 0) return true;
        active |= (before & masks.cross) | predicting_corner(row, own, masks);
        return code_only(io, block, place,
                         active == 0
                             ? significance(row, position_of(place), {})
                             : significance(row, position_of(place), neighborhood(row, magnitudes_at(block, place))),
                         step);
    }
    template <class Coder, class Contexts>
    bool code_only(Coder& io, const Block& block, const Place& place, const Contexts& contexts, Step step) {
        const int bit = code_significance(io, block, place, contexts, step);
        if (step.pass == kSignificancePass)
            coded_[block.own][static_cast<std::size_t>(place.row())] |= bit >= 0 ? place.bit() : 0;
        return bit >= 0;
    }
    // The same of a DC coefficient, whose neighbors are those of its macroblock and of adjacent ones.
    template <class Coder>
    bool code_dc_significance(Coder& io, const BlockRow& row, const Block& block, Step step) {
        const std::uint8_t* own = row.dc + column_ / kMacroblock * kDcArea + column_ % kMacroblock;
        const std::size_t down = macroblocks(shape_.columns) * kDcArea;
        Neighborhood around{};
        around.near = 2 * (own[-1] + own[-kDcStride] + own[1] + own[kDcStride] + own[-kDcStride - 1]);
        const int across = own[-kDcArea] + *(own - down) + own[kDcArea] + own[down];
        if (step.pass == kSignificancePass && around.near + across == 0) return true;
        const Place place{0};
        const SignificanceMap* map = &maps_[block.own];
        const Corner others = map->corner() | maps_[neighbor(block, 0, -kMacroblock)].corner() |
                              maps_[neighbor(block, -kMacroblock, 0)].corner();
        const CornerMasks& masks = kCornerMasks[0];
        if (across != 0 || (others & masks.cross) != 0 || predicting_corner(row, map, masks) != 0)
            around = neighborhood(row, dc_magnitudes_at(block), around.near);
        return code_only(io, block, place, significance(row, dc_position(), around), step);
    }

    // Adds the bits of a subband to rows of a block.
    static void add_coded(std::uint16_t* rows, Bits bits, const Subband& subband) {
        using Bytes = std::uint8_t __attribute__((vector_size(8)));
        if constexpr (std::endian::native == std::endian::big) bits = __builtin_bswap64(bits);
        Bytes bytes;
        std::memcpy(&bytes, &bits, sizeof bytes);
        const Rows all = load(rows) | __builtin_convertvector(bytes, Rows)
                                          << static_cast<std::uint16_t>(subband.column);
        std::memcpy(rows, &all, sizeof all);
    }

    // Calls code(index, place, rest) for the selected coefficients of the current subband, from the one at `index_` on;
    // `rest` are those that follow. Stops and returns false if a call returns false.
    template <class Code>
    bool each_coefficient(Bits selected, Code code) {
        const int first = place_at(0).at;
        Bits rest = index_ < kBits ? selected >> index_ << index_ : 0;
        while (rest != 0) {
            const int index = std::countr_zero(rest);
            rest &= rest - 1;
            if (!code(index, Place{first + offset_of(index)}, rest)) {
                index_ = index;
                return false;
            }
        }
        return true;
    }
    // From the first coefficient of a subband to another one.
    static int offset_of(int index) { return index + index / kRowBits * (kBlock - kRowBits); }
    Place place_at(int index) const {
        const Subband& subband = kSubbands[subband_];
        return {subband.row * kBlock + subband.column + offset_of(index)};
    }

    // Codes a bit and updates its contexts. Returns the bit, or -1 if it has not arrived.
    template <class Coder, class Contexts>
    static int code_bit(Coder& io, const Contexts& contexts, bool bit) {
        const Probability one = contexts.probability();
        const int coded = io.bit(one, bit);
        if (coded >= 0) contexts.update(coded, one);
        return coded;
    }
    // Codes whether a coefficient becomes significant in this plane, and its sign if so. Returns the first bit, or -1
    // if a bit has not arrived.
    template <class Coder, class Contexts>
    int code_significance(Coder& io, const Block& block, const Place& place, const Contexts& contexts, Step step) {
        const int bit = code_bit(io, contexts, std::abs(coefficient(block, place)) >> plane_ != 0);
        if (bit < 0) return -1;
        return bit && !code_sign(io, block, place, step) ? -1 : bit;
    }
    std::int32_t coefficient(const Block& block, const Place& place) const {  // 0 in a decoder
        if constexpr (!Io::kEncodes) return 0;
        return coefficients_[block.index * kBlock * kBlock + place.index()];
    }
    template <class Coder>
    bool code_sign(Coder& io, const Block& block, const Place& place, Step step) {
        sign_pending_ = true;
        const bool below = coefficient(block, place) < 0;
        const int negative =
            step.dc && is_macroblock_mean() ? code_bit(io, mean_sign(), below) : io.bit(kOne / 2, below);
        if (negative < 0) return false;
        sign_pending_ = false;
        const std::size_t flag = subband_index(channel_, subband_, row_ + 1, column_ + 1);
        subband_significant_[flag] = 1;
        ++subband_counts_[flag];
        maps_[block.own].significant[static_cast<std::size_t>(place.row() + kMargin)] |= place.bit();
        if (step.pass == kSignificancePass) coded_[block.own][static_cast<std::size_t>(place.row())] |= place.bit();
        set_magnitude(block, place, 1, step);
        set_decoded(block, place, negative ? -(3 << plane_) : 3 << plane_, step);
        return true;
    }

    // Codes the next bit of a significant coefficient. Returns false if it has not arrived.
    template <class Coder>
    bool code_refinement(Coder& io, const BlockRow& row, const Block& block, const Place& place, Step step) {
        const int magnitude = std::abs(coefficient(block, place));
        const bool next = magnitude >> plane_ & 1;
        const int bit = step.dc && is_macroblock_mean()
                            ? code_bit(io, mean_refinement(), next)
                            : code_bit(io, Model::refinement(row.models, refinement_context(block, place, step)), next);
        if (bit < 0) return false;
        const int own = magnitudes_[block.own * kArea + static_cast<std::size_t>(place.with_margin())];
        set_magnitude(block, place, static_cast<std::uint8_t>((own & ~1) | bit), step);
        if (step.dc)
            set_decoded(block, place, refined(dc_[block.index], bit), step);
        else if (!Io::kEncodes || decoded_)
            set_decoded(block, place, refined(decoded_[block.index * kBlock * kBlock + place.index()], bit), step);
        return true;
    }
    void set_magnitude(const Block& block, const Place& place, std::uint8_t magnitude, Step step) {
        magnitudes_[block.own * kArea + static_cast<std::size_t>(place.with_margin())] = magnitude;
        if (step.dc) *dc_magnitude(column_) = magnitude;
    }
    std::int32_t refined(std::int32_t value, int bit) const {
        return value + ((value < 0) == (bit == 0) ? 1 << plane_ : -(1 << plane_));
    }
    void set_decoded(const Block& block, const Place& place, std::int32_t value, Step step) {
        if (step.dc) dc_[block.index] = value;
        if (Io::kEncodes && !decoded_) return;
        std::int32_t& known = decoded_[block.index * kBlock * kBlock + place.index()];
        if constexpr (Io::kEncodes)
            error_ +=
                squared_error(block.index, place.index(), value) - squared_error(block.index, place.index(), known);
        known = value;
    }

    // Prepares the contexts of a row's flags, but for the subbands to the west, which may become significant.
    void find_flag_contexts(const BlockRow& row, const std::uint8_t* own) {
        const std::size_t across = shape_.columns + 2, area = (shape_.rows + 2) * across;
        const int orientation = kSubbands[subband_].orientation;
        const std::uint8_t *north = own - across, *south = own + across, *coarser = own - 3 * area;
        const std::uint8_t* counts = subband_counts_.data() + (coarser - subband_significant_.data());
        std::uint8_t *beside = flag_contexts_.data(), *others = beside + shape_.columns,
                     *active = others + shape_.columns;
        const auto each = [&](auto set) {
            for (std::size_t i = column_; i < shape_.columns; ++i) set(i);
        };
        const auto add = [&](int factor, const std::uint8_t* flags) {
            each([&](std::size_t i) { others[i] = static_cast<std::uint8_t>(others[i] + factor * flags[i]); });
        };
        each([&](std::size_t i) {
            beside[i] = static_cast<std::uint8_t>(5 * north[i] + 4 * (own[i + 1] + south[i]));
            others[i] = static_cast<std::uint8_t>(16 * coarser[i]);
        });
        if (orientation > 1) add(4, own - area);
        if (orientation > 2) add(8, own - 2 * area);
        if (row.predicted()) add(1, own - row.kind * kSubbands.size() * area);
        if (row.kind == 2) add(2, own - kSubbands.size() * area);
        each([&](std::size_t i) { active[i] = static_cast<std::uint8_t>(5 * coarse_class(counts[i])); });
    }
    // Codes whether a subband that was all zeros so far becomes significant in this plane. Returns false if the bit has
    // not arrived.
    template <class Coder>
    bool code_subband_flag(Coder& io, const BlockRow& row, std::uint8_t* own) {
        const bool any =
            Io::kEncodes && subband_planes_[static_cast<std::size_t>(own - subband_significant_.data())] > plane_;
        const std::uint8_t* contexts = flag_contexts_.data() + column_;
        const std::size_t west = own[-1], beside = contexts[0];
        const SubbandNeighborhood around{beside + 6 * west, contexts[shape_.columns],
                                         contexts[2 * shape_.columns] + (beside >> 2) + west};
        const int bit = code_bit(io, Model::subband_flag(row.models, around), any);
        if (bit < 0) return false;
        *own = static_cast<std::uint8_t>(bit);
        return true;
    }

    static int four(const std::uint8_t* at) { return at[-1] + at[1] + at[-kStride] + at[kStride]; }
    static auto significance(const BlockRow& row, const Position& position, const Neighborhood& around) {
        return Model::significance(row.models, position, around);
    }
    static Neighborhood neighborhood(const BlockRow& row, const Magnitudes& at) {
        const std::uint8_t* own = at.own;
        return neighborhood(
            row, at,
            2 * four(own) + own[-kStride - 1] + own[-kStride + 1] + own[kStride - 1] + own[-2] + own[-2 * kStride]);
    }
    static Neighborhood neighborhood(const BlockRow& row, const Magnitudes& at, int near) {
        const std::uint8_t* own = at.own;
        Neighborhood around{near,
                            own[-1],
                            own[-kStride],
                            own[1],
                            own[kStride],
                            own[-kStride - 1] + own[-kStride + 1] + own[-2] + own[-2 * kStride],
                            *at.west,
                            *at.north,
                            *at.east + *at.south,
                            four(at.west) + four(at.north),
                            0,
                            0,
                            0};
        if (row.predicted()) {
            const std::uint8_t* luma = own - row.luma * kArea;
            around.luma = *luma, around.lumas = four(luma);
        }
        if (row.kind == 2) around.chroma = *(own - row.chroma * kArea);
        return around;
    }
    Position position_of(const Place& place) const {
        return {place.at, plane_ * 2 + newly_significant_, newly_significant_};
    }
    // DC coefficients have places of their own, by their place in the macroblock.
    Position dc_position() const {
        const int in_macroblock = static_cast<int>(row_ % kMacroblock * kMacroblock + column_ % kMacroblock);
        const int scale =
            is_macroblock_mean() ? std::min(kScales - 1, 2 * std::abs(predicted_mean()) >> plane_) : plane_ * 2 + 1;
        return {kBlock * kBlock + in_macroblock, scale, in_macroblock != 0};
    }
    RefinementContext refinement_context(const Block& block, const Place& place, Step step) const {
        const Magnitudes at = step.dc ? dc_magnitudes_at(block) : magnitudes_at(block, place);
        const int adjacent = coarse_class(*at.west + *at.north);
        return {std::min(*at.own >> 1, 7), fine_class(four(at.own) / 2), std::min(adjacent, 3)};
    }

    // Whether the coefficient is the first of its macroblock, which is the macroblock's mean.
    bool is_macroblock_mean() const { return row_ % kMacroblock == 0 && column_ % kMacroblock == 0; }
    // The prediction of a macroblock's mean from those of the adjacent macroblocks, as a decoded value.
    int predicted_mean() const {
        int sum = 0, count = 0;
        const auto add = [&](std::ptrdiff_t down, std::ptrdiff_t right, int weight) {
            if (!is_inside(down, right)) return;
            sum += weight * dc_[block_index(channel_, row_ + static_cast<std::size_t>(down),
                                            column_ + static_cast<std::size_t>(right))];
            count += weight;
        };
        add(0, -kMacroblock, 2), add(-kMacroblock, 0, 2), add(0, kMacroblock, 1), add(kMacroblock, 0, 1);
        return count ? sum / count : 0;
    }
    auto mean_sign() {
        const int predicted = predicted_mean();
        const int context = (predicted < 0 ? 8 : 0) + std::min(7, std::abs(predicted) >> plane_);
        return model_.mean_sign(shape_.kinds[channel_], static_cast<std::size_t>(context));
    }
    auto mean_refinement() {
        const int own = dc_[block_index(channel_, row_, column_)];
        const int predicted = own < 0 ? -predicted_mean() : predicted_mean();
        const int context = std::clamp((predicted - std::abs(own)) / (1 << plane_) + 12, 0, 23);
        return model_.mean_refinement(shape_.kinds[channel_], static_cast<std::size_t>(context));
    }

    ImageShape shape_;
    std::vector<ImageStart::Channel> channels_;
    Model model_;
    const std::int16_t* coefficients_;
    std::int32_t* decoded_;
    std::size_t across_;                             // blocks of a row, with the margin
    std::vector<std::uint8_t> magnitudes_;           // in units of the current plane; blocks have a margin of zeros
    std::vector<SignificanceMap> maps_;              // of all blocks, which have a margin as well
    std::vector<CodedMap> coded_;                    // in the significance pass of the current plane
    std::vector<std::int32_t> dc_;                   // decoded values of each block's first coefficient
    std::vector<std::uint8_t> dc_magnitudes_;        // by macroblock, with a margin of zeros
    std::vector<std::uint8_t> subband_significant_;  // by channel, subband and block, with a margin of zeros
    std::vector<std::uint8_t> subband_counts_;       // alike, the number of significant coefficients
    std::vector<std::uint8_t> flag_contexts_;        // of the current row: three contexts of each block's flag
    std::vector<std::uint8_t> subband_planes_;       // alike, the number of bit planes; empty in a decoder
    double error_ = 0;                               // squared, of what a decoder knows, if an encoder tracks that
    // The state of the traversal, so that it can stop at any bit.
    int plane_, pass_ = 0, index_ = 0;
    std::size_t subband_ = 0, channel_ = 0, row_ = 0, column_ = 0;
    bool newly_significant_ = false;  // the subband, in this plane
    bool sign_pending_ = false;       // the coefficient is significant, its sign comes next
};

struct EncoderIo {
    static constexpr bool kEncodes = true;
    RangeEncoder encoder;
    int bit(Probability one, bool bit) {
        encoder.encode(bit, one);
        return bit;
    }
    bool ready(std::size_t) const { return true; }
    template <class Code>
    bool ahead(Code) {
        return false;
    }
};
// Decodes as long as it is ready, which needs no look at whether each bit has arrived.
struct ArrivedIo {
    RangeDecoder::Arrived arrived;
    int bit(Probability one, bool) { return arrived.decode(one); }
    bool ready(std::size_t bits) const { return arrived.has_arrived(bits); }
};
struct DecoderIo {
    static constexpr bool kEncodes = false;
    RangeDecoder decoder;
    int bit(Probability one, bool) { return decoder.decode(one); }
    bool ready(std::size_t) const { return true; }

    // Calls code(io) with an ArrivedIo and goes on behind it.
    template <class Code>
    bool ahead(Code code) {
        if (!decoder.window_arrived()) return false;
        ArrivedIo io{RangeDecoder::Arrived(decoder)};
        const bool all = code(io);
        decoder.resume(io.arrived);
        return all;
    }
};

}  // namespace nestcode
