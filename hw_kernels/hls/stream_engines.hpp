// The engines as concurrent processes: each with its own instruction stream, waiting for and giving tokens through
// streams.
#pragma once

#ifndef NPU_USE_STREAMS
#define NPU_USE_STREAMS
#endif
#include "sequencer.hpp"

namespace npuforge {
namespace hls {

/// One message of a queue: instruction index, then its words.
inline void send(NpuStream<uint32_t>& queue, uint32_t index, const uint32_t words[isa::INSTRUCTION_WORDS]) {
    queue.write(index);
    for (uint32_t w = 0; w < isa::INSTRUCTION_WORDS; ++w) {
        NPU_PIPELINE
        queue.write(words[w]);
    }
}

/// Distributes a program to the four queues; each begins with the number of its instructions. Refuses an illegal
/// program: all queues are then empty.
inline Status fetch_process(const int8_t* bin, uint32_t instruction_addr, uint32_t count, const Limits& limits,
                            NpuStream<uint32_t>& load_queue, NpuStream<uint32_t>& conv_queue,
                            NpuStream<uint32_t>& vector_queue, NpuStream<uint32_t>& store_queue) {
    const Status status = check_program(bin, instruction_addr, count, limits);
    const uint32_t legal = status.code == Code::OK ? count : 0u;
    uint32_t counts[ENGINES] = {0u, 0u, 0u, 0u};
    NPU_PARTITION(counts, 1)
    for (uint32_t k = 0; k < legal; ++k) {
        NPU_TRIPCOUNT(1, 4096)
        ++counts[isa::engine_of((uint32_t)(uint8_t)bin[instruction_addr + k * isa::INSTRUCTION_BYTES])];
    }
    load_queue.write(counts[(int)isa::Engine::LOAD]);
    conv_queue.write(counts[(int)isa::Engine::CONV]);
    vector_queue.write(counts[(int)isa::Engine::VECTOR]);
    store_queue.write(counts[(int)isa::Engine::STORE]);
    for (uint32_t k = 0; k < legal; ++k) {
        NPU_TRIPCOUNT(1, 4096)
        uint32_t words[isa::INSTRUCTION_WORDS];
        fetch(bin, instruction_addr, k, words);
        switch ((isa::Engine)isa::engine_of(isa::opcode_of(words))) {
            case isa::Engine::LOAD:
                send(load_queue, k, words);
                break;
            case isa::Engine::CONV:
                send(conv_queue, k, words);
                break;
            case isa::Engine::VECTOR:
                send(vector_queue, k, words);
                break;
            default:
                send(store_queue, k, words);
                break;
        }
    }
    return status;
}

/// The eight token streams of one engine.
struct TokenPorts {
    NpuStream<bool>& from_load;
    NpuStream<bool>& from_conv;
    NpuStream<bool>& from_vector;
    NpuStream<bool>& from_store;
    NpuStream<bool>& to_load;
    NpuStream<bool>& to_conv;
    NpuStream<bool>& to_vector;
    NpuStream<bool>& to_store;
};

/// Waits for one token of every engine in the mask.
inline void wait_tokens(TokenPorts& ports, uint32_t pop) {
    if ((pop & 1u) != 0u) ports.from_load.read();
    if ((pop & 2u) != 0u) ports.from_conv.read();
    if ((pop & 4u) != 0u) ports.from_vector.read();
    if ((pop & 8u) != 0u) ports.from_store.read();
}

/// Gives one token to every engine in the mask.
inline void signal_tokens(TokenPorts& ports, uint32_t push) {
    if ((push & 1u) != 0u) ports.to_load.write(true);
    if ((push & 2u) != 0u) ports.to_conv.write(true);
    if ((push & 4u) != 0u) ports.to_vector.write(true);
    if ((push & 8u) != 0u) ports.to_store.write(true);
}

/// One engine until its queue is done. After a refusal it executes nothing more, but passes tokens on, so that no
/// engine waits for ever. \tparam ENGINE which one (isa::Engine) \tparam PIXELS `pixel_parallel` of the arch
template <int ENGINE, int PIXELS>
inline Status engine_process(NpuStream<uint32_t>& queue, TokenPorts& ports, const int8_t* bin, int8_t* pool,
                             int8_t sram[][LANES], const Limits& limits) {
    Status result;
    NoTrace trace;
    const uint32_t count = queue.read();
    for (uint32_t n = 0; n < count; ++n) {
        NPU_TRIPCOUNT(1, 4096)
        const uint32_t index = queue.read();
        uint32_t words[isa::INSTRUCTION_WORDS];
        for (uint32_t w = 0; w < isa::INSTRUCTION_WORDS; ++w) {
            NPU_PIPELINE
            words[w] = queue.read();
        }
        wait_tokens(ports, isa::pop_of(words));
        if (result.code == Code::OK) {
            result = execute<PIXELS>(ENGINE, words, bin, pool, sram, limits, trace);
            result.instruction = index;
        }
        signal_tokens(ports, isa::push_of(words));
    }
    return result;
}

}  // namespace hls
}  // namespace npuforge
