// The uio device: one npu_top behind AXI-lite registers and DMA memory. Owns the order of things on the hardware: what
// is checked, what is written when, how the end of a job is noticed.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "hardware_program.hpp"
#include "node.hpp"
#include "npuforge/uio.hpp"

namespace npuforge::uio {
namespace {

using Clock = std::chrono::steady_clock;

// Control register of a kernel with ap_ctrl_hs or ap_ctrl_chain.
constexpr std::uint32_t kStart = 1u << 0, kDone = 1u << 1, kIdle = 1u << 2, kContinue = 1u << 4;
constexpr std::uint32_t kInterruptOfDone = 1u;
constexpr std::size_t kPage = 4096;  // the pool begins on a page of its own: no cache line holds bytes of both
constexpr int kEagerLooks = 256;     // at the control register, before the thread sleeps in between
constexpr int kMostWords = 1024;     // of a node that counts interrupts; UIO gives one
constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kSettle = std::chrono::milliseconds(200);  // for ap_idle, which is a matter of cycles

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

std::string hexadecimal(std::uint64_t value) {
    std::string digits;
    do {
        digits.insert(digits.begin(), "0123456789abcdef"[value & 15u]);
        value >>= 4;
    } while (value != 0);
    return "0x" + digits;
}

/// What was written to memory is there before what is written to a register afterwards, and the other way round.
void order_memory() {
#if defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("dsb sy" ::: "memory");
#else
    __sync_synchronize();
#endif
}

class Context final : public DeviceContext {};  // the hardware has the only one

class UioDevice final : public Device {
  public:
    UioDevice(DeviceProgram program, const Board& board) : program_(std::move(program)), board_(board) {
        stream_offset_ = hardware::stream_offset(program_, "uio");
        if (board_.isa != isa::ISA_VERSION)
            throw ArchError(board_.where + ".isa_version: expected " + std::to_string(isa::ISA_VERSION) +
                            " of this runtime, found " + std::to_string(board_.isa) +
                            "; build the overlay from this npuforge, or run the npuforge that it was built from");
        hardware::check_partitions(program_, stream_offset_);
        pool_offset_ = round_up(program_.image_size, kPage);
        open_memory();
        open_registers();
        map();
        check_registers();
        std::memcpy(memory_->data(), program_.image, program_.image_size);
        give_to_device(0, program_.image_size);
        check_answer();
    }

    std::string name() const override { return "uio"; }
    bool traces() const override { return false; }
    std::unique_ptr<DeviceContext> create_context() const override { return std::make_unique<Context>(); }

    void run(DeviceContext& context, std::size_t partition, std::uint8_t* pool, const TraceHook& hook) const override {
        if (partition >= program_.partitions.size())
            throw ArgumentError("uio: partition expected below " + std::to_string(program_.partitions.size()) +
                                ", found " + std::to_string(partition));
        if (dynamic_cast<Context*>(&context) == nullptr) throw ArgumentError("uio: a context of another device");
        if (hook)
            throw ArgumentError(
                "device uio: the hardware keeps no layer's output, so a run cannot be traced; trace on sim or csim");
        const DeviceProgram::Range& range = program_.partitions[partition];
        const std::lock_guard<std::mutex> lock(mutex_);  // one hardware: jobs run one after the other
        expect_idle();
        std::uint8_t* in_memory = memory_->data() + pool_offset_;
        std::memcpy(in_memory, pool, program_.pool_size);
        give_to_device(pool_offset_, program_.pool_size);
        const auto first = stream_offset_ + static_cast<std::uint32_t>(range.first * isa::INSTRUCTION_BYTES);
        const hls::Status status = execute(first, static_cast<std::uint32_t>(range.count));
        take_from_device(pool_offset_, program_.pool_size);
        if (status.code != hls::Code::OK && (status.code > hls::Code::TOKEN_LEFT || status.instruction >= range.count))
            throw DeviceError(
                "device uio: the status words " + std::to_string(static_cast<std::uint32_t>(status.code)) + ", " +
                std::to_string(static_cast<std::uint32_t>(status.field)) + ", " + std::to_string(status.instruction) +
                " are none that npu_top gives; load the overlay again");
        hardware::refuse_unless_ok(status, program_, range);
        std::memcpy(pool, in_memory, program_.pool_size);
    }

  private:
    // --- before the hardware is touched -----------------------------------------------------------------------------
    void open_memory() {
        const std::uint64_t size = number_attribute(board_.memory_sysfs, "size");
        physical_ = number_attribute(board_.memory_sysfs, "phys_addr");
        const std::size_t needed = pool_offset_ + program_.pool_size;
        if (size < needed)
            throw DeviceError("device uio: " + board_.memory + " has " + std::to_string(size) +
                              " bytes, this network needs " + std::to_string(needed) + " (" +
                              std::to_string(pool_offset_) + " for the .bin, " + std::to_string(program_.pool_size) +
                              " for its pool); give u-dma-buf a larger buffer");
        if (board_.registers.address_bits == 32 && physical_ + needed > (std::uint64_t{1} << 32))
            throw DeviceError("device uio: " + board_.memory + " ends at " + hexadecimal(physical_ + needed) +
                              ", beyond the 32 address bits of this kernel; give u-dma-buf a buffer below 4 GiB");
        if (board_.sync) {
            memory_file_ = File(board_.memory, O_RDWR);
            sync_offset_ = File(board_.memory_sysfs + "/sync_offset", O_WRONLY);
            sync_size_ = File(board_.memory_sysfs + "/sync_size", O_WRONLY);
            sync_direction_ = File(board_.memory_sysfs + "/sync_direction", O_WRONLY);
            sync_for_device_ = File(board_.memory_sysfs + "/sync_for_device", O_WRONLY);
            sync_for_cpu_ = File(board_.memory_sysfs + "/sync_for_cpu", O_WRONLY);
        } else {
            // 1 is device memory on Arm, where memcpy faults; 0 leaves the cache on in spite of O_SYNC.
            const std::uint64_t mode = number_attribute(board_.memory_sysfs, "sync_mode");
            if (mode != 2 && mode != 3)
                throw DeviceError("device uio: " + board_.memory_sysfs +
                                  "/sync_mode: with cache off expected 2 "
                                  "(write-combine) or 3 (dma coherent), found " +
                                  std::to_string(mode) + "; write 2 to it, or say \"cache\": \"sync\"");
            memory_file_ = File(board_.memory, O_RDWR | O_SYNC);
        }
        memory_file_.lock();
    }

    void open_registers() {
        if (!board_.name.empty()) {
            const std::string found = attribute(board_.sysfs, "name");
            if (found != board_.name)
                throw DeviceError("device uio: " + board_.sysfs + "/name: expected " + board_.name + ", found " +
                                  found + "; the nodes are numbered anew when an overlay is loaded: correct " +
                                  board_.where);
        }
        const std::uint64_t size = number_attribute(board_.sysfs, "maps/map0/size");
        if (size < board_.registers.bytes())
            throw DeviceError("device uio: " + board_.node + " maps " + std::to_string(size) +
                              " bytes, the registers take " + std::to_string(board_.registers.bytes()) +
                              "; is it the node of npu_top?");
        register_file_ = File(board_.node, O_RDWR | O_SYNC | O_NONBLOCK);
        register_file_.lock();
        if (!board_.interrupt.empty() && board_.interrupt != board_.node)
            interrupt_file_ = File(board_.interrupt, O_RDWR | O_NONBLOCK | O_NOCTTY);
    }

    void map() {
        memory_ = std::make_unique<Mapping>(memory_file_, pool_offset_ + program_.pool_size);
        registers_ = std::make_unique<Mapping>(register_file_, board_.registers.bytes());
    }

    // --- the first touch --------------------------------------------------------------------------------------------
    /// Arguments can be read back: a map of another kernel shows before anything is started.
    void check_registers() const {
        expect_idle();
        const Registers& at = board_.registers;
        write_address(at.bin, physical_);
        write_address(at.pool, physical_ + pool_offset_);
        const std::uint32_t low = static_cast<std::uint32_t>(physical_);
        const std::uint32_t low_pool = static_cast<std::uint32_t>(physical_ + pool_offset_);
        const std::pair<std::size_t, std::uint32_t> words[] = {
            {at.bin, low},
            {at.pool, low_pool},
            {at.bin_bytes, static_cast<std::uint32_t>(program_.image_size)},
            {at.pool_bytes, static_cast<std::uint32_t>(program_.pool_size)},
            {at.instruction_addr, 0},
            {at.count, 0}};
        for (const auto& [offset, value] : words) write(offset, value);
        for (const auto& [offset, value] : words)
            if (const std::uint32_t found = read(offset); found != value)
                throw DeviceError("device uio: the register at " + hexadecimal(offset) + " of " + board_.node +
                                  ": expected the " + hexadecimal(value) + " written to it, found " +
                                  hexadecimal(found) +
                                  "; make the board's description from the xnpu_top_hw.h of this overlay");
    }

    /// npu_top refuses an empty program, which reads nothing, and says its ISA version.
    void check_answer() const {
        const hls::Status status = execute(0, 0);
        const std::uint32_t version = read(board_.registers.status[3]);
        if (version != isa::ISA_VERSION)
            throw ArchError("device uio: the overlay says ISA version " + std::to_string(version) + ", expected " +
                            std::to_string(isa::ISA_VERSION) + "; load an overlay built from this npuforge");
        if (status.code != hls::Code::NO_HALT)
            throw DeviceError("device uio: an empty program was answered with status " +
                              std::to_string(static_cast<std::uint32_t>(status.code)) + ", expected " +
                              std::to_string(static_cast<std::uint32_t>(hls::Code::NO_HALT)) +
                              "; is this the overlay of npu_top?");
    }

    // --- jobs -------------------------------------------------------------------------------------------------------
    /// ap_idle follows the end of a job, after ap_continue where the kernel waits for it, within a few cycles.
    void expect_idle() const {
        const auto deadline = Clock::now() + kSettle;
        for (;;) {
            const std::uint32_t control = read(board_.registers.control);
            if ((control & kIdle) != 0 && (control & kStart) == 0) return;
            if (Clock::now() >= deadline)
                throw DeviceError("device uio: the hardware is not idle (control register " + hexadecimal(control) +
                                  "): an earlier job has not ended; load the overlay again");
            std::this_thread::sleep_for(kPause);
        }
    }

    /// Starts `count` instructions at byte `first` of the `.bin` and waits for the end.
    hls::Status execute(std::uint32_t first, std::uint32_t count) const {
        const Registers& at = board_.registers;
        write_address(at.bin, physical_);
        write(at.bin_bytes, static_cast<std::uint32_t>(program_.image_size));
        write_address(at.pool, physical_ + pool_offset_);
        write(at.pool_bytes, static_cast<std::uint32_t>(program_.pool_size));
        write(at.instruction_addr, first);
        write(at.count, count);
        const bool interrupt = !board_.interrupt.empty();
        write(at.global_interrupt_enable, interrupt ? 1u : 0u);
        write(at.interrupt_enable, interrupt ? kInterruptOfDone : 0u);
        if (interrupt) await_interrupts();
        order_memory();
        write(at.control, kStart);
        wait();
        if (at.ap_continue) write(at.control, kContinue);
        order_memory();
        hls::Status status;
        status.code = static_cast<hls::Code>(read(at.status[0]));
        status.field = static_cast<isa::FieldId>(read(at.status[1]));
        status.instruction = read(at.status[2]);
        return status;
    }

    /// ap_done is cleared when it is read: the one look that sees it ends the wait.
    void wait() const {
        const auto deadline = Clock::now() + std::chrono::milliseconds(board_.timeout_ms);
        bool told = true;
        for (int look = 0;; ++look) {
            const std::uint32_t control = read(board_.registers.control);
            if ((control & kDone) != 0) {
                if (!told) no_interrupt("the job has ended and none came");
                return;
            }
            const auto now = Clock::now();
            if (now >= deadline)
                throw DeviceError("device uio: the hardware has not answered within " +
                                  std::to_string(board_.timeout_ms) + " ms (control register " + hexadecimal(control) +
                                  "); load the overlay again, or raise timeout_ms in " + board_.where);
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
            if (!board_.interrupt.empty())
                told = wait_for_interrupt(static_cast<int>(left) + 1);
            else if (look >= kEagerLooks)
                std::this_thread::sleep_for(kPause);
        }
    }

    const File& interrupts() const { return interrupt_file_.is_open() ? interrupt_file_ : register_file_; }

    /// Clears what is left of earlier jobs and lets the next interrupt through.
    void await_interrupts() const {
        std::uint32_t events = 0;
        for (int left = kMostWords; ::read(interrupts().descriptor(), &events, sizeof events) == sizeof events;)
            if (--left == 0) no_interrupt("it gives words without end");
        acknowledge();
        const std::uint32_t on = 1;
        if (::write(interrupts().descriptor(), &on, sizeof on) != sizeof on) no_interrupt(std::strerror(errno));
    }

    /// Bits of the status register toggle when they are written.
    void acknowledge() const {
        const std::uint32_t pending = read(board_.registers.interrupt_status);
        write(board_.registers.interrupt_status, pending);
    }

    /// False where none came in time.
    bool wait_for_interrupt(int milliseconds) const {
        pollfd node{interrupts().descriptor(), POLLIN, 0};
        const int found = ::poll(&node, 1, milliseconds);
        if (found == 0) return false;
        if (found < 0 && errno == EINTR) return true;
        if (found < 0) no_interrupt(std::strerror(errno));
        if ((node.revents & POLLIN) == 0) no_interrupt("the kernel has none for it");
        await_interrupts();
        return true;
    }

    [[noreturn]] void no_interrupt(const std::string& reason) const {
        throw DeviceError("device uio: " + board_.interrupt + " gives no interrupt (" + reason +
                          "); leave \"interrupt\" out of " + board_.where + " to poll the control register");
    }

    // --- memory and registers ---------------------------------------------------------------------------------------
    void give_to_device(std::size_t offset, std::size_t bytes) const {
        if (board_.sync) synchronise(sync_for_device_, offset, bytes);
        order_memory();
    }

    void take_from_device(std::size_t offset, std::size_t bytes) const {
        order_memory();
        if (board_.sync) synchronise(sync_for_cpu_, offset, bytes);
    }

    void synchronise(const File& how, std::size_t offset, std::size_t bytes) const {
        sync_direction_.write_number(0);  // both ways
        sync_offset_.write_number(offset);
        sync_size_.write_number(bytes);
        how.write_number(1);
    }

    void write_address(std::size_t offset, std::uint64_t value) const {
        write(offset, static_cast<std::uint32_t>(value));
        if (board_.registers.address_bits == 64) write(offset + 4, static_cast<std::uint32_t>(value >> 32));
    }

    volatile std::uint32_t* at(std::size_t offset) const {
        return reinterpret_cast<volatile std::uint32_t*>(registers_->data() + offset);
    }
    std::uint32_t read(std::size_t offset) const { return *at(offset); }
    void write(std::size_t offset, std::uint32_t value) const { *at(offset) = value; }

    DeviceProgram program_;
    Board board_;
    std::uint32_t stream_offset_ = 0;
    std::size_t pool_offset_ = 0;  ///< in the DMA memory; the `.bin` begins at 0
    std::uint64_t physical_ = 0;   ///< address of the DMA memory as the hardware sees it
    File memory_file_, register_file_, interrupt_file_;
    File sync_offset_, sync_size_, sync_direction_, sync_for_device_, sync_for_cpu_;
    std::unique_ptr<Mapping> memory_, registers_;
    mutable std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Device> make_device(DeviceProgram program, const Board& board) {
    return std::make_unique<UioDevice>(std::move(program), board);
}

}  // namespace npuforge::uio
