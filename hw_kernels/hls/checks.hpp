// Refusals: what every instruction must satisfy before its engine touches memory. Names the first offending field.
// Order of the checks of one instruction: values, alignment, bounds; within each, the order of the fields in the table.
#pragma once

#include "window.hpp"

namespace npuforge {
namespace hls {

typedef isa::FieldId Id;

/// Collects the first refusal; later ones are ignored.
struct Checker {
    Status status;

    void require(bool condition, Code code, Id field) {
        NPU_INLINE
        if (!condition && status.code == Code::OK) status = refuse(code, field);
    }
    void value(bool condition, Id field) { require(condition, Code::ILLEGAL_VALUE, field); }
    void positive(uint32_t number, Id field) { require(number > 0u, Code::ILLEGAL_VALUE, field); }
    void zero(uint32_t number, Id field) { require(number == 0u, Code::ILLEGAL_VALUE, field); }
    void aligned(uint32_t number, Id field) { require((number & 15u) == 0u, Code::MISALIGNED, field); }
    bool ok() const { return status.code == Code::OK; }

    /// Bytes of a grid of rows x columns items of `bytes`, counts being positive and below 2^16: no overflow in 64
    /// bits.
    void grid(uint32_t address, uint32_t rows, uint32_t row_stride, uint32_t columns, uint32_t column_stride,
              uint64_t bytes, uint64_t limit, Id field) {
        if (!ok()) return;
        const uint64_t last = (uint64_t)(rows - 1u) * row_stride + (uint64_t)(columns - 1u) * column_stride;
        require((uint64_t)address + last + bytes <= limit, Code::OUT_OF_BOUNDS, field);
    }
    /// A plain range.
    void range(uint32_t address, uint64_t bytes, uint64_t limit, Id field) {
        if (!ok()) return;
        require((uint64_t)address + bytes <= limit, Code::OUT_OF_BOUNDS, field);
    }
};

/// Shape fields of the output map. \tparam I an instruction with BLOCKS_OUT and OUTPUT
template <class I>
inline void check_output_values(Checker& c, const I& i) {
    c.positive(i.blocks_out, Id::blocks_out);
    c.positive(i.out_h, Id::out_h);
    c.positive(i.out_w, Id::out_w);
}
/// Pixels and rows of the output do not share bytes.
template <class I>
inline void check_output_alignment(Checker& c, const I& i) {
    c.aligned(i.out_addr, Id::out_addr);
    c.aligned(i.out_row_stride, Id::out_row_stride);
    c.aligned(i.out_pixel_stride, Id::out_pixel_stride);
    const uint32_t pixel_bytes = (uint32_t)LANES * i.blocks_out;
    c.value(i.out_w <= 1u || i.out_pixel_stride >= pixel_bytes, Id::out_pixel_stride);
    const uint64_t row_bytes = (uint64_t)(i.out_w - 1u) * i.out_pixel_stride + pixel_bytes;
    c.value(i.out_h <= 1u || i.out_row_stride >= row_bytes, Id::out_row_stride);
}
template <class I>
inline void check_output_bounds(Checker& c, const I& i, const Limits& l) {
    c.grid(i.out_addr, i.out_h, i.out_row_stride, i.out_w, i.out_pixel_stride, 16u * (uint64_t)i.blocks_out,
           l.sram_bytes, Id::out_addr);
}
/// \tparam I an instruction with WINDOW
template <class I>
inline void check_window(Checker& c, const I& i) {
    c.positive(i.kernel_h, Id::kernel_h);
    c.positive(i.kernel_w, Id::kernel_w);
    c.positive(i.stride_h, Id::stride_h);
    c.positive(i.stride_w, Id::stride_w);
    c.positive(i.dilation_h, Id::dilation_h);
    c.positive(i.dilation_w, Id::dilation_w);
}
template <class I>
inline void check_input_alignment(Checker& c, const I& i) {
    c.aligned(i.in_addr, Id::in_addr);
    c.aligned(i.in_row_stride, Id::in_row_stride);
    c.aligned(i.in_pixel_stride, Id::in_pixel_stride);
}
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
    c.value(i.region <= 1u, Id::region);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    c.value(i.channels >= 1u && i.channels <= 4u, Id::channels);
    check_window(c, i);
    c.value(i.dilation_h == 1u, Id::dilation_h);
    c.value(i.dilation_w == 1u, Id::dilation_w);
    check_output_values(c, i);
    c.value((uint64_t)i.kernel_h * i.kernel_w * i.channels <= 16u * (uint64_t)i.blocks_out, Id::blocks_out);
    check_output_alignment(c, i);
    if (i.channels < 4u) c.value((i.pad_bytes >> (8u * i.channels)) == 0u, Id::pad_bytes);
    const uint64_t ddr = i.region == (uint32_t)isa::Region::BIN ? l.bin_bytes : l.pool_bytes;
    c.grid(i.ddr_addr, i.in_h, i.ddr_row_stride, i.in_w, i.channels, i.channels, ddr, Id::ddr_addr);
    check_output_bounds(c, i, l);
    return c.status;
}

/// Weight bytes are counted step by step, because the product of all fields does not fit 64 bits.
inline Status check_conv(const isa::Conv& i, const Limits& l) {
    Checker c;
    check_stage(c, i, false);
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    c.positive(i.blocks_in, Id::blocks_in);
    check_window(c, i);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i);
    c.aligned(i.weight_addr, Id::weight_addr);
    c.aligned(i.bias_addr, Id::bias_addr);
    c.aligned(i.pad_addr, Id::pad_addr);
    check_stage_memory(c, i, l);
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, 16u * (uint64_t)i.blocks_in, l.sram_bytes,
           Id::in_addr);
    const uint64_t taps = (uint64_t)i.kernel_h * i.kernel_w;
    c.require(taps <= l.sram_bytes, Code::OUT_OF_BOUNDS, Id::weight_addr);
    const uint64_t tiles = c.ok() ? taps * i.blocks_in : 0u;
    c.require(tiles <= l.sram_bytes, Code::OUT_OF_BOUNDS, Id::weight_addr);
    if (c.ok()) c.range(i.weight_addr, tiles * i.blocks_out * (LANES * LANES), l.sram_bytes, Id::weight_addr);
    c.range(i.bias_addr, 4u * (uint64_t)LANES * i.blocks_out, l.sram_bytes, Id::bias_addr);
    c.range(i.pad_addr, (uint64_t)LANES * i.blocks_in, l.sram_bytes, Id::pad_addr);
    check_output_bounds(c, i, l);
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
    check_output_alignment(c, i);
    c.aligned(i.weight_addr, Id::weight_addr);
    c.aligned(i.bias_addr, Id::bias_addr);
    c.aligned(i.pad_addr, Id::pad_addr);
    check_stage_memory(c, i, l);
    const uint64_t block_bytes = (uint64_t)LANES * i.blocks_out;
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    c.range(i.weight_addr, (uint64_t)i.kernel_h * i.kernel_w * block_bytes, l.sram_bytes, Id::weight_addr);
    c.range(i.bias_addr, 4u * block_bytes, l.sram_bytes, Id::bias_addr);
    c.range(i.pad_addr, block_bytes, l.sram_bytes, Id::pad_addr);
    check_output_bounds(c, i, l);
    return c.status;
}

/// Fewest and most valid taps of one axis over all output coordinates.
struct TapCounts {
    uint32_t fewest = 0xffffffffu;
    uint32_t most = 0;
};

/// \param out output coordinates \param extent coordinates held
inline TapCounts count_taps(uint32_t out, uint32_t stride, int32_t pad, uint32_t kernel, uint32_t dilation,
                            uint32_t extent) {
    TapCounts counts;
    for (uint32_t o = 0; o < out; ++o) {
        NPU_TRIPCOUNT(1, 416)
        const int32_t origin = window_origin(o, stride, pad);
        const uint32_t first = origin >= 0 ? 0u : ((uint32_t)(-origin) + dilation - 1u) / dilation;
        const int32_t room = (int32_t)extent - 1 - origin;
        const uint32_t reach = room < 0 ? 0u : (uint32_t)room / dilation + 1u;
        const uint32_t last = reach < kernel ? reach : kernel;
        const uint32_t count = last > first ? last - first : 0u;
        counts.fewest = count < counts.fewest ? count : counts.fewest;
        counts.most = count > counts.most ? count : counts.most;
    }
    return counts;
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
    if (c.ok()) {
        rows = count_taps(i.out_h, i.stride_h, i.pad_top, i.kernel_h, i.dilation_h, i.in_h);
        columns = count_taps(i.out_w, i.stride_w, i.pad_left, i.kernel_w, i.dilation_w, i.in_w);
        c.positive(rows.fewest, Id::pad_top);
        c.positive(columns.fewest, Id::pad_left);
    }
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
    check_output_alignment(c, i);
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
    check_output_bounds(c, i, l);
    return c.status;
}

inline Status check_eltwise(const isa::Eltwise& i, const Limits& l) {
    Checker c;
    const bool affine = i.kind == (uint32_t)isa::EltwiseKind::AFFINE;
    check_stage(c, i, true);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i);
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
    check_output_bounds(c, i, l);
    return c.status;
}

inline Status check_resize(const isa::Resize& i, const Limits& l) {
    Checker c;
    c.positive(i.in_h, Id::in_h);
    c.positive(i.in_w, Id::in_w);
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i);
    c.aligned(i.row_table_addr, Id::row_table_addr);
    c.aligned(i.col_table_addr, Id::col_table_addr);
    const uint64_t block_bytes = (uint64_t)LANES * i.blocks_out;
    c.grid(i.in_addr, i.in_h, i.in_row_stride, i.in_w, i.in_pixel_stride, block_bytes, l.sram_bytes, Id::in_addr);
    c.range(i.row_table_addr, (uint64_t)isa::ResizeRecord::BYTES * i.out_h, l.sram_bytes, Id::row_table_addr);
    c.range(i.col_table_addr, (uint64_t)isa::ResizeRecord::BYTES * i.out_w, l.sram_bytes, Id::col_table_addr);
    check_output_bounds(c, i, l);
    return c.status;
}

inline Status check_copy(const isa::Copy& i, const Limits& l) {
    Checker c;
    check_output_values(c, i);
    check_input_alignment(c, i);
    check_output_alignment(c, i);
    c.grid(i.in_addr, i.out_h, i.in_row_stride, i.out_w, i.in_pixel_stride, (uint64_t)LANES * i.blocks_out,
           l.sram_bytes, Id::in_addr);
    check_output_bounds(c, i, l);
    return c.status;
}

/// Opcode, reserved bits and all fields of one instruction. What depends on parameter bytes is checked by the engine
/// when it runs.
inline Status check_instruction(const uint32_t words[isa::INSTRUCTION_WORDS], const Limits& l) {
    const uint32_t opcode = isa::opcode_of(words);
    if (!isa::known_opcode(opcode)) return refuse(Code::UNKNOWN_OPCODE, Id::opcode);
    if (isa::first_reserved_word(words) != isa::INSTRUCTION_WORDS) return refuse(Code::RESERVED_BITS, Id::none);
    switch ((isa::Opcode)opcode) {
        case isa::Opcode::LOAD:
            return check_transfer(isa::Load::decode(words), l, false);
        case isa::Opcode::LOAD_FOLD:
            return check_load_fold(isa::LoadFold::decode(words), l);
        case isa::Opcode::CONV:
            return check_conv(isa::Conv::decode(words), l);
        case isa::Opcode::DEPTHWISE:
            return check_depthwise(isa::Depthwise::decode(words), l);
        case isa::Opcode::POOL:
            return check_pool(isa::Pool::decode(words), l);
        case isa::Opcode::ELTWISE:
            return check_eltwise(isa::Eltwise::decode(words), l);
        case isa::Opcode::RESIZE:
            return check_resize(isa::Resize::decode(words), l);
        case isa::Opcode::COPY:
            return check_copy(isa::Copy::decode(words), l);
        case isa::Opcode::STORE:
            return check_transfer(isa::Store::decode(words), l, true);
        default:
            return Status();
    }
}

}  // namespace hls
}  // namespace npuforge
