// Reads a board description: every key is known, of its type and in its range, and no two registers overlap.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <utility>
#include <vector>

#include "npuforge/json.hpp"
#include "npuforge/uio.hpp"

namespace npuforge::uio {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::int64_t kLastOffset = 0xFFFFFC;  // far beyond any map that HLS makes
constexpr std::int64_t kLongestWait = 3600 * 1000;

void refuse_others(const json::Value& object, std::initializer_list<const char*> known, const std::string& where) {
    for (const auto& [key, value] : object.as_object(where))
        if (std::none_of(known.begin(), known.end(), [&key = key](const char* name) { return key == name; })) {
            std::string names;
            for (const char* name : known) names += (names.empty() ? "" : ", ") + std::string(name);
            throw FormatError(where + ": unknown key '" + key + "'; expected " + names);
        }
}

std::string text_at(const json::Value& object, const char* key, const std::string& where) {
    const std::string& text = object.at(key, where).as_string(where + "." + key);
    if (text.empty()) throw FormatError(where + "." + key + ": expected a path, found an empty text");
    return text;
}

std::size_t offset_of(const json::Value& value, const std::string& where) {
    const std::int64_t offset = value.as_integer(where, 0, kLastOffset);
    if (offset % 4 != 0) throw FormatError(where + ": expected a multiple of 4, found " + std::to_string(offset));
    return static_cast<std::size_t>(offset);
}

/// Words that a register occupies, for the check that none is used twice.
class Words {
  public:
    std::size_t take(std::size_t offset, std::size_t words, const std::string& where) {
        for (std::size_t word = offset; word < offset + 4 * words; word += 4) {
            const auto other =
                std::find_if(taken_.begin(), taken_.end(), [&](const auto& t) { return t.first == word; });
            if (other != taken_.end())
                throw FormatError(where + ": offset " + std::to_string(word) + " is taken by " + other->second +
                                  "; expected as Vitis HLS writes it into xnpu_top_hw.h");
            taken_.emplace_back(word, where);
        }
        return offset;
    }

  private:
    std::vector<std::pair<std::size_t, std::string>> taken_;
};

Registers parse_registers(const json::Value& value, const std::string& where) {
    refuse_others(value,
                  {"control", "global_interrupt_enable", "interrupt_enable", "interrupt_status", "bin", "bin_bytes",
                   "pool", "pool_bytes", "instruction_addr", "count", "status", "address_bits", "ap_continue"},
                  where);
    Registers out;
    out.address_bits = static_cast<int>(value.at("address_bits", where).as_integer(where + ".address_bits", 32, 64));
    if (out.address_bits != 32 && out.address_bits != 64)
        throw FormatError(where + ".address_bits: expected 32 or 64, found " + std::to_string(out.address_bits));
    const json::Value* chained = value.find("ap_continue");
    out.ap_continue = chained && chained->as_bool(where + ".ap_continue");
    const std::size_t address_words = static_cast<std::size_t>(out.address_bits) / 32;
    Words words;
    const auto take = [&](const char* key, std::size_t count) {
        const std::string at = where + "." + key;
        return words.take(offset_of(value.at(key, where), at), count, at);
    };
    out.control = take("control", 1);
    out.global_interrupt_enable = take("global_interrupt_enable", 1);
    out.interrupt_enable = take("interrupt_enable", 1);
    out.interrupt_status = take("interrupt_status", 1);
    out.bin = take("bin", address_words);
    out.bin_bytes = take("bin_bytes", 1);
    out.pool = take("pool", address_words);
    out.pool_bytes = take("pool_bytes", 1);
    out.instruction_addr = take("instruction_addr", 1);
    out.count = take("count", 1);
    const std::string at = where + ".status";
    const json::Array& status = value.at("status", where).as_array(at);
    if (status.size() != out.status.size())
        throw FormatError(at + ": expected 4 offsets (code, field, instruction, ISA version), found " +
                          std::to_string(status.size()));
    for (std::size_t i = 0; i < status.size(); ++i) {
        const std::string item = at + "[" + std::to_string(i) + "]";
        out.status[i] = words.take(offset_of(status[i], item), 1, item);
    }
    return out;
}

Board parse(std::string_view text, const std::string& where) {
    const json::Value value = json::parse(text, where);
    refuse_others(value, {"format", "arch", "isa_version", "uio", "registers", "memory", "timeout_ms"}, where);
    const std::int64_t format = value.at("format", where).as_integer(where + ".format");
    if (format != kFormat)
        throw FormatError(where + ".format: expected " + std::to_string(kFormat) + ", found " + std::to_string(format) +
                          "; another version of npuforge wrote it");
    Board out;
    out.where = where;
    const json::Value& arch = value.at("arch", where);
    arch.as_object(where + ".arch");
    out.arch = arch.text();
    out.isa =
        static_cast<std::uint32_t>(value.at("isa_version", where).as_integer(where + ".isa_version", 1, 0xFFFFFFFFll));

    const std::string at_uio = where + ".uio";
    const json::Value& uio = value.at("uio", where);
    refuse_others(uio, {"node", "sysfs", "name", "interrupt"}, at_uio);
    out.node = text_at(uio, "node", at_uio);
    out.sysfs = text_at(uio, "sysfs", at_uio);
    if (uio.find("name")) out.name = text_at(uio, "name", at_uio);
    if (uio.find("interrupt")) out.interrupt = text_at(uio, "interrupt", at_uio);

    out.registers = parse_registers(value.at("registers", where), where + ".registers");

    const std::string at_memory = where + ".memory";
    const json::Value& memory = value.at("memory", where);
    refuse_others(memory, {"node", "sysfs", "cache"}, at_memory);
    out.memory = text_at(memory, "node", at_memory);
    out.memory_sysfs = text_at(memory, "sysfs", at_memory);
    const std::string cache = text_at(memory, "cache", at_memory);
    if (cache != "sync" && cache != "off")
        throw FormatError(at_memory + ".cache: expected sync or off, found '" + cache + "'");
    out.sync = cache == "sync";
    out.timeout_ms = static_cast<int>(value.at("timeout_ms", where).as_integer(where + ".timeout_ms", 1, kLongestWait));
    return out;
}

}  // namespace

std::size_t Registers::bytes() const {
    const std::size_t address_bytes = static_cast<std::size_t>(address_bits) / 8;
    return std::max({control + 4, global_interrupt_enable + 4, interrupt_enable + 4, interrupt_status + 4,
                     bin + address_bytes, bin_bytes + 4, pool + address_bytes, pool_bytes + 4, instruction_addr + 4,
                     count + 4, *std::max_element(status.begin(), status.end()) + 4});
}

Board Board::read(const std::string& path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::string text;
    for (char block[4096]; file.read(block, sizeof block), file.gcount() > 0;)
        text.append(block, static_cast<std::size_t>(file.gcount()));
    if (!file.is_open() || file.bad())
        throw DeviceError(path + ": cannot be read (" + std::strerror(errno) +
                          "); expected the description of a board (npuforge board writes one)");
    return parse(text, path);
}

}  // namespace npuforge::uio
