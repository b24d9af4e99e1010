// Owns the checks of the fields of bf16 instructions (see check_bf16.hpp).
#include "check_bf16.hpp"

namespace npuforge::sim {
namespace {

template <class T>
Bf16StageOp stage_bf16(const Checker& check, const T& i, std::uint64_t lanes) {
    check.in_range("stage", i.stage, 0, 1);
    Bf16StageOp s;
    s.kind = static_cast<Stage>(i.stage);
    s.record_address = i.record_addr;
    check.block("record_addr", i.record_addr, lanes * isa::Bf16Record::BYTES);
    if (s.kind == Stage::TABLE) {
        s.tail_low_is_input = i.tail_low_is_input != 0;
        s.tail_high_is_input = i.tail_high_is_input != 0;
        if (s.tail_low_is_input) check.zero("tail_low", i.tail_low, "where tail_low_is_input is set");
        if (s.tail_high_is_input) check.zero("tail_high", i.tail_high, "where tail_high_is_input is set");
        s.tail_low = static_cast<std::uint16_t>(i.tail_low);
        s.tail_high = static_cast<std::uint16_t>(i.tail_high);
        s.table_address = i.table_addr;
        check.block("table_addr", i.table_addr, kCurveBytes);
    } else {
        const char* when = "unless the stage is table";
        check.zero("tail_low_is_input", i.tail_low_is_input, when);
        check.zero("tail_high_is_input", i.tail_high_is_input, when);
        check.zero("tail_low", i.tail_low, when);
        check.zero("tail_high", i.tail_high, when);
        check.zero("table_addr", i.table_addr, when);
    }
    return s;
}

template <class Op, class T>
void sizes(Op& op, const T& i) {
    op.out_h = static_cast<int>(i.out_h);
    op.out_w = static_cast<int>(i.out_w);
}

template <class Op, class T>
void input_sizes(Op& op, const T& i) {
    op.in_h = static_cast<int>(i.in_h);
    op.in_w = static_cast<int>(i.in_w);
    sizes(op, i);
}

}  // namespace

FoldOp fold_bf16(const Checker& check, const isa::LoadFoldBf16& i) {
    check.multiple_of(2, "ddr_addr", i.ddr_addr);
    check.multiple_of(2, "ddr_row_stride", i.ddr_row_stride);
    return fold_shape(check, i, 2);
}

template <class T>
Bf16ConvOp conv_bf16(const Checker& check, const T& i, std::uint32_t blocks_in, bool depthwise) {
    Bf16ConvOp op;
    op.depthwise = depthwise;
    check.input_size(i);
    check.positive("blocks_in", blocks_in);
    check.positive("blocks_out", i.blocks_out);
    op.window = check.window(i);
    op.in = check.input(i, i.in_h, i.in_w, kBf16Block * std::uint64_t{blocks_in});
    op.out = check.output(i, kBf16Block * std::uint64_t{i.blocks_out});
    op.stage = stage_bf16(check, i, 16 * std::uint64_t{i.blocks_out});
    input_sizes(op, i);
    op.blocks_in = static_cast<int>(blocks_in);
    op.blocks_out = static_cast<int>(i.blocks_out);
    op.weight_address = i.weight_addr;
    // First without the input lanes: each factor is then below 2^32 and the product cannot wrap.
    check.block("weight_addr", i.weight_addr, op.taps());
    check.block("weight_addr", i.weight_addr, op.taps() * kBf16Block * i.blocks_out);
    check.block("weight_addr", i.weight_addr, op.weight_bytes());
    return op;
}

template Bf16ConvOp conv_bf16(const Checker&, const isa::ConvBf16&, std::uint32_t, bool);
template Bf16ConvOp conv_bf16(const Checker&, const isa::DepthwiseBf16&, std::uint32_t, bool);

Bf16PoolOp pool_bf16(const Checker& check, const isa::PoolBf16& i) {
    Bf16PoolOp op;
    check.in_range("kind", i.kind, 0, 1);
    op.average = i.kind == 1;
    check.input_size(i);
    check.positive("blocks_out", i.blocks_out);
    op.window = check.window(i);
    const std::uint64_t bytes = kBf16Block * std::uint64_t{i.blocks_out};
    op.in = check.input(i, i.in_h, i.in_w, bytes);
    op.out = check.output(i, bytes);
    input_sizes(op, i);
    op.blocks = static_cast<int>(i.blocks_out);
    const auto [rows, cols] = window_counts(check, op.window, op);
    if (!op.average) {
        check.zero("weight_addr", i.weight_addr, "for max pooling");
        check.zero("single", i.single, "for max pooling");
        return op;
    }
    op.single = i.single != 0;
    if (op.single && (rows.first != rows.second || cols.first != cols.second))
        check.fail("single", "expected windows of one valid-tap count, found several");
    op.weight_address = i.weight_addr;
    op.counts = op.single ? 1 : static_cast<std::size_t>(rows.second) * static_cast<std::size_t>(cols.second);
    check.block("weight_addr", i.weight_addr, 4 * op.counts);
    return op;
}

Bf16EltwiseOp eltwise_bf16(const Checker& check, const isa::EltwiseBf16& i) {
    Bf16EltwiseOp op;
    op.kind = static_cast<isa::EltwiseKind>(i.kind);
    check.positive("blocks_out", i.blocks_out);
    const std::uint64_t lanes = 16 * std::uint64_t{i.blocks_out};
    op.out = check.output(i, 2 * lanes);
    op.a = check.input(i, i.out_h, i.out_w, 2 * lanes);
    op.stage = stage_bf16(check, i, lanes);
    sizes(op, i);
    op.blocks = static_cast<int>(i.blocks_out);
    op.broadcast_b = i.broadcast_b != 0;
    op.b = check.operand_b(i, 2, 2 * lanes);
    if (op.kind == isa::EltwiseKind::AFFINE) {
        op.operand_address = i.operand_addr;
        check.block("operand_addr", i.operand_addr, 4 * lanes);
    } else {
        check.zero("operand_addr", i.operand_addr, "unless the function is affine");
    }
    return op;
}

Bf16ResizeOp resize_bf16(const Checker& check, const isa::ResizeBf16& i) {
    Bf16ResizeOp op;
    check.input_size(i);
    check.positive("blocks_out", i.blocks_out);
    const std::uint64_t bytes = kBf16Block * std::uint64_t{i.blocks_out};
    op.in = check.input(i, i.in_h, i.in_w, bytes);
    op.out = check.output(i, bytes);
    input_sizes(op, i);
    op.blocks = static_cast<int>(i.blocks_out);
    op.row_table_address = i.row_table_addr;
    op.col_table_address = i.col_table_addr;
    check.block("row_table_addr", i.row_table_addr, std::uint64_t{i.out_h} * isa::ResizeBf16Record::BYTES);
    check.block("col_table_addr", i.col_table_addr, std::uint64_t{i.out_w} * isa::ResizeBf16Record::BYTES);
    return op;
}

}  // namespace npuforge::sim
