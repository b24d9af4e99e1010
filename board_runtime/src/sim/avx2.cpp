// Owns the avx2 engines.
#include "step.hpp"

namespace npuforge::sim {

const Engine& avx2_engine() {
    static const Engine engine;
    return engine;
}

}  // namespace npuforge::sim
