// Owns the checks of instruction fields (see check.hpp).
#include "check.hpp"

#include <string>

#include "refuse.hpp"

namespace npuforge::sim {
namespace {

using isa::Stage;

constexpr std::uint64_t kGranule = 16;  // alignment of every on-chip address and stride, one lane block

class Checker {
  public:
    Checker(std::size_t index, const char* opcode, const Limits& limits)
        : index_(index), opcode_(opcode), limits_(limits) {}

    [[noreturn]] void fail(const std::string& field, const std::string& reason) const {
        refuse(index_, opcode_, field, reason);
    }
    void in_range(const char* field, long long value, long long low, long long high) const {
        if (value < low || value > high)
            refuse(index_, opcode_, field, std::to_string(low) + ".." + std::to_string(high), value);
    }
    void positive(const char* field, std::uint32_t value) const {
        if (value == 0) refuse(index_, opcode_, field, "at least 1", value);
    }
    void zero(const char* field, long long value, const char* when) const {
        if (value != 0) refuse(index_, opcode_, field, std::string("0 ") + when, value);
    }
    void aligned(const char* field, std::uint64_t value) const {
        if (value % kGranule != 0)
            refuse(index_, opcode_, field, "a multiple of " + std::to_string(kGranule), static_cast<long long>(value));
    }
    void inside(const char* field, const View& view) const {
        const char* names[] = {"on-chip memory", "the pool", "the .bin image"};
        const std::size_t size = limits_.of(view.space);
        if (view.end() > size)
            fail(field, "expected bytes below " + std::to_string(size) + " of " + names[static_cast<int>(view.space)] +
                            ", found an access up to " + std::to_string(view.end()));
    }
    void map(const char* address, const char* row_stride, const char* pixel_stride, const View& view) const {
        aligned(address, view.address);
        aligned(row_stride, view.row_stride);
        aligned(pixel_stride, view.col_stride);
        inside(address, view);
    }
    void block(const char* field, std::uint64_t address, std::uint64_t bytes) const {
        aligned(field, address);
        inside(field, View{Space::kSram, address, 1, 1, 0, 0, bytes});
    }

    template <class T>
    StageOp stage(const T& i, bool direct_allowed, std::uint64_t lanes) const {
        in_range("stage", i.stage, 0, direct_allowed ? 2 : 1);
        StageOp s;
        s.kind = static_cast<Stage>(i.stage);
        s.requant_address = i.requant_addr;
        block("requant_addr", i.requant_addr, lanes * isa::RequantRecord::BYTES);
        if (s.kind == Stage::TABLE) {
            in_range("fraction_bits", i.fraction_bits, 5, 11);
            s.fraction_bits = static_cast<int>(i.fraction_bits);
            s.tail_low_is_input = i.tail_low_is_input != 0;
            s.tail_high_is_input = i.tail_high_is_input != 0;
            if (s.tail_low_is_input) zero("tail_low", i.tail_low, "where tail_low_is_input is set");
            if (s.tail_high_is_input) zero("tail_high", i.tail_high, "where tail_high_is_input is set");
            s.tail_low = i.tail_low;
            s.tail_high = i.tail_high;
            s.table_address = i.table_addr;
            block("table_addr", i.table_addr, 2 * 257);
        } else {
            const char* when = "unless the stage is table";
            zero("fraction_bits", i.fraction_bits, when);
            zero("tail_low_is_input", i.tail_low_is_input, when);
            zero("tail_high_is_input", i.tail_high_is_input, when);
            zero("tail_low", i.tail_low, when);
            zero("tail_high", i.tail_high, when);
            zero("table_addr", i.table_addr, when);
        }
        return s;
    }

    template <class T>
    Window window(const T& i) const {
        positive("kernel_h", i.kernel_h);
        positive("kernel_w", i.kernel_w);
        positive("stride_h", i.stride_h);
        positive("stride_w", i.stride_w);
        positive("dilation_h", i.dilation_h);
        positive("dilation_w", i.dilation_w);
        Window w;
        w.kernel_h = static_cast<int>(i.kernel_h);
        w.kernel_w = static_cast<int>(i.kernel_w);
        w.stride_h = static_cast<int>(i.stride_h);
        w.stride_w = static_cast<int>(i.stride_w);
        w.dilation_h = static_cast<int>(i.dilation_h);
        w.dilation_w = static_cast<int>(i.dilation_w);
        w.pad_top = i.pad_top;
        w.pad_left = i.pad_left;
        return w;
    }

    template <class T>
    Map input(const T& i, std::uint64_t rows, std::uint64_t cols, std::uint64_t lanes) const {
        const Map m{i.in_addr, i.in_row_stride, i.in_pixel_stride};
        map("in_addr", "in_row_stride", "in_pixel_stride", m.view(Space::kSram, rows, cols, lanes));
        return m;
    }

    template <class T>
    Map output(const T& i, std::uint64_t lanes) const {
        positive("out_h", i.out_h);
        positive("out_w", i.out_w);
        const Map m{i.out_addr, i.out_row_stride, i.out_pixel_stride};
        map("out_addr", "out_row_stride", "out_pixel_stride", m.view(Space::kSram, i.out_h, i.out_w, lanes));
        if (i.out_w > 1 && i.out_pixel_stride < lanes)
            refuse(index_, opcode_, "out_pixel_stride", "at least " + std::to_string(lanes), i.out_pixel_stride);
        const std::uint64_t row = (std::uint64_t{i.out_w} - 1) * i.out_pixel_stride + lanes;
        if (i.out_h > 1 && i.out_row_stride < row)
            refuse(index_, opcode_, "out_row_stride", "at least " + std::to_string(row), i.out_row_stride);
        return m;
    }

    template <class T>
    void input_size(const T& i) const {
        positive("in_h", i.in_h);
        positive("in_w", i.in_w);
    }

  private:
    std::size_t index_;
    const char* opcode_;
    const Limits& limits_;
};

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
    FoldOp op;
    check.in_range("region", i.region, 0, 1);
    check.in_range("channels", i.channels, 1, 4);
    check.input_size(i);
    check.positive("blocks_out", i.blocks_out);
    op.window = check.window(i);
    check.in_range("dilation_h", i.dilation_h, 1, 1);
    check.in_range("dilation_w", i.dilation_w, 1, 1);
    const std::uint64_t taps = std::uint64_t{i.kernel_h} * i.kernel_w * i.channels;
    if (taps > 16 * std::uint64_t{i.blocks_out})
        check.fail("blocks_out", "expected room for " + std::to_string(taps) +
                                     " lanes (kernel_h*kernel_w*channels), found " + std::to_string(16 * i.blocks_out));
    op.from_space = i.region == 0 ? Space::kImage : Space::kPool;
    op.address = i.ddr_addr;
    op.row_stride = i.ddr_row_stride;
    check.inside("ddr_addr",
                 View{op.from_space, i.ddr_addr, i.in_h, 1, i.ddr_row_stride, 0, std::uint64_t{i.in_w} * i.channels});
    op.out = check.output(i, 16 * std::uint64_t{i.blocks_out});
    if (i.channels < 4 && i.pad_bytes >> (8 * i.channels) != 0)
        check.fail("pad_bytes", "expected 0 above channel " + std::to_string(i.channels - 1) + ", found " +
                                    std::to_string(i.pad_bytes));
    for (int c = 0; c < 4; ++c) op.pad[c] = static_cast<std::uint8_t>(i.pad_bytes >> (8 * c));
    op.in_h = static_cast<int>(i.in_h);
    op.in_w = static_cast<int>(i.in_w);
    op.out_h = static_cast<int>(i.out_h);
    op.out_w = static_cast<int>(i.out_w);
    op.channels = static_cast<int>(i.channels);
    op.blocks = static_cast<int>(i.blocks_out);
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
    // Valid taps of a window are valid rows times valid columns.
    const auto counts = [&](const char* field, int out, int stride, int pad, int kernel, int dilation, int extent) {
        std::pair<int, int> range{kernel, 0};
        for (int o = 0; o < out; ++o) {
            const int n = valid_taps(o, stride, pad, kernel, dilation, extent).count();
            if (n == 0)
                check.fail(field, "expected a valid tap in every window, found none at output " + std::to_string(o));
            range.first = std::min(range.first, n);
            range.second = std::max(range.second, n);
        }
        return range;
    };
    const auto rows = counts("pad_top", op.out_h, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op.in_h);
    const auto cols = counts("pad_left", op.out_w, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op.in_w);
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
    if (op.kind == isa::EltwiseKind::AFFINE) {
        const char* when = "for affine";
        check.zero("broadcast_b", i.broadcast_b, when);
        check.zero("b_addr", i.b_addr, when);
        check.zero("b_row_stride", i.b_row_stride, when);
        check.zero("b_pixel_stride", i.b_pixel_stride, when);
        op.bias_address = i.bias_addr;
        check.block("bias_addr", i.bias_addr, 4 * lanes);
        return op;
    }
    check.zero("bias_addr", i.bias_addr, "unless the function is affine");
    op.broadcast_b = i.broadcast_b != 0;
    op.b = {i.b_addr, i.b_row_stride, i.b_pixel_stride};
    const View b = op.b.view(Space::kSram, i.out_h, i.out_w, op.broadcast_b ? 1 : lanes);
    if (!op.broadcast_b) check.aligned("b_addr", i.b_addr);
    check.aligned("b_row_stride", i.b_row_stride);
    check.aligned("b_pixel_stride", i.b_pixel_stride);
    check.inside("b_addr", b);
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
    if (!isa::known_opcode(opcode)) refuse(index, "?", "opcode", "a known opcode", static_cast<long long>(opcode));
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
            return conv(check, i, i.blocks_in, false);
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
    }
    refuse(index, name, "opcode", "an opcode that the simulator executes", static_cast<long long>(opcode));
}

}  // namespace npuforge::sim
