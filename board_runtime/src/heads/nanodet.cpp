// NanoDet (generalised focal loss head): per stride a class map [1, cells, classes] (sigmoid) and a distance map [1,
// cells, 4 * bins]; distance = sum(bin * softmax(p)) * stride to left, top, right, bottom of the cell's centre, (cell +
// 1/2) * stride.
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

class NanoDet : public Decoder {
  public:
    NanoDet(const Options& options, InputSize size) : options_(options), size_(size) {
        if (options_.strides.empty()) options_.strides = {8, 16, 32};
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const std::size_t levels = options_.strides.size();
        const auto classes = find_tensors(tensors, options_, "nanodet", "classes", 0, levels);
        const auto distances = find_tensors(tensors, options_, "nanodet", "distances", levels, levels);
        for (std::size_t i = 0; i < levels; ++i)
            decode_level(*classes[i], *distances[i], options_.strides[i], threshold, out);
    }

  private:
    static float expected_distance(const float* p, int bins) {
        const float top = *std::max_element(p, p + bins);
        float sum = 0.0F;
        float weighted = 0.0F;
        for (int b = 0; b < bins; ++b) {
            const float e = std::exp(p[b] - top);
            sum += e;
            weighted += e * static_cast<float>(b);
        }
        return weighted / sum;
    }

    void decode_level(const TensorView& scores, const TensorView& distances, int stride, float threshold,
                      std::vector<Detection>& out) const {
        const int height = (size_.height + stride - 1) / stride;
        const int width = (size_.width + stride - 1) / stride;
        const std::int64_t cells = static_cast<std::int64_t>(height) * width;
        expect_shape(scores, "nanodet", {1, cells, -1});
        expect_shape(distances, "nanodet", {1, cells, -1});
        if (distances.shape[2] % 4 != 0 || distances.shape[2] < 8)
            refuse("nanodet", "output " + distances.describe() + " is not four distributions of at least two bins");
        const int classes = static_cast<int>(scores.shape[2]);
        const int bins = static_cast<int>(distances.shape[2] / 4);
        const float s = static_cast<float>(stride);
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x) {
                const std::size_t cell = static_cast<std::size_t>(y * width + x);
                const float* p = scores.data + cell * static_cast<std::size_t>(classes);
                const float* d = distances.data + cell * static_cast<std::size_t>(4 * bins);
                const auto box = [&] {
                    const float cx = (static_cast<float>(x) + 0.5F) * s;
                    const float cy = (static_cast<float>(y) + 0.5F) * s;
                    return Box{cx - expected_distance(d, bins) * s, cy - expected_distance(d + bins, bins) * s,
                               cx + expected_distance(d + 2 * bins, bins) * s,
                               cy + expected_distance(d + 3 * bins, bins) * s};
                };
                emit_classes(classes, threshold, options_.multi_label, [&](int c) { return p[c]; }, box, out);
            }
    }

    Options options_;
    InputSize size_;
};

}  // namespace

std::unique_ptr<Decoder> make_nanodet(const Options& options, InputSize size) {
    return std::make_unique<NanoDet>(options, size);
}

}  // namespace npuforge::heads
