// Addresses, checks and refusals that `csim` and boards have in common.
#include "hardware_program.hpp"

#include "sequencer.hpp"

namespace npuforge::hardware {
namespace {

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

const std::int8_t* image_of(const DeviceProgram& program) {
    return reinterpret_cast<const std::int8_t*>(program.image);
}

}  // namespace

std::uint32_t stream_offset(const DeviceProgram& program, const std::string& device) {
    const auto* stream = reinterpret_cast<const std::uint8_t*>(program.instructions);
    if (program.image_size > 0xffffffffu || program.pool_size > 0xffffffffu || program.sram_bytes > 0xffffffffu ||
        program.sram_bytes % hls::LANES != 0)
        throw ArgumentError(device + ": sizes beyond 32 bits, or SRAM bytes that are no multiple of 16");
    const std::size_t stream_bytes = program.instruction_count * isa::INSTRUCTION_BYTES;
    if (stream < program.image || stream > program.image + program.image_size ||
        stream_bytes > static_cast<std::size_t>(program.image + program.image_size - stream))
        throw ArgumentError(
            device + ": expected the instructions inside the .bin image, as the hardware fetches them from there");
    return static_cast<std::uint32_t>(stream - program.image);
}

hls::Limits limits_of(const DeviceProgram& program) {
    hls::Limits limits;
    limits.sram_bytes = static_cast<std::uint32_t>(program.sram_bytes);
    limits.bin_bytes = static_cast<std::uint32_t>(program.image_size);
    limits.pool_bytes = static_cast<std::uint32_t>(program.pool_size);
    limits.bf16 = program.bf16;
    return limits;
}

void check_partitions(const DeviceProgram& program, std::uint32_t offset) {
    const hls::Limits limits = limits_of(program);
    for (const DeviceProgram::Range& range : program.partitions) {
        if (range.first > program.instruction_count || range.count > program.instruction_count - range.first)
            throw InstructionError("instruction " + std::to_string(range.first) +
                                   ": the partition leaves the stream of " + std::to_string(program.instruction_count));
        const auto address = offset + static_cast<std::uint32_t>(range.first * isa::INSTRUCTION_BYTES);
        refuse_unless_ok(
            hls::check_program(image_of(program), address, static_cast<std::uint32_t>(range.count), limits), program,
            range);
    }
}

void refuse_unless_ok(const hls::Status& status, const DeviceProgram& program, const DeviceProgram::Range& range) {
    if (status.code == hls::Code::OK) return;
    const std::size_t index = range.first + status.instruction;
    if (range.count == 0)
        throw InstructionError("instruction " + std::to_string(index) + ": an empty partition; expected HALT");
    const std::uint32_t* words = program.instructions + index * isa::INSTRUCTION_WORDS;
    throw InstructionError("instruction " + std::to_string(index) + " (" + isa::opcode_name(isa::opcode_of(words)) +
                           "): " + isa::field_name(status.field) + ": " + reason(status, words));
}

}  // namespace npuforge::hardware
