// YoloDecode over the boxes of one scale, for host and device (op.py has the formulas).
#pragma once

#include <stdexcept>

#include "npuforge/parallel.hpp"

namespace npuforge::parallel {

constexpr std::size_t kMostAnchors = 64;  ///< of one scale: a kernel's parameters are small

/// Index: (cell, anchor) of one scale. `offset`: boxes of the scales before it. `anchors`: width, height pairs.
struct YoloDecodeBody {
    const float* x;
    float *boxes, *scores, *labels;
    std::int64_t offset, map, width, per_scale, classes;
    float stride;
    float anchors[2 * kMostAnchors];
    NPUFORGE_BOTH void operator()(std::int64_t i) const {
        const std::int64_t cell = i / per_scale, a = i % per_scale;
        const float* t = x + a * (5 + classes) * map + cell;
        const float* anchor = anchors + 2 * a;
        const float cx = (sigmoid(t[0]) + static_cast<float>(cell % width)) * stride;
        const float cy = (sigmoid(t[map]) + static_cast<float>(cell / width)) * stride;
        const float half_w = std::exp(t[2 * map]) * anchor[0] / 2.0f, half_h = std::exp(t[3 * map]) * anchor[1] / 2.0f;
        std::int64_t best = 0;
        for (std::int64_t c = 1; c < classes; ++c)
            if (t[(5 + c) * map] > t[(5 + best) * map]) best = c;
        float* box = boxes + 4 * (offset + i);
        box[0] = cx - half_w;
        box[1] = cy - half_h;
        box[2] = cx + half_w;
        box[3] = cy + half_h;
        scores[offset + i] = sigmoid(t[4 * map]) * sigmoid(t[(5 + best) * map]);
        labels[offset + i] = static_cast<float>(best);
    }
};

struct YoloDecode : Operator {
    static constexpr const char* name = "YoloDecode";
    static std::vector<Field> fields() {
        return {{"anchors", true, {}},
                {"strides", false, {}},
                {"num_classes", false, {}},
                {"score_threshold", true, {0.0}}};
    }
    explicit YoloDecode(const Attributes& given)
        : anchors_(given.list("anchors")), strides_(given.list("strides")), classes_(given.integer("num_classes")) {
        const std::size_t scales = strides_.size();
        if (scales == 0 || anchors_.empty() || anchors_.size() % (2 * scales))
            throw std::invalid_argument(
                "YoloDecode: anchors must be width, height pairs, the same number for each stride");
        if (classes_ < 1) throw std::invalid_argument("YoloDecode: num_classes must be 1 or more");
        if (given.number("score_threshold") != 0.0)
            throw std::invalid_argument(
                "YoloDecode: with a score_threshold only the data decide the number of rows, which a plug-in cannot "
                "say; export without it"
                " and select behind it");
        if (per_scale() > kMostAnchors) throw std::invalid_argument("YoloDecode: at most 64 anchors of a scale");
    }
    std::size_t per_scale() const { return anchors_.size() / (2 * strides_.size()); }
    static std::vector<Element> outputs() { return std::vector<Element>(3, Element::kFloat32); }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        if (in.size() != strides_.size())
            throw std::invalid_argument("YoloDecode: one input for each stride is needed");
        const auto anchors = static_cast<std::int64_t>(per_scale());
        const Dim images = in.at(0).at(0), one = images * 0 + 1;
        Dim count = one * 0;
        for (const Dims<Dim>& x : in) count = count + x.at(2) * x.at(3) * anchors;
        out = {{images, count, one * 4}, {images, count}, {images, count}};
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        std::int64_t offset = 0;  // boxes of the images and scales before
        const auto anchors = static_cast<std::int64_t>(per_scale());
        const std::int64_t images = call.input_dims.at(0)[0];
        const std::size_t scales = strides_.size();
        for (std::size_t n = 0; n < scales * static_cast<std::size_t>(images); ++n) {
            const std::size_t i = n % scales;
            const Dims<std::int64_t>& x = call.input_dims.at(i);
            if (x[0] != images || x[1] != anchors * (5 + classes_))
                throw std::invalid_argument("YoloDecode: an input is not images x anchors * (5 + num_classes) x H x W");
            const auto image = static_cast<std::int64_t>(n / scales);
            YoloDecodeBody body{call.in(i) + image * x[1] * x[2] * x[3],
                                call.out(0),
                                call.out(1),
                                call.out(2),
                                offset,
                                x[2] * x[3],
                                x[3],
                                anchors,
                                classes_,
                                static_cast<float>(strides_[i]),
                                {}};
            for (std::size_t k = 0; k < 2 * per_scale(); ++k)
                body.anchors[k] = static_cast<float>(anchors_[2 * i * per_scale() + k]);
            each(body.map * anchors, body);
            offset += body.map * anchors;
        }
    }

  private:
    std::vector<double> anchors_, strides_;
    std::int64_t classes_;
};

}  // namespace npuforge::parallel
