// A program as the hardware takes it, shared by `csim` (which runs the hardware's own code) and boards: byte addresses
// of partitions in the `.bin`, the check of every instruction, and the words of a refusal.
#pragma once

#include <cstdint>
#include <string>

#include "npu_types.hpp"
#include "npuforge/device.hpp"

namespace npuforge::hardware {

/// Byte address of the first instruction in the `.bin` image. ArgumentError, naming `device`, where sizes leave 32 bits
/// or the instructions lie outside the image.
std::uint32_t stream_offset(const DeviceProgram& program, const std::string& device);

/// What instructions are checked against.
hls::Limits limits_of(const DeviceProgram& program);

/// InstructionError for a partition that leaves the stream, and for the first instruction that the hardware would
/// refuse before it begins. `offset`: of `stream_offset`.
void check_partitions(const DeviceProgram& program, std::uint32_t offset);

/// InstructionError, unless `status` is OK, with the index, opcode, field and reason of the instruction in `range`.
void refuse_unless_ok(const hls::Status& status, const DeviceProgram& program, const DeviceProgram::Range& range);

}  // namespace npuforge::hardware
