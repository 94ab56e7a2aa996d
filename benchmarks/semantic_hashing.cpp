// Semantic hashing: a hash table of codes, asked for everything within a Hamming radius by flipping bits.
//
// This is what the paper compares ordered retrieval with. A code's hash is the exclusive or of one random word for each
// bit that is set, so that flipping a bit costs one operation and a look-up one probe.
#pragma once

#include <random>

#include "order.hpp"

namespace nestcode {

class HashTable {
  public:
    struct Found {
        std::uint64_t items = 0, probes = 0;
    };

    // Rows must be sorted: equal ones share a slot.
    explicit HashTable(Rows rows) : rows_(rows), words_(8 * rows.bytes) {
        std::mt19937_64 random(1);
        for (std::uint64_t& word : words_) word = random();
        std::size_t distinct = 0;
        const auto equal = [&](std::size_t i, std::size_t j) { return std::memcmp(rows[i], rows[j], rows.bytes) == 0; };
        for (std::size_t i = 0; i < rows.count; ++i) distinct += i == 0 || !equal(i, i - 1);
        slots_.resize(std::bit_ceil(2 * distinct + 1));
        for (std::size_t begin = 0, end; begin < rows.count; begin = end) {
            for (end = begin + 1; end < rows.count && equal(begin, end);) ++end;
            const std::uint64_t hash = hash_of(rows[begin]);
            std::size_t at = hash & (slots_.size() - 1);
            while (slots_[at].end != 0) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = {hash, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
        }
    }

    // How many items lie within `radius` of the query, and how many probes that took. Stops after `most_probes`.
    Found search(const std::uint8_t* query, std::int32_t width, std::int32_t radius, std::uint64_t most_probes) const {
        Found found;
        flip(query, hash_of(query), 0, width, radius, radius, most_probes, found);
        return found;
    }

  private:
    struct Slot {
        std::uint64_t hash = 0;
        std::uint32_t begin = 0, end = 0;  // rows; none where it is empty
    };

    std::uint64_t hash_of(const std::uint8_t* row) const {
        std::uint64_t hash = 0;
        for (std::size_t byte = 0; byte < rows_.bytes; ++byte)
            for (unsigned left = row[byte]; left != 0; left &= left - 1)
                hash ^= words_[8 * byte + 7 - static_cast<unsigned>(std::countr_zero(left))];
        return hash;
    }

    // Probe the code with this hash, then every code with further bits flipped from `first` on.
    void flip(const std::uint8_t* query, std::uint64_t hash, std::int32_t first, std::int32_t width, std::int32_t left,
              std::int32_t radius, std::uint64_t most_probes, Found& found) const {
        if (++found.probes > most_probes) {
            --found.probes;
            return;
        }
        for (std::size_t at = hash & (slots_.size() - 1); slots_[at].end != 0; at = (at + 1) & (slots_.size() - 1)) {
            const Slot& slot = slots_[at];
            if (slot.hash == hash && within(query, rows_[slot.begin], radius)) found.items += slot.end - slot.begin;
        }
        for (std::int32_t bit = first; left > 0 && bit < width && found.probes < most_probes; ++bit)
            flip(query, hash ^ words_[static_cast<std::size_t>(bit)], bit + 1, width, left - 1, radius, most_probes,
                 found);
    }

    bool within(const std::uint8_t* a, const std::uint8_t* b, std::int32_t radius) const {
        std::int32_t distance = 0;
        for (std::size_t i = 0; i < rows_.bytes; ++i) distance += std::popcount(static_cast<unsigned>(a[i] ^ b[i]));
        return distance <= radius;
    }

    Rows rows_;
    std::vector<std::uint64_t> words_;  // for each bit
    std::vector<Slot> slots_;
};

}  // namespace nestcode
