// Heads that say how far a box reaches from a point in its cell, as a distribution over bins (generalised focal loss)
// or as a number: NanoDet, NanoDet-Plus, PicoDet, YOLOv8 (v9, v10, v11) and its oriented boxes.
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

struct Reach {
    float left, top, right, bottom;
};

Reach reach_of(const float* p, int bins, std::size_t step, float stride) {
    const std::size_t side = static_cast<std::size_t>(bins) * step;
    return {expected_distance(p, bins, step) * stride, expected_distance(p + side, bins, step) * stride,
            expected_distance(p + 2 * side, bins, step) * stride, expected_distance(p + 3 * side, bins, step) * stride};
}

Box around(float x, float y, const Reach& r) { return {x - r.left, y - r.top, x + r.right, y + r.bottom}; }

/// NanoDet and PicoDet: per stride classes [1, cells, classes] (sigmoid) and distances [1, cells, 4 * bins]; a box
/// reaches sum(bin * softmax(p)) * stride to left, top, right, bottom of (cell + offset) * stride. NanoDet-Plus: one
/// tensor for all strides, a row is classes, then distances; offset 0.
class CellRows : public Decoder {
  public:
    CellRows(std::string kind, const Options& options, InputSize size, std::vector<int> strides, float offset,
             bool joined)
        : kind_(std::move(kind)), options_(options), size_(size), joined_(joined) {
        default_strides(options_, std::move(strides));
        offset_ = options_.cell_offset.value_or(offset);
        if (joined && options_.bins.value_or(8) < 1) refuse(kind_, "bins must be positive");
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const std::size_t levels = options_.strides.size();
        if (joined_) {
            const TensorView& all = *find_tensors(tensors, options_, kind_, "predictions", 0, 1)[0];
            std::int64_t cells = 0;
            for (int stride : options_.strides) cells += extent(size_.width, stride) * extent(size_.height, stride);
            expect_shape(all, kind_, {1, cells, -1});
            const int bins = options_.bins.value_or(8);
            const auto row = static_cast<std::size_t>(all.shape[2]);
            const int classes = static_cast<int>(all.shape[2]) - 4 * bins;
            if (classes < 1)
                refuse(kind_, "output " + all.describe() + " does not fit classes and 4 distributions of " +
                                  std::to_string(bins) + " bins; correct head.options.bins");
            const float* p = all.data;
            for (int stride : options_.strides) {
                level(p, row, p + classes, row, classes, bins, stride, threshold, out);
                p += row * static_cast<std::size_t>(extent(size_.width, stride) * extent(size_.height, stride));
            }
            return;
        }
        const auto scores = find_tensors(tensors, options_, kind_, "classes", 0, levels);
        const auto distances = find_tensors(tensors, options_, kind_, "distances", levels, levels);
        for (std::size_t i = 0; i < levels; ++i) {
            const int stride = options_.strides[i];
            const std::int64_t cells = extent(size_.width, stride) * extent(size_.height, stride);
            expect_shape(*scores[i], kind_, {1, cells, -1});
            expect_shape(*distances[i], kind_, {1, cells, -1});
            const std::int64_t values = distances[i]->shape[2];
            if (values % 4 != 0 || values < 8)
                refuse(kind_, "output " + distances[i]->describe() + " is not four distributions of at least two bins");
            const auto classes = scores[i]->shape[2];
            level(scores[i]->data, static_cast<std::size_t>(classes), distances[i]->data,
                  static_cast<std::size_t>(values), static_cast<int>(classes), static_cast<int>(values / 4), stride,
                  threshold, out);
        }
    }

  private:
    static std::int64_t extent(int side, int stride) { return (side + stride - 1) / stride; }

    void level(const float* scores, std::size_t score_step, const float* distances, std::size_t distance_step,
               int classes, int bins, int stride, float threshold, std::vector<Detection>& out) const {
        const auto height = static_cast<int>(extent(size_.height, stride));
        const auto width = static_cast<int>(extent(size_.width, stride));
        const float s = static_cast<float>(stride);
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x, scores += score_step, distances += distance_step) {
                const auto box = [&] {
                    return around((static_cast<float>(x) + offset_) * s, (static_cast<float>(y) + offset_) * s,
                                  reach_of(distances, bins, 1, s));
                };
                emit_classes(classes, threshold, options_.multi_label, [&](int c) { return scores[c]; }, box, out);
            }
    }

    std::string kind_;
    Options options_;
    InputSize size_;
    bool joined_;
    float offset_ = 0.5F;
};

/// YOLOv8: per stride one map of 4 * bins distances, then classes (role `maps`), or two maps (roles `boxes`,
/// `classes`); a box reaches sum(bin * softmax(p)) * stride from the cell's centre; score = sigmoid(class). Oriented
/// boxes: a further map of one angle per cell (role `angles`), angle = (sigmoid(p) - 1/4) * pi; the centre lies half
/// of (right - left, bottom - top), turned by the angle, from the cell's centre; width = left + right, height = top +
/// bottom.
class YoloV8 : public Decoder {
  public:
    YoloV8(std::string kind, const Options& options, InputSize size, bool oriented)
        : kind_(std::move(kind)), options_(options), size_(size), oriented_(oriented) {
        default_strides(options_, {8, 16, 32});
        bins_ = options_.bins.value_or(16);
        if (bins_ < 1) refuse(kind_, "bins must be positive");
        raw_ = options_.activation.value_or(Activation::kSigmoid) == Activation::kSigmoid;
        split_ = options_.outputs.count("boxes") != 0 || options_.outputs.count("classes") != 0;
    }
    bool oriented() const override { return oriented_; }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const std::size_t n = options_.strides.size();
        const auto first = find_tensors(tensors, options_, kind_, split_ ? "boxes" : "maps", 0, n);
        const auto classes = split_ ? find_tensors(tensors, options_, kind_, "classes", n, n) : first;
        const auto angles = oriented_ ? find_tensors(tensors, options_, kind_, "angles", split_ ? 2 * n : n, n) : first;
        for (std::size_t i = 0; i < n; ++i) level(*first[i], *classes[i], *angles[i], i, threshold, out);
    }

  private:
    void level(const TensorView& boxes, const TensorView& scores, const TensorView& angles, std::size_t index,
               float threshold, std::vector<Detection>& out) const {
        const int stride = options_.strides[index];
        const int height = size_.height / stride;
        const int width = size_.width / stride;
        const MapView box_map(boxes, kind_, 1, height, width);
        const MapView score_map(scores, kind_, 1, height, width);
        const MapView angle_map(angles, kind_, 1, height, width);
        const int before = split_ ? 0 : 4 * bins_;
        const int classes = score_map.channels() - before;
        if (classes < 1 || (split_ && box_map.channels() != 4 * bins_))
            refuse(kind_, "output " + boxes.describe() + " does not fit 4 distances of " + std::to_string(bins_) +
                              " bins" + (split_ ? "" : " and classes") + "; correct head.options.bins");
        if (oriented_ && angle_map.channels() != 1)
            refuse(kind_, "output " + angles.describe() + " is not one angle per cell");
        const float s = static_cast<float>(stride);
        const float floor = raw_ ? logit_floor(threshold) : threshold;
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x) {
                const float* p = score_map.at(0, y, x) + static_cast<std::size_t>(before) * score_map.step();
                const auto score = [&](int c) {
                    const float v = p[static_cast<std::size_t>(c) * score_map.step()];
                    if (!(v > floor)) return -1.0F;
                    return raw_ ? sigmoid(v) : v;
                };
                const float cx = (static_cast<float>(x) + 0.5F) * s;
                const float cy = (static_cast<float>(y) + 0.5F) * s;
                const std::size_t had = out.size();
                const auto reach = [&] { return reach_of(box_map.at(0, y, x), bins_, box_map.step(), s); };
                emit_classes(
                    classes, threshold, options_.multi_label, score, [&] { return around(cx, cy, reach()); }, out);
                if (!oriented_ || out.size() == had) continue;
                const Reach r = reach();
                const float angle = (sigmoid(*angle_map.at(0, y, x)) - 0.25F) * kPi;
                if (!std::isfinite(angle)) {
                    out.resize(had);
                    continue;
                }
                const float dx = (r.right - r.left) * 0.5F;
                const float dy = (r.bottom - r.top) * 0.5F;
                const float cosine = std::cos(angle);
                const float sine = std::sin(angle);
                for (std::size_t i = had; i < out.size(); ++i)
                    out[i] = make_oriented(cx + dx * cosine - dy * sine, cy + dx * sine + dy * cosine, r.left + r.right,
                                           r.top + r.bottom, angle, out[i].score, out[i].label);
            }
    }

    std::string kind_;
    Options options_;
    InputSize size_;
    bool oriented_, raw_ = true, split_ = false;
    int bins_ = 16;
};

}  // namespace

std::unique_ptr<Decoder> make_nanodet(const Options& options, InputSize size) {
    return std::make_unique<CellRows>("nanodet", options, size, std::vector<int>{8, 16, 32}, 0.5F, false);
}
std::unique_ptr<Decoder> make_picodet(const Options& options, InputSize size) {
    return std::make_unique<CellRows>("picodet", options, size, std::vector<int>{8, 16, 32, 64}, 0.5F, false);
}
std::unique_ptr<Decoder> make_nanodet_plus(const Options& options, InputSize size) {
    return std::make_unique<CellRows>("nanodet_plus", options, size, std::vector<int>{8, 16, 32, 64}, 0.0F, true);
}
std::unique_ptr<Decoder> make_yolov8(const Options& options, InputSize size) {
    return std::make_unique<YoloV8>("yolov8", options, size, false);
}
std::unique_ptr<Decoder> make_yolov8_obb(const Options& options, InputSize size) {
    return std::make_unique<YoloV8>("yolov8_obb", options, size, true);
}

}  // namespace npuforge::heads
