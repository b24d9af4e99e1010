// The graph's own YoloDecode operator has decoded already: boxes [1, N, 4] (corners, input pixels), scores [1, N],
// classes [1, N].
#include "decoders.hpp"

namespace npuforge::heads {
namespace {

class YoloDecode : public Decoder {
  public:
    explicit YoloDecode(const Options& options) : options_(options) {}

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& boxes = *find_tensors(tensors, options_, "yolodecode", "boxes", 0, 1)[0];
        const TensorView& scores = *find_tensors(tensors, options_, "yolodecode", "scores", 1, 1)[0];
        const TensorView& classes = *find_tensors(tensors, options_, "yolodecode", "classes", 2, 1)[0];
        expect_shape(boxes, "yolodecode", {1, -1, 4});
        expect_shape(scores, "yolodecode", {1, boxes.shape[1]});
        expect_shape(classes, "yolodecode", {1, boxes.shape[1]});
        for (std::int64_t i = 0; i < boxes.shape[1]; ++i) {
            if (!(scores.data[i] > threshold)) continue;
            const float label = classes.data[i];
            if (!(label >= 0.0F && label < 16777216.0F))
                refuse("yolodecode",
                       "class " + std::to_string(label) + " at index " + std::to_string(i) + " is not a class index");
            const float* b = boxes.data + 4 * i;
            const Box box{b[0], b[1], b[2], b[3]};
            if (is_finite(box))
                out.push_back(make_detection(box, scores.data[i], static_cast<int>(std::lround(label))));
        }
    }

  private:
    Options options_;
};

}  // namespace

std::unique_ptr<Decoder> make_yolodecode(const Options& options, InputSize) {
    return std::make_unique<YoloDecode>(options);
}

}  // namespace npuforge::heads
