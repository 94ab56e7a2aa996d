// Parallel loops over index ranges on a bounded number of threads.
//
// Every kernel that runs on several threads goes through parallel_for, so this is the one place where threads are
// started and where their exceptions are carried back to the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace nestcode {

// Whether a new thread has the memory to throw an exception. Its first one allocates the thread's state of exceptions,
// and where that fails glibc ends the process: so it is allocated here, once any allocation of the thread succeeds.
inline bool can_throw() {
    void* volatile some = std::malloc(1024);
    std::free(some);
    [[maybe_unused]] const volatile int state = some != nullptr ? std::uncaught_exceptions() : 0;
    return some != nullptr;
}

// A function of a range, (begin, end), that the caller keeps alive: so one loop over threads is compiled for all of
// them.
class RangeFunction {
  public:
    template <class Work>
    RangeFunction(const Work& work)
        : work_(&work), call_([](const void* own, std::size_t begin, std::size_t end) {
              (*static_cast<const Work*>(own))(begin, end);
          }) {}
    void operator()(std::size_t begin, std::size_t end) const { call_(work_, begin, end); }

  private:
    const void* work_;
    void (*call_)(const void*, std::size_t, std::size_t);
};

// Calls work(begin, end) on disjoint ranges that cover [0, count), on at most `threads` threads and with at least
// `grain` items per range. If calls throw, all threads finish or stop first and then one of the exceptions is rethrown.
inline void parallel_for(std::size_t count, std::size_t grain, std::size_t threads, RangeFunction work) {
    const std::size_t parts =
        std::clamp<std::size_t>(count / std::max<std::size_t>(grain, 1), 1, std::max<std::size_t>(threads, 1));
    if (parts == 1) return work(std::size_t{0}, count);
    const auto start_of = [&](std::size_t part) { return count / parts * part + std::min(part, count % parts); };
    std::exception_ptr first_error;
    std::mutex mutex;
    // An exception that leaves a thread's function would end the process (std::terminate).
    const auto guarded = [&](std::size_t begin, std::size_t end) noexcept {
        try {
            work(begin, end);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (first_error == nullptr) first_error = std::current_exception();
        }
    };
    std::atomic<bool> starved = false;
    const auto in_worker = [&](std::size_t begin, std::size_t end) noexcept {
        if (can_throw())
            guarded(begin, end);
        else
            starved = true;
    };
    std::vector<std::thread> workers;  // Apple's library has no std::jthread
    workers.reserve(parts - 1);
    std::size_t started = 0;
    try {
        for (; started + 1 < parts; ++started)
            workers.emplace_back(std::cref(in_worker), start_of(started), start_of(started + 1));
    } catch (const std::system_error&) {  // no more threads
    } catch (const std::bad_alloc&) {     // no memory for another one
    }
    guarded(start_of(started), count);  // the calling thread takes the ranges that no worker has
    for (std::thread& worker : workers) worker.join();
    if (starved) throw std::bad_alloc();
    if (first_error != nullptr) std::rethrow_exception(first_error);
}

}  // namespace nestcode
