// What an operator folder's parallel.hpp is written with: the operator's arithmetic as a body over independent indices,
// compiled for the CPU partition and for CUDA, and what a binding (TensorRT) asks of the operator besides.
//
// `struct <Type> : Operator` in namespace npuforge::parallel has: `name`; `fields()`, its attributes; a constructor
// from Attributes (std::invalid_argument for values it refuses); `outputs()`, element types; `shapes`, output
// dimensions from input dimensions (of std::int64_t or symbolic); `run`, which calls `each(count, body)` one or more
// times, each time for a body whose indices may run in any order; and what differs from Operator.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#ifdef __CUDACC__
#define NPUFORGE_BOTH __host__ __device__
#else
#define NPUFORGE_BOTH
#endif

namespace npuforge {

NPUFORGE_BOTH inline float leaky_relu(float x, float alpha) { return x < 0.0f ? alpha * x : x; }
NPUFORGE_BOTH inline float sigmoid(float x) {
    if (x >= 0.0f) return 1.0f / (1.0f + std::exp(-x));
    const float e = std::exp(x);
    return e / (1.0f + e);
}

namespace parallel {

enum class Element : std::uint8_t { kFloat32, kInt64 };

/// An attribute: whether its values are floats (else integers), and what it is where the node has none.
struct Field {
    const char* name;
    bool is_float;
    std::vector<double> otherwise;
};

/// Attribute values by name, the defaults filled in; floats and integers as doubles, which hold both exactly.
struct Attributes {
    std::map<std::string, std::vector<double>> values;

    const std::vector<double>& list(const char* name) const { return values.at(name); }
    /// The first value.
    double number(const char* name) const { return values.at(name).at(0); }
    std::int64_t integer(const char* name) const { return static_cast<std::int64_t>(number(name)); }
};

template <class Dim>
using Dims = std::vector<Dim>;

/// Product of dimensions [first, last).
inline std::int64_t count_of(const Dims<std::int64_t>& dims, std::size_t first, std::size_t last) {
    std::int64_t count = 1;
    for (std::size_t i = first; i < last; ++i) count *= dims[i];
    return count;
}
inline std::int64_t count_of(const Dims<std::int64_t>& dims) { return count_of(dims, 0, dims.size()); }

/// Tensors of one call, dense; on a device, device memory.
struct Call {
    std::vector<Dims<std::int64_t>> input_dims, output_dims;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* workspace = nullptr;

    const float* in(std::size_t i) const { return static_cast<const float*>(inputs[i]); }
    float* out(std::size_t i = 0) const { return static_cast<float*>(outputs[i]); }
};

/// What most operators are.
struct Operator {
    /// The axis of every output whose size only the data tell, -1: there is none. `shapes` gives the most; a last
    /// output, int32, says the real size.
    std::int64_t open_axis() const { return -1; }
    static Element input(std::size_t) { return Element::kFloat32; }
    std::size_t workspace(const Call&) const { return 0; }  ///< bytes of Call::workspace
};

/// Runs a body over all indices, here and now.
struct OnHost {
    template <class Body>
    void operator()(std::int64_t count, const Body& body) const {
        for (std::int64_t i = 0; i < count; ++i) body(i);
    }
};

}  // namespace parallel
}  // namespace npuforge
