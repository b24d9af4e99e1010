// Runs single-partition programs on every code path of the simulator, with several thread counts and contexts at once,
// and compares the result. Each FILE: 6 uint64 (bytes of code, image, pool; SRAM size; offset of the result in the
// pool; bytes of the result), then these four byte strings. Prints how many operator new calls the runs after the first
// made. Built with sanitizers by test_sim_native.py.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "npuforge/sim.hpp"

namespace {

std::atomic<long> allocations{0};

#ifdef NPUFORGE_COUNT_NEW  // not with sanitizers, which bring their own
void* counted(std::size_t bytes, std::size_t alignment) {
    ++allocations;
    void* p = alignment <= alignof(std::max_align_t)
                  ? std::malloc(bytes == 0 ? 1 : bytes)
                  : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}
#endif

}  // namespace

#ifdef NPUFORGE_COUNT_NEW
void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif

namespace {

using npuforge::DeviceProgram;

// An exact-size heap copy, so that the address sanitizer sees one byte too many.
std::unique_ptr<std::uint8_t[]> take(const std::vector<char>& file, std::size_t* at, std::size_t bytes) {
    std::unique_ptr<std::uint8_t[]> copy(new std::uint8_t[bytes]);
    std::memcpy(copy.get(), file.data() + *at, bytes);
    *at += bytes;
    return copy;
}

struct Case {
    explicit Case(const std::vector<char>& file) {
        std::memcpy(sizes, file.data(), sizeof sizes);
        std::size_t at = sizeof sizes;
        code = take(file, &at, sizes[0]);
        image = take(file, &at, sizes[1]);
        pool = take(file, &at, sizes[2]);
        expected = take(file, &at, sizes[5]);
    }
    DeviceProgram program() const {
        DeviceProgram p;
        p.image = image.get();
        p.image_size = sizes[1];
        p.instructions = reinterpret_cast<const std::uint32_t*>(code.get());
        p.instruction_count = sizes[0] / 128;
        p.pool_size = sizes[2];
        p.sram_bytes = sizes[3];
        p.partitions.push_back({0, p.instruction_count});
        return p;
    }
    // Runs in a context and pool of its own; false where the result is wrong.
    bool run(const npuforge::Device& device, npuforge::DeviceContext& context, std::uint8_t* memory,
             const npuforge::TraceHook& hook) const {
        std::memcpy(memory, pool.get(), sizes[2]);
        device.run(context, 0, memory, hook);
        return std::memcmp(memory + sizes[4], expected.get(), sizes[5]) == 0;
    }

    std::uint64_t sizes[6];
    std::unique_ptr<std::uint8_t[]> code, image, pool, expected;
};

// Throws once, in the middle: the run must end, and the context must work again.
bool survives_a_failing_hook(const Case& c, const npuforge::Device& device, npuforge::DeviceContext& context,
                             std::uint8_t* memory) {
    const std::size_t middle = c.sizes[0] / 128 / 2;
    try {
        c.run(device, context, memory, [middle](std::size_t instruction, const npuforge::TraceMemory&) {
            if (instruction == middle) throw npuforge::ArgumentError("hook");
        });
        return c.sizes[0] / 128 < 2;
    } catch (const npuforge::ArgumentError& e) {
        return std::strcmp(e.what(), "hook") == 0;
    }
}

bool exercise(const Case& c, npuforge::sim::Level level, int threads, long* new_calls) {
    constexpr int kContexts = 2;
    const auto device = npuforge::sim::make_device(c.program(), threads, level);
    std::atomic<int> wrong{0};
    std::vector<std::thread> users;
    for (int u = 0; u < kContexts; ++u)
        users.emplace_back([&] {
            const auto context = device->create_context();
            std::unique_ptr<std::uint8_t[]> memory(new std::uint8_t[c.sizes[2]]);
            for (int repeat = 0; repeat < 3; ++repeat) wrong += c.run(*device, *context, memory.get(), nullptr) ? 0 : 1;
            wrong += survives_a_failing_hook(c, *device, *context, memory.get()) ? 0 : 1;
            wrong += c.run(*device, *context, memory.get(), [](std::size_t, const npuforge::TraceMemory&) {}) ? 0 : 1;
        });
    for (std::thread& user : users) user.join();
    const auto context = device->create_context();
    std::unique_ptr<std::uint8_t[]> memory(new std::uint8_t[c.sizes[2]]);
    wrong += c.run(*device, *context, memory.get(), nullptr) ? 0 : 1;
    const long before = allocations;
    for (int repeat = 0; repeat < 3; ++repeat) wrong += c.run(*device, *context, memory.get(), nullptr) ? 0 : 1;
    *new_calls += allocations - before;
    return wrong == 0;
}

}  // namespace

int main(int argc, char** argv) {
    long new_calls = 0;
    int failed = 0;
    for (int i = 1; i < argc; ++i) {
        std::ifstream in(argv[i], std::ios::binary);
        const std::vector<char> file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        const Case c(file);
        for (int level = 0; level <= static_cast<int>(npuforge::sim::best_level()); ++level)
            for (int threads = 1; threads <= 3; ++threads)
                if (!exercise(c, static_cast<npuforge::sim::Level>(level), threads, &new_calls)) {
                    std::printf("%s: level %d, %d threads: wrong result\n", argv[i], level, threads);
                    ++failed;
                }
    }
    // Contexts come and go: no leak (address sanitizer), no thread left behind.
    if (argc > 1) {
        std::ifstream in(argv[1], std::ios::binary);
        const std::vector<char> file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        const Case c(file);
        const auto device = npuforge::make_sim_device(c.program(), 2);
        for (int i = 0; i < 300; ++i) device->create_context();
    }
    std::printf("cases %d failed %d new %ld\n", argc - 1, failed, new_calls);
    return failed == 0 && new_calls == 0 ? 0 : 1;
}
