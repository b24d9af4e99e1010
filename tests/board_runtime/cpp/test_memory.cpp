// The memory pool: size classes, recycling, zeroed buffers, limits, threads.
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "npuforge/device.hpp"
#include "npuforge/memory.hpp"

using npuforge::MemoryPool;

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                                            \
        }                                                                        \
    } while (0)

int main() {
    // Classes grow by a quarter of a power of two, so that at most a quarter of a buffer (beyond 64 bytes) is unused.
    for (std::size_t bytes = 1; bytes < 100000; bytes += 37) {
        const std::size_t size = MemoryPool::class_bytes(MemoryPool::class_of(bytes));
        CHECK(size >= bytes);
        CHECK(size <= 64 || size <= bytes + bytes / 4 + 1);
    }
    MemoryPool pool(1 << 20);
    {
        MemoryPool::Buffer buffer = pool.acquire(1000);
        CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
        CHECK(buffer.size() >= 1000);
        std::memset(buffer.data(), 0xAB, buffer.size());
        CHECK(pool.statistics().bytes_in_use == buffer.size());
    }
    CHECK(pool.statistics().bytes_in_use == 0 && pool.statistics().bytes_cached > 0);
    {
        const MemoryPool::Buffer again = pool.acquire(990);  // same class: recycled, and nothing of before shows
        for (std::size_t i = 0; i < again.size(); ++i) CHECK(again.data()[i] == 0);
        CHECK(pool.statistics().recycled == 1 && pool.statistics().allocations == 1);
        MemoryPool::Buffer moved = pool.acquire(10);
        MemoryPool::Buffer target;
        target = std::move(moved);
        CHECK(moved.data() == nullptr && target.data() != nullptr);
    }
    {
        const MemoryPool::Buffer large = pool.acquire(2 << 20);
    }
    CHECK(pool.statistics().bytes_cached <= (1 << 20));  // beyond the limit, buffers go back to the system
    pool.trim();
    CHECK(pool.statistics().bytes_cached == 0);
    bool refused = false;
    try {
        const MemoryPool::Buffer absurd = pool.acquire(std::size_t{1} << 62);
    } catch (const npuforge::Error&) {
        refused = true;
    }
    CHECK(refused && pool.statistics().bytes_in_use == 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&pool, t] {
            for (std::size_t i = 0; i < 2000; ++i) {
                const MemoryPool::Buffer buffer = pool.acquire(64 + (i * 7919 + static_cast<std::size_t>(t)) % 5000);
                buffer.data()[0] = 1;
                buffer.data()[buffer.size() - 1] = 1;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(pool.statistics().bytes_in_use == 0);
    return 0;
}
