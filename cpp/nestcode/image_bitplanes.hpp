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
          outside_(shape_.kinds.size() * shape_.blocks()),
          magnitudes_((outside_ + 1) * kArea + kTail),
          maps_(outside_ + 1),
          coded_(outside_),
          dc_(outside_),
          dc_magnitudes_(shape_.kinds.size() * macroblocks(shape_.rows) * macroblocks(shape_.columns) * kDcArea),
          subband_significant_(shape_.kinds.size() * kSubbands.size() * (shape_.rows + 2) * (shape_.columns + 2)),
          plane_(start.planes - 1) {
        if (coefficients_) count_subband_planes();
        if (coefficients_ && decoded_) add_errors();
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
    // A coefficient's row and column in the block.
    struct Place {
        int row, column;

        std::size_t index() const { return static_cast<std::size_t>(row * kBlock + column); }
        std::ptrdiff_t with_margin() const { return (row + kMargin) * kStride + column + kMargin; }
    };
    // Rows of a block as bits, column 0 the lowest; 8 of them, by the compiler's vector extension.
    using Rows = std::uint16_t __attribute__((vector_size(16)));
    static Rows load(const std::uint16_t* from) {
        Rows rows;
        std::memcpy(&rows, from, sizeof rows);
        return rows;
    }
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
        // Whether the DC coefficient or one next to it is.
        bool low() const { return ((significant[kMargin] & 3) | (significant[kMargin + 1] & 1)) != 0; }
    };
    using CodedMap = std::array<std::uint16_t, kBlock>;
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
    // The current block, those around it and the same block in the channels before; `outside_` for none.
    struct Block {
        std::size_t own, west, north, east, south, luma, chroma;
    };
    // The magnitudes at a place of these blocks.
    struct Magnitudes {
        const std::uint8_t *own, *west, *north, *east, *south, *luma, *chroma;
    };
    // What the blocks of a row have in common: where those that each Block names begin, and the models of the current
    // subband.
    struct BlockRow {
        struct Start {
            std::size_t first, inside;  // inside: all bits set, or none

            std::size_t at(std::size_t column) const { return first + (column & inside); }
        };
        std::size_t own, kind;
        Start north, south, luma, chroma;
        std::size_t step;  // to the next block with the same frequency
        typename Model::Row models;

        bool predicted() const { return luma.inside != 0; }  // by the channels before
    };

    std::size_t block_index(std::size_t channel, std::size_t row, std::size_t column) const {
        return (channel * shape_.rows + row) * shape_.columns + column;
    }
    std::size_t neighbor(std::size_t channel, std::ptrdiff_t down, std::ptrdiff_t right) const {
        const std::size_t row = row_ + static_cast<std::size_t>(down),
                          column = column_ + static_cast<std::size_t>(right);
        return row < shape_.rows && column < shape_.columns ? block_index(channel, row, column) : outside_;
    }
    BlockRow current_row() {
        const std::size_t step = subband_ == 0 ? kMacroblock : 1;
        const std::size_t own = block_index(channel_, row_, 0), down = step * shape_.columns;
        const std::size_t kind = shape_.kinds[channel_];
        const Subband& subband = kSubbands[subband_];
        const auto start = [&](bool inside, std::size_t first) {
            return typename BlockRow::Start{inside ? first : outside_, inside ? ~std::size_t{0} : 0};
        };
        return {own, kind, start(row_ >= step, own - down), start(row_ + step < shape_.rows, own + down),
                // Chroma channels follow luma; alpha has no channel that predicts it.
                start(kind == 1 || kind == 2, own - kind * shape_.blocks()), start(kind == 2, own - shape_.blocks()),
                step,
                model_.row(kind, static_cast<std::size_t>(subband.level), static_cast<std::size_t>(subband.orientation),
                           static_cast<std::size_t>(plane_))};
    }
    Block current_block(const BlockRow& row) const {
        const std::size_t own = row.own + column_;
        return {own,
                column_ >= row.step ? own - row.step : outside_,
                row.north.at(column_),
                column_ + row.step < shape_.columns ? own + row.step : outside_,
                row.south.at(column_),
                row.luma.at(column_),
                row.chroma.at(column_)};
    }
    Magnitudes magnitudes_at(const Block& block, const Place& place) const {
        const std::uint8_t* first = magnitudes_.data() + place.with_margin();
        return {first + block.own * kArea,   first + block.west * kArea,  first + block.north * kArea,
                first + block.east * kArea,  first + block.south * kArea, first + block.luma * kArea,
                first + block.chroma * kArea};
    }
    // Macroblocks along an axis, with a margin.
    static std::size_t macroblocks(std::size_t blocks) { return (blocks + kMacroblock - 1) / kMacroblock + 2; }
    // The magnitude of the current block's DC coefficient.
    std::uint8_t* dc_magnitude() {
        const std::size_t row = channel_ * macroblocks(shape_.rows) + row_ / kMacroblock + 1;
        const std::size_t macroblock = row * macroblocks(shape_.columns) + column_ / kMacroblock + 1;
        return &dc_magnitudes_[macroblock * kDcArea + (row_ % kMacroblock + 1) * kDcStride + column_ % kMacroblock + 1];
    }
    std::uint8_t& subband_significant(std::size_t channel, std::size_t subband, std::size_t row, std::size_t column) {
        return subband_significant_[((channel * kSubbands.size() + subband) * (shape_.rows + 2) + row) *
                                        (shape_.columns + 2) +
                                    column];
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
        for (std::size_t block = 0; block < outside_; ++block)
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
        for (std::size_t block = 0; block < outside_; ++block) {
            const Rows either = maps_[block].rows(0) | maps_[block].rows(kBlock / 2);
            std::array<std::uint64_t, 2> any;
            std::memcpy(&any, &either, sizeof any);
            if ((any[0] | any[1]) != 0) scale_magnitudes(magnitudes_.data() + block * kArea + kTail, kBlock * kStride);
        }
    }

    // Codes the current subband of a row of blocks in the current pass. Returns false if a bit has not arrived.
    template <class Coder, class Stop>
    bool code_row(Coder& io, const BlockRow& row, Stop stop) {
        const std::uint8_t* significant = &subband_significant(channel_, subband_, row_ + 1, 1);
        const bool single = kSubbands[subband_].side == 1;  // has no flag
        const bool all = pass_ == kCleanupPass || (pass_ == kSignificancePass && single);
        for (; column_ < shape_.columns; ++column_, index_ = 0, newly_significant_ = false) {
            if (!all) {  // only those that are significant
                if (!significant[column_]) {
                    const void* found = std::memchr(significant + column_, 1, shape_.columns - column_);
                    if (!found) break;
                    column_ = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - significant);
                }
                if (stop() || !io.ready(kMostBits)) return false;
            } else if (single && significant[column_]) {
                continue;
            } else {
                if (stop() || !io.ready(kMostBits)) return false;
                if (!single && !significant[column_]) {
                    if (!code_subband_flag(io, row, significant + column_)) return false;
                    if (!significant[column_]) continue;
                    newly_significant_ = true;
                }
            }
            if (!code_subband(io, row)) return false;
        }
        return true;
    }
    // The same, inlined as a whole: most of the time of a decoder is spent here.
    template <class Coder, class Stop>
    [[gnu::flatten]] bool code_arrived_row(Coder& io, const BlockRow& row, Stop stop) {
        return code_row(io, row, stop);
    }
    template <class Coder>
    bool code_subband(Coder& io, const BlockRow& row) {
        const Block block = current_block(row);
        if (sign_pending_) {
            if (!code_sign(io, block, place_at(index_))) return false;
            ++index_;
        }
        if (pass_ == kRefinementPass) return refinement_pass(io, row, block);
        if (subband_ == 0) return code_dc_significance(io, row, block);
        return pass_ == kSignificancePass ? significance_pass(io, row, block) : cleanup_pass(io, row, block);
    }

    // The significance pass codes insignificant coefficients that have significant neighbors.
    template <class Coder>
    bool significance_pass(Coder& io, const BlockRow& row, const Block& block) {
        const Subband& subband = kSubbands[subband_];
        const int first = subband.row;
        const SignificanceMap *maps = maps_.data(), &own = maps[block.own];
        const Bits insignificant = in_subband(~own.rows(first), subband);
        const Rows near = own.around(first) | maps[block.west].rows(first) | maps[block.north].rows(first) |
                          maps[block.east].rows(first) | maps[block.south].rows(first);
        return each_coefficient(
            in_subband(near, subband) & insignificant, [&](int index, const Place& place, Bits& rest) {
                const int bit = code_significance(
                    io, block, place,
                    significance(row, position_of(place), neighborhood(row, magnitudes_at(block, place))));
                if (bit == 1) rest |= kNeighborsBehind[static_cast<std::size_t>(index)] & insignificant;
                coded_[block.own][static_cast<std::size_t>(place.row)] |=
                    static_cast<std::uint16_t>((bit >= 0) << place.column);
                return bit >= 0;
            });
    }
    // The refinement pass codes the next bit of coefficients that became significant in earlier planes.
    template <class Coder>
    bool refinement_pass(Coder& io, const BlockRow& row, const Block& block) {
        const Subband& subband = kSubbands[subband_];
        const Rows earlier = maps_[block.own].rows(subband.row) & ~load(coded_[block.own].data() + subband.row);
        return each_coefficient(in_subband(earlier, subband),
                                [&](int, const Place& place, Bits&) { return code_refinement(io, row, block, place); });
    }
    // The cleanup pass codes the coefficients that the other two left out; all of them are insignificant.
    template <class Coder>
    bool cleanup_pass(Coder& io, const BlockRow& row, const Block& block) {
        const Subband& subband = kSubbands[subband_];
        const int first = subband.row;
        const SignificanceMap *maps = maps_.data(), &own = maps[block.own], &west = maps[block.west],
                              &north = maps[block.north], &luma = maps[block.luma];
        const Bits left = in_subband(~(own.rows(first) | load(coded_[block.own].data() + first)), subband);
        Bits active =
            in_subband(own.around(first) | west.rows(first) | north.rows(first) | maps[block.east].rows(first) |
                           maps[block.south].rows(first) | west.cross(first) | north.cross(first) | luma.rows(first) |
                           luma.cross(first) | maps[block.chroma].rows(first),
                       subband);  // those with any significant neighbor
        return each_coefficient(left, [&](int index, const Place& place, Bits&) {
            const bool quiet = !(active >> index & 1);
            const Position position = position_of(place);
            const int bit =
                code_significance(io, block, place,
                                  quiet ? significance(row, position, {})
                                        : significance(row, position, neighborhood(row, magnitudes_at(block, place))));
            if (bit == 1) active |= kNeighborsBehind[static_cast<std::size_t>(index)];
            return bit >= 0;
        });
    }
    // Codes the significance of a DC coefficient, in the significance pass if its activity is not 0.
    template <class Coder>
    bool code_dc_significance(Coder& io, const BlockRow& row, const Block& block) {
        std::uint16_t& coded = coded_[block.own][0];
        if (index_ > 0 || ((maps_[block.own].significant[kMargin] | coded) & 1)) return true;
        const std::uint8_t* own = dc_magnitude();
        const std::size_t down = macroblocks(shape_.columns) * kDcArea;
        Neighborhood around{};
        around.near = 2 * (own[-1] + own[-kDcStride] + own[1] + own[kDcStride] + own[-kDcStride - 1]);
        const int across = own[-kDcArea] + *(own - down) + own[kDcArea] + own[down];
        if (pass_ == kSignificancePass && around.near + across == 0) return true;
        const Place place{0, 0};
        if (across != 0 || maps_[block.own].low() || maps_[block.west].low() || maps_[block.north].low() ||
            maps_[block.luma].low() || maps_[block.chroma].low())
            around = neighborhood(row, magnitudes_at(block, place), around.near);
        const int bit = code_significance(io, block, place, significance(row, dc_position(), around));
        if (bit >= 0 && pass_ == kSignificancePass) coded |= 1;
        return bit >= 0;
    }

    // Calls code(index, place, rest) for the selected coefficients of the current subband, from the one at `index_` on;
    // `rest` are those that follow. Stops and returns false if a call returns false.
    template <class Code>
    bool each_coefficient(Bits selected, Code code) {
        Bits rest = index_ < kBits ? selected >> index_ << index_ : 0;
        while (rest != 0) {
            const int index = std::countr_zero(rest);
            rest &= rest - 1;
            if (!code(index, place_at(index), rest)) {
                index_ = index;
                return false;
            }
        }
        return true;
    }
    Place place_at(int index) const {
        const Subband& subband = kSubbands[subband_];
        return {subband.row + index / kRowBits, subband.column + index % kRowBits};
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
    int code_significance(Coder& io, const Block& block, const Place& place, const Contexts& contexts) {
        const int bit = code_bit(io, contexts, std::abs(coefficient(block, place)) >> plane_ != 0);
        if (bit < 0) return -1;
        return bit && !code_sign(io, block, place) ? -1 : bit;
    }
    std::int32_t coefficient(const Block& block, const Place& place) const {  // 0 in a decoder
        return coefficients_ ? coefficients_[block.own * kBlock * kBlock + place.index()] : 0;
    }
    template <class Coder>
    bool code_sign(Coder& io, const Block& block, const Place& place) {
        sign_pending_ = true;
        const bool below = coefficient(block, place) < 0;
        const int negative = is_macroblock_mean() ? code_bit(io, mean_sign(), below) : io.bit(kOne / 2, below);
        if (negative < 0) return false;
        sign_pending_ = false;
        subband_significant(channel_, subband_, row_ + 1, column_ + 1) = 1;
        const auto bit = static_cast<std::uint16_t>(1 << place.column);
        maps_[block.own].significant[static_cast<std::size_t>(place.row + kMargin)] |= bit;
        if (pass_ == kSignificancePass) coded_[block.own][static_cast<std::size_t>(place.row)] |= bit;
        set_magnitude(block, place, 1);
        set_decoded(block, place, negative ? -(3 << plane_) : 3 << plane_);
        return true;
    }

    // Codes the next bit of a significant coefficient. Returns false if it has not arrived.
    template <class Coder>
    bool code_refinement(Coder& io, const BlockRow& row, const Block& block, const Place& place) {
        const int magnitude = std::abs(coefficient(block, place));
        const bool next = magnitude >> plane_ & 1;
        const int bit = is_macroblock_mean()
                            ? code_bit(io, mean_refinement(), next)
                            : code_bit(io, Model::refinement(row.models, refinement_context(block, place)), next);
        if (bit < 0) return false;
        const int own = magnitudes_[block.own * kArea + static_cast<std::size_t>(place.with_margin())];
        set_magnitude(block, place, static_cast<std::uint8_t>((own & ~1) | bit));
        if (subband_ == 0)
            set_decoded(block, place, refined(dc_[block.own], bit));
        else if (decoded_)
            set_decoded(block, place, refined(decoded_[block.own * kBlock * kBlock + place.index()], bit));
        return true;
    }
    void set_magnitude(const Block& block, const Place& place, std::uint8_t magnitude) {
        magnitudes_[block.own * kArea + static_cast<std::size_t>(place.with_margin())] = magnitude;
        if (subband_ == 0) *dc_magnitude() = magnitude;
    }
    std::int32_t refined(std::int32_t value, int bit) const {
        return value + ((value < 0) == (bit == 0) ? 1 << plane_ : -(1 << plane_));
    }
    void set_decoded(const Block& block, const Place& place, std::int32_t value) {
        if (subband_ == 0) dc_[block.own] = value;
        if (!decoded_) return;
        std::int32_t& known = decoded_[block.own * kBlock * kBlock + place.index()];
        if (coefficients_)
            error_ += squared_error(block.own, place.index(), value) - squared_error(block.own, place.index(), known);
        known = value;
    }

    // Codes whether a subband that was all zeros so far becomes significant in this plane. Returns false if the bit has
    // not arrived.
    template <class Coder>
    bool code_subband_flag(Coder& io, const BlockRow& row, const std::uint8_t* own) {
        const Subband& subband = kSubbands[subband_];
        const bool any =
            coefficients_ && subband_planes_[static_cast<std::size_t>(own - subband_significant_.data())] > plane_;
        const std::size_t across = shape_.columns + 2, area = (shape_.rows + 2) * across;
        const std::size_t west = own[-1], north = *(own - across), coarser = *(own - 3 * area);
        const std::size_t siblings =
            (subband.orientation > 1 ? *(own - area) : 0U) + (subband.orientation > 2 ? 2U * *(own - 2 * area) : 0U);
        std::size_t channels = 0;  // that were coded before this one
        if (row.predicted()) channels = *(own - row.kind * kSubbands.size() * area);
        if (row.kind == 2) channels += 2U * *(own - kSubbands.size() * area);
        const Subband& parent = kSubbands[subband_ - 3];  // the coarser subband of the same orientation
        const int active = coarser ? std::popcount(in_subband(maps_[row.own + column_].rows(parent.row), parent)) : 0;
        const SubbandNeighborhood around{2 * west + north, west + north + own[1] + own[across],
                                         coarser,          siblings,
                                         channels,         static_cast<std::size_t>(coarse_class(active))};
        const int bit = code_bit(io, Model::subband_flag(row.models, around), any);
        if (bit < 0) return false;
        if (bit) subband_significant(channel_, subband_, row_ + 1, column_ + 1) = 1;
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
        if (row.predicted()) around.luma = *at.luma, around.chroma = *at.chroma, around.lumas = four(at.luma);
        return around;
    }
    Position position_of(const Place& place) const {
        return {place.row * kBlock + place.column, plane_ * 2 + newly_significant_, newly_significant_};
    }
    // DC coefficients have places of their own, by their place in the macroblock.
    Position dc_position() const {
        const int in_macroblock = static_cast<int>(row_ % kMacroblock * kMacroblock + column_ % kMacroblock);
        const int scale =
            is_macroblock_mean() ? std::min(kScales - 1, 2 * std::abs(predicted_mean()) >> plane_) : plane_ * 2 + 1;
        return {kBlock * kBlock + in_macroblock, scale, in_macroblock != 0};
    }
    RefinementContext refinement_context(const Block& block, const Place& place) const {
        const Magnitudes at = magnitudes_at(block, place);
        const int adjacent = coarse_class(*at.west + *at.north);
        return {std::min(*at.own >> 1, 7), fine_class(four(at.own) / 2), std::min(adjacent, 3)};
    }

    // Whether the coefficient is the first of its macroblock, which is the macroblock's mean.
    bool is_macroblock_mean() const { return subband_ == 0 && row_ % kMacroblock == 0 && column_ % kMacroblock == 0; }
    // The prediction of a macroblock's mean from those of the adjacent macroblocks, as a decoded value.
    int predicted_mean() const {
        int sum = 0, count = 0;
        const auto add = [&](std::ptrdiff_t down, std::ptrdiff_t right, int weight) {
            const std::size_t block = neighbor(channel_, down, right);
            if (block == outside_) return;
            sum += weight * dc_[block];
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
    std::size_t outside_;                            // the index of a block of zeros
    std::vector<std::uint8_t> magnitudes_;           // in units of the current plane; blocks have a margin of zeros
    std::vector<SignificanceMap> maps_;              // of all blocks
    std::vector<CodedMap> coded_;                    // in the significance pass of the current plane
    std::vector<std::int32_t> dc_;                   // decoded values of each block's first coefficient
    std::vector<std::uint8_t> dc_magnitudes_;        // by macroblock, with a margin of zeros
    std::vector<std::uint8_t> subband_significant_;  // by channel, subband and block, with a margin of zeros
    std::vector<std::uint8_t> subband_planes_;       // alike, the number of bit planes; empty in a decoder
    double error_ = 0;                               // squared, of what a decoder knows, if an encoder tracks that
    // The state of the traversal, so that it can stop at any bit.
    int plane_, pass_ = 0, index_ = 0;
    std::size_t subband_ = 0, channel_ = 0, row_ = 0, column_ = 0;
    bool newly_significant_ = false;  // the subband, in this plane
    bool sign_pending_ = false;       // the coefficient is significant, its sign comes next
};

struct EncoderIo {
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
