// See open_rows.hpp.
#include "open_rows.hpp"

#include <algorithm>
#include <cstring>

namespace npuforge {

namespace {

template <typename T>
void fill_elements(void* data, std::size_t first, std::size_t end, T value) {
    std::fill(static_cast<T*>(data) + first, static_cast<T*>(data) + end, value);
}

// Elements [first, end) of a buffer as no result has them.
void fill_unused(cpu::Type type, void* data, std::size_t first, std::size_t end) {
    switch (type) {
        case cpu::Type::kFloat32:
            return fill_elements(data, first, end, -1.0f);
        case cpu::Type::kInt64:
            return fill_elements(data, first, end, std::int64_t{-1});
        case cpu::Type::kInt32:
            return fill_elements(data, first, end, std::int32_t{-1});
        case cpu::Type::kInt8:
            return fill_elements(data, first, end, std::int8_t{-1});
        default:
            return fill_elements(data, first, end, std::uint8_t{0});
    }
}

}  // namespace

void spread_rows(const std::string& name, OutputBuffer& output, const cpu::Shape& room) {
    const cpu::Shape held = output.shape;
    if (held == room) return;
    const std::size_t bytes = cpu::type_bytes(output.type);
    bool fits = held.rank == room.rank && output.capacity >= static_cast<std::size_t>(room.count()) * bytes;
    for (int axis = 0; fits && axis < held.rank; ++axis) fits = held.dim[axis] <= room.dim[axis];
    if (!fits)
        throw ArgumentError("output '" + name + "': expected room for " + held.text() + ", found a buffer of " +
                            room.text());
    const int last = room.rank - 1;
    const auto row = static_cast<std::size_t>(room.dim[last]), held_row = static_cast<std::size_t>(held.dim[last]);
    const std::int64_t rows = row == 0 ? 0 : room.count() / room.dim[last];
    auto* data = static_cast<std::uint8_t*>(output.data);
    // From the last row to the first: a row never moves towards the start, so that none is overwritten before it moved.
    for (std::int64_t index = rows - 1; index >= 0; --index) {
        std::int64_t rest = index, source = 0, stride = 1;
        bool inside = true;
        for (int axis = last - 1; axis >= 0; --axis) {
            const std::int64_t at = rest % room.dim[axis];
            rest /= room.dim[axis];
            inside = inside && at < held.dim[axis];
            source += at * stride;
            stride *= held.dim[axis];
        }
        const std::size_t first = static_cast<std::size_t>(index) * row, kept = inside ? held_row : 0;
        if (kept > 0)
            std::memmove(data + first * bytes, data + static_cast<std::size_t>(source) * held_row * bytes,
                         kept * bytes);
        fill_unused(output.type, data, first + kept, first + row);
    }
    output.shape = room;
}

}  // namespace npuforge
