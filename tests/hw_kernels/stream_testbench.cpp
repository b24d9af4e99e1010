// Runs a program on the multi-kernel overlay with one thread per engine. Built with -fsanitize=thread it also proves
// that the tokens order every pair of accesses to on-chip memory and pool that must be ordered: an overlooked
// dependency is a data race.
//
//     stream_testbench IMAGE POOL ADDRESS COUNT     (POOL is read and written back; prints code, field and instruction
//     of each engine)
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "npu_overlay.hpp"

namespace {

constexpr int LOAD = 0, CONV = 1, VECTOR = 2, STORE = 3, FETCH = 4;

std::vector<int8_t> read_file(const char* path) {
    std::vector<int8_t> data;
    if (std::FILE* file = std::fopen(path, "rb")) {
        char buffer[65536];
        for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
            data.insert(data.end(), buffer, buffer + n);
        std::fclose(file);
    }
    return data;
}

NpuSram sram;
NpuWords queues[4];
NpuTokens tokens[4][4];  // [giver][taker]
uint32_t status[5][NPU_STATUS_WORDS];

}  // namespace

#define PORTS(engine)                                                                                                \
    tokens[LOAD][engine], tokens[CONV][engine], tokens[VECTOR][engine], tokens[STORE][engine], tokens[engine][LOAD], \
        tokens[engine][CONV], tokens[engine][VECTOR], tokens[engine][STORE]

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const std::vector<int8_t> image = read_file(argv[1]);
    std::vector<int8_t> pool = read_file(argv[2]);
    const auto bin_bytes = static_cast<uint32_t>(image.size());
    const auto pool_bytes = static_cast<uint32_t>(pool.size());
    // The queues are filled before the engines start: their locks then order nothing but the instructions themselves.
    npu_fetch(image.data(), bin_bytes, pool_bytes, static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)),
              static_cast<uint32_t>(std::strtoul(argv[4], nullptr, 10)), queues[LOAD], queues[CONV], queues[VECTOR],
              queues[STORE], status[FETCH]);
    std::thread engines[] = {
        std::thread([&] {
            npu_load(image.data(), bin_bytes, pool.data(), pool_bytes, queues[LOAD], PORTS(LOAD), sram, status[LOAD]);
        }),
        std::thread([&] { npu_conv(queues[CONV], PORTS(CONV), sram, status[CONV]); }),
        std::thread([&] { npu_vector(queues[VECTOR], PORTS(VECTOR), sram, status[VECTOR]); }),
        std::thread([&] { npu_store(pool.data(), pool_bytes, queues[STORE], PORTS(STORE), sram, status[STORE]); }),
    };
    for (std::thread& engine : engines) engine.join();
    for (const auto& s : status) std::printf("%u %u %u\n", s[0], s[1], s[2]);
    std::FILE* file = std::fopen(argv[2], "wb");
    const bool written = file != nullptr && std::fwrite(pool.data(), 1, pool.size(), file) == pool.size();
    return file != nullptr && std::fclose(file) == 0 && written ? 0 : 1;
}
