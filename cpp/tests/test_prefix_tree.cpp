// Prefix trees, forests, merging and checksum guards against plain loops over single bits.
#include "nestcode/forest.hpp"
#include "nestcode/merge.hpp"
#include "support.hpp"

namespace {

// A tree with its arrays, each allocated to the byte.
struct OwnedTree {
    std::vector<std::uint8_t> rows;
    std::vector<std::uint64_t> heads;
    std::vector<std::uint32_t> tables, deleted, narrow_ids;
    std::unique_ptr<Tombstones> tombstones;
    std::vector<std::int64_t> ids;
    PrefixTree tree;

    OwnedTree(Rows unsorted, std::int32_t width, std::int64_t first_id, std::mt19937& random)
        : rows(unsorted.count * unsorted.bytes), heads(unsorted.count), ids(unsorted.count) {
        std::vector<std::int64_t> order(unsorted.count);
        argsort_rows(unsorted, order.data());
        for (std::size_t i = 0; i < unsorted.count; ++i) {
            const std::uint8_t* row = unsorted[static_cast<std::size_t>(order[i])];
            std::copy_n(row, unsorted.bytes, rows.data() + i * unsorted.bytes);
            heads[i] = load_big_endian(row, unsorted.bytes);
            ids[i] = first_id + order[i];
            if (random() % 5 == 0) deleted.push_back(static_cast<std::uint32_t>(i));
        }
        tables = build_prefix_tables(heads.data(), static_cast<std::uint32_t>(heads.size()), width);
        tree.rows = {rows.data(), unsorted.count, unsorted.bytes, static_cast<std::ptrdiff_t>(unsorted.bytes)};
        tree.heads = {heads.data(), heads.size()};
        tree.tables = {tables.data(), tables.size()};
        if (random() % 2 == 0) {
            narrow_ids.assign(ids.begin(), ids.end());
            tree.ids.narrow = {narrow_ids.data(), narrow_ids.size()};
        } else {
            tree.ids.wide = {ids.data(), ids.size()};
        }
        tree.width = width;
    }
    OwnedTree(const OwnedTree&) = delete;

    void remove() {
        tombstones = std::make_unique<Tombstones>(deleted, heads.size());
        tree.tombstones = tombstones.get();
    }
};

std::int32_t shared_bits(const std::uint8_t* a, const std::uint8_t* b, std::int32_t width) {
    std::int32_t i = 0;
    while (i < width && bit(a, static_cast<std::size_t>(i)) == bit(b, static_cast<std::size_t>(i))) ++i;
    return i;
}

// The paper's procedure: lengthen the prefix while enough items share it.
Neighborhood plain(Forest forest, const std::uint8_t* query, std::uint64_t size) {
    const std::int32_t width = forest.front().width;
    std::vector<std::int64_t> sharing(static_cast<std::size_t>(width) + 2);
    for (const PrefixTree& tree : forest)
        visit_live(tree, {0, tree.count()}, [&](std::uint32_t position) {
            ++sharing[static_cast<std::size_t>(shared_bits(tree.row(position), query, width))];
        });
    for (std::size_t length = sharing.size() - 1; length-- > 0;) sharing[length] += sharing[length + 1];
    std::int32_t length = 0;
    while (length < width && sharing[static_cast<std::size_t>(length) + 1] >= static_cast<std::int64_t>(size)) ++length;
    return {length, sharing[static_cast<std::size_t>(length)]};
}

void test_neighborhoods(std::int32_t width, std::size_t count, unsigned agree, std::mt19937& random) {
    std::vector<std::unique_ptr<OwnedTree>> owned;
    for (const std::size_t items : {count, count / 7, std::size_t{1}, std::size_t{0}}) {
        const Bits bits(items, static_cast<std::size_t>(width), random, agree);
        owned.push_back(std::make_unique<OwnedTree>(bits.rows, width, 10'000 * std::ssize(owned), random));
    }
    const Bits queries(11, static_cast<std::size_t>(width), random, agree);
    for (const bool removing : {false, true})
        for (const std::size_t trees : {1, 2, 4}) {
            std::vector<PrefixTree> forest;
            for (std::size_t t = 0; t < trees; ++t) {
                if (removing) owned[t]->remove();
                forest.push_back(owned[t]->tree);
            }
            for (const std::uint64_t size : {1u, 2u, 3u, 17u, 300u}) {
                std::vector<std::int32_t> lengths(11);
                std::vector<std::int64_t> counts(11);
                std::vector<Range> ranges(11 * trees);
                find_neighborhoods(forest, queries.rows, size, lengths.data(), counts.data(), ranges.data(), 2);
                for (std::size_t i = 0; i < 11; ++i) {
                    const Neighborhood expected = plain(forest, queries.rows[i], size);
                    CHECK(lengths[i] == expected.length && counts[i] == expected.count);
                    std::vector<std::int64_t> ids(static_cast<std::size_t>(counts[i]));
                    gather_ids(forest, ranges.data() + i * trees, ids.data());
                    std::sort(ids.begin(), ids.end());
                    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
                }
            }
            std::size_t live = 0;
            for (const PrefixTree& tree : forest) live += tree.live();
            std::vector<std::uint8_t> rows(live * forest[0].rows.bytes);
            std::vector<std::uint64_t> heads(live);
            std::vector<std::int64_t> ids(live), sources(live);
            merge_live(forest, rows.data(), heads.data(), ids.data(), sources.data());
            const std::size_t bytes = forest[0].rows.bytes;
            for (std::size_t i = 0; i < live; ++i) {
                std::size_t tree = 0;
                auto position = static_cast<std::uint32_t>(sources[i]);
                for (; position >= forest[tree].count(); ++tree) position -= forest[tree].count();
                CHECK(std::memcmp(forest[tree].row(position), rows.data() + i * bytes, bytes) == 0);
                CHECK(forest[tree].ids[forest[tree].row_of(position)] == ids[i]);
            }
            for (std::size_t i = 1; i < live; ++i)
                CHECK(std::memcmp(rows.data() + (i - 1) * bytes, rows.data() + i * bytes, bytes) <= 0);
        }
}

// Tables of a damaged file may hold any value: searches end, and their ranges stay within the tree.
void test_damaged_tables(std::mt19937& random) {
    const Bits bits(500, 100, random, 0), queries(8, 100, random, 0);
    OwnedTree owned(bits.rows, 100, 0, random);
    for (int round = 0; round < 300; ++round) {
        std::vector<std::uint32_t> damaged(owned.tables);
        for (int change = 0; change < 40; ++change) damaged[random() % damaged.size()] = random() >> random() % 32;
        if (round % 3 == 0) damaged[0] = random() % 40;
        owned.tree.tables = {damaged.data(), damaged.size()};
        const std::vector<PrefixTree> forest(1 + round % 2, owned.tree);
        for (const std::uint64_t size : {1u, 5u, 100u}) {
            std::vector<std::int32_t> lengths(8);
            std::vector<std::int64_t> counts(8);
            std::vector<Range> ranges(8 * forest.size());
            find_neighborhoods(forest, queries.rows, size, lengths.data(), counts.data(), ranges.data(), 1);
            for (const Range range : ranges) CHECK(range.begin <= range.end && range.end <= 500);
        }
    }
}

void test_guard(std::mt19937& random) {
    std::vector<std::uint8_t> data(3 * kBlockBytes + 17);
    for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(random());
    std::vector<std::uint64_t> checksums;
    for (std::size_t block = 0; block < block_count(data.size()); ++block)
        checksums.push_back(block_checksum(data.data(), data.size(), block));
    ChecksumGuard whole(data.data(), data.size(), checksums.data());
    whole.verify();
    CHECK(whole.first_damaged() == -1);
    for (const std::size_t place : {std::size_t{0}, kBlockBytes - 1, kBlockBytes, data.size() - 1}) {
        data[place] ^= 4;
        ChecksumGuard guard(data.data(), data.size(), checksums.data());
        const std::size_t other = place / kBlockBytes == 0 ? 2 * kBlockBytes : 0;
        guard.touch(data.data() + other, 100);
        CHECK(guard.first_damaged() == -1);
        guard.touch(data.data() + place, 1);
        CHECK(guard.first_damaged() == static_cast<std::int64_t>(place / kBlockBytes));
        whole.touch(data.data() + place, 1);  // it was verified before
        CHECK(whole.first_damaged() == -1);
        ChecksumGuard later(data.data(), data.size(), checksums.data());
        later.verify();
        CHECK(later.first_damaged() == static_cast<std::int64_t>(place / kBlockBytes));
        data[place] ^= 4;
    }
    for (const std::size_t block : {1, 3, 2}) data[block * kBlockBytes] ^= 1;
    ChecksumGuard verified(data.data(), data.size(), checksums.data());
    verified.verify();
    CHECK(verified.first_damaged() == 1);
    ChecksumGuard touched(data.data(), data.size(), checksums.data());
    for (const std::size_t block : {3, 1, 2}) touched.touch(data.data() + block * kBlockBytes, 1);
    CHECK(touched.first_damaged() == 1);
}

}  // namespace

int main() {
    std::mt19937 random(7);
    for (const std::int32_t width : {1, 3, 8, 63, 64, 65, 70, 200})
        for (const unsigned agree : {0u, 1u, 7u, 9u}) test_neighborhoods(width, 300, agree, random);
    test_neighborhoods(130, 3000, 0, random);
    test_damaged_tables(random);
    test_guard(random);
    std::puts("prefix_tree: ok");
}
