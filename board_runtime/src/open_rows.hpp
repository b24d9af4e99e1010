// Outputs whose number of rows only the data decide (NonMaxSuppression), in a buffer with room for the most there can
// be: where an application finds the rows, and how it tells the rest from them.
#pragma once

#include "npuforge/session.hpp"

namespace npuforge {

/// `output` holds a tensor without gaps; `room` is the buffer's shape, no smaller along any axis. Moves the tensor's
/// rows to where `room` has them and fills what is left: -1, of bool and uint8 elements 0. `output.shape` becomes
/// `room`. ArgumentError where the tensor does not fit.
void spread_rows(const std::string& name, OutputBuffer& output, const cpu::Shape& room);

}  // namespace npuforge
