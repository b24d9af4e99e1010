// Runs a program on the multi-kernel overlay with one thread per engine. Built with -fsanitize=thread it also proves
// that the tokens order every pair of accesses to on-chip memory and pool that must be ordered: an overlooked
// dependency is a data race.
//
//     stream_testbench IMAGE POOL ADDRESS COUNT [ORDER]
//
// POOL is read and written back; prints code, field and instruction of each engine. ORDER is a file of uint32: every
// instruction's index once, in the order in which the engines execute them, one at a time. The sanitizer does not see
// the turns: what is ordered by them alone is a race still, and one that no other execution hides.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "npu_isa.hpp"
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

/// Whose turn it is. Nothing here is seen by the sanitizer, so that turns order nothing.
class Turns {
  public:
    explicit Turns(const std::vector<int8_t>& order) : turn_of_(order.size() / sizeof(uint32_t)) {
        for (uint32_t turn = 0; turn < turn_of_.size(); ++turn) {
            uint32_t instruction = 0;
            std::memcpy(&instruction, &order[turn * sizeof instruction], sizeof instruction);
            turn_of_.at(instruction) = turn;
        }
    }
    bool given() const { return !turn_of_.empty(); }
    void await(uint32_t instruction) const { wait(turn_of_.at(instruction)); }
    NPU_UNSEEN void next() { __atomic_store_n(&now_, now_ + 1u, __ATOMIC_RELEASE); }

  private:
    NPU_UNSEEN void wait(uint32_t turn) const {
        while (__atomic_load_n(&now_, __ATOMIC_ACQUIRE) != turn) sched_yield();
    }

    std::vector<uint32_t> turn_of_;
    uint32_t now_ = 0;
};

/// One engine: `process` with its whole queue, or with one instruction at each of its turns (first refusal kept).
template <class Process>
void engine(NpuWords& queue, Turns& turns, uint32_t result[NPU_STATUS_WORDS], Process process) {
    if (!turns.given()) {
        process(queue, result);
        return;
    }
    const uint32_t count = queue.read();
    for (uint32_t n = 0; n < count; ++n) {
        const uint32_t index = queue.read();
        NpuWords one;
        one.write(1u);
        one.write(index);
        for (uint32_t w = 0; w < npuforge::isa::INSTRUCTION_WORDS; ++w) one.write(queue.read());
        turns.await(index);
        uint32_t found[NPU_STATUS_WORDS];
        process(one, found);
        if (result[0] == 0u) std::memcpy(result, found, sizeof found);
        turns.next();
    }
}

NpuSram sram;
NpuWords queues[4];
NpuTokens tokens[4][4];  // [giver][taker]
uint32_t status[5][NPU_STATUS_WORDS];

}  // namespace

/// The sanitizer's longest history: a race is reported only while the earlier access is in it.
extern "C" const char* __tsan_default_options() { return "history_size=7"; }

#define PORTS(engine)                                                                                                \
    tokens[LOAD][engine], tokens[CONV][engine], tokens[VECTOR][engine], tokens[STORE][engine], tokens[engine][LOAD], \
        tokens[engine][CONV], tokens[engine][VECTOR], tokens[engine][STORE]

int main(int argc, char** argv) {
    if (argc != 5 && argc != 6) return 2;
    const std::vector<int8_t> image = read_file(argv[1]);
    std::vector<int8_t> pool = read_file(argv[2]);
    const auto bin_bytes = static_cast<uint32_t>(image.size());
    const auto pool_bytes = static_cast<uint32_t>(pool.size());
    // The queues are filled before the engines start: their locks then order nothing but the instructions themselves.
    npu_fetch(image.data(), bin_bytes, pool_bytes, static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)),
              static_cast<uint32_t>(std::strtoul(argv[4], nullptr, 10)), queues[LOAD], queues[CONV], queues[VECTOR],
              queues[STORE], status[FETCH]);
    Turns turns(argc == 6 ? read_file(argv[5]) : std::vector<int8_t>{});
    const auto load = [&](NpuWords& queue, uint32_t* result) {
        npu_load(image.data(), bin_bytes, pool.data(), pool_bytes, queue, PORTS(LOAD), sram, result);
    };
    const auto conv = [](NpuWords& queue, uint32_t* result) { npu_conv(queue, PORTS(CONV), sram, result); };
    const auto vector = [](NpuWords& queue, uint32_t* result) { npu_vector(queue, PORTS(VECTOR), sram, result); };
    const auto store = [&](NpuWords& queue, uint32_t* result) {
        npu_store(pool.data(), pool_bytes, queue, PORTS(STORE), sram, result);
    };
    std::thread engines[] = {
        std::thread([&] { engine(queues[LOAD], turns, status[LOAD], load); }),
        std::thread([&] { engine(queues[CONV], turns, status[CONV], conv); }),
        std::thread([&] { engine(queues[VECTOR], turns, status[VECTOR], vector); }),
        std::thread([&] { engine(queues[STORE], turns, status[STORE], store); }),
    };
    for (std::thread& one : engines) one.join();
    for (const auto& s : status) std::printf("%u %u %u\n", s[0], s[1], s[2]);
    std::FILE* file = std::fopen(argv[2], "wb");
    const bool written = file != nullptr && std::fwrite(pool.data(), 1, pool.size(), file) == pool.size();
    return file != nullptr && std::fclose(file) == 0 && written ? 0 : 1;
}
