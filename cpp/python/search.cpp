// Inverted lists, the items of them that a search may return, and top-k selection: nestcode/search.
#include "nestcode/search.hpp"

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "fastscan_groups.hpp"
#include "row_search.hpp"
#include "storage.hpp"
#include "views.hpp"

namespace {

// The inverted lists of one segment, with the arrays that they refer to.
struct PyInvertedLists {
    Packed codes;
    Vec<std::uint32_t> starts;
    Array<const std::uint8_t, 3> blocks;
    Vec<std::uint32_t> block_starts;
    Vec<std::int16_t> biases;
    Vec<float> norms;
    nestcode::InvertedLists lists;

    PyInvertedLists(Packed given_codes, Vec<std::uint32_t> given_starts, Array<const std::uint8_t, 3> given_blocks,
                    Vec<std::uint32_t> given_block_starts, Vec<std::int16_t> given_biases, float bias_unit,
                    Vec<float> given_norms, PyChecksumGuard* codes_guard, PyChecksumGuard* blocks_guard,
                    PyChecksumGuard* biases_guard, PyChecksumGuard* norms_guard)
        : codes(std::move(given_codes)),
          starts(std::move(given_starts)),
          blocks(std::move(given_blocks)),
          block_starts(std::move(given_block_starts)),
          biases(std::move(given_biases)),
          norms(std::move(given_norms)) {
        const std::size_t count = codes.shape(0);
        if (starts.size() < 2 || starts(0) != 0 || starts(starts.size() - 1) != count ||
            !std::is_sorted(starts.data(), starts.data() + starts.size()))
            throw nb::value_error("the starts of lists must ascend from 0 to the number of codes");
        check_blocks(bias_unit);
        const bool scanned = block_starts.size() != 0;
        if (norms.size() != 0 && norms.size() != (scanned ? biases.size() : count))
            throw nb::value_error("there must be a norm for each code, or for each item of the blocks");
        const float* const own_norms = norms.size() != 0 ? norms.data() : nullptr;
        lists = {rows_of(codes), starts.data(), {}, scanned ? nullptr : own_norms};
        if (scanned)
            lists.blocks = {block_starts.data(), block_starts.size(), blocks.data(), biases.data(),
                            blocks.shape(1),     bias_unit,           own_norms};
        lists.guards = {guard_of(codes_guard, codes.data(), count * codes.shape(1)),
                        guard_of(blocks_guard, blocks.data(), blocks.nbytes()),
                        guard_of(biases_guard, biases.data(), biases.nbytes()),
                        guard_of(norms_guard, norms.data(), norms.nbytes())};
    }

  private:
    void check_blocks(float bias_unit) const {
        const std::size_t centroids = block_starts.size(), count = starts.size() - 1;
        if (centroids == 0) return;
        if (!(bias_unit >= 0) || !std::isfinite(bias_unit))
            throw nb::value_error("bias_unit must be finite and not negative");
        if (blocks.shape(2) != nestcode::kBlockItems || biases.size() != blocks.shape(0) * nestcode::kBlockItems)
            throw nb::value_error("blocks must have 32 items each, and biases one value for each item");
        if (!std::has_single_bit(centroids) || !std::has_single_bit(count) || centroids > count)
            throw nb::value_error("the numbers of centroids and lists must be powers of two, and lists no fewer");
        for (std::size_t c = 0; c < centroids; ++c) {
            const std::size_t items = starts((c + 1) * (count / centroids)) - starts(c * (count / centroids));
            if (block_starts(c) + (items + nestcode::kBlockItems - 1) / nestcode::kBlockItems > blocks.shape(0))
                throw nb::value_error("there must be blocks for all items of a centroid");
        }
    }
};

// The lists of all segments, which are searched as one.
struct PyLists {
    std::vector<nb::object> owners;
    std::vector<nestcode::InvertedLists> segments;
    std::size_t count = 0;  // lists

    explicit PyLists(const std::vector<nb::object>& given) : owners(given) {
        std::size_t total = 0;
        for (const nb::object& object : given) {
            const PyInvertedLists& one = nb::cast<PyInvertedLists&>(object);
            if (count == 0) count = one.starts.size() - 1;
            if (one.starts.size() != count + 1) throw nb::value_error("segments must have the same lists");
            segments.push_back(one.lists);
            segments.back().offset = static_cast<std::uint32_t>(total);
            total += one.lists.codes.count;
            if (total >= UINT32_MAX) throw nb::value_error("segments must have less than 2^32 items together");
        }
        if (segments.empty()) throw nb::value_error("there must be at least one segment");
    }
};

// The items that a search may return: a bitmap of each run, those in lists first; an empty one allows all items.
struct PySelection {
    nb::object lists;
    std::vector<Vec<std::uint64_t>> bitmaps;
    nestcode::Selection items;

    PySelection(nb::object given, std::vector<Vec<std::uint64_t>> given_bitmaps)
        : lists(std::move(given)), bitmaps(std::move(given_bitmaps)) {
        std::size_t run = 0;
        if (!lists.is_none()) run = add_lists(part_of<PyLists>(lists));
        for (; run < bitmaps.size(); ++run) items.graphs.emplace_back(bitmaps[run].data(), bitmaps[run].size());
    }

    std::size_t add_lists(const PyLists& own) {
        if (bitmaps.size() < own.segments.size()) throw nb::value_error("there must be a bitmap for each segment");
        items.segments = own.segments;
        items.list_sizes.resize(own.count);
        for (std::size_t s = 0; s < items.segments.size(); ++s) {
            nestcode::InvertedLists& one = items.segments[s];
            if (bitmaps[s].size() != 0 && bitmaps[s].size() * 64 < one.codes.count)
                throw nb::value_error("a bitmap must have a bit for each item");
            if (bitmaps[s].size() != 0) one.allowed.words = bitmaps[s].data();
            for (std::size_t i = 0; i < own.count; ++i) items.list_sizes[i] += one.allowed.count(one.range(i, i + 1));
        }
        return items.segments.size();
    }
};

// Writes the items whose ids are set in a bitmap by id.
void select_ids(const AnyView<1>& ids, const View<const std::uint8_t, 1>& by_id, std::size_t size,
                const View<std::uint64_t, 1>& words) {
    if (by_id.size() * 8 < size || words.size() * 64 < ids.size())
        throw nb::value_error("a bitmap must have a bit for each id, and for each item");
    const auto select = [&](const auto* own) {
        nb::gil_scoped_release released;
        nestcode::select_ids(own, ids.size(), by_id.data(), size, words.data());
    };
    if (ids.holds<std::uint32_t>()) return select(static_cast<const std::uint32_t*>(ids.data()));
    if (ids.holds<std::int64_t>()) return select(static_cast<const std::int64_t*>(ids.data()));
    throw nb::value_error("ids must be uint32 or int64");
}

void select_top_k(const Mat<float>& distances, const Mat<std::int64_t>& ids, const Array<float, 2>& top_distances,
                  const Array<std::int64_t, 2>& top_ids, std::size_t threads) {
    const std::size_t queries = distances.shape(0), k = top_distances.shape(1);
    if ((ids.shape(0) != queries && ids.shape(0) != 1) || ids.shape(1) != distances.shape(1) ||
        top_distances.shape(0) != queries || top_ids.shape(0) != queries || top_ids.shape(1) != k || k == 0)
        throw nb::value_error("there must be an id for each distance, and room for each query");
    nb::gil_scoped_release released;
    nestcode::select_top_k(distances.data(), ids.data(), ids.shape(0) != queries, queries, ids.shape(1), k,
                           top_distances.data(), top_ids.data(), threads);
}

void correct_items(const PyFastScanGroups& self, const Packed& grouped, const Vec<std::int64_t>& owners,
                   const Vec<std::uint32_t>& slots, const Mat<float>& centroids, const Mat<float>& offsets,
                   const Vec<float>& mean, const Vec<double>& squares, float bias_unit,
                   const Array<std::int16_t, 1>& biases, const Array<float, 1>& norms, std::size_t threads) {
    const nestcode::Rows rows = rows_of(grouped);
    const std::size_t directions = self.parents.shape(1);
    if (rows.bytes != (self.groups.size() + 1) / 2 || owners.size() != rows.count || slots.size() != rows.count)
        throw nb::value_error("there must be a centroid and a slot for each item of these groups");
    if (centroids.shape(1) != directions || offsets.shape(0) != centroids.shape(0) || offsets.shape(1) != directions)
        throw nb::value_error("centroids and their offsets must have all directions");
    const bool by_angle = squares.size() != 0;
    if (by_angle && (mean.size() != directions || squares.size() != centroids.shape(0)))
        throw nb::value_error("the mean must have all directions, and each centroid a squared norm");
    for (std::size_t i = 0; i < rows.count; ++i)
        if (slots(i) >= biases.size() || (by_angle && slots(i) >= norms.size()) || owners(i) < 0 ||
            static_cast<std::size_t>(owners(i)) >= centroids.shape(0))
            throw nb::value_error("slots must lie in the biases and norms, and items have one of the centroids");
    const nestcode::ItemCorrections with{
        centroids.data(), offsets.data(), mean.data(), by_angle ? squares.data() : nullptr, directions, bias_unit};
    nb::gil_scoped_release released;
    nestcode::correct_items(self.groups, rows, owners.data(), slots.data(), with, biases.data(), norms.data(), threads);
}

void sum_group_tables(const Packed& grouped, const Mat<double>& tables, const Array<double, 1>& out,
                      std::size_t threads) {
    if (tables.shape(1) != 16 || (tables.shape(0) + 1) / 2 != grouped.shape(1) || out.size() != grouped.shape(0))
        throw nb::value_error("there must be a table of 16 entries for each group, and room for each item");
    const nestcode::Rows rows = rows_of(grouped);
    nb::gil_scoped_release released;
    nestcode::sum_group_tables(rows, tables.data(), tables.shape(0), out.data(), threads);
}

void pack_blocks(const Packed& grouped, const Vec<std::uint32_t>& slots, const Array<std::uint8_t, 3>& out) {
    if (slots.size() != grouped.shape(0) || out.shape(1) != grouped.shape(1) || out.shape(2) != nestcode::kBlockItems)
        throw nb::value_error("there must be a slot for each row, and blocks of 32 items with as many bytes");
    for (std::size_t i = 0; i < slots.size(); ++i)
        if (slots(i) >= out.shape(0) * nestcode::kBlockItems) throw nb::value_error("slots must lie in the blocks");
    const nestcode::Rows rows = rows_of(grouped);
    nb::gil_scoped_release released;
    nestcode::pack_blocks(rows, slots.data(), out.data());
}

}  // namespace

std::span<const nestcode::InvertedLists> segments_of(nb::handle lists) {
    return part_of<PyLists>(lists).segments;
}

std::size_t number_of_lists(nb::handle lists) {
    return part_of<PyLists>(lists).count;
}

SelectedItems selection_of(nb::handle selection) {
    const PySelection& self = part_of<PySelection>(selection);
    return {self.items, self.lists};
}

void add_search(nb::module_& m) {
    nb::class_<PyInvertedLists>(m, "InvertedLists", "The inverted lists of one segment: sorted codes and scorer data.")
        .def(nb::init<Packed, Vec<std::uint32_t>, Array<const std::uint8_t, 3>, Vec<std::uint32_t>, Vec<std::int16_t>,
                      float, Vec<float>, PyChecksumGuard*, PyChecksumGuard*, PyChecksumGuard*, PyChecksumGuard*>(),
             "codes"_a.noconvert(), "starts"_a.noconvert(), "blocks"_a.noconvert(), "block_starts"_a.noconvert(),
             "biases"_a.noconvert(), "bias_unit"_a, "norms"_a.noconvert(), "codes_guard"_a.none() = nb::none(),
             "blocks_guard"_a.none() = nb::none(), "biases_guard"_a.none() = nb::none(),
             "norms_guard"_a.none() = nb::none());
    nb::class_<PyFastScanGroups>(m, "FastScanGroups", "The 4-bit groups of codes, and what their values decode to.")
        .def(nb::init<const Mat<std::int32_t>&, const Array<const float, 3>&, Mat<float>>(), "directions"_a.noconvert(),
             "levels"_a.noconvert(), "parents"_a.noconvert())
        .def("correct_items", correct_items, "grouped"_a.noconvert(), "owners"_a.noconvert(), "slots"_a.noconvert(),
             "centroids"_a.noconvert(), "offsets"_a.noconvert(), "mean"_a.noconvert(), "squares"_a.noconvert(),
             "bias_unit"_a, "biases"_a.noconvert(), "norms"_a.noconvert(), "threads"_a = 1,
             "Write the biases and norms of grouped items into their slots.");
    nb::class_<PyLists>(m, "Lists", "The inverted lists of several segments, which are searched as one.")
        .def(nb::init<const std::vector<nb::object>&>(), "segments"_a)
        .def_prop_ro(
            "damaged",
            [](const PyLists& self) {
                return std::ranges::any_of(self.segments, [](const auto& lists) { return lists.guards.damaged(); });
            },
            "Whether a search read from a damaged block: its results must be discarded.");
    nb::class_<PySelection>(m, "Selection", "The items that a search may return, by a bitmap of each run.")
        .def(nb::init<nb::object, std::vector<Vec<std::uint64_t>>>(), "lists"_a.none(), "bitmaps"_a);
    m.def("select_ids", select_ids, "ids"_a, "by_id"_a, "size"_a, "words"_a,
          "Write the bitmap of the items whose ids are set in a bitmap by id.");
    m.def("select_top_k", select_top_k, "distances"_a.noconvert(), "ids"_a.noconvert(), "top_distances"_a.noconvert(),
          "top_ids"_a.noconvert(), "threads"_a = 1, "Write the k nearest items of each query, nearest first.");
    m.def("sum_group_tables", sum_group_tables, "grouped"_a.noconvert(), "tables"_a.noconvert(), "out"_a.noconvert(),
          "threads"_a = 1, "Write the sums of the table entries that 4-bit groups select.");
    m.def("pack_blocks", pack_blocks, "grouped"_a.noconvert(), "slots"_a.noconvert(), "out"_a.noconvert(),
          "Write grouped codes into the slots of fast-scan blocks.");
}
