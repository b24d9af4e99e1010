// Owns depthwise steps for SIMD levels: prepared weights and scratch rows of one block of 16 lanes, columns sorted by
// stride phase. What differs between levels is a DepthwiseKernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "conv_step.hpp"
#include "simd_pack.hpp"
#include "step.hpp"

namespace npuforge::sim {

struct DepthwisePack {
    std::vector<CacheLine> weights;   ///< per block and tap group 64 bytes: [vector][lane][tap of the group]
    std::vector<CacheLine> bias;      ///< per block 4 x 16 int32, [vector][element]
    std::vector<std::uint8_t> pad;    ///< border values in activation form, one block after another
    std::vector<std::uint32_t> taps;  ///< byte offsets in scratch, filled up to whole groups with taps of weight 0
    /// 3x3, stride 1 along rows, 16-bit activations: per block 7 pairs of weights, 64 bytes each: (row 0, row 1) of
    /// columns 0, 1, 2; then of row 2 (0, 1), (2, -), (-, 0), (1, 2), where - is a weight of 0. Empty for other
    /// windows.
    std::vector<CacheLine> square;
    std::uint32_t rows[3] = {0, 0, 0};  ///< byte offsets of the three rows of taps
    StagePack stage;
};

/// A row of output pixels of one block; pixel x + 1 follows pixel x in scratch, whatever the stride.
struct DepthwiseRow {
    const DepthwisePack* pack = nullptr;
    const std::uint8_t* activations = nullptr;
    int block = 0, groups = 0, pixels = 0;
    std::uint8_t* out = nullptr;
    std::size_t out_step = 0;
};

struct DepthwiseKernel {
    int lane_bytes = 1;     ///< bytes of an activation in scratch
    int group = 4;          ///< taps that one instruction multiplies
    int vectors = 4;        ///< weight vectors of a block
    bool offset128 = true;  ///< activations are q + 128
    int spare_columns = 4;  ///< columns that a row kernel may read beyond the last
    const LaneMap* lanes = nullptr;
    double cycles = 0.6;  ///< per output lane of a 3x3 window
    void (*expand)(std::uint8_t* to, const std::uint8_t* from, std::size_t step, int pixels, int lanes) = nullptr;
    void (*row)(const DepthwiseRow& row) = nullptr;
};

std::unique_ptr<Step> make_depthwise_step(const ConvOp& op, const Constants& constants, PackCache& cache,
                                          const DepthwiseKernel& kernel);

/// Rows of one block of 16 lanes with borders, in activation form; column x is in plane x % stride at x / stride.
class PhaseRows {
  public:
    PhaseRows(const Map& in, int in_h, int in_w, const Window& window, int out_w, std::size_t column_bytes, int spare);

    std::size_t row_bytes() const { return plane_bytes_ * static_cast<std::size_t>(window_.stride_w); }
    std::size_t plane_bytes() const { return plane_bytes_; }
    std::size_t rows_of(int out_rows) const;
    std::uint32_t tap_offset(int ky, int kx) const;
    /// Fills the rows of output rows [first, first + count); `pad` is one border column.
    void fill(const std::uint8_t* sram, int block, std::uint8_t* scratch, int first, int count, const std::uint8_t* pad,
              void (*expand)(std::uint8_t*, const std::uint8_t*, std::size_t, int, int)) const;

  private:
    void border(std::uint8_t* row, long from, long to, const std::uint8_t* pad) const;
    std::uint8_t* column(std::uint8_t* row, long x) const {
        return row + static_cast<std::size_t>(x % window_.stride_w) * plane_bytes_ +
               static_cast<std::size_t>(x / window_.stride_w) * column_bytes_;
    }

    Map in_;
    int in_h_, in_w_;
    Window window_;
    std::size_t column_bytes_, plane_bytes_;
    long width_;  ///< columns that windows touch
};

}  // namespace npuforge::sim
