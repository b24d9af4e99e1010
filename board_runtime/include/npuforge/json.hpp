// A small strict JSON reader (RFC 8259): values, typed access with paths in the messages, and string escaping for the
// writers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "npuforge/device.hpp"

namespace npuforge::json {

class Value;
using Array = std::vector<Value>;
using Object = std::map<std::string, Value, std::less<>>;

/// One JSON value. Integers that fit int64 stay exact; every other number is a double.
class Value {
  public:
    Value() = default;
    explicit Value(bool value) : data_(value) {}
    explicit Value(std::int64_t value) : data_(value) {}
    explicit Value(double value) : data_(value) {}
    explicit Value(std::string value) : data_(std::move(value)) {}
    explicit Value(Array value) : data_(std::move(value)) {}
    explicit Value(Object value) : data_(std::move(value)) {}

    bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
    bool is_bool() const { return std::holds_alternative<bool>(data_); }
    bool is_integer() const { return std::holds_alternative<std::int64_t>(data_); }
    bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }
    bool is_string() const { return std::holds_alternative<std::string>(data_); }
    bool is_array() const { return std::holds_alternative<Array>(data_); }
    bool is_object() const { return std::holds_alternative<Object>(data_); }

    /// Typed access; `where` is the path named in the FormatError when the type is another one.
    bool as_bool(std::string_view where) const;
    std::int64_t as_integer(std::string_view where) const;
    /// An integer in [low, high].
    std::int64_t as_integer(std::string_view where, std::int64_t low, std::int64_t high) const;
    double as_number(std::string_view where) const;
    const std::string& as_string(std::string_view where) const;
    const Array& as_array(std::string_view where) const;
    const Object& as_object(std::string_view where) const;

    /// Member of an object: nullptr when absent or null.
    const Value* find(std::string_view key) const;
    /// Member of an object: FormatError naming `where` and the key when absent.
    const Value& at(std::string_view key, std::string_view where) const;

    /// Arrays of one type.
    std::vector<std::int64_t> integers(std::string_view where) const;
    std::vector<double> numbers(std::string_view where) const;
    std::vector<std::string> strings(std::string_view where) const;

    const char* type_name() const;
    /// Canonical text: no spaces, keys sorted, integers as written, doubles with 17 digits.
    std::string text() const;

  private:
    std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> data_;
};

/// Parses exactly one value. FormatError names the byte offset, what was expected and what was found. No recursion
/// beyond `max_depth`.
Value parse(std::string_view text, std::string_view what = "JSON", int max_depth = 64);

/// `text` as a quoted JSON string.
std::string quote(std::string_view text);

}  // namespace npuforge::json
