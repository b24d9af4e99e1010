// CONV_BF16: output-stationary convolution, a balanced adder tree per output lane and array cycle, float32
// accumulators.
//
// The sums are made in the order (tap row, tap column, input block), so the result does not depend on how pixels are
// grouped: one pixel at a time here. Two on-chip words carry one block, so that the array takes half as many pixels a
// cycle as for int8 (timing model).
#pragma once

#include "bf16_stage.hpp"

namespace npuforge {
namespace hls {

/// acc[o] += tree over i of q[i] * w[o][i]. Pure function.
/// \param q input lanes \param w weights, output lane first \param acc accumulators
inline void tree_array(const uint16_t q[LANES], const uint16_t w[LANES][LANES], uint32_t acc[LANES]) {
    NPU_UNROLL_NEXT
    for (int o = 0; o < LANES; ++o) {
        NPU_UNROLL
        uint32_t product[LANES];
        NPU_PARTITION(product, 1)
        NPU_UNROLL_NEXT
        for (int i = 0; i < LANES; ++i) {
            NPU_UNROLL
            product[i] = weigh_bf16(q[i], w[o][i]);
        }
        acc[o] = add_float(acc[o], tree_sum(product));
    }
}

/// Weight tile of (output block, tap, input block). \param stride bytes from one output lane to the next
inline void read_bf16_tile(const int8_t sram[][LANES], uint32_t address, uint32_t stride, uint16_t tile[LANES][LANES]) {
    for (uint32_t o = 0; o < (uint32_t)LANES; ++o) {
        NPU_PIPELINE
        read_block(sram, address + o * stride, tile[o]);
    }
}

/// Output pixels of a group: one weight tile serves them all.
constexpr uint32_t BF16_GROUP = 64;

/// One tap and input block for `count` pixels of output row `y` from column `x` on. A tap outside the map adds +0.
inline void accumulate_bf16(const int8_t sram[][LANES], const isa::ConvBf16& i, uint32_t y, uint32_t x, uint32_t count,
                            uint32_t ky, uint32_t kx, uint32_t block, const uint16_t tile[LANES][LANES],
                            uint32_t acc[BF16_GROUP][LANES]) {
    const int32_t row = window_origin(y, i.stride_h, i.pad_top) + (int32_t)(ky * i.dilation_h);
    for (uint32_t p = 0; p < count; ++p) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, 64)
        const int32_t column = window_origin(x + p, i.stride_w, i.pad_left) + (int32_t)(kx * i.dilation_w);
        if (inside(row, column, i.in_h, i.in_w)) {
            uint16_t q[LANES];
            NPU_PARTITION(q, 1)
            read_block(sram, input_address(i, row, column) + BF16_BLOCK_BYTES * block, q);
            tree_array(q, tile, acc[p]);
        } else {
            NPU_UNROLL_NEXT
            for (int o = 0; o < LANES; ++o) {
                NPU_UNROLL
                acc[p][o] = add_float(acc[p][o], 0u);
            }
        }
    }
}

/// `count` pixels of output row `y` from column `x` on, one output block.
inline void conv_bf16_group(int8_t sram[][LANES], const isa::ConvBf16& i, uint32_t block, uint32_t y, uint32_t x,
                            uint32_t count, const Bf16Parameters& parameters, const Bf16Settings& settings) {
    uint32_t acc[BF16_GROUP][LANES];
    NPU_PARTITION(acc, 2)
    for (uint32_t p = 0; p < count; ++p) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, 64)
        NPU_UNROLL_NEXT
        for (int o = 0; o < LANES; ++o) {
            NPU_UNROLL
            acc[p][o] = 0u;
        }
    }
    const uint32_t tap_bytes = BF16_BLOCK_BYTES * i.blocks_in;
    const uint32_t lane_bytes = i.kernel_h * i.kernel_w * tap_bytes;
    const uint32_t weights = i.weight_addr + (uint32_t)LANES * block * lane_bytes;
    for (uint32_t ky = 0; ky < i.kernel_h; ++ky) {
        NPU_TRIPCOUNT(1, 5)
        for (uint32_t kx = 0; kx < i.kernel_w; ++kx) {
            NPU_TRIPCOUNT(1, 5)
            for (uint32_t in = 0; in < i.blocks_in; ++in) {
                NPU_TRIPCOUNT(1, 64)
                uint16_t tile[LANES][LANES];
                NPU_PARTITION(tile, 0)
                read_bf16_tile(sram, weights + (ky * i.kernel_w + kx) * tap_bytes + BF16_BLOCK_BYTES * in, lane_bytes,
                               tile);
                accumulate_bf16(sram, i, y, x, count, ky, kx, in, tile, acc);
            }
        }
    }
    for (uint32_t p = 0; p < count; ++p) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, 64)
        uint16_t word[LANES];
        NPU_PARTITION(word, 1)
        apply_bf16_stage(acc[p], parameters, settings, word);
        write_block(sram, output_address(i, y, x + p) + BF16_BLOCK_BYTES * block, word);
    }
}

/// Executes a CONV_BF16 instruction that has passed its check.
inline Status conv_bf16(const isa::ConvBf16& i, int8_t sram[][LANES]) {
    Bf16Settings settings;
    NPU_PARTITION(settings.table, 1)
    read_bf16_settings(sram, i, settings);
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        Bf16Parameters parameters;
        read_bf16_parameters(sram, i.record_addr + isa::Bf16Record::BYTES * (uint32_t)LANES * block, parameters);
        for (uint32_t y = 0; y < i.out_h; ++y) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t x = 0; x < i.out_w; x += BF16_GROUP) {
                NPU_TRIPCOUNT(1, 7)
                const uint32_t left = i.out_w - x;
                conv_bf16_group(sram, i, block, y, x, left < BF16_GROUP ? left : BF16_GROUP, parameters, settings);
            }
        }
    }
    return Status();
}

}  // namespace hls
}  // namespace npuforge
