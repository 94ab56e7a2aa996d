// Batched reads of mapped files: the system is asked for all rows at once before they are touched, so that it reads
// them in parallel and not one page fault after the other. Systems other than Linux are not asked.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checksum.hpp"

namespace nestcode {

// Asks for rows of `row_bytes` bytes of mapped memory that the system does not have in memory, and returns whether
// there were any; blocks that were not verified yet are asked for as a whole.
inline bool read_ahead(const std::uint8_t* data, std::size_t bytes, std::size_t row_bytes, const ChecksumGuard* guard,
                       std::vector<std::size_t> rows) {
#ifdef __linux__
    static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    std::sort(rows.begin(), rows.end());
    std::uintptr_t begin = 0, end = 0;  // addresses that are asked for next
    std::vector<unsigned char> resident;
    bool missing = false;
    const auto ask = [&] {
        if (begin == end) return;
        void* const from = reinterpret_cast<void*>(begin);
        resident.assign((end - begin + page - 1) / page, 1);
        if (mincore(from, end - begin, resident.data()) == 0 &&
            std::all_of(resident.begin(), resident.end(), [](unsigned char one) { return (one & 1) != 0; }))
            return;
        missing = true;
        static_cast<void>(madvise(from, end - begin, MADV_WILLNEED));  // it may be refused, and nothing depends on it
    };
    for (const std::size_t row : rows) {
        std::size_t first = row * row_bytes, last = std::min(first + row_bytes, bytes);
        if (guard != nullptr) {
            const std::size_t block = guard->block_bytes();
            if (!guard->is_verified(first / block)) first = first / block * block;
            if (last > first && !guard->is_verified((last - 1) / block))
                last = std::min((last + block - 1) / block * block, bytes);
        }
        const std::uintptr_t from = (reinterpret_cast<std::uintptr_t>(data) + first) / page * page,
                             to = reinterpret_cast<std::uintptr_t>(data) + last;
        if (from > end) {
            ask();
            begin = from;
        }
        end = std::max(end, to);
    }
    ask();
    return missing;
#else
    static_cast<void>(data), static_cast<void>(bytes), static_cast<void>(row_bytes), static_cast<void>(guard);
    return false;
#endif
}

}  // namespace nestcode
