// A random layout of fast-scan groups and a query, shared by the tests of fast-scan and of search.
#pragma once

#include "nestcode/fastscan.hpp"
#include "support.hpp"

// Groups as search/fastscan.py forms them: the bits of a group's directions are adjacent, at its low end.
struct Scene {
    std::vector<FastScanGroup> groups;
    std::size_t directions = 0;
    std::vector<float> query;

    Scene(std::size_t count, float spread, std::mt19937& random) : groups(count) {
        std::normal_distribution<float> normal(0, spread);
        for (FastScanGroup& group : groups) {
            int bits = 4;
            std::fill_n(group.directions, 4, -1);
            for (int j = 0; j < 4 && bits > 0; ++j) {
                const int depth = 1 + static_cast<int>(random() % static_cast<unsigned>(bits));
                bits -= depth;
                group.directions[j] = static_cast<std::int32_t>(directions++);
                float levels[16];
                for (float& level : levels) level = normal(random);
                for (int value = 0; value < 16; ++value)
                    group.levels[j][value] = levels[value >> bits & ((1 << depth) - 1)];
                if (random() % 3 == 0) break;  // a group need not be full
            }
        }
        query.resize(directions);
        for (float& coefficient : query) coefficient = normal(random);
    }

    double distance(const std::vector<int>& values, Metric metric) const {
        double sum = 0;
        for (std::size_t g = 0; g < groups.size(); ++g)
            for (int j = 0; j < 4 && groups[g].directions[j] >= 0; ++j) {
                const double r = groups[g].levels[j][values[g]];
                const double q = query[static_cast<std::size_t>(groups[g].directions[j])];
                sum += metric == Metric::inner ? -2 * q * r : r * r - 2 * q * r;
            }
        return sum;
    }
};
