// Owns the output stage for AVX-512: four vectors of sixteen accumulators to 64 bytes. Why it is exact: simd_pack.hpp.
// Include inside NPUFORGE_BEGIN_AVX512.
#pragma once

#include <immintrin.h>

#include "simd_pack.hpp"

namespace npuforge::sim::avx512 {

constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;

/// Table values of 32 pre-activations.
inline __m512i table_words(const StagePack& pack, __m512i t) {
    const TableVectors& v = pack.vectors;
    const __m128i count = _mm_cvtsi32_si128(pack.op.fraction_bits - 4);
    const __m512i k = _mm512_sra_epi16(t, count);
    const __m512i rest = _mm512_and_si512(t, _mm512_load_si512(v.rest_mask));
    const __mmask32 bit6 = _mm512_test_epi16_mask(k, _mm512_set1_epi16(0x40));
    const __mmask32 bit7 = _mm512_test_epi16_mask(k, _mm512_set1_epi16(0x80));
    const auto look_up = [&](const std::int16_t* entries) {
        const __m512i* e =
            reinterpret_cast<const __m512i*>(entries);  // 32 entries each; an index picks from 64 by its low 6 bits
        const __m512i q0 = _mm512_permutex2var_epi16(_mm512_load_si512(e + 0), k, _mm512_load_si512(e + 1));
        const __m512i q1 = _mm512_permutex2var_epi16(_mm512_load_si512(e + 2), k, _mm512_load_si512(e + 3));
        const __m512i q2 = _mm512_permutex2var_epi16(_mm512_load_si512(e + 4), k, _mm512_load_si512(e + 5));
        const __m512i q3 = _mm512_permutex2var_epi16(_mm512_load_si512(e + 6), k, _mm512_load_si512(e + 7));
        return _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, q0, q1),
                                       _mm512_mask_blend_epi16(bit6, q2, q3));
    };
    const __m512i low = look_up(pack.table), difference = look_up(pack.difference);
    const __m512i scaled = _mm512_add_epi16(_mm512_mullo_epi16(difference, rest), _mm512_load_si512(v.rounding));
    __m512i u = _mm512_add_epi16(low, _mm512_sra_epi16(scaled, count));
    const __mmask32 below = _mm512_cmplt_epi16_mask(t, _mm512_load_si512(v.lowest));
    const __mmask32 above = _mm512_cmpgt_epi16_mask(t, _mm512_load_si512(v.highest));
    u = _mm512_mask_mov_epi16(u, below, pack.op.tail_low_is_input ? t : _mm512_load_si512(v.tail_low));
    return _mm512_mask_mov_epi16(u, above, pack.op.tail_high_is_input ? t : _mm512_load_si512(v.tail_high));
}

/// floor(a*multiplier + addend), see simd_pack.hpp.
inline __m512i scale(__m512 a, __m512 multiplier, __m512 addend) {
    return _mm512_cvt_roundps_epi32(_mm512_fmadd_round_ps(a, multiplier, addend, kDown), kDown);
}

/// 64 result bytes in the order of the packing instructions, not yet clamped. kSets: how many different parameter
/// vectors the layout has.
template <StageKind kKind, int kSets>
inline __m512i stage(const StagePack& pack, const StageSet& set, __m512i a0, __m512i a1, __m512i a2, __m512i a3) {
    const auto index = [](int j) { return j % kSets; };
    __m512i a[4] = {a0, a1, a2, a3};
    for (int j = 0; j < 4; ++j) {
        const __m512 value = _mm512_cvtepi32_ps(a[j]);
        __m512 multiplier = _mm512_load_ps(set.positive[index(j)]);
        if (kKind == StageKind::kPwl)
            multiplier =
                _mm512_mask_mov_ps(multiplier, _mm512_movepi32_mask(a[j]), _mm512_load_ps(set.negative[index(j)]));
        a[j] = scale(value, multiplier, _mm512_load_ps(set.addend[index(j)]));
    }
    __m512i words[2] = {_mm512_packs_epi32(a[0], a[1]), _mm512_packs_epi32(a[2], a[3])};
    if (kKind == StageKind::kTable) {
        for (int h = 0; h < 2; ++h) {
            const __m512i u = table_words(pack, words[h]);
            const __m512i zero = _mm512_setzero_si512();
            const int j0 = index(2 * h), j1 = index(2 * h + 1);
            // u in the upper half of each 32-bit lane is u*2^16.
            const __m512i y0 = scale(_mm512_cvtepi32_ps(_mm512_unpacklo_epi16(zero, u)), _mm512_load_ps(set.second[j0]),
                                     _mm512_load_ps(set.second_addend[j0]));
            const __m512i y1 = scale(_mm512_cvtepi32_ps(_mm512_unpackhi_epi16(zero, u)), _mm512_load_ps(set.second[j1]),
                                     _mm512_load_ps(set.second_addend[j1]));
            words[h] = _mm512_packs_epi32(y0, y1);
        }
    }
    return _mm512_packs_epi16(words[0], words[1]);
}

/// Clamps 4 pixels of 16 lanes in memory order.
inline __m512i clamp(const StageSet& set, __m512i y) {
    return _mm512_min_epi8(_mm512_max_epi8(y, _mm512_load_si512(set.low)), _mm512_load_si512(set.high));
}

/// Writes the first `count` of 4 pixels.
inline void store_pixels(std::uint8_t* out, std::size_t step, int count, __m512i y) {
    if (step == 16) {
        _mm512_mask_storeu_epi64(out, static_cast<__mmask8>((1U << (2 * count)) - 1), y);
        return;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_castsi512_si128(y));
    if (count > 1) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + step), _mm512_extracti32x4_epi32(y, 1));
    if (count > 2) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * step), _mm512_extracti32x4_epi32(y, 2));
    if (count > 3) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * step), _mm512_extracti32x4_epi32(y, 3));
}

/// Reads 4 pixels of 16 bytes; pixels from `count` on repeat the last one.
inline __m512i load_pixels(const std::uint8_t* in, std::size_t step, int count) {
    if (step == 16 && count == 4) return _mm512_loadu_si512(in);
    const auto pixel = [&](int p) {
        return _mm_loadu_si128(
            reinterpret_cast<const __m128i*>(in + static_cast<std::size_t>(p < count ? p : count - 1) * step));
    };
    __m512i v = _mm512_castsi128_si512(pixel(0));
    v = _mm512_inserti32x4(v, pixel(1), 1);
    v = _mm512_inserti32x4(v, pixel(2), 2);
    return _mm512_inserti32x4(v, pixel(3), 3);
}

}  // namespace npuforge::sim::avx512
