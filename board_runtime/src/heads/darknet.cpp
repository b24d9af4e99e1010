// darknet's YOLO layer (v3 and v4): raw maps [1, anchors * (5 + classes), h, w];
// centre = (sigmoid(p) * a - (a - 1) / 2 + cell) * stride with a = scale_x_y, size = exp(p) * anchor, score =
// sigmoid(objectness) * sigmoid(class).
#include "decoders.hpp"

namespace npuforge::heads {
namespace {

class Darknet : public Decoder {
  public:
    Darknet(const Options& options, InputSize size) : options_(options), size_(size) {
        if (options_.strides.empty() || options_.anchors.size() != options_.strides.size())
            refuse("darknet", "needs one list of anchors per stride, found " + std::to_string(options_.anchors.size()) +
                                  " lists for " + std::to_string(options_.strides.size()) + " strides");
        for (const auto& anchors : options_.anchors)
            if (anchors.empty()) refuse("darknet", "a map has no anchors");
        if (options_.scale_x_y.empty()) options_.scale_x_y.assign(options_.strides.size(), 1.0F);
        if (options_.scale_x_y.size() != options_.strides.size())
            refuse("darknet", "needs one scale_x_y per stride, found " + std::to_string(options_.scale_x_y.size()));
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const auto maps = find_tensors(tensors, options_, "darknet", "maps", 0, options_.strides.size());
        for (std::size_t m = 0; m < maps.size(); ++m) decode_map(*maps[m], m, threshold, out);
    }

  private:
    void decode_map(const TensorView& map, std::size_t index, float threshold, std::vector<Detection>& out) const {
        const int stride = options_.strides[index];
        const auto& anchors = options_.anchors[index];
        const int height = size_.height / stride;
        const int width = size_.width / stride;
        expect_shape(map, "darknet", {1, -1, height, width});
        const std::int64_t channels = map.shape[1];
        const auto count = static_cast<std::int64_t>(anchors.size());
        if (channels % count != 0 || channels / count < 6)
            refuse("darknet", "output " + map.describe() + " does not fit " + std::to_string(count) +
                                  " anchors of 5 + classes channels");
        const int classes = static_cast<int>(channels / count) - 5;
        const std::size_t plane = static_cast<std::size_t>(height) * static_cast<std::size_t>(width);
        const float a = options_.scale_x_y[index];
        const float shift = (a - 1.0F) * 0.5F;
        const float s = static_cast<float>(stride);
        for (std::size_t n = 0; n < anchors.size(); ++n)
            for (int y = 0; y < height; ++y)
                for (int x = 0; x < width; ++x) {
                    const float* p = map.data + n * static_cast<std::size_t>(classes + 5) * plane +
                                     static_cast<std::size_t>(y * width + x);
                    const float objectness = sigmoid(p[4 * plane]);
                    if (!(objectness > threshold)) continue;
                    const auto box = [&] {
                        return from_center((sigmoid(p[0]) * a - shift + static_cast<float>(x)) * s,
                                           (sigmoid(p[plane]) * a - shift + static_cast<float>(y)) * s,
                                           std::exp(p[2 * plane]) * anchors[n][0],
                                           std::exp(p[3 * plane]) * anchors[n][1]);
                    };
                    const auto score = [&](int c) {
                        return objectness * sigmoid(p[static_cast<std::size_t>(5 + c) * plane]);
                    };
                    emit_classes(classes, threshold, options_.multi_label, score, box, out);
                }
    }

    Options options_;
    InputSize size_;
};

}  // namespace

std::unique_ptr<Decoder> make_darknet(const Options& options, InputSize size) {
    return std::make_unique<Darknet>(options, size);
}

}  // namespace npuforge::heads
