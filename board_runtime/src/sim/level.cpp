// Owns the choice of the instruction set at run time.
#include "npuforge/sim.hpp"
#include "step.hpp"

namespace npuforge::sim {

Level best_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    if (avx2 && avx512) return Level::kAvx512;
    if (avx2) return Level::kAvx2;
#endif
    return Level::kScalar;
}

const Engine* engine_of(Level level) {
#if defined(__x86_64__)
    if (level == Level::kAvx512) return &avx512_engine();
    if (level == Level::kAvx2) return &avx2_engine();
#endif
    (void)level;  // elsewhere best_level() is the only one
    return nullptr;
}

const char* level_name(Level level) {
    switch (level) {
        case Level::kAvx512:
            return "avx512";
        case Level::kAvx2:
            return "avx2";
        default:
            return "scalar";
    }
}

Level parse_level(const std::string& name) {
    if (name == "auto") return best_level();
    for (Level level : {Level::kScalar, Level::kAvx2, Level::kAvx512}) {
        if (name != level_name(level)) continue;
        if (level > best_level())
            throw ArgumentError("simulator level: this processor executes up to " +
                                std::string(level_name(best_level())) + ", found " + name);
        return level;
    }
    throw ArgumentError("simulator level: expected auto, scalar, avx2 or avx512, found " + name);
}

}  // namespace npuforge::sim
