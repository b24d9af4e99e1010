// Reads a head's options from the preprocessing record's JSON. The one place that knows their names and types.
#include <limits>

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

const std::map<std::string, Read>& readers() {
    static const std::map<std::string, Read> table = {
        {"outputs", [](Options& o, const Value& v, const std::string& w) { o.outputs = outputs(v, w); }},
        {"strides", [](Options& o, const Value& v, const std::string& w) { o.strides = ints(v, w); }},
        {"anchors", [](Options& o, const Value& v, const std::string& w) { o.anchors = anchors(v, w); }},
        {"scale_x_y", [](Options& o, const Value& v, const std::string& w) { o.scale_x_y = floats(v, w); }},
        {"min_boxes",
         [](Options& o, const Value& v, const std::string& w) {
             o.min_boxes.clear();
             for (const Value& list : v.as_array(w)) o.min_boxes.push_back(floats(list, w));
         }},
        {"anchors_per_cell", [](Options& o, const Value& v, const std::string& w) { o.anchors_per_cell = ints(v, w); }},
        {"objectness_power", [](Options& o, const Value& v,
                                const std::string& w) { o.objectness_power = static_cast<float>(v.as_number(w)); }},
        {"class_power",
         [](Options& o, const Value& v, const std::string& w) { o.class_power = static_cast<float>(v.as_number(w)); }},
        {"center_variance", [](Options& o, const Value& v,
                               const std::string& w) { o.center_variance = static_cast<float>(v.as_number(w)); }},
        {"size_variance", [](Options& o, const Value& v,
                             const std::string& w) { o.size_variance = static_cast<float>(v.as_number(w)); }},
        {"decoded", [](Options& o, const Value& v, const std::string& w) { o.decoded = v.as_bool(w); }},
        {"multi_label", [](Options& o, const Value& v, const std::string& w) { o.multi_label = v.as_bool(w); }},
    };
    return table;
}

/// The options each kind understands, besides `outputs`.
const std::map<std::string, std::vector<std::string>>& options_of_kinds() {
    static const std::map<std::string, std::vector<std::string>> table = {
        {"blazeface", {"strides", "anchors_per_cell"}},
        {"darknet", {"strides", "anchors", "scale_x_y", "multi_label"}},
        {"fastestdet", {"objectness_power", "class_power", "multi_label"}},
        {"nanodet", {"strides", "multi_label"}},
        {"ultraface", {"strides", "min_boxes", "center_variance", "size_variance", "decoded"}},
        {"yolodecode", {}},
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
