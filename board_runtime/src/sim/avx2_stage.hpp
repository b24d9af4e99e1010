// Owns the output stage for AVX2: two pixels, each as two vectors of eight accumulators, to 32 bytes.
// Why it is exact: simd_pack.hpp; the rounding mode "down" comes from the control register, which RoundDown sets.
// Include inside NPUFORGE_BEGIN_AVX2.
#pragma once

#include <immintrin.h>

#include "simd_pack.hpp"

namespace npuforge::sim::avx2 {

/// Rounding mode "down" while it lives. Code that relies on it must be in another, never inlined function.
class RoundDown {
  public:
    RoundDown() : saved_(_mm_getcsr()) { _mm_setcsr((saved_ & ~_MM_ROUND_MASK) | _MM_ROUND_DOWN); }
    ~RoundDown() { _mm_setcsr(saved_); }
    RoundDown(const RoundDown&) = delete;
    RoundDown& operator=(const RoundDown&) = delete;

  private:
    unsigned saved_;
};

/// Which lanes the two vectors of a pixel hold: unpacked_lanes or half_lanes.
enum class Order { kUnpacked, kHalves };

inline __m256i load_words(const std::int16_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

/// Table values of 16 pre-activations.
inline __m256i table_words(const StagePack& pack, __m256i t) {
    const TableVectors& v = pack.vectors;
    const __m128i count = _mm_cvtsi32_si128(pack.op.fraction_bits - 4);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i k = _mm256_and_si256(_mm256_sra_epi16(t, count), _mm256_set1_epi16(255));
    const __m256i rest = _mm256_and_si256(t, load_words(v.rest_mask));
    const __m256i one = load_words(v.one);
    const __m256i rounding = _mm256_load_si256(reinterpret_cast<const __m256i*>(v.wide_rounding));
    const auto interpolate = [&](__m256i index, __m256i weights) {  // (T*2^step + difference*rest + rounding) >> step
        const __m256i pairs = _mm256_i32gather_epi32(pack.pairs, index, 4);
        return _mm256_sra_epi32(_mm256_add_epi32(_mm256_madd_epi16(pairs, weights), rounding), count);
    };
    __m256i u = _mm256_packs_epi32(interpolate(_mm256_unpacklo_epi16(k, zero), _mm256_unpacklo_epi16(one, rest)),
                                   interpolate(_mm256_unpackhi_epi16(k, zero), _mm256_unpackhi_epi16(one, rest)));
    const __m256i below = _mm256_cmpgt_epi16(load_words(v.lowest), t),
                  above = _mm256_cmpgt_epi16(t, load_words(v.highest));
    u = _mm256_blendv_epi8(u, pack.op.tail_low_is_input ? t : load_words(v.tail_low), below);
    return _mm256_blendv_epi8(u, pack.op.tail_high_is_input ? t : load_words(v.tail_high), above);
}

/// floor(a*multiplier + addend) in rounding mode "down", see simd_pack.hpp.
inline __m256i scale(__m256 a, __m256 multiplier, __m256 addend) {
    return _mm256_cvtps_epi32(_mm256_fmadd_ps(a, multiplier, addend));
}

/// Two pixels (a[0], a[1] and a[2], a[3]) to 32 bytes in memory order, clamped.
template <StageKind kKind, Order kOrder>
inline __m256i stage(const StagePack& pack, const StageSet& set, const __m256i (&acc)[4]) {
    __m256i a[4];
    for (int j = 0; j < 4; ++j) {
        __m256 multiplier = _mm256_load_ps(set.positive[j % 2]);
        if (kKind == StageKind::kPwl && !pack.linear)
            multiplier = _mm256_blendv_ps(multiplier, _mm256_load_ps(set.negative[j % 2]), _mm256_castsi256_ps(acc[j]));
        a[j] = scale(_mm256_cvtepi32_ps(acc[j]), multiplier, _mm256_load_ps(set.addend[j % 2]));
    }
    __m256i words[2] = {_mm256_packs_epi32(a[0], a[1]), _mm256_packs_epi32(a[2], a[3])};
    if (kKind == StageKind::kTable) {
        for (int p = 0; p < 2; ++p) {
            const __m256i u = table_words(pack, words[p]);
            const __m256i zero = _mm256_setzero_si256();
            // u in the upper half of each 32-bit lane is u*2^16.
            const __m256i low = scale(_mm256_cvtepi32_ps(_mm256_unpacklo_epi16(zero, u)), _mm256_load_ps(set.second[0]),
                                      _mm256_load_ps(set.second_addend[0]));
            const __m256i high = scale(_mm256_cvtepi32_ps(_mm256_unpackhi_epi16(zero, u)),
                                       _mm256_load_ps(set.second[1]), _mm256_load_ps(set.second_addend[1]));
            words[p] = _mm256_packs_epi32(low, high);
        }
    }
    // Unpacked order: 128-bit lane 0 holds lanes 0-7 of both pixels, lane 1 lanes 8-15. Halves: lanes 0-3 and 8-11, 4-7
    // and 12-15.
    __m256i y = _mm256_packs_epi16(words[0], words[1]);
    if (kOrder == Order::kUnpacked)
        y = _mm256_permute4x64_epi64(y, _MM_SHUFFLE(3, 1, 2, 0));
    else
        y = _mm256_permutevar8x32_epi32(y, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(set.low));
    const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(set.high));
    return _mm256_min_epi8(_mm256_max_epi8(y, low), high);
}

/// Writes the first `count` (1 or 2) pixels.
inline void store_pixels(std::uint8_t* out, std::size_t step, int count, __m256i y) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(y));
    if (count > 1) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + step), _mm256_extracti128_si256(y, 1));
}

/// The integer stage of up to two pixels.
template <Order kOrder>
inline void store_integer(const StagePack& pack, int block, const __m256i (&acc)[4], int count, std::uint8_t* out,
                          std::size_t step) {
    const LaneMap& lanes = kOrder == Order::kUnpacked ? unpacked_lanes() : half_lanes();
    alignas(32) std::int32_t vectors[4][8], plain[2][16];
    for (std::size_t j = 0; j < 4; ++j) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(vectors[j]), acc[j]);
        for (std::size_t e = 0; e < 8; ++e) plain[j / 2][lanes[j % 2][e]] = vectors[j][e];
    }
    pack.integer(plain[0], count, block, out, step);
}

/// Stage and store of up to two pixels.
template <StageKind kKind, Order kOrder>
inline void finish(const StagePack& pack, int block, const __m256i (&acc)[4], int count, std::uint8_t* out,
                   std::size_t step) {
    if (kKind == StageKind::kInteger)
        store_integer<kOrder>(pack, block, acc, count, out, step);
    else
        store_pixels(out, step, count, stage<kKind, kOrder>(pack, pack.sets[static_cast<std::size_t>(block)], acc));
}

}  // namespace npuforge::sim::avx2
