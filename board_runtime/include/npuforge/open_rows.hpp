// Tensors whose number of rows only the data decide (NonMaxSuppression), in a buffer with room for the most there can
// be: where an application finds the rows, how it tells the rest from them, and so does a partition that reads them.
#pragma once

#include <vector>

#include "npuforge/session.hpp"

namespace npuforge {

/// `output` holds a tensor without gaps; `room` is the buffer's shape, no smaller along any axis. Moves the tensor's
/// rows to where `room` has them and fills what is left. `output.shape` becomes `room`. ArgumentError where the tensor
/// does not fit.
void spread_rows(const std::string& name, OutputBuffer& output, const cpu::Shape& room);

/// Whether a declared shape has open axes (-1).
bool is_open(const std::vector<std::int64_t>& declared);

/// What of `data`, a buffer of shape `room`, is there: along every open axis of `declared` all before the last slice
/// with more than the filling.
cpu::Shape used_rows(cpu::Type type, const void* data, const cpu::Shape& room,
                     const std::vector<std::int64_t>& declared, Filling filling);

/// Copies what `held` has of a buffer of shape `room` to `target`, without gaps.
void gather_rows(cpu::Type type, const void* data, const cpu::Shape& room, const cpu::Shape& held,
                 std::uint8_t* target);

}  // namespace npuforge
