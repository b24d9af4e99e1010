// GroupNormalization in integers: one group, values and bias with 8 fraction bits, scale with 12; int8 and bf16 maps in
// NHWC-16.
#pragma once

#include "normalise_lanes.hpp"

namespace npuforge {
namespace hls {

/// y[c][p] = scale[c] * (x[c][p] - mean) / sqrt(variance + epsilon) + bias[c], mean and variance over the group's
/// channels and pixels. False, with nothing written, where sizes or `epsilon` are out of range.
/// \tparam MAX_VALUES channels times pixels at most \param epsilon 16 fraction bits
template <int MAX_VALUES>
inline bool group_normalization(const int16_t x[], const int16_t scale[], const int16_t bias[], int32_t channels,
                                int32_t pixels, int32_t epsilon, int16_t y[]) {
    static_assert(MAX_VALUES <= NORMALISE_MAX, "the sums need 64 bits");
    if (channels < 1 || pixels < 1 || channels > MAX_VALUES || pixels > MAX_VALUES / channels) return false;
    if (epsilon < 0 || epsilon > EPSILON_MAX) return false;
    const int32_t count = channels * pixels;
    int64_t sum = 0, squares = 0;
    for (int32_t i = 0; i < count; ++i) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, MAX_VALUES)
        sum += x[i];
        squares += (int32_t)x[i] * x[i];
    }
    Normaliser normaliser;
    normaliser.finish(count, sum, squares, epsilon);
    for (int32_t channel = 0; channel < channels; ++channel) {
        NPU_TRIPCOUNT(1, MAX_VALUES)
        for (int32_t pixel = 0; pixel < pixels; ++pixel) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, MAX_VALUES)
            const int32_t i = channel * pixels + pixel;
            y[i] = scaled_value(normaliser.value(x[i]), scale[channel], bias[channel]);
        }
    }
    return true;
}

/// int8: `images` maps of `pixels` pixels, `groups` equal groups of channels; scale and bias of every channel in
/// `multipliers` and `offsets` (see normalise_int8). False, with nothing written, where a size, `epsilon` or a shift is
/// out of range: a group has 2^15 values at most.
inline bool group_normalization_int8(const int8_t x[], const int32_t in_edges[], const int16_t multipliers[],
                                     const int32_t offsets[], const int32_t out_edges[], int32_t images, int32_t pixels,
                                     int32_t channels, int32_t groups, int32_t epsilon, int8_t y[]) {
    if (groups < 1 || groups > channels || channels % groups != 0) return false;
    const int32_t count = channels / groups;
    if (!normalise_legal(images, pixels, channels, (int64_t)pixels * count)) return false;
    if (epsilon < 0 || epsilon > (1 << EPSILON_BITS_MAX)) return false;
    if (!legal_edges(in_edges, channels) || !legal_edges(out_edges, channels)) return false;
    for (int32_t image = 0; image < images; ++image) {
        NPU_TRIPCOUNT(1, 64)
        const int32_t base = image * pixels * lanes_of(channels);
        for (int32_t group = 0; group < groups; ++group) {
            NPU_TRIPCOUNT(1, 64)
            const NormaliseSet set = {base, pixels, channels, group * count, count, 0, true};
            normalise_int8(x, set, in_edges, multipliers, offsets, out_edges, epsilon, y);
        }
    }
    clear_pad_lanes(y, images * pixels, channels);
    return true;
}

/// bf16: scale and bias are float32 bits of every channel, `epsilon` float32 bits.
inline bool group_normalization_bf16(const uint16_t x[], const uint32_t scale[], const uint32_t bias[], int32_t images,
                                     int32_t pixels, int32_t channels, int32_t groups, int32_t epsilon, uint16_t y[]) {
    if (groups < 1 || groups > channels || channels % groups != 0) return false;
    const int32_t count = channels / groups;
    if (!normalise_legal(images, pixels, channels, (int64_t)pixels * count)) return false;
    if (epsilon < 0 || (uint32_t)epsilon >= INFINITY_BITS) return false;
    for (int32_t image = 0; image < images; ++image) {
        NPU_TRIPCOUNT(1, 64)
        const int32_t base = image * pixels * lanes_of(channels);
        for (int32_t group = 0; group < groups; ++group) {
            NPU_TRIPCOUNT(1, 64)
            const NormaliseSet set = {base, pixels, channels, group * count, count, 0, true};
            normalise_bf16(x, set, scale, bias, (uint32_t)epsilon, y);
        }
    }
    clear_pad_lanes(y, images * pixels, channels);
    return true;
}

}  // namespace hls
}  // namespace npuforge
