// The single-kernel top function: its configuration and interface.
#pragma once

#include "npu_port.hpp"

#ifndef NPU_PIXEL_PARALLEL
#define NPU_PIXEL_PARALLEL 8  // nf-b4096; nf-b1024: 2
#endif
#ifndef NPU_SRAM_BYTES
#define NPU_SRAM_BYTES 2097152  // nf-b4096; nf-b1024: 524288
#endif

/// Runs one NPU partition.
/// \param bin DDR region 0, the `.bin` image (read only) \param bin_bytes its size
/// \param pool DDR region 1 \param pool_bytes its size
/// \param instruction_addr byte offset of the partition's first instruction in the `.bin` \param count its
/// instructions, HALT included
/// \param status [0] code (0: ok, npu_types.hpp `Code`), [1] field (npu_isa.hpp `FieldId`), [2] instruction, [3] ISA
/// version
extern "C" void npu_top(const int8_t* bin, uint32_t bin_bytes, int8_t* pool, uint32_t pool_bytes,
                        uint32_t instruction_addr, uint32_t count, uint32_t status[4]);
