// What a search of a whole snapshot reads of objects that other files bind.
#pragma once

#include "arrays.hpp"
#include "nestcode/graph_search.hpp"
#include "nestcode/vector_rows.hpp"

// An object of the core; others are refused.
template <class Part>
Part& part_of(nb::handle object) {
    Part* part = nullptr;
    if (!nb::try_cast<Part*>(object, part) || part == nullptr)
        throw nb::type_error("searchers are made of other objects of the core");
    return *part;
}

struct SearchedLists {
    std::span<const nestcode::InvertedLists> segments;
    std::span<const std::uint32_t> sizes;
};

SearchedLists lists_of(nb::handle searcher);                     // search.cpp
nestcode::SearchedGraph graph_of(nb::handle graph);              // graph.cpp
const nestcode::VectorRuns& vector_runs_of(nb::handle vectors);  // vectors.cpp
