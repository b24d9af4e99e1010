// The top functions of the multi-kernel overlay: interfaces only, around `engine_process` and `fetch_process`.
#include "npu_overlay.hpp"

#include "stream_engines.hpp"

namespace {

using npuforge::hls::engine_process;
using npuforge::hls::Limits;
using npuforge::hls::Status;
using npuforge::hls::TokenPorts;
using npuforge::isa::Engine;

void report(const Status& result, uint32_t status[NPU_STATUS_WORDS]) {
    status[0] = (uint32_t)result.code;
    status[1] = (uint32_t)result.field;
    status[2] = result.instruction;
}

Limits limits_of(uint32_t bin_bytes, uint32_t pool_bytes) {
    Limits limits;
    limits.sram_bytes = NPU_SRAM_BYTES;
    limits.bin_bytes = bin_bytes;
    limits.pool_bytes = pool_bytes;
    return limits;
}

}  // namespace

void npu_fetch(const int8_t* bin, uint32_t bin_bytes, uint32_t pool_bytes, uint32_t instruction_addr, uint32_t count,
               NpuWords& load_queue, NpuWords& conv_queue, NpuWords& vector_queue, NpuWords& store_queue,
               uint32_t status[NPU_STATUS_WORDS]) {
    NPU_AXI_MASTER(bin, gmem)
    NPU_AXI_LITE(bin_bytes)
    NPU_AXI_LITE(pool_bytes)
    NPU_AXI_LITE(instruction_addr)
    NPU_AXI_LITE(count)
    NPU_AXI_LITE(status)
    NPU_AXI_LITE_RETURN
    NPU_AXI_STREAM(load_queue)
    NPU_AXI_STREAM(conv_queue)
    NPU_AXI_STREAM(vector_queue)
    NPU_AXI_STREAM(store_queue)
    report(npuforge::hls::fetch_process(bin, instruction_addr, count, limits_of(bin_bytes, pool_bytes), load_queue,
                                        conv_queue, vector_queue, store_queue),
           status);
}

void npu_load(const int8_t* bin, uint32_t bin_bytes, int8_t* pool, uint32_t pool_bytes, NpuWords& queue,
              NpuTokens& from_load, NpuTokens& from_conv, NpuTokens& from_vector, NpuTokens& from_store,
              NpuTokens& to_load, NpuTokens& to_conv, NpuTokens& to_vector, NpuTokens& to_store, NpuSram sram,
              uint32_t status[NPU_STATUS_WORDS]) {
    NPU_AXI_MASTER(bin, gmem0)
    NPU_AXI_MASTER(pool, gmem1)
    NPU_AXI_LITE(bin_bytes)
    NPU_AXI_LITE(pool_bytes)
    NPU_AXI_LITE(status)
    NPU_AXI_LITE_RETURN
    NPU_AXI_STREAM(queue)
    NPU_AXI_STREAM(from_load)
    NPU_AXI_STREAM(from_conv)
    NPU_AXI_STREAM(from_vector)
    NPU_AXI_STREAM(from_store)
    NPU_AXI_STREAM(to_load)
    NPU_AXI_STREAM(to_conv)
    NPU_AXI_STREAM(to_vector)
    NPU_AXI_STREAM(to_store)
    NPU_MEMORY_PORT(sram)
    TokenPorts ports = {from_load, from_conv, from_vector, from_store, to_load, to_conv, to_vector, to_store};
    report(engine_process<(int)Engine::LOAD, NPU_PIXEL_PARALLEL>(queue, ports, bin, pool, sram,
                                                                 limits_of(bin_bytes, pool_bytes)),
           status);
}

void npu_conv(NpuWords& queue, NpuTokens& from_load, NpuTokens& from_conv, NpuTokens& from_vector,
              NpuTokens& from_store, NpuTokens& to_load, NpuTokens& to_conv, NpuTokens& to_vector, NpuTokens& to_store,
              NpuSram sram, uint32_t status[NPU_STATUS_WORDS]) {
    NPU_AXI_LITE(status)
    NPU_AXI_LITE_RETURN
    NPU_AXI_STREAM(queue)
    NPU_AXI_STREAM(from_load)
    NPU_AXI_STREAM(from_conv)
    NPU_AXI_STREAM(from_vector)
    NPU_AXI_STREAM(from_store)
    NPU_AXI_STREAM(to_load)
    NPU_AXI_STREAM(to_conv)
    NPU_AXI_STREAM(to_vector)
    NPU_AXI_STREAM(to_store)
    NPU_MEMORY_PORT(sram)
    TokenPorts ports = {from_load, from_conv, from_vector, from_store, to_load, to_conv, to_vector, to_store};
    report(
        engine_process<(int)Engine::CONV, NPU_PIXEL_PARALLEL>(queue, ports, nullptr, nullptr, sram, limits_of(0u, 0u)),
        status);
}

void npu_vector(NpuWords& queue, NpuTokens& from_load, NpuTokens& from_conv, NpuTokens& from_vector,
                NpuTokens& from_store, NpuTokens& to_load, NpuTokens& to_conv, NpuTokens& to_vector,
                NpuTokens& to_store, NpuSram sram, uint32_t status[NPU_STATUS_WORDS]) {
    NPU_AXI_LITE(status)
    NPU_AXI_LITE_RETURN
    NPU_AXI_STREAM(queue)
    NPU_AXI_STREAM(from_load)
    NPU_AXI_STREAM(from_conv)
    NPU_AXI_STREAM(from_vector)
    NPU_AXI_STREAM(from_store)
    NPU_AXI_STREAM(to_load)
    NPU_AXI_STREAM(to_conv)
    NPU_AXI_STREAM(to_vector)
    NPU_AXI_STREAM(to_store)
    NPU_MEMORY_PORT(sram)
    TokenPorts ports = {from_load, from_conv, from_vector, from_store, to_load, to_conv, to_vector, to_store};
    report(engine_process<(int)Engine::VECTOR, NPU_PIXEL_PARALLEL>(queue, ports, nullptr, nullptr, sram,
                                                                   limits_of(0u, 0u)),
           status);
}

void npu_store(int8_t* pool, uint32_t pool_bytes, NpuWords& queue, NpuTokens& from_load, NpuTokens& from_conv,
               NpuTokens& from_vector, NpuTokens& from_store, NpuTokens& to_load, NpuTokens& to_conv,
               NpuTokens& to_vector, NpuTokens& to_store, NpuSram sram, uint32_t status[NPU_STATUS_WORDS]) {
    NPU_AXI_MASTER(pool, gmem)
    NPU_AXI_LITE(pool_bytes)
    NPU_AXI_LITE(status)
    NPU_AXI_LITE_RETURN
    NPU_AXI_STREAM(queue)
    NPU_AXI_STREAM(from_load)
    NPU_AXI_STREAM(from_conv)
    NPU_AXI_STREAM(from_vector)
    NPU_AXI_STREAM(from_store)
    NPU_AXI_STREAM(to_load)
    NPU_AXI_STREAM(to_conv)
    NPU_AXI_STREAM(to_vector)
    NPU_AXI_STREAM(to_store)
    NPU_MEMORY_PORT(sram)
    TokenPorts ports = {from_load, from_conv, from_vector, from_store, to_load, to_conv, to_vector, to_store};
    report(engine_process<(int)Engine::STORE, NPU_PIXEL_PARALLEL>(queue, ports, nullptr, pool, sram,
                                                                  limits_of(0u, pool_bytes)),
           status);
}
