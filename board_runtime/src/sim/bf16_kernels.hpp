// Owns the bf16 kernels of the SIMD levels, written over 16 float lanes `V` of one level (avx2_bf16.cpp,
// avx512_bf16.cpp). Include inside the level's target region, behind the definition of V.
#pragma once

#include <immintrin.h>

#include "bf16_step.hpp"

namespace npuforge::sim::NPUFORGE_LEVEL {

/// Denormal operands and results are zeros while it lives. Code that relies on it must be in another, never inlined
/// function.
class FlushDenormals {
  public:
    FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }  // FTZ, DAZ
    ~FlushDenormals() { _mm_setcsr(saved_); }
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

  private:
    unsigned saved_;
};

/// The curve at 16 arguments; NaN stays NaN, since d is then NaN.
inline V curve(const Bf16StagePack& stage, V x) {
    const V zero = V::set(0.0f), eight = V::set(8.0f);
    const auto negative = x < zero;
    const Ints step = Ints::smaller(Ints::truncate(V::smaller_or_second(x.magnitude(), eight) * V::set(16.0f)), 127);
    const V end = step.to_float() * V::set(0.0625f);
    const V d = x - choose(negative, zero - end, end);
    const Ints index = Ints::choose(negative, Ints::set(127) - step, Ints::set(128) + step);
    const float* table = stage.table.data();
    V y = gather(table, index) + d * (gather(table + 256, index) + d * gather(table + 512, index));
    y = choose(x < zero - eight, stage.op.tail_low_is_input ? x : V::set(stage.tail_low), y);
    return choose(eight <= x, stage.op.tail_high_is_input ? x : V::set(stage.tail_high), y);
}

template <bool kTable>
inline void finish(const Bf16StagePack& stage, int block, V acc, std::uint8_t* out) {
    const Bf16StageBlock& p = stage.blocks[static_cast<std::size_t>(block)];
    V v = acc + V::load(p.bias);
    v = kTable ? curve(stage, v) : choose(v < V::set(0.0f), v * V::load(p.slope), v);
    const V low = V::load(p.low), high = V::load(p.high);
    v = choose(v < low, low, v);
    v = choose(high < v, high, v);
    choose(low == high, low, v).store_bf16(out);
}

/// x * weight, +0 where the weight is zero.
inline V weigh(V x, V weight) {
    const V zero = V::set(0.0f);
    return choose(weight == zero, zero, x * weight);
}

/// Balanced tree over lanes [kFirst, kFirst + kCount) of kPixels pixels, `step` floats apart. kZeros: some weights are
/// 0.
template <int kFirst, int kCount, int kPixels, bool kZeros>
inline void tree(const float* x, std::size_t step, const float* w, V (&out)[kPixels]) {
    if constexpr (kCount == 1) {
        const V weight = V::load(w + 16 * kFirst);
        for (int p = 0; p < kPixels; ++p) {
            const V lane = V::set(x[static_cast<std::size_t>(p) * step + kFirst]);
            out[p] = kZeros ? weigh(lane, weight) : lane * weight;
        }
    } else {
        V right[kPixels];
        tree<kFirst, kCount / 2, kPixels, kZeros>(x, step, w, out);
        tree<kFirst + kCount / 2, kCount / 2, kPixels, kZeros>(x, step, w, right);
        for (int p = 0; p < kPixels; ++p) out[p] = out[p] + right[p];
    }
}

/// kPixels output pixels from column x on; taps of columns outside add +0 (only where kPixels is 1).
template <bool kTable, int kPixels>
inline void conv_pixels(const Bf16ConvRow& row, int x) {
    const Bf16ConvOp& op = *row.op;
    const Window& w = op.window;
    const int lanes = 16 * op.blocks_in;
    const float* weights = row.pack->weights.data();
    const std::uint8_t* zeros = row.pack->zeros.data();
    for (int block = 0; block < op.blocks_out; ++block) {
        V acc[kPixels];
        for (V& a : acc) a = V::set(0.0f);
        for (int ky = 0; ky < w.kernel_h; ++ky) {
            for (int kx = 0; kx < w.kernel_w; ++kx) {
                const long ix = window_source(x, w.stride_w, w.pad_left, kx, w.dilation_w);
                const bool inside = row.inside[ky] && (kPixels > 1 || (ix >= 0 && ix < op.in_w));
                if (!inside) {  // -0 becomes +0 with the first of the block's zeros
                    for (V& a : acc) a = a + V::set(0.0f);
                    weights += 16 * lanes;
                    zeros += op.blocks_in;
                    continue;
                }
                const float* in = row.rows + (static_cast<std::size_t>(ky) * op.in_w + static_cast<std::size_t>(ix)) *
                                                 static_cast<std::size_t>(lanes);
                for (int b = 0; b < op.blocks_in; ++b, in += 16, weights += 256) {
                    V sum[kPixels];
                    if (*zeros++ != 0)
                        tree<0, 16, kPixels, true>(in, static_cast<std::size_t>(w.stride_w) * lanes, weights, sum);
                    else
                        tree<0, 16, kPixels, false>(in, static_cast<std::size_t>(w.stride_w) * lanes, weights, sum);
                    for (int p = 0; p < kPixels; ++p) acc[p] = acc[p] + sum[p];
                }
            }
        }
        for (int p = 0; p < kPixels; ++p)
            finish<kTable>(row.pack->stage, block, acc[p],
                           row.out + static_cast<std::size_t>(x + p) * op.out.pixel_stride + kBf16Block * block);
    }
}

template <bool kTable>
__attribute__((noinline)) void conv_row(const Bf16ConvRow& row) {
    const Bf16ConvOp& op = *row.op;
    const Window& w = op.window;
    const auto interior = [&](int x) {
        const long first = window_source(x, w.stride_w, w.pad_left, 0, w.dilation_w);
        const long last = window_source(x, w.stride_w, w.pad_left, w.kernel_w - 1, w.dilation_w);
        return first >= 0 && last < op.in_w;
    };
    for (int x = 0; x < op.out_w;) {
        if (kTile > 1 && x + kTile <= op.out_w && interior(x) && interior(x + kTile - 1)) {
            conv_pixels<kTable, kTile>(row, x);
            x += kTile;
        } else {
            conv_pixels<kTable, 1>(row, x++);
        }
    }
}

template <bool kTable>
__attribute__((noinline)) void depthwise_row(const Bf16ConvRow& row) {
    const Bf16ConvOp& op = *row.op;
    const Window& w = op.window;
    const float* weights = row.pack->weights.data();
    for (int x = 0; x < op.out_w; ++x) {
        for (int block = 0; block < op.blocks_out; ++block) {
            V acc = V::set(0.0f);
            const float* weight = weights + 16 * block;
            for (int ky = 0; ky < w.kernel_h; ++ky) {
                for (int kx = 0; kx < w.kernel_w; ++kx, weight += 16 * op.blocks_out) {
                    const long ix = window_source(x, w.stride_w, w.pad_left, kx, w.dilation_w);
                    const bool inside = row.inside[ky] && ix >= 0 && ix < op.in_w;
                    const std::uint8_t* in =
                        inside ? row.lines[ky] + static_cast<std::size_t>(ix) * op.in.pixel_stride + kBf16Block * block
                               : nullptr;
                    acc = acc + (inside ? weigh(V::load_bf16(in), V::load(weight)) : V::set(0.0f));
                }
            }
            finish<kTable>(row.pack->stage, block, acc,
                           row.out + static_cast<std::size_t>(x) * op.out.pixel_stride + kBf16Block * block);
        }
    }
}

/// 16 bf16 values with denormals flushed and NaN canonical, as integers in their order (negative ones mirrored).
inline __m256i sort_keys(__m256i bits) {
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    const __m256i tiny = _mm256_cmpgt_epi16(_mm256_set1_epi16(0x0080), magnitude);
    const __m256i nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7f80));
    bits = _mm256_andnot_si256(_mm256_and_si256(tiny, _mm256_set1_epi16(0x7fff)), bits);
    bits = _mm256_blendv_epi8(bits, _mm256_set1_epi16(0x7fc0), nan);
    return _mm256_xor_si256(bits, _mm256_and_si256(_mm256_srai_epi16(bits, 15), _mm256_set1_epi16(0x7fff)));
}

__attribute__((noinline)) inline void pool_row(const Bf16PoolOp& op, const float* factors, const Memory& memory,
                                               int y) {
    const Window& w = op.window;
    const TapRange rows = valid_taps(y, w.stride_h, w.pad_top, w.kernel_h, w.dilation_h, op.in_h);
    for (int x = 0; x < op.out_w; ++x) {
        const TapRange cols = valid_taps(x, w.stride_w, w.pad_left, w.kernel_w, w.dilation_w, op.in_w);
        for (int block = 0; block < op.blocks; ++block) {
            V sum = V::set(0.0f);
            __m256i largest = sort_keys(_mm256_set1_epi16(static_cast<short>(0xff80)));
            for (int ky = rows.first; ky < rows.last; ++ky) {
                const long iy = window_source(y, w.stride_h, w.pad_top, ky, w.dilation_h);
                for (int kx = cols.first; kx < cols.last; ++kx) {
                    const long ix = window_source(x, w.stride_w, w.pad_left, kx, w.dilation_w);
                    const std::uint8_t* in = memory.sram + op.in.at(iy, ix) + kBf16Block * block;
                    if (op.average)
                        sum = sum + V::load_bf16(in);
                    else
                        largest = _mm256_max_epi16(largest,
                                                   sort_keys(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in))));
                }
            }
            std::uint8_t* out = memory.sram + op.out.at(y, x) + kBf16Block * block;
            if (op.average) {
                const int entry = op.single ? 0 : rows.count() * cols.count() - 1;
                (sum * V::set(factors[entry])).store_bf16(out);
            } else {
                const __m256i mirror = _mm256_and_si256(_mm256_srai_epi16(largest, 15), _mm256_set1_epi16(0x7fff));
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_xor_si256(largest, mirror));
            }
        }
    }
}

template <bool kTable>
__attribute__((noinline)) void eltwise_row(const Bf16EltwiseOp& op, const Bf16StagePack& stage, const float* factors,
                                           const Memory& memory, int y) {
    for (int x = 0; x < op.out_w; ++x) {
        const std::uint8_t* a = memory.sram + op.a.at(y, x);
        const std::uint8_t* b = memory.sram + op.b.at(y, x);
        std::uint8_t* out = memory.sram + op.out.at(y, x);
        V one = V::set(0.0f);
        if (op.broadcast_b) one = V::broadcast_bf16(b);
        for (int block = 0; block < op.blocks; ++block) {
            const V left = V::load_bf16(a + kBf16Block * block);
            V d = left;
            if (op.kind == isa::EltwiseKind::AFFINE) {
                d = left * V::load(factors + 16 * block);
            } else {
                const V right = op.broadcast_b ? one : V::load_bf16(b + kBf16Block * block);
                d = op.kind == isa::EltwiseKind::MUL   ? left * right
                    : op.kind == isa::EltwiseKind::SUB ? left - right
                                                       : left + right;
            }
            finish<kTable>(stage, block, d, out + kBf16Block * block);
        }
    }
}

/// (1 - weight)*p + weight*q, or p where the weight is 0.
inline V mix(V p, V q, float weight) { return weight == 0.0f ? p : V::set(1.0f - weight) * p + V::set(weight) * q; }

__attribute__((noinline)) inline void resize_row(const Bf16ResizeOp& op, const isa::ResizeBf16Record& row,
                                                 const isa::ResizeBf16Record* cols, const Memory& memory, int y) {
    const auto real = [](std::uint32_t bits) {
        float x;
        __builtin_memcpy(&x, &bits, 4);
        return x;
    };
    for (int x = 0; x < op.out_w; ++x) {
        const isa::ResizeBf16Record& col = cols[x];
        const float weight = real(col.w1);
        const std::uint8_t* in[4] = {memory.sram + op.in.at(row.i0, col.i0), memory.sram + op.in.at(row.i0, col.i1),
                                     memory.sram + op.in.at(row.i1, col.i0), memory.sram + op.in.at(row.i1, col.i1)};
        std::uint8_t* out = memory.sram + op.out.at(y, x);
        for (std::size_t at = 0; at < kBf16Block * static_cast<std::size_t>(op.blocks); at += kBf16Block) {
            const V upper = mix(V::load_bf16(in[0] + at), V::load_bf16(in[1] + at), weight);
            const V lower = mix(V::load_bf16(in[2] + at), V::load_bf16(in[3] + at), weight);
            mix(upper, lower, real(row.w1)).store_bf16(out + at);
        }
    }
}

inline void widen(float* to, const std::uint8_t* from, int lanes) {
    for (int i = 0; i < lanes; i += 16) V::load_bf16(from + 2 * i).store(to + i);
}

inline const Bf16Kernel& bf16_kernel() {
    static const Bf16Kernel kernel = [] {
        Bf16Kernel k;
        k.widen = widen;
        k.conv = [](const Bf16ConvRow& row) {
            const FlushDenormals mode;
            row.pack->stage.table.empty() ? conv_row<false>(row) : conv_row<true>(row);
        };
        k.depthwise = [](const Bf16ConvRow& row) {
            const FlushDenormals mode;
            row.pack->stage.table.empty() ? depthwise_row<false>(row) : depthwise_row<true>(row);
        };
        k.pool = [](const Bf16PoolOp& op, const float* factors, const Memory& memory, int y) {
            const FlushDenormals mode;
            pool_row(op, factors, memory, y);
        };
        k.eltwise = [](const Bf16EltwiseOp& op, const Bf16StagePack& stage, const float* factors, const Memory& memory,
                       int y) {
            const FlushDenormals mode;
            stage.table.empty() ? eltwise_row<false>(op, stage, factors, memory, y)
                                : eltwise_row<true>(op, stage, factors, memory, y);
        };
        k.resize = [](const Bf16ResizeOp& op, const isa::ResizeBf16Record& row, const isa::ResizeBf16Record* cols,
                      const Memory& memory, int y) {
            const FlushDenormals mode;
            resize_row(op, row, cols, memory, y);
        };
        return k;
    }();
    return kernel;
}

}  // namespace npuforge::sim::NPUFORGE_LEVEL
