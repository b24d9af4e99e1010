// POOL unit of the vector engine: maximum and average over windows.
#pragma once

#include "checks.hpp"
#include "requantise.hpp"
#include "window.hpp"

namespace npuforge {
namespace hls {

/// Average parameters of one block.
struct AverageParameters {
    int8_t zero_in[LANES];
    int8_t zero_out[LANES];
};

/// y = sat8((((sum - count*zero_in) * multiplier + 2^(shift-1)) >> shift) + zero_out). Pure function.
/// \param sum of the valid taps, |sum| < 2^39 \param count of valid taps, < 2^32
inline void average_lanes(const int64_t sum[LANES], uint32_t count, const int16_t multiplier[LANES], int shift,
                          const AverageParameters& p, int8_t out[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        const int64_t centred = sum[lane] - (int64_t)count * p.zero_in[lane];
        out[lane] = (int8_t)clamp(round_shift(centred * multiplier[lane], shift) + p.zero_out[lane], -128, 127);
    }
}

/// Sums, maxima and number of valid taps of one window.
/// Invariant: border taps leave sum and maximum alone; the maximum starts at the border value -128.
struct WindowResult {
    int64_t sum[LANES];
    int8_t largest[LANES];
    uint32_t count;
};

inline void scan_window(const int8_t sram[][LANES], const isa::Pool& i, uint32_t y, uint32_t x, uint32_t block,
                        WindowResult& r) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        r.sum[lane] = 0;
        r.largest[lane] = -128;
    }
    r.count = 0;
    const int32_t top = window_origin(y, i.stride_h, i.pad_top);
    const int32_t left = window_origin(x, i.stride_w, i.pad_left);
    for (uint32_t ky = 0; ky < i.kernel_h; ++ky) {
        NPU_TRIPCOUNT(1, 13)
        for (uint32_t kx = 0; kx < i.kernel_w; ++kx) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, 13)
            const int32_t row = top + (int32_t)(ky * i.dilation_h);
            const int32_t column = left + (int32_t)(kx * i.dilation_w);
            if (inside(row, column, i.in_h, i.in_w)) {
                int8_t q[LANES];
                NPU_PARTITION(q, 1)
                sram_read(sram, input_address(i, row, column) + (uint32_t)LANES * block, q);
                ++r.count;
                NPU_UNROLL_NEXT
                for (int lane = 0; lane < LANES; ++lane) {
                    NPU_UNROLL
                    r.sum[lane] += q[lane];
                    r.largest[lane] = q[lane] > r.largest[lane] ? q[lane] : r.largest[lane];
                }
            }
        }
    }
}

/// Multipliers of a window with `count` valid taps, at least 1 (checked).
inline void read_multipliers(const int8_t sram[][LANES], const isa::Pool& i, uint32_t count, uint32_t block,
                             int16_t m[LANES]) {
    const uint32_t row = i.single != 0u ? 0u : count - 1u;
    const uint32_t address = i.weight_addr + 2u * (uint32_t)LANES * (row * i.blocks_out + block);
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_PIPELINE
        m[lane] = (int16_t)sram_int16(sram, address + 2u * lane);
    }
}

/// False if a reserved member is not 0.
inline bool read_average(const int8_t sram[][LANES], const isa::Pool& i, uint32_t block, AverageParameters& p) {
    bool legal = true;
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_PIPELINE
        uint8_t bytes[8];
        NPU_PARTITION(bytes, 1)
        const uint32_t index = (uint32_t)LANES * block + lane;
        sram_record(sram, i.requant_addr + isa::RequantRecord::BYTES * index, bytes);
        p.zero_out[lane] = (int8_t)isa::RequantRecord::decode(bytes).z;
        sram_record(sram, i.operand_addr + isa::OperandRecord::BYTES * index, bytes);
        const isa::OperandRecord operand = isa::OperandRecord::decode(bytes);
        p.zero_in[lane] = (int8_t)operand.za;
        legal = legal && operand.reserved == 0;
    }
    return legal;
}

/// Executes a POOL instruction that has passed its check.
inline Status pool(const isa::Pool& i, int8_t sram[][LANES]) {
    const bool average = i.kind == (uint32_t)isa::PoolKind::AVERAGE;
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        AverageParameters parameters;
        if (average && !read_average(sram, i, block, parameters)) return refuse(Code::BAD_PARAMETER, Id::operand_addr);
        for (uint32_t y = 0; y < i.out_h; ++y) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t x = 0; x < i.out_w; ++x) {
                NPU_TRIPCOUNT(1, 416)
                WindowResult window;
                scan_window(sram, i, y, x, block, window);
                if (average) {
                    int16_t multiplier[LANES];
                    NPU_PARTITION(multiplier, 1)
                    read_multipliers(sram, i, window.count, block, multiplier);
                    average_lanes(window.sum, window.count, multiplier, (int)i.shift, parameters, window.largest);
                }
                sram_write(sram, output_address(i, y, x) + (uint32_t)LANES * block, window.largest);
            }
        }
    }
    return Status();
}

}  // namespace hls
}  // namespace npuforge
