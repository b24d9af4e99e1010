// RotatedRoiAlign in integers: bilinear samples averaged per bin, of one region and 16 int8 channels, or of a list of
// regions on the NPU's int8 and bf16.
#pragma once

#include "cordic.hpp"
#include "edges.hpp"

namespace npuforge {
namespace hls {

constexpr int32_t ALIGN_MAP_MAX = 1 << 12;     ///< height and width of the map
constexpr int32_t ALIGN_REGION_MAX = 1 << 20;  ///< 4,096 pixels with 8 fraction bits
constexpr int32_t ALIGN_BINS_MAX = 64;         ///< bins along an axis
constexpr int32_t ALIGN_SAMPLES_MAX = 8;       ///< samples along an axis of a bin

/// Where one sample reads: two rows, two columns, the share of the second of each.
struct AlignSample {
    int32_t top = 0, bottom = 0, left = 0, right = 0, share_y = 0, share_x = 0;
    bool outside = false;
};

/// Pixel centres lie at half-integers; a sample more than a pixel outside the map reads 0, within it is clamped.
/// \tparam BITS fraction bits of places and shares
template <int BITS>
inline AlignSample align_sample(int64_t x, int64_t y, int32_t height, int32_t width) {
    constexpr int64_t ONE = (int64_t)1 << BITS;
    AlignSample sample;
    sample.outside = x < -ONE || x > width * ONE || y < -ONE || y > height * ONE;
    const int64_t most_x = (width - 1) * ONE, most_y = (height - 1) * ONE;
    const int32_t in_x = (int32_t)(x < 0 ? 0 : x > most_x ? most_x : x);
    const int32_t in_y = (int32_t)(y < 0 ? 0 : y > most_y ? most_y : y);
    sample.left = in_x >> BITS;
    sample.top = in_y >> BITS;
    sample.share_x = in_x & (int32_t)(ONE - 1);
    sample.share_y = in_y & (int32_t)(ONE - 1);
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
            const AlignSample s = align_sample<8>(at_x, at_y, height, width);
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

constexpr int REGION_VALUES = 6;  ///< image, centre x, y, width, height, angle
constexpr int REGION_BITS = 16;   ///< fraction bits of a list's pixels
constexpr int32_t REGION_ONE = 1 << REGION_BITS;
constexpr int32_t REGION_MAX = 1 << 30;         ///< 16,384 pixels
constexpr int32_t REGION_IMAGES_MAX = 1 << 10;  ///< images of a map
constexpr int32_t REGION_LANES_MAX = 1 << 12;   ///< lanes of a map
constexpr int32_t REGION_SAMPLES_MAX = 64;      ///< samples along an axis of a bin
constexpr int WEIGHT_BITS = 48;                 ///< fraction bits of a pixel's weight in the mean of a bin
constexpr int MEAN_BITS = 20;                   ///< fraction bits of a mean of int8

/// Sizes of one call. `ratio`: samples along each axis of a bin; 0: the region's pixels in a bin, rounded up.
struct RegionSizes {
    int32_t images, height, width, lanes, count, rows, columns, ratio;
};

/// Samples along an axis of a bin.
inline int64_t region_samples(int32_t extent, int32_t bins, int32_t ratio) {
    if (ratio > 0) return ratio;
    const int64_t bin = (int64_t)bins * REGION_ONE;
    return extent > 0 ? (extent + bin - 1) / bin : 1;
}

/// Whether sizes and every region are in range.
template <int MAX_REGIONS>
inline bool legal_regions(const int32_t regions[], const RegionSizes& s) {
    if (s.images < 1 || s.images > REGION_IMAGES_MAX || s.height < 1 || s.height > ALIGN_MAP_MAX) return false;
    if (s.width < 1 || s.width > ALIGN_MAP_MAX || s.lanes < LANES || s.lanes > REGION_LANES_MAX) return false;
    if (s.lanes % LANES != 0 || s.count < 0 || s.count > MAX_REGIONS) return false;
    if (s.rows < 1 || s.rows > ALIGN_BINS_MAX || s.columns < 1 || s.columns > ALIGN_BINS_MAX) return false;
    if (s.ratio < 0 || s.ratio > REGION_SAMPLES_MAX) return false;
    bool legal = true;
    for (int32_t k = 0; k < s.count; ++k) {
        NPU_TRIPCOUNT(0, MAX_REGIONS)
        const int32_t* region = regions + k * REGION_VALUES;
        legal = legal && region[0] >= 0 && region[0] < s.images && region[5] >= -32768 && region[5] <= 32767;
        for (int i = 1; i < 5; ++i) legal = legal && region[i] >= -REGION_MAX && region[i] <= REGION_MAX;
        legal = legal && region_samples(region[3], s.columns, s.ratio) <= REGION_SAMPLES_MAX &&
                region_samples(region[4], s.rows, s.ratio) <= REGION_SAMPLES_MAX;
    }
    return legal;
}

/// int8: exact sums of weights times values; one rounding to a mean, one to the output's scale.
struct Int8Means {
    typedef int8_t Element;
    typedef int64_t Sum;
    const int8_t* zero_points;
    const int32_t* records;
    bool legal(int32_t lanes) const { return legal_edges(records, lanes); }
    int64_t add(int64_t sum, int8_t value, int64_t weight, int32_t lane) const {
        return sum + weight * ((int32_t)value - zero_points[lane]);  // at most 2^48 * 255 and the weights' rounding
    }
    int8_t leave(int64_t sum, int32_t lane) const {
        return int8_of_fixed(round_shift(sum, WEIGHT_BITS - MEAN_BITS), read_edge(records[lane]));
    }
};

/// bf16: every product rounded to float32, added in order. A weight of 0 gives +0, whatever the value.
struct Bf16Means {
    typedef uint16_t Element;
    typedef uint32_t Sum;
    bool legal(int32_t) const { return true; }
    uint32_t add(uint32_t sum, uint16_t value, int64_t weight, int32_t) const {
        const int exponent = (int)exponent_of_bf16(value);
        if (weight == 0 || exponent == 0) return add_float(sum, 0u);
        if (exponent == 255) return add_float(sum, widen_bf16(value));
        const int64_t mantissa = (value & 0x7f) | 0x80;
        const int64_t product = ((value >> 15) != 0 ? -mantissa : mantissa) * weight;
        return add_float(sum, float_of_fixed(product, WEIGHT_BITS + 134 - exponent));
    }
    uint16_t leave(uint32_t sum, int32_t) const { return round_bf16(sum); }
};

/// Means of 16 channels of one bin. `map` begins at the region's image and the block of channels.
template <class Means>
inline void align_bin(const typename Means::Element map[], const int32_t region[], const RegionSizes& sizes,
                      int16_t sine, int16_t cosine, int32_t row, int32_t column, int32_t block, const Means& means,
                      typename Means::Element y[]) {
    const int32_t samples_x = (int32_t)region_samples(region[3], sizes.columns, sizes.ratio);
    const int32_t samples_y = (int32_t)region_samples(region[4], sizes.rows, sizes.ratio);
    typename Means::Sum sum[LANES];
    NPU_PARTITION(sum, 1)
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        sum[lane] = 0;
    }
    for (int32_t step = 0; step < samples_y * samples_x; ++step) {
        NPU_PIPELINE
        NPU_TRIPCOUNT(1, REGION_SAMPLES_MAX * REGION_SAMPLES_MAX)
        const int32_t down = step / samples_x, along = step - down * samples_x;
        const int64_t v = align_offset(region[4], row * samples_y + down, sizes.rows * samples_y);
        const int64_t u = align_offset(region[3], column * samples_x + along, sizes.columns * samples_x);
        const int64_t at_x = region[1] - REGION_ONE / 2 + round_shift(u * cosine - v * sine, 14);
        const int64_t at_y = region[2] - REGION_ONE / 2 + round_shift(u * sine + v * cosine, 14);
        const AlignSample s = align_sample<REGION_BITS>(at_x, at_y, sizes.height, sizes.width);
        NPU_UNROLL_NEXT
        for (int corner = 0; corner < 4; ++corner) {
            NPU_UNROLL
            const bool lower = corner > 1, right = (corner & 1) != 0;
            const int64_t share = (int64_t)(lower ? s.share_y : REGION_ONE - s.share_y) *
                                  (right ? s.share_x : REGION_ONE - s.share_x) * REGION_ONE;
            const int64_t weight = s.outside ? 0 : divide_rounded(share, (int64_t)samples_y * samples_x);
            const int64_t pixel = (int64_t)(lower ? s.bottom : s.top) * sizes.width + (right ? s.right : s.left);
            NPU_UNROLL_NEXT
            for (int lane = 0; lane < LANES; ++lane) {
                NPU_UNROLL
                sum[lane] = means.add(sum[lane], map[pixel * sizes.lanes + lane], weight, block + lane);
            }
        }
    }
    NPU_UNROLL_NEXT
    for (int lane = 0; lane < LANES; ++lane) {
        NPU_UNROLL
        y[lane] = means.leave(sum[lane], block + lane);
    }
}

/// y [count][rows][columns][lanes] of map [images][height][width][lanes].
template <int MAX_REGIONS, class Means>
inline bool align_regions(const typename Means::Element map[], const int32_t regions[], const RegionSizes& s,
                          const Means& means, typename Means::Element y[]) {
    if (!legal_regions<MAX_REGIONS>(regions, s) || !means.legal(s.lanes)) return false;
    for (int32_t k = 0; k < s.count; ++k) {
        NPU_TRIPCOUNT(0, MAX_REGIONS)
        const int32_t* region = regions + k * REGION_VALUES;
        const typename Means::Element* image = map + (int64_t)region[0] * s.height * s.width * s.lanes;
        int16_t sine = 0, cosine = 0;
        cordic_rotate((int16_t)region[5], sine, cosine);
        for (int32_t bin = 0; bin < s.rows * s.columns; ++bin) {
            NPU_TRIPCOUNT(1, ALIGN_BINS_MAX * ALIGN_BINS_MAX)
            const int32_t row = bin / s.columns, column = bin - row * s.columns;
            const int64_t out = ((int64_t)k * s.rows * s.columns + bin) * s.lanes;
            for (int32_t block = 0; block < s.lanes; block += LANES) {
                NPU_TRIPCOUNT(1, REGION_LANES_MAX / LANES)
                align_bin(image + block, region, s, sine, cosine, row, column, block, means, y + out + block);
            }
        }
    }
    return true;
}

/// int8 in NHWC-16. False, with nothing written, where a size, a region or a record is out of range.
/// \tparam MAX_REGIONS regions at most
/// \param regions [count][6]: image; centre x, y, width, height in the map's pixels with 16 fraction bits; angle, a
/// turn as 2^16 \param zero_points [lanes] of the map \param records [lanes]: a mean with 20 fraction bits to int8; pad
/// lanes have 0
template <int MAX_REGIONS>
inline bool rotated_roi_align_int8(const int8_t map[], int32_t images, int32_t height, int32_t width, int32_t lanes,
                                   const int32_t regions[], int32_t count, int32_t rows, int32_t columns, int32_t ratio,
                                   const int8_t zero_points[], const int32_t records[], int8_t y[]) {
    const RegionSizes sizes{images, height, width, lanes, count, rows, columns, ratio};
    return align_regions<MAX_REGIONS>(map, regions, sizes, Int8Means{zero_points, records}, y);
}

/// The same in bf16. A mean is NaN or infinite where a pixel that it reads with a weight above 0 is.
template <int MAX_REGIONS>
inline bool rotated_roi_align_bf16(const uint16_t map[], int32_t images, int32_t height, int32_t width, int32_t lanes,
                                   const int32_t regions[], int32_t count, int32_t rows, int32_t columns, int32_t ratio,
                                   uint16_t y[]) {
    const RegionSizes sizes{images, height, width, lanes, count, rows, columns, ratio};
    return align_regions<MAX_REGIONS>(map, regions, sizes, Bf16Means{}, y);
}

}  // namespace hls
}  // namespace npuforge
