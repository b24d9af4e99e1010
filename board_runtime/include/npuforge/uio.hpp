// The `uio` device: a board with our overlay `npu_top` (hw_kernels/hls), driven from Linux user space. Registers are
// mapped through a UIO node, memory that the hardware can reach through a u-dma-buf node. Owns the description of a
// board and the factory. docs/board.md has the file's schema and what was run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "npuforge/device.hpp"

namespace npuforge::uio {

/// Byte offsets of the AXI-lite registers, as Vitis HLS writes them into xnpu_top_hw.h.
struct Registers {
    std::size_t control = 0;                  ///< ap_start, ap_done, ap_idle
    std::size_t global_interrupt_enable = 0;  ///< used where the board has an interrupt
    std::size_t interrupt_enable = 0;
    std::size_t interrupt_status = 0;
    std::size_t bin = 0, bin_bytes = 0, pool = 0, pool_bytes = 0, instruction_addr = 0, count = 0;  ///< arguments
    std::array<std::size_t, 4> status{};  ///< code, field, instruction, ISA version
    int address_bits = 64;                ///< of `bin` and `pool`: 32, or 64 in two words, the low one first
    bool ap_continue = false;             ///< the kernel waits for ap_continue after ap_done (ap_ctrl_chain)
    /// Bytes from 0 to the end of the last register.
    std::size_t bytes() const;
};

/// One board description, `board.json`.
struct Board {
    std::string where;      ///< the file, for messages
    std::string arch;       ///< JSON text: the configuration that the overlay was built for
    std::uint32_t isa = 0;  ///< instruction set version of the overlay
    std::string node;       ///< /dev/uioN
    std::string sysfs;      ///< /sys/class/uio/uioN
    std::string name;       ///< what `name` in `sysfs` must say; empty: anything
    std::string
        interrupt;  ///< node that tells of interrupts, mostly `node` again; empty: the control register is polled
    Registers registers;
    std::string memory;        ///< /dev/udmabufN
    std::string memory_sysfs;  ///< /sys/class/u-dma-buf/udmabufN
    bool sync = true;          ///< cached mapping with sync_for_device and sync_for_cpu; else opened with O_SYNC
    int timeout_ms = 2000;     ///< the longest a partition may take

    /// Reads and checks a description; touches no hardware. DeviceError where the file cannot be read, FormatError
    /// naming the key where it is none.
    static Board read(const std::string& path);
};

/// Maps the hardware and puts the `.bin` into its memory. Before anything is written: instructions, sizes, addresses,
/// the nodes, and a lock on both, which another session or process cannot share. Then the registers must hold what is
/// written to them, and an empty program must be answered with this runtime's ISA version. Jobs of all threads run one
/// after the other. `run` throws DeviceError where the hardware does not answer within `timeout_ms`, and takes no hook.
/// Throws InstructionError, ArchError, DeviceError.
std::unique_ptr<Device> make_device(DeviceProgram program, const Board& board);

}  // namespace npuforge::uio
