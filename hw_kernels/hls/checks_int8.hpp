// Checks of the fields of the transfers and of the int8 instructions.
#pragma once

#include "checker.hpp"

namespace npuforge {
namespace hls {

/// \param direct_allowed whether the direct stage exists for this opcode
template <class I>
inline void check_stage(Checker& c, const I& i, bool direct_allowed) {
    c.value(i.stage <= (direct_allowed ? 2u : 1u), Id::stage);
    if (i.stage == (uint32_t)isa::Stage::TABLE) {
        c.value(i.fraction_bits >= (uint32_t)MIN_FRACTION_BITS && i.fraction_bits <= (uint32_t)MAX_FRACTION_BITS,
                Id::fraction_bits);
        if (i.tail_low_is_input != 0u) c.zero((uint32_t)i.tail_low, Id::tail_low);
        if (i.tail_high_is_input != 0u) c.zero((uint32_t)i.tail_high, Id::tail_high);
    } else {
        c.zero(i.fraction_bits, Id::fraction_bits);
        c.zero(i.tail_low_is_input, Id::tail_low_is_input);
        c.zero(i.tail_high_is_input, Id::tail_high_is_input);
        c.zero((uint32_t)i.tail_low, Id::tail_low);
        c.zero((uint32_t)i.tail_high, Id::tail_high);
        c.zero(i.table_addr, Id::table_addr);
    }
}
template <class I>
inline void check_stage_memory(Checker& c, const I& i, const Limits& l) {
    c.aligned(i.requant_addr, Id::requant_addr);
    const bool table = i.stage == (uint32_t)isa::Stage::TABLE;
    if (table) c.aligned(i.table_addr, Id::table_addr);
    c.range(i.requant_addr, (uint64_t)isa::RequantRecord::BYTES * LANES * i.blocks_out, l.sram_bytes, Id::requant_addr);
    if (table) c.range(i.table_addr, 2u * (uint64_t)TABLE_ENTRIES, l.sram_bytes, Id::table_addr);
}

/// LOAD and STORE. \tparam I isa::Load or isa::Store
template <class I>
inline Status check_transfer(const I& i, const Limits& l, bool is_store) {
    Checker c;
    c.value(i.region <= 1u && !(is_store && i.region != (uint32_t)isa::Region::POOL), Id::region);
    c.positive(i.rows, Id::rows);
    c.positive(i.cols, Id::cols);
    c.value(i.chunk > 0u && (i.chunk & 15u) == 0u, Id::chunk);
    c.aligned(i.ddr_addr, Id::ddr_addr);
    c.aligned(i.ddr_row_stride, Id::ddr_row_stride);
    c.aligned(i.ddr_col_stride, Id::ddr_col_stride);
    c.aligned(i.sram_addr, Id::sram_addr);
    c.aligned(i.sram_row_stride, Id::sram_row_stride);
    c.aligned(i.sram_col_stride, Id::sram_col_stride);
    const uint64_t ddr = i.region == (uint32_t)isa::Region::BIN ? l.bin_bytes : l.pool_bytes;
    c.grid(i.ddr_addr, i.rows, i.ddr_row_stride, i.cols, i.ddr_col_stride, i.chunk, ddr, Id::ddr_addr);
    c.grid(i.sram_addr, i.rows, i.sram_row_stride, i.cols, i.sram_col_stride, i.chunk, l.sram_bytes, Id::sram_addr);
    return c.status;
}

inline Status check_load_fold(const isa::LoadFold& i, const Limits& l) {
    Checker c;
    check_fold_values(c, i);
    check_output_alignment(c, i, 1u);
    if (i.channels < 4u) c.value((i.pad_bytes >> (8u * i.channels)) == 0u, Id::pad_bytes);
    const uint64_t ddr = i.region == (uint32_t)isa::Region::BIN ? l.bin_bytes : l.pool_bytes;
    c.grid(i.ddr_addr, i.in_h, i.ddr_row_stride, i.in_w, i.channels, i.channels, ddr, Id::ddr_addr);
    check_output_bounds(c, i, l, 1u);
    return c.status;
}

/// The sum with a skip tensor behind a convolution: values and alignment. Without it all its fields are 0.
inline void check_residual(Checker& c, const isa::Conv& i) {
    if (i.residual != 0u) {
        c.value(i.sum_stage == (uint32_t)isa::Stage::PWL || i.sum_stage == (uint32_t)isa::Stage::DIRECT, Id::sum_stage);
        c.aligned(i.b_addr, Id::b_addr);
        c.aligned(i.b_row_stride, Id::b_row_stride);
        c.aligned(i.b_pixel_stride, Id::b_pixel_stride);
        c.aligned(i.operand_addr, Id::operand_addr);
        c.aligned(i.sum_requant_addr, Id::sum_requant_addr);
    } else {
        c.zero(i.b_addr, Id::b_addr);
        c.zero(i.b_row_stride, Id::b_row_stride);
        c.zero(i.b_pixel_stride, Id::b_pixel_stride);
        c.zero(i.operand_addr, Id::operand_addr);
        c.zero(i.sum_requant_addr, Id::sum_requant_addr);
        c.zero(i.sum_stage, Id::sum_stage);
    }
}
inline void check_residual_memory(Checker& c, const isa::Conv& i, const Limits& l) {
    if (i.residual == 0u) return;
    const uint64_t block_bytes = (uint64_t)LANES * i.blocks_out;
    c.grid(i.b_addr, i.out_h, i.b_row_stride, i.out_w, i.b_pixel_stride, block_bytes, l.sram_bytes, Id::b_addr);
    c.range(i.operand_addr, isa::OperandRecord::BYTES * block_bytes, l.sram_bytes, Id::operand_addr);
    c.range(i.sum_requant_addr, isa::RequantRecord::BYTES * block_bytes, l.sram_bytes, Id::sum_requant_addr);
}

inline Status check_conv(const isa::Conv& i, const Limits& l) {
    Checker c;
    check_stage(c, i, false);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    c.positive(i.blocks_in, Id::blocks_in);
    check_window(c, i);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, 1u);
    c.aligned(i.weight_addr, Id::weight_addr);
    c.aligned(i.bias_addr, Id::bias_addr);
    c.aligned(i.pad_addr, Id::pad_addr);
    check_residual(c, i);
    check_stage_memory(c, i, l);
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, 16u * (uint64_t)i.blocks_in, l.sram_bytes,
           Id::in_addr);
    check_weight_tiles(c, i, l, 1u);
    c.range(i.bias_addr, 4u * (uint64_t)LANES * i.blocks_out, l.sram_bytes, Id::bias_addr);
    c.range(i.pad_addr, (uint64_t)LANES * i.blocks_in, l.sram_bytes, Id::pad_addr);
    check_residual_memory(c, i, l);
    check_output_bounds(c, i, l, 1u);
    return c.status;
}

inline Status check_depthwise(const isa::Depthwise& i, const Limits& l) {
    Checker c;
    check_stage(c, i, false);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    check_window(c, i);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, 1u);
    c.aligned(i.weight_addr, Id::weight_addr);
    c.aligned(i.bias_addr, Id::bias_addr);
    c.aligned(i.pad_addr, Id::pad_addr);
    check_stage_memory(c, i, l);
    const uint64_t block_bytes = (uint64_t)LANES * i.blocks_out;
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    c.range(i.weight_addr, (uint64_t)i.kernel_h * i.kernel_w * block_bytes, l.sram_bytes, Id::weight_addr);
    c.range(i.bias_addr, 4u * block_bytes, l.sram_bytes, Id::bias_addr);
    c.range(i.pad_addr, block_bytes, l.sram_bytes, Id::pad_addr);
    check_output_bounds(c, i, l, 1u);
    return c.status;
}

/// Every window has a valid tap; `single` holds only where all windows have the same number.
inline Status check_pool(const isa::Pool& i, const Limits& l) {
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
        c.value(i.shift <= (uint32_t)MAX_SHIFT, Id::shift);
        c.value(i.single == 0u || (rows.fewest == rows.most && columns.fewest == columns.most), Id::single);
    } else {
        c.zero(i.weight_addr, Id::weight_addr);
        c.zero(i.requant_addr, Id::requant_addr);
        c.zero(i.operand_addr, Id::operand_addr);
        c.zero(i.shift, Id::shift);
        c.zero(i.single, Id::single);
    }
    check_input_alignment(c, i);
    check_output_alignment(c, i, 1u);
    const uint64_t block_bytes = (uint64_t)LANES * i.blocks_out;
    c.aligned(i.weight_addr, Id::weight_addr);
    c.aligned(i.requant_addr, Id::requant_addr);
    c.aligned(i.operand_addr, Id::operand_addr);
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    if (average) {
        const uint64_t counts = i.single != 0u ? (uint64_t)1 : (uint64_t)rows.most * columns.most;
        c.range(i.weight_addr, counts * 2u * block_bytes, l.sram_bytes, Id::weight_addr);
        c.range(i.requant_addr, isa::RequantRecord::BYTES * block_bytes, l.sram_bytes, Id::requant_addr);
        c.range(i.operand_addr, isa::OperandRecord::BYTES * block_bytes, l.sram_bytes, Id::operand_addr);
    }
    check_output_bounds(c, i, l, 1u);
    return c.status;
}

inline Status check_eltwise(const isa::Eltwise& i, const Limits& l) {
    Checker c;
    const bool affine = i.kind == (uint32_t)isa::EltwiseKind::AFFINE;
    check_stage(c, i, true);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, 1u);
    c.aligned(i.operand_addr, Id::operand_addr);
    if (affine) {
        c.zero(i.broadcast_b, Id::broadcast_b);
        c.zero(i.b_addr, Id::b_addr);
        c.zero(i.b_row_stride, Id::b_row_stride);
        c.zero(i.b_pixel_stride, Id::b_pixel_stride);
        c.aligned(i.bias_addr, Id::bias_addr);
    } else {
        c.zero(i.bias_addr, Id::bias_addr);
        if (i.broadcast_b == 0u) c.aligned(i.b_addr, Id::b_addr);
        c.aligned(i.b_row_stride, Id::b_row_stride);
        c.aligned(i.b_pixel_stride, Id::b_pixel_stride);
    }
    check_stage_memory(c, i, l);
    const uint64_t block_bytes = (uint64_t)LANES * i.blocks_out;
    c.grid(i.in_addr, i.out_h, i.in_row_stride, i.out_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    c.range(i.operand_addr, isa::OperandRecord::BYTES * block_bytes, l.sram_bytes, Id::operand_addr);
    if (affine) {
        c.range(i.bias_addr, 4u * block_bytes, l.sram_bytes, Id::bias_addr);
    } else {
        const uint64_t bytes = i.broadcast_b != 0u ? (uint64_t)1 : block_bytes;
        c.grid(i.b_addr, i.out_h, i.b_row_stride, i.out_w, i.b_pixel_stride, bytes, l.sram_bytes, Id::b_addr);
    }
    check_output_bounds(c, i, l, 1u);
    return c.status;
}

inline Status check_resize(const isa::Resize& i, const Limits& l) {
    Checker c;
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, 1u);
    c.aligned(i.row_table_addr, Id::row_table_addr);
    c.aligned(i.col_table_addr, Id::col_table_addr);
    const uint64_t block_bytes = (uint64_t)LANES * i.blocks_out;
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    c.range(i.row_table_addr, (uint64_t)isa::ResizeRecord::BYTES * i.out_h, l.sram_bytes, Id::row_table_addr);
    c.range(i.col_table_addr, (uint64_t)isa::ResizeRecord::BYTES * i.out_w, l.sram_bytes, Id::col_table_addr);
    check_output_bounds(c, i, l, 1u);
    return c.status;
}

inline Status check_copy(const isa::Copy& i, const Limits& l) {
    Checker c;
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i, 1u);
    c.grid(i.in_addr, i.out_h, i.in_row_stride, i.out_w, i.in_pixel_stride, (uint64_t)LANES * i.blocks_out,
           l.sram_bytes, Id::in_addr);
    check_output_bounds(c, i, l, 1u);
    return c.status;
}

}  // namespace hls
}  // namespace npuforge
