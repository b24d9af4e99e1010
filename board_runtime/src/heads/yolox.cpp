// YOLOX: one tensor [1, cells, 5 + classes]; centre = (p + cell) * stride, size = exp(p) * stride, objectness and
// classes already sigmoid.
#include "decoders.hpp"

namespace npuforge::heads {
namespace {

class Yolox : public Decoder {
  public:
    Yolox(const Options& options, InputSize size) : options_(options), size_(size) {
        if (options_.strides.empty()) options_.strides = {8, 16, 32};
        for (int stride : options_.strides)
            cells_ += static_cast<std::int64_t>(size.width / stride) * static_cast<std::int64_t>(size.height / stride);
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& tensor = *find_tensors(tensors, options_, "yolox", "predictions", 0, 1)[0];
        expect_shape(tensor, "yolox", {1, cells_, -1});
        const int row = static_cast<int>(tensor.shape[2]);
        if (row < 6)
            refuse("yolox", "output " + tensor.describe() + " has no class, expected at least 6 values per cell");
        const float* p = tensor.data;
        for (int stride : options_.strides) {
            const float s = static_cast<float>(stride);
            for (int y = 0; y < size_.height / stride; ++y)
                for (int x = 0; x < size_.width / stride; ++x, p += row) {
                    if (!(p[4] > threshold)) continue;  // class scores are at most 1
                    const auto box = [&] {
                        return from_center((p[0] + static_cast<float>(x)) * s, (p[1] + static_cast<float>(y)) * s,
                                           std::exp(p[2]) * s, std::exp(p[3]) * s);
                    };
                    emit_classes(
                        row - 5, threshold, options_.multi_label, [&](int c) { return p[4] * p[5 + c]; }, box, out);
                }
        }
    }

  private:
    Options options_;
    InputSize size_;
    std::int64_t cells_ = 0;
};

}  // namespace

std::unique_ptr<Decoder> make_yolox(const Options& options, InputSize size) {
    return std::make_unique<Yolox>(options, size);
}

}  // namespace npuforge::heads
