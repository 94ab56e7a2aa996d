// Search among the cells of an index: nestcode/index/search.py.
#include "nestcode/search.hpp"

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"

namespace {

using Floats = Array<const float, 2>;

// Items in the order of their codes, with the arrays that this looks at.
struct PyPart {
    Packed rows;
    Vec<std::uint32_t> starts;
    Array<const std::uint8_t, 3> blocks;
    Vec<std::uint32_t> block_starts;
    Vec<std::int16_t> biases;
    Vec<float> norms;
    std::unique_ptr<nestcode::Removed> skipped;
    nestcode::SearchPart part;

    PyPart(Packed given_rows, Vec<std::uint32_t> given_starts, const Vec<std::uint32_t>& dead,
           Array<const std::uint8_t, 3> given_blocks, Vec<std::uint32_t> given_block_starts,
           Vec<std::int16_t> given_biases, float unit, Vec<float> given_norms)
        : rows(std::move(given_rows)),
          starts(std::move(given_starts)),
          blocks(std::move(given_blocks)),
          block_starts(std::move(given_block_starts)),
          biases(std::move(given_biases)),
          norms(std::move(given_norms)) {
        const std::size_t count = rows.shape(0);
        if (starts.size() < 2 || starts(0) != 0 || starts(starts.size() - 1) != count ||
            !std::is_sorted(starts.data(), starts.data() + starts.size()))
            throw nb::value_error("cells must begin in order, and end with the rows");
        check_blocks(unit);
        if (norms.size() != 0 && norms.size() != count) throw nb::value_error("there must be a norm for each row");
        for (std::size_t i = 0; i < dead.size(); ++i)
            if (dead(i) >= count || (i > 0 && dead(i) <= dead(i - 1)))
                throw nb::value_error("skipped places must be ascending, and within the rows");
        if (dead.size() != 0) skipped = std::make_unique<nestcode::Removed>(std::span(dead.data(), dead.size()), count);
        part = {rows_of(rows), starts.data(), {}, norms.size() != 0 ? norms.data() : nullptr, skipped.get()};
        if (block_starts.size() != 0)
            part.blocks = {block_starts.data(), block_starts.size(), blocks.data(),
                           biases.data(),       blocks.shape(1),     unit};
    }

  private:
    void check_blocks(float unit) const {
        const std::size_t coarse = block_starts.size(), cells = starts.size() - 1;
        if (coarse == 0) return;
        if (!(unit >= 0) || !std::isfinite(unit))
            throw nb::value_error("the unit of the biases must be finite and not negative");
        if (blocks.shape(2) != nestcode::block_items || biases.size() != blocks.shape(0) * nestcode::block_items)
            throw nb::value_error("blocks hold 32 items each, and a bias for each");
        if (!std::has_single_bit(coarse) || !std::has_single_bit(cells) || coarse > cells)
            throw nb::value_error("cells must divide the coarse ones");
        for (std::size_t c = 0; c < coarse; ++c) {
            const std::size_t items = starts((c + 1) * (cells / coarse)) - starts(c * (cells / coarse));
            if (block_starts(c) + (items + nestcode::block_items - 1) / nestcode::block_items > blocks.shape(0))
                throw nb::value_error("there must be a block for each item of a cell");
        }
    }
};

struct Outputs {
    Array<float, 2> scores;
    Array<std::uint32_t, 2> places;
    Vector compared;
};

struct PySearcher {
    std::vector<nb::object> owners;
    std::vector<nestcode::SearchPart> parts;
    std::vector<std::uint32_t> sizes;  // of the cells

    explicit PySearcher(const std::vector<nb::object>& given) : owners(given) {
        std::size_t total = 0;
        for (const nb::object& object : given) {
            const PyPart& one = nb::cast<PyPart&>(object);
            if (sizes.empty()) sizes.resize(one.starts.size() - 1);
            if (one.starts.size() != sizes.size() + 1) throw nb::value_error("parts must have the same cells");
            parts.push_back(one.part);
            parts.back().offset = static_cast<std::uint32_t>(total);
            total += one.part.rows.count;
            if (total >= UINT32_MAX) throw nb::value_error("less than 2^32 items can be searched at once");
            for (std::size_t c = 0; c < sizes.size(); ++c) sizes[c] += one.part.alive(one.part.range(c, c + 1));
        }
        if (parts.empty()) throw nb::value_error("there must be a part");
    }

    nestcode::Found checked(std::size_t count, const Outputs& out) const {
        const std::size_t keep = out.scores.shape(1);
        if (keep == 0) throw nb::value_error("at least one hit must be kept");
        const auto fits = [&](const auto& array) { return array.shape(0) == count && array.shape(1) == keep; };
        if (!fits(out.scores) || !fits(out.places) || out.compared.size() != count)
            throw nb::value_error("there must be room for the hits of each query");
        return {keep, out.scores.data(), out.places.data(), out.compared.data()};
    }

    template <class DistancesOf, class RankingOf>
    void search(std::size_t queries, std::uint64_t candidates, int fine, const nestcode::Found& found,
                std::size_t threads, const DistancesOf& distances_of, const RankingOf& ranking_of) const {
        nb::gil_scoped_release released;
        nestcode::search(parts, sizes, queries, candidates, fine, found, threads, distances_of, ranking_of);
    }
};

// What SumCells reads.
struct PyCells {
    Floats products, rest;
    Vec<float> offsets;
    Floats scales, shifts;

    std::size_t count() const { return products.shape(0); }

    nestcode::SumCells checked(const PySearcher& searcher) const {
        const std::size_t coarse = products.shape(1), fine = rest.shape(1);
        if (rest.shape(0) != count() || offsets.size() != count() || !std::has_single_bit(coarse) ||
            !std::has_single_bit(fine) || coarse * fine != searcher.sizes.size())
            throw nb::value_error("there must be products for each query and each part of a cell's bits");
        for (const Floats* numbers : {&scales, &shifts})
            if (numbers->shape(0) != coarse || numbers->shape(1) != fine)
                throw nb::value_error("there must be a scale and a shift for each cell");
        return {products.data(), rest.data(), offsets.data(), scales.data(), shifts.data(), coarse, fine};
    }
};

// What the half bytes of codes stand for.
struct PyGroups {
    std::vector<nestcode::ScanGroup> groups;
    Floats parents;

    PyGroups(const Array<const std::int32_t, 2>& owners, const Array<const float, 3>& numbers, Floats given)
        : groups(owners.shape(0)), parents(std::move(given)) {
        if (owners.shape(1) != 4 || numbers.shape(0) != owners.shape(0) || numbers.shape(1) != 4 ||
            numbers.shape(2) != 16)
            throw nb::value_error("a group has up to four directions, with 16 numbers each");
        if (groups.size() > 256) throw nb::value_error("there may be at most 256 groups");
        if (!std::has_single_bit(parents.shape(0))) throw nb::value_error("parents must divide the cells");
        for (std::size_t g = 0; g < groups.size(); ++g)
            for (std::size_t j = 0; j < 4; ++j) {
                groups[g].directions[j] = owners(g, j);
                if (owners(g, j) >= static_cast<std::int32_t>(parents.shape(1)))
                    throw nb::value_error("parents must have all directions");
                std::memcpy(groups[g].numbers[j], &numbers(g, j, 0), sizeof groups[g].numbers[j]);
            }
    }
};

void search_blocks(const PySearcher& self, const PyCells& cells, const Vec<float>& norms, const Floats& queries,
                   const PyGroups& groups, bool inner, std::uint64_t candidates, const Outputs& out,
                   std::size_t threads, std::string_view simd) {
    const nestcode::Found found = self.checked(cells.count(), out);
    const nestcode::SumCells distances = cells.checked(self);
    const std::size_t planes = (groups.groups.size() + 1) / 2, directions = groups.parents.shape(1);
    float unit = 0;
    for (const nestcode::SearchPart& part : self.parts) {
        if (part.blocks.coarse != distances.coarse || part.blocks.planes != planes)
            throw nb::value_error("parts must have such groups");
        unit = std::max(unit, part.blocks.unit);
    }
    for (const nestcode::SearchPart& part : self.parts)
        if (part.rows.count != 0 && part.blocks.unit != unit) throw nb::value_error("parts must have one unit");
    if (queries.shape(0) != cells.count() || queries.shape(1) != directions || norms.size() != distances.coarse ||
        groups.parents.shape(0) > distances.coarse)
        throw nb::value_error("there must be a number for each direction, and a norm for each coarse cell");
    const int below = std::countr_zero(distances.coarse) - std::countr_zero(groups.parents.shape(0));
    const nestcode::ScanKernel kernel = nestcode::scan_kernel(nestcode::choose_simd(simd));
    self.search(cells.count(), candidates, std::countr_zero(distances.fine), found, threads, distances,
                [&](std::size_t q) {
                    return nestcode::ScanRanking{kernel,
                                                 &groups.groups,
                                                 queries.data() + q * directions,
                                                 directions,
                                                 inner ? nullptr : groups.parents.data(),
                                                 below,
                                                 unit,
                                                 inner,
                                                 distances.products + q * distances.coarse,
                                                 norms.data()};
                });
}

void search_tables(const PySearcher& self, const PyCells& cells, const Array<const float, 3>& tables, bool inner,
                   std::uint64_t candidates, const Outputs& out, std::size_t threads) {
    const nestcode::Found found = self.checked(cells.count(), out);
    const std::size_t bytes = tables.shape(1);
    if (tables.shape(0) != cells.count() || tables.shape(2) != 256)
        throw nb::value_error("there must be tables of 256 entries for each query");
    for (const nestcode::SearchPart& part : self.parts)
        if (part.rows.bytes < bytes || (part.rows.count != 0 && part.norms == nullptr))
            throw nb::value_error("rows must have a byte for each table, and norms");
    self.search(cells.count(), candidates, 0, found, threads, cells.checked(self),
                [&](std::size_t q) { return nestcode::TableRanking{tables.data() + q * bytes * 256, bytes, inner}; });
}

void search_hamming(const PySearcher& self, const Packed& queries, std::uint64_t candidates, const Outputs& out,
                    std::size_t threads, std::string_view simd) {
    const nestcode::Rows rows = rows_of(queries);
    const nestcode::Found found = self.checked(rows.count, out);
    const int bits = std::countr_zero(self.sizes.size());
    for (const nestcode::SearchPart& part : self.parts)
        if (part.rows.bytes != rows.bytes || static_cast<std::size_t>(bits) > 8 * rows.bytes)
            throw nb::value_error("queries must be as wide as the rows, and a cell no wider");
    if (!std::has_single_bit(self.sizes.size())) throw nb::value_error("there must be a cell for each prefix");
    const nestcode::HammingKernel kernel = nestcode::hamming_kernel(nestcode::choose_simd(simd));
    self.search(rows.count, candidates, 0, found, threads, nestcode::BitCells{rows, bits},
                [&](std::size_t q) { return nestcode::HammingRanking{kernel, rows[q]}; });
}

void rescore(const Floats& vectors, const Floats& queries, const Array<const std::int64_t, 2>& items,
             std::string_view metric, const Array<float, 2>& out, std::size_t threads, const Vec<float>& shift,
             float square, const Vec<float>& products) {
    if (queries.shape(1) != vectors.shape(1) || items.shape(0) != queries.shape(0) || out.shape(0) != items.shape(0) ||
        out.shape(1) != items.shape(1))
        throw nb::value_error("there must be items and room for each query, and as many features");
    if ((shift.size() != 0 && shift.size() != vectors.shape(1)) ||
        (products.size() != 0 && products.size() != queries.shape(0)))
        throw nb::value_error("there must be a shift for each feature, and a product for each query");
    for (std::size_t i = 0; i < items.size(); ++i)
        if (items.data()[i] >= static_cast<std::int64_t>(vectors.shape(0)))
            throw nb::value_error("items must be rows of the vectors");
    const nestcode::Metric by = nestcode::metric_named(metric);
    const nestcode::Outside outside{shift.size() != 0 ? shift.data() : nullptr, square,
                                    products.size() != 0 ? products.data() : nullptr};
    nb::gil_scoped_release released;
    nestcode::rescore(vectors.data(), vectors.shape(1), queries.data(), queries.shape(0), items.data(), items.shape(1),
                      by, outside, out.data(), threads);
}

void take_nearest(const Floats& distances, const Array<const std::int64_t, 2>& ids, const Array<float, 2>& near,
                  const Array<std::int64_t, 2>& near_ids, std::size_t threads) {
    const std::size_t count = distances.shape(0), k = near.shape(1);
    if ((ids.shape(0) != count && ids.shape(0) != 1) || ids.shape(1) != distances.shape(1) || near.shape(0) != count ||
        near_ids.shape(0) != count || near_ids.shape(1) != k || k == 0)
        throw nb::value_error("there must be an id for each distance, and room for each query");
    nb::gil_scoped_release released;
    nestcode::take_nearest(distances.data(), ids.data(), ids.shape(0) != count, count, ids.shape(1), k, near.data(),
                           near_ids.data(), threads);
}

void fill_blocks(const Packed& cells, const Vec<std::uint32_t>& places, const Array<std::uint8_t, 3>& out) {
    if (places.size() != cells.shape(0) || out.shape(1) != cells.shape(1) || out.shape(2) != nestcode::block_items)
        throw nb::value_error("there must be a place for each row, and blocks of 32 as wide");
    for (std::size_t i = 0; i < places.size(); ++i)
        if (places(i) >= out.shape(0) * nestcode::block_items) throw nb::value_error("places must be in the blocks");
    const nestcode::Rows rows = rows_of(cells);
    nb::gil_scoped_release released;
    nestcode::fill_blocks(rows, places.data(), out.data());
}

}  // namespace

void add_search(nb::module_& m) {
    nb::class_<PyPart>(m, "SearchPart", "Items in the order of their codes, and what ranking needs of them.")
        .def(nb::init<Packed, Vec<std::uint32_t>, const Vec<std::uint32_t>&, Array<const std::uint8_t, 3>,
                      Vec<std::uint32_t>, Vec<std::int16_t>, float, Vec<float>>(),
             "rows"_a.noconvert(), "starts"_a.noconvert(), "skipped"_a.noconvert(), "blocks"_a.noconvert(),
             "block_starts"_a.noconvert(), "biases"_a.noconvert(), "unit"_a, "norms"_a.noconvert());
    nb::class_<PyGroups>(m, "ScanGroups", "What the half bytes of codes stand for.")
        .def(nb::init<const Array<const std::int32_t, 2>&, const Array<const float, 3>&, Floats>(),
             "directions"_a.noconvert(), "numbers"_a.noconvert(), "parents"_a.noconvert());
    nb::class_<Outputs>(m, "SearchOutputs", "Where a search writes.")
        .def(nb::init<Array<float, 2>, Array<std::uint32_t, 2>, Vector>(), "scores"_a.noconvert(),
             "places"_a.noconvert(), "compared"_a.noconvert());
    nb::class_<PyCells>(m, "SumCells", "How far cells are from queries, by inner products.")
        .def(nb::init<Floats, Floats, Vec<float>, Floats, Floats>(), "products"_a.noconvert(), "rest"_a.noconvert(),
             "offsets"_a.noconvert(), "scales"_a.noconvert(), "shifts"_a.noconvert());
    nb::class_<PySearcher>(m, "Searcher", "Parts that are searched as one.")
        .def(nb::init<const std::vector<nb::object>&>(), "parts"_a)
        .def("blocks", search_blocks, "cells"_a, "norms"_a.noconvert(), "queries"_a.noconvert(), "groups"_a, "inner"_a,
             "candidates"_a, "out"_a, "threads"_a = 1, "simd"_a = "",
             "Write the hits of smallest rough distance, by half bytes.")
        .def("tables", search_tables, "cells"_a, "tables"_a.noconvert(), "inner"_a, "candidates"_a, "out"_a,
             "threads"_a = 1, "Write the hits of smallest sum, by one table a byte.")
        .def("hamming", search_hamming, "queries"_a.noconvert(), "candidates"_a, "out"_a, "threads"_a = 1,
             "simd"_a = "", "Write the hits that differ in fewest bits.");
    m.def("rescore", rescore, "vectors"_a.noconvert(), "queries"_a.noconvert(), "items"_a.noconvert(), "metric"_a,
          "out"_a.noconvert(), "threads"_a, "shift"_a.noconvert(), "square"_a, "products"_a.noconvert(),
          "Write how far some rows are from each query; the last three say what is outside of the features.");
    m.def("take_nearest", take_nearest, "distances"_a.noconvert(), "ids"_a.noconvert(), "near"_a.noconvert(),
          "near_ids"_a.noconvert(), "threads"_a = 1, "Write the nearest items of each query, nearest first.");
    m.def("fill_blocks", fill_blocks, "cells"_a.noconvert(), "places"_a.noconvert(), "out"_a.noconvert(),
          "Lay half bytes of items out in blocks of 32.");
}
