// Fields of the meta section, checked while they are read.
#include "meta_fields.hpp"

#include <algorithm>
#include <set>

namespace npuforge::meta_fields {

void fail(const std::string& where, const std::string& message) { throw FormatError("meta." + where + ": " + message); }

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    return count;
}

std::vector<std::int64_t> parse_shape(const json::Value& value, const std::string& where, bool open) {
    const auto shape = value.integers("meta." + where);
    if (shape.size() > 8) fail(where, "at most 8 dimensions, found " + std::to_string(shape.size()));
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) {
        if (dim == -1 && open) continue;
        if (dim < 0 || dim > kMaxBytes)
            fail(where, "dimension expected 0.." + std::to_string(kMaxBytes) + ", found " + std::to_string(dim));
        count *= dim;
        if (count > kMaxBytes) fail(where, "more than " + std::to_string(kMaxBytes) + " elements");
    }
    return shape;
}

std::size_t check_lanes(const std::vector<std::int32_t>& lanes, std::size_t lane_count, std::size_t pixel_stride,
                        const std::string& where) {
    std::int32_t highest = -1;
    std::set<std::int32_t> seen;
    for (const std::int32_t lane : lanes) {
        if (lane < 0 || lane > kMaxDim)
            fail(where, "lane expected 0.." + std::to_string(kMaxDim) + ", found " + std::to_string(lane));
        if (!seen.insert(lane).second) fail(where, "lane " + std::to_string(lane) + " is used by two channels");
        highest = std::max(highest, lane);
    }
    const auto needed = static_cast<std::size_t>(highest + 1);
    if (lane_count == 0) {
        lane_count = (needed + 15) / 16 * 16;
        if (pixel_stride > 0) lane_count = std::max(needed, std::min(lane_count, pixel_stride));
    }
    if (lane_count < needed)
        fail(where,
             "lane_count " + std::to_string(lane_count) + " is below the highest lane " + std::to_string(highest));
    return lane_count;
}

void check_region(std::size_t address, int h, int w, std::size_t row_stride, std::size_t pixel_stride,
                  std::size_t lanes, std::size_t limit, const std::string& where, const char* what) {
    if (h <= 0 || w <= 0) return;
    const std::size_t end =
        address + static_cast<std::size_t>(h - 1) * row_stride + static_cast<std::size_t>(w - 1) * pixel_stride + lanes;
    if (end > limit)
        fail(where, "ends at byte " + std::to_string(end) + ", the " + what + " has " + std::to_string(limit));
}

bool parse_bf16(const json::Value& object, const std::string& where) {
    const json::Value* dtype = object.find("dtype");
    if (dtype == nullptr) return false;
    const std::string& text = dtype->as_string("meta." + where + ".dtype");
    if (text != "int8" && text != "bf16") fail(where + ".dtype", "expected int8 or bf16, found " + text);
    return text == "bf16";
}

std::vector<std::int32_t> parse_int32(const json::Value& value, const std::string& where) {
    std::vector<std::int32_t> out;
    for (const json::Value& item : value.as_array("meta." + where))
        out.push_back(static_cast<std::int32_t>(item.as_integer("meta." + where, -0x80000000ll, 0x7fffffffll)));
    return out;
}

std::size_t size_at(const json::Value& object, const char* key, const std::string& where) {
    return static_cast<std::size_t>(
        object.at(key, "meta." + where).as_integer("meta." + where + "." + key, 0, kMaxBytes));
}

int int_at(const json::Value& object, const char* key, const std::string& where) {
    return static_cast<int>(object.at(key, "meta." + where).as_integer("meta." + where + "." + key, 0, kMaxDim));
}

}  // namespace npuforge::meta_fields
