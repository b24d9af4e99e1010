// LOAD engine: DDR to SRAM, plain and folding (first layers with few channels fill the 16 lanes with taps).
#pragma once

#include "checks.hpp"
#include "window.hpp"

namespace npuforge {
namespace hls {

/// Strided copy of 16-byte words from a DDR region. \param ddr the region that `i.region` names
inline void load(const isa::Load& i, const int8_t* ddr, int8_t sram[][LANES]) {
    for (uint32_t row = 0; row < i.rows; ++row) {
        NPU_TRIPCOUNT(1, 416)
        for (uint32_t column = 0; column < i.cols; ++column) {
            NPU_TRIPCOUNT(1, 416)
            const uint32_t from = i.ddr_addr + row * i.ddr_row_stride + column * i.ddr_col_stride;
            const uint32_t to = i.sram_addr + row * i.sram_row_stride + column * i.sram_col_stride;
            for (uint32_t k = 0; k < i.chunk; k += (uint32_t)LANES) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, 4096)
                int8_t word[LANES];
                NPU_PARTITION(word, 1)
                NPU_UNROLL_NEXT
                for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
                    NPU_UNROLL
                    word[lane] = ddr[from + k + lane];
                }
                sram_write(sram, to + k, word);
            }
        }
    }
}

/// Border byte of channel c.
inline int8_t fold_border(uint32_t pad_bytes, uint32_t channel) {
    NPU_INLINE
    return (int8_t)isa::sign_extend(pad_bytes >> (8u * channel), 8);
}

/// Space-to-depth or tap folding: lane l of an output pixel is tap and channel l of its window; the remaining lanes are
/// 0. Invariant: kernel_h*kernel_w*channels <= 16*blocks_out. One byte per cycle; (ky, kx, channel, byte of the lane)
/// are counters beside the byte. \tparam BYTES of a lane: 1 int8, 2 bf16 \tparam I isa::LoadFold or isa::LoadFoldBf16
/// \param border byte of channel c in bits 8c..8c+7, 0 for bf16
template <uint32_t BYTES, class I>
inline void load_fold(const I& i, uint32_t border, const int8_t* ddr, int8_t sram[][LANES]) {
    const uint32_t used = BYTES * i.kernel_h * i.kernel_w * i.channels;
    const uint32_t words = BYTES * i.blocks_out;
    for (uint32_t y = 0; y < i.out_h; ++y) {
        NPU_TRIPCOUNT(1, 416)
        for (uint32_t x = 0; x < i.out_w; ++x) {
            NPU_TRIPCOUNT(1, 416)
            const int32_t top = window_origin(y, i.stride_h, i.pad_top);
            const int32_t left = window_origin(x, i.stride_w, i.pad_left);
            uint32_t ky = 0;
            uint32_t kx = 0;
            uint32_t byte = 0;  // of the tap's pixel
            for (uint32_t k = 0; k < words; ++k) {
                NPU_TRIPCOUNT(1, 8)
                int8_t word[LANES];
                NPU_PARTITION(word, 1)
                for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
                    NPU_PIPELINE
                    int8_t value = 0;
                    if (k * (uint32_t)LANES + lane < used) {
                        const int32_t row = top + (int32_t)ky;
                        const int32_t column = left + (int32_t)kx;
                        value = fold_border(border, byte / BYTES);
                        if (inside(row, column, i.in_h, i.in_w)) {
                            value = ddr[i.ddr_addr + (uint32_t)row * i.ddr_row_stride +
                                        (uint32_t)column * i.channels * BYTES + byte];
                        }
                        ++byte;
                        if (byte == BYTES * i.channels) {
                            byte = 0;
                            ++kx;
                        }
                        if (kx == i.kernel_w) {
                            kx = 0;
                            ++ky;
                        }
                    }
                    word[lane] = value;
                }
                sram_write(sram, output_address(i, y, x) + (uint32_t)LANES * k, word);
            }
        }
    }
}

/// Executes one instruction of the load queue (HALT does nothing). \param bin DDR region 0 \param pool DDR region 1
inline Status load_engine(const uint32_t words[isa::INSTRUCTION_WORDS], const int8_t* bin, const int8_t* pool,
                          int8_t sram[][LANES], const Limits& limits) {
    const Status status = check_instruction(words, limits);
    if (status.code != Code::OK) return status;
    switch ((isa::Opcode)isa::opcode_of(words)) {
        case isa::Opcode::LOAD: {
            const isa::Load i = isa::Load::decode(words);
            load(i, i.region == (uint32_t)isa::Region::BIN ? bin : pool, sram);
            break;
        }
        case isa::Opcode::LOAD_FOLD: {
            const isa::LoadFold i = isa::LoadFold::decode(words);
            load_fold<1u>(i, i.pad_bytes, i.region == (uint32_t)isa::Region::BIN ? bin : pool, sram);
            break;
        }
        case isa::Opcode::LOAD_FOLD_BF16: {
            const isa::LoadFoldBf16 i = isa::LoadFoldBf16::decode(words);
            load_fold<2u>(i, 0u, i.region == (uint32_t)isa::Region::BIN ? bin : pool, sram);
            break;
        }
        default:
            break;
    }
    return status;
}

}  // namespace hls
}  // namespace npuforge
