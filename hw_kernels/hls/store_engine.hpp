// STORE engine: SRAM to the pool in DDR.
#pragma once

#include "checks.hpp"

namespace npuforge {
namespace hls {

/// Strided copy of 16-byte words. \param pool DDR region 1
inline void store(const isa::Store& i, const int8_t sram[][LANES], int8_t* pool) {
    for (uint32_t row = 0; row < i.rows; ++row) {
        NPU_TRIPCOUNT(1, 416)
        for (uint32_t column = 0; column < i.cols; ++column) {
            NPU_TRIPCOUNT(1, 416)
            const uint32_t to = i.ddr_addr + row * i.ddr_row_stride + column * i.ddr_col_stride;
            const uint32_t from = i.sram_addr + row * i.sram_row_stride + column * i.sram_col_stride;
            for (uint32_t k = 0; k < i.chunk; k += (uint32_t)LANES) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, 4096)
                int8_t word[LANES];
                NPU_PARTITION(word, 1)
                sram_read(sram, from + k, word);
                NPU_UNROLL_NEXT
                for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
                    NPU_UNROLL
                    pool[to + k + lane] = word[lane];
                }
            }
        }
    }
}

/// Executes one instruction of the store queue.
inline Status store_engine(const uint32_t words[isa::INSTRUCTION_WORDS], int8_t* pool, const int8_t sram[][LANES],
                           const Limits& limits) {
    const Status status = check_instruction(words, limits);
    if (status.code == Code::OK) store(isa::Store::decode(words), sram, pool);
    return status;
}

}  // namespace hls
}  // namespace npuforge
