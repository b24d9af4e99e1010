// See open_rows.hpp.
#include "npuforge/open_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace npuforge {

namespace {

// The bytes of one element of the filling, of which the type's width counts.
using Pattern = std::array<std::uint8_t, sizeof(std::int64_t)>;

template <typename T>
Pattern bytes_of(T value) {
    Pattern bytes{};
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
}

Pattern pattern(cpu::Type type, Filling filling) {
    const bool inner = filling == Filling::kInner;
    switch (type) {
        case cpu::Type::kFloat32:  // inner: a NaN that no arithmetic gives
            return inner ? bytes_of(std::uint32_t{0xFFF04E46}) : bytes_of(-1.0f);
        case cpu::Type::kInt64:  // inner: what float32 holds, since buffers may be float32
            return bytes_of(inner ? -((std::int64_t{1} << 62) + (std::int64_t{1} << 40)) : std::int64_t{-1});
        case cpu::Type::kInt32:
            return bytes_of(inner ? -((std::int32_t{1} << 30) + (std::int32_t{1} << 8)) : std::int32_t{-1});
        case cpu::Type::kInt8:
            return bytes_of(std::int8_t{-1});
        case cpu::Type::kBool:
            return bytes_of(kNoTruth);
        default:
            return bytes_of(std::uint8_t{0});
    }
}

// Elements [first, end) of a buffer as no result has them.
void fill_unused(cpu::Type type, Filling filling, std::uint8_t* data, std::size_t first, std::size_t end) {
    const std::size_t bytes = cpu::type_bytes(type);
    const Pattern element = pattern(type, filling);
    for (std::size_t i = first; i < end; ++i) std::memcpy(data + i * bytes, element.data(), bytes);
}

// Whether `count` elements from `first` on hold something else than the filling.
bool holds_rows(cpu::Type type, Filling filling, const void* data, std::int64_t first, std::int64_t count) {
    const std::size_t bytes = cpu::type_bytes(type);
    const Pattern element = pattern(type, filling);
    const auto* from = static_cast<const std::uint8_t*>(data) + static_cast<std::size_t>(first) * bytes;
    for (std::int64_t i = 0; i < count; ++i, from += bytes)
        if (std::memcmp(from, element.data(), bytes) != 0) return true;
    return false;
}

// Which row (along all axes but the last) of a tensor of shape `held` is row `index` of one of shape `room`; -1: none.
std::int64_t row_within(std::int64_t index, const cpu::Shape& room, const cpu::Shape& held) {
    std::int64_t source = 0, stride = 1;
    bool inside = true;
    for (int axis = room.rank - 2; axis >= 0; --axis) {
        const std::int64_t at = index % room.dim[axis];
        index /= room.dim[axis];
        inside = inside && at < held.dim[axis];
        source += at * stride;
        stride *= held.dim[axis];
    }
    return inside ? source : -1;
}

}  // namespace

bool is_open(const std::vector<std::int64_t>& declared) {
    return std::any_of(declared.begin(), declared.end(), [](std::int64_t dim) { return dim < 0; });
}

cpu::Shape used_rows(cpu::Type type, const void* data, const cpu::Shape& room,
                     const std::vector<std::int64_t>& declared, Filling filling) {
    cpu::Shape held = room;
    for (int axis = 0; axis < room.rank; ++axis) {
        if (declared[static_cast<std::size_t>(axis)] >= 0) continue;
        std::int64_t inner = 1, outer = 1;
        for (int other = 0; other < room.rank; ++other)
            (other < axis ? outer : inner) *= other == axis ? 1 : room.dim[other];
        const std::int64_t size = room.dim[axis];
        const auto used = [&](std::int64_t at) {
            for (std::int64_t block = 0; block < outer; ++block)
                if (holds_rows(type, filling, data, (block * size + at) * inner, inner)) return true;
            return false;
        };
        std::int64_t end = size;
        while (end > 0 && !used(end - 1)) --end;
        held.dim[axis] = end;
    }
    return held;
}

void gather_rows(cpu::Type type, const void* data, const cpu::Shape& room, const cpu::Shape& held,
                 std::uint8_t* target) {
    if (held.count() == 0) return;
    const std::size_t bytes = cpu::type_bytes(type);
    const std::size_t row = static_cast<std::size_t>(room.dim[room.rank - 1]) * bytes;
    const std::size_t held_row = static_cast<std::size_t>(held.dim[room.rank - 1]) * bytes;
    const auto* from = static_cast<const std::uint8_t*>(data);
    const std::int64_t rows = room.count() / room.dim[room.rank - 1];
    for (std::int64_t index = 0; index < rows; ++index) {
        const std::int64_t place = row_within(index, room, held);
        if (place < 0) continue;
        std::memcpy(target + static_cast<std::size_t>(place) * held_row, from + static_cast<std::size_t>(index) * row,
                    held_row);
    }
}

void spread_rows(const std::string& name, OutputBuffer& output, const cpu::Shape& room) {
    const cpu::Shape held = output.shape;
    if (held == room) return;
    const std::size_t bytes = cpu::type_bytes(output.type);
    bool fits = held.rank == room.rank && output.capacity >= static_cast<std::size_t>(room.count()) * bytes;
    for (int axis = 0; fits && axis < held.rank; ++axis) fits = held.dim[axis] <= room.dim[axis];
    if (!fits)
        throw ArgumentError("output '" + name + "': expected room for " + held.text() + ", found a buffer of " +
                            room.text());
    const auto row = static_cast<std::size_t>(room.dim[room.rank - 1]);
    const auto held_row = static_cast<std::size_t>(held.dim[room.rank - 1]);
    const std::int64_t rows = row == 0 ? 0 : room.count() / room.dim[room.rank - 1];
    auto* data = static_cast<std::uint8_t*>(output.data);
    // From the last row to the first: a row never moves towards the start, so that none is overwritten before it moved.
    for (std::int64_t index = rows - 1; index >= 0; --index) {
        const std::int64_t source = row_within(index, room, held);
        const std::size_t first = static_cast<std::size_t>(index) * row, kept = source >= 0 ? held_row : 0;
        if (kept > 0)
            std::memmove(data + first * bytes, data + static_cast<std::size_t>(source) * held_row * bytes,
                         kept * bytes);
        fill_unused(output.type, output.filling, data, first + kept, first + row);
    }
    output.shape = room;
}

}  // namespace npuforge
