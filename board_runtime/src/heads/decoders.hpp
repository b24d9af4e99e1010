// Shared by the decoders: finding and checking tensors, emitting candidates, and one factory per kind. Private to
// src/heads.
#pragma once

#include <cmath>

#include "npuforge/device.hpp"
#include "npuforge/heads.hpp"

namespace npuforge::heads {

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

std::unique_ptr<Decoder> make_yolox(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_darknet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_fastestdet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_nanodet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yunet(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_ultraface(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_blazeface(const Options& options, InputSize size);
std::unique_ptr<Decoder> make_yolodecode(const Options& options, InputSize size);

}  // namespace npuforge::heads
