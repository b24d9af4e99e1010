// Conversion at the border of NPU partitions: float32 or uint8 in, int8 or bf16 lanes in the pool; and back (DESIGN
// section 4).
#pragma once

#include <cstdint>
#include <string>

#include "npuforge/cpu.hpp"
#include "npuforge/program.hpp"

namespace npuforge {

/// Element strides of a one-image feature map for channel, row, column.
struct MapStrides {
    std::int64_t c, y, x;
    static MapStrides nchw(const NpuTensor& t) { return {static_cast<std::int64_t>(t.h) * t.w, t.w, 1}; }
    static MapStrides nhwc(const NpuTensor& t) { return {1, static_cast<std::int64_t>(t.w) * t.c, t.c}; }
};

/// q = clamp(round_half_up(x/s + z)); images: round_half_up(x/s + mean) - 128. Pad lanes become 0. NaN: ArgumentError
/// naming the tensor.
void quantise(const NpuTensor& t, const std::string& name, const float* from, const MapStrides& strides,
              std::uint8_t* pool);
/// Raw pixels of an image tensor: q = pixel - 128.
void store_pixels(const NpuTensor& t, const std::uint8_t* from, const MapStrides& strides, std::uint8_t* pool);
/// Bytes that are already quantised.
void store_bytes(const NpuTensor& t, const std::int8_t* from, const MapStrides& strides, std::uint8_t* pool);
/// real = (q - z) * s; images: (q + 128 - mean) * s.
void dequantise(const NpuTensor& t, const std::uint8_t* pool, float* to, const MapStrides& strides);
/// The same from bytes outside the pool, to N, C, H, W.
void dequantise_bytes(const NpuTensor& t, const std::int8_t* from, const MapStrides& strides, float* to);
/// Tensors in bf16; `quantise` and `dequantise` come here.
void store_bf16(const NpuTensor& t, const float* from, const MapStrides& strides, std::uint8_t* pool);
void load_bf16(const NpuTensor& t, const std::uint8_t* pool, float* to, const MapStrides& strides);
void load_bytes(const NpuTensor& t, const std::uint8_t* pool, std::int8_t* to, const MapStrides& strides);
/// bf16 bit patterns outside the pool to float32, and back: to nearest, ties to even.
void widen_bf16(const std::uint16_t* from, float* to, std::size_t count);
void narrow_bf16(const float* from, std::uint16_t* to, std::size_t count);
/// The tensor as it lies outside the pool: one channel behind the other, N, H, W, C, from byte 0.
NpuTensor contiguous(const NpuTensor& t);

}  // namespace npuforge
