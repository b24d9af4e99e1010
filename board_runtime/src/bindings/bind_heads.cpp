// Python binding of the detection heads: submodule `heads` with Decoder, select, map_to_image and kinds. Detections are
// float32 rows [x1, y1, x2, y2, score, class, keypoint x, keypoint y, ...].
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "npuforge/device.hpp"
#include "npuforge/heads.hpp"
#include "npuforge/json.hpp"

namespace py = pybind11;

namespace npuforge {
namespace {

using FloatArray = py::array_t<float, py::array::c_style>;
using heads::Detection;

constexpr float kNever = std::numeric_limits<float>::infinity();  // an overlap that no two boxes have

FloatArray to_array(const std::vector<Detection>& detections) {
    int keypoints = 0;
    for (const Detection& d : detections) keypoints = std::max(keypoints, static_cast<int>(d.keypoint_count));
    const py::ssize_t columns = 6 + 2 * keypoints;
    FloatArray array({static_cast<py::ssize_t>(detections.size()), columns});
    float* row = array.mutable_data();
    for (const Detection& d : detections) {
        const float head[6] = {d.x1, d.y1, d.x2, d.y2, d.score, static_cast<float>(d.label)};
        std::copy(head, head + 6, row);
        std::copy(d.keypoints.begin(), d.keypoints.begin() + 2 * keypoints, row + 6);
        row += columns;
    }
    return array;
}

std::vector<Detection> from_array(const FloatArray& array) {
    if (array.ndim() != 2 || array.shape(1) < 6 || array.shape(1) % 2 != 0 ||
        array.shape(1) > 6 + 2 * heads::kMaxKeypoints)
        throw ArgumentError("detections must be [N, 6 + 2 * keypoints] with at most " +
                            std::to_string(heads::kMaxKeypoints) + " keypoints");
    std::vector<Detection> detections(static_cast<std::size_t>(array.shape(0)));
    const float* row = array.data();
    for (Detection& d : detections) {
        if (!std::all_of(row, row + 6, [](float v) { return std::isfinite(v); }) || std::fabs(row[5]) > 16777216.0F)
            throw ArgumentError("detections: row " + std::to_string(&d - detections.data()) +
                                " holds a value that is not finite, or a class beyond 2^24");
        d.x1 = row[0], d.y1 = row[1], d.x2 = row[2], d.y2 = row[3], d.score = row[4];
        d.label = static_cast<std::int32_t>(row[5]);
        d.keypoint_count = static_cast<std::int32_t>((array.shape(1) - 6) / 2);
        std::copy(row + 6, row + array.shape(1), d.keypoints.begin());
        row += array.shape(1);
    }
    return detections;
}

std::vector<heads::TensorView> views_of(const std::vector<std::pair<std::string, FloatArray>>& tensors) {
    std::vector<heads::TensorView> views;
    for (const auto& [name, array] : tensors) {
        heads::TensorView view{name, array.data(), {}};
        for (py::ssize_t i = 0; i < array.ndim(); ++i) view.shape.push_back(array.shape(i));
        views.push_back(std::move(view));
    }
    return views;
}

heads::Overlap overlap_from(const std::string& name) {
    if (name == "boxes") return heads::Overlap::kBoxes;
    if (name == "corners") return heads::Overlap::kCorners;
    if (name == "gaussians") return heads::Overlap::kGaussians;
    throw ArgumentError("overlap `" + name + "` is not legal, expected one of boxes, corners, gaussians");
}

heads::Geometry geometry_from(const std::array<float, 6>& g) { return {g[0], g[1], g[2], g[3], g[4], g[5]}; }

}  // namespace
}  // namespace npuforge

void bind_heads(py::module_& module) {
    using namespace npuforge;
    py::module_ sub =
        module.def_submodule("heads", "Detection heads: decode, class-aware NMS, back to the original image.");
    sub.def("kinds", &heads::kinds, "The head kinds in alphabetical order.");
    sub.def("option_names", &heads::option_names, py::arg("kind"), "The options that a kind understands.");
    py::class_<heads::Decoder>(sub, "Decoder")
        .def(py::init([](const std::string& kind, const std::string& options, int width, int height) {
                 return heads::make_decoder(kind, heads::parse_options(kind, json::parse(options, "head options")),
                                            width, height);
             }),
             py::arg("kind"), py::arg("options"), py::arg("input_width"), py::arg("input_height"))
        .def_property_readonly("oriented", &heads::Decoder::oriented, "Keypoints 0..3 are the box's corners.")
        .def(
            "decode",
            [](const heads::Decoder& decoder, const std::vector<std::pair<std::string, FloatArray>>& tensors,
               float threshold) {
                const auto views = views_of(tensors);
                std::vector<Detection> detections;
                {
                    py::gil_scoped_release release;
                    decoder.decode(views, threshold, detections);
                }
                return to_array(detections);
            },
            py::arg("tensors"), py::arg("threshold"),
            "Candidates above the threshold, in input pixels; `tensors` is [(name, float32 array)].")
        .def(
            "detect",
            [](const heads::Decoder& decoder, const std::vector<std::pair<std::string, FloatArray>>& tensors,
               float score_threshold, float nms_threshold, std::size_t max_candidates, std::size_t max_detections,
               const std::optional<std::array<float, 6>>& geometry, bool clip) {
                const auto views = views_of(tensors);
                std::vector<Detection> detections;
                {
                    py::gil_scoped_release release;
                    decoder.decode(views, score_threshold, detections);
                    heads::select(detections, {score_threshold, decoder.selected() ? kNever : nms_threshold,
                                               max_candidates, max_detections, decoder.overlap()});
                    if (geometry) heads::map_to_image(detections, geometry_from(*geometry), clip);
                }
                return to_array(detections);
            },
            py::arg("tensors"), py::arg("score_threshold"), py::arg("nms_threshold"), py::arg("max_candidates") = 3000,
            py::arg("max_detections") = 100, py::arg("geometry") = py::none(), py::arg("clip") = true,
            "Decode, select and, with geometry (scale_x, scale_y, pad_x, pad_y, image_width, image_height), map to the "
            "image.");
    sub.def(
        "select",
        [](const FloatArray& array, float nms_threshold, std::size_t max_candidates, std::size_t max_detections,
           const std::string& overlap) {
            std::vector<Detection> detections = from_array(array);
            const heads::Overlap kind = overlap_from(overlap);
            if (kind != heads::Overlap::kBoxes && array.shape(1) < 14)
                throw ArgumentError("oriented detections must be [N, 6 + 8] with the four corners as keypoints");
            heads::select(detections, {0.0F, nms_threshold, max_candidates, max_detections, kind});
            return to_array(detections);
        },
        py::arg("detections"), py::arg("nms_threshold"), py::arg("max_candidates") = 3000,
        py::arg("max_detections") = 100, py::arg("overlap") = "boxes",
        "Best first: the best max_candidates, class-aware NMS, at most max_detections.");
    sub.def(
        "map_to_image",
        [](const FloatArray& array, const std::array<float, 6>& geometry, bool clip) {
            std::vector<Detection> detections = from_array(array);
            heads::map_to_image(detections, geometry_from(geometry), clip);
            return to_array(detections);
        },
        py::arg("detections"), py::arg("geometry"), py::arg("clip") = true,
        "Input pixels to image pixels; boxes are clipped to the image with clip.");
}
