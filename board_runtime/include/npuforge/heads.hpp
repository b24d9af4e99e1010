// Detection heads: a network's float output tensors become detections. Owns decoding, class-aware NMS and the way back
// to the original image. Boxes are in pixels of the network's input until `map_to_image`. What each kind expects is in
// docs/heads.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "npuforge/json.hpp"

namespace npuforge::heads {

constexpr int kMaxKeypoints = 6;

/// One float32 output tensor as ONNX gives it (N = 1), row-major. `data` is borrowed.
struct TensorView {
    std::string name;
    const float* data = nullptr;
    std::vector<std::int64_t> shape;

    std::size_t size() const;
    std::string describe() const;  ///< `name [1, 85, 22, 22]`, for messages
};

struct Detection {
    float x1 = 0, y1 = 0, x2 = 0, y2 = 0;
    float score = 0;
    std::int32_t label = 0;
    std::int32_t keypoint_count = 0;
    std::array<float, 2 * kMaxKeypoints> keypoints{};  ///< x, y alternating
};

/// What a kind needs to know. Fields that a kind does not use keep their default. Empty lists mean: the kind's default.
struct Options {
    std::map<std::string, std::vector<std::string>>
        outputs;  ///< role -> tensor names; a missing role takes tensors by position
    std::vector<int> strides;
    std::vector<std::vector<std::array<float, 2>>> anchors;  ///< darknet: width and height in input pixels, per map
    std::vector<float> scale_x_y;                            ///< darknet: per map, 1 where empty
    std::vector<std::vector<float>> min_boxes;               ///< ultraface: prior sizes in input pixels, per stride
    std::vector<int> anchors_per_cell;                       ///< blazeface
    float objectness_power = 0.6F;                           ///< fastestdet
    float class_power = 0.4F;                                ///< fastestdet
    float center_variance = 0.1F;                            ///< ultraface
    float size_variance = 0.2F;                              ///< ultraface
    bool decoded = false;                                    ///< ultraface: boxes are already relative corners
    bool multi_label = true;  ///< every class of a box above the threshold, else the best one only
};

/// The option names that `kind` understands.
std::vector<std::string> option_names(const std::string& kind);

/// Options from the preprocessing record's `head.options`. ArgumentError names an unknown option, the legal ones, or a
/// wrong type.
Options parse_options(const std::string& kind, const json::Value& value);

/// Score threshold (strictly above), NMS IoU (strictly above is suppressed) and the two limits.
struct Selection {
    float score_threshold = 0.3F;
    float nms_threshold = 0.5F;
    std::size_t max_candidates = 3000;
    std::size_t max_detections = 100;
};

/// How the image was put into the network's input: input pixel = image pixel * scale + pad.
struct Geometry {
    float scale_x = 1, scale_y = 1;
    float pad_x = 0, pad_y = 0;
    float image_width = 0, image_height = 0;
};

/// Decodes one kind of head. Immutable after construction: any number of threads may share it.
class Decoder {
  public:
    virtual ~Decoder() = default;
    /// Appends every candidate with score > threshold, in the order of cells and classes. Boxes that are not finite are
    /// dropped.
    virtual void decode(const std::vector<TensorView>& tensors, float threshold, std::vector<Detection>& out) const = 0;
};

/// `kind` is one of `kinds()`. Throws ArgumentError for an unknown kind or options that do not fit together.
std::unique_ptr<Decoder> make_decoder(const std::string& kind, const Options& options, int input_width,
                                      int input_height);

/// The kinds in alphabetical order.
std::vector<std::string> kinds();

float intersection_over_union(const Detection& a, const Detection& b);

/// Keeps the best `max_candidates`, best first (equal scores: earlier first), then greedy NMS within each class, then
/// `max_detections`. `detections` is replaced by what is kept, best first.
void select(std::vector<Detection>& detections, const Selection& selection);

/// Network input pixels -> original image pixels; boxes (not keypoints) are clipped to the image with `clip`.
void map_to_image(std::vector<Detection>& detections, const Geometry& geometry, bool clip = true);

}  // namespace npuforge::heads
