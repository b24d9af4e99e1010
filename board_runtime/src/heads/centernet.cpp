// CenterNet: a heat map of classes [1, classes, h, w] (sigmoid in the graph), sizes [1, 2, h, w] and centre offsets
// [1, 2, h, w] in map cells (without them: 1/2). A cell counts where its score is the largest of the 3 x 3 cells around
// it; centre = (cell + offset) * stride, size = p * stride. The peaks take the place of NMS.
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

class CenterNet : public Decoder {
  public:
    CenterNet(const Options& options, InputSize size) : options_(options), size_(size) {
        default_strides(options_, {4});
        if (options_.strides.size() != 1) refuse("centernet", "has one stride, found several");
        if (options_.activation == Activation::kSoftmax) refuse("centernet", "activation is none or sigmoid");
    }
    bool selected() const override { return true; }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& heat = *find_tensors(tensors, options_, "centernet", "heatmap", 0, 1)[0];
        const TensorView& sizes = *find_tensors(tensors, options_, "centernet", "sizes", 1, 1)[0];
        const bool with_offsets = options_.outputs.count("offsets") != 0 || tensors.size() > 2;
        const TensorView& offsets =
            with_offsets ? *find_tensors(tensors, options_, "centernet", "offsets", 2, 1)[0] : sizes;
        const int stride = options_.strides[0];
        const int height = size_.height / stride;
        const int width = size_.width / stride;
        expect_shape(heat, "centernet", {1, -1, height, width});
        expect_shape(sizes, "centernet", {1, 2, height, width});
        expect_shape(offsets, "centernet", {1, 2, height, width});
        const bool raw = options_.activation == Activation::kSigmoid;
        const float floor = raw ? logit_floor(threshold) : threshold;
        const float s = static_cast<float>(stride);
        const int plane = height * width;
        for (int c = 0; c < static_cast<int>(heat.shape[1]); ++c) {
            const float* map = heat.data + static_cast<std::ptrdiff_t>(c) * plane;
            for (int i = 0; i < plane; ++i) {
                if (!(map[i] > floor) || !is_peak(map, i % width, i / width, width, height)) continue;
                const float score = raw ? sigmoid(map[i]) : map[i];
                if (!(score > threshold)) continue;
                const float x = static_cast<float>(i % width) + (with_offsets ? offsets.data[i] : 0.5F);
                const float y = static_cast<float>(i / width) + (with_offsets ? offsets.data[plane + i] : 0.5F);
                const Box box = from_center(x * s, y * s, sizes.data[i] * s, sizes.data[plane + i] * s);
                if (is_finite(box)) out.push_back(make_detection(box, score, c));
            }
        }
    }

  private:
    static bool is_peak(const float* map, int x, int y, int width, int height) {
        const float value = map[y * width + x];
        for (int v = std::max(y - 1, 0); v <= std::min(y + 1, height - 1); ++v)
            for (int u = std::max(x - 1, 0); u <= std::min(x + 1, width - 1); ++u)
                if (map[v * width + u] > value) return false;
        return true;
    }

    Options options_;
    InputSize size_;
};

}  // namespace

std::unique_ptr<Decoder> make_centernet(const Options& options, InputSize size) {
    return std::make_unique<CenterNet>(options, size);
}

}  // namespace npuforge::heads
