// Reads a head's options from the preprocessing record's JSON. The one place that knows their names and types.
#include <limits>
#include <utility>

#include "npuforge/device.hpp"
#include "npuforge/heads.hpp"
#include "npuforge/json.hpp"

namespace npuforge::heads {
namespace {

using json::Value;

std::vector<float> floats(const Value& value, const std::string& where) {
    std::vector<float> list;
    for (double x : value.numbers(where)) list.push_back(static_cast<float>(x));
    return list;
}

std::vector<std::vector<float>> float_lists(const Value& value, const std::string& where) {
    std::vector<std::vector<float>> lists;
    for (const Value& list : value.as_array(where)) lists.push_back(floats(list, where));
    return lists;
}

/// One of a few words.
template <typename T>
T word(const Value& value, const std::string& where, const std::vector<std::pair<std::string, T>>& legal) {
    const std::string& found = value.as_string(where);
    std::string names;
    for (const auto& [name, meaning] : legal) {
        if (name == found) return meaning;
        names += (names.empty() ? "" : ", ") + name;
    }
    throw ArgumentError(where + ": `" + found + "` is not legal, expected one of " + names);
}

std::vector<int> ints(const Value& value, const std::string& where) {
    std::vector<int> list;
    for (const Value& item : value.as_array(where))
        list.push_back(static_cast<int>(item.as_integer(where, 0, std::numeric_limits<int>::max())));
    return list;
}

std::map<std::string, std::vector<std::string>> outputs(const Value& value, const std::string& where) {
    std::map<std::string, std::vector<std::string>> roles;
    for (const auto& [role, names] : value.as_object(where)) {
        const std::string place = where + "." + role;
        roles[role] = names.is_string() ? std::vector<std::string>{names.as_string(place)} : names.strings(place);
    }
    return roles;
}

std::vector<std::vector<std::array<float, 2>>> anchors(const Value& value, const std::string& where) {
    std::vector<std::vector<std::array<float, 2>>> maps;
    for (const Value& map : value.as_array(where)) {
        maps.emplace_back();
        for (const Value& pair : map.as_array(where)) {
            const std::vector<float> size = floats(pair, where);
            if (size.size() != 2 || !(size[0] > 0.0F) || !(size[1] > 0.0F))
                throw ArgumentError(where + ": an anchor must be [width, height], both positive, found " + pair.text());
            maps.back().push_back({size[0], size[1]});
        }
    }
    return maps;
}

using Read = void (*)(Options&, const Value&, const std::string&);

template <float Options::* field>
void read_float(Options& o, const Value& v, const std::string& w) {
    o.*field = static_cast<float>(v.as_number(w));
}
template <bool Options::* field>
void read_bool(Options& o, const Value& v, const std::string& w) {
    o.*field = v.as_bool(w);
}
template <std::vector<int> Options::* field>
void read_ints(Options& o, const Value& v, const std::string& w) {
    o.*field = ints(v, w);
}
template <std::vector<std::vector<float>> Options::* field>
void read_float_lists(Options& o, const Value& v, const std::string& w) {
    o.*field = float_lists(v, w);
}
void read_activation(Options& o, const Value& v, const std::string& w) {
    o.activation = word<Activation>(
        v, w, {{"none", Activation::kNone}, {"sigmoid", Activation::kSigmoid}, {"softmax", Activation::kSoftmax}});
}
void read_box_format(Options& o, const Value& v, const std::string& w) {
    o.box_format = word<BoxFormat>(v, w,
                                   {{"corners", BoxFormat::kCorners},
                                    {"corners_yx", BoxFormat::kCornersYx},
                                    {"center", BoxFormat::kCenter},
                                    {"top_left", BoxFormat::kTopLeft}});
}
void read_background(Options& o, const Value& v, const std::string& w) {
    o.background = word<Background>(
        v, w, {{"none", Background::kNone}, {"first", Background::kFirst}, {"last", Background::kLast}});
}

const std::map<std::string, Read>& readers() {
    static const std::map<std::string, Read> table = {
        {"activation", read_activation},
        {"anchors", [](Options& o, const Value& v, const std::string& w) { o.anchors = anchors(v, w); }},
        {"anchors_per_cell", read_ints<&Options::anchors_per_cell>},
        {"angle", read_bool<&Options::angle>},
        {"aspect_ratios", read_float_lists<&Options::aspect_ratios>},
        {"background", read_background},
        {"bins",
         [](Options& o, const Value& v, const std::string& w) { o.bins = static_cast<int>(v.as_integer(w, 1, 1024)); }},
        {"box_format", read_box_format},
        {"cell_offset",
         [](Options& o, const Value& v, const std::string& w) { o.cell_offset = static_cast<float>(v.as_number(w)); }},
        {"center_variance", read_float<&Options::center_variance>},
        {"class_power", read_float<&Options::class_power>},
        {"columns", [](Options& o, const Value& v, const std::string& w) { o.columns = v.strings(w); }},
        {"decoded", read_bool<&Options::decoded>},
        {"map_threshold", read_float<&Options::map_threshold>},
        {"max_boxes", read_float_lists<&Options::max_boxes>},
        {"min_boxes", read_float_lists<&Options::min_boxes>},
        {"multi_label", read_bool<&Options::multi_label>},
        {"objectness", read_bool<&Options::objectness>},
        {"objectness_power", read_float<&Options::objectness_power>},
        {"outputs", [](Options& o, const Value& v, const std::string& w) { o.outputs = outputs(v, w); }},
        {"relative", read_bool<&Options::relative>},
        {"scale_x_y", [](Options& o, const Value& v, const std::string& w) { o.scale_x_y = floats(v, w); }},
        {"size_variance", read_float<&Options::size_variance>},
        {"smallest_side", read_float<&Options::smallest_side>},
        {"strides", read_ints<&Options::strides>},
        {"unclip_ratio", read_float<&Options::unclip_ratio>},
    };
    return table;
}

/// The options each kind understands, besides `outputs`.
const std::map<std::string, std::vector<std::string>>& options_of_kinds() {
    static const std::map<std::string, std::vector<std::string>> table = {
        {"blazeface", {"strides", "anchors_per_cell"}},
        {"boxes", {"activation", "background", "box_format", "relative", "multi_label"}},
        {"centernet", {"strides", "activation"}},
        {"darknet", {"strides", "anchors", "scale_x_y", "activation", "multi_label"}},
        {"db_text", {"map_threshold", "unclip_ratio", "smallest_side"}},
        {"detections", {"columns", "box_format", "relative"}},
        {"fastestdet", {"objectness_power", "class_power", "multi_label"}},
        {"nanodet", {"strides", "cell_offset", "multi_label"}},
        {"nanodet_plus", {"strides", "bins", "cell_offset", "multi_label"}},
        {"picodet", {"strides", "cell_offset", "multi_label"}},
        {"retinaface", {"strides", "min_boxes", "center_variance", "size_variance", "activation"}},
        {"scrfd", {"strides", "anchors_per_cell"}},
        {"ssd",
         {"strides", "anchors", "min_boxes", "max_boxes", "aspect_ratios", "center_variance", "size_variance",
          "activation", "background", "multi_label"}},
        {"ultraface", {"strides", "min_boxes", "center_variance", "size_variance", "decoded"}},
        {"yolo_fastest_v2", {"strides", "anchors", "multi_label"}},
        {"yolo_rows", {"objectness", "angle", "box_format", "relative", "multi_label"}},
        {"yolodecode", {}},
        {"yolov2", {"strides", "anchors", "multi_label"}},
        {"yolov5", {"strides", "anchors", "scale_x_y", "activation", "multi_label"}},
        {"yolov8", {"strides", "bins", "activation", "multi_label"}},
        {"yolov8_obb", {"strides", "bins", "activation", "multi_label"}},
        {"yolox", {"strides", "multi_label"}},
        {"yunet", {"strides"}},
    };
    return table;
}

}  // namespace

std::vector<std::string> option_names(const std::string& kind) {
    std::vector<std::string> names = {"outputs"};
    const auto it = options_of_kinds().find(kind);
    if (it == options_of_kinds().end()) throw ArgumentError("unknown head kind `" + kind + "`");
    names.insert(names.end(), it->second.begin(), it->second.end());
    return names;
}

Options parse_options(const std::string& kind, const json::Value& value) {
    const std::vector<std::string> legal = option_names(kind);
    Options options;
    try {
        for (const auto& [key, item] : value.as_object("head.options")) {
            bool known = false;
            std::string names;
            for (const std::string& name : legal) {
                known = known || name == key;
                names += (names.empty() ? "" : ", ") + name;
            }
            if (!known) throw ArgumentError(kind + " head: unknown option `" + key + "`; legal options: " + names);
            readers().at(key)(options, item, "head.options." + key);
        }
    } catch (const FormatError& error) {  // a wrong type: the application's mistake, not a damaged file
        throw ArgumentError(kind + " head: " + error.what());
    }
    return options;
}

}  // namespace npuforge::heads
