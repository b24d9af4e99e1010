// The `.bin` container: reads the file into aligned memory and checks header, table, padding and CRC before anything is
// used.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "npuforge/program.hpp"

namespace npuforge {
namespace {

constexpr std::uint32_t kMagic = 0xAABBCCDD;
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kTableOffset = 0x10;
constexpr std::size_t kEntryBytes = 44;
constexpr std::size_t kNameBytes = 32;
constexpr std::size_t kFirstData = 0x100;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kCrcBytes = 4;
constexpr std::size_t kMaxSections = 65536;
constexpr std::array<std::size_t, 10> kItemBytes = {0, 4, 1, 1, 4, 2, 2, 128, 1, 2};

std::string hex(std::size_t value) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "0x%zx", value);
    return buffer;
}

[[noreturn]] void fail(std::size_t offset, const std::string& message) {
    throw FormatError(".bin at " + hex(offset) + ": " + message);
}

std::uint32_t word(const std::uint8_t* p) {
    return static_cast<std::uint32_t>(p[0]) | static_cast<std::uint32_t>(p[1]) << 8 |
           static_cast<std::uint32_t>(p[2]) << 16 | static_cast<std::uint32_t>(p[3]) << 24;
}

std::size_t align(std::size_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

// Slicing-by-4 tables: T[0] is the classic byte table.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 4>;
CrcTables make_crc_tables() {
    CrcTables tables{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0xEDB88320u : 0u);
        tables[0][i] = crc;
    }
    for (std::size_t t = 1; t < 4; ++t)
        for (std::size_t i = 0; i < 256; ++i)
            tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFF];
    return tables;
}

void check_zero(const std::uint8_t* image, std::size_t start, std::size_t end) {
    for (std::size_t i = start; i < end; ++i)
        if (image[i] != 0) fail(i, "padding expected 0, found " + hex(image[i]));
}

}  // namespace

std::uint32_t crc32(const std::uint8_t* bytes, std::size_t size) {
    static const CrcTables tables = make_crc_tables();
    std::uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 4; size -= 4, bytes += 4) {
        crc ^= word(bytes);
        crc =
            tables[3][crc & 0xFF] ^ tables[2][(crc >> 8) & 0xFF] ^ tables[1][(crc >> 16) & 0xFF] ^ tables[0][crc >> 24];
    }
    for (; size > 0; --size, ++bytes) crc = (crc >> 8) ^ tables[0][(crc ^ *bytes) & 0xFF];
    return ~crc;
}

void BinFile::Free::operator()(std::uint8_t* p) const { std::free(p); }

std::shared_ptr<const BinFile> BinFile::read(const std::string& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "rb"), std::fclose);
    if (!stream) throw FormatError(path + ": cannot be read (" + std::strerror(errno) + ")");
    std::vector<std::uint8_t> bytes;
    std::array<std::uint8_t, 1 << 16> chunk;
    std::size_t got = 0;
    while ((got = std::fread(chunk.data(), 1, chunk.size(), stream.get())) > 0)
        bytes.insert(bytes.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(got));
    if (std::ferror(stream.get())) throw FormatError(path + ": cannot be read (" + std::strerror(errno) + ")");
    try {
        return parse(bytes.data(), bytes.size());
    } catch (const FormatError& error) {
        throw FormatError(path + ": " + error.what());
    }
}

std::shared_ptr<const BinFile> BinFile::parse(const std::uint8_t* bytes, std::size_t size) {
    auto file = std::make_shared<BinFile>();
    file->size_ = size;
    file->image_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, std::max(align(size), kAlignment))));
    if (!file->image_) throw Error(".bin: no memory for " + std::to_string(size) + " bytes");
    if (size > 0) std::memcpy(file->image_.get(), bytes, size);
    file->check();
    return file;
}

void BinFile::check() {
    const std::uint8_t* image = image_.get();
    if (size_ < kFirstData + kCrcBytes)
        fail(0, "expected at least " + std::to_string(kFirstData + kCrcBytes) + " bytes, found " +
                    std::to_string(size_) + "; truncated?");
    if (word(image) != kMagic)
        fail(0, "magic expected " + hex(kMagic) + ", found " + hex(word(image)) + "; not a .bin file");
    if (word(image + 4) != kVersion)
        fail(4, "version expected " + std::to_string(kVersion) + ", found " + std::to_string(word(image + 4)) +
                    "; recompile with this npuforge");
    const std::size_t total = word(image + 12);
    if (total != size_)
        fail(12, "size expected " + std::to_string(total) + " as the header says, found " + std::to_string(size_) +
                     " bytes; truncated?");
    const std::size_t count = word(image + 8);
    const std::size_t data_end = total - kCrcBytes;
    if (count > kMaxSections || kTableOffset + count * kEntryBytes > data_end)
        fail(8, std::to_string(count) + " sections need a table of " +
                    std::to_string(kTableOffset + count * kEntryBytes) + " bytes, the file has " +
                    std::to_string(total));
    const std::size_t table_end = kTableOffset + count * kEntryBytes;
    const std::size_t first_data = std::max(kFirstData, align(table_end));
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t where = kTableOffset + i * kEntryBytes;
        const std::uint8_t* entry = image + where;
        std::size_t length = 0;
        while (length < kNameBytes && entry[length] != 0) ++length;
        bool good = length > 0;
        for (std::size_t j = 0; j < kNameBytes; ++j)
            good = good && (j < length ? entry[j] >= 0x21 && entry[j] <= 0x7E : entry[j] == 0);
        if (!good) fail(where, "section " + std::to_string(i) + ": name expected as zero-padded printable ASCII");
        Section section;
        section.name.assign(reinterpret_cast<const char*>(entry), length);
        section.offset = word(entry + 32);
        section.size = word(entry + 36);
        const std::uint32_t type = word(entry + 40);
        const std::string what = "section " + section.name + ": ";
        if (index_.count(section.name)) fail(where, "section " + section.name + " occurs twice");
        if (type < 1 || type >= kItemBytes.size())
            fail(where + 40, what + "dtype expected 1..9, found " + std::to_string(type));
        section.type = static_cast<SectionType>(type);
        if (section.offset % kAlignment)
            fail(where + 32,
                 what + "offset " + hex(section.offset) + " is not " + std::to_string(kAlignment) + "-byte aligned");
        if (section.offset < first_data)
            fail(where + 32, what + "offset expected from " + hex(first_data) + ", found " + hex(section.offset));
        if (section.offset + section.size > data_end)
            fail(where + 36,
                 what + "ends at " + hex(section.offset + section.size) + ", data ends at " + hex(data_end));
        if (section.size % kItemBytes[type])
            fail(where + 36,
                 what + std::to_string(section.size) + " bytes is no multiple of " + std::to_string(kItemBytes[type]));
        index_[section.name] = sections_.size();
        sections_.push_back(std::move(section));
    }
    std::vector<const Section*> order;
    for (const Section& section : sections_) order.push_back(&section);
    std::sort(order.begin(), order.end(), [](const Section* a, const Section* b) {
        return a->offset != b->offset ? a->offset < b->offset : a->size < b->size;
    });
    std::size_t position = table_end;
    std::string previous = "the section table";
    for (const Section* section : order) {
        if (section->offset < position)
            fail(section->offset,
                 "section " + section->name + " overlaps " + previous + ", which ends at " + hex(position));
        check_zero(image, position, section->offset);
        position = section->offset + section->size;
        previous = "section " + section->name;
    }
    check_zero(image, position, data_end);
    const std::uint32_t stored = word(image + data_end), actual = crc32(image, data_end);
    if (stored != actual)
        fail(data_end, "CRC-32 expected " + hex(actual) + ", found " + hex(stored) + "; damaged file");
}

const Section* BinFile::find(const std::string& name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &sections_[it->second];
}

const Section& BinFile::at(const std::string& name) const {
    if (const Section* section = find(name)) return *section;
    throw FormatError(".bin: section " + name + " is missing");
}

}  // namespace npuforge
