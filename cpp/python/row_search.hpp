// What a search of a whole snapshot reads of objects that other files bind.
#pragma once

#include "arrays.hpp"
#include "nestcode/row_search.hpp"
#include "nestcode/vector_rows.hpp"

// An object of the core; others are refused.
template <class Part>
Part& part_of(nb::handle object) {
    Part* part = nullptr;
    if (!nb::try_cast<Part*>(object, part) || part == nullptr)
        throw nb::type_error("searchers are made of other objects of the core");
    return *part;
}

// What a search may return, and the lists that it is of: None without.
struct SelectedItems {
    const nestcode::Selection& items;
    nb::handle lists;
};

std::span<const nestcode::InvertedLists> segments_of(nb::handle lists);  // search.cpp
std::size_t number_of_lists(nb::handle lists);                           // search.cpp
SelectedItems selection_of(nb::handle selection);                        // search.cpp
nestcode::SearchedGraph graph_of(nb::handle graph);                      // graph.cpp
const nestcode::NodeBlocks& node_blocks_of(nb::handle blocks);           // vectors.cpp
const nestcode::VectorRows& vector_rows_of(nb::handle vectors);          // vectors.cpp
const nestcode::VectorRuns& vector_runs_of(nb::handle vectors);          // vectors.cpp
const nestcode::RowProjection& projection_of(nb::handle projection);     // row_search.cpp
