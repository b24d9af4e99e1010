// Owns the wording of refusals: instruction index, opcode, field, what was expected and found.
#pragma once

#include <cstddef>
#include <string>

#include "npuforge/device.hpp"

namespace npuforge::sim {

/// "instruction 12 (CONV): out_addr: expected ..., found ..."
[[noreturn]] inline void refuse(std::size_t index, const char* opcode, const std::string& field,
                                const std::string& reason) {
    throw InstructionError("instruction " + std::to_string(index) + " (" + opcode + "): " + field + ": " + reason);
}

[[noreturn]] inline void refuse(std::size_t index, const char* opcode, const std::string& field,
                                const std::string& expected, long long found) {
    refuse(index, opcode, field, "expected " + expected + ", found " + std::to_string(found));
}

}  // namespace npuforge::sim
