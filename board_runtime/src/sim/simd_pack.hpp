// Owns parameters in the order in which the SIMD kernels read them, and the decision which output stage is exact in
// single precision.
//
// Exactness of the single-precision stage. Let a be an accumulator with |a| <= 2^24 (proved at load from the weights),
// m = M*2^-S with |M| <= 2^15 and c = z + 1/2. Then a, m and c are float32 values without error, and a fused
// multiply-add in the rounding mode "down" gives e = RD(a*m + c) from the exact sum. floor((a*M + 2^(S-1)) / 2^S) + z =
// floor(a*m + c) =: n, because z is an integer (for S = 0 the half changes nothing: a*m is an integer). If |n| <= 2^24,
// n is a float32 and n <= a*m + c, so n <= RD(a*m + c) <= a*m + c < n + 1 and floor(e) = n. If |n| > 2^24, e is beyond
// the int8 range on the same side, and so is the result after clamping. The conversion to int32, again rounding down,
// is floor(e); it cannot overflow where |a*m| < 2^31 - 2^9, which is also proved at load. Layers outside these bounds
// take 64-bit integers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "step.hpp"

namespace npuforge::sim {

enum class StageKind { kPwl, kTable, kInteger };

/// Output lane of element e of the j-th 32-bit vector that the packing instructions take.
using LaneMap = std::array<std::array<std::uint8_t, 16>, 4>;
/// Every vector holds lanes 0..15 of one pixel (AVX-512 convolution).
const LaneMap& pixel_lanes();
/// Vector j holds lanes 4j..4j+3 of four pixels (AVX-512 depthwise).
const LaneMap& quad_lanes();
/// Vectors alternate between lanes {0-3, 8-11} and {4-7, 12-15} (what unpacking 16-bit lanes gives).
const LaneMap& unpacked_lanes();

/// Vectors alternate between lanes 0..7 and 8..15 (AVX2 convolution).
const LaneMap& half_lanes();

/// Stage parameters of one block of 16 lanes, [vector][element] in LaneMap order, and bounds for four pixels of 16
/// lanes.
struct StageSet {
    alignas(64) float positive[4][16];  ///< pwl: Mp*2^-S; table: M1*2^-S1
    float negative[4][16];              ///< pwl: Mn*2^-S
    float addend[4][16];                ///< pwl: z + 1/2; table: 1/2
    float second[4][16];                ///< table: M2*2^-S2*2^-16, for u*2^16
    float second_addend[4][16];         ///< table: z + 1/2
    std::int8_t low[64], high[64];      ///< table: -128, 127
};

/// Constants of the table stage, one value in all lanes.
struct TableVectors {
    alignas(64) std::int16_t rest_mask[32];  ///< 2^(F-4) - 1
    std::int16_t one[32];                    ///< 2^(F-4)
    std::int16_t rounding[32];               ///< 2^(F-5)
    std::int32_t wide_rounding[16];
    std::int16_t lowest[32], highest[32];      ///< of the table's domain: -8*2^F, 8*2^F - 1
    std::int16_t tail_low[32], tail_high[32];  ///< values outside, where a tail is not the input
};

struct StagePack {
    StageKind kind = StageKind::kInteger;
    bool linear = false;  ///< pwl: one multiplier for both signs
    StageOp op;
    std::vector<StageSet> sets;  ///< per block
    TableVectors vectors;
    // Table by k & 255: T[k] and T[k+1] - T[k].
    alignas(64) std::int16_t table[256];
    std::int16_t difference[256];
    std::int32_t pairs[256];  ///< T in the low, the difference in the high half
    // For kInteger.
    std::vector<isa::RequantRecord> records;
    std::array<std::uint8_t, 2 * 257> raw_table{};

    /// Output bytes of `count` pixels of one block from accumulators [pixel][16].
    void integer(const std::int32_t* acc, int count, int block, std::uint8_t* out, std::size_t out_step) const;
};

/// `bound[lane]` is a bound of |accumulator|. `scale` multiplies every pwl and direct multiplier of its lane (products:
/// Ma), 1 if null.
void make_stage(StagePack& pack, const StageOp& op, const Constants& constants, int blocks,
                const std::vector<double>& bound, const LaneMap& lanes, const double* scale = nullptr);

}  // namespace npuforge::sim
