// Heads with prior boxes (SSD and its relatives): centre = prior centre + p * center_variance * prior size, size =
// exp(p * size_variance) * prior size. SSD (classes and background), RetinaFace (5 keypoints), UltraFace.
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

/// A prior's centre and size, in input pixels.
struct Prior {
    float x, y, width, height;
};

Box decode_prior(const Prior& prior, const float* p, const Options& options) {
    return from_center(
        prior.x + p[0] * options.center_variance * prior.width, prior.y + p[1] * options.center_variance * prior.height,
        std::exp(p[2] * options.size_variance) * prior.width, std::exp(p[3] * options.size_variance) * prior.height);
}

int extent(int side, int stride) { return (side + stride - 1) / stride; }

/// Priors of every stride, cell (row by row) and size. The centre is (cell + 1/2) * stride, or, `spread`, (cell + 1/2)
/// * input / map.
std::vector<Prior> grid(const std::vector<int>& strides, const std::vector<std::vector<std::array<float, 2>>>& sizes,
                        InputSize size, bool spread) {
    std::vector<Prior> priors;
    for (std::size_t i = 0; i < strides.size(); ++i) {
        const int width = extent(size.width, strides[i]);
        const int height = extent(size.height, strides[i]);
        const float step_x =
            spread ? static_cast<float>(size.width) / static_cast<float>(width) : static_cast<float>(strides[i]);
        const float step_y =
            spread ? static_cast<float>(size.height) / static_cast<float>(height) : static_cast<float>(strides[i]);
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x)
                for (const auto& [w, h] : sizes[i])
                    priors.push_back(
                        {(static_cast<float>(x) + 0.5F) * step_x, (static_cast<float>(y) + 0.5F) * step_y, w, h});
    }
    return priors;
}

/// The sizes at each stride: as given by `anchors`; or, as SSD's authors define them, for each min_box m with max_box
/// M: m x m, then sqrt(m * M) squared, then for each aspect ratio a: m * sqrt(a) x m / sqrt(a) and the same turned.
std::vector<std::vector<std::array<float, 2>>> prior_sizes(const Options& options, const std::string& kind) {
    const std::size_t n = options.strides.size();
    if (!options.anchors.empty()) {
        if (options.anchors.size() != n || !options.min_boxes.empty() || !options.max_boxes.empty() ||
            !options.aspect_ratios.empty())
            refuse(kind, "needs one list of anchors per stride and no other sizes, found " +
                             std::to_string(options.anchors.size()) + " lists for " + std::to_string(n) + " strides");
        return options.anchors;
    }
    if (n == 0 || options.min_boxes.size() != n)
        refuse(kind, "needs one list of min_boxes per stride, found " + std::to_string(options.min_boxes.size()) +
                         " for " + std::to_string(n) + " strides");
    if ((!options.max_boxes.empty() && options.max_boxes.size() != n) ||
        (!options.aspect_ratios.empty() && options.aspect_ratios.size() != n))
        refuse(kind, "needs one list of max_boxes and of aspect_ratios per stride, where they are given");
    std::vector<std::vector<std::array<float, 2>>> sizes(n);
    for (std::size_t i = 0; i < n; ++i) {
        const auto& low = options.min_boxes[i];
        if (!options.max_boxes.empty() && !options.max_boxes[i].empty() && options.max_boxes[i].size() != low.size())
            refuse(kind, "needs one of max_boxes for each of min_boxes");
        for (std::size_t k = 0; k < low.size(); ++k) {
            const float m = low[k];
            if (!(m > 0.0F)) refuse(kind, "min_boxes must be positive");
            sizes[i].push_back({m, m});
            if (!options.max_boxes.empty() && !options.max_boxes[i].empty()) {
                if (!(options.max_boxes[i][k] > 0.0F)) refuse(kind, "max_boxes must be positive");
                const float both = std::sqrt(m * options.max_boxes[i][k]);
                sizes[i].push_back({both, both});
            }
            if (options.aspect_ratios.empty()) continue;
            for (float ratio : options.aspect_ratios[i]) {
                if (!(ratio > 0.0F)) refuse(kind, "aspect_ratios must be positive");
                const float root = std::sqrt(ratio);
                sizes[i].push_back({m * root, m / root});
                sizes[i].push_back({m / root, m * root});
            }
        }
    }
    return sizes;
}

class PriorHead : public Decoder {
  public:
    PriorHead(std::string kind, const Options& options, InputSize size)
        : kind_(std::move(kind)), options_(options), size_(size) {}

  protected:
    void expect_rows(const TensorView& tensor, std::int64_t rows) const {
        if (rows != static_cast<std::int64_t>(priors_.size()))
            refuse(kind_, "output " + tensor.describe() + " does not fit, expected " + std::to_string(priors_.size()) +
                              " priors; correct strides and sizes of the priors in head.options");
    }

    std::string kind_;
    Options options_;
    InputSize size_;
    std::vector<Prior> priors_;
};

/// boxes [1, priors, 4] and scores [1, priors, classes] (softmax in the graph, class 0 means "nothing").
class Ssd : public PriorHead {
  public:
    Ssd(const Options& options, InputSize size) : PriorHead("ssd", options, size) {
        priors_ = grid(options_.strides, prior_sizes(options_, kind_), size, false);
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& boxes = *find_tensors(tensors, options_, kind_, "boxes", 0, 1)[0];
        const TensorView& scores = *find_tensors(tensors, options_, kind_, "scores", 1, 1)[0];
        const ClassScores reader(options_, kind_, scores, Activation::kNone, Background::kFirst);
        expect_rows(boxes, row_count(boxes, kind_, 4));
        expect_rows(scores, reader.rows());
        std::vector<float> buffer;
        for (std::size_t i = 0; i < priors_.size(); ++i) {
            const float* p = reader.row(static_cast<std::int64_t>(i), buffer);
            const auto box = [&] { return decode_prior(priors_[i], boxes.data + 4 * i, options_); };
            emit_classes(reader.classes(), threshold, options_.multi_label, [&](int c) { return p[c]; }, box, out);
        }
    }
};

/// boxes [1, priors, 4], scores [1, priors, 2] (nothing, face; softmax in the graph), keypoints [1, priors, 10]: prior
/// centre + p * center_variance * prior size.
class RetinaFace : public PriorHead {
  public:
    RetinaFace(const Options& options, InputSize size) : PriorHead("retinaface", options, size) {
        default_strides(options_, {8, 16, 32});
        if (options_.min_boxes.empty()) options_.min_boxes = {{16, 32}, {64, 128}, {256, 512}};
        priors_ = grid(options_.strides, prior_sizes(options_, kind_), size, false);
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& boxes = *find_tensors(tensors, options_, kind_, "boxes", 0, 1)[0];
        const TensorView& scores = *find_tensors(tensors, options_, kind_, "scores", 1, 1)[0];
        const TensorView& points = *find_tensors(tensors, options_, kind_, "keypoints", 2, 1)[0];
        const ClassScores reader(options_, kind_, scores, Activation::kNone, Background::kFirst);
        if (reader.classes() != 1) refuse(kind_, "output " + scores.describe() + " is not nothing and face");
        expect_rows(boxes, row_count(boxes, kind_, 4));
        expect_rows(scores, reader.rows());
        expect_rows(points, row_count(points, kind_, 10));
        std::vector<float> buffer;
        for (std::size_t i = 0; i < priors_.size(); ++i) {
            const float score = *reader.row(static_cast<std::int64_t>(i), buffer);
            if (!(score > threshold)) continue;
            const Prior& prior = priors_[i];
            const Box box = decode_prior(prior, boxes.data + 4 * i, options_);
            if (!is_finite(box)) continue;
            Detection detection = make_detection(box, score, 0);
            detection.keypoint_count = 5;
            const float* k = points.data + 10 * i;
            for (std::size_t j = 0; j < 10; j += 2) {
                detection.keypoints[j] = prior.x + k[j] * options_.center_variance * prior.width;
                detection.keypoints[j + 1] = prior.y + k[j + 1] * options_.center_variance * prior.height;
            }
            out.push_back(detection);
        }
    }
};

/// scores [1, priors, 2] (nothing, face), boxes [1, priors, 4]: relative corners (`decoded`) or offsets to priors whose
/// size is cut to the input.
class UltraFace : public PriorHead {
  public:
    UltraFace(const Options& options, InputSize size) : PriorHead("ultraface", options, size) {
        default_strides(options_, {8, 16, 32, 64});
        if (options_.min_boxes.empty()) options_.min_boxes = {{10, 16, 24}, {32, 48}, {64, 96}, {128, 192, 256}};
        auto sizes = prior_sizes(options_, kind_);
        for (auto& list : sizes)
            for (auto& [w, h] : list) {
                w = std::min(w, static_cast<float>(size.width));
                h = std::min(h, static_cast<float>(size.height));
            }
        priors_ = grid(options_.strides, sizes, size, true);
    }

    void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const override {
        const TensorView& scores = *find_tensors(tensors, options_, kind_, "scores", 0, 1)[0];
        const TensorView& boxes = *find_tensors(tensors, options_, kind_, "boxes", 1, 1)[0];
        expect_rows(scores, row_count(scores, kind_, 2));
        expect_rows(boxes, row_count(boxes, kind_, 4));
        const float w = static_cast<float>(size_.width);
        const float h = static_cast<float>(size_.height);
        for (std::size_t i = 0; i < priors_.size(); ++i) {
            const float score = scores.data[2 * i + 1];
            if (!(score > threshold)) continue;
            const float* b = boxes.data + 4 * i;
            const Box box =
                options_.decoded ? Box{b[0] * w, b[1] * h, b[2] * w, b[3] * h} : decode_prior(priors_[i], b, options_);
            if (is_finite(box)) out.push_back(make_detection(box, score, 0));
        }
    }
};

}  // namespace

std::unique_ptr<Decoder> make_ssd(const Options& options, InputSize size) {
    return std::make_unique<Ssd>(options, size);
}
std::unique_ptr<Decoder> make_retinaface(const Options& options, InputSize size) {
    return std::make_unique<RetinaFace>(options, size);
}
std::unique_ptr<Decoder> make_ultraface(const Options& options, InputSize size) {
    return std::make_unique<UltraFace>(options, size);
}

}  // namespace npuforge::heads
