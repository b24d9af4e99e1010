// CONV engine: output-stationary convolution on the array, per-channel requantisation behind it, and behind that, where
// the instruction asks for it, the element-wise sum with a skip tensor (the residual stage).
//
// Loop order: output block > group of ACCUMULATORS output pixels > tap > input block > PIXELS pixels. The accumulators
// of a group stay in registers for all taps and blocks, and one 16x16 weight tile serves GROUPS array cycles, so that
// the next tile can be fetched (16 words) while this one works. Pixels are counted across rows: small maps fill the
// group as well as large ones.
#pragma once

#include "bf16_conv.hpp"
#include "checks.hpp"
#include "elementwise.hpp"
#include "mac_array.hpp"
#include "requantise.hpp"
#include "window.hpp"

namespace npuforge {
namespace hls {

/// Array cycles per weight tile.
constexpr int GROUPS = 32;

/// Weight tile of (output block, tap, input block), turned so that the input lane comes first.
/// \param address of w[16*block_out][tap][16*block_in] \param stride bytes from one output lane to the next
inline void read_tile(const int8_t sram[][LANES], uint32_t address, uint32_t stride, int8_t tile[LANES][LANES]) {
    for (uint32_t o = 0; o < (uint32_t)LANES; ++o) {
        NPU_PIPELINE
        int8_t word[LANES];
        NPU_PARTITION(word, 1)
        sram_read(sram, address + o * stride, word);
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            tile[lane][o] = word[lane];
        }
    }
}

/// Source coordinates and output addresses of a group of pixels, computed once for all taps.
/// \tparam SIZE pixels of a group
template <int SIZE>
struct PixelGroup {
    int32_t row[SIZE];
    int32_t column[SIZE];
    uint32_t out[SIZE];
    uint32_t skip[SIZE];  ///< addresses in the skip tensor of a residual stage
};

/// Residual stage of one block: y = sum_stage(ma*(a - za) + mb*(b - zb)), a being what the convolution would have
/// written. It is applied to bytes, so that a fused sum has the bits of a separate one.
struct ResidualStage {
    bool present = false;
    bool piecewise = false;  ///< sum_stage pwl, else direct
    OperandParameters operands;
    StageParameters parameters;
};

/// Fills the group from output pixel (y, x) on and moves (y, x) behind it. Pixels beyond the last repeat it; they are
/// computed, not stored.
/// \param left output pixels that are left, at least 1
template <int SIZE>
inline void next_group(const isa::Conv& i, uint32_t& y, uint32_t& x, uint32_t left, PixelGroup<SIZE>& group) {
    for (uint32_t p = 0; p < (uint32_t)SIZE; ++p) {
        NPU_PIPELINE
        group.row[p] = window_origin(y, i.stride_h, i.pad_top);
        group.column[p] = window_origin(x, i.stride_w, i.pad_left);
        group.out[p] = output_address(i, y, x);
        group.skip[p] = second_address(i, y, x);
        if (p + 1u < left) {
            ++x;
            if (x == i.out_w) {
                x = 0;
                ++y;
            }
        }
    }
}

/// One tap and input block for all pixels of a group.
template <int PIXELS>
inline void accumulate_tile(const int8_t sram[][LANES], const isa::Conv& i, const PixelGroup<GROUPS * PIXELS>& group,
                            uint32_t count, int32_t row_offset, int32_t column_offset, uint32_t block,
                            const int8_t border[LANES], const int8_t tile[LANES][LANES],
                            int32_t acc[GROUPS * PIXELS][LANES]) {
    for (uint32_t first = 0; first < count; first += (uint32_t)PIXELS) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, GROUPS)
        int8_t q[PIXELS][LANES];
        NPU_PARTITION(q, 0)
        NPU_UNROLL_NEXT
        for (uint32_t p = 0; p < (uint32_t)PIXELS; ++p) {
            NPU_UNROLL
            read_tap(sram, i, group.row[first + p] + row_offset, group.column[first + p] + column_offset, block, border,
                     q[p]);
        }
        mac_array<PIXELS>(q, tile, &acc[first]);
    }
}

/// Sum of one word and the word of the skip tensor.
inline void add_residual(const int8_t sram[][LANES], const ResidualStage& residual, uint32_t skip,
                         const int8_t word[LANES], int8_t sum[LANES]) {
    int8_t b[LANES];
    int64_t d[LANES];
    NPU_PARTITION(b, 1)
    NPU_PARTITION(d, 1)
    sram_read(sram, skip, b);
    combine(isa::EltwiseKind::ADD, word, b, residual.operands, d);
    if (residual.piecewise) {
        stage_pwl(d, residual.parameters, sum);
    } else {
        stage_direct(d, residual.parameters, sum);
    }
}

/// Requantises, adds the skip tensor and writes `count` pixels of one output block.
/// \param trace sees the convolution's own bytes where the residual stage follows
template <int PIXELS, class Trace>
inline void finish_group(int8_t sram[][LANES], const PixelGroup<GROUPS * PIXELS>& group, uint32_t count, uint32_t block,
                         const StageParameters& parameters, const StageSettings& settings,
                         const ResidualStage& residual, const int32_t acc[GROUPS * PIXELS][LANES], Trace& trace) {
    for (uint32_t p = 0; p < count; ++p) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, GROUPS * PIXELS)
        int64_t wide[LANES];
        int8_t word[LANES];
        NPU_PARTITION(wide, 1)
        NPU_PARTITION(word, 1)
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            wide[lane] = acc[p][lane];
        }
        apply_stage(wide, parameters, settings, word);
        const uint32_t offset = (uint32_t)LANES * block;
        if (residual.present) {
            int8_t sum[LANES];
            NPU_PARTITION(sum, 1)
            trace.before_sum(group.out[p] + offset, word);
            add_residual(sram, residual, group.skip[p] + offset, word, sum);
            sram_write(sram, group.out[p] + offset, sum);
        } else {
            sram_write(sram, group.out[p] + offset, word);
        }
    }
}

/// All pixels of one output block.
template <int PIXELS, class Trace>
inline void conv_block(int8_t sram[][LANES], const isa::Conv& i, uint32_t block, const StageParameters& parameters,
                       const StageSettings& settings, const ResidualStage& residual, Trace& trace) {
    constexpr int SIZE = GROUPS * PIXELS;
    int32_t bias[LANES];
    NPU_PARTITION(bias, 1)
    sram_bias(sram, i.bias_addr + 4u * (uint32_t)LANES * block, bias);
    const uint32_t tap_bytes = (uint32_t)LANES * i.blocks_in;
    const uint32_t lane_bytes = i.kernel_h * i.kernel_w * tap_bytes;
    const uint32_t block_addr = i.weight_addr + (uint32_t)LANES * block * lane_bytes;
    uint32_t y = 0;
    uint32_t x = 0;
    for (uint32_t left = i.out_h * i.out_w; left > 0u;) {
        NPU_TRIPCOUNT(1, 4096)
        PixelGroup<SIZE> group;
        int32_t acc[SIZE][LANES];
        NPU_PARTITION(acc, 2)
        const uint32_t count = left < (uint32_t)SIZE ? left : (uint32_t)SIZE;
        next_group(i, y, x, left, group);
        for (uint32_t p = 0; p < (uint32_t)SIZE; ++p) {
            NPU_PIPELINE
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                acc[p][lane] = bias[lane];
            }
        }
        for (uint32_t ky = 0; ky < i.kernel_h; ++ky) {
            NPU_TRIPCOUNT(1, 5)
            for (uint32_t kx = 0; kx < i.kernel_w; ++kx) {
                NPU_TRIPCOUNT(1, 5)
                const uint32_t tap_addr = block_addr + (ky * i.kernel_w + kx) * tap_bytes;
                for (uint32_t in = 0; in < i.blocks_in; ++in) {
                    NPU_TRIPCOUNT(1, 64)
                    int8_t tile[LANES][LANES];
                    int8_t border[LANES];
                    NPU_PARTITION(tile, 0)
                    NPU_PARTITION(border, 1)
                    read_tile(sram, tap_addr + (uint32_t)LANES * in, lane_bytes, tile);
                    sram_read(sram, i.pad_addr + (uint32_t)LANES * in, border);
                    accumulate_tile<PIXELS>(sram, i, group, count, (int32_t)(ky * i.dilation_h),
                                            (int32_t)(kx * i.dilation_w), in, border, tile, acc);
                }
            }
        }
        finish_group<PIXELS>(sram, group, count, block, parameters, settings, residual, acc, trace);
        left -= count;
    }
}

/// Parameters of the residual stage of one block. Returns the field whose records are illegal, or `none`.
inline Id read_residual(const int8_t sram[][LANES], const isa::Conv& i, uint32_t block, ResidualStage& residual) {
    residual.present = i.residual != 0u;
    residual.piecewise = i.sum_stage == (uint32_t)isa::Stage::PWL;
    if (!residual.present) return Id::none;
    if (!read_operands(sram, i.operand_addr, false, 0u, block, residual.operands)) return Id::operand_addr;
    const uint32_t address = i.sum_requant_addr + isa::RequantRecord::BYTES * (uint32_t)LANES * block;
    const bool legal = read_parameters(sram, address, (isa::Stage)i.sum_stage, residual.parameters);
    return legal ? Id::none : Id::sum_requant_addr;
}

/// Executes one instruction of the convolution queue.
/// \tparam PIXELS `pixel_parallel` of the arch; the result does not depend on it
/// \tparam Trace sees what the convolution gives before a sum
template <int PIXELS, class Trace>
inline Status conv_engine(const uint32_t words[isa::INSTRUCTION_WORDS], int8_t sram[][LANES], const Limits& limits,
                          Trace& trace) {
    const Status status = check_instruction(words, limits);
    if (status.code != Code::OK) return status;
    if (HAS_BF16 && isa::opcode_of(words) == (uint32_t)isa::Opcode::CONV_BF16)
        return conv_bf16(isa::ConvBf16::decode(words), sram);
    const isa::Conv i = isa::Conv::decode(words);
    StageSettings settings;
    NPU_PARTITION(settings.table, 1)
    read_settings(sram, i, settings);
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        StageParameters parameters;
        ResidualStage residual;
        const uint32_t address = i.requant_addr + isa::RequantRecord::BYTES * (uint32_t)LANES * block;
        if (!read_parameters(sram, address, settings.stage, parameters))
            return refuse(Code::BAD_PARAMETER, Id::requant_addr);
        const Id illegal = read_residual(sram, i, block, residual);
        if (illegal != Id::none) return refuse(Code::BAD_PARAMETER, illegal);
        conv_block<PIXELS>(sram, i, block, parameters, settings, residual, trace);
    }
    return status;
}

}  // namespace hls
}  // namespace npuforge
