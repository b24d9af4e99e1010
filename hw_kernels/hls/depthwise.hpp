// DEPTHWISE unit of the vector engine: its own 16 multipliers per pixel, so that it runs beside the array.
#pragma once

#include "checks.hpp"
#include "requantise.hpp"
#include "window.hpp"

namespace npuforge {
namespace hls {

/// acc[lane] += q[lane] * w[lane], modulo 2^32. Pure function.
inline void mac_lanes(const int8_t q[LANES], const int8_t w[LANES], int32_t acc[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        acc[lane] = (int32_t)((uint32_t)acc[lane] + (uint32_t)((int32_t)q[lane] * (int32_t)w[lane]));
    }
}

/// One output pixel of one block.
inline void depthwise_pixel(int8_t sram[][LANES], const isa::Depthwise& i, uint32_t y, uint32_t x, uint32_t block,
                            const int32_t bias[LANES], const int8_t border[LANES], const StageParameters& parameters,
                            const StageSettings& settings) {
    int32_t acc[LANES];
    NPU_PARTITION(acc, 1)
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        acc[lane] = bias[lane];
    }
    const int32_t top = window_origin(y, i.stride_h, i.pad_top);
    const int32_t left = window_origin(x, i.stride_w, i.pad_left);
    for (uint32_t ky = 0; ky < i.kernel_h; ++ky) {
        NPU_TRIPCOUNT(1, 5)
        for (uint32_t kx = 0; kx < i.kernel_w; ++kx) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, 5)
            int8_t q[LANES];
            int8_t w[LANES];
            NPU_PARTITION(q, 1)
            NPU_PARTITION(w, 1)
            read_tap(sram, i, top + (int32_t)(ky * i.dilation_h), left + (int32_t)(kx * i.dilation_w), block, border,
                     q);
            sram_read(sram, i.weight_addr + (uint32_t)LANES * ((ky * i.kernel_w + kx) * i.blocks_out + block), w);
            mac_lanes(q, w, acc);
        }
    }
    int64_t wide[LANES];
    int8_t word[LANES];
    NPU_PARTITION(wide, 1)
    NPU_PARTITION(word, 1)
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        wide[lane] = acc[lane];
    }
    apply_stage(wide, parameters, settings, word);
    sram_write(sram, output_address(i, y, x) + (uint32_t)LANES * block, word);
}

/// Executes a DEPTHWISE instruction that has passed its check.
inline Status depthwise(const isa::Depthwise& i, int8_t sram[][LANES]) {
    StageSettings settings;
    NPU_PARTITION(settings.table, 1)
    read_settings(sram, i, settings);
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        StageParameters parameters;
        int32_t bias[LANES];
        int8_t border[LANES];
        NPU_PARTITION(bias, 1)
        NPU_PARTITION(border, 1)
        const uint32_t address = i.requant_addr + isa::RequantRecord::BYTES * (uint32_t)LANES * block;
        if (!read_parameters(sram, address, settings.stage, parameters))
            return refuse(Code::BAD_PARAMETER, Id::requant_addr);
        sram_bias(sram, i.bias_addr + 4u * (uint32_t)LANES * block, bias);
        sram_read(sram, i.pad_addr + (uint32_t)LANES * block, border);
        for (uint32_t y = 0; y < i.out_h; ++y) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t x = 0; x < i.out_w; ++x) {
                NPU_TRIPCOUNT(1, 416)
                depthwise_pixel(sram, i, y, x, block, bias, border, parameters, settings);
            }
        }
    }
    return Status();
}

}  // namespace hls
}  // namespace npuforge
