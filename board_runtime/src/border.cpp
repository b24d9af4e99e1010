// Quantisation and dequantisation between float32 tensors and lanes of the pool. Computed in double, so that every bit
// is that of the reference arithmetic in Python.
#include "npuforge/border.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace npuforge {
namespace {

// Calls f(channel, element offset, pool byte) for every element, rows outermost.
template <typename F>
void for_each_row(const NpuTensor& t, const MapStrides& strides, F f) {
    for (int y = 0; y < t.h; ++y)
        for (int c = 0; c < t.c; ++c)
            f(static_cast<std::size_t>(c), c * strides.c + y * strides.y,
              t.offset + static_cast<std::size_t>(y) * t.row_stride +
                  static_cast<std::size_t>(t.lanes[static_cast<std::size_t>(c)]));
}

void clear_pad_lanes(const NpuTensor& t, std::uint8_t* pool) {
    if (t.lane_count == static_cast<std::size_t>(t.c)) return;
    for (int y = 0; y < t.h; ++y)
        for (int x = 0; x < t.w; ++x)
            std::memset(pool + t.offset + static_cast<std::size_t>(y) * t.row_stride +
                            static_cast<std::size_t>(x) * t.pixel_stride,
                        0, t.lane_count);
}

template <typename T, typename F>
void store(const NpuTensor& t, const T* from, const MapStrides& strides, std::uint8_t* pool, F f) {
    clear_pad_lanes(t, pool);
    for_each_row(t, strides, [&](std::size_t c, std::int64_t element, std::size_t byte) {
        const T* source = from + element;
        std::uint8_t* target = pool + byte;
        for (int x = 0; x < t.w; ++x, source += strides.x, target += t.pixel_stride) *target = f(c, *source);
    });
}

template <typename T, typename F>
void load(const NpuTensor& t, const std::uint8_t* pool, T* to, const MapStrides& strides, F f) {
    for_each_row(t, strides, [&](std::size_t c, std::int64_t element, std::size_t byte) {
        const std::uint8_t* source = pool + byte;
        T* target = to + element;
        for (int x = 0; x < t.w; ++x, source += t.pixel_stride, target += strides.x)
            *target = f(c, static_cast<std::int8_t>(*source));
    });
}

// floor(x + 1/2) without the rounding error of the addition.
double round_half_up(double x) {
    const double low = std::floor(x);
    return x - low >= 0.5 ? low + 1.0 : low;
}

float real_value(const NpuTensor& t, std::size_t c, std::int8_t q) {
    const double centred = t.is_image() ? q - (t.image_mean[c] - 128.0) : static_cast<double>(q - t.zero_point[c]);
    return static_cast<float>(centred * t.scale[c]);
}

// How one channel becomes int8.
struct Quantiser {
    bool image;
    double scale, mean, zero;

    std::int8_t operator()(float value, bool* nan) const {
        const double scaled = static_cast<double>(value) / scale;
        const double q = image ? round_half_up(scaled + mean - 128.0) : round_half_up(scaled) + zero;
        *nan = *nan || q != q;
        const double clamped = q < -128.0 ? -128.0 : (q > 127.0 ? 127.0 : q);
        return static_cast<std::int8_t>(clamped == clamped ? clamped : 0.0);
    }

    // The same for `count` values; true if one is NaN.
    bool run(const float* from, int count, std::int8_t* to) const {
        bool nan = false;
        int i = 0;
#if defined(__x86_64__)
        static const bool wide = __builtin_cpu_supports("avx2") != 0;
        if (wide) i = run_avx2(from, count, to, &nan);
#endif
        for (; i < count; ++i) to[i] = (*this)(from[i], &nan);
        return nan;
    }

#if defined(__x86_64__)
    // Four at a time; returns how many.
    __attribute__((target("avx2"))) int run_avx2(const float* from, int count, std::int8_t* to, bool* nan) const {
        const __m256d divisor = _mm256_set1_pd(scale), added = _mm256_set1_pd(mean), offset = _mm256_set1_pd(128.0);
        const __m256d half = _mm256_set1_pd(0.5), one = _mm256_set1_pd(1.0),
                      zero_point = _mm256_set1_pd(image ? 0.0 : zero);
        const bool divide = scale != 1.0;
        __m256d unordered = _mm256_setzero_pd();
        int i = 0;
        for (; i + 4 <= count; i += 4) {
            __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(from + i));
            if (divide) x = _mm256_div_pd(x, divisor);
            if (image) x = _mm256_sub_pd(_mm256_add_pd(x, added), offset);
            unordered = _mm256_or_pd(unordered, _mm256_cmp_pd(x, x, _CMP_UNORD_Q));
            // Beyond +-512 the result is an end of the int8 range, whatever the zero point. NaN becomes -512.
            x = _mm256_min_pd(_mm256_max_pd(x, _mm256_set1_pd(-512.0)), _mm256_set1_pd(512.0));
            const __m256d low = _mm256_floor_pd(x);
            const __m256d up = _mm256_and_pd(_mm256_cmp_pd(_mm256_sub_pd(x, low), half, _CMP_GE_OQ), one);
            __m256d q = _mm256_add_pd(_mm256_add_pd(low, up), zero_point);
            q = _mm256_min_pd(_mm256_max_pd(q, _mm256_set1_pd(-128.0)), _mm256_set1_pd(127.0));
            const __m128i words = _mm_packs_epi32(_mm256_cvttpd_epi32(q), _mm_setzero_si128());
            const std::int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(words, words));
            std::memcpy(to + i, &bytes, sizeof bytes);
        }
        *nan = _mm256_movemask_pd(unordered) != 0;
        return i;
    }
#endif
};

}  // namespace

void quantise(const NpuTensor& t, const std::string& name, const float* from, const MapStrides& strides,
              std::uint8_t* pool) {
    if (t.bf16) return store_bf16(t, from, strides, pool);
    constexpr int kPiece = 256;
    float values[kPiece];
    std::int8_t bytes[kPiece];
    bool nan = false;
    clear_pad_lanes(t, pool);
    for_each_row(t, strides, [&](std::size_t c, std::int64_t element, std::size_t byte) {
        const Quantiser channel{t.is_image(), t.scale[c], t.is_image() ? t.image_mean[c] : 0.0,
                                t.is_image() ? 0.0 : static_cast<double>(t.zero_point[c])};
        std::uint8_t* target = pool + byte;
        for (int x = 0; x < t.w; x += kPiece) {
            const int count = std::min(kPiece, t.w - x);
            const float* source = from + element + x * strides.x;
            if (strides.x != 1) {
                for (int i = 0; i < count; ++i) values[i] = source[i * strides.x];
                source = values;
            }
            nan = channel.run(source, count, bytes) || nan;
            for (int i = 0; i < count; ++i, target += t.pixel_stride) *target = static_cast<std::uint8_t>(bytes[i]);
        }
    });
    if (nan) throw ArgumentError("tensor '" + name + "': contains NaN, which has no int8 value");
}

void store_pixels(const NpuTensor& t, const std::uint8_t* from, const MapStrides& strides, std::uint8_t* pool) {
    const bool tight = t.pixel_stride == static_cast<std::size_t>(t.c) && t.lane_count == t.pixel_stride &&
                       strides.c == 1 && strides.x == t.c;
    bool identity = tight;
    for (int c = 0; identity && c < t.c; ++c) identity = t.lanes[static_cast<std::size_t>(c)] == c;
    if (!identity)
        return store(t, from, strides, pool,
                     [](std::size_t, std::uint8_t pixel) { return static_cast<std::uint8_t>(pixel ^ 0x80); });
    const std::size_t row = static_cast<std::size_t>(t.w) * static_cast<std::size_t>(t.c);
    for (int y = 0; y < t.h; ++y) {
        const std::uint8_t* source = from + y * strides.y;
        std::uint8_t* target = pool + t.offset + static_cast<std::size_t>(y) * t.row_stride;
        for (std::size_t i = 0; i < row; ++i)
            target[i] = static_cast<std::uint8_t>(source[i] ^ 0x80);  // pixel - 128 modulo 256
    }
}

void store_bytes(const NpuTensor& t, const std::int8_t* from, const MapStrides& strides, std::uint8_t* pool) {
    store(t, from, strides, pool, [](std::size_t, std::int8_t q) { return static_cast<std::uint8_t>(q); });
}

void dequantise(const NpuTensor& t, const std::uint8_t* pool, float* to, const MapStrides& strides) {
    if (t.bf16) return load_bf16(t, pool, to, strides);
    load(t, pool, to, strides, [&](std::size_t c, std::int8_t q) { return real_value(t, c, q); });
}

void dequantise_bytes(const NpuTensor& t, const std::int8_t* from, const MapStrides& strides, float* to) {
    for (int c = 0; c < t.c; ++c)
        for (int y = 0; y < t.h; ++y)
            for (int x = 0; x < t.w; ++x)
                *to++ = real_value(t, static_cast<std::size_t>(c), from[c * strides.c + y * strides.y + x * strides.x]);
}

NpuTensor contiguous(const NpuTensor& t) {
    NpuTensor result = t;
    const auto channels = static_cast<std::size_t>(t.c);
    result.offset = 0;
    result.pixel_stride = channels * (t.bf16 ? 2 : 1);
    result.row_stride = result.pixel_stride * static_cast<std::size_t>(t.w);
    result.lane_count = channels;
    result.lanes.resize(channels);
    std::iota(result.lanes.begin(), result.lanes.end(), 0);
    return result;
}

void load_bytes(const NpuTensor& t, const std::uint8_t* pool, std::int8_t* to, const MapStrides& strides) {
    load(t, pool, to, strides, [](std::size_t, std::int8_t q) { return q; });
}

}  // namespace npuforge
