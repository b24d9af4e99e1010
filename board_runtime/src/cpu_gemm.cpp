// Blocked matrix product. The same source is compiled for the baseline and, on x86-64, for AVX2 and AVX-512; the loader
// picks. Without fused multiply-add (-ffp-contract=off) all give the same bits.
#include "npuforge/cpu_gemm.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
// Sanitizers do not stand the resolver that runs before them.
#define NPUFORGE_LEVELS __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define NPUFORGE_LEVELS
#endif

namespace npuforge::cpu {
namespace {

constexpr std::int64_t kRows = 6, kColumns = 16;
typedef float Lanes __attribute__((vector_size(kColumns * sizeof(float))));  // GCC's and Clang's vector type
// Of b: kDepth rows of kColumns stay in the first-level cache while all rows of a pass.
constexpr std::int64_t kDepth = 128;

}  // namespace

NPUFORGE_LEVELS
void multiply_add(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                  std::int64_t m, std::int64_t k, std::int64_t n) {
    for (std::int64_t k0 = 0; k0 < k; k0 += kDepth) {
        const std::int64_t depth = std::min(kDepth, k - k0);
        for (std::int64_t j = 0; j < n; j += kColumns) {
            const std::int64_t width = std::min(kColumns, n - j);
            const float* panel = b + k0 * ldb + j;
            for (std::int64_t i = 0; i < m; i += kRows) {
                const std::int64_t height = std::min(kRows, m - i);
                if (height == kRows && width == kColumns) {
                    Lanes sum[kRows];
                    for (std::int64_t r = 0; r < kRows; ++r) std::memcpy(&sum[r], c + (i + r) * ldc + j, sizeof(Lanes));
                    const float* left = a + i * lda + k0;
                    for (std::int64_t p = 0; p < depth; ++p) {
                        Lanes row;
                        std::memcpy(&row, panel + p * ldb, sizeof(Lanes));
                        for (std::int64_t r = 0; r < kRows; ++r) sum[r] += left[r * lda + p] * row;
                    }
                    for (std::int64_t r = 0; r < kRows; ++r) std::memcpy(c + (i + r) * ldc + j, &sum[r], sizeof(Lanes));
                    continue;
                }
                for (std::int64_t r = 0; r < height; ++r) {
                    float* out = c + (i + r) * ldc + j;
                    for (std::int64_t p = 0; p < depth; ++p) {
                        const float factor = a[(i + r) * lda + k0 + p];
                        const float* row = panel + p * ldb;
                        for (std::int64_t x = 0; x < width; ++x) out[x] += factor * row[x];
                    }
                }
            }
        }
    }
}

NPUFORGE_LEVELS
float dot(const float* a, const float* b, std::int64_t count) {
    constexpr std::int64_t kLanes = 16;
    float sum[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
    for (std::int64_t lane = 0; i < count; ++i, ++lane) sum[lane] += a[i] * b[i];
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
        for (std::int64_t lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
    return sum[0];
}

}  // namespace npuforge::cpu
