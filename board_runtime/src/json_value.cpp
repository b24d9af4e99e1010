// Typed access to JSON values, with the path in every message, and canonical text.
#include <cstdio>

#include "npuforge/json.hpp"

namespace npuforge::json {
namespace {

[[noreturn]] void wrong_type(std::string_view where, const char* expected, const Value& value) {
    throw FormatError(std::string(where) + ": expected " + expected + ", found " + value.type_name());
}

}  // namespace

const char* Value::type_name() const {
    static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "a number",
                                             "a string", "an array",  "an object"};
    return kNames[data_.index()];
}

bool Value::as_bool(std::string_view where) const {
    if (!is_bool()) wrong_type(where, "a boolean", *this);
    return std::get<bool>(data_);
}

std::int64_t Value::as_integer(std::string_view where) const {
    if (!is_integer()) wrong_type(where, "an integer", *this);
    return std::get<std::int64_t>(data_);
}

std::int64_t Value::as_integer(std::string_view where, std::int64_t low, std::int64_t high) const {
    const std::int64_t value = as_integer(where);
    if (value < low || value > high)
        throw FormatError(std::string(where) + ": expected " + std::to_string(low) + ".." + std::to_string(high) +
                          ", found " + std::to_string(value));
    return value;
}

double Value::as_number(std::string_view where) const {
    if (is_integer()) return static_cast<double>(std::get<std::int64_t>(data_));
    if (!is_number()) wrong_type(where, "a number", *this);
    return std::get<double>(data_);
}

const std::string& Value::as_string(std::string_view where) const {
    if (!is_string()) wrong_type(where, "a string", *this);
    return std::get<std::string>(data_);
}

const Array& Value::as_array(std::string_view where) const {
    if (!is_array()) wrong_type(where, "an array", *this);
    return std::get<Array>(data_);
}

const Object& Value::as_object(std::string_view where) const {
    if (!is_object()) wrong_type(where, "an object", *this);
    return std::get<Object>(data_);
}

const Value* Value::find(std::string_view key) const {
    if (!is_object()) return nullptr;
    const auto& object = std::get<Object>(data_);
    const auto it = object.find(key);
    return it == object.end() || it->second.is_null() ? nullptr : &it->second;
}

const Value& Value::at(std::string_view key, std::string_view where) const {
    const auto& object = as_object(where);
    const auto it = object.find(key);
    if (it == object.end()) throw FormatError(std::string(where) + ": the key '" + std::string(key) + "' is missing");
    return it->second;
}

std::vector<std::int64_t> Value::integers(std::string_view where) const {
    std::vector<std::int64_t> out;
    for (const Value& item : as_array(where)) out.push_back(item.as_integer(where));
    return out;
}

std::vector<double> Value::numbers(std::string_view where) const {
    std::vector<double> out;
    for (const Value& item : as_array(where)) out.push_back(item.as_number(where));
    return out;
}

std::vector<std::string> Value::strings(std::string_view where) const {
    std::vector<std::string> out;
    for (const Value& item : as_array(where)) out.push_back(item.as_string(where));
    return out;
}

std::string Value::text() const {
    if (is_null()) return "null";
    if (is_bool()) return std::get<bool>(data_) ? "true" : "false";
    if (is_integer()) return std::to_string(std::get<std::int64_t>(data_));
    if (is_number()) {
        char buffer[32];
        std::snprintf(buffer, sizeof buffer, "%.17g", std::get<double>(data_));
        return buffer;
    }
    if (is_string()) return quote(std::get<std::string>(data_));
    std::string out;
    if (is_array()) {
        for (const Value& item : std::get<Array>(data_)) out += (out.empty() ? "" : ",") + item.text();
        return "[" + out + "]";
    }
    for (const auto& [key, value] : std::get<Object>(data_))
        out += (out.empty() ? "" : ",") + quote(key) + ":" + value.text();
    return "{" + out + "}";
}

std::string quote(std::string_view text) {
    static constexpr std::string_view kFrom = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kTo = "\"\\bfnrt";
    std::string out = "\"";
    const auto escape = [&out](unsigned code) {
        char buffer[8];
        std::snprintf(buffer, sizeof buffer, "\\u%04x", code & 0xFFFFu);
        out += buffer;
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const std::size_t simple = kFrom.find(text[i]);
        if (simple != std::string_view::npos) {
            out += '\\';
            out += kTo[simple];
        } else if (byte < 0x20) {
            escape(byte);
        } else if (byte < 0x80) {
            out += text[i];
        } else {  // UTF-8 to \uXXXX, so that the text is plain ASCII (what Python's json writes)
            const std::size_t extra = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
            unsigned code = byte & (0x3Fu >> extra);
            for (std::size_t j = 0; j < extra && i + 1 < text.size(); ++j)
                code = code << 6 | (static_cast<unsigned char>(text[++i]) & 0x3Fu);
            if (code >= 0x10000) {
                escape(0xD800 + ((code - 0x10000) >> 10));
                code = 0xDC00 + ((code - 0x10000) & 0x3FF);
            }
            escape(code);
        }
    }
    return out + "\"";
}

}  // namespace npuforge::json
