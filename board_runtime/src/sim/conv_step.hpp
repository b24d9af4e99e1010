// Owns convolution steps for SIMD levels: prepared weights, the scratch rows with borders, and the division into rows
// of output pixels. What differs between levels is a ConvKernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "simd_pack.hpp"
#include "step.hpp"

namespace npuforge::sim {

struct VectorKernel;

/// 64-byte aligned storage.
struct alignas(64) CacheLine {
    std::uint8_t bytes[64];
};

/// Consecutive groups of input lanes: where their activations begin (bytes in scratch from the first pixel of a row),
/// and how many.
struct ConvRun {
    std::uint32_t offset = 0, groups = 0;
};

struct ConvPack {
    std::vector<CacheLine> weights;  ///< per output block and group of input lanes: [16 lanes in vector order][group]
    std::vector<std::int32_t> bias;  ///< vector order; with the offset of unsigned activations taken out
    std::vector<std::uint8_t> pad;   ///< one border pixel in activation form
    std::vector<ConvRun> runs;       ///< all taps and lanes, without groups whose weights are all 0 (pad lanes)
    std::vector<std::uint8_t> half;  ///< per output block: the weights of the second half of the vector order are all 0
    StagePack stage;
    std::size_t block_stride = 0;  ///< bytes of `weights` per output block
};

/// A row of output pixels whose activations lie in scratch.
struct ConvRow {
    const ConvPack* pack = nullptr;
    const std::uint8_t* activations = nullptr;  ///< of the first pixel, tap offset 0
    std::size_t activation_step = 0;            ///< bytes from pixel to pixel
    int blocks_in = 0, blocks_out = 0, pixels = 0;
    std::uint8_t* out = nullptr;
    std::size_t out_step = 0;
};

/// One level's convolution.
struct ConvKernel {
    int lane_bytes = 1;     ///< bytes of an activation in scratch
    int group = 4;          ///< input lanes that one instruction multiplies
    int tile = 8;           ///< output pixels that it computes at once
    bool offset128 = true;  ///< activations are q + 128 as unsigned bytes, else q in 16 bits
    const LaneMap* lanes = nullptr;
    double macs_per_cycle = 50;
    double stage_cycles = 0.6;  ///< per output lane
    /// `pixels` pixels of `lanes` int8 lanes, `step` bytes apart, to activation form, one after another.
    void (*expand)(std::uint8_t* to, const std::uint8_t* from, std::size_t step, int pixels, int lanes) = nullptr;
    void (*row)(const ConvRow& row) = nullptr;
};

/// `sums` computes the sum of a residual stage.
std::unique_ptr<Step> make_conv_step(const ConvOp& op, const Constants& constants, PackCache& cache,
                                     const ConvKernel& kernel, const VectorKernel& sums);

}  // namespace npuforge::sim
