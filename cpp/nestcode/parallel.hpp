// Split a range of work over threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace nestcode {

// Calls work(begin, end) on disjoint parts of [0, count) that cover it, on at most `threads` threads
// and with at least `grain` items a part. `work` must not throw.
template <class Work>
void parallel_for(std::size_t count, std::size_t grain, std::size_t threads, const Work& work) {
    const std::size_t parts =
        std::clamp<std::size_t>(count / std::max<std::size_t>(grain, 1), 1, std::max<std::size_t>(threads, 1));
    const auto start_of = [&](std::size_t part) { return count / parts * part + std::min(part, count % parts); };
    std::vector<std::jthread> helpers;
    helpers.reserve(parts - 1);
    std::size_t started = 0;
    try {
        for (; started + 1 < parts; ++started) helpers.emplace_back(work, start_of(started), start_of(started + 1));
    } catch (const std::system_error&) {
        // The system has no more threads to give: this one does what is left.
    }
    work(start_of(started), count);
}

}  // namespace nestcode
