// CsrMatMul in integers: rows of a sparse int8 matrix times 16 int8 columns, sums in int32.
#pragma once

#include "npu_types.hpp"

namespace npuforge {
namespace hls {

constexpr int CSR_MAX_ROWS = 4096;       ///< rows of one call
constexpr int CSR_MAX_VALUES = 1 << 20;  ///< values of one call

/// acc[r] = sum over k in pointers[r] .. pointers[r + 1] of values[k] * (x[columns[k]] - z). False, with nothing
/// written, where rows or pointers are out of range; columns must be inside x (checked by the host).
/// \param z zero points of the 16 columns of x \param acc [rows][16]
inline bool csr_matmul(const int8_t values[], const int32_t columns[], const int32_t pointers[], int32_t rows,
                       const int8_t x[], const int8_t z[LANES], int32_t acc[]) {
    if (rows < 0 || rows > CSR_MAX_ROWS || pointers[0] != 0) return false;
    for (int32_t r = 0; r < rows; ++r) {
        NPU_TRIPCOUNT(1, CSR_MAX_ROWS)
        if (pointers[r + 1] < pointers[r] || pointers[r + 1] > CSR_MAX_VALUES) return false;
    }
    for (int32_t r = 0; r < rows; ++r) {
        NPU_TRIPCOUNT(1, CSR_MAX_ROWS)
        int32_t sum[LANES];
        NPU_PARTITION(sum, 1)
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            sum[lane] = 0;
        }
        for (int32_t k = pointers[r]; k < pointers[r + 1]; ++k) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(0, CSR_MAX_VALUES)
            const int32_t from = columns[k] * LANES;
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                sum[lane] += (int32_t)values[k] * ((int32_t)x[from + lane] - z[lane]);
            }
        }
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            acc[r * LANES + lane] = sum[lane];
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
