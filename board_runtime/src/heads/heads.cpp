// What all heads share: the table of kinds, tensor look-up and checks, candidate selection with NMS, and the way back
// to the image.
#include <algorithm>
#include <numeric>

#include "decoders.hpp"

namespace npuforge::heads {
namespace {

const std::map<std::string, Factory>& factories() {
    static const std::map<std::string, Factory> table = {
        {"blazeface", make_blazeface},
        {"boxes", make_boxes},
        {"centernet", make_centernet},
        {"darknet", make_darknet},
        {"db_text", make_db_text},
        {"detections", make_detections},
        {"fastestdet", make_fastestdet},
        {"nanodet", make_nanodet},
        {"nanodet_plus", make_nanodet_plus},
        {"picodet", make_picodet},
        {"retinaface", make_retinaface},
        {"scrfd", make_scrfd},
        {"ssd", make_ssd},
        {"ultraface", make_ultraface},
        {"yolo_fastest_v2", make_yolo_fastest_v2},
        {"yolo_rows", make_yolo_rows},
        {"yolodecode", make_yolodecode},
        {"yolov2", make_yolov2},
        {"yolov5", make_yolov5},
        {"yolov8", make_yolov8},
        {"yolov8_obb", make_yolov8_obb},
        {"yolox", make_yolox},
        {"yunet", make_yunet},
    };
    return table;
}

std::string join(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::vector<std::string> parts;
    for (std::int64_t extent : shape) parts.push_back(extent < 0 ? "any" : std::to_string(extent));
    return "[" + join(parts) + "]";
}

}  // namespace

std::size_t TensorView::size() const {
    std::size_t n = 1;
    for (std::int64_t extent : shape) n *= static_cast<std::size_t>(extent);
    return n;
}

std::string TensorView::describe() const { return "`" + name + "` " + shape_text(shape); }

void refuse(const std::string& kind, const std::string& what) { throw ArgumentError(kind + " head: " + what); }

std::vector<const TensorView*> find_tensors(const std::vector<TensorView>& tensors, const Options& options,
                                            const std::string& kind, const std::string& role, std::size_t first,
                                            std::size_t count) {
    std::vector<const TensorView*> found;
    const auto named = options.outputs.find(role);
    if (named == options.outputs.end()) {
        if (first + count > tensors.size())
            refuse(kind, "expected at least " + std::to_string(first + count) + " output tensors, found " +
                             std::to_string(tensors.size()) + "; name them in head.options.outputs." + role);
        for (std::size_t i = first; i < first + count; ++i) found.push_back(&tensors[i]);
        return found;
    }
    if (named->second.size() != count)
        refuse(kind, "head.options.outputs." + role + " names " + std::to_string(named->second.size()) +
                         " tensors, expected " + std::to_string(count));
    for (const std::string& name : named->second) {
        const auto it =
            std::find_if(tensors.begin(), tensors.end(), [&](const TensorView& t) { return t.name == name; });
        if (it == tensors.end()) {
            std::vector<std::string> names;
            for (const TensorView& t : tensors) names.push_back("`" + t.name + "`");
            refuse(kind, "the network has no output `" + name + "` (head.options.outputs." + role +
                             "); its outputs are " + join(names));
        }
        found.push_back(&*it);
    }
    return found;
}

void expect_shape(const TensorView& tensor, const std::string& kind, const std::vector<std::int64_t>& shape) {
    bool same = tensor.shape.size() == shape.size() && tensor.data != nullptr;
    for (std::size_t i = 0; same && i < shape.size(); ++i) same = shape[i] < 0 || shape[i] == tensor.shape[i];
    if (!same) refuse(kind, "output " + tensor.describe() + " does not fit, expected shape " + shape_text(shape));
}

std::vector<std::string> kinds() {
    std::vector<std::string> names;
    for (const auto& entry : factories()) names.push_back(entry.first);
    return names;
}

std::unique_ptr<Decoder> make_decoder(const std::string& kind, const Options& options, int input_width,
                                      int input_height) {
    const auto it = factories().find(kind);
    if (it == factories().end()) throw ArgumentError("unknown head kind `" + kind + "`; known kinds: " + join(kinds()));
    if (input_width <= 0 || input_height <= 0)
        refuse(kind,
               "input size " + std::to_string(input_width) + "x" + std::to_string(input_height) + " is not positive");
    for (int stride : options.strides)
        if (stride <= 0) refuse(kind, "stride " + std::to_string(stride) + " is not positive");
    return it->second(options, {input_width, input_height});
}

float intersection_over_union(const Detection& a, const Detection& b) {
    const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
    const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
    if (!(width > 0.0F) || !(height > 0.0F)) return 0.0F;
    const float both = width * height;
    const float either = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1) - both;
    return either > 0.0F ? both / either : 0.0F;
}

void select(std::vector<Detection>& detections, const Selection& selection) {
    std::vector<std::uint32_t> order(detections.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto better = [&](std::uint32_t a, std::uint32_t b) {
        return detections[a].score != detections[b].score ? detections[a].score > detections[b].score : a < b;
    };
    const std::size_t count = std::min(order.size(), selection.max_candidates);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), better);
    std::vector<Detection> kept;
    kept.reserve(std::min(count, selection.max_detections));
    for (std::size_t i = 0; i < count && kept.size() < selection.max_detections; ++i) {
        const Detection& candidate = detections[order[i]];
        bool suppressed = false;
        if (selection.overlap == Overlap::kGaussians)
            suppressed = std::any_of(
                order.begin(), order.begin() + static_cast<std::ptrdiff_t>(i), [&](std::uint32_t better_one) {
                    const Detection& k = detections[better_one];
                    return k.label == candidate.label && gaussian_overlap(k, candidate) >= selection.nms_threshold;
                });
        else
            suppressed = std::any_of(kept.begin(), kept.end(), [&](const Detection& k) {
                if (k.label != candidate.label) return false;
                const float overlap = selection.overlap == Overlap::kCorners
                                          ? oriented_intersection_over_union(k, candidate)
                                          : intersection_over_union(k, candidate);
                return overlap > selection.nms_threshold;
            });
        if (!suppressed) kept.push_back(candidate);
    }
    detections.swap(kept);
}

void map_to_image(std::vector<Detection>& detections, const Geometry& g, bool clip) {
    if (!(g.scale_x > 0.0F) || !(g.scale_y > 0.0F)) throw ArgumentError("map_to_image: scale must be positive");
    const auto x_of = [&](float x) { return (x - g.pad_x) / g.scale_x; };
    const auto y_of = [&](float y) { return (y - g.pad_y) / g.scale_y; };
    const auto limit = [&](float value, float high) { return clip ? std::clamp(value, 0.0F, high) : value; };
    for (Detection& d : detections) {
        d.x1 = limit(x_of(d.x1), g.image_width);
        d.x2 = limit(x_of(d.x2), g.image_width);
        d.y1 = limit(y_of(d.y1), g.image_height);
        d.y2 = limit(y_of(d.y2), g.image_height);
        for (int k = 0; k < d.keypoint_count; ++k) {
            d.keypoints[2 * k] = x_of(d.keypoints[2 * k]);
            d.keypoints[2 * k + 1] = y_of(d.keypoints[2 * k + 1]);
        }
    }
}

}  // namespace npuforge::heads
