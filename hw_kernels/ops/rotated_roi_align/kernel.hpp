// RotatedRoiAlign in integers: one region, 16 int8 channels, bilinear samples averaged per bin.
#pragma once

#include "cordic.hpp"
#include "fixed_math.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t ALIGN_MAP_MAX = 1 << 12;     ///< height and width of the map
constexpr int32_t ALIGN_REGION_MAX = 1 << 20;  ///< 4,096 pixels with 8 fraction bits
constexpr int32_t ALIGN_BINS_MAX = 64;         ///< bins along an axis
constexpr int32_t ALIGN_SAMPLES_MAX = 8;       ///< samples along an axis of a bin

/// Where one sample reads: two rows, two columns, the share of the second of each with 8 fraction bits.
struct AlignSample {
    int32_t top = 0, bottom = 0, left = 0, right = 0, share_y = 0, share_x = 0;
    bool outside = false;
};

/// Pixel centres lie at half-integers; a sample more than a pixel outside the map reads 0, within it is clamped.
inline AlignSample align_sample(int64_t x, int64_t y, int32_t height, int32_t width) {
    AlignSample sample;
    sample.outside = x < -256 || x > (int64_t)width * 256 || y < -256 || y > (int64_t)height * 256;
    const int64_t most_x = (int64_t)(width - 1) * 256, most_y = (int64_t)(height - 1) * 256;
    const int32_t in_x = (int32_t)(x < 0 ? 0 : x > most_x ? most_x : x);
    const int32_t in_y = (int32_t)(y < 0 ? 0 : y > most_y ? most_y : y);
    sample.left = in_x >> 8;
    sample.top = in_y >> 8;
    sample.share_x = in_x & 255;
    sample.share_y = in_y & 255;
    sample.right = sample.left + 1 < width ? sample.left + 1 : sample.left;
    sample.bottom = sample.top + 1 < height ? sample.top + 1 : sample.top;
    return sample;
}

/// Distance from the region's centre of sample `index` of `count` along `extent`.
inline int64_t align_offset(int32_t extent, int32_t index, int32_t count) {
    return divide_rounded((int64_t)extent * (2 * index + 1 - count), 2 * (int64_t)count);
}

/// y [rows][columns][16] with 7 fraction bits; region: centre x, y, width, height in pixels of the map with 8 fraction
/// bits; angle: a turn as 2^16. False, with nothing written, where an argument is out of range.
/// \tparam MAX_BINS bins along an axis at most \param map [height][width][16] \param samples along each axis of a bin
template <int MAX_BINS>
inline bool rotated_roi_align(const int8_t map[], int32_t height, int32_t width, const int32_t region[4], int32_t angle,
                              int32_t rows, int32_t columns, int32_t samples, int16_t y[]) {
    static_assert(MAX_BINS <= ALIGN_BINS_MAX, "offsets are multiplied by twice the samples");
    if (height < 1 || height > ALIGN_MAP_MAX || width < 1 || width > ALIGN_MAP_MAX) return false;
    if (rows < 1 || rows > MAX_BINS || columns < 1 || columns > MAX_BINS) return false;
    if (samples < 1 || samples > ALIGN_SAMPLES_MAX) return false;
    for (int i = 0; i < 4; ++i) {
        if (region[i] < -ALIGN_REGION_MAX || region[i] > ALIGN_REGION_MAX) return false;
    }
    int16_t sine = 0, cosine = 0;
    cordic_rotate((int16_t)angle, sine, cosine);
    for (int32_t bin = 0; bin < rows * columns; ++bin) {
        NPU_TRIPCOUNT(1, MAX_BINS * MAX_BINS)
        const int32_t row = bin / columns, column = bin - row * columns;
        int32_t sum[LANES];
        NPU_PARTITION(sum, 1)
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            sum[lane] = 0;
        }
        for (int32_t step = 0; step < samples * samples; ++step) {
            NPU_PIPELINE
            NPU_TRIPCOUNT(1, ALIGN_SAMPLES_MAX * ALIGN_SAMPLES_MAX)
            const int32_t down = step / samples, along = step - down * samples;
            const int64_t v = align_offset(region[3], row * samples + down, rows * samples);
            const int64_t u = align_offset(region[2], column * samples + along, columns * samples);
            const int64_t at_x = region[0] - 128 + ((u * cosine - v * sine + (1 << 13)) >> 14);
            const int64_t at_y = region[1] - 128 + ((u * sine + v * cosine + (1 << 13)) >> 14);
            const AlignSample s = align_sample(at_x, at_y, height, width);
            if (s.outside) continue;
            const int32_t low_x = 256 - s.share_x, low_y = 256 - s.share_y;
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                const int32_t upper = low_x * map[(s.top * width + s.left) * LANES + lane] +
                                      s.share_x * map[(s.top * width + s.right) * LANES + lane];
                const int32_t lower = low_x * map[(s.bottom * width + s.left) * LANES + lane] +
                                      s.share_x * map[(s.bottom * width + s.right) * LANES + lane];
                sum[lane] += low_y * upper + s.share_y * lower;  // at most 64 * 2^23
            }
        }
        NPU_UNROLL_NEXT
        for (int lane = 0; lane < LANES; ++lane) {
            NPU_UNROLL
            y[bin * LANES + lane] = (int16_t)divide_rounded(sum[lane], (int64_t)samples * samples * 512);
        }
    }
    return true;
}

}  // namespace hls
}  // namespace npuforge
