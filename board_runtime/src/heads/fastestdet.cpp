// FastestDet: one map [1, 5 + classes, h, w]: objectness (sigmoid), four raw box values, classes (softmax);
// centre = (tanh(p) + cell) / map size, size = sigmoid(p), both relative to the input; score = objectness^0.6 *
// class^0.4.
#include "decoders.hpp"

namespace npuforge::heads {
namespace {

class FastestDet : public Decoder {
  public:
    FastestDet(const Options& options, InputSize size) : options_(options), size_(size) {
        if (options_.objectness_power <= 0.0F || options_.class_power <= 0.0F)
            refuse("fastestdet", "objectness_power and class_power must be positive");
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& map = *find_tensors(tensors, options_, "fastestdet", "predictions", 0, 1)[0];
        expect_shape(map, "fastestdet", {1, -1, -1, -1});
        const int classes = static_cast<int>(map.shape[1]) - 5;
        if (classes < 1)
            refuse("fastestdet", "output " + map.describe() + " has no class, expected at least 6 channels");
        const int height = static_cast<int>(map.shape[2]);
        const int width = static_cast<int>(map.shape[3]);
        const std::size_t plane = static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
        const float input_width = static_cast<float>(size_.width);
        const float input_height = static_cast<float>(size_.height);
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x) {
                const float* p = map.data + y * width + x;
                const float objectness = std::pow(p[0], options_.objectness_power);
                if (!(objectness > threshold)) continue;  // class scores are at most 1
                const auto box = [&] {
                    return from_center(
                        (std::tanh(p[plane]) + static_cast<float>(x)) / static_cast<float>(width) * input_width,
                        (std::tanh(p[2 * plane]) + static_cast<float>(y)) / static_cast<float>(height) * input_height,
                        sigmoid(p[3 * plane]) * input_width, sigmoid(p[4 * plane]) * input_height);
                };
                const auto score = [&](int c) {
                    return objectness * std::pow(p[static_cast<std::size_t>(5 + c) * plane], options_.class_power);
                };
                emit_classes(classes, threshold, options_.multi_label, score, box, out);
            }
    }

  private:
    Options options_;
    InputSize size_;
};

}  // namespace

std::unique_ptr<Decoder> make_fastestdet(const Options& options, InputSize size) {
    return std::make_unique<FastestDet>(options, size);
}

}  // namespace npuforge::heads
