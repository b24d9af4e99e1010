// The csim device: runs the HLS engines of hw_kernels/hls/ as they are. Owns the wrapping (memories, trace hook,
// messages), no arithmetic.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

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

const char* engine_name(int engine) {
    switch (static_cast<isa::Engine>(engine)) {
        case isa::Engine::LOAD:
            return "LOAD";
        case isa::Engine::CONV:
            return "CONV";
        case isa::Engine::VECTOR:
            return "VECTOR";
        default:
            return "STORE";
    }
}

std::string reason(const hls::Status& status, const std::uint32_t* words) {
    const std::string found = ", found " + std::to_string(isa::field_value(words, status.field));
    switch (status.code) {
        case hls::Code::UNKNOWN_OPCODE:
            return "expected a known opcode" + found;
        case hls::Code::RESERVED_BITS:
            return "word " + std::to_string(isa::first_reserved_word(words)) + ": reserved bits are set, expected 0";
        case hls::Code::ILLEGAL_VALUE:
            return "a value that the engine refuses" + found;
        case hls::Code::MISALIGNED:
            return "expected a multiple of 16" + found;
        case hls::Code::OUT_OF_BOUNDS:
            return "the bytes it addresses leave the memory" + found;
        case hls::Code::BAD_PARAMETER:
            return "an illegal value in the parameter records there" + found;
        case hls::Code::NO_HALT:
            return "expected HALT at the end of the partition";
        case hls::Code::EARLY_HALT:
            return "HALT before the end of the partition";
        case hls::Code::DEADLOCK: {
            std::string engines;
            for (int e = 0; e < hls::ENGINES; ++e)
                if ((isa::pop_of(words) >> e & 1u) != 0)
                    engines += std::string(engines.empty() ? "" : " or ") + engine_name(e);
            return "deadlock: it waits for a token from " + engines + " that nobody gives";
        }
        case hls::Code::TOKEN_OVERFLOW:
            return "more than 65535 waiting tokens";
        case hls::Code::TOKEN_LEFT:
            return "expected every token to be taken before the end of the partition, found one left";
        default:
            return "refused";
    }
}

class CsimDevice final : public Device {
  public:
    CsimDevice(DeviceProgram program, const Options& options)
        : program_(std::move(program)), options_(options), policy_(parse_policy(options.policy)) {
        const auto* stream = reinterpret_cast<const std::uint8_t*>(program_.instructions);
        if (program_.image_size > 0xffffffffu || program_.pool_size > 0xffffffffu ||
            program_.sram_bytes > 0xffffffffu || program_.sram_bytes % hls::LANES != 0)
            throw ArgumentError("csim: sizes beyond 32 bits, or SRAM bytes that are no multiple of 16");
        const std::size_t stream_bytes = program_.instruction_count * isa::INSTRUCTION_BYTES;
        if (stream < program_.image || stream > program_.image + program_.image_size ||
            stream_bytes > static_cast<std::size_t>(program_.image + program_.image_size - stream))
            throw ArgumentError(
                "csim: expected the instructions inside the .bin image, as the hardware fetches them from there");
        stream_offset_ = static_cast<std::uint32_t>(stream - program_.image);
        limits_.sram_bytes = static_cast<std::uint32_t>(program_.sram_bytes);
        limits_.bin_bytes = static_cast<std::uint32_t>(program_.image_size);
        limits_.pool_bytes = static_cast<std::uint32_t>(program_.pool_size);
        limits_.bf16 = program_.bf16;
        for (const DeviceProgram::Range& range : program_.partitions) {
            if (range.first > program_.instruction_count || range.count > program_.instruction_count - range.first)
                throw InstructionError("instruction " + std::to_string(range.first) +
                                       ": the partition leaves the stream of " +
                                       std::to_string(program_.instruction_count));
            refuse_unless_ok(hls::check_program(bin(), address(range), count(range), limits_), range);
        }
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
        refuse_unless_ok(run_width(*own, range, reinterpret_cast<std::int8_t*>(pool), trace), range);
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

    void refuse_unless_ok(const hls::Status& status, const DeviceProgram::Range& range) const {
        if (status.code == hls::Code::OK) return;
        const std::size_t index = range.first + status.instruction;
        if (range.count == 0)
            throw InstructionError("instruction " + std::to_string(index) + ": an empty partition; expected HALT");
        std::uint32_t words[isa::INSTRUCTION_WORDS];
        hls::fetch(bin(), address(range), status.instruction, words);
        throw InstructionError("instruction " + std::to_string(index) + " (" + isa::opcode_name(isa::opcode_of(words)) +
                               "): " + isa::field_name(status.field) + ": " + reason(status, words));
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
