// Fields of the meta section, checked while they are read: shapes, lanes, addresses, numbers. Errors are FormatErrors
// that name the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "npuforge/program.hpp"

namespace npuforge::meta_fields {

inline constexpr std::int64_t kMaxDim = 1 << 20;
inline constexpr std::int64_t kMaxBytes = 0xFFFFFFFFll;

[[noreturn]] void fail(const std::string& where, const std::string& message);
std::int64_t count_of(const std::vector<std::int64_t>& shape);
// `open`: a dimension may be -1 (boxes that survive in-graph NMS).
std::vector<std::int64_t> parse_shape(const json::Value& value, const std::string& where, bool open);
// Lanes: distinct, none negative; `lane_count` of 0 means up to the end of the last block used, but not past the pixel.
std::size_t check_lanes(const std::vector<std::int32_t>& lanes, std::size_t lane_count, std::size_t pixel_stride,
                        const std::string& where);
void check_region(std::size_t address, int h, int w, std::size_t row_stride, std::size_t pixel_stride,
                  std::size_t lanes, std::size_t limit, const std::string& where, const char* what);
// Whether the lanes of a tensor or trace point are bf16; int8 where nothing is said.
bool parse_bf16(const json::Value& object, const std::string& where);
std::vector<std::int32_t> parse_int32(const json::Value& value, const std::string& where);
std::size_t size_at(const json::Value& object, const char* key, const std::string& where);
int int_at(const json::Value& object, const char* key, const std::string& where);

}  // namespace npuforge::meta_fields
