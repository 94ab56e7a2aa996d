// Graphs of any neighbors, codes and vectors: walks end, and find items or nothing. Ids are checked before they are
// used.
#include "input.hpp"
#include "nestcode/graph_search.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    Input input(bytes, size);
    constexpr std::size_t features = 3, k = 5, queries = 2;
    const std::size_t nodes = 1 + input.number(99), columns = input.number(2);
    std::vector<FastScanGroup> groups(2 * columns);
    for (FastScanGroup& group : groups)
        for (std::size_t j = 0; j < 4; ++j) {
            group.directions[j] = static_cast<std::int32_t>(input.number(features)) - 1;
            std::copy_n(input.values<float>(16).data(), 16, group.levels[j]);
        }
    const std::vector<float> mean = input.values<float>(features), axes = input.values<float>(features * features);
    const Int8Directions directions(axes.data(), features, features);
    const GraphProjection projection{mean.data(), &directions, &groups, 1};
    const std::vector<float> asked = input.values<float>(queries * features),
                             rows = input.values<float>(nodes * features);
    const std::vector<Half> norms = input.values<Half>(nodes), factors = input.values<Half>(nodes);
    const std::vector<std::uint8_t> grouped = input.values<std::uint8_t>(nodes * columns);
    std::vector<std::uint64_t> allowed = input.values<std::uint64_t>(nodes / 64 + 1);
    if (input.number(1)) allowed.clear();
    const std::size_t ef = 1 + input.number(40);
    std::vector<std::uint32_t> neighbors(nodes * kDegree), entries(kDegree);
    for (std::vector<std::uint32_t>* ids : {&entries, &neighbors})
        for (std::uint32_t& id : *ids) id = static_cast<std::uint32_t>(input.number(nodes - 1));

    std::vector<std::uint8_t> data((nodes + 1) * GraphRecord::size(columns));
    const GraphRecords records(
        {neighbors.data(), nodes, entries},
        {{grouped.data(), nodes, columns, static_cast<std::ptrdiff_t>(columns)}, norms.data(), factors.data()},
        data.data());
    const std::vector<std::uint64_t> duplicates = find_duplicates({neighbors.data(), nodes, entries});
    for (const Metric metric : {Metric::l2, Metric::inner})
        for (const float* vectors : {rows.data(), static_cast<const float*>(nullptr)}) {
            float distances[queries * k];
            std::uint32_t positions[queries * k];
            std::int64_t visited[queries];
            search_graph(records, GraphVectors<float>{vectors, features}, projection, metric, asked.data(), queries, ef,
                         {allowed, duplicates}, {k, distances, positions, visited}, available_simd().back(), 1);
            for (const std::uint32_t position : positions) CHECK(position < nodes || position == UINT32_MAX);
            for (const std::int64_t many : visited) CHECK(many <= static_cast<std::int64_t>(nodes));
        }
    return 0;
}
