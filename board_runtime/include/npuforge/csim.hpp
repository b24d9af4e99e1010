// The `csim` device: C simulation of the HLS engines, with a choice of the order in which engines are served.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "npuforge/device.hpp"

namespace npuforge::csim {

/// How engines whose tokens have arrived take turns. A right program gives the same pool bytes under each.
struct Options {
    std::string policy = "program";  ///< program, load-first, store-last or random
    std::uint32_t seed = 1;          ///< of `random`
    std::uint8_t sram_fill =
        0;                    ///< bytes of the on-chip memory before each run: a right program does not depend on them
    bool clear_sram = false;  ///< fill before every run, not only in a new context
};

/// As make_csim_device (program order), with options. ArgumentError for an unknown policy.
std::unique_ptr<Device> make_device(DeviceProgram program, const Options& options);

}  // namespace npuforge::csim
