/* Stand-in, see ../xir/util/data_type.hpp. The C interface of operator implementations: handles are plain pointers. */
#pragma once

#include <stddef.h>

#include <vart/tensor_buffer.hpp>

extern "C" {

typedef void* xir_op_t;
typedef void* xir_attrs_t;
typedef void* vart_tensor_buffer_t;

typedef struct {
    const char* arg_name;
    size_t num_of_args;
    vart_tensor_buffer_t* args;
} vart_op_imp_input_t;

typedef struct vart_op_imp_t {
    void* (*init)(const xir_op_t op, xir_attrs_t attrs);
    void (*cleanup)(void* self);
    int (*calculate)(void* self, vart_op_imp_input_t inputs[], size_t num_of_inputs, vart_tensor_buffer_t output);
} vart_op_imp_t;
}
