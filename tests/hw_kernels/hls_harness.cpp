// C interface to the HLS engines for the Python tests: one program, caller-owned memories, any policy and pixel
// parallelism.
#include <cstdint>

#include "npu_top.hpp"
#include "sequencer.hpp"

namespace hls = npuforge::hls;

extern "C" int harness_run(const int8_t* bin, uint32_t bin_bytes, int8_t* pool, uint32_t pool_bytes, int8_t* sram,
                           uint32_t sram_bytes, uint32_t address, uint32_t count, uint32_t policy, uint32_t seed,
                           int pixels, uint32_t status[3]) {
    hls::Limits limits;
    limits.sram_bytes = sram_bytes;
    limits.bin_bytes = bin_bytes;
    limits.pool_bytes = pool_bytes;
    hls::NoTrace trace;
    auto* words = reinterpret_cast<int8_t (*)[hls::LANES]>(sram);
    hls::Status s = hls::check_program(bin, address, count, limits);
    if (s.code == hls::Code::OK) {
        const auto order = static_cast<hls::Policy>(policy);
        switch (pixels) {
            case 1:
                s = hls::run_queues<1>(bin, pool, words, limits, address, count, order, seed, trace);
                break;
            case 2:
                s = hls::run_queues<2>(bin, pool, words, limits, address, count, order, seed, trace);
                break;
            case 8:
                s = hls::run_queues<8>(bin, pool, words, limits, address, count, order, seed, trace);
                break;
            default:
                return -1;
        }
    }
    status[0] = static_cast<uint32_t>(s.code);
    status[1] = static_cast<uint32_t>(s.field);
    status[2] = s.instruction;
    return 0;
}

extern "C" const char* harness_field_name(uint32_t field) {
    return npuforge::isa::field_name(static_cast<npuforge::isa::FieldId>(field));
}
