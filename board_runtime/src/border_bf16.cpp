// Conversion at the border of NPU partitions that compute in bf16: float32 to bf16 lanes of the pool and back.
#include <cstdint>
#include <cstring>

#include "npuforge/border.hpp"

namespace npuforge {
namespace {

constexpr std::size_t kLaneBytes = 2;

// Nearest, ties to even; denormals become zeros of their sign, NaN 0x7fc0. Integer arithmetic: no control register
// matters.
std::uint16_t to_bf16(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    if ((bits & 0x7f800000u) == 0) return static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float from_bf16(std::uint16_t value) {
    std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

std::size_t pixel_address(const NpuTensor& t, int y, int x) {
    return t.offset + static_cast<std::size_t>(y) * t.row_stride + static_cast<std::size_t>(x) * t.pixel_stride;
}

}  // namespace

void store_bf16(const NpuTensor& t, const float* from, const MapStrides& strides, std::uint8_t* pool) {
    for (int y = 0; y < t.h; ++y) {
        for (int x = 0; x < t.w; ++x) {
            std::uint8_t* pixel = pool + pixel_address(t, y, x);
            if (t.lane_count != static_cast<std::size_t>(t.c)) std::memset(pixel, 0, kLaneBytes * t.lane_count);
            const float* source = from + y * strides.y + x * strides.x;
            for (int c = 0; c < t.c; ++c) {
                const std::uint16_t bits = to_bf16(source[c * strides.c]);
                std::memcpy(pixel + kLaneBytes * static_cast<std::size_t>(t.lanes[static_cast<std::size_t>(c)]), &bits,
                            sizeof bits);
            }
        }
    }
}

void widen_bf16(const std::uint16_t* from, float* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = from_bf16(from[i]);
}

void narrow_bf16(const float* from, std::uint16_t* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}

void load_bf16(const NpuTensor& t, const std::uint8_t* pool, float* to, const MapStrides& strides) {
    for (int y = 0; y < t.h; ++y) {
        for (int x = 0; x < t.w; ++x) {
            const std::uint8_t* pixel = pool + pixel_address(t, y, x);
            float* target = to + y * strides.y + x * strides.x;
            for (int c = 0; c < t.c; ++c) {
                std::uint16_t bits;
                std::memcpy(&bits, pixel + kLaneBytes * static_cast<std::size_t>(t.lanes[static_cast<std::size_t>(c)]),
                            sizeof bits);
                target[c * strides.c] = from_bf16(bits);
            }
        }
    }
}

}  // namespace npuforge
