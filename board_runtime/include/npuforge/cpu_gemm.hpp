// The one matrix product of the CPU partition, for every processor level of one build; float32, sums in the order of k.
#pragma once

#include <cstdint>

namespace npuforge::cpu {

/// c[m, n] += a[m, k] * b[k, n]; row strides lda, ldb, ldc in elements. The same bits on every processor: each element
/// is summed in the order of k, without fused multiply-add.
void multiply_add(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                  std::int64_t m, std::int64_t k, std::int64_t n);

/// Sum of a[i] * b[i] in 16 interleaved partial sums.
float dot(const float* a, const float* b, std::int64_t count);

}  // namespace npuforge::cpu
