// Queues and tokens: four engines, each with its own in-order queue, advance only when the tokens they wait for have
// been given.
//
// The order in which ready engines are served is a policy. A program is right only if every policy gives the same bytes
// in the pool: that is how C simulation proves that the tokens suffice (real engines run at the same time, in an order
// nobody can foresee).
#pragma once

#include "conv_engine.hpp"
#include "load_engine.hpp"
#include "store_engine.hpp"
#include "vector_engine.hpp"

namespace npuforge {
namespace hls {

constexpr int ENGINES = (int)isa::ENGINE_COUNT;
constexpr uint32_t MAX_TOKENS = 65535;

/// Which ready engine is served next.
enum class Policy : uint32_t {
    PROGRAM_ORDER = 0,  ///< the oldest instruction
    LOAD_FIRST = 1,     ///< LOAD runs as far ahead as its tokens allow, then VECTOR, STORE, CONV
    STORE_LAST = 2,     ///< STORE only when nothing else can run; CONV before VECTOR before LOAD
    RANDOM = 3          ///< any, by a seeded generator
};

/// Sees every finished instruction, and every word of a convolution before the sum of its residual stage; this one does
/// nothing.
struct NoTrace {
    void after(uint32_t, const int8_t (*)[LANES], const int8_t*) {}
    void before_sum(uint32_t, const int8_t[LANES]) {}
};

/// State of the sequencer.
/// Invariant: every instruction before head[e] that belongs to engine e is finished, none from head[e] on has begun.
struct Queues {
    uint32_t head[ENGINES];             ///< index of the next instruction of each engine, `count` if there is none
    uint32_t tokens[ENGINES][ENGINES];  ///< [from][to] given and not yet taken
    uint32_t random;                    ///< generator state, never 0
};

/// The 32 words of instruction `index`.
inline void fetch(const int8_t* bin, uint32_t instruction_addr, uint32_t index,
                  uint32_t words[isa::INSTRUCTION_WORDS]) {
    const uint32_t base = instruction_addr + index * isa::INSTRUCTION_BYTES;
    for (uint32_t w = 0; w < isa::INSTRUCTION_WORDS; ++w) {
        NPU_PIPELINE
        uint32_t value = 0;
        NPU_UNROLL_NEXT
        for (uint32_t k = 0; k < 4u; ++k) {
            NPU_UNROLL
            value |= (uint32_t)(uint8_t)bin[base + 4u * w + k] << (8u * k);
        }
        words[w] = value;
    }
}

/// First instruction of `engine` from `index` on.
inline uint32_t next_of(const int8_t* bin, uint32_t instruction_addr, uint32_t count, int engine, uint32_t index) {
    for (uint32_t k = index; k < count; ++k) {
        NPU_TRIPCOUNT(1, 64)
        if (isa::engine_of((uint32_t)(uint8_t)bin[instruction_addr + k * isa::INSTRUCTION_BYTES]) == engine) return k;
    }
    return count;
}

/// Every instruction is legal, HALT is the last one and no other.
inline Status check_program(const int8_t* bin, uint32_t instruction_addr, uint32_t count, const Limits& limits) {
    const uint64_t end = (uint64_t)instruction_addr + (uint64_t)count * isa::INSTRUCTION_BYTES;
    if (count == 0u || end > limits.bin_bytes) return refuse(Code::NO_HALT, Id::none);
    for (uint32_t k = 0; k < count; ++k) {
        NPU_TRIPCOUNT(1, 4096)
        uint32_t words[isa::INSTRUCTION_WORDS];
        fetch(bin, instruction_addr, k, words);
        Status status = check_instruction(words, limits);
        const bool halt = isa::opcode_of(words) == (uint32_t)isa::Opcode::HALT;
        if (status.code == Code::OK && halt && k + 1u < count) status = refuse(Code::EARLY_HALT, Id::opcode);
        if (status.code == Code::OK && !halt && k + 1u == count) status = refuse(Code::NO_HALT, Id::opcode);
        if (status.code != Code::OK) {
            status.instruction = k;
            return status;
        }
    }
    return Status();
}

/// Whether all tokens that `words` waits for are there.
inline bool ready(const Queues& q, const uint32_t words[isa::INSTRUCTION_WORDS], int engine) {
    const uint32_t pop = isa::pop_of(words);
    bool all = true;
    NPU_UNROLL_NEXT
    for (int from = 0; from < ENGINES; ++from) {
        NPU_UNROLL
        all = all && (((pop >> from) & 1u) == 0u || q.tokens[from][engine] > 0u);
    }
    return all;
}

inline void take_tokens(Queues& q, uint32_t pop, int engine) {
    NPU_UNROLL_NEXT
    for (int from = 0; from < ENGINES; ++from) {
        NPU_UNROLL
        q.tokens[from][engine] -= (pop >> from) & 1u;
    }
}

/// False if a counter would overflow.
inline bool give_tokens(Queues& q, uint32_t push, int engine) {
    bool room = true;
    NPU_UNROLL_NEXT
    for (int to = 0; to < ENGINES; ++to) {
        NPU_UNROLL
        q.tokens[engine][to] += (push >> to) & 1u;
        room = room && q.tokens[engine][to] <= MAX_TOKENS;
    }
    return room;
}

/// Whether a token is left that nobody has taken.
inline bool tokens_left(const Queues& q) {
    bool left = false;
    for (int from = 0; from < ENGINES; ++from)
        for (int to = 0; to < ENGINES; ++to) left = left || q.tokens[from][to] != 0u;
    return left;
}

/// Rank of an engine, smallest first.
inline uint32_t rank(Queues& q, Policy policy, int engine) {
    switch (policy) {
        case Policy::LOAD_FIRST: {
            const uint32_t order[ENGINES] = {0u, 3u, 1u, 2u};
            return order[engine];
        }
        case Policy::STORE_LAST: {
            const uint32_t order[ENGINES] = {2u, 0u, 1u, 3u};
            return order[engine];
        }
        case Policy::RANDOM:
            q.random ^= q.random << 13;
            q.random ^= q.random >> 17;
            q.random ^= q.random << 5;
            return q.random >> 1;
        default:
            return q.head[engine];
    }
}

/// Hands one instruction to its engine.
template <int PIXELS, class Trace>
inline Status execute(int engine, const uint32_t words[isa::INSTRUCTION_WORDS], const int8_t* bin, int8_t* pool,
                      int8_t sram[][LANES], const Limits& limits, Trace& trace) {
    switch ((isa::Engine)engine) {
        case isa::Engine::LOAD:
            return load_engine(words, bin, pool, sram, limits);
        case isa::Engine::CONV:
            return conv_engine<PIXELS>(words, sram, limits, trace);
        case isa::Engine::VECTOR:
            return vector_engine(words, sram, limits);
        default:
            return store_engine(words, pool, sram, limits);
    }
}

/// Runs a program that `check_program` has passed. Ends when all queues are empty, or when no engine can go on
/// (DEADLOCK names the oldest waiting instruction), and refuses tokens that are left at the end: each round finishes
/// one instruction, so that there are at most `count` rounds.
/// \tparam PIXELS `pixel_parallel` of the arch \tparam Trace sees every finished instruction (NoTrace says what else)
/// \param bin DDR region 0 \param pool DDR region 1 \param sram on-chip memory \param seed of Policy::RANDOM
template <int PIXELS, class Trace>
inline Status run_queues(const int8_t* bin, int8_t* pool, int8_t sram[][LANES], const Limits& limits,
                         uint32_t instruction_addr, uint32_t count, Policy policy, uint32_t seed, Trace& trace) {
    Queues q;
    NPU_PARTITION(q.tokens, 0)
    q.random = seed == 0u ? 0x9e3779b9u : seed;
    for (int e = 0; e < ENGINES; ++e) {
        q.head[e] = next_of(bin, instruction_addr, count, e, 0u);
        for (int to = 0; to < ENGINES; ++to) q.tokens[e][to] = 0u;
    }
    for (uint32_t round = 0; round < count; ++round) {
        NPU_TRIPCOUNT(1, 4096)
        int chosen = -1;
        uint32_t best = 0xffffffffu;
        uint32_t oldest = count;
        uint32_t words[isa::INSTRUCTION_WORDS];
        for (int e = 0; e < ENGINES; ++e) {
            if (q.head[e] == count) continue;
            oldest = q.head[e] < oldest ? q.head[e] : oldest;
            uint32_t candidate[isa::INSTRUCTION_WORDS];
            fetch(bin, instruction_addr, q.head[e], candidate);
            if (!ready(q, candidate, e)) continue;
            const uint32_t order = rank(q, policy, e);
            if (order < best) {
                best = order;
                chosen = e;
                for (uint32_t w = 0; w < isa::INSTRUCTION_WORDS; ++w) words[w] = candidate[w];
            }
        }
        Status status;
        if (chosen < 0) {
            status = refuse(Code::DEADLOCK, Id::pop);
            status.instruction = oldest;
            return status;
        }
        const uint32_t index = q.head[chosen];
        take_tokens(q, isa::pop_of(words), chosen);
        status = execute<PIXELS>(chosen, words, bin, pool, sram, limits, trace);
        if (status.code == Code::OK && !give_tokens(q, isa::push_of(words), chosen))
            status = refuse(Code::TOKEN_OVERFLOW, Id::push);
        if (status.code != Code::OK) {
            status.instruction = index;
            return status;
        }
        trace.after(index, sram, pool);
        q.head[chosen] = next_of(bin, instruction_addr, count, chosen, index + 1u);
    }
    Status status;
    if (tokens_left(q)) {
        status = refuse(Code::TOKEN_LEFT, Id::push);
        status.instruction = count - 1u;
    }
    return status;
}

}  // namespace hls
}  // namespace npuforge
