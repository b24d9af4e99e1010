// Owns the AVX-512 convolution: unsigned activations (q + 128) times signed weights by vpdpbusd, whose 32-bit sums do
// not saturate.
#include <immintrin.h>

#include "conv_step.hpp"
#include "simd_target.hpp"

NPUFORGE_BEGIN_AVX512
#include "avx512_stage.hpp"

namespace npuforge::sim::avx512 {
namespace {

void expand(std::uint8_t* to, const std::uint8_t* from, std::size_t step, int pixels, int lanes) {
    const __m512i flip = _mm512_set1_epi8(-128);
    std::size_t run = static_cast<std::size_t>(lanes);
    if (step == run) {
        run *= static_cast<std::size_t>(pixels);
        pixels = 1;
    }
    if (run == 16) {
        for (int p = 0; p < pixels; ++p, to += 16, from += step)
            _mm_storeu_si128(
                reinterpret_cast<__m128i*>(to),
                _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)), _mm512_castsi512_si128(flip)));
        return;
    }
    for (int p = 0; p < pixels; ++p, to += run, from += step) {
        std::size_t i = 0;
        for (; i + 64 <= run; i += 64)
            _mm512_storeu_si512(to + i, _mm512_xor_si512(_mm512_loadu_si512(from + i), flip));
        if (i < run) {
            const __mmask8 rest = static_cast<__mmask8>((1U << ((run - i) / 8)) - 1);
            _mm512_mask_storeu_epi64(to + i, rest, _mm512_xor_si512(_mm512_maskz_loadu_epi64(rest, from + i), flip));
        }
    }
}

inline __m512i broadcast4(const std::uint8_t* p) {
    std::int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}

// kPixels x kBlocks accumulators over all taps and input lanes.
template <int kPixels, int kBlocks>
inline void accumulate(const ConvRow& row, const std::uint8_t* activations, int block,
                       __m512i (&acc)[kPixels][kBlocks]) {
    const ConvPack& pack = *row.pack;
    const std::size_t step = row.activation_step;
    const std::uint8_t* weights = reinterpret_cast<const std::uint8_t*>(pack.weights.data()) +
                                  static_cast<std::size_t>(block) * pack.block_stride;
    const std::size_t block_stride = pack.block_stride;
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p)
#pragma GCC unroll 2
        for (int b = 0; b < kBlocks; ++b)
            acc[p][b] = _mm512_loadu_si512(pack.bias.data() + static_cast<std::size_t>(block + b) * 16);
    for (const ConvRun& run : pack.runs) {
        const std::uint8_t* a = activations + run.offset;
#pragma GCC unroll 1
        for (std::uint32_t g = run.groups; g != 0; --g) {
            __m512i w[kBlocks];
#pragma GCC unroll 2
            for (int b = 0; b < kBlocks; ++b)
                w[b] = _mm512_load_si512(weights + static_cast<std::size_t>(b) * block_stride);
#pragma GCC unroll 8
            for (int p = 0; p < kPixels; ++p) {
                const __m512i x = broadcast4(a + static_cast<std::size_t>(p) * step);
#pragma GCC unroll 2
                for (int b = 0; b < kBlocks; ++b) acc[p][b] = _mm512_dpbusd_epi32(acc[p][b], x, w[b]);
            }
            weights += 64;
            a += 4;
        }
    }
}

template <StageKind kKind, int kPixels, int kBlocks>
inline void tile(const ConvRow& row, const std::uint8_t* activations, int block, std::uint8_t* out) {
    const StagePack& stage_pack = row.pack->stage;
    __m512i acc[kPixels][kBlocks];
    accumulate(row, activations, block, acc);
    // Packing leaves 4 bytes of each pixel per 128-bit lane; this gathers a pixel's bytes.
    const __m512i gather = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
        std::uint8_t* to = out + 16 * (block + b);
        if (kKind == StageKind::kInteger) {
            alignas(64) std::int32_t plain[kPixels][16];
            for (int p = 0; p < kPixels; ++p) _mm512_store_si512(plain[p], acc[p][b]);
            stage_pack.integer(plain[0], kPixels, block + b, to, row.out_step);
            continue;
        }
        const StageSet& set = stage_pack.sets[static_cast<std::size_t>(block + b)];
#pragma GCC unroll 2
        for (int p = 0; p < kPixels; p += 4) {
            constexpr int kLast = kPixels - 1;
            const __m512i y =
                stage<kKind, 1>(stage_pack, set, acc[p][b], acc[p + 1 < kLast ? p + 1 : kLast][b],
                                acc[p + 2 < kLast ? p + 2 : kLast][b], acc[p + 3 < kLast ? p + 3 : kLast][b]);
            store_pixels(to + static_cast<std::size_t>(p) * row.out_step, row.out_step, kPixels < 4 ? kPixels : 4,
                         clamp(set, _mm512_permutexvar_epi32(gather, y)));
        }
    }
}

template <StageKind kKind, int kPixels>
void blocks(const ConvRow& row, int pixel) {
    const std::uint8_t* a = row.activations + static_cast<std::size_t>(pixel) * row.activation_step;
    std::uint8_t* out = row.out + static_cast<std::size_t>(pixel) * row.out_step;
    int block = 0;
    for (; block + 2 <= row.blocks_out; block += 2) tile<kKind, kPixels, 2>(row, a, block, out);
    if (block < row.blocks_out) tile<kKind, kPixels, 1>(row, a, block, out);
}

template <StageKind kKind>
void pixels(const ConvRow& row) {
    int pixel = 0;
    for (; pixel + 8 <= row.pixels; pixel += 8) blocks<kKind, 8>(row, pixel);
    if (pixel == row.pixels) return;
    if (row.pixels >= 8) return blocks<kKind, 8>(row, row.pixels - 8);  // again with some pixels of the last tile
    if (pixel + 4 <= row.pixels) {
        blocks<kKind, 4>(row, pixel);
        pixel += 4;
    }
    if (pixel + 2 <= row.pixels) {
        blocks<kKind, 2>(row, pixel);
        pixel += 2;
    }
    if (pixel < row.pixels) blocks<kKind, 1>(row, pixel);
}

void row(const ConvRow& r) {
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

const ConvKernel& conv_kernel() {
    static const ConvKernel kernel = [] {
        ConvKernel k;
        k.lanes = &pixel_lanes();
        k.macs_per_cycle = 50;
        k.stage_cycles = 0.5;
        k.expand = expand;
        k.row = row;
        return k;
    }();
    return kernel;
}

}  // namespace npuforge::sim::avx512
NPUFORGE_END_TARGET
