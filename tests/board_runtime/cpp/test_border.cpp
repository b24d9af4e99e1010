// quantise() against its own definition in extended precision: ties, neighbours of ties, values far outside, both kinds
// of tensor and input layout.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "npuforge/border.hpp"

namespace {

// floor(x/s + 1/2) + z, images floor(x/s + mean - 128 + 1/2), clipped. Division and mean in double as DESIGN has them,
// rounding in long double.
std::int8_t expected(float value, double scale, double mean, int zero, bool image) {
    const double scaled = static_cast<double>(value) / scale;
    const double x = image ? scaled + mean - 128.0 : scaled;
    const long double rounded = std::floor(static_cast<long double>(x) + 0.5L) + (image ? 0 : zero);
    return static_cast<std::int8_t>(std::fmin(127.0L, std::fmax(-128.0L, rounded)));
}

int check(bool image, bool nhwc) {
    std::mt19937 random(image * 2 + nhwc);
    npuforge::NpuTensor t;
    t.h = 5, t.w = 523, t.c = 3;  // wider than one piece, not a multiple of four
    t.pixel_stride = 16, t.lane_count = 16;
    t.row_stride = 16 * 523, t.offset = 64;
    t.lanes = {4, 0, 9};
    t.scale = {1.0, 0.0371, 1.0 / 255.0};
    t.zero_point = {0, -128, 77};
    if (image) t.image_mean = {0.0, 103.53, 127.5};
    const auto strides = nhwc ? npuforge::MapStrides::nhwc(t) : npuforge::MapStrides::nchw(t);
    std::vector<float> values(static_cast<std::size_t>(t.h * t.w * t.c));
    const float special[] = {0.5F,
                             -0.5F,
                             0.49999997F,
                             -0.49999997F,
                             1.5F,
                             126.5F,
                             127.5F,
                             -128.5F,
                             -129.0F,
                             1e30F,
                             -1e30F,
                             0.0F,
                             -0.0F,
                             1e-40F,
                             -1e-40F,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity()};
    std::uniform_real_distribution<float> uniform(-300, 300);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float u = uniform(random);
        values[i] = i % 3 == 0   ? special[random() % (sizeof special / sizeof *special)]
                    : i % 3 == 1 ? std::nextafter(std::floor(u) + 0.5F, u)
                                 : u;
    }
    std::vector<std::uint8_t> pool(64 + static_cast<std::size_t>(t.h) * t.row_stride, 0x55);
    npuforge::quantise(t, "x", values.data(), strides, pool.data());
    int wrong = 0;
    for (int y = 0; y < t.h; ++y)
        for (int x = 0; x < t.w; ++x)
            for (int lane = 0; lane < 16; ++lane) {
                std::int8_t want = 0;
                for (int c = 0; c < 3; ++c)
                    if (t.lanes[static_cast<std::size_t>(c)] == lane)
                        want = expected(values[static_cast<std::size_t>(c * strides.c + y * strides.y + x * strides.x)],
                                        t.scale[static_cast<std::size_t>(c)],
                                        image ? t.image_mean[static_cast<std::size_t>(c)] : 0,
                                        t.zero_point[static_cast<std::size_t>(c)], image);
                const auto got = static_cast<std::int8_t>(
                    pool[t.offset + static_cast<std::size_t>(y) * t.row_stride + 16 * x + lane]);
                if (got != want && ++wrong < 5)
                    std::printf("(%d, %d, lane %d): %d, expected %d\n", y, x, lane, got, want);
            }
    // NaN at any place of a row is refused, the last odd one included.
    for (int x : {0, 1, 2, 3, 255, 256, 522}) {
        std::vector<float> copy = values;
        copy[static_cast<std::size_t>(x * strides.x)] = std::numeric_limits<float>::quiet_NaN();
        try {
            npuforge::quantise(t, "x", copy.data(), strides, pool.data());
            std::printf("NaN in column %d was accepted\n", x);
            ++wrong;
        } catch (const npuforge::ArgumentError&) {
        }
    }
    return wrong;
}

}  // namespace

int main() {
    int wrong = 0;
    for (bool image : {false, true})
        for (bool nhwc : {false, true}) wrong += check(image, nhwc);
    return wrong == 0 ? 0 : 1;
}
