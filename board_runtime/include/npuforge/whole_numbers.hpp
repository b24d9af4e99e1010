// float32 buffers of tensors of integers or truth values: exact or refused.
#pragma once

#include <cstddef>
#include <string>

#include "npuforge/cpu.hpp"

namespace npuforge {

/// `count` values of type `type` (not float32) from float32; bool: whether it is not 0. ArgumentError naming the tensor
/// and the element for a value that the type does not have.
void whole_numbers(cpu::Type type, const std::string& name, const float* from, void* to, std::size_t count);

/// The other way round. ArgumentError for an integer that float32 does not hold.
void whole_floats(cpu::Type type, const std::string& name, const void* from, float* to, std::size_t count);

}  // namespace npuforge
