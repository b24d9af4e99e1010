// One bilinear sample of a map: RoiAlign and DeformConv of the CPU partition.
#pragma once

#include <cmath>
#include <cstdint>

namespace npuforge::cpu {

/// Four pixels and their weights; -1: no pixel there.
struct Bilinear {
    std::int64_t at[4] = {-1, -1, -1, -1};
    float weight[4] = {0.0f, 0.0f, 0.0f, 0.0f};

    /// Pixel `i` times its weight.
    float part(int i, const float* map) const { return at[i] < 0 ? 0.0f : weight[i] * map[at[i]]; }
    float of(const float* map) const { return part(0, map) + part(1, map) + part(2, map) + part(3, map); }
};

/// Neighbours beyond the border count as 0 (deformable convolution).
inline Bilinear sample_zero_border(float y, float x, std::int64_t height, std::int64_t width) {
    Bilinear out;
    if (!(y > -1.0f && y < static_cast<float>(height) && x > -1.0f && x < static_cast<float>(width))) return out;
    const auto top = static_cast<std::int64_t>(std::floor(y)), left = static_cast<std::int64_t>(std::floor(x));
    const float fy = y - std::floor(y), fx = x - std::floor(x);
    for (int i = 0; i < 4; ++i) {
        const std::int64_t row = top + i / 2, column = left + i % 2;
        if (row < 0 || row >= height || column < 0 || column >= width) continue;
        out.at[i] = row * width + column;
        out.weight[i] = (i / 2 ? fy : 1.0f - fy) * (i % 2 ? fx : 1.0f - fx);
    }
    return out;
}

/// Up to one pixel beyond the border counts as the border (RoiAlign).
inline Bilinear sample_clamped(float y, float x, std::int64_t height, std::int64_t width) {
    Bilinear out;
    if (!(y >= -1.0f && y <= static_cast<float>(height) && x >= -1.0f && x <= static_cast<float>(width))) return out;
    const auto axis = [](float position, std::int64_t size, std::int64_t& low, std::int64_t& high) {
        position = position > 0.0f ? position : 0.0f;
        low = static_cast<std::int64_t>(position);
        if (low >= size - 1) {
            low = high = size - 1;
            return 0.0f;
        }
        high = low + 1;
        return position - static_cast<float>(low);
    };
    std::int64_t top = 0, bottom = 0, left = 0, right = 0;
    const float fy = axis(y, height, top, bottom), fx = axis(x, width, left, right);
    out.at[0] = top * width + left;
    out.at[1] = top * width + right;
    out.at[2] = bottom * width + left;
    out.at[3] = bottom * width + right;
    out.weight[0] = (1.0f - fy) * (1.0f - fx);
    out.weight[1] = (1.0f - fy) * fx;
    out.weight[2] = fy * (1.0f - fx);
    out.weight[3] = fy * fx;
    return out;
}

}  // namespace npuforge::cpu
