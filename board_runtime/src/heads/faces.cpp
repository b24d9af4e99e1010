// Face detectors with keypoints, one class each: YuNet and SCRFD (5), BlazeFace (6). Those with priors: priors.cpp.
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

/// SCRFD: per stride scores [cells * anchors, 1] (sigmoid), distances [.., 4] and keypoints [.., 10] in strides from
/// the anchor, the cell's top left corner: left = x - p * stride, right = x + p * stride, keypoint = x + p * stride.
class Scrfd : public Decoder {
  public:
    Scrfd(const Options& options, InputSize size) : options_(options), size_(size) {
        default_strides(options_, {8, 16, 32});
        if (options_.anchors_per_cell.empty())  // the authors' detectors of five strides have one anchor a cell
            options_.anchors_per_cell.assign(options_.strides.size(), options_.strides.size() == 5 ? 1 : 2);
        if (options_.anchors_per_cell.size() != options_.strides.size())
            refuse("scrfd", "needs one anchors_per_cell per stride, found " +
                                std::to_string(options_.anchors_per_cell.size()) + " for " +
                                std::to_string(options_.strides.size()) + " strides");
        for (int count : options_.anchors_per_cell)
            if (count <= 0) refuse("scrfd", "anchors_per_cell must be positive");
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const std::size_t n = options_.strides.size();
        const auto scores = find_tensors(tensors, options_, "scrfd", "scores", 0, n);
        const auto boxes = find_tensors(tensors, options_, "scrfd", "distances", n, n);
        // the detectors without keypoints have six outputs
        const bool with_points = options_.outputs.count("keypoints") != 0 || tensors.size() >= 3 * n;
        const auto points = with_points ? find_tensors(tensors, options_, "scrfd", "keypoints", 2 * n, n) : boxes;
        for (std::size_t i = 0; i < n; ++i) {
            const float s = static_cast<float>(options_.strides[i]);
            const std::int64_t width = (size_.width + options_.strides[i] - 1) / options_.strides[i];
            const std::int64_t height = (size_.height + options_.strides[i] - 1) / options_.strides[i];
            const std::int64_t per_cell = options_.anchors_per_cell[i];
            const std::int64_t count = width * height * per_cell;
            if (row_count(*scores[i], "scrfd", 1) != count || row_count(*boxes[i], "scrfd", 4) != count ||
                (with_points && row_count(*points[i], "scrfd", 10) != count))
                refuse("scrfd", "outputs " + scores[i]->describe() + ", " + boxes[i]->describe() + ", " +
                                    points[i]->describe() + " do not fit stride " +
                                    std::to_string(options_.strides[i]) + ", expected " + std::to_string(count) +
                                    " rows each");
            for (std::int64_t a = 0; a < count; ++a) {
                const float score = scores[i]->data[a];
                if (!(score > threshold)) continue;
                const std::int64_t cell = a / per_cell;
                const float x = static_cast<float>(cell % width) * s;
                const float y = static_cast<float>(cell / width) * s;
                const float* d = boxes[i]->data + a * 4;
                const Box box{x - d[0] * s, y - d[1] * s, x + d[2] * s, y + d[3] * s};
                if (!is_finite(box)) continue;
                Detection detection = make_detection(box, score, 0);
                if (with_points) {
                    const float* k = points[i]->data + a * 10;
                    detection.keypoint_count = 5;
                    for (std::size_t j = 0; j < 10; ++j) detection.keypoints[j] = (j % 2 == 0 ? x : y) + k[j] * s;
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
std::unique_ptr<Decoder> make_scrfd(const Options& options, InputSize size) {
    return std::make_unique<Scrfd>(options, size);
}
std::unique_ptr<Decoder> make_blazeface(const Options& options, InputSize size) {
    return std::make_unique<BlazeFace>(options, size);
}

}  // namespace npuforge::heads
