// What decoders share about tensors: rows and maps in the layouts that exporters write, softmax and expected distance.
#include <algorithm>

#include "decoders.hpp"

namespace npuforge::heads {

std::int64_t row_count(const TensorView& tensor, const std::string& kind, std::int64_t columns) {
    const auto unfit = [&] {
        refuse(kind, "output " + tensor.describe() + " does not fit, expected shape [1, any, " +
                         std::to_string(columns) + "]");
    };
    if (tensor.shape.empty()) unfit();
    const bool flat = columns == 1 && tensor.shape.back() != 1;  // [1, rows] where each row is one value
    const auto total = static_cast<std::int64_t>(tensor.size());
    std::int64_t longest = 1;
    for (std::size_t i = 0; i + (flat ? 0U : 1U) < tensor.shape.size(); ++i)
        longest = longest == 0 || tensor.shape[i] == 0 ? 0 : std::max(longest, tensor.shape[i]);
    if ((!flat && tensor.shape.back() != columns) || longest * columns != total) unfit();
    return longest;
}

void softmax(const float* p, std::size_t step, std::vector<float>& out) {
    float top = p[0];
    for (std::size_t i = 1; i < out.size(); ++i) top = std::max(top, p[i * step]);
    float sum = 0.0F;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] = std::exp(p[i * step] - top);
    for (float& v : out) v /= sum;
}

float expected_distance(const float* p, int bins, std::size_t step) {
    if (bins == 1) return p[0];
    float top = p[0];
    for (int b = 1; b < bins; ++b) top = std::max(top, p[static_cast<std::size_t>(b) * step]);
    float sum = 0.0F;
    float weighted = 0.0F;
    for (int b = 0; b < bins; ++b) {
        const float e = std::exp(p[static_cast<std::size_t>(b) * step] - top);
        sum += e;
        weighted += e * static_cast<float>(b);
    }
    return weighted / sum;
}

ClassScores::ClassScores(const Options& options, const std::string& kind, const TensorView& scores,
                         Activation activation, Background background)
    : data_(scores.data), activation_(options.activation.value_or(activation)) {
    if (scores.shape.empty()) refuse(kind, "output " + scores.describe() + " is not scores [1, any, classes]");
    width_ = scores.shape.back();
    rows_ = row_count(scores, kind, width_);
    background = options.background.value_or(background);
    first_ = background == Background::kFirst ? 1 : 0;
    classes_ = static_cast<int>(width_) - (background == Background::kNone ? 0 : 1);
    if (classes_ < 1) refuse(kind, "output " + scores.describe() + " has no class besides the background");
}

const float* ClassScores::row(std::int64_t i, std::vector<float>& buffer) const {
    const float* p = data_ + i * width_;
    if (activation_ == Activation::kNone) return p + first_;
    buffer.resize(static_cast<std::size_t>(width_));
    if (activation_ == Activation::kSoftmax)
        softmax(p, 1, buffer);
    else
        std::transform(p, p + width_, buffer.begin(), sigmoid);
    return buffer.data() + first_;
}

MapView::MapView(const TensorView& tensor, const std::string& kind, int anchors, int height, int width)
    : data_(tensor.data) {
    const auto& s = tensor.shape;
    const auto h = static_cast<std::size_t>(height);
    const auto w = static_cast<std::size_t>(width);
    const auto n = static_cast<std::size_t>(anchors);
    const bool batch = !s.empty() && s[0] == 1 && data_ != nullptr;
    const auto is = [&](std::size_t axis, std::size_t extent) { return s[axis] == static_cast<std::int64_t>(extent); };
    if (batch && s.size() == 4 && is(2, h) && is(3, w) && s[1] % anchors == 0) {
        channels_ = static_cast<int>(s[1] / anchors);
        channel_step_ = h * w, x_step_ = 1, y_step_ = w;
        anchor_step_ = static_cast<std::size_t>(channels_) * h * w;
    } else if (batch && s.size() == 4 && is(1, h) && is(2, w) && s[3] % anchors == 0) {
        channels_ = static_cast<int>(s[3] / anchors);
        channel_step_ = 1, anchor_step_ = static_cast<std::size_t>(channels_);
        x_step_ = anchor_step_ * n, y_step_ = x_step_ * w;
    } else if (batch && s.size() == 5 && is(1, n) && is(2, h) && is(3, w)) {
        channels_ = static_cast<int>(s[4]);
        channel_step_ = 1, x_step_ = static_cast<std::size_t>(channels_), y_step_ = x_step_ * w;
        anchor_step_ = y_step_ * h;
    } else if (batch && s.size() == 5 && is(1, h) && is(2, w) && is(3, n)) {
        channels_ = static_cast<int>(s[4]);
        channel_step_ = 1, anchor_step_ = static_cast<std::size_t>(channels_), x_step_ = anchor_step_ * n;
        y_step_ = x_step_ * w;
    } else {
        const std::string size = std::to_string(height) + ", " + std::to_string(width);
        const std::string each =
            anchors == 1 ? "" : ", or the " + std::to_string(anchors) + " anchors as their own axis";
        refuse(kind, "output " + tensor.describe() + " does not fit " + std::to_string(anchors) +
                         " anchors, expected shape [1, any, " + size + "] or [1, " + size + ", any]" + each);
    }
}

}  // namespace npuforge::heads
