// Detection heads: a network's float output tensors become detections. Owns decoding, class-aware NMS and the way back
// to the original image. Boxes are in pixels of the network's input until `map_to_image`. What each kind expects is in
// docs/heads.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
    std::array<float, 2 * kMaxKeypoints> keypoints{};  ///< x, y alternating; of an oriented box: its four corners
};

/// What the head still has to apply to the network's scores.
enum class Activation { kNone, kSigmoid, kSoftmax };

/// How four numbers say a box: x1 y1 x2 y2; y1 x1 y2 x2; centre and size; top left corner and size.
enum class BoxFormat { kCorners, kCornersYx, kCenter, kTopLeft };

/// Where the scores hold the class that means "nothing".
enum class Background { kNone, kFirst, kLast };

/// What a kind needs to know. Fields that a kind does not use keep their default; an empty list or optional means: the
/// kind's default.
struct Options {
    std::map<std::string, std::vector<std::string>>
        outputs;  ///< role -> tensor names; a missing role takes tensors by position
    std::vector<int> strides;
    std::vector<std::vector<std::array<float, 2>>>
        anchors;                                    ///< width and height per map; yolov2: in cells, else pixels
    std::vector<float> scale_x_y;                   ///< darknet, yolov5: per map
    std::vector<std::vector<float>> min_boxes;      ///< priors: sizes in input pixels, per stride
    std::vector<std::vector<float>> max_boxes;      ///< ssd: one per min_box
    std::vector<std::vector<float>> aspect_ratios;  ///< ssd: per stride, besides 1; each also as 1/ratio
    std::vector<int> anchors_per_cell;              ///< blazeface, scrfd
    std::vector<std::string> columns;               ///< detections: what each value of a row is
    std::optional<Activation> activation;
    std::optional<BoxFormat> box_format;
    std::optional<Background> background;
    std::optional<float> cell_offset;  ///< nanodet family: where in its cell a distance starts, in cells
    std::optional<int> bins;           ///< values of one distance's distribution
    float objectness_power = 0.6F;     ///< fastestdet
    float class_power = 0.4F;          ///< fastestdet
    float center_variance = 0.1F;      ///< priors
    float size_variance = 0.2F;        ///< priors
    float map_threshold = 0.3F;        ///< db_text: a pixel above it is text
    float unclip_ratio = 1.5F;         ///< db_text: growth of a box, times area / perimeter
    float smallest_side = 3.0F;        ///< db_text: in map pixels, before growing
    bool decoded = false;              ///< ultraface: boxes are already relative corners
    bool relative = false;             ///< boxes are fractions of the input
    bool objectness = true;            ///< yolo_rows: a row is box, objectness, classes
    bool angle = false;                ///< yolo_rows: the last value of a row is an angle in radians
    bool multi_label = true;           ///< every class of a box above the threshold, else the best one only
};

/// The option names that `kind` understands.
std::vector<std::string> option_names(const std::string& kind);

/// Options from the preprocessing record's `head.options`. ArgumentError names an unknown option, the legal ones, or a
/// wrong type.
Options parse_options(const std::string& kind, const json::Value& value);

/// What NMS compares: the upright boxes; the boxes' corners (keypoints 0..3); or the Gaussians that spread as the
/// oriented boxes do (ProbIoU), where, as the authors of YOLOv8-OBB do it, every better box suppresses, kept or not,
/// and the threshold itself too.
enum class Overlap { kBoxes, kCorners, kGaussians };

/// Score threshold (strictly above), NMS IoU (strictly above is suppressed) and the two limits.
struct Selection {
    float score_threshold = 0.3F;
    float nms_threshold = 0.5F;
    std::size_t max_candidates = 3000;
    std::size_t max_detections = 100;
    Overlap overlap = Overlap::kBoxes;
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
    /// Boxes are oriented: keypoints 0..3 of every detection are its corners, in order around it.
    virtual bool oriented() const { return false; }
    /// The network (or the decoding itself) has chosen already: no NMS.
    virtual bool selected() const { return false; }
    /// What NMS compares.
    virtual Overlap overlap() const { return oriented() ? Overlap::kGaussians : Overlap::kBoxes; }
};

/// `kind` is one of `kinds()`. Throws ArgumentError for an unknown kind or options that do not fit together.
std::unique_ptr<Decoder> make_decoder(const std::string& kind, const Options& options, int input_width,
                                      int input_height);

/// The kinds in alphabetical order.
std::vector<std::string> kinds();

float intersection_over_union(const Detection& a, const Detection& b);

/// Of the convex quadrilaterals given by keypoints 0..3; 0 where both are empty.
float oriented_intersection_over_union(const Detection& a, const Detection& b);

/// ProbIoU (Llerena et al., 2021) of the rectangles given by keypoints 0..3: 1 - Hellinger distance of the Gaussians
/// with the rectangles' means and covariances. Constants against division by zero as in ultralytics/utils/metrics.py.
float gaussian_overlap(const Detection& a, const Detection& b);

/// Keeps the best `max_candidates`, best first (equal scores: earlier first), then NMS within each class (greedy, but
/// see `Overlap`), then `max_detections`. `detections` is replaced by what is kept, best first.
void select(std::vector<Detection>& detections, const Selection& selection);

/// Network input pixels -> original image pixels; boxes (not keypoints) are clipped to the image with `clip`.
void map_to_image(std::vector<Detection>& detections, const Geometry& geometry, bool clip = true);

}  // namespace npuforge::heads
