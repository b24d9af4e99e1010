// Heads whose boxes the graph has decoded: rows of box, objectness and classes (YOLO exports), separate boxes and
// scores, and detections that the graph's own NMS has chosen.
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

Box to_box(float a, float b, float c, float d, BoxFormat format, float scale_x, float scale_y) {
    switch (format) {
        case BoxFormat::kCorners:
            return {a * scale_x, b * scale_y, c * scale_x, d * scale_y};
        case BoxFormat::kCornersYx:
            return {b * scale_x, a * scale_y, d * scale_x, c * scale_y};
        case BoxFormat::kTopLeft:
            return {a * scale_x, b * scale_y, (a + c) * scale_x, (b + d) * scale_y};
        case BoxFormat::kCenter:
            break;
    }
    return from_center(a * scale_x, b * scale_y, c * scale_x, d * scale_y);
}

class RowsBase : public Decoder {
  public:
    RowsBase(std::string kind, const Options& options, InputSize size) : kind_(std::move(kind)), options_(options) {
        if (options.relative) scale_x_ = static_cast<float>(size.width), scale_y_ = static_cast<float>(size.height);
    }

  protected:
    std::string kind_;
    Options options_;
    float scale_x_ = 1.0F, scale_y_ = 1.0F;
};

/// YOLO rows [1, N, values] or [1, values, N] (the longer axis is N): four box values, objectness where there is one,
/// classes, and where there is one the angle of the box.
class YoloRows : public RowsBase {
  public:
    YoloRows(const Options& options, InputSize size) : RowsBase("yolo_rows", options, size) {
        if (options.angle && options.box_format.value_or(BoxFormat::kCenter) != BoxFormat::kCenter)
            refuse(kind_, "an oriented box is centre and size, set box_format to center");
        if (options.angle && options.relative) refuse(kind_, "an oriented box in fractions of the input has no angle");
    }
    bool oriented() const override { return options_.angle; }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& t = *find_tensors(tensors, options_, kind_, "predictions", 0, 1)[0];
        expect_shape(t, kind_, {1, -1, -1});
        const bool upright = t.shape[1] >= t.shape[2];
        const std::int64_t count = upright ? t.shape[1] : t.shape[2];
        const std::int64_t values = upright ? t.shape[2] : t.shape[1];
        const int before = options_.objectness ? 5 : 4;
        const int classes = static_cast<int>(values) - before - (options_.angle ? 1 : 0);
        if (classes < 1)
            refuse(kind_, "output " + t.describe() + " has no class, expected more than " +
                              std::to_string(before + (options_.angle ? 1 : 0)) + " values in a row");
        const auto row = static_cast<std::size_t>(upright ? values : 1);
        const auto step = static_cast<std::size_t>(upright ? 1 : count);
        const BoxFormat format = options_.box_format.value_or(BoxFormat::kCenter);
        const float* p = t.data;
        for (std::int64_t i = 0; i < count; ++i, p += row) {
            const float objectness = options_.objectness ? p[4 * step] : 1.0F;
            if (!(objectness > threshold)) continue;
            const std::size_t had = out.size();
            const auto box = [&] {
                return to_box(p[0], p[step], p[2 * step], p[3 * step], format, scale_x_, scale_y_);
            };
            const auto score = [&](int c) { return objectness * p[static_cast<std::size_t>(before + c) * step]; };
            emit_classes(classes, threshold, options_.multi_label, score, box, out);
            if (!options_.angle || out.size() == had) continue;
            const float angle = p[static_cast<std::size_t>(values - 1) * step];
            if (!std::isfinite(angle)) {
                out.resize(had);
                continue;
            }
            for (std::size_t k = had; k < out.size(); ++k)
                out[k] = make_oriented(p[0], p[step], p[2 * step], p[3 * step], angle, out[k].score, out[k].label);
        }
    }
};

/// Boxes [1, N, 4] (or [1, N, 1, 4]) and scores [1, N, classes], with or without a class for "nothing".
class Boxes : public RowsBase {
  public:
    Boxes(const Options& options, InputSize size) : RowsBase("boxes", options, size) {}

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& boxes = *find_tensors(tensors, options_, kind_, "boxes", 0, 1)[0];
        const TensorView& scores = *find_tensors(tensors, options_, kind_, "scores", 1, 1)[0];
        const std::int64_t count = row_count(boxes, kind_, 4);
        expect_shape(scores, kind_, {1, count, -1});
        const ClassScores reader(options_, kind_, scores, Activation::kNone, Background::kNone);
        const BoxFormat format = options_.box_format.value_or(BoxFormat::kCorners);
        std::vector<float> buffer;
        for (std::int64_t i = 0; i < count; ++i) {
            const float* p = reader.row(i, buffer);
            const float* b = boxes.data + 4 * i;
            const auto box = [&] { return to_box(b[0], b[1], b[2], b[3], format, scale_x_, scale_y_); };
            emit_classes(reader.classes(), threshold, options_.multi_label, [&](int c) { return p[c]; }, box, out);
        }
    }
};

/// Detections that the graph has chosen: rows [N, columns], or boxes, scores and classes apart (with `count` where the
/// graph fills up with empty rows). No NMS.
class Detections : public RowsBase {
  public:
    Detections(const Options& options, InputSize size) : RowsBase("detections", options, size) {
        if (options_.columns.empty()) options_.columns = {"x1", "y1", "x2", "y2", "score", "class"};
        static const std::vector<std::string> needed = {"x1", "y1", "x2", "y2", "score"};
        for (const std::string& name : options_.columns) {
            const bool known = name == "batch" || name == "class" || name == "skip" ||
                               std::find(needed.begin(), needed.end(), name) != needed.end();
            if (!known)
                refuse(kind_, "unknown column `" + name + "`; columns are x1, y1, x2, y2, score, class, batch, skip");
        }
        for (const std::string& name : needed) place_.push_back(column(name));
        label_ = column("class");
        rows_ = options_.outputs.empty() || options_.outputs.count("rows") != 0;
        if (rows_)
            for (std::size_t i = 0; i < needed.size(); ++i)
                if (place_[i] < 0) refuse(kind_, "columns name no " + needed[i]);
    }
    bool selected() const override { return true; }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        if (rows_) {
            const TensorView& t = *find_tensors(tensors, options_, kind_, "rows", 0, 1)[0];
            const auto width = static_cast<std::int64_t>(options_.columns.size());
            const std::int64_t count = row_count(t, kind_, width);
            for (std::int64_t i = 0; i < count; ++i) {
                const float* p = t.data + i * width;
                const float* b[4] = {p + place_[0], p + place_[1], p + place_[2], p + place_[3]};
                emit(*b[0], *b[1], *b[2], *b[3], p[place_[4]], label_ < 0 ? 0.0F : p[label_], i, threshold, out);
            }
            return;
        }
        const TensorView& boxes = *find_tensors(tensors, options_, kind_, "boxes", 0, 1)[0];
        const TensorView& scores = *find_tensors(tensors, options_, kind_, "scores", 1, 1)[0];
        const TensorView& labels = *find_tensors(tensors, options_, kind_, "classes", 2, 1)[0];
        std::int64_t count = row_count(boxes, kind_, 4);
        if (static_cast<std::int64_t>(scores.size()) != count || static_cast<std::int64_t>(labels.size()) != count)
            refuse(kind_, "boxes " + boxes.describe() + ", scores " + scores.describe() + " and classes " +
                              labels.describe() + " are not of the same detections");
        if (options_.outputs.count("count") != 0) {
            const TensorView& found = *find_tensors(tensors, options_, kind_, "count", 3, 1)[0];
            if (found.size() != 1) refuse(kind_, "output " + found.describe() + " is not one number");
            count =
                std::clamp<std::int64_t>(static_cast<std::int64_t>(std::clamp(found.data[0], 0.0F, 1e9F)), 0, count);
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const float* b = boxes.data + 4 * i;
            emit(b[0], b[1], b[2], b[3], scores.data[i], labels.data[i], i, threshold, out);
        }
    }

  private:
    int column(const std::string& name) const {
        const auto it = std::find(options_.columns.begin(), options_.columns.end(), name);
        return it == options_.columns.end() ? -1 : static_cast<int>(it - options_.columns.begin());
    }

    void emit(float a, float b, float c, float d, float score, float label, std::int64_t index, float threshold,
              std::vector<Detection>& out) const {
        if (!(score > threshold)) return;
        if (!(label >= 0.0F && label < 16777216.0F))
            refuse(kind_,
                   "class " + std::to_string(label) + " at index " + std::to_string(index) + " is not a class index");
        const Box box = to_box(a, b, c, d, options_.box_format.value_or(BoxFormat::kCorners), scale_x_, scale_y_);
        if (is_finite(box)) out.push_back(make_detection(box, score, static_cast<int>(std::lround(label))));
    }

    std::vector<int> place_;  ///< of x1, y1, x2, y2, score
    int label_ = -1;
    bool rows_ = true;
};

}  // namespace

std::unique_ptr<Decoder> make_yolo_rows(const Options& options, InputSize size) {
    return std::make_unique<YoloRows>(options, size);
}
std::unique_ptr<Decoder> make_boxes(const Options& options, InputSize size) {
    return std::make_unique<Boxes>(options, size);
}
std::unique_ptr<Decoder> make_detections(const Options& options, InputSize size) {
    return std::make_unique<Detections>(options, size);
}

}  // namespace npuforge::heads
