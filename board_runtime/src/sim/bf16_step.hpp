// Owns the bf16 steps of the SIMD levels: parameters prepared as float32 vectors, row loops. What differs between
// levels is a Bf16Kernel.
//
// Why the kernels give the bits of bf16_math.hpp: every sum and product is one IEEE operation in the written order,
// with denormals flushed by the control register (FlushDenormals); x86 decides what is denormal after rounding, as the
// definition does. Vectors run over output lanes, so no sum is regrouped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "step.hpp"

namespace npuforge::sim {

/// Stage parameters of one block, 16 lanes each.
struct alignas(64) Bf16StageBlock {
    float bias[16], slope[16], low[16], high[16];
};

struct Bf16StagePack {
    Bf16StageOp op;
    std::vector<Bf16StageBlock> blocks;
    std::vector<float> table;  ///< c0[256], c1[256], c2[256]; empty without a curve
    float tail_low = 0, tail_high = 0;
};

struct Bf16ConvPack {
    std::vector<float> weights;       ///< float32 [block out][tap][lane in][16 lanes out]; depthwise [tap][lane]
    std::vector<std::uint8_t> zeros;  ///< per 16x16 weights: whether one is zero, whose products are then +0
    Bf16StagePack stage;
};

/// Output pixels [begin, end) of one row of a convolution.
struct Bf16ConvRow {
    const Bf16ConvOp* op = nullptr;
    const Bf16ConvPack* pack = nullptr;
    const float* rows = nullptr;                 ///< dense: the kernel_h input rows as float32, in_w*16*blocks_in each
    const std::uint8_t* const* lines = nullptr;  ///< depthwise: the kernel_h input rows in memory, null outside
    const bool* inside = nullptr;                ///< per kernel row
    std::uint8_t* out = nullptr;
};

struct Bf16Kernel {
    void (*widen)(float* to, const std::uint8_t* from, int lanes) = nullptr;
    void (*conv)(const Bf16ConvRow& row) = nullptr;
    void (*depthwise)(const Bf16ConvRow& row) = nullptr;
    void (*pool)(const Bf16PoolOp& op, const float* factors, const Memory& memory, int y) = nullptr;
    void (*eltwise)(const Bf16EltwiseOp& op, const Bf16StagePack& stage, const float* factors, const Memory& memory,
                    int y) = nullptr;
    void (*resize)(const Bf16ResizeOp& op, const isa::ResizeBf16Record& row, const isa::ResizeBf16Record* cols,
                   const Memory& memory, int y) = nullptr;
};

std::unique_ptr<Step> make_bf16_step(const Bf16ConvOp& op, const Constants& constants, PackCache& cache,
                                     const Bf16Kernel& kernel);
std::unique_ptr<Step> make_bf16_step(const Bf16PoolOp& op, const Constants& constants, PackCache& cache,
                                     const Bf16Kernel& kernel);
std::unique_ptr<Step> make_bf16_step(const Bf16EltwiseOp& op, const Constants& constants, PackCache& cache,
                                     const Bf16Kernel& kernel);
std::unique_ptr<Step> make_bf16_step(const Bf16ResizeOp& op, const Constants& constants, PackCache& cache,
                                     const Bf16Kernel& kernel);

}  // namespace npuforge::sim
