// `vart_init_op_imp`: by this symbol the vendor's CPU task finds the implementation of an operator in
// libvart_op_imp_<type>.so, which are links to this one library. Owns the C interface only.
#include <vart/op_imp.h>

#include <exception>
#include <iostream>

#include "xir_op.hpp"

namespace {

using npuforge::plugin::XirOp;

// `op` is an xir::Op. An exception ends the creation of the runner.
void* init(const xir_op_t op, xir_attrs_t) { return new XirOp(*static_cast<const xir::Op*>(op)); }

void cleanup(void* self) { delete static_cast<XirOp*>(self); }

char* host_address(void* tensor_buffer) {
    auto* buffer = static_cast<vart::TensorBuffer*>(tensor_buffer);
    const std::vector<std::int32_t> first(buffer->get_tensor()->get_shape().size(), 0);
    return reinterpret_cast<char*>(buffer->data(first).first);
}

// Tensor buffers in, 0 for success.
int calculate(void* self, vart_op_imp_input_t inputs[], std::size_t input_count, vart_tensor_buffer_t output) {
    try {
        std::vector<const void*> sources;
        for (std::size_t i = 0; i < input_count; ++i) {
            for (std::size_t j = 0; j < inputs[i].num_of_args; ++j) sources.push_back(host_address(inputs[i].args[j]));
        }
        static_cast<const XirOp*>(self)->run(sources, host_address(output));
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "npuforge-ops: " << error.what() << '\n';
        return 1;
    }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) vart_op_imp_t vart_init_op_imp(const xir_op_t) {
    vart_op_imp_t result;
    result.init = init;
    result.cleanup = cleanup;
    result.calculate = calculate;
    return result;
}
