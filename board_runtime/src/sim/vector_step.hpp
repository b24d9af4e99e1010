// Owns element-wise, pooling and resize steps for SIMD levels. What differs between levels is a VectorKernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "depthwise_step.hpp"
#include "simd_pack.hpp"
#include "step.hpp"

namespace npuforge::sim {

/// Element-wise parameters of one block; vectors in unpacked_lanes order.
struct EltwiseSet {
    alignas(64) std::int32_t
        multipliers[2][16];      ///< sums: pair (Ma, +-Mb) of 16 bits; products: Ma, or 1 where the stage has it
    std::int32_t addend[2][16];  ///< K
    std::int16_t zero_a[32], zero_b[32];  ///< lanes 0..15 twice
};

struct EltwisePack {
    bool product = false;
    std::vector<EltwiseSet> sets;
    StagePack stage;
};

struct EltwiseRow {
    const EltwisePack* pack = nullptr;
    int block = 0, pixels = 0;
    const std::uint8_t* a = nullptr;
    const std::uint8_t* b = nullptr;
    std::size_t a_step = 0, b_step = 0;
    bool broadcast_b = false;  ///< b is one byte per pixel
    std::uint8_t* out = nullptr;
    std::size_t out_step = 0;
};

struct VectorKernel;

/// Element-wise operation on rows of pixels: every block of `pixels` pixels from (y, x) on.
class EltwiseRows {
  public:
    EltwiseRows(const EltwiseOp& op, const VectorKernel& kernel, std::shared_ptr<const EltwisePack> pack)
        : op_(op), kernel_(kernel), pack_(std::move(pack)) {}

    const EltwiseOp& op() const { return op_; }
    /// Operand a from on-chip memory.
    void run(const Memory& memory, std::size_t y, std::size_t x, int pixels) const {
        run(memory, memory.sram + op_.a.at(y, x), op_.a.pixel_stride, y, x, pixels);
    }
    /// Operand a from `a`, pixels `a_step` bytes apart.
    void run(const Memory& memory, const std::uint8_t* a, std::size_t a_step, std::size_t y, std::size_t x,
             int pixels) const;

  private:
    EltwiseOp op_;
    const VectorKernel& kernel_;
    std::shared_ptr<const EltwisePack> pack_;
};

struct AveragePack {
    std::vector<float> multipliers;  ///< [count][lane]: M*2^-S
    std::vector<float> addend;       ///< z + 1/2
    std::vector<std::int32_t> zero;  ///< za
};

/// One output pixel of an average pool: rows x cols valid taps from `in`.
struct AveragePixel {
    const std::uint8_t* in = nullptr;
    std::size_t row_step = 0, col_step = 0;
    int rows = 0, cols = 0, blocks = 0;
    const float* multipliers = nullptr;
    const AveragePack* pack = nullptr;
    std::uint8_t* out = nullptr;
};

/// One output row of a linear resize: `above`, `below` are the two source rows, `weight` that of `below`.
struct ResizeRow {
    const std::uint8_t* above = nullptr;
    const std::uint8_t* below = nullptr;
    int weight = 0, pixels = 0, blocks = 0;
    const isa::ResizeRecord* columns = nullptr;
    std::size_t in_step = 0;
    std::uint8_t* out = nullptr;
    std::size_t out_step = 0;
};

struct VectorKernel {
    double eltwise_cycles = 1;  ///< per output lane
    void (*eltwise)(const EltwiseRow& row) = nullptr;
    /// to[i] = max over `count` rows, `row_step` apart, of `bytes` int8 values; `bytes` is a multiple of 16.
    void (*max_rows)(std::uint8_t* to, const std::uint8_t* from, std::size_t row_step, int count,
                     std::size_t bytes) = nullptr;
    /// For each of `pixels` pixels of 16 lanes: max over from + 16*x + offsets[0..count), to out + x*out_step.
    void (*max_columns)(std::uint8_t* out, std::size_t out_step, const std::uint8_t* from, const std::uint32_t* offsets,
                        int count, int pixels) = nullptr;
    void (*average)(const AveragePixel& pixel) = nullptr;
    void (*resize)(const ResizeRow& row) = nullptr;
};

/// Null where the values could leave what the kernels are exact for.
std::unique_ptr<const EltwiseRows> make_eltwise_rows(const EltwiseOp& op, const Constants& constants, PackCache& cache,
                                                     const VectorKernel& kernel);
std::unique_ptr<Step> make_eltwise_step(const EltwiseOp& op, const Constants& constants, PackCache& cache,
                                        const VectorKernel& kernel);
std::unique_ptr<Step> make_pool_step(const PoolOp& op, const Constants& constants, PackCache& cache,
                                     const VectorKernel& kernel);
std::unique_ptr<Step> make_resize_step(const ResizeOp& op, const Constants& constants, const VectorKernel& kernel);

}  // namespace npuforge::sim
