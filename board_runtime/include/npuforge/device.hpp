// The device interface: what executes the NPU partitions of one `.bin`. Owns nothing but the contract; sim, csim and
// uio (a board) implement it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace npuforge {

/// Base of all runtime errors: one line; what was expected, what was found, where. Never aborts the process.
class Error : public std::runtime_error {
  public:
    /// The message on one line: control characters, which names from a file may have, as \n or \x01.
    explicit Error(const std::string& message) : std::runtime_error(one_line(message)) {}

  private:
    static std::string one_line(const std::string& text) {
        static constexpr char digits[] = "0123456789abcdef";
        std::string line;
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            if (c == '\n')
                line += "\\n";
            else if (byte < 0x20 || byte == 0x7f)
                line += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
            else
                line += c;
        }
        return line;
    }
};
/// A damaged or foreign `.bin`: names section and offset.
class FormatError : public Error {
  public:
    using Error::Error;
};
/// The `.bin` was compiled for another arch: names the parameters that differ.
class ArchError : public Error {
  public:
    using Error::Error;
};
/// An instruction the hardware refuses: names index and field.
class InstructionError : public Error {
  public:
    using Error::Error;
};
/// Hardware, or a driver in front of it, that is not there, is too small, or does not answer.
class DeviceError : public Error {
  public:
    using Error::Error;
};
/// A wrong argument from the application.
class ArgumentError : public Error {
  public:
    using Error::Error;
};

/// What a device needs of a loaded, checked `.bin`: plain views, valid as long as `owner` lives.
struct DeviceProgram {
    const std::uint8_t* image = nullptr;          ///< the whole `.bin` file = DDR region 0, 64-byte aligned
    std::size_t image_size = 0;                   ///< bytes
    const std::uint32_t* instructions = nullptr;  ///< 32 words each, every partition ends with HALT
    std::size_t instruction_count = 0;
    std::size_t pool_size = 0;       ///< bytes of DDR region 1
    std::size_t sram_bytes = 0;      ///< of the arch
    bool bf16 = false;               ///< the arch has the feature bf16
    std::size_t pixel_parallel = 0;  ///< of the arch; 0: not known. No result depends on it
    struct Range {
        std::size_t first = 0;  ///< global instruction index
        std::size_t count = 0;  ///< including HALT
    };
    std::vector<Range> partitions;  ///< NPU partitions, in order
    std::shared_ptr<const void> owner;
};

/// What a trace hook may read during its call.
struct TraceMemory {
    const std::uint8_t* sram = nullptr;
    const std::uint8_t* pool = nullptr;
    /// sram_bytes long: where a CONV with a residual stage wrote its output, the bytes of the convolution before the
    /// sum.
    const std::uint8_t* before_sum = nullptr;
};

/// Called in program order right after the instruction with this global index.
using TraceHook = std::function<void(std::size_t instruction, const TraceMemory& memory)>;

/// Per-job state of a device (on-chip memory, scratch). Create once per concurrent job, reuse: `run` allocates nothing
/// after the first call.
class DeviceContext {
  public:
    virtual ~DeviceContext() = default;
};

/// A loaded program on a device. Thread-safe as long as each thread uses its own context and pool.
class Device {
  public:
    virtual ~Device() = default;
    virtual std::string name() const = 0;
    virtual std::unique_ptr<DeviceContext> create_context() const = 0;
    /// Whether `run` takes a hook. Hardware keeps no layer's output.
    virtual bool traces() const { return true; }
    /// Runs NPU partition `partition` on `pool` (pool_size bytes, 64-byte aligned). Throws InstructionError. `hook` may
    /// be empty.
    virtual void run(DeviceContext& context, std::size_t partition, std::uint8_t* pool,
                     const TraceHook& hook) const = 0;
};

/// Factories, one per device; `threads` >= 1. They decode and check every instruction (opcode, reserved bits, bounds,
/// alignment) before returning.
std::unique_ptr<Device> make_sim_device(DeviceProgram program, int threads, const std::string& level = "auto");
std::unique_ptr<Device> make_csim_device(DeviceProgram program);

}  // namespace npuforge
