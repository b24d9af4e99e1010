// Owns the checks of instruction fields (see check.hpp).
#include "check.hpp"

#include <string>

#include "check_bf16.hpp"
#include "checker.hpp"

namespace npuforge::sim {
namespace {

template <class T>
TransferOp transfer(const Checker& check, const T& i, bool store) {
    check.in_range("region", i.region, store ? 1 : 0, 1);
    check.positive("rows", i.rows);
    check.positive("cols", i.cols);
    check.positive("chunk", i.chunk);
    check.aligned("chunk", i.chunk);
    const Map ddr{i.ddr_addr, i.ddr_row_stride, i.ddr_col_stride};
    const Map sram{i.sram_addr, i.sram_row_stride, i.sram_col_stride};
    const Space space = i.region == 0 ? Space::kImage : Space::kPool;
    check.map("ddr_addr", "ddr_row_stride", "ddr_col_stride", ddr.view(space, i.rows, i.cols, i.chunk));
    check.map("sram_addr", "sram_row_stride", "sram_col_stride", sram.view(Space::kSram, i.rows, i.cols, i.chunk));
    TransferOp op;
    op.from_space = store ? Space::kSram : space;
    op.to_space = store ? space : Space::kSram;
    op.from = store ? sram : ddr;
    op.to = store ? ddr : sram;
    op.rows = static_cast<int>(i.rows);
    op.cols = static_cast<int>(i.cols);
    op.chunk = i.chunk;
    return op;
}

FoldOp fold(const Checker& check, const isa::LoadFold& i) {
    FoldOp op = fold_shape(check, i, 1);
    if (i.channels < 4 && i.pad_bytes >> (8 * i.channels) != 0)
        check.fail("pad_bytes", "expected 0 above channel " + std::to_string(i.channels - 1) + ", found " +
                                    std::to_string(i.pad_bytes));
    for (int c = 0; c < 4; ++c) op.pad[c] = static_cast<std::uint8_t>(i.pad_bytes >> (8 * c));
    return op;
}

template <class T>
ConvOp conv(const Checker& check, const T& i, std::uint32_t blocks_in, bool depthwise) {
    ConvOp op;
    op.depthwise = depthwise;
    check.input_size(i);
    check.positive("blocks_in", blocks_in);
    check.positive("blocks_out", i.blocks_out);
    op.window = check.window(i);
    const std::uint64_t lanes_in = 16 * std::uint64_t{blocks_in}, lanes_out = 16 * std::uint64_t{i.blocks_out};
    op.in = check.input(i, i.in_h, i.in_w, lanes_in);
    op.out = check.output(i, lanes_out);
    op.stage = check.stage(i, false, lanes_out);
    op.in_h = static_cast<int>(i.in_h);
    op.in_w = static_cast<int>(i.in_w);
    op.out_h = static_cast<int>(i.out_h);
    op.out_w = static_cast<int>(i.out_w);
    op.blocks_in = static_cast<int>(blocks_in);
    op.blocks_out = static_cast<int>(i.blocks_out);
    op.weight_address = i.weight_addr;
    op.bias_address = i.bias_addr;
    op.pad_address = i.pad_addr;
    // First without the input lanes: each factor is then below 2^32 and the product cannot wrap.
    check.block("weight_addr", i.weight_addr, std::uint64_t{i.kernel_h} * i.kernel_w);
    check.block("weight_addr", i.weight_addr, std::uint64_t{i.kernel_h} * i.kernel_w * lanes_out);
    check.block("weight_addr", i.weight_addr, op.weight_bytes());
    check.block("bias_addr", i.bias_addr, 4 * lanes_out);
    check.block("pad_addr", i.pad_addr, lanes_in);
    return op;
}

// The sum with a skip tensor behind a convolution.
void residual(const Checker& check, const isa::Conv& i, ConvOp& op) {
    op.residual = i.residual != 0;
    if (!op.residual) {
        const char* when = "without a residual stage";
        check.zero("b_addr", i.b_addr, when);
        check.zero("b_row_stride", i.b_row_stride, when);
        check.zero("b_pixel_stride", i.b_pixel_stride, when);
        check.zero("operand_addr", i.operand_addr, when);
        check.zero("sum_requant_addr", i.sum_requant_addr, when);
        check.zero("sum_stage", i.sum_stage, when);
        return;
    }
    const std::uint64_t lanes = 16 * std::uint64_t{i.blocks_out};
    EltwiseOp& sum = op.sum;
    sum.out_h = op.out_h;
    sum.out_w = op.out_w;
    sum.blocks = op.blocks_out;
    sum.out = op.out;
    sum.b = {i.b_addr, i.b_row_stride, i.b_pixel_stride};
    check.map("b_addr", "b_row_stride", "b_pixel_stride", sum.b.view(Space::kSram, i.out_h, i.out_w, lanes));
    sum.operand_address = i.operand_addr;
    check.block("operand_addr", i.operand_addr, lanes * isa::OperandRecord::BYTES);
    sum.stage.kind = static_cast<Stage>(i.sum_stage);
    if (sum.stage.kind != Stage::PWL && sum.stage.kind != Stage::DIRECT)
        check.fail("sum_stage", "expected 0 (pwl) or 2 (direct), found " + std::to_string(i.sum_stage));
    sum.stage.requant_address = i.sum_requant_addr;
    check.block("sum_requant_addr", i.sum_requant_addr, lanes * isa::RequantRecord::BYTES);
}

PoolOp pool(const Checker& check, const isa::Pool& i) {
    PoolOp op;
    check.in_range("kind", i.kind, 0, 1);
    op.average = i.kind == 1;
    check.input_size(i);
    check.positive("blocks_out", i.blocks_out);
    op.window = check.window(i);
    const std::uint64_t lanes = 16 * std::uint64_t{i.blocks_out};
    op.in = check.input(i, i.in_h, i.in_w, lanes);
    op.out = check.output(i, lanes);
    op.in_h = static_cast<int>(i.in_h);
    op.in_w = static_cast<int>(i.in_w);
    op.out_h = static_cast<int>(i.out_h);
    op.out_w = static_cast<int>(i.out_w);
    op.blocks = static_cast<int>(i.blocks_out);
    const Window& w = op.window;
    const auto [rows, cols] = window_counts(check, w, op);
    if (!op.average) {
        const char* when = "for max pooling";
        check.zero("weight_addr", i.weight_addr, when);
        check.zero("requant_addr", i.requant_addr, when);
        check.zero("operand_addr", i.operand_addr, when);
        check.zero("shift", i.shift, when);
        check.zero("single", i.single, when);
        return op;
    }
    check.in_range("shift", i.shift, 0, 47);
    op.single = i.single != 0;
    if (op.single && (rows.first != rows.second || cols.first != cols.second))
        check.fail("single", "expected windows of one valid-tap count, found several");
    op.shift = static_cast<int>(i.shift);
    op.weight_address = i.weight_addr;
    op.requant_address = i.requant_addr;
    op.operand_address = i.operand_addr;
    const std::uint64_t counts_needed = op.single ? 1 : std::uint64_t(rows.second) * cols.second;
    check.block("weight_addr", i.weight_addr, 2 * lanes * counts_needed);
    check.block("requant_addr", i.requant_addr, lanes * isa::RequantRecord::BYTES);
    check.block("operand_addr", i.operand_addr, lanes * isa::OperandRecord::BYTES);
    return op;
}

EltwiseOp eltwise(const Checker& check, const isa::Eltwise& i) {
    EltwiseOp op;
    op.kind = static_cast<isa::EltwiseKind>(i.kind);
    check.positive("blocks_out", i.blocks_out);
    const std::uint64_t lanes = 16 * std::uint64_t{i.blocks_out};
    op.out = check.output(i, lanes);
    op.a = check.input(i, i.out_h, i.out_w, lanes);
    op.stage = check.stage(i, true, lanes);
    op.out_h = static_cast<int>(i.out_h);
    op.out_w = static_cast<int>(i.out_w);
    op.blocks = static_cast<int>(i.blocks_out);
    op.operand_address = i.operand_addr;
    check.block("operand_addr", i.operand_addr, lanes * isa::OperandRecord::BYTES);
    op.broadcast_b = i.broadcast_b != 0;
    op.b = check.operand_b(i, 1, lanes);
    if (op.kind == isa::EltwiseKind::AFFINE) {
        op.bias_address = i.bias_addr;
        check.block("bias_addr", i.bias_addr, 4 * lanes);
    } else {
        check.zero("bias_addr", i.bias_addr, "unless the function is affine");
    }
    return op;
}

ResizeOp resize(const Checker& check, const isa::Resize& i) {
    ResizeOp op;
    check.input_size(i);
    check.positive("blocks_out", i.blocks_out);
    const std::uint64_t lanes = 16 * std::uint64_t{i.blocks_out};
    op.in = check.input(i, i.in_h, i.in_w, lanes);
    op.out = check.output(i, lanes);
    op.in_h = static_cast<int>(i.in_h);
    op.in_w = static_cast<int>(i.in_w);
    op.out_h = static_cast<int>(i.out_h);
    op.out_w = static_cast<int>(i.out_w);
    op.blocks = static_cast<int>(i.blocks_out);
    op.row_table_address = i.row_table_addr;
    op.col_table_address = i.col_table_addr;
    check.block("row_table_addr", i.row_table_addr, std::uint64_t{i.out_h} * isa::ResizeRecord::BYTES);
    check.block("col_table_addr", i.col_table_addr, std::uint64_t{i.out_w} * isa::ResizeRecord::BYTES);
    return op;
}

TransferOp copy(const Checker& check, const isa::Copy& i) {
    TransferOp op;
    check.positive("blocks_out", i.blocks_out);
    op.to = check.output(i, 16 * std::uint64_t{i.blocks_out});
    op.from = check.input(i, i.out_h, i.out_w, 16 * std::uint64_t{i.blocks_out});
    op.rows = static_cast<int>(i.out_h);
    op.cols = static_cast<int>(i.out_w);
    op.chunk = 16 * i.blocks_out;
    return op;
}

}  // namespace

Operation decode(const std::uint32_t* words, std::size_t index, const Limits& limits) {
    const std::uint32_t opcode = isa::opcode_of(words);
    if (!isa::known_opcode(opcode) || (isa::needs_bf16(opcode) && !limits.bf16))
        refuse(index, "?", "opcode",
               isa::needs_bf16(opcode) ? "a known opcode (this arch has no feature bf16)" : "a known opcode",
               static_cast<long long>(opcode));
    const char* name = isa::opcode_name(opcode);
    const std::uint32_t reserved = isa::first_reserved_word(words);
    if (reserved != isa::INSTRUCTION_WORDS)
        refuse(index, name, "word " + std::to_string(reserved), "reserved bits are set, expected 0");
    const Checker check(index, name, limits);
    switch (static_cast<isa::Opcode>(opcode)) {
        case isa::Opcode::HALT:
            return HaltOp{};
        case isa::Opcode::LOAD:
            return transfer(check, isa::Load::decode(words), false);
        case isa::Opcode::STORE:
            return transfer(check, isa::Store::decode(words), true);
        case isa::Opcode::LOAD_FOLD:
            return fold(check, isa::LoadFold::decode(words));
        case isa::Opcode::CONV: {
            const auto i = isa::Conv::decode(words);
            ConvOp op = conv(check, i, i.blocks_in, false);
            residual(check, i, op);
            return op;
        }
        case isa::Opcode::DEPTHWISE: {
            const auto i = isa::Depthwise::decode(words);
            return conv(check, i, i.blocks_out, true);
        }
        case isa::Opcode::POOL:
            return pool(check, isa::Pool::decode(words));
        case isa::Opcode::ELTWISE:
            return eltwise(check, isa::Eltwise::decode(words));
        case isa::Opcode::RESIZE:
            return resize(check, isa::Resize::decode(words));
        case isa::Opcode::COPY:
            return copy(check, isa::Copy::decode(words));
        case isa::Opcode::LOAD_FOLD_BF16:
            return fold_bf16(check, isa::LoadFoldBf16::decode(words));
        case isa::Opcode::CONV_BF16: {
            const auto i = isa::ConvBf16::decode(words);
            return conv_bf16(check, i, i.blocks_in, false);
        }
        case isa::Opcode::DEPTHWISE_BF16: {
            const auto i = isa::DepthwiseBf16::decode(words);
            return conv_bf16(check, i, i.blocks_out, true);
        }
        case isa::Opcode::POOL_BF16:
            return pool_bf16(check, isa::PoolBf16::decode(words));
        case isa::Opcode::ELTWISE_BF16:
            return eltwise_bf16(check, isa::EltwiseBf16::decode(words));
        case isa::Opcode::RESIZE_BF16:
            return resize_bf16(check, isa::ResizeBf16::decode(words));
    }
    refuse(index, name, "opcode", "an opcode that the simulator executes", static_cast<long long>(opcode));
}

}  // namespace npuforge::sim
