// The strict JSON reader: one pass, depth limit, UTF-8 checked, duplicate keys and numbers outside the grammar refused.
#include "npuforge/json.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace npuforge::json {
namespace {

class Parser {
  public:
    Parser(std::string_view text, std::string_view what, int max_depth)
        : text_(text), what_(what), depth_left_(max_depth) {}

    Value document() {
        Value value = parse_value();
        skip_space();
        if (pos_ != text_.size()) fail("end of text");
        return value;
    }

  private:
    [[noreturn]] void fail(const std::string& expected) const {
        std::string found = "end of text";
        if (pos_ < text_.size()) {
            char buffer[24];
            const auto byte = static_cast<unsigned char>(text_[pos_]);
            if (byte >= 0x20 && byte < 0x7f)
                std::snprintf(buffer, sizeof buffer, "'%c'", byte);
            else
                std::snprintf(buffer, sizeof buffer, "byte 0x%02x", byte);
            found = buffer;
        }
        throw FormatError(std::string(what_) + ", byte " + std::to_string(pos_) + ": expected " + expected +
                          ", found " + found);
    }

    void skip_space() {
        while (pos_ < text_.size() &&
               (text_[pos_] == ' ' || text_[pos_] == '\t' || text_[pos_] == '\n' || text_[pos_] == '\r'))
            ++pos_;
    }
    char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
    bool take(char c) {
        if (pos_ < text_.size() && text_[pos_] == c) {
            ++pos_;
            return true;
        }
        return false;
    }
    void take_word(std::string_view word) {
        if (text_.substr(pos_, word.size()) != word) fail("'" + std::string(word) + "'");
        pos_ += word.size();
    }

    Value parse_value() {
        skip_space();
        switch (peek()) {
            case '{':
                return parse_object();
            case '[':
                return parse_array();
            case '"':
                return Value(parse_string());
            case 't':
                take_word("true");
                return Value(true);
            case 'f':
                take_word("false");
                return Value(false);
            case 'n':
                take_word("null");
                return Value();
            default:
                return parse_number();
        }
    }

    void enter() {
        if (depth_left_ == 0) fail("less nesting");
        --depth_left_;
    }

    Value parse_object() {
        enter();
        ++pos_;
        Object object;
        skip_space();
        if (!take('}')) {
            do {
                skip_space();
                if (peek() != '"') fail("a string key");
                const std::size_t key_at = pos_;
                std::string key = parse_string();
                skip_space();
                if (!take(':')) fail("':'");
                Value value = parse_value();
                if (!object.emplace(std::move(key), std::move(value)).second) {
                    pos_ = key_at;
                    fail("a key that was not used before");
                }
                skip_space();
            } while (take(','));
            if (!take('}')) fail("',' or '}'");
        }
        ++depth_left_;
        return Value(std::move(object));
    }

    Value parse_array() {
        enter();
        ++pos_;
        Array array;
        skip_space();
        if (!take(']')) {
            do {
                array.push_back(parse_value());
                skip_space();
            } while (take(','));
            if (!take(']')) fail("',' or ']'");
        }
        ++depth_left_;
        return Value(std::move(array));
    }

    unsigned hex4() {
        unsigned code = 0;
        for (int i = 0; i < 4; ++i, ++pos_) {
            const char c = peek();
            unsigned digit = 0;
            if (c >= '0' && c <= '9')
                digit = static_cast<unsigned>(c - '0');
            else if (c >= 'a' && c <= 'f')
                digit = static_cast<unsigned>(c - 'a' + 10);
            else if (c >= 'A' && c <= 'F')
                digit = static_cast<unsigned>(c - 'A' + 10);
            else
                fail("a hexadecimal digit");
            code = code * 16 + digit;
        }
        return code;
    }

    static void append_utf8(std::string& out, unsigned code) {
        if (code < 0x80) {
            out += static_cast<char>(code);
        } else if (code < 0x800) {
            out += static_cast<char>(0xC0 | (code >> 6));
            out += static_cast<char>(0x80 | (code & 0x3F));
        } else if (code < 0x10000) {
            out += static_cast<char>(0xE0 | (code >> 12));
            out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
            out += static_cast<char>(0x80 | (code & 0x3F));
        } else {
            out += static_cast<char>(0xF0 | (code >> 18));
            out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
            out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
            out += static_cast<char>(0x80 | (code & 0x3F));
        }
    }

    // One UTF-8 sequence of two to four bytes: shortest form, no surrogates, at most U+10FFFF.
    void take_utf8(std::string& out) {
        const auto lead = static_cast<unsigned char>(text_[pos_]);
        const int extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || pos_ + static_cast<std::size_t>(extra) >= text_.size()) fail("valid UTF-8");
        unsigned code = lead & (0x3Fu >> extra);
        for (int i = 1; i <= extra; ++i) {
            const auto byte = static_cast<unsigned char>(text_[pos_ + static_cast<std::size_t>(i)]);
            if ((byte & 0xC0) != 0x80) fail("valid UTF-8");
            code = (code << 6) | (byte & 0x3Fu);
        }
        static constexpr unsigned kLowest[4] = {0, 0x80, 0x800, 0x10000};
        if (code < kLowest[extra] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("valid UTF-8");
        out.append(text_.substr(pos_, static_cast<std::size_t>(extra) + 1));
        pos_ += static_cast<std::size_t>(extra) + 1;
    }

    std::string parse_string() {
        ++pos_;
        std::string out;
        for (;;) {
            if (pos_ >= text_.size()) fail("'\"'");
            const auto c = static_cast<unsigned char>(text_[pos_]);
            if (c == '"') {
                ++pos_;
                return out;
            }
            if (c < 0x20) fail("an escaped control character");
            if (c >= 0x80) {
                take_utf8(out);
                continue;
            }
            ++pos_;
            if (c != '\\') {
                out += static_cast<char>(c);
                continue;
            }
            parse_escape(out);
        }
    }

    void parse_escape(std::string& out) {
        const char c = peek();
        static constexpr std::string_view kFrom = "\"\\/bfnrt";
        static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
        const std::size_t simple = c == '\0' ? std::string_view::npos : kFrom.find(c);
        if (simple != std::string_view::npos) {
            ++pos_;
            out += kTo[simple];
            return;
        }
        if (c != 'u') fail("an escape character");
        ++pos_;
        unsigned code = hex4();
        if (code >= 0xD800 && code < 0xDC00) {
            if (!take('\\') || !take('u')) fail("the second half of a surrogate pair");
            const unsigned low = hex4();
            if (low < 0xDC00 || low > 0xDFFF) fail("the second half of a surrogate pair");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else if (code >= 0xDC00 && code < 0xE000) {
            fail("a surrogate pair");
        }
        append_utf8(out, code);
    }

    void digits() {
        if (peek() < '0' || peek() > '9') fail("a digit");
        while (peek() >= '0' && peek() <= '9') ++pos_;
    }

    Value parse_number() {
        const std::size_t start = pos_;
        take('-');
        if (peek() < '0' || peek() > '9') {
            pos_ = start;
            fail("a JSON value");
        }
        if (!take('0')) digits();
        bool integer = true;
        if (take('.')) {
            integer = false;
            digits();
        }
        if (peek() == 'e' || peek() == 'E') {
            integer = false;
            ++pos_;
            if (!take('+')) take('-');
            digits();
        }
        const std::string token(text_.substr(start, pos_ - start));
        if (integer) {
            errno = 0;
            const long long value = std::strtoll(token.c_str(), nullptr, 10);
            if (errno == 0) return Value(static_cast<std::int64_t>(value));
        }
        const double value = std::strtod(token.c_str(), nullptr);
        if (!std::isfinite(value)) {
            pos_ = start;
            fail("a number that fits a double");
        }
        return Value(value);
    }

    std::string_view text_;
    std::string_view what_;
    std::size_t pos_ = 0;
    int depth_left_;
};

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

Value parse(std::string_view text, std::string_view what, int max_depth) {
    return Parser(text, what, max_depth).document();
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
