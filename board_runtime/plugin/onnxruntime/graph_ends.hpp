// Inputs, outputs and nodes of an OrtGraph by name: what is compared with a compiled program.
#pragma once

#include <onnxruntime_c_api.h>

#include <string>
#include <vector>

#include "npuforge/program.hpp"
#include "npuforge/session.hpp"

namespace npuforge::ort {

/// An input or output of a graph or node.
struct End {
    std::string name;  ///< empty: an optional one that is left out
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::vector<std::int64_t> dims;  ///< -1: only known when it runs
    bool shaped = false;             ///< false: nothing is known of the shape
};

/// Of the graph: what the application must give (initialisers are not in it), and what it gets.
std::vector<End> inputs_of(const OrtApi& api, const OrtGraph* graph);
std::vector<End> outputs_of(const OrtApi& api, const OrtGraph* graph);
std::vector<const OrtNode*> nodes_of(const OrtApi& api, const OrtGraph* graph);
/// Names of a node's inputs and outputs.
std::vector<std::string> input_names(const OrtApi& api, const OrtNode* node);
std::vector<std::string> output_names(const OrtApi& api, const OrtNode* node);

/// Throws ArgumentError that names the first input or output in which graph and program differ.
void check_ends(const OrtApi& api, const OrtGraph* graph, const Session& session);

}  // namespace npuforge::ort
