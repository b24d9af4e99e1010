// Shared by the decoders: finding and checking tensors, emitting candidates, and one factory per kind. Private to
// src/heads.
#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include "npuforge/device.hpp"
#include "npuforge/heads.hpp"

namespace npuforge::heads {

constexpr float kPi = 3.14159265358979323846F;

inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

/// Tensors of one role: by the names in options.outputs, or by position (`first`, `count`) where the role is not named.
std::vector<const TensorView*> find_tensors(const std::vector<TensorView>& tensors, const Options& options,
                                            const std::string& kind, const std::string& role, std::size_t first,
                                            std::size_t count);

/// Throws ArgumentError unless `tensor` has this shape; -1 accepts any extent.
void expect_shape(const TensorView& tensor, const std::string& kind, const std::vector<std::int64_t>& shape);

/// Throws ArgumentError `<kind> head: <what>`.
[[noreturn]] void refuse(const std::string& kind, const std::string& what);

struct Box {
    float x1, y1, x2, y2;
};

inline Box from_center(float x, float y, float width, float height) {
    return {x - width * 0.5F, y - height * 0.5F, x + width * 0.5F, y + height * 0.5F};
}

inline bool is_finite(const Box& box) {
    return std::isfinite(box.x1) && std::isfinite(box.y1) && std::isfinite(box.x2) && std::isfinite(box.y2);
}

inline Detection make_detection(const Box& box, float score, int label) {
    Detection detection;
    detection.x1 = box.x1;
    detection.y1 = box.y1;
    detection.x2 = box.x2;
    detection.y2 = box.y2;
    detection.score = score;
    detection.label = label;
    return detection;
}

/// Calls score(c) for each class; emits every class above the threshold (multi_label) or the best one. box() is called
/// only when needed.
template <typename Score, typename MakeBox>
void emit_classes(int classes, float threshold, bool multi_label, Score score, MakeBox make_box,
                  std::vector<Detection>& out) {
    bool have_box = false;
    Box box{};
    float best = threshold;
    int best_class = -1;
    for (int c = 0; c < classes; ++c) {
        const float s = score(c);
        if (!(s > (multi_label ? threshold : best))) continue;  // NaN is never above
        if (!multi_label) {
            best = s;
            best_class = c;
            continue;
        }
        if (!have_box) {
            box = make_box();
            have_box = true;
            if (!is_finite(box)) return;
        }
        out.push_back(make_detection(box, s, c));
    }
    if (best_class >= 0) {
        box = make_box();
        if (is_finite(box)) out.push_back(make_detection(box, best, best_class));
    }
}

struct InputSize {
    int width, height;
};

/// A box turned by `angle` radians (clockwise in the image) about its centre: corners as keypoints, clockwise from the
/// unturned box's top left; x1 .. y2 enclose them.
Detection make_oriented(float x, float y, float width, float height, float angle, float score, int label);

/// The number of rows of a tensor [.., rows, columns]; all other extents must be 1. Refuses anything else.
std::int64_t row_count(const TensorView& tensor, const std::string& kind, std::int64_t columns);

/// Fills `strides` with the kind's own where none are given.
inline void default_strides(Options& options, std::vector<int> strides) {
    if (options.strides.empty()) options.strides = std::move(strides);
}

/// What a score below which `sigmoid` cannot pass the threshold looks like before the sigmoid (with some slack).
inline float logit_floor(float threshold) {
    if (!(threshold > 0.0F)) return -std::numeric_limits<float>::infinity();
    if (!(threshold < 1.0F)) return std::numeric_limits<float>::infinity();
    return std::log(threshold / (1.0F - threshold)) - 1e-3F;
}

/// softmax of out.size() values, `step` apart.
void softmax(const float* p, std::size_t step, std::vector<float>& out);

/// sum(bin * softmax(p)) over `bins` values, `step` apart; one bin: the value itself.
float expected_distance(const float* p, int bins, std::size_t step);

/// One map of a head, whatever its layout: value(anchor, y, x, channel).
class MapView {
  public:
    /// Accepts [1, anchors * channels, h, w], [1, h, w, anchors * channels], [1, anchors, h, w, channels] and
    /// [1, h, w, anchors, channels]; where both could be meant, the first. Refuses anything else.
    MapView(const TensorView& tensor, const std::string& kind, int anchors, int height, int width);
    int channels() const { return channels_; }
    const float* at(int anchor, int y, int x) const {
        return data_ + static_cast<std::size_t>(anchor) * anchor_step_ + static_cast<std::size_t>(y) * y_step_ +
               static_cast<std::size_t>(x) * x_step_;
    }
    std::size_t step() const { return channel_step_; }  ///< from one channel to the next

  private:
    const float* data_;
    int channels_ = 0;
    std::size_t anchor_step_ = 0, y_step_ = 0, x_step_ = 0, channel_step_ = 0;
};

/// Class scores [1, rows, classes] with what the head has to apply, and without the class for "nothing".
class ClassScores {
  public:
    ClassScores(const Options& options, const std::string& kind, const TensorView& scores, Activation activation,
                Background background);
    int classes() const { return classes_; }  ///< background not counted
    std::int64_t rows() const { return rows_; }
    /// The scores of row `i`, class 0 first; `buffer` holds them where they had to be computed.
    const float* row(std::int64_t i, std::vector<float>& buffer) const;

  private:
    const float* data_;
    Activation activation_;
    std::int64_t rows_ = 0, width_ = 0;
    std::int64_t first_ = 0;  ///< column of class 0
    int classes_ = 0;
};

using Factory = std::unique_ptr<Decoder> (*)(const Options&, InputSize);
std::unique_ptr<Decoder> make_blazeface(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_boxes(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_centernet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_darknet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_db_text(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_detections(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_fastestdet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_nanodet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_nanodet_plus(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_picodet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_retinaface(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_scrfd(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_ssd(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_ultraface(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolo_fastest_v2(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolo_rows(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolodecode(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolov2(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolov5(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolov8(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolov8_obb(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolox(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yunet(const Options& options, InputSize size);

}  // namespace npuforge::heads
