// The multiply-accumulate array: 16 input channels x 16 output channels x PIXELS output pixels. Pure function.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

/// acc[p][o] += sum over i of q[p][i] * w[i][o], modulo 2^32 (the compiler guarantees that no accumulator leaves
/// int32).
/// \tparam PIXELS pixels per cycle (`pixel_parallel` of the arch)
/// \param q input lanes of every pixel \param w weights, input lane first \param acc accumulators, output-stationary
template <int PIXELS>
inline void mac_array(const int8_t q[PIXELS][LANES], const int8_t w[LANES][LANES], int32_t acc[PIXELS][LANES]) {
    NPU_UNROLL_NEXT
    for (int p = 0; p < PIXELS; ++p) {
        NPU_UNROLL
        uint32_t sum[LANES];
        NPU_PARTITION(sum, 1)
        NPU_UNROLL_NEXT
        for (int o = 0; o < LANES; ++o) {
            NPU_UNROLL
            sum[o] = (uint32_t)acc[p][o];
        }
        NPU_UNROLL_NEXT
        for (int i = 0; i < LANES; ++i) {
            NPU_UNROLL
            NPU_UNROLL_NEXT
            for (int o = 0; o < LANES; ++o) {
                NPU_UNROLL
                sum[o] += (uint32_t)((int32_t)q[p][i] * (int32_t)w[i][o]);
            }
        }
        NPU_UNROLL_NEXT
        for (int o = 0; o < LANES; ++o) {
            NPU_UNROLL
            acc[p][o] = (int32_t)sum[o];
        }
    }
}

}  // namespace hls
}  // namespace npuforge
