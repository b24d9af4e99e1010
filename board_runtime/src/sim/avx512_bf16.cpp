// Owns the bf16 kernels for AVX-512: 16 float lanes are one vector.
#include <immintrin.h>

#include "bf16_step.hpp"
#include "simd_target.hpp"

NPUFORGE_BEGIN_AVX512
#define NPUFORGE_LEVEL avx512

namespace npuforge::sim::avx512 {
namespace {

constexpr int kTile = 4;  // output pixels that share a weight

struct V {
    __m512 v;
    static V set(float x) { return {_mm512_set1_ps(x)}; }
    static V load(const float* p) { return {_mm512_loadu_ps(p)}; }
    static V load_bf16(const std::uint8_t* p) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
    }
    static V broadcast_bf16(const std::uint8_t* p) {
        return {_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(p[0]) << 16 | static_cast<int>(p[1]) << 24))};
    }
    static V smaller_or_second(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
    V magnitude() const {
        return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)))};
    }
    void store(float* p) const { _mm512_storeu_ps(p, v); }
    void store_bf16(std::uint8_t* p) const {
        const __m512i bits = _mm512_castps_si512(v);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        const __mmask16 tiny = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
        rounded = _mm512_mask_and_epi32(rounded, tiny, bits, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
        rounded = _mm512_srli_epi32(rounded, 16);
        rounded = _mm512_mask_set1_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), 0x7fc0);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
    }
};
inline V operator+(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V operator-(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V operator*(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline __mmask16 operator<(V a, V b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
inline __mmask16 operator<=(V a, V b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ); }
inline __mmask16 operator==(V a, V b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
inline V choose(__mmask16 mask, V yes, V no) { return {_mm512_mask_blend_ps(mask, no.v, yes.v)}; }

struct Ints {
    __m512i v;
    static Ints set(int x) { return {_mm512_set1_epi32(x)}; }
    static Ints truncate(V x) { return {_mm512_cvttps_epi32(x.v)}; }
    static Ints smaller(Ints a, int b) { return {_mm512_min_epi32(a.v, _mm512_set1_epi32(b))}; }
    static Ints choose(__mmask16 mask, Ints yes, Ints no) { return {_mm512_mask_blend_epi32(mask, no.v, yes.v)}; }
    V to_float() const { return {_mm512_cvtepi32_ps(v)}; }
};
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline V gather(const float* table, Ints index) { return {_mm512_i32gather_ps(index.v, table, 4)}; }

}  // namespace
}  // namespace npuforge::sim::avx512

#include "bf16_kernels.hpp"

namespace npuforge::sim::avx512 {
const Bf16Kernel& bf16() { return bf16_kernel(); }
}  // namespace npuforge::sim::avx512
NPUFORGE_END_TARGET
