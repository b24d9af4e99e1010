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

}  // namespace

Value parse(std::string_view text, std::string_view what, int max_depth) {
    return Parser(text, what, max_depth).document();
}

}  // namespace npuforge::json
