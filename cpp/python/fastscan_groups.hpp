// The groups of 4-bit fast-scan, shared by searches over inverted lists and over graphs.
#pragma once

#include "arrays.hpp"
#include "nestcode/fastscan.hpp"

struct PyFastScanGroups {
    std::vector<nestcode::FastScanGroup> groups;
    Mat<float> parents;

    PyFastScanGroups(const Mat<std::int32_t>& directions, const Array<const float, 3>& levels, Mat<float> given)
        : groups(directions.shape(0)), parents(std::move(given)) {
        if (directions.shape(1) != 4 || levels.shape(0) != directions.shape(0) || levels.shape(1) != 4 ||
            levels.shape(2) != 16)
            throw nb::value_error("a group must have four directions, -1 for none, with 16 levels each");
        if (groups.size() > 256) throw nb::value_error("there must be at most 256 groups");
        if (!std::has_single_bit(parents.shape(0)))
            throw nb::value_error("the number of parents must be a power of two");
        for (std::size_t g = 0; g < groups.size(); ++g)
            for (std::size_t j = 0; j < 4; ++j) {
                groups[g].directions[j] = directions(g, j);
                if (directions(g, j) >= static_cast<std::int32_t>(parents.shape(1)))
                    throw nb::value_error("parents must have all directions");
                std::memcpy(groups[g].levels[j], &levels(g, j, 0), sizeof groups[g].levels[j]);
            }
    }
};
