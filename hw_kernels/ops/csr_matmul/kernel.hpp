// CsrMatMul: rows of a sparse matrix times a dense one, int8 with sums in int32 or bf16 with sums in float32, 16
// columns at a time.
#pragma once

#include "bf16_conv.hpp"
#include "edges.hpp"

namespace npuforge {
namespace hls {

constexpr int CSR_MAX_ROWS = 4096;       ///< rows of one call
constexpr int CSR_MAX_VALUES = 1 << 20;  ///< values of one call
constexpr int CSR_ROW_VALUES = 1 << 16;  ///< values of a row: 2^16 * 128 * 255 is below 2^31
constexpr int CSR_MAX_INNER = 1 << 16;   ///< rows of the dense matrix
constexpr int CSR_MAX_LANES = 1 << 12;

/// Whether row pointers rise from 0, no row being longer than its sum may be.
inline bool legal_pointers(const int32_t pointers[], int32_t rows) {
    if (rows < 0 || rows > CSR_MAX_ROWS || pointers[0] != 0) return false;
    for (int32_t r = 0; r < rows; ++r) {
        NPU_TRIPCOUNT(0, CSR_MAX_ROWS)
        if (pointers[r + 1] < pointers[r] || pointers[r + 1] > CSR_MAX_VALUES) return false;
        if (pointers[r + 1] - pointers[r] > CSR_ROW_VALUES) return false;
    }
    return true;
}

/// Whether sizes are in range and columns inside the dense matrix.
inline bool legal_csr(const int32_t columns[], const int32_t pointers[], int32_t rows, int32_t inner, int32_t lanes) {
    if (inner < 1 || inner > CSR_MAX_INNER || lanes < LANES || lanes > CSR_MAX_LANES || lanes % LANES != 0)
        return false;
    if (!legal_pointers(pointers, rows)) return false;
    for (int32_t k = 0; k < pointers[rows]; ++k) {
        NPU_TRIPCOUNT(0, CSR_MAX_VALUES)
        if (columns[k] < 0 || columns[k] >= inner) return false;
    }
    return true;
}

/// sum[lane] = sum over k in begin .. end of values[k] * (x[columns[k]][lane] - z[lane]); x and z begin at the block.
inline void csr_row(const int8_t values[], const int32_t columns[], int32_t begin, int32_t end, const int8_t x[],
                    int32_t lanes, const int8_t z[LANES], int32_t sum[LANES]) {
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        sum[lane] = 0;
    }
    for (int32_t k = begin; k < end; ++k) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(0, CSR_ROW_VALUES)
        const int32_t from = columns[k] * lanes;
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            sum[lane] += (int32_t)values[k] * ((int32_t)x[from + lane] - z[lane]);
        }
    }
}

/// acc[r] = sum over k in pointers[r] .. pointers[r + 1] of values[k] * (x[columns[k]] - z). False, with nothing
/// written, where rows or pointers are out of range; columns must be inside x (checked by the host).
/// \param z zero points of the 16 columns of x \param acc [rows][16]
inline bool csr_matmul(const int8_t values[], const int32_t columns[], const int32_t pointers[], int32_t rows,
                       const int8_t x[], const int8_t z[LANES], int32_t acc[]) {
    if (!legal_pointers(pointers, rows)) return false;
    for (int32_t r = 0; r < rows; ++r) {
        NPU_TRIPCOUNT(0, CSR_MAX_ROWS)
        int32_t sum[LANES];
        NPU_PARTITION(sum, 1)
        csr_row(values, columns, pointers[r], pointers[r + 1], x, LANES, z, sum);
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            acc[r * LANES + lane] = sum[lane];
        }
    }
    return true;
}

/// int8 in NHWC-16: y [rows][lanes] of x [inner][lanes], sums through `out_of`. Pad lanes have records of 0. False,
/// with nothing written, where a size, a pointer, a column or a record is out of range.
/// \param z zero points [lanes] of x \param out_of records [lanes]: a sum to int8
inline bool csr_matmul_int8(const int8_t values[], const int32_t columns[], const int32_t pointers[], int32_t rows,
                            const int8_t x[], int32_t inner, int32_t lanes, const int8_t z[], const int32_t out_of[],
                            int8_t y[]) {
    if (!legal_csr(columns, pointers, rows, inner, lanes) || !legal_edges(out_of, lanes)) return false;
    for (int32_t r = 0; r < rows; ++r) {
        NPU_TRIPCOUNT(0, CSR_MAX_ROWS)
        for (int32_t block = 0; block < lanes; block += LANES) {
            NPU_TRIPCOUNT(1, CSR_MAX_LANES / LANES)
            int32_t sum[LANES];
            NPU_PARTITION(sum, 1)
            csr_row(values, columns, pointers[r], pointers[r + 1], x + block, lanes, z + block, sum);
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                y[r * lanes + block + lane] = int8_of_fixed(sum[lane], read_edge(out_of[block + lane]));
            }
        }
    }
    return true;
}

/// bf16: 16 values of a row at a time as a balanced tree, as the engine sums lanes (missing ones +0, a value of 0 gives
/// +0), trees added in order to +0, one rounding. False, with nothing written, as above.
inline bool csr_matmul_bf16(const uint16_t values[], const int32_t columns[], const int32_t pointers[], int32_t rows,
                            const uint16_t x[], int32_t inner, int32_t lanes, uint16_t y[]) {
    if (!legal_csr(columns, pointers, rows, inner, lanes)) return false;
    for (int32_t r = 0; r < rows; ++r) {
        NPU_TRIPCOUNT(0, CSR_MAX_ROWS)
        for (int32_t column = 0; column < lanes; ++column) {
            NPU_TRIPCOUNT(16, CSR_MAX_LANES)
            uint32_t acc = 0u;
            for (int32_t k = pointers[r]; k < pointers[r + 1]; k += LANES) {
                NPU_PIPELINE
                NPU_TRIPCOUNT(0, CSR_ROW_VALUES / LANES)
                uint32_t product[LANES];
                NPU_PARTITION(product, 1)
                NPU_UNROLL_NEXT
                for (int i = 0; i < LANES; ++i) {
                    NPU_UNROLL
                    const bool there = k + i < pointers[r + 1];
                    product[i] = there ? weigh_bf16(x[columns[k + i] * lanes + column], values[k + i]) : 0u;
                }
                acc = add_float(acc, tree_sum(product));
            }
            y[r * lanes + column] = round_bf16(acc);
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
