// Owns the decoded form of instructions that the simulator's engines work on: geometry and addresses, no parameters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "npu_isa.hpp"
#include "view.hpp"

namespace npuforge::sim {

/// A feature map: pixel (y, x) at address + y*row_stride + x*pixel_stride.
struct Map {
    std::uint32_t address = 0;
    std::uint32_t row_stride = 0;
    std::uint32_t pixel_stride = 0;

    std::size_t at(std::size_t y, std::size_t x) const { return address + y * row_stride + x * pixel_stride; }
    View view(Space space, std::size_t rows, std::size_t cols, std::size_t length) const {
        return {space, address, rows, cols, row_stride, pixel_stride, length};
    }
    /// Rows follow each other without a gap other than the pixels' own.
    bool dense(std::size_t rows, std::size_t cols) const {
        return rows == 1 || row_stride == cols * std::uint64_t{pixel_stride};
    }
};

struct Window {
    int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
    int pad_top = 0, pad_left = 0;
};

struct StageOp {
    isa::Stage kind = isa::Stage::PWL;
    int fraction_bits = 0;
    bool tail_low_is_input = false, tail_high_is_input = false;
    std::int32_t tail_low = 0, tail_high = 0;
    std::uint32_t requant_address = 0, table_address = 0;
};

struct EltwiseOp {
    isa::EltwiseKind kind = isa::EltwiseKind::ADD;
    bool broadcast_b = false;
    Map a, b, out;
    int out_h = 0, out_w = 0, blocks = 0;
    StageOp stage;
    std::uint32_t operand_address = 0, bias_address = 0;
};

/// CONV, and DEPTHWISE with blocks_in == blocks_out.
struct ConvOp {
    bool depthwise = false;
    bool residual = false;  ///< `sum` follows: its operand a is what the convolution gives, which is not in memory
    Map in, out;
    int in_h = 0, in_w = 0, out_h = 0, out_w = 0, blocks_in = 0, blocks_out = 0;
    Window window;
    StageOp stage;
    std::uint32_t weight_address = 0, bias_address = 0, pad_address = 0;
    EltwiseOp sum;

    std::size_t weight_bytes() const {
        const std::size_t taps = static_cast<std::size_t>(window.kernel_h) * window.kernel_w;
        return taps * 16 * blocks_out * (depthwise ? 1 : 16 * static_cast<std::size_t>(blocks_in));
    }
};

struct PoolOp {
    bool average = false, single = false;
    Map in, out;
    int in_h = 0, in_w = 0, out_h = 0, out_w = 0, blocks = 0;
    Window window;
    int shift = 0;
    std::uint32_t weight_address = 0, requant_address = 0, operand_address = 0;
};

struct ResizeOp {
    Map in, out;
    int in_h = 0, in_w = 0, out_h = 0, out_w = 0, blocks = 0;
    std::uint32_t row_table_address = 0, col_table_address = 0;
};

/// LOAD, STORE and COPY: `chunk` bytes for every (row, col).
struct TransferOp {
    Space from_space = Space::kSram, to_space = Space::kSram;
    Map from, to;
    int rows = 0, cols = 0;
    std::uint32_t chunk = 0;
};

struct FoldOp {
    Space from_space = Space::kPool;
    std::uint32_t address = 0, row_stride = 0;
    Map out;
    int in_h = 0, in_w = 0, out_h = 0, out_w = 0;
    int pixel_bytes = 0;  ///< of the image: channels, twice as many for bf16
    int out_bytes = 0;    ///< of an output pixel
    Window window;
    std::uint8_t pad[8] = {};  ///< border, one pixel
};

/// What a step works on during a run.
struct Memory {
    std::uint8_t* sram = nullptr;
    const std::uint8_t* image = nullptr;
    std::uint8_t* pool = nullptr;
    std::uint8_t* before_sum = nullptr;  ///< TraceMemory::before_sum; null unless the run is traced

    const std::uint8_t* source(Space space) const {
        return space == Space::kSram ? sram : space == Space::kPool ? pool : image;
    }
};

/// Input row of tap `k` for output row `o`; the same for columns.
inline long window_source(long o, int stride, int pad, int k, int dilation) {
    return o * stride - pad + static_cast<long>(k) * dilation;
}

/// Taps [first, last) of the window at output position `o` that lie inside 0..extent-1.
struct TapRange {
    int first = 0, last = 0;
    int count() const { return last - first; }
};
inline TapRange valid_taps(long o, int stride, int pad, int kernel, int dilation, int extent) {
    const long base = o * stride - pad;
    const long first = base < 0 ? (-base + dilation - 1) / dilation : 0;
    const long last = extent - 1 < base ? 0 : std::min<long>(kernel, (extent - 1 - base) / dilation + 1);
    return first < last ? TapRange{static_cast<int>(first), static_cast<int>(last)} : TapRange{};
}

}  // namespace npuforge::sim
