// Owns the check of tokens at load: counters of all engine pairs, walked in program order.
#pragma once

#include <array>
#include <string>

#include "npu_isa.hpp"
#include "refuse.hpp"

namespace npuforge::sim {

// Token counters of all engine pairs, walked in program order.
class Tokens {
  public:
    void step(std::size_t index, const std::uint32_t* words) {
        const std::uint32_t opcode = isa::opcode_of(words);
        const int self = isa::engine_of(opcode);
        for (int e = 0; e < 4; ++e) {
            if ((isa::pop_of(words) >> e & 1) == 0) continue;
            if (count_[e][self] == 0)
                refuse(index, isa::opcode_name(opcode), "pop",
                       "waits for engine " + std::to_string(e) + ", which has given no token before it");
            --count_[e][self];
        }
        for (int e = 0; e < 4; ++e) {
            if ((isa::push_of(words) >> e & 1) == 0) continue;
            if (++count_[self][e] > 0xffff)
                refuse(index, isa::opcode_name(opcode), "push",
                       "expected at most 65535 waiting tokens for engine " + std::to_string(e) + ", found more");
        }
    }

    // At the end of a partition, whose HALT is instruction `index`.
    void finish(std::size_t index) const {
        for (int from = 0; from < 4; ++from)
            for (int to = 0; to < 4; ++to)
                if (count_[from][to] != 0)
                    refuse(index, "HALT", "push",
                           "expected every token to be taken before the end of the partition, found " +
                               std::to_string(count_[from][to]) + " left from engine " + std::to_string(from) +
                               " for engine " + std::to_string(to));
    }

  private:
    std::array<std::array<int, 4>, 4> count_{};  // [from][to]
};

}  // namespace npuforge::sim
