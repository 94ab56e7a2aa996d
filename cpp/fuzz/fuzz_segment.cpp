// Arrays of segments, where checksums are valid and contents are not: searches end, and stay within the arrays.
#include <numeric>

#include "input.hpp"
#include "nestcode/merge.hpp"

namespace {

struct Segment {
    std::vector<std::uint8_t> rows;
    std::vector<std::uint64_t> heads;
    std::vector<std::uint32_t> tables, order;
    std::vector<std::int64_t> ids;
    std::unique_ptr<Tombstones> tombstones;
    PrefixTree tree;

    Segment(Input& input, std::int32_t width) {
        const std::size_t count = input.number(200), bytes = static_cast<std::size_t>(width + 7) / 8;
        rows = input.values<std::uint8_t>(count * bytes);
        heads = input.values<std::uint64_t>(count);
        for (std::size_t i = 0; i < count && input.number(3); ++i) heads[i] = load_big_endian(&rows[i * bytes], bytes);
        if (input.number(1)) std::sort(heads.begin(), heads.end());
        ids = input.values<std::int64_t>(count);
        tables = build_prefix_tables(heads.data(), static_cast<std::uint32_t>(count), width);
        if (input.number(1)) tables = input.values<std::uint32_t>(table_size(0) + input.number(400));
        for (std::size_t change = input.number(20); change-- > 0;)
            tables[input.number(tables.size() - 1)] = input.values<std::uint32_t>(1)[0];
        if (input.number(1)) {
            order.resize(count);
            for (std::uint32_t& row : order) row = static_cast<std::uint32_t>(input.number(count - 1));
        }
        std::vector<std::uint32_t> deleted;
        for (std::uint32_t i = 0; i < count; ++i)
            if (input.number(7) == 1) deleted.push_back(i);
        tombstones = std::make_unique<Tombstones>(deleted, count);
        tree.rows = {rows.data(), count, bytes, static_cast<std::ptrdiff_t>(bytes)};
        tree.heads = {heads.data(), count};
        tree.tables = {tables.data(), tables.size()};
        tree.order = {order.data(), order.size()};
        tree.ids.wide = {ids.data(), count};
        tree.width = width;
        if (!deleted.empty()) tree.tombstones = tombstones.get();
    }
    Segment(const Segment&) = delete;
};

void find_neighborhoods_of(Input& input, Forest forest, std::size_t bytes) {
    constexpr std::size_t count = 5;
    const std::vector<std::uint8_t> queries = input.values<std::uint8_t>(count * bytes);
    std::int32_t lengths[count];
    std::int64_t counts[count];
    std::vector<Range> ranges(count * forest.size());
    find_neighborhoods(forest, {queries.data(), count, bytes, static_cast<std::ptrdiff_t>(bytes)}, 1 + input.number(50),
                       lengths, counts, ranges.data(), 1);
    for (std::size_t q = 0; q < count; ++q) {
        CHECK(lengths[q] >= 0 && lengths[q] <= forest.front().width);
        std::size_t live = 0;
        for (std::size_t t = 0; t < forest.size(); ++t) {
            const Range range = ranges[q * forest.size() + t];
            CHECK(range.begin <= range.end && range.end <= forest[t].count());
            live += forest[t].live(range);
        }
        std::vector<std::int64_t> ids(live);
        CHECK(gather_ids(forest, &ranges[q * forest.size()], ids.data()) == ids.data() + live);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    Input input(bytes, size);
    const auto width = static_cast<std::int32_t>(1 + input.number(199));
    const Segment first(input, width), second(input, width);
    const std::vector<PrefixTree> forest = {first.tree, second.tree};
    find_neighborhoods_of(input, {forest.data(), 1 + input.number(1)}, first.tree.rows.bytes);

    const std::size_t live = first.tree.live() + second.tree.live();
    std::vector<std::uint8_t> rows(live * first.tree.rows.bytes);
    std::vector<std::uint64_t> heads(live);
    std::vector<std::int64_t> ids(live), sources(live), found(5);
    merge_live(forest, rows.data(), heads.data(), ids.data(), sources.data());

    const std::int32_t length = static_cast<std::int32_t>(input.number(std::min<std::size_t>(10, width)));
    std::vector<std::uint32_t> starts((std::size_t{1} << length) + 1);
    first.tree.find_starts(length, starts.data());

    const std::vector<std::uint32_t> by_id = input.values<std::uint32_t>(first.ids.size());
    const std::vector<std::int64_t> wanted = input.values<std::int64_t>(found.size());
    if (!by_id.empty())
        find_ids(first.tree.ids, {by_id.data(), by_id.size()}, wanted.data(), wanted.size(), found.data());
    return 0;
}
