// The single-kernel top function: AXI masters for `.bin` and pool, AXI-lite for the arguments, on-chip memory,
// sequencer.
#include "npu_top.hpp"

#include "sequencer.hpp"

extern "C" void npu_top(const int8_t* bin, uint32_t bin_bytes, int8_t* pool, uint32_t pool_bytes,
                        uint32_t instruction_addr, uint32_t count, uint32_t status[4]) {
    NPU_AXI_MASTER(bin, gmem0)
    NPU_AXI_MASTER(pool, gmem1)
    NPU_AXI_LITE(bin_bytes)
    NPU_AXI_LITE(pool_bytes)
    NPU_AXI_LITE(instruction_addr)
    NPU_AXI_LITE(count)
    NPU_AXI_LITE(status)
    NPU_AXI_LITE_RETURN
    namespace hls_ = npuforge::hls;
    static int8_t sram[NPU_SRAM_BYTES / hls_::LANES][hls_::LANES];
    NPU_PARTITION(sram, 2)
    NPU_URAM(sram)
    hls_::Limits limits;
    limits.sram_bytes = NPU_SRAM_BYTES;
    limits.bin_bytes = bin_bytes;
    limits.pool_bytes = pool_bytes;
    hls_::NoTrace trace;
    hls_::Status result = hls_::check_program(bin, instruction_addr, count, limits);
    if (result.code == hls_::Code::OK) {
        result = hls_::run_queues<NPU_PIXEL_PARALLEL>(bin, pool, sram, limits, instruction_addr, count,
                                                      hls_::Policy::PROGRAM_ORDER, 1u, trace);
    }
    status[0] = (uint32_t)result.code;
    status[1] = (uint32_t)result.field;
    status[2] = result.instruction;
    status[3] = npuforge::isa::ISA_VERSION;
}
