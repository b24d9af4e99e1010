// Quantisation and dequantisation between float32 tensors and lanes of the pool. Computed in double, so that every bit
// is that of the reference arithmetic in Python.
#include "npuforge/border.hpp"

#include <cmath>
#include <cstring>

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

}  // namespace

void quantise(const NpuTensor& t, const std::string& name, const float* from, const MapStrides& strides,
              std::uint8_t* pool) {
    bool nan = false;
    store(t, from, strides, pool, [&](std::size_t c, float value) {
        const double scaled = static_cast<double>(value) / t.scale[c];
        const double q =
            t.is_image() ? round_half_up(scaled + t.image_mean[c] - 128.0) : round_half_up(scaled) + t.zero_point[c];
        nan = nan || q != q;
        const double clamped = q < -128.0 ? -128.0 : (q > 127.0 ? 127.0 : q);
        return static_cast<std::uint8_t>(static_cast<std::int8_t>(clamped == clamped ? clamped : 0.0));
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
    load(t, pool, to, strides, [&](std::size_t c, std::int8_t q) { return real_value(t, c, q); });
}

void dequantise_bytes(const NpuTensor& t, const std::int8_t* from, const MapStrides& strides, float* to) {
    for (int c = 0; c < t.c; ++c)
        for (int y = 0; y < t.h; ++y)
            for (int x = 0; x < t.w; ++x)
                *to++ = real_value(t, static_cast<std::size_t>(c), from[c * strides.c + y * strides.y + x * strides.x]);
}

void load_bytes(const NpuTensor& t, const std::uint8_t* pool, std::int8_t* to, const MapStrides& strides) {
    load(t, pool, to, strides, [](std::size_t, std::int8_t q) { return q; });
}

}  // namespace npuforge
