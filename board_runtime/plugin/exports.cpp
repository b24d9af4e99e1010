// The C symbols by which the vendor's VART finds a runner in libnpuforge-runner.so. Owns nothing else.
// Both are needed: Python uses the first, the graph runner and the Vitis AI Library the second.
#include <xir/attrs/attrs.hpp>

#include "plugin_runner.hpp"

#define NPUFORGE_EXPORT extern "C" __attribute__((visibility("default")))

/// A runner in mode `run`; the caller deletes it. Throws std::exception.
NPUFORGE_EXPORT vart::Runner* create_runner(const xir::Subgraph* subgraph) {
    return new npuforge::plugin::PluginRunner(subgraph, "run");
}

/// The same in the mode that `attrs` asks for (`mode`: run, sim or csim; `attrs` may be null).
NPUFORGE_EXPORT vart::Runner* create_runner_with_attrs(const xir::Subgraph* subgraph, xir::Attrs* attrs) {
    const bool asked = attrs && attrs->has_attr("mode", typeid(std::string));
    return new npuforge::plugin::PluginRunner(subgraph, asked ? attrs->get_attr<std::string>("mode") : "run");
}
