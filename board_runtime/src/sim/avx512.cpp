// Owns the avx512 engines.
#include "step.hpp"

namespace npuforge::sim {

const Engine& avx512_engine() {
    static const Engine engine;
    return engine;
}

}  // namespace npuforge::sim
