// An .xmodel of ours on the vendor's own libxir and VART: its DPU child's runner (our plug-in, which vart loads) with
// buffers at every kind of location, int8 and float32, batches of one and three. The vendor's classes, no stand-ins;
// only the buffers' memory is plain memory. Usage: vart_buffers <model.xmodel>; prints "ok" and how many cases ran, or
// the first difference.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vart/runner_ext.hpp>
#include <xir/attrs/attrs.hpp>
#include <xir/graph/graph.hpp>
#include <xir/graph/subgraph.hpp>

#include "test_buffer.hpp"

namespace {

void require(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("failed: %s\n", what.c_str());
    std::exit(1);
}

struct Side {
    Side(const std::vector<const xir::Tensor*>& tensors, int batch, bool as_float, Location location) {
        for (const xir::Tensor* tensor : tensors) {
            auto shape = tensor->get_shape();
            shape[0] *= batch;
            const xir::DataType type = as_float ? xir::DataType{"FLOAT32"} : tensor->get_data_type();
            own.push_back(xir::Tensor::create(tensor->get_name(), shape, type));
            buffers.push_back(std::make_unique<TestBuffer>(own.back().get(), location));
        }
    }
    std::vector<vart::TensorBuffer*> pointers() const {
        std::vector<vart::TensorBuffer*> result;
        for (const auto& buffer : buffers) result.push_back(buffer.get());
        return result;
    }
    std::vector<std::unique_ptr<xir::Tensor>> own;
    std::vector<std::unique_ptr<TestBuffer>> buffers;
};

// Small whole numbers, so that int8 and float32 hold the same real values at the input's fix point.
void fill(Side& inputs, bool as_float, const std::vector<const xir::Tensor*>& tensors) {
    std::mt19937 random(5);
    for (std::size_t i = 0; i < inputs.buffers.size(); ++i) {
        const float step = 1.0F / static_cast<float>(1 << tensors[i]->get_attr<int>("fix_point"));
        for (Bytes& entry : inputs.buffers[i]->entries) {
            const std::size_t count = as_float ? entry.size() / 4 : entry.size();
            for (std::size_t j = 0; j < count; ++j) {
                const int value = static_cast<int>(random() % 256) - 128;
                if (as_float) {
                    const float real = static_cast<float>(value) * step;
                    std::memcpy(entry.data() + 4 * j, &real, 4);
                } else {
                    entry[j] = static_cast<char>(value);
                }
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 2, "usage: vart_buffers XMODEL");
    const auto graph = xir::Graph::deserialize(argv[1]);
    const xir::Subgraph* dpu = nullptr;
    for (const xir::Subgraph* child : graph->get_root_subgraph()->children_topological_sort()) {
        if (!dpu && child->has_attr("device") && child->get_attr<std::string>("device") == "DPU") dpu = child;
    }
    require(dpu != nullptr, "no DPU child");
    const auto attrs = xir::Attrs::create();
    attrs->set_attr<std::string>("mode", "run");
    const auto runner = vart::RunnerExt::create_runner(dpu, attrs.get());
    require(runner != nullptr, "not a RunnerExt");
    const auto inputs = runner->get_input_tensors(), outputs = runner->get_output_tensors();

    int cases = 0;
    for (const bool as_float : {false, true}) {
        for (const int batch : {1, 3}) {
            Side given(inputs, batch, as_float, Location::HOST_VIRT),
                wanted(outputs, batch, as_float, Location::HOST_VIRT);
            fill(given, as_float, inputs);
            const auto [job, status] = runner->execute_async(given.pointers(), wanted.pointers());
            require(status == 0 && runner->wait(static_cast<int>(job), -1) == 0, "host buffers refused");
            for (const Location location : {Location::HOST_PHY, Location::DEVICE_0, Location::DEVICE_7}) {
                Side in(inputs, batch, as_float, location), out(outputs, batch, as_float, location);
                fill(in, as_float, inputs);
                const auto [next, refused] = runner->execute_async(in.pointers(), out.pointers());
                const std::string what = vart::TensorBuffer::to_string(location) + (as_float ? ", float32" : ", int8");
                require(refused == 0 && runner->wait(static_cast<int>(next), -1) == 0, what + " refused");
                for (std::size_t i = 0; i < outputs.size(); ++i) {
                    require(out.buffers[i]->entries == wanted.buffers[i]->entries,
                            what + ": " + outputs[i]->get_name());
                }
                if (location == Location::HOST_PHY) {
                    require(in.buffers[0]->reads == batch && out.buffers[0]->writes == batch, "cache synchronisation");
                }
                ++cases;
            }
            // the vendor's own copy reads what our buffers hold
            Side copy(outputs, batch, as_float, Location::HOST_VIRT);
            vart::TensorBuffer::copy_tensor_buffer(wanted.buffers[0].get(), copy.buffers[0].get());
            require(copy.buffers[0]->entries == wanted.buffers[0]->entries, "copy_tensor_buffer");
        }
    }
    const auto own_in = runner->get_inputs(), own_out = runner->get_outputs();
    require(own_in.size() == inputs.size() && own_out.size() == outputs.size(), "the runner's own buffers");
    require(own_in[0]->get_tensor()->get_name() == inputs[0]->get_name() && own_in[0]->data({0, 0, 0, 0}).second > 0,
            "own buffer");
    std::printf("ok %d\n", cases);
    return 0;
}
