// Owns strided byte ranges ("views") of on-chip memory and pool, and the question whether two of them share a byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace npuforge::sim {

enum class Space : std::uint8_t { kSram, kPool, kImage };

/// Bytes address + r*row_stride + c*col_stride + [0, length), r < rows, c < cols.
struct View {
    Space space = Space::kSram;
    std::uint64_t address = 0;
    std::uint64_t rows = 1, cols = 1;
    std::uint64_t row_stride = 0, col_stride = 0;
    std::uint64_t length = 0;

    /// One past the last byte.
    std::uint64_t end() const { return address + (rows - 1) * row_stride + (cols - 1) * col_stride + length; }
    /// Whether pixels or rows of the view share bytes with each other (or might: conservative).
    bool overlaps_itself() const;
};

/// False only if no byte is in both. May say true for interleaved views whose strides differ (conservative).
bool may_overlap(const View& a, const View& b);

}  // namespace npuforge::sim
