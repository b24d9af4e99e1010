// RotatedNms over classes, for host and device (op.py has the meaning). Within a class it is sequential by nature.
#pragma once

#include <stdexcept>

#include "npuforge/parallel.hpp"
#include "npuforge/rotated.hpp"

namespace npuforge::parallel {

/// What both steps read and write. kept: [classes, count] boxes, best first. kept_count: [classes].
/// seen: [classes, count].
struct RotatedNmsData {
    const float *boxes, *scores;
    std::int64_t *rows, *kept, *kept_count;
    std::uint8_t* seen;
    std::int32_t* total;  ///< nullptr: not asked for
    std::int64_t classes, count, most;
    double threshold;
    float lowest;
};

/// Index: class. Takes the best box not yet seen, the first of equal ones, until none is above the threshold.
struct RotatedNmsSelect {
    RotatedNmsData d;
    NPUFORGE_BOTH void operator()(std::int64_t c) const {
        if (c >= d.classes) return;
        const float* scores = d.scores + c * d.count;
        std::uint8_t* seen = d.seen + c * d.count;
        std::int64_t *kept = d.kept + c * d.count, number = 0;
        for (std::int64_t i = 0; i < d.count; ++i) seen[i] = !(scores[i] > d.lowest);
        while (number < d.most) {
            std::int64_t best = -1;
            for (std::int64_t i = 0; i < d.count; ++i)
                if (!seen[i] && (best < 0 || scores[i] > scores[best])) best = i;
            if (best < 0) break;
            seen[best] = 1;
            bool keep = true;
            for (std::int64_t k = 0; k < number && keep; ++k)
                keep = rotated_overlap(d.boxes + 5 * best, d.boxes + 5 * kept[k]) <= d.threshold;
            if (keep) kept[number++] = best;
        }
        d.kept_count[c] = number;
    }
};

/// Index: class, at least one. Writes the class's rows behind those of the classes before it.
struct RotatedNmsWrite {
    RotatedNmsData d;
    NPUFORGE_BOTH void operator()(std::int64_t c) const {
        std::int64_t row = 0;
        for (std::int64_t k = 0; k < c && k < d.classes; ++k) row += d.kept_count[k];
        const std::int64_t number = c < d.classes ? d.kept_count[c] : 0;
        for (std::int64_t k = 0; k < number; ++k) {
            d.rows[2 * (row + k)] = c;
            d.rows[2 * (row + k) + 1] = d.kept[c * d.count + k];
        }
        if (d.total && c + 1 >= d.classes) *d.total = static_cast<std::int32_t>(row + number);
    }
};

/// Output 0 has room for classes * N rows; output 1, a scalar int32, says how many there are.
struct RotatedNms : Operator {
    static constexpr const char* name = "RotatedNms";
    std::int64_t open_axis() const { return 0; }
    static std::vector<Field> fields() {
        return {{"iou_threshold", true, {0.5}},
                {"score_threshold", true, {0.0}},
                {"max_output_boxes_per_class", false, {0}}};
    }
    explicit RotatedNms(const Attributes& given)
        : threshold_(given.number("iou_threshold")),
          lowest_(static_cast<float>(given.number("score_threshold"))),
          limit_(given.integer("max_output_boxes_per_class")) {
        if (limit_ < 0) throw std::invalid_argument("RotatedNms: max_output_boxes_per_class must not be negative");
    }
    static std::vector<Element> outputs() { return {Element::kInt64}; }
    template <class Dim>
    void shapes(const std::vector<Dims<Dim>>& in, std::vector<Dims<Dim>>& out) const {
        out = {{in.at(1).at(0) * in.at(1).at(1), in.at(0).at(1) * 0 + 2}};
    }
    std::size_t workspace(const Call& call) const {
        const Dims<std::int64_t>& scores = call.input_dims[1];
        return static_cast<std::size_t>((scores[0] * scores[1] + scores[0]) * 8 + scores[0] * scores[1]);
    }
    template <class Each>
    void run(const Call& call, Each each) const {
        const std::int64_t classes = call.input_dims[1][0], count = call.input_dims[1][1];
        auto* kept = static_cast<std::int64_t*>(call.workspace);
        std::int64_t* kept_count = kept + classes * count;
        const RotatedNmsData data{call.in(0),
                                  call.in(1),
                                  static_cast<std::int64_t*>(call.outputs[0]),
                                  kept,
                                  kept_count,
                                  reinterpret_cast<std::uint8_t*>(kept_count + classes),
                                  call.outputs.size() > 1 ? static_cast<std::int32_t*>(call.outputs[1]) : nullptr,
                                  classes,
                                  count,
                                  limit_ > 0 && limit_ < count ? limit_ : count,
                                  threshold_,
                                  lowest_};
        each(classes, RotatedNmsSelect{data});
        each(classes > 0 ? classes : 1, RotatedNmsWrite{data});
    }

  private:
    double threshold_;
    float lowest_;
    std::int64_t limit_;
};

}  // namespace npuforge::parallel
