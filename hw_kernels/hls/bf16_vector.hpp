// The bf16 units of the vector engine: depthwise convolution, pooling, element-wise functions, resize.
#pragma once

#include "bf16_stage.hpp"
#include "resize.hpp"

namespace npuforge {
namespace hls {

/// Executes a DEPTHWISE_BF16 instruction that has passed its check. Taps are added in order; one outside the map adds
/// +0.
inline Status depthwise_bf16(const isa::DepthwiseBf16& i, int8_t sram[][LANES]) {
    Bf16Settings settings;
    NPU_PARTITION(settings.table, 1)
    read_bf16_settings(sram, i, settings);
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        Bf16Parameters parameters;
        read_bf16_parameters(sram, i.record_addr + isa::Bf16Record::BYTES * (uint32_t)LANES * block, parameters);
        for (uint32_t y = 0; y < i.out_h; ++y) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t x = 0; x < i.out_w; ++x) {
                NPU_TRIPCOUNT(1, 416)
                uint32_t acc[LANES];
                NPU_PARTITION(acc, 1)
                NPU_UNROLL_NEXT
                for (int lane = 0; lane < LANES; ++lane) {
                    NPU_UNROLL
                    acc[lane] = 0u;
                }
                const int32_t top = window_origin(y, i.stride_h, i.pad_top);
                const int32_t left = window_origin(x, i.stride_w, i.pad_left);
                for (uint32_t ky = 0; ky < i.kernel_h; ++ky) {
                    NPU_TRIPCOUNT(1, 5)
                    for (uint32_t kx = 0; kx < i.kernel_w; ++kx) {
                        NPU_PIPELINE
                        NPU_TRIPCOUNT(1, 5)
                        const int32_t row = top + (int32_t)(ky * i.dilation_h);
                        const int32_t column = left + (int32_t)(kx * i.dilation_w);
                        const bool valid = inside(row, column, i.in_h, i.in_w);
                        uint16_t q[LANES];
                        uint16_t w[LANES];
                        NPU_PARTITION(q, 1)
                        NPU_PARTITION(w, 1)
                        const uint32_t source = valid ? input_address(i, row, column) : i.in_addr;
                        read_block(sram, source + BF16_BLOCK_BYTES * block, q);
                        read_block(sram,
                                   i.weight_addr + BF16_BLOCK_BYTES * ((ky * i.kernel_w + kx) * i.blocks_out + block),
                                   w);
                        NPU_UNROLL_NEXT
                        for (int lane = 0; lane < LANES; ++lane) {
                            NPU_UNROLL
                            acc[lane] = add_float(acc[lane], valid ? weigh_bf16(q[lane], w[lane]) : 0u);
                        }
                    }
                }
                uint16_t word[LANES];
                NPU_PARTITION(word, 1)
                apply_bf16_stage(acc, parameters, settings, word);
                write_block(sram, output_address(i, y, x) + BF16_BLOCK_BYTES * block, word);
            }
        }
    }
    return Status();
}

/// The larger of two values: -0 below +0, NaN above everything. Both are canonical.
inline uint16_t larger_bf16(uint16_t a, uint16_t b) {
    NPU_INLINE
    // Two's complement order of the bits, with negative values mirrored.
    const int32_t key_a = (a & 0x8000u) != 0u ? -(int32_t)(a & 0x7fffu) - 1 : (int32_t)a;
    const int32_t key_b = (b & 0x8000u) != 0u ? -(int32_t)(b & 0x7fffu) - 1 : (int32_t)b;
    return key_a >= key_b ? a : b;
}

/// Executes a POOL_BF16 instruction that has passed its check.
inline Status pool_bf16(const isa::PoolBf16& i, int8_t sram[][LANES]) {
    const bool average = i.kind == (uint32_t)isa::PoolKind::AVERAGE;
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        for (uint32_t y = 0; y < i.out_h; ++y) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t x = 0; x < i.out_w; ++x) {
                NPU_TRIPCOUNT(1, 416)
                uint32_t sum[LANES];
                uint16_t word[LANES];
                NPU_PARTITION(sum, 1)
                NPU_PARTITION(word, 1)
                NPU_UNROLL_NEXT
                for (int lane = 0; lane < LANES; ++lane) {
                    NPU_UNROLL
                    sum[lane] = 0u;
                    word[lane] = (uint16_t)((SIGN_BIT | INFINITY_BITS) >> 16);
                }
                uint32_t count = 0;
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
                            uint16_t q[LANES];
                            NPU_PARTITION(q, 1)
                            read_block(sram, input_address(i, row, column) + BF16_BLOCK_BYTES * block, q);
                            ++count;
                            NPU_UNROLL_NEXT
                            for (int lane = 0; lane < LANES; ++lane) {
                                NPU_UNROLL
                                const uint32_t value = widen_bf16(q[lane]);
                                sum[lane] = add_float(sum[lane], value);
                                word[lane] = larger_bf16(word[lane], (uint16_t)(value >> 16));
                            }
                        }
                    }
                }
                if (average) {
                    const uint32_t entry = i.single != 0u ? 0u : count - 1u;
                    const uint32_t factor = read_float(sram, i.weight_addr + 4u * entry);
                    NPU_UNROLL_NEXT
                    for (int lane = 0; lane < LANES; ++lane) {
                        NPU_UNROLL
                        word[lane] = round_bf16(multiply_float(sum[lane], factor));
                    }
                }
                write_block(sram, output_address(i, y, x) + BF16_BLOCK_BYTES * block, word);
            }
        }
    }
    return Status();
}

/// One lane of ELTWISE_BF16.
inline uint32_t combine_bf16(isa::EltwiseKind kind, uint32_t a, uint32_t b, uint32_t factor) {
    switch (kind) {
        case isa::EltwiseKind::ADD:
            return add_float(a, b);
        case isa::EltwiseKind::SUB:
            return subtract_float(a, b);
        case isa::EltwiseKind::MUL:
            return multiply_float(a, b);
        default:
            return multiply_float(a, factor);
    }
}

/// Operand b of one pixel: 16 lanes, one value for all of them, or zeros for affine, which has no operand b.
inline void read_second_bf16(const int8_t sram[][LANES], const isa::EltwiseBf16& i, uint32_t y, uint32_t x,
                             uint32_t block, uint16_t b[LANES]) {
    const uint32_t pixel = i.b_addr + y * i.b_row_stride + x * i.b_pixel_stride;
    const bool one = i.broadcast_b != 0u;
    NPU_UNROLL_NEXT
    for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
        NPU_UNROLL
        b[lane] = 0u;
        if (i.kind != (uint32_t)isa::EltwiseKind::AFFINE)
            b[lane] = (uint16_t)sram_int16(sram, one ? pixel : pixel + BF16_BLOCK_BYTES * block + 2u * lane);
    }
}

/// Executes an ELTWISE_BF16 instruction that has passed its check.
inline Status elementwise_bf16(const isa::EltwiseBf16& i, int8_t sram[][LANES]) {
    const isa::EltwiseKind kind = (isa::EltwiseKind)i.kind;
    const bool affine = kind == isa::EltwiseKind::AFFINE;
    Bf16Settings settings;
    NPU_PARTITION(settings.table, 1)
    read_bf16_settings(sram, i, settings);
    for (uint32_t block = 0; block < i.blocks_out; ++block) {
        NPU_TRIPCOUNT(1, 64)
        Bf16Parameters parameters;
        uint32_t factor[LANES];
        NPU_PARTITION(factor, 1)
        read_bf16_parameters(sram, i.record_addr + isa::Bf16Record::BYTES * (uint32_t)LANES * block, parameters);
        for (uint32_t lane = 0; lane < (uint32_t)LANES; ++lane) {
            NPU_PIPELINE
            factor[lane] = affine ? read_float(sram, i.operand_addr + 4u * ((uint32_t)LANES * block + lane)) : 0u;
        }
        for (uint32_t y = 0; y < i.out_h; ++y) {
            NPU_TRIPCOUNT(1, 416)
            for (uint32_t x = 0; x < i.out_w; ++x) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(1, 416)
                uint16_t a[LANES];
                uint16_t b[LANES];
                uint16_t word[LANES];
                uint32_t d[LANES];
                NPU_PARTITION(a, 1)
                NPU_PARTITION(b, 1)
                NPU_PARTITION(word, 1)
                NPU_PARTITION(d, 1)
                read_block(sram, input_address(i, (int32_t)y, (int32_t)x) + BF16_BLOCK_BYTES * block, a);
                read_second_bf16(sram, i, y, x, block, b);
                NPU_UNROLL_NEXT
                for (int lane = 0; lane < LANES; ++lane) {
                    NPU_UNROLL
                    d[lane] = combine_bf16(kind, widen_bf16(a[lane]), widen_bf16(b[lane]), factor[lane]);
                }
                apply_bf16_stage(d, parameters, settings, word);
                write_block(sram, output_address(i, y, x) + BF16_BLOCK_BYTES * block, word);
            }
        }
    }
    return Status();
}

/// (1 - weight)*p + weight*q, or p where the weight is 0.
inline uint32_t mix_bf16(uint32_t p, uint32_t q, uint32_t weight) {
    if (is_zero(weight)) return p;
    const uint32_t rest = subtract_float(ONE_BITS, weight);
    return add_float(multiply_float(rest, p), multiply_float(weight, q));
}

/// bf16: float32 weights of 0..1; columns are mixed first, one rounding at the end.
struct ResizeFloat {
    typedef isa::ResizeBf16Record Record;
    typedef uint16_t Lane;
    static constexpr uint32_t BLOCK_BYTES = BF16_BLOCK_BYTES;

    /// Whether a record stays inside the map and weighs 0..1.
    static bool legal(const Record& r, uint32_t size) {
        NPU_INLINE
        return r.i0 >= 0 && r.i0 < (int32_t)size && r.i1 >= 0 && r.i1 < (int32_t)size && r.w1 <= ONE_BITS;
    }
    static void read(const int8_t sram[][LANES], uint32_t address, uint16_t word[LANES]) {
        NPU_INLINE
        read_block(sram, address, word);
    }
    static void mix(const uint16_t q[4][LANES], const Record& row, const Record& column, uint16_t word[LANES]) {
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            const uint32_t upper = mix_bf16(widen_bf16(q[0][lane]), widen_bf16(q[1][lane]), column.w1);
            const uint32_t lower = mix_bf16(widen_bf16(q[2][lane]), widen_bf16(q[3][lane]), column.w1);
            word[lane] = round_bf16(mix_bf16(upper, lower, row.w1));
        }
    }
    static void write(int8_t sram[][LANES], uint32_t address, const uint16_t word[LANES]) {
        NPU_INLINE
        write_block(sram, address, word);
    }
};

/// Executes a RESIZE_BF16 instruction that has passed its check.
inline Status resize_bf16(const isa::ResizeBf16& i, int8_t sram[][LANES]) { return resize_map<ResizeFloat>(i, sram); }

}  // namespace hls
}  // namespace npuforge
