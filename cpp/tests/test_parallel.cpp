// Parallel loops cover their range once and carry exceptions of worker threads to the caller.
#include <atomic>
#include <stdexcept>
#include <string>

#include "nestcode/parallel.hpp"
#include "support.hpp"

namespace {

void test_covers(std::size_t count, std::size_t grain, std::size_t threads) {
    std::vector<std::atomic<int>> calls(count);
    std::atomic<std::size_t> ranges = 0;
    parallel_for(count, grain, threads, [&](std::size_t begin, std::size_t end) {
        ++ranges;
        for (std::size_t i = begin; i < end; ++i) ++calls[i];
    });
    for (const std::atomic<int>& times : calls) CHECK(times == 1);
    CHECK(ranges <= std::max<std::size_t>(threads, 1));
}

// The range that holds item `at` throws; the caller gets the exception, and every other range has been finished.
void test_rethrows(std::size_t threads, std::size_t at) {
    constexpr std::size_t count = 64;
    std::atomic<std::size_t> done = 0;
    std::string message;
    try {
        parallel_for(count, 1, threads, [&](std::size_t begin, std::size_t end) {
            if (begin <= at && at < end) throw std::runtime_error("item " + std::to_string(at));
            done += end - begin;
        });
    } catch (const std::runtime_error& error) {
        message = error.what();
    }
    CHECK(message == "item " + std::to_string(at));
    CHECK(done + (count + threads - 1) / threads >= count);
}

void test_all_throw(std::size_t threads) {
    bool caught = false;
    try {
        parallel_for(64, 1, threads, [](std::size_t, std::size_t) { throw std::bad_alloc(); });
    } catch (const std::bad_alloc&) {
        caught = true;
    }
    CHECK(caught);
}

}  // namespace

int main() {
    for (const std::size_t count : {0, 1, 5, 64, 1000})
        for (const std::size_t grain : {0, 1, 7, 2000})
            for (const std::size_t threads : {0, 1, 2, 5}) test_covers(count, grain, threads);
    for (const std::size_t threads : {1, 2, 4, 7}) {
        for (const std::size_t at : {0, 20, 63}) test_rethrows(threads, at);
        test_all_throw(threads);
    }
    std::puts("parallel: ok");
}
