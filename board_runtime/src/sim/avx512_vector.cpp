// Owns the AVX-512 element-wise kernel; pooling and resize are those of AVX2.
#include <immintrin.h>

#include "simd_target.hpp"
#include "vector_step.hpp"

NPUFORGE_BEGIN_AVX512
#include "avx512_stage.hpp"

namespace npuforge::sim {
namespace avx2 {

const VectorKernel& vector_kernel();

}  // namespace avx2

namespace avx512 {
namespace {

// Four pixels of the second operand: 16 lanes each, or one byte each for all lanes.
inline __m512i load_b(const EltwiseRow& row, int x, int count) {
    const std::uint8_t* b = row.b + static_cast<std::size_t>(x) * row.b_step;
    if (!row.broadcast_b) return load_pixels(b, row.b_step, count);
    const auto pixel = [&](int p) {
        return _mm_set1_epi8(static_cast<char>(b[static_cast<std::size_t>(p < count ? p : count - 1) * row.b_step]));
    };
    __m512i v = _mm512_castsi128_si512(pixel(0));
    v = _mm512_inserti32x4(v, pixel(1), 1);
    v = _mm512_inserti32x4(v, pixel(2), 2);
    return _mm512_inserti32x4(v, pixel(3), 3);
}

template <StageKind kKind, bool kProduct>
void pixels(const EltwiseRow& row) {
    const StagePack& stage_pack = row.pack->stage;
    const EltwiseSet& set = row.pack->sets[static_cast<std::size_t>(row.block)];
    const __m512i zero_a = _mm512_load_si512(set.zero_a), zero_b = _mm512_load_si512(set.zero_b);
    const __m512i multipliers[2] = {_mm512_load_si512(set.multipliers[0]), _mm512_load_si512(set.multipliers[1])};
    const __m512i addend[2] = {_mm512_load_si512(set.addend[0]), _mm512_load_si512(set.addend[1])};
    // Packing leaves lanes 0-7 of pixels 0 and 2, lanes 8-15 of them, then pixels 1 and 3.
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    for (int x = 0; x < row.pixels; x += 4) {
        const int count = row.pixels - x < 4 ? row.pixels - x : 4;
        const __m512i a8 = load_pixels(row.a + static_cast<std::size_t>(x) * row.a_step, row.a_step, count);
        const __m512i b8 = load_b(row, x, count);
        __m512i acc[4];
        for (int h = 0; h < 2; ++h) {  // pixels 0 and 1, 2 and 3
            const __m512i a = _mm512_sub_epi16(
                _mm512_cvtepi8_epi16(h == 0 ? _mm512_castsi512_si256(a8) : _mm512_extracti64x4_epi64(a8, 1)), zero_a);
            const __m512i b = _mm512_sub_epi16(
                _mm512_cvtepi8_epi16(h == 0 ? _mm512_castsi512_si256(b8) : _mm512_extracti64x4_epi64(b8, 1)), zero_b);
            const __m512i zero = _mm512_setzero_si512();
            if (kProduct) {
                const __m512i low = _mm512_madd_epi16(_mm512_unpacklo_epi16(a, zero), _mm512_unpacklo_epi16(b, zero));
                const __m512i high = _mm512_madd_epi16(_mm512_unpackhi_epi16(a, zero), _mm512_unpackhi_epi16(b, zero));
                acc[2 * h] = _mm512_mullo_epi32(low, multipliers[0]);
                acc[2 * h + 1] = _mm512_mullo_epi32(high, multipliers[1]);
            } else {
                acc[2 * h] =
                    _mm512_add_epi32(_mm512_madd_epi16(_mm512_unpacklo_epi16(a, b), multipliers[0]), addend[0]);
                acc[2 * h + 1] =
                    _mm512_add_epi32(_mm512_madd_epi16(_mm512_unpackhi_epi16(a, b), multipliers[1]), addend[1]);
            }
        }
        std::uint8_t* out = row.out + static_cast<std::size_t>(x) * row.out_step;
        if (kKind == StageKind::kInteger) {
            alignas(64) std::int32_t vector[16];
            std::int32_t plain[4][16];
            for (std::size_t j = 0; j < 4; ++j) {
                _mm512_store_si512(vector, acc[j]);
                for (std::size_t e = 0; e < 16; ++e) plain[2 * (j / 2) + e / 8][unpacked_lanes()[j][e]] = vector[e];
            }
            stage_pack.integer(plain[0], count, row.block, out, row.out_step);
        } else {
            const StageSet& stage_set = stage_pack.sets[static_cast<std::size_t>(row.block)];
            const __m512i y = stage<kKind, 2>(stage_pack, stage_set, acc[0], acc[1], acc[2], acc[3]);
            store_pixels(out, row.out_step, count, clamp(stage_set, _mm512_permutexvar_epi64(order, y)));
        }
    }
}

template <StageKind kKind>
void dispatch(const EltwiseRow& row) {
    row.pack->product ? pixels<kKind, true>(row) : pixels<kKind, false>(row);
}

void eltwise(const EltwiseRow& row) {
    switch (row.pack->stage.kind) {
        case StageKind::kPwl:
            return dispatch<StageKind::kPwl>(row);
        case StageKind::kTable:
            return dispatch<StageKind::kTable>(row);
        case StageKind::kInteger:
            return dispatch<StageKind::kInteger>(row);
    }
}

}  // namespace

const VectorKernel& vector_kernel() {
    static const VectorKernel kernel = [] {
        VectorKernel k = avx2::vector_kernel();
        k.eltwise_cycles = 0.7;
        k.eltwise = eltwise;
        return k;
    }();
    return kernel;
}

}  // namespace avx512
}  // namespace npuforge::sim
NPUFORGE_END_TARGET
