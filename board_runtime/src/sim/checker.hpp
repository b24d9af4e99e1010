// Owns what the checks of instruction fields share: wording of refusals, alignment, bounds, windows, maps, stages.
#pragma once

#include <string>
#include <utility>

#include "check.hpp"
#include "refuse.hpp"

namespace npuforge::sim {

using isa::Stage;

constexpr std::uint64_t kGranule = 16;  // alignment of every on-chip address and stride

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
    void multiple_of(std::uint32_t unit, const char* field, std::uint32_t value) const {
        if (value % unit != 0)
            fail(field, "expected a multiple of " + std::to_string(unit) + ", found " + std::to_string(value));
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

    /// \param lanes bytes of a pixel
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

    /// Operand b of an element-wise instruction: absent for an affine one; a broadcast pixel or lane need not be
    /// aligned. \param element_bytes of a lane \param pixel_bytes of all lanes
    template <class T>
    Map operand_b(const T& i, std::uint32_t element_bytes, std::uint64_t pixel_bytes) const {
        const Map b{i.b_addr, i.b_row_stride, i.b_pixel_stride};
        if (static_cast<isa::EltwiseKind>(i.kind) == isa::EltwiseKind::AFFINE) {
            const char* when = "for affine";
            zero("broadcast_b", i.broadcast_b, when);
            zero("b_addr", i.b_addr, when);
            zero("b_row_stride", i.b_row_stride, when);
            zero("b_pixel_stride", i.b_pixel_stride, when);
            return b;
        }
        if (i.broadcast_b == 0)
            aligned("b_addr", i.b_addr);
        else
            multiple_of(element_bytes, "b_addr", i.b_addr);
        aligned("b_row_stride", i.b_row_stride);
        aligned("b_pixel_stride", i.b_pixel_stride);
        inside("b_addr", b.view(Space::kSram, i.out_h, i.out_w, i.broadcast_b != 0 ? element_bytes : pixel_bytes));
        return b;
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

/// Fewest and most valid taps of rows and of columns; refuses a window without one. \tparam Op with in_h, in_w, out_h,
/// out_w
template <class Op>
std::pair<std::pair<int, int>, std::pair<int, int>> window_counts(const Checker& check, const Window& w, const Op& op) {
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
    return {counts("pad_top", op.out_h, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op.in_h),
            counts("pad_left", op.out_w, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op.in_w)};
}

/// LOAD_FOLD of lanes of `bytes`; the border is left 0. \tparam T isa::LoadFold or isa::LoadFoldBf16
template <class T>
FoldOp fold_shape(const Checker& check, const T& i, std::uint32_t bytes) {
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
    op.pixel_bytes = static_cast<int>(i.channels * bytes);
    op.out_bytes = static_cast<int>(16 * i.blocks_out * bytes);
    check.inside("ddr_addr", View{op.from_space, i.ddr_addr, i.in_h, 1, i.ddr_row_stride, 0,
                                  std::uint64_t{i.in_w} * i.channels * bytes});
    op.out = check.output(i, 16 * std::uint64_t{bytes} * i.blocks_out);
    op.in_h = static_cast<int>(i.in_h);
    op.in_w = static_cast<int>(i.in_w);
    op.out_h = static_cast<int>(i.out_h);
    op.out_w = static_cast<int>(i.out_w);
    return op;
}

}  // namespace npuforge::sim
