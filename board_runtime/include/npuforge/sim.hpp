// The fast bit-exact simulator: instruction-set choice and the factory that forces one. `make_sim_device` in device.hpp
// takes its name.
#pragma once

#include <memory>
#include <string>

#include "npuforge/device.hpp"

namespace npuforge::sim {

/// Code paths, all with the same bits. kAvx2 needs AVX2 and FMA; kAvx512 needs AVX-512 F, BW, DQ, VL and VNNI.
enum class Level { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

/// The best level that this processor and operating system execute.
Level best_level();
/// "scalar", "avx2" or "avx512".
const char* level_name(Level level);
/// Inverse of level_name; "auto" is best_level(). ArgumentError for another name or a level that this processor lacks.
Level parse_level(const std::string& name);

/// As make_sim_device, on a given level.
std::unique_ptr<Device> make_device(DeviceProgram program, int threads, Level level);

}  // namespace npuforge::sim
