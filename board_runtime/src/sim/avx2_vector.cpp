// Owns the AVX2 element-wise, pooling and resize kernels.
#include <immintrin.h>

#include "simd_target.hpp"
#include "vector_step.hpp"

NPUFORGE_BEGIN_AVX2
#include "avx2_stage.hpp"

namespace npuforge::sim::avx2 {
namespace {

inline __m128i load16(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline void store16(std::uint8_t* p, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

template <StageKind kKind, bool kProduct>
inline void eltwise_loop(const EltwiseRow& row) {
    const EltwiseSet& set = row.pack->sets[static_cast<std::size_t>(row.block)];
    const __m256i zero_a = load32(set.zero_a), zero_b = load32(set.zero_b);
    const __m256i multipliers[2] = {load32(set.multipliers[0]), load32(set.multipliers[1])};
    const __m256i addend[2] = {load32(set.addend[0]), load32(set.addend[1])};
    for (int x = 0; x < row.pixels; x += 2) {
        const int count = row.pixels - x < 2 ? 1 : 2;
        __m256i acc[4] = {};
        for (int p = 0; p < count; ++p) {
            const auto at = static_cast<std::size_t>(x + p);
            const std::uint8_t* b8 = row.b + at * row.b_step;
            const __m128i b16 = row.broadcast_b ? _mm_set1_epi8(static_cast<char>(*b8)) : load16(b8);
            const __m256i a = _mm256_sub_epi16(_mm256_cvtepi8_epi16(load16(row.a + at * row.a_step)), zero_a);
            const __m256i b = _mm256_sub_epi16(_mm256_cvtepi8_epi16(b16), zero_b);
            if (kProduct) {
                const __m256i zero = _mm256_setzero_si256();
                const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(a, zero), _mm256_unpacklo_epi16(b, zero));
                const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(a, zero), _mm256_unpackhi_epi16(b, zero));
                acc[2 * p] = _mm256_mullo_epi32(low, multipliers[0]);
                acc[2 * p + 1] = _mm256_mullo_epi32(high, multipliers[1]);
            } else {
                acc[2 * p] =
                    _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), multipliers[0]), addend[0]);
                acc[2 * p + 1] =
                    _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), multipliers[1]), addend[1]);
            }
        }
        finish<kKind, Order::kUnpacked>(row.pack->stage, row.block, acc, count,
                                        row.out + static_cast<std::size_t>(x) * row.out_step, row.out_step);
    }
}

template <StageKind kKind>
__attribute__((noinline)) void eltwise_pixels(const EltwiseRow& row) {
    if (row.pack->product)
        eltwise_loop<kKind, true>(row);
    else
        eltwise_loop<kKind, false>(row);
}

void eltwise(const EltwiseRow& row) {
    const RoundDown mode;
    switch (row.pack->stage.kind) {
        case StageKind::kPwl:
            return eltwise_pixels<StageKind::kPwl>(row);
        case StageKind::kTable:
            return eltwise_pixels<StageKind::kTable>(row);
        case StageKind::kInteger:
            return eltwise_pixels<StageKind::kInteger>(row);
    }
}

void max_rows(std::uint8_t* to, const std::uint8_t* from, std::size_t row_step, int count, std::size_t bytes) {
    std::size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
        __m256i m = load32(from + i);
        for (int k = 1; k < count; ++k)
            m = _mm256_max_epi8(m, load32(from + i + static_cast<std::size_t>(k) * row_step));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), m);
    }
    if (i == bytes) return;
    __m128i m = load16(from + i);
    for (int k = 1; k < count; ++k) m = _mm_max_epi8(m, load16(from + i + static_cast<std::size_t>(k) * row_step));
    store16(to + i, m);
}

void max_columns(std::uint8_t* out, std::size_t out_step, const std::uint8_t* from, const std::uint32_t* offsets,
                 int count, int pixels) {
    for (int x = 0; x < pixels; x += 2) {
        const std::uint8_t* a = from + 16 * static_cast<std::size_t>(x);
        __m256i m = load32(a + offsets[0]);
        for (int k = 1; k < count; ++k) m = _mm256_max_epi8(m, load32(a + offsets[k]));
        store_pixels(out + static_cast<std::size_t>(x) * out_step, out_step, pixels - x < 2 ? 1 : 2, m);
    }
}

__attribute__((noinline)) void average_pixel(const AveragePixel& pixel) {
    const __m256i count = _mm256_set1_epi32(pixel.rows * pixel.cols);
    for (int half = 0; half < 2 * pixel.blocks; ++half) {
        const std::size_t lane = 8 * static_cast<std::size_t>(half);
        __m256i sum = _mm256_setzero_si256();
        for (int r = 0; r < pixel.rows; ++r) {
            const std::uint8_t* in = pixel.in + static_cast<std::size_t>(r) * pixel.row_step + lane;
            for (int c = 0; c < pixel.cols; ++c, in += pixel.col_step)
                sum =
                    _mm256_add_epi32(sum, _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in))));
        }
        sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(count, load32(pixel.pack->zero.data() + lane)));
        const __m256i y = scale(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(pixel.multipliers + lane),
                                _mm256_loadu_ps(pixel.pack->addend.data() + lane));
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(pixel.out + lane), _mm_packs_epi16(words, words));
    }
}

void average(const AveragePixel& pixel) {
    const RoundDown mode;
    average_pixel(pixel);
}

void resize(const ResizeRow& row) {
    const __m256i rows = _mm256_set1_epi32(static_cast<std::int32_t>(static_cast<std::uint32_t>(row.weight) << 16 |
                                                                     static_cast<std::uint32_t>(256 - row.weight)));
    const __m256i rounding = _mm256_set1_epi32(1 << 15);
    for (int x = 0; x < row.pixels; ++x) {
        const isa::ResizeRecord& column = row.columns[x];
        const __m256i w1 = _mm256_set1_epi16(static_cast<short>(column.w1));
        const __m256i w0 = _mm256_set1_epi16(static_cast<short>(256 - column.w1));
        const std::size_t at0 = static_cast<std::size_t>(column.i0) * row.in_step;
        const std::size_t at1 = static_cast<std::size_t>(column.i1) * row.in_step;
        for (int block = 0; block < row.blocks; ++block) {
            const std::size_t lane = 16 * static_cast<std::size_t>(block);
            const auto blend = [&](const std::uint8_t* in) {  // |w0*q0 + w1*q1| <= 256*128: 16 bits, -2^15 included
                return _mm256_add_epi16(_mm256_mullo_epi16(_mm256_cvtepi8_epi16(load16(in + at0 + lane)), w0),
                                        _mm256_mullo_epi16(_mm256_cvtepi8_epi16(load16(in + at1 + lane)), w1));
            };
            const __m256i above = blend(row.above), below = blend(row.below);
            const auto sum = [&](__m256i pairs) {
                return _mm256_srai_epi32(_mm256_add_epi32(_mm256_madd_epi16(pairs, rows), rounding), 16);
            };
            const __m256i words =
                _mm256_packs_epi32(sum(_mm256_unpacklo_epi16(above, below)), sum(_mm256_unpackhi_epi16(above, below)));
            store16(row.out + static_cast<std::size_t>(x) * row.out_step + lane,
                    _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
        }
    }
}

}  // namespace

const VectorKernel& vector_kernel() {
    static const VectorKernel kernel = [] {
        VectorKernel k;
        k.eltwise_cycles = 1.2;
        k.eltwise = eltwise;
        k.max_rows = max_rows;
        k.max_columns = max_columns;
        k.average = average;
        k.resize = resize;
        return k;
    }();
    return kernel;
}

}  // namespace npuforge::sim::avx2
NPUFORGE_END_TARGET
