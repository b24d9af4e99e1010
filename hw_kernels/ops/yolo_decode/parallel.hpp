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

constexpr std::int64_t kRowsAtOnce = 128;  ///< rows whose choice one index makes

/// What choosing reads and writes: `all` holds boxes [N, 4], scores [N], classes [N]; `kept` [blocks].
struct YoloRows {
    const float* all;
    float *boxes, *scores, *labels;
    std::int32_t* total;  ///< nullptr: not asked for
    std::int64_t* kept;
    std::int64_t count;
    float threshold;
    NPUFORGE_BOTH std::int64_t end(std::int64_t block) const {
        return (block + 1) * kRowsAtOnce < count ? (block + 1) * kRowsAtOnce : count;
    }
    NPUFORGE_BOTH bool chosen(std::int64_t row) const { return all[4 * count + row] > threshold; }
};

/// Index: block of rows. Counts those with a score above the threshold.
struct YoloCountRows {
    YoloRows d;
    NPUFORGE_BOTH void operator()(std::int64_t block) const {
        std::int64_t number = 0;
        for (std::int64_t i = block * kRowsAtOnce; i < d.end(block); ++i) number += d.chosen(i) ? 1 : 0;
        d.kept[block] = number;
    }
};

/// Index: block of rows, at least one. Writes its rows behind those of the blocks before it.
struct YoloWriteRows {
    YoloRows d;
    NPUFORGE_BOTH void operator()(std::int64_t block) const {
        std::int64_t row = 0;
        for (std::int64_t k = 0; k < block; ++k) row += d.kept[k];
        for (std::int64_t i = block * kRowsAtOnce; i < d.end(block); ++i) {
            if (!d.chosen(i)) continue;
            for (std::int64_t k = 0; k < 4; ++k) d.boxes[4 * row + k] = d.all[4 * i + k];
            d.scores[row] = d.all[4 * d.count + i];
            d.labels[row] = d.all[5 * d.count + i];
            ++row;
        }
        if (d.total && d.end(block) == d.count) *d.total = static_cast<std::int32_t>(row);
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
        threshold_ = static_cast<float>(given.number("score_threshold"));
        if (!(threshold_ >= 0.0f && threshold_ <= 1.0f))
            throw std::invalid_argument("YoloDecode: score_threshold must be a number from 0 to 1");
        if (per_scale() > kMostAnchors) throw std::invalid_argument("YoloDecode: at most 64 anchors of a scale");
    }
    std::size_t per_scale() const { return anchors_.size() / (2 * strides_.size()); }
    std::int64_t open_axis() const { return threshold_ > 0.0f ? 1 : -1; }
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
    std::size_t workspace(const Call& call) const {
        const auto rows = static_cast<std::size_t>(row_count(call));
        return threshold_ > 0.0f ? blocks(row_count(call)) * 8 + rows * 6 * sizeof(float) : 0;
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const std::int64_t images = call.input_dims.at(0)[0], rows = row_count(call);
        if (threshold_ == 0.0f) {
            decode(call, each, call.out(0), call.out(1), call.out(2));
            return;
        }
        if (images != 1)
            throw std::invalid_argument(
                "YoloDecode: with a score_threshold one image is expected, those of a batch would keep different "
                "numbers of rows");
        auto* kept = static_cast<std::int64_t*>(call.workspace);
        auto* all = reinterpret_cast<float*>(kept + blocks(rows));
        decode(call, each, all, all + 4 * rows, all + 5 * rows);
        auto* total = call.outputs.size() > 3 ? static_cast<std::int32_t*>(call.outputs[3]) : nullptr;
        const YoloRows data{all, call.out(0), call.out(1), call.out(2), total, kept, rows, threshold_};
        each(blocks(rows), YoloCountRows{data});
        each(blocks(rows), YoloWriteRows{data});
    }

  private:
    /// At least one, which says that there are no rows.
    static std::int64_t blocks(std::int64_t rows) { return rows > 0 ? (rows + kRowsAtOnce - 1) / kRowsAtOnce : 1; }
    std::int64_t row_count(const Call& call) const {
        std::int64_t cells = 0;
        for (const Dims<std::int64_t>& x : call.input_dims) cells += x.at(2) * x.at(3);
        return cells * static_cast<std::int64_t>(per_scale());
    }
    template <class Each>
    void decode(const Call& call, Each each, float* boxes, float* scores, float* labels) const {
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
                                boxes,
                                scores,
                                labels,
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

    std::vector<double> anchors_, strides_;
    std::int64_t classes_;
    float threshold_ = 0.0f;
};

}  // namespace npuforge::parallel
