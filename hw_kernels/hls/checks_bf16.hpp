// Checks of the fields of the bf16 instructions.
#pragma once

#include "checker.hpp"

namespace npuforge {
namespace hls {

constexpr uint32_t BF16_BYTES = 2u;               ///< of a lane
constexpr uint32_t CURVE_BYTES = 3u * 256u * 4u;  ///< c0, c1, c2 of 256 segments

/// \tparam I an instruction with the STAGE_BF16 fields
template <class I>
inline void check_bf16_stage(Checker& c, const I& i) {
    c.value(i.stage <= 1u, Id::stage);
    if (i.stage == (uint32_t)isa::Stage::TABLE) {
        if (i.tail_low_is_input != 0u) c.zero(i.tail_low, Id::tail_low);
        if (i.tail_high_is_input != 0u) c.zero(i.tail_high, Id::tail_high);
    } else {
        c.zero(i.tail_low_is_input, Id::tail_low_is_input);
        c.zero(i.tail_high_is_input, Id::tail_high_is_input);
        c.zero(i.tail_low, Id::tail_low);
        c.zero(i.tail_high, Id::tail_high);
        c.zero(i.table_addr, Id::table_addr);
    }
}
template <class I>
inline void check_bf16_stage_memory(Checker& c, const I& i, const Limits& l) {
    c.aligned(i.record_addr, Id::record_addr);
    const bool table = i.stage == (uint32_t)isa::Stage::TABLE;
    if (table) c.aligned(i.table_addr, Id::table_addr);
    c.range(i.record_addr, (uint64_t)isa::Bf16Record::BYTES * LANES * i.blocks_out, l.sram_bytes, Id::record_addr);
    if (table) c.range(i.table_addr, CURVE_BYTES, l.sram_bytes, Id::table_addr);
}

inline Status check_load_fold_bf16(const isa::LoadFoldBf16& i, const Limits& l) {
    Checker c;
    check_fold_values(c, i);
    c.require((i.ddr_addr & 1u) == 0u, Code::MISALIGNED, Id::ddr_addr);
    c.require((i.ddr_row_stride & 1u) == 0u, Code::MISALIGNED, Id::ddr_row_stride);
    check_output_alignment(c, i, BF16_BYTES);
    const uint64_t ddr = i.region == (uint32_t)isa::Region::BIN ? l.bin_bytes : l.pool_bytes;
    c.grid(i.ddr_addr, i.in_h, i.ddr_row_stride, i.in_w, BF16_BYTES * i.channels, BF16_BYTES * i.channels, ddr,
           Id::ddr_addr);
    check_output_bounds(c, i, l, BF16_BYTES);
    return c.status;
}

inline Status check_conv_bf16(const isa::ConvBf16& i, const Limits& l) {
    Checker c;
    check_bf16_stage(c, i);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    c.positive(i.blocks_in, Id::blocks_in);
    check_window(c, i);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, BF16_BYTES);
    c.aligned(i.weight_addr, Id::weight_addr);
    check_bf16_stage_memory(c, i, l);
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, BF16_BYTES * 16u * (uint64_t)i.blocks_in,
           l.sram_bytes, Id::in_addr);
    check_weight_tiles(c, i, l, BF16_BYTES);
    check_output_bounds(c, i, l, BF16_BYTES);
    return c.status;
}

inline Status check_depthwise_bf16(const isa::DepthwiseBf16& i, const Limits& l) {
    Checker c;
    check_bf16_stage(c, i);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    check_window(c, i);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, BF16_BYTES);
    c.aligned(i.weight_addr, Id::weight_addr);
    check_bf16_stage_memory(c, i, l);
    const uint64_t block_bytes = (uint64_t)BF16_BYTES * LANES * i.blocks_out;
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    c.range(i.weight_addr, (uint64_t)i.kernel_h * i.kernel_w * block_bytes, l.sram_bytes, Id::weight_addr);
    check_output_bounds(c, i, l, BF16_BYTES);
    return c.status;
}

/// Every window has a valid tap; `single` holds only where all windows have the same number.
inline Status check_pool_bf16(const isa::PoolBf16& i, const Limits& l) {
    Checker c;
    const bool average = i.kind == (uint32_t)isa::PoolKind::AVERAGE;
    c.value(i.kind <= 1u, Id::kind);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    check_window(c, i);
    check_output_values(c, i);
    TapCounts rows;
    TapCounts columns;
    check_every_window_has_taps(c, i, rows, columns);
    if (average) {
        c.value(i.single == 0u || (rows.fewest == rows.most && columns.fewest == columns.most), Id::single);
    } else {
        c.zero(i.weight_addr, Id::weight_addr);
        c.zero(i.single, Id::single);
    }
    check_input_alignment(c, i);
    check_output_alignment(c, i, BF16_BYTES);
    c.aligned(i.weight_addr, Id::weight_addr);
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, (uint64_t)BF16_BYTES * LANES * i.blocks_out,
           l.sram_bytes, Id::in_addr);
    if (average) {
        const uint64_t counts = i.single != 0u ? (uint64_t)1 : (uint64_t)rows.most * columns.most;
        c.range(i.weight_addr, 4u * counts, l.sram_bytes, Id::weight_addr);
    }
    check_output_bounds(c, i, l, BF16_BYTES);
    return c.status;
}

inline Status check_eltwise_bf16(const isa::EltwiseBf16& i, const Limits& l) {
    Checker c;
    const bool affine = i.kind == (uint32_t)isa::EltwiseKind::AFFINE;
    check_bf16_stage(c, i);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, BF16_BYTES);
    if (affine) {
        c.aligned(i.operand_addr, Id::operand_addr);
        c.zero(i.broadcast_b, Id::broadcast_b);
        c.zero(i.b_addr, Id::b_addr);
        c.zero(i.b_row_stride, Id::b_row_stride);
        c.zero(i.b_pixel_stride, Id::b_pixel_stride);
    } else {
        c.zero(i.operand_addr, Id::operand_addr);
        const uint32_t mask = i.broadcast_b == 0u ? 15u : 1u;
        c.require((i.b_addr & mask) == 0u, Code::MISALIGNED, Id::b_addr);
        c.aligned(i.b_row_stride, Id::b_row_stride);
        c.aligned(i.b_pixel_stride, Id::b_pixel_stride);
    }
    check_bf16_stage_memory(c, i, l);
    const uint64_t block_bytes = (uint64_t)BF16_BYTES * LANES * i.blocks_out;
    c.grid(i.in_addr, i.out_h, i.in_row_stride, i.out_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    if (affine) {
        c.range(i.operand_addr, 4u * (uint64_t)LANES * i.blocks_out, l.sram_bytes, Id::operand_addr);
    } else {
        const uint64_t bytes = i.broadcast_b != 0u ? (uint64_t)BF16_BYTES : block_bytes;
        c.grid(i.b_addr, i.out_h, i.b_row_stride, i.out_w, i.b_pixel_stride, bytes, l.sram_bytes, Id::b_addr);
    }
    check_output_bounds(c, i, l, BF16_BYTES);
    return c.status;
}

inline Status check_resize_bf16(const isa::ResizeBf16& i, const Limits& l) {
    Checker c;
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, BF16_BYTES);
    c.aligned(i.row_table_addr, Id::row_table_addr);
    c.aligned(i.col_table_addr, Id::col_table_addr);
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, (uint64_t)BF16_BYTES * LANES * i.blocks_out,
           l.sram_bytes, Id::in_addr);
    c.range(i.row_table_addr, (uint64_t)isa::ResizeBf16Record::BYTES * i.out_h, l.sram_bytes, Id::row_table_addr);
    c.range(i.col_table_addr, (uint64_t)isa::ResizeBf16Record::BYTES * i.out_w, l.sram_bytes, Id::col_table_addr);
    check_output_bounds(c, i, l, BF16_BYTES);
    return c.status;
}

}  // namespace hls
}  // namespace npuforge
