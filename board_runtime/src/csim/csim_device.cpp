// The csim device: runs the HLS engines of hw_kernels/hls/ as they are. Owns the wrapping (memories, trace hook,
// messages), no arithmetic.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "hardware_program.hpp"
#include "npuforge/csim.hpp"
#include "sequencer.hpp"

namespace npuforge::csim {
namespace {

struct Free {
    void operator()(std::int8_t* memory) const { std::free(memory); }
};

class Context final : public DeviceContext {
  public:
    Context(std::size_t words, std::uint8_t fill) : size(words * hls::LANES) {
        sram.reset(static_cast<std::int8_t*>(std::aligned_alloc(64, (size + 63) / 64 * 64)));
        if (!sram) throw std::bad_alloc();
        clear(fill);
    }
    void clear(std::uint8_t fill) { std::fill(sram.get(), sram.get() + size, static_cast<std::int8_t>(fill)); }

    std::size_t size;
    std::unique_ptr<std::int8_t[], Free> sram;
    std::vector<std::uint8_t> before_sum;  ///< TraceMemory::before_sum; empty until a run is traced
};

/// Forwards finished instructions to the hook, with global indices, and keeps what convolutions give before a sum.
struct HookTrace {
    const TraceHook& hook;
    std::size_t first;
    std::vector<std::uint8_t>& kept;

    void after(std::uint32_t index, const std::int8_t (*sram)[hls::LANES], const std::int8_t* pool) {
        if (hook)
            hook(first + index, {reinterpret_cast<const std::uint8_t*>(sram),
                                 reinterpret_cast<const std::uint8_t*>(pool), kept.data()});
    }
    void before_sum(std::uint32_t address, const std::int8_t word[hls::LANES]) {
        if (hook) std::memcpy(kept.data() + address, word, hls::LANES);
    }
};

hls::Policy parse_policy(const std::string& name) {
    if (name == "program") return hls::Policy::PROGRAM_ORDER;
    if (name == "load-first") return hls::Policy::LOAD_FIRST;
    if (name == "store-last") return hls::Policy::STORE_LAST;
    if (name == "random") return hls::Policy::RANDOM;
    throw ArgumentError("csim policy: expected program, load-first, store-last or random, found '" + name + "'");
}

class CsimDevice final : public Device {
  public:
    CsimDevice(DeviceProgram program, const Options& options)
        : program_(std::move(program)), options_(options), policy_(parse_policy(options.policy)) {
        stream_offset_ = hardware::stream_offset(program_, "csim");
        limits_ = hardware::limits_of(program_);
        hardware::check_partitions(program_, stream_offset_);
    }

    std::string name() const override { return "csim"; }

    std::unique_ptr<DeviceContext> create_context() const override {
        return std::make_unique<Context>(program_.sram_bytes / hls::LANES, options_.sram_fill);
    }

    void run(DeviceContext& context, std::size_t partition, std::uint8_t* pool, const TraceHook& hook) const override {
        if (partition >= program_.partitions.size())
            throw ArgumentError("csim: partition expected below " + std::to_string(program_.partitions.size()) +
                                ", found " + std::to_string(partition));
        auto* own = dynamic_cast<Context*>(&context);
        if (own == nullptr || own->size != program_.sram_bytes)
            throw ArgumentError("csim: a context of another device");
        if (options_.clear_sram) own->clear(options_.sram_fill);
        const DeviceProgram::Range& range = program_.partitions[partition];
        if (hook) own->before_sum.resize(program_.sram_bytes);
        HookTrace trace{hook, range.first, own->before_sum};
        hardware::refuse_unless_ok(run_width(*own, range, reinterpret_cast<std::int8_t*>(pool), trace), program_,
                                   range);
    }

  private:
    const std::int8_t* bin() const { return reinterpret_cast<const std::int8_t*>(program_.image); }
    std::uint32_t address(const DeviceProgram::Range& range) const {
        return stream_offset_ + static_cast<std::uint32_t>(range.first * isa::INSTRUCTION_BYTES);
    }
    static std::uint32_t count(const DeviceProgram::Range& range) { return static_cast<std::uint32_t>(range.count); }

    template <int PIXELS>
    hls::Status run_as(Context& context, const DeviceProgram::Range& range, std::int8_t* pool, HookTrace& trace) const {
        auto* sram = reinterpret_cast<std::int8_t (*)[hls::LANES]>(context.sram.get());
        return hls::run_queues<PIXELS>(bin(), pool, sram, limits_, address(range), count(range), policy_, options_.seed,
                                       trace);
    }

    /// The array as wide as the arch has it; widths that no shipped arch has run as the next smaller power of two.
    hls::Status run_width(Context& context, const DeviceProgram::Range& range, std::int8_t* pool,
                          HookTrace& trace) const {
        const std::size_t pixels = program_.pixel_parallel;
        if (pixels == 0 || pixels >= 8) return run_as<8>(context, range, pool, trace);
        if (pixels >= 4) return run_as<4>(context, range, pool, trace);
        if (pixels >= 2) return run_as<2>(context, range, pool, trace);
        return run_as<1>(context, range, pool, trace);
    }

    DeviceProgram program_;
    Options options_;
    hls::Policy policy_;
    hls::Limits limits_;
    std::uint32_t stream_offset_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_device(DeviceProgram program, const Options& options) {
    return std::make_unique<CsimDevice>(std::move(program), options);
}

}  // namespace npuforge::csim

namespace npuforge {

std::unique_ptr<Device> make_csim_device(DeviceProgram program) {
    return csim::make_device(std::move(program), csim::Options{});
}

}  // namespace npuforge
