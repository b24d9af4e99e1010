// Owns the AVX-512 depthwise convolution: bytes of four taps are interleaved, so that vpdpbusd sums four taps of one
// lane.
#include <immintrin.h>

#include "depthwise_step.hpp"
#include "simd_target.hpp"

NPUFORGE_BEGIN_AVX512
#include "avx512_stage.hpp"

namespace npuforge::sim::avx512 {

const ConvKernel& conv_kernel();

namespace {

template <StageKind kKind>
void pixels(const DepthwiseRow& row) {
    const DepthwisePack& pack = *row.pack;
    const CacheLine* weights = pack.weights.data() + static_cast<std::size_t>(row.block) * row.groups;
    const CacheLine* bias = pack.bias.data() + 4 * static_cast<std::size_t>(row.block);
    for (int x = 0; x < row.pixels; x += 4) {
        const std::uint8_t* a = row.activations + 16 * static_cast<std::size_t>(x);
        __m512i acc[4];
        for (int j = 0; j < 4; ++j) acc[j] = _mm512_load_si512(bias[j].bytes);
        const std::uint32_t* tap = pack.taps.data();
        for (int g = 0; g < row.groups; ++g, tap += 4) {
            const __m512i t0 = _mm512_loadu_si512(a + tap[0]), t1 = _mm512_loadu_si512(a + tap[1]);
            const __m512i t2 = _mm512_loadu_si512(a + tap[2]), t3 = _mm512_loadu_si512(a + tap[3]);
            const __m512i low01 = _mm512_unpacklo_epi8(t0, t1), high01 = _mm512_unpackhi_epi8(t0, t1);
            const __m512i low23 = _mm512_unpacklo_epi8(t2, t3), high23 = _mm512_unpackhi_epi8(t2, t3);
            const auto weight = [&](int j) {
                return _mm512_broadcast_i32x4(
                    _mm_load_si128(reinterpret_cast<const __m128i*>(weights[g].bytes + 16 * j)));
            };
            acc[0] = _mm512_dpbusd_epi32(acc[0], _mm512_unpacklo_epi16(low01, low23), weight(0));
            acc[1] = _mm512_dpbusd_epi32(acc[1], _mm512_unpackhi_epi16(low01, low23), weight(1));
            acc[2] = _mm512_dpbusd_epi32(acc[2], _mm512_unpacklo_epi16(high01, high23), weight(2));
            acc[3] = _mm512_dpbusd_epi32(acc[3], _mm512_unpackhi_epi16(high01, high23), weight(3));
        }
        const int count = row.pixels - x < 4 ? row.pixels - x : 4;
        std::uint8_t* out = row.out + static_cast<std::size_t>(x) * row.out_step;
        if (kKind == StageKind::kInteger) {
            alignas(64) std::int32_t plain[4][16];
            for (int j = 0; j < 4; ++j)  // vector j: lanes 4j..4j+3 of each pixel
                for (int p = 0; p < 4; ++p) {
                    const __m512i rotated = _mm512_permutexvar_epi32(
                        _mm512_add_epi32(_mm512_set1_epi32(4 * p),
                                         _mm512_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3)),
                        acc[j]);
                    _mm_store_si128(reinterpret_cast<__m128i*>(plain[p] + 4 * j), _mm512_castsi512_si128(rotated));
                }
            pack.stage.integer(plain[0], count, row.block, out, row.out_step);
        } else {
            const StageSet& set = pack.stage.sets[static_cast<std::size_t>(row.block)];
            store_pixels(out, row.out_step, count,
                         clamp(set, stage<kKind, 4>(pack.stage, set, acc[0], acc[1], acc[2], acc[3])));
        }
    }
}

void row(const DepthwiseRow& r) {
    switch (r.pack->stage.kind) {
        case StageKind::kPwl:
            return pixels<StageKind::kPwl>(r);
        case StageKind::kTable:
            return pixels<StageKind::kTable>(r);
        case StageKind::kInteger:
            return pixels<StageKind::kInteger>(r);
    }
}

}  // namespace

const DepthwiseKernel& depthwise_kernel() {
    static const DepthwiseKernel kernel = [] {
        DepthwiseKernel k;
        k.lanes = &quad_lanes();
        k.expand = conv_kernel().expand;
        k.row = row;
        return k;
    }();
    return kernel;
}

}  // namespace npuforge::sim::avx512
NPUFORGE_END_TARGET
