// Owns the bf16 kernels for AVX2: 16 float lanes are two vectors.
#include <immintrin.h>

#include "bf16_step.hpp"
#include "simd_target.hpp"

NPUFORGE_BEGIN_AVX2
#define NPUFORGE_LEVEL avx2

namespace npuforge::sim::avx2 {
namespace {

constexpr int kTile = 1;  // the tree of one pixel fills the registers

struct Mask {
    __m256 low, high;
};

struct V {
    __m256 low, high;
    static V set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
    static V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
    static __m256 widened(__m128i bits) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
    static V load_bf16(const std::uint8_t* p) {
        return {widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
    }
    static V broadcast_bf16(const std::uint8_t* p) {
        const __m256 x =
            _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(p[0]) << 16 | static_cast<int>(p[1]) << 24));
        return {x, x};
    }
    static V smaller_or_second(V a, V b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
    V magnitude() const {
        const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
        return {_mm256_and_ps(low, mask), _mm256_and_ps(high, mask)};
    }
    void store(float* p) const {
        _mm256_storeu_ps(p, low);
        _mm256_storeu_ps(p + 8, high);
    }
    static __m256i rounded(__m256 x) {
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        __m256i result = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        const __m256i tiny =
            _mm256_cmpeq_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000)), _mm256_setzero_si256());
        const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
        result = _mm256_srli_epi32(_mm256_blendv_epi8(result, sign, tiny), 16);
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        return _mm256_blendv_epi8(result, _mm256_set1_epi32(0x7fc0), nan);
    }
    void store_bf16(std::uint8_t* p) const {
        const __m256i packed = _mm256_packus_epi32(rounded(low), rounded(high));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
    }
};
inline V operator+(V a, V b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline V operator-(V a, V b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline V operator*(V a, V b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Mask operator<(V a, V b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
inline Mask operator<=(V a, V b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_LE_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LE_OQ)};
}
inline Mask operator==(V a, V b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ)};
}
inline V choose(Mask mask, V yes, V no) {
    return {_mm256_blendv_ps(no.low, yes.low, mask.low), _mm256_blendv_ps(no.high, yes.high, mask.high)};
}

struct Ints {
    __m256i low, high;
    static Ints set(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
    static Ints truncate(V x) { return {_mm256_cvttps_epi32(x.low), _mm256_cvttps_epi32(x.high)}; }
    static Ints smaller(Ints a, int b) {
        const __m256i limit = _mm256_set1_epi32(b);
        return {_mm256_min_epi32(a.low, limit), _mm256_min_epi32(a.high, limit)};
    }
    static Ints choose(Mask mask, Ints yes, Ints no) {
        return {_mm256_blendv_epi8(no.low, yes.low, _mm256_castps_si256(mask.low)),
                _mm256_blendv_epi8(no.high, yes.high, _mm256_castps_si256(mask.high))};
    }
    V to_float() const { return {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)}; }
};
inline Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
inline V gather(const float* table, Ints index) {
    return {_mm256_i32gather_ps(table, index.low, 4), _mm256_i32gather_ps(table, index.high, 4)};
}

}  // namespace
}  // namespace npuforge::sim::avx2

#include "bf16_kernels.hpp"

namespace npuforge::sim::avx2 {
const Bf16Kernel& bf16() { return bf16_kernel(); }
}  // namespace npuforge::sim::avx2
NPUFORGE_END_TARGET
