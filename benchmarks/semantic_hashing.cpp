// Semantic hashing (Salakhutdinov and Hinton, 2009): a hash table of codes, probed with every code in a Hamming ball.
//
// The baseline of the paper's section 5.2, for benchmarks/retrieval_speed.py, which compiles this file into build/; it
// is no part of the shipped core. Codes are hashed by Zobrist hashing: the exclusive or of one random word for each set
// bit, so flipping a bit costs one operation. The table has open addressing with linear probing.
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "nestcode/rows.hpp"

namespace nestcode {

class HashTable {
  public:
    struct Found {
        std::uint64_t items = 0, probes = 0;
    };

    // `rows` must be sorted, so that equal codes are adjacent and share a slot.
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

    // Returns the number of items within `radius` of the query and the number of probes; stops after `max_probes`.
    Found search(const std::uint8_t* query, std::int32_t width, std::int32_t radius, std::uint64_t max_probes) const {
        Found found;
        probe_ball(query, hash_of(query), 0, width, radius, radius, max_probes, found);
        return found;
    }

  private:
    struct Slot {
        std::uint64_t hash = 0;
        std::uint32_t begin = 0, end = 0;  // range of rows; end is 0 in an empty slot
    };

    std::uint64_t hash_of(const std::uint8_t* row) const {
        std::uint64_t hash = 0;
        for (std::size_t byte = 0; byte < rows_.bytes; ++byte)
            for (unsigned left = row[byte]; left != 0; left &= left - 1)
                hash ^= words_[8 * byte + 7 - static_cast<unsigned>(std::countr_zero(left))];
        return hash;
    }

    // Probes the code with this hash, then every code that differs in up to `flips` more bits from `first_bit` on.
    void probe_ball(const std::uint8_t* query, std::uint64_t hash, std::int32_t first_bit, std::int32_t width,
                    std::int32_t flips, std::int32_t radius, std::uint64_t max_probes, Found& found) const {
        if (found.probes == max_probes) return;
        ++found.probes;
        for (std::size_t at = hash & (slots_.size() - 1); slots_[at].end != 0; at = (at + 1) & (slots_.size() - 1)) {
            const Slot& slot = slots_[at];
            if (slot.hash == hash && within(query, rows_[slot.begin], radius)) found.items += slot.end - slot.begin;
        }
        for (std::int32_t bit = first_bit; flips > 0 && bit < width && found.probes < max_probes; ++bit)
            probe_ball(query, hash ^ words_[static_cast<std::size_t>(bit)], bit + 1, width, flips - 1, radius,
                       max_probes, found);
    }

    bool within(const std::uint8_t* a, const std::uint8_t* b, std::int32_t radius) const {
        std::int32_t distance = 0;
        for (std::size_t i = 0; i < rows_.bytes; ++i) distance += std::popcount(static_cast<unsigned>(a[i] ^ b[i]));
        return distance <= radius;
    }

    Rows rows_;
    std::vector<std::uint64_t> words_;  // one random word for each bit
    std::vector<Slot> slots_;
};

}  // namespace nestcode

// The C interface that benchmarks/_semantic_hashing.py loads with ctypes. `packed` must outlive the table.
extern "C" {

nestcode::HashTable* hash_table_new(const std::uint8_t* packed, std::size_t count, std::size_t bytes) {
    return new nestcode::HashTable({packed, count, bytes, static_cast<std::ptrdiff_t>(bytes)});
}

void hash_table_delete(nestcode::HashTable* table) {
    delete table;
}

// Writes the number of items within `radius` of each query into `found` and returns the number of probes.
std::uint64_t hash_table_search(const nestcode::HashTable* table, const std::uint8_t* queries, std::size_t count,
                                std::size_t bytes, std::int32_t width, std::int32_t radius, std::uint64_t max_probes,
                                std::int64_t* found) {
    std::uint64_t probes = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto one = table->search(queries + i * bytes, width, radius, max_probes);
        found[i] = static_cast<std::int64_t>(one.items);
        probes += one.probes;
    }
    return probes;
}
}
