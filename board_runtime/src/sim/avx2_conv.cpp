// Owns the AVX2 convolution and depthwise convolution: 16-bit activations and weights, pairs of products summed to 32
// bits by vpmaddwd (vpmaddubsw would saturate).
#include <immintrin.h>

#include "conv_step.hpp"
#include "depthwise_step.hpp"
#include "simd_target.hpp"

NPUFORGE_BEGIN_AVX2
#include "avx2_stage.hpp"

namespace npuforge::sim::avx2 {
namespace {

void expand(std::uint8_t* to, const std::uint8_t* from, std::size_t step, int pixels, int lanes) {
    std::size_t run = static_cast<std::size_t>(lanes);
    if (step == run) {
        run *= static_cast<std::size_t>(pixels);
        pixels = 1;
    }
    for (int p = 0; p < pixels; ++p, to += 2 * run, from += step)
        for (std::size_t i = 0; i < run; i += 16)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i),
                                _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
}

inline __m256i load(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

inline __m256i broadcast_pair(const std::uint8_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return _mm256_set1_epi32(pair);
}

// kHalf: the upper eight lanes have no weights.
template <StageKind kKind, int kPixels, bool kHalf>
inline void tile(const ConvRow& row, const std::uint8_t* activations, int block, std::uint8_t* out) {
    const ConvPack& pack = *row.pack;
    const std::size_t step = row.activation_step;
    const std::uint8_t* weights = reinterpret_cast<const std::uint8_t*>(pack.weights.data()) +
                                  static_cast<std::size_t>(block) * pack.block_stride;
    const auto* bias = reinterpret_cast<const __m256i*>(pack.bias.data() + static_cast<std::size_t>(block) * 16);
    __m256i acc[kPixels][2];
#pragma GCC unroll 6
    for (int p = 0; p < kPixels; ++p) {
        acc[p][0] = _mm256_loadu_si256(bias);
        acc[p][1] = _mm256_loadu_si256(bias + 1);
    }
    for (const ConvRun& run : pack.runs) {
        const std::uint8_t* a = activations + run.offset;
#pragma GCC unroll 1
        for (std::uint32_t g = run.groups; g != 0; --g) {
            const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights));
            const __m256i w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + 32));
#pragma GCC unroll 6
            for (int p = 0; p < kPixels; ++p) {
                const __m256i x = broadcast_pair(a + static_cast<std::size_t>(p) * step);
                acc[p][0] = _mm256_add_epi32(acc[p][0], _mm256_madd_epi16(x, w0));
                if (!kHalf) acc[p][1] = _mm256_add_epi32(acc[p][1], _mm256_madd_epi16(x, w1));
            }
            weights += 64;
            a += 4;
        }
    }
#pragma GCC unroll 3
    for (int p = 0; p < kPixels; p += 2) {
        constexpr int kLast = kPixels - 1;
        const int q = p < kLast ? p + 1 : kLast;
        const __m256i pair[4] = {acc[p][0], acc[p][1], acc[q][0], acc[q][1]};
        finish<kKind, Order::kHalves>(pack.stage, block, pair, kPixels < 2 ? 1 : 2,
                                      out + static_cast<std::size_t>(p) * row.out_step, row.out_step);
    }
}

template <StageKind kKind, int kPixels>
inline void blocks(const ConvRow& row, int pixel) {
    const std::uint8_t* a = row.activations + static_cast<std::size_t>(pixel) * row.activation_step;
    std::uint8_t* out = row.out + static_cast<std::size_t>(pixel) * row.out_step;
    for (int block = 0; block < row.blocks_out; ++block) {
        if (row.pack->half[static_cast<std::size_t>(block)] != 0)
            tile<kKind, kPixels, true>(row, a, block, out + 16 * block);
        else
            tile<kKind, kPixels, false>(row, a, block, out + 16 * block);
    }
}

template <StageKind kKind>
__attribute__((noinline)) void conv_pixels(const ConvRow& row) {
    int pixel = 0;
    for (; pixel + 6 <= row.pixels; pixel += 6) blocks<kKind, 6>(row, pixel);
    if (pixel == row.pixels) return;
    if (row.pixels >= 6) return blocks<kKind, 6>(row, row.pixels - 6);  // again with some pixels of the last tile
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

template <StageKind kKind>
__attribute__((noinline)) void depthwise_pixels(const DepthwiseRow& row) {
    const DepthwisePack& pack = *row.pack;
    const CacheLine* weights = pack.weights.data() + static_cast<std::size_t>(row.block) * row.groups;
    const CacheLine* bias = pack.bias.data() + 4 * static_cast<std::size_t>(row.block);
    for (int x = 0; x < row.pixels; x += 2) {
        const std::uint8_t* a = row.activations + 32 * static_cast<std::size_t>(x);
        __m256i acc[4] = {load(bias[0].bytes), load(bias[1].bytes), load(bias[0].bytes), load(bias[1].bytes)};
        const std::uint32_t* tap = pack.taps.data();
        for (int g = 0; g < row.groups; ++g, tap += 2) {
            const __m256i w0 = load(weights[g].bytes), w1 = load(weights[g].bytes + 32);
            for (int p = 0; p < 2; ++p) {
                const __m256i t0 = load(a + tap[0] + 32 * p), t1 = load(a + tap[1] + 32 * p);
                acc[2 * p] = _mm256_add_epi32(acc[2 * p], _mm256_madd_epi16(_mm256_unpacklo_epi16(t0, t1), w0));
                acc[2 * p + 1] = _mm256_add_epi32(acc[2 * p + 1], _mm256_madd_epi16(_mm256_unpackhi_epi16(t0, t1), w1));
            }
        }
        finish<kKind, Order::kUnpacked>(pack.stage, row.block, acc, row.pixels - x < 2 ? 1 : 2,
                                        row.out + static_cast<std::size_t>(x) * row.out_step, row.out_step);
    }
}

// 3x3 with stride 1 along rows, two pixels at a time: they share the interleaved columns.
template <StageKind kKind>
__attribute__((noinline)) void square_pixels(const DepthwiseRow& row) {
    const DepthwisePack& pack = *row.pack;
    const CacheLine* weights = pack.square.data() + 7 * static_cast<std::size_t>(row.block);
    const CacheLine* bias = pack.bias.data() + 4 * static_cast<std::size_t>(row.block);
    for (int x = 0; x < row.pixels; x += 2) {
        const std::uint8_t* a = row.activations + 32 * static_cast<std::size_t>(x);
        __m256i acc[4] = {load(bias[0].bytes), load(bias[1].bytes), load(bias[0].bytes), load(bias[1].bytes)};
        const auto add = [&](int pixel, __m256i low, __m256i high, int pair) {
            acc[2 * pixel] = _mm256_add_epi32(acc[2 * pixel], _mm256_madd_epi16(low, load(weights[pair].bytes)));
            acc[2 * pixel + 1] =
                _mm256_add_epi32(acc[2 * pixel + 1], _mm256_madd_epi16(high, load(weights[pair].bytes + 32)));
        };
#pragma GCC unroll 4
        for (int column = 0; column < 4; ++column) {
            const __m256i r0 = load(a + pack.rows[0] + 32 * column), r1 = load(a + pack.rows[1] + 32 * column);
            const __m256i low = _mm256_unpacklo_epi16(r0, r1), high = _mm256_unpackhi_epi16(r0, r1);
            if (column < 3) add(0, low, high, column);
            if (column > 0) add(1, low, high, column - 1);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const __m256i left = load(a + pack.rows[2] + 64 * half), right = load(a + pack.rows[2] + 64 * half + 32);
            const __m256i low = _mm256_unpacklo_epi16(left, right), high = _mm256_unpackhi_epi16(left, right);
            add(0, low, high, 3 + half);
            add(1, low, high, 5 + half);
        }
        finish<kKind, Order::kUnpacked>(pack.stage, row.block, acc, row.pixels - x < 2 ? 1 : 2,
                                        row.out + static_cast<std::size_t>(x) * row.out_step, row.out_step);
    }
}

template <StageKind kKind>
void any_depthwise(const DepthwiseRow& row) {
    row.pack->square.empty() ? depthwise_pixels<kKind>(row) : square_pixels<kKind>(row);
}

void conv_row(const ConvRow& row) {
    const RoundDown mode;
    switch (row.pack->stage.kind) {
        case StageKind::kPwl:
            return conv_pixels<StageKind::kPwl>(row);
        case StageKind::kTable:
            return conv_pixels<StageKind::kTable>(row);
        case StageKind::kInteger:
            return conv_pixels<StageKind::kInteger>(row);
    }
}

void depthwise_row(const DepthwiseRow& row) {
    const RoundDown mode;
    switch (row.pack->stage.kind) {
        case StageKind::kPwl:
            return any_depthwise<StageKind::kPwl>(row);
        case StageKind::kTable:
            return any_depthwise<StageKind::kTable>(row);
        case StageKind::kInteger:
            return any_depthwise<StageKind::kInteger>(row);
    }
}

}  // namespace

const ConvKernel& conv_kernel() {
    static const ConvKernel kernel = [] {
        ConvKernel k;
        k.lane_bytes = 2;
        k.group = 2;
        k.tile = 6;
        k.offset128 = false;
        k.lanes = &half_lanes();
        k.macs_per_cycle = 20;
        k.stage_cycles = 1;
        k.expand = expand;
        k.row = conv_row;
        return k;
    }();
    return kernel;
}

const DepthwiseKernel& depthwise_kernel() {
    static const DepthwiseKernel kernel = [] {
        DepthwiseKernel k;
        k.lane_bytes = 2;
        k.group = 2;
        k.vectors = 2;
        k.offset128 = false;
        k.spare_columns = 2;
        k.lanes = &unpacked_lanes();
        k.cycles = 1.5;
        k.expand = expand;
        k.row = depthwise_row;
        return k;
    }();
    return kernel;
}

}  // namespace npuforge::sim::avx2
NPUFORGE_END_TARGET
