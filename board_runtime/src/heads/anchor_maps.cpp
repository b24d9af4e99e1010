// Heads with anchors, one raw map per stride: YOLOv2's region layer, darknet's YOLO layer (v3, v4), YOLOv5 and v7 (also
// YOLOv4's "new coords"), and Yolo-FastestV2, whose anchors share their classes. Formulas stand at each kind.
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

/// The common walk: maps, anchors, cells. A kind gives the box and the class scores of one anchor in one cell.
class AnchorMaps : public Decoder {
  public:
    AnchorMaps(std::string kind, const Options& options, InputSize size)
        : kind_(std::move(kind)), options_(options), size_(size) {
        if (options_.strides.empty() || options_.anchors.size() != options_.strides.size())
            refuse(kind_, "needs one list of anchors per stride, found " + std::to_string(options_.anchors.size()) +
                              " lists for " + std::to_string(options_.strides.size()) + " strides");
        for (const auto& anchors : options_.anchors)
            if (anchors.empty()) refuse(kind_, "a map has no anchors");
        if (!options_.scale_x_y.empty() && options_.scale_x_y.size() != options_.strides.size())
            refuse(kind_, "needs one scale_x_y per stride, found " + std::to_string(options_.scale_x_y.size()));
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const auto maps = find_tensors(tensors, options_, kind_, "maps", 0, options_.strides.size());
        for (std::size_t m = 0; m < maps.size(); ++m) {
            const int stride = options_.strides[m];
            decode_map(*maps[m], m, size_.height / stride, size_.width / stride, threshold, out);
        }
    }

  protected:
    virtual void decode_map(const TensorView& map, std::size_t index, int height, int width, float threshold,
                            std::vector<Detection>& out) const = 0;

    float scale_of(std::size_t index, float otherwise) const {
        return options_.scale_x_y.empty() ? otherwise : options_.scale_x_y[index];
    }
    int class_count(const TensorView& map, int per_anchor, std::size_t anchors) const {
        if (per_anchor < 6)
            refuse(kind_, "output " + map.describe() + " does not fit " + std::to_string(anchors) +
                              " anchors of 5 + classes channels");
        return per_anchor - 5;
    }
    bool activated() const { return options_.activation.value_or(Activation::kSigmoid) == Activation::kNone; }

    std::string kind_;
    Options options_;
    InputSize size_;
};

/// centre = (s(p) * a - (a - 1) / 2 + cell) * stride with a = scale_x_y, score = s(objectness) * s(class); size =
/// exp(p) * anchor (darknet, a = 1), or (2 * s(p))^2 * anchor (yolov5, a = 2). s is the logistic function, or nothing
/// where the graph has applied it.
class YoloMaps : public AnchorMaps {
  public:
    YoloMaps(const std::string& kind, const Options& options, InputSize size, bool exponential)
        : AnchorMaps(kind, options, size), exponential_(exponential) {}

  private:
    void decode_map(const TensorView& map, std::size_t index, int height, int width, float threshold,
                    std::vector<Detection>& out) const override {
        const auto& anchors = options_.anchors[index];
        const MapView view(map, kind_, static_cast<int>(anchors.size()), height, width);
        const int classes = class_count(map, view.channels(), anchors.size());
        const std::size_t step = view.step();
        const float a = scale_of(index, exponential_ ? 1.0F : 2.0F);
        const float shift = (a - 1.0F) * 0.5F;
        const float s = static_cast<float>(options_.strides[index]);
        const bool raw = !activated();
        const auto logistic = [raw](float v) { return raw ? sigmoid(v) : v; };
        for (std::size_t n = 0; n < anchors.size(); ++n)
            for (int y = 0; y < height; ++y)
                for (int x = 0; x < width; ++x) {
                    const float* p = view.at(static_cast<int>(n), y, x);
                    const float objectness = logistic(p[4 * step]);
                    if (!(objectness > threshold)) continue;  // class scores are at most 1
                    const auto extent = [&](std::size_t k, float anchor) {
                        if (exponential_) return std::exp(p[k * step]) * anchor;
                        const float twice = 2.0F * logistic(p[k * step]);
                        return twice * twice * anchor;
                    };
                    const auto box = [&] {
                        return from_center((logistic(p[0]) * a - shift + static_cast<float>(x)) * s,
                                           (logistic(p[step]) * a - shift + static_cast<float>(y)) * s,
                                           extent(2, anchors[n][0]), extent(3, anchors[n][1]));
                    };
                    const auto score = [&](int c) {
                        return objectness * logistic(p[static_cast<std::size_t>(5 + c) * step]);
                    };
                    emit_classes(classes, threshold, options_.multi_label, score, box, out);
                }
    }

    bool exponential_;
};

/// YOLOv2's region layer: centre = (s(p) + cell) * stride, size = exp(p) * anchor * stride, score = s(objectness) *
/// softmax(classes).
class Region : public AnchorMaps {
  public:
    Region(const Options& options, InputSize size) : AnchorMaps("yolov2", options, size) {}

  private:
    void decode_map(const TensorView& map, std::size_t index, int height, int width, float threshold,
                    std::vector<Detection>& out) const override {
        const auto& anchors = options_.anchors[index];
        const MapView view(map, kind_, static_cast<int>(anchors.size()), height, width);
        const int classes = class_count(map, view.channels(), anchors.size());
        const std::size_t step = view.step();
        const float s = static_cast<float>(options_.strides[index]);
        std::vector<float> scores(static_cast<std::size_t>(classes));
        for (std::size_t n = 0; n < anchors.size(); ++n)
            for (int y = 0; y < height; ++y)
                for (int x = 0; x < width; ++x) {
                    const float* p = view.at(static_cast<int>(n), y, x);
                    const float objectness = sigmoid(p[4 * step]);
                    if (!(objectness > threshold)) continue;
                    softmax(p + 5 * step, step, scores);
                    const auto box = [&] {
                        return from_center(
                            (sigmoid(p[0]) + static_cast<float>(x)) * s, (sigmoid(p[step]) + static_cast<float>(y)) * s,
                            std::exp(p[2 * step]) * anchors[n][0] * s, std::exp(p[3 * step]) * anchors[n][1] * s);
                    };
                    const auto score = [&](int c) { return objectness * scores[static_cast<std::size_t>(c)]; };
                    emit_classes(classes, threshold, options_.multi_label, score, box, out);
                }
    }
};

/// Yolo-FastestV2: a map has 4 values per anchor, then one objectness per anchor, then classes that all anchors share,
/// all activated in the graph; centre = (2 * p - 1/2 + cell) * stride, size = (2 * p)^2 * anchor, score = objectness *
/// class.
class SharedClasses : public AnchorMaps {
  public:
    SharedClasses(const Options& options, InputSize size) : AnchorMaps("yolo_fastest_v2", options, size) {}

  private:
    void decode_map(const TensorView& map, std::size_t index, int height, int width, float threshold,
                    std::vector<Detection>& out) const override {
        const auto& anchors = options_.anchors[index];
        const std::size_t count = anchors.size();
        const MapView view(map, kind_, 1, height, width);
        const int classes = view.channels() - 5 * static_cast<int>(count);
        if (classes < 1)
            refuse(kind_, "output " + map.describe() + " does not fit " + std::to_string(count) +
                              " anchors of 5 channels and classes");
        const std::size_t step = view.step();
        const float s = static_cast<float>(options_.strides[index]);
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x) {
                const float* cell = view.at(0, y, x);
                for (std::size_t n = 0; n < count; ++n) {
                    const float objectness = cell[(4 * count + n) * step];
                    if (!(objectness > threshold)) continue;
                    const float* p = cell + 4 * n * step;
                    const auto box = [&] {
                        const float w = 2.0F * p[2 * step];
                        const float h = 2.0F * p[3 * step];
                        return from_center((2.0F * p[0] - 0.5F + static_cast<float>(x)) * s,
                                           (2.0F * p[step] - 0.5F + static_cast<float>(y)) * s, w * w * anchors[n][0],
                                           h * h * anchors[n][1]);
                    };
                    const auto score = [&](int c) {
                        return objectness * cell[(5 * count + static_cast<std::size_t>(c)) * step];
                    };
                    emit_classes(classes, threshold, options_.multi_label, score, box, out);
                }
            }
    }
};

}  // namespace

std::unique_ptr<Decoder> make_darknet(const Options& options, InputSize size) {
    return std::make_unique<YoloMaps>("darknet", options, size, true);
}
std::unique_ptr<Decoder> make_yolov5(const Options& options, InputSize size) {
    return std::make_unique<YoloMaps>("yolov5", options, size, false);
}
std::unique_ptr<Decoder> make_yolov2(const Options& options, InputSize size) {
    return std::make_unique<Region>(options, size);
}
std::unique_ptr<Decoder> make_yolo_fastest_v2(const Options& options, InputSize size) {
    return std::make_unique<SharedClasses>(options, size);
}

}  // namespace npuforge::heads
