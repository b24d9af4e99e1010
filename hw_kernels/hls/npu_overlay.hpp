// The multi-kernel overlay: one top function per engine, so that loads, array, vector units and stores run at the same
// time. They are joined in a block design: AXI streams for instructions and tokens, one on-chip memory with a port for
// each engine.
#pragma once

#ifndef NPU_USE_STREAMS
#define NPU_USE_STREAMS
#endif
#include "npu_top.hpp"

constexpr int NPU_LANES = 16;
constexpr int NPU_STATUS_WORDS = 3;  // code, field, instruction

typedef NpuStream<uint32_t> NpuWords;
typedef NpuStream<bool> NpuTokens;
typedef int8_t NpuSram[NPU_SRAM_BYTES / NPU_LANES][NPU_LANES];

/// Checks a program and distributes it to the engines' queues.
/// \param instruction_addr byte offset of the partition in `bin` \param count its instructions
void npu_fetch(const int8_t* bin, uint32_t bin_bytes, uint32_t pool_bytes, uint32_t instruction_addr, uint32_t count,
               NpuWords& load_queue, NpuWords& conv_queue, NpuWords& vector_queue, NpuWords& store_queue,
               uint32_t status[NPU_STATUS_WORDS]);

/// \param queue instructions \param from_load tokens that LOAD gives to this engine (likewise from_conv, from_vector,
/// from_store)
/// \param to_load tokens that this engine gives to LOAD (likewise the others) \param sram this engine's port of the
/// memory
void npu_load(const int8_t* bin, uint32_t bin_bytes, int8_t* pool, uint32_t pool_bytes, NpuWords& queue,
              NpuTokens& from_load, NpuTokens& from_conv, NpuTokens& from_vector, NpuTokens& from_store,
              NpuTokens& to_load, NpuTokens& to_conv, NpuTokens& to_vector, NpuTokens& to_store, NpuSram sram,
              uint32_t status[NPU_STATUS_WORDS]);
void npu_conv(NpuWords& queue, NpuTokens& from_load, NpuTokens& from_conv, NpuTokens& from_vector,
              NpuTokens& from_store, NpuTokens& to_load, NpuTokens& to_conv, NpuTokens& to_vector, NpuTokens& to_store,
              NpuSram sram, uint32_t status[NPU_STATUS_WORDS]);
void npu_vector(NpuWords& queue, NpuTokens& from_load, NpuTokens& from_conv, NpuTokens& from_vector,
                NpuTokens& from_store, NpuTokens& to_load, NpuTokens& to_conv, NpuTokens& to_vector,
                NpuTokens& to_store, NpuSram sram, uint32_t status[NPU_STATUS_WORDS]);
void npu_store(int8_t* pool, uint32_t pool_bytes, NpuWords& queue, NpuTokens& from_load, NpuTokens& from_conv,
               NpuTokens& from_vector, NpuTokens& from_store, NpuTokens& to_load, NpuTokens& to_conv,
               NpuTokens& to_vector, NpuTokens& to_store, NpuSram sram, uint32_t status[NPU_STATUS_WORDS]);
