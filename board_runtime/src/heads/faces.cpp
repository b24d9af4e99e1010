// Three face detectors, one class each: YuNet (5 keypoints), UltraFace (none), BlazeFace (6 keypoints).
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

/// YuNet: per stride four maps [1, cells, 1 | 1 | 4 | 10]; score = sqrt(class * objectness), centre = (p + cell) *
/// stride, size = exp(p) * stride, keypoint = (p + cell) * stride.
class YuNet : public Decoder {
  public:
    YuNet(const Options& options, InputSize size) : options_(options), size_(size) {
        if (options_.strides.empty()) options_.strides = {8, 16, 32};
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const std::size_t n = options_.strides.size();
        const auto classes = find_tensors(tensors, options_, "yunet", "cls", 0, n);
        const auto objects = find_tensors(tensors, options_, "yunet", "obj", n, n);
        const auto boxes = find_tensors(tensors, options_, "yunet", "bbox", 2 * n, n);
        const auto points = find_tensors(tensors, options_, "yunet", "kps", 3 * n, n);
        for (std::size_t i = 0; i < n; ++i) {
            const int stride = options_.strides[i];
            const float s = static_cast<float>(stride);
            const int width = size_.width / stride;
            const int height = size_.height / stride;
            const std::int64_t cells = static_cast<std::int64_t>(width) * height;
            expect_shape(*classes[i], "yunet", {1, cells, 1});
            expect_shape(*objects[i], "yunet", {1, cells, 1});
            expect_shape(*boxes[i], "yunet", {1, cells, 4});
            expect_shape(*points[i], "yunet", {1, cells, 10});
            for (std::int64_t cell = 0; cell < cells; ++cell) {
                const float score = std::sqrt(std::clamp(classes[i]->data[cell], 0.0F, 1.0F) *
                                              std::clamp(objects[i]->data[cell], 0.0F, 1.0F));
                if (!(score > threshold)) continue;
                const float x = static_cast<float>(cell % width);
                const float y = static_cast<float>(cell / width);
                const float* b = boxes[i]->data + cell * 4;
                const Box box = from_center((x + b[0]) * s, (y + b[1]) * s, std::exp(b[2]) * s, std::exp(b[3]) * s);
                if (!is_finite(box)) continue;
                Detection detection = make_detection(box, score, 0);
                detection.keypoint_count = 5;
                for (std::size_t k = 0; k < 5; ++k) {
                    detection.keypoints[2 * k] =
                        (points[i]->data[cell * 10 + static_cast<std::int64_t>(2 * k)] + x) * s;
                    detection.keypoints[2 * k + 1] =
                        (points[i]->data[cell * 10 + static_cast<std::int64_t>(2 * k + 1)] + y) * s;
                }
                out.push_back(detection);
            }
        }
    }

  private:
    Options options_;
    InputSize size_;
};

/// UltraFace: scores [1, priors, 2] (background, face), boxes [1, priors, 4]: relative corners (`decoded`), or SSD
/// offsets: centre = prior + p * center_variance * prior size, size = exp(p * size_variance) * prior size. Priors sit
/// at (cell + 1/2) * input / map.
class UltraFace : public Decoder {
  public:
    UltraFace(const Options& options, InputSize size) : options_(options), size_(size) {
        if (options_.strides.empty()) options_.strides = {8, 16, 32, 64};
        if (options_.min_boxes.empty()) options_.min_boxes = {{10, 16, 24}, {32, 48}, {64, 96}, {128, 192, 256}};
        if (options_.min_boxes.size() != options_.strides.size())
            refuse("ultraface", "needs one list of min_boxes per stride, found " +
                                    std::to_string(options_.min_boxes.size()) + " for " +
                                    std::to_string(options_.strides.size()) + " strides");
        const float input_width = static_cast<float>(size.width);
        const float input_height = static_cast<float>(size.height);
        for (std::size_t i = 0; i < options_.strides.size(); ++i) {
            const int stride = options_.strides[i];
            const int width = (size.width + stride - 1) / stride;
            const int height = (size.height + stride - 1) / stride;
            for (int y = 0; y < height; ++y)
                for (int x = 0; x < width; ++x)
                    for (float side : options_.min_boxes[i])  // the authors clamp centre and size to the unit square
                        priors_.push_back({std::min((static_cast<float>(x) + 0.5F) / static_cast<float>(width), 1.0F),
                                           std::min((static_cast<float>(y) + 0.5F) / static_cast<float>(height), 1.0F),
                                           std::min(side / input_width, 1.0F), std::min(side / input_height, 1.0F)});
        }
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& scores = *find_tensors(tensors, options_, "ultraface", "scores", 0, 1)[0];
        const TensorView& boxes = *find_tensors(tensors, options_, "ultraface", "boxes", 1, 1)[0];
        const auto count = static_cast<std::int64_t>(priors_.size());
        expect_shape(scores, "ultraface", {1, count, 2});
        expect_shape(boxes, "ultraface", {1, count, 4});
        const float w = static_cast<float>(size_.width);
        const float h = static_cast<float>(size_.height);
        for (std::size_t i = 0; i < priors_.size(); ++i) {
            const float score = scores.data[2 * i + 1];
            if (!(score > threshold)) continue;
            const float* b = boxes.data + 4 * i;
            const auto& prior = priors_[i];
            Box box{b[0] * w, b[1] * h, b[2] * w, b[3] * h};
            if (!options_.decoded)
                box = from_center((prior[0] + b[0] * options_.center_variance * prior[2]) * w,
                                  (prior[1] + b[1] * options_.center_variance * prior[3]) * h,
                                  std::exp(b[2] * options_.size_variance) * prior[2] * w,
                                  std::exp(b[3] * options_.size_variance) * prior[3] * h);
            if (is_finite(box)) out.push_back(make_detection(box, score, 0));
        }
    }

  private:
    Options options_;
    InputSize size_;
    std::vector<std::array<float, 4>> priors_;  ///< centre and size, relative to the input
};

/// BlazeFace: per stride scores [1, anchors, 1] (raw, clipped to +-100 before the sigmoid) and regressors [1, anchors,
/// 16]: centre offset, size and six keypoint offsets in input pixels from the anchor, the middle of its cell.
class BlazeFace : public Decoder {
  public:
    BlazeFace(const Options& options, InputSize size) : options_(options), size_(size) {
        if (options_.strides.empty()) options_.strides = {8, 16};
        if (options_.anchors_per_cell.empty()) options_.anchors_per_cell = {2, 6};
        if (options_.anchors_per_cell.size() != options_.strides.size())
            refuse("blazeface", "needs one anchors_per_cell per stride, found " +
                                    std::to_string(options_.anchors_per_cell.size()) + " for " +
                                    std::to_string(options_.strides.size()) + " strides");
        for (int count : options_.anchors_per_cell)
            if (count <= 0) refuse("blazeface", "anchors_per_cell must be positive");
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const std::size_t levels = options_.strides.size();
        const auto scores = find_tensors(tensors, options_, "blazeface", "scores", 0, levels);
        const auto regressors = find_tensors(tensors, options_, "blazeface", "regressors", levels, levels);
        for (std::size_t i = 0; i < levels; ++i) {
            const int width = size_.width / options_.strides[i];
            const int height = size_.height / options_.strides[i];
            const int per_cell = options_.anchors_per_cell[i];
            const std::int64_t count = static_cast<std::int64_t>(width) * height * per_cell;
            expect_shape(*scores[i], "blazeface", {1, count, 1});
            expect_shape(*regressors[i], "blazeface", {1, count, 16});
            for (std::int64_t a = 0; a < count; ++a) {
                const float score = sigmoid(std::clamp(scores[i]->data[a], -100.0F, 100.0F));
                if (!(score > threshold)) continue;
                const std::int64_t cell = a / per_cell;
                const float x = (static_cast<float>(cell % width) + 0.5F) / static_cast<float>(width) *
                                static_cast<float>(size_.width);
                const float y = (static_cast<float>(cell / width) + 0.5F) / static_cast<float>(height) *
                                static_cast<float>(size_.height);
                const float* r = regressors[i]->data + a * 16;
                const Box box = from_center(x + r[0], y + r[1], r[2], r[3]);
                if (!is_finite(box)) continue;
                Detection detection = make_detection(box, score, 0);
                detection.keypoint_count = 6;
                for (std::size_t k = 0; k < 6; ++k) {
                    detection.keypoints[2 * k] = x + r[4 + 2 * k];
                    detection.keypoints[2 * k + 1] = y + r[5 + 2 * k];
                }
                out.push_back(detection);
            }
        }
    }

  private:
    Options options_;
    InputSize size_;
};

}  // namespace

std::unique_ptr<Decoder> make_yunet(const Options& options, InputSize size) {
    return std::make_unique<YuNet>(options, size);
}
std::unique_ptr<Decoder> make_ultraface(const Options& options, InputSize size) {
    return std::make_unique<UltraFace>(options, size);
}
std::unique_ptr<Decoder> make_blazeface(const Options& options, InputSize size) {
    return std::make_unique<BlazeFace>(options, size);
}

}  // namespace npuforge::heads
