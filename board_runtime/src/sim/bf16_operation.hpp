// Owns the decoded form of the bf16 instructions: geometry and addresses, no parameters.
#pragma once

#include <vector>

#include "operation.hpp"

namespace npuforge::sim {

constexpr std::size_t kBf16Block = 32;            ///< bytes of 16 lanes
constexpr std::size_t kCurveBytes = 3 * 256 * 4;  ///< c0, c1, c2 of 256 segments

struct Bf16StageOp {
    isa::Stage kind = isa::Stage::PWL;
    bool tail_low_is_input = false, tail_high_is_input = false;
    std::uint16_t tail_low = 0, tail_high = 0;  ///< bf16
    std::uint32_t record_address = 0, table_address = 0;
};

/// CONV_BF16, and DEPTHWISE_BF16 with blocks_in == blocks_out.
struct Bf16ConvOp {
    bool depthwise = false;
    Map in, out;
    int in_h = 0, in_w = 0, out_h = 0, out_w = 0, blocks_in = 0, blocks_out = 0;
    Window window;
    Bf16StageOp stage;
    std::uint32_t weight_address = 0;

    std::size_t taps() const { return static_cast<std::size_t>(window.kernel_h) * window.kernel_w; }
    std::size_t weight_bytes() const {
        return taps() * kBf16Block * blocks_out * (depthwise ? 1 : 16 * static_cast<std::size_t>(blocks_in));
    }
};

struct Bf16PoolOp {
    bool average = false, single = false;
    Map in, out;
    int in_h = 0, in_w = 0, out_h = 0, out_w = 0, blocks = 0;
    Window window;
    std::uint32_t weight_address = 0;
    std::size_t counts = 0;  ///< factors that windows use
};

struct Bf16EltwiseOp {
    isa::EltwiseKind kind = isa::EltwiseKind::ADD;
    bool broadcast_b = false;
    Map a, b, out;
    int out_h = 0, out_w = 0, blocks = 0;
    Bf16StageOp stage;
    std::uint32_t operand_address = 0;
};

struct Bf16ResizeOp {
    Map in, out;
    int in_h = 0, in_w = 0, out_h = 0, out_w = 0, blocks = 0;
    std::uint32_t row_table_address = 0, col_table_address = 0;
};

}  // namespace npuforge::sim
