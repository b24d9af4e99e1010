// Loads libnpuforge-runner.so as the vendor's VART does and compares it, byte for byte, with our own runner on the same
// .bin. Usage: plugin_exercise <libnpuforge-runner.so> <model.bin> <partition>; prints "ok" or the first difference.
// Built with the stand-ins.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vart/runner_ext.hpp>
#include <xir/attrs/attrs.hpp>
#include <xir/graph/subgraph.hpp>

#include "npuforge/runner.hpp"
#include "test_buffer.hpp"

namespace {

using npuforge::RunnerTensor;

void require(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("failed: %s\n", what.c_str());
    std::exit(1);
}

xir::DataType data_type(npuforge::cpu::Type type, bool as_float) {
    if (as_float || type == npuforge::cpu::Type::kFloat32) return {xir::DataType::FLOAT, 32};
    return {type == npuforge::cpu::Type::kUint8 ? xir::DataType::XUINT : xir::DataType::XINT, 8};
}

std::vector<xir::Tensor> tensors_of(const std::vector<RunnerTensor>& list, int batch, bool as_float) {
    std::vector<xir::Tensor> result;
    for (const RunnerTensor& tensor : list) {
        auto dims = tensor.dims;
        dims[0] *= batch;
        result.emplace_back(tensor.name, dims, data_type(tensor.type, as_float));
    }
    return result;
}

struct Buffers {
    Buffers(const std::vector<xir::Tensor>& tensors, Location location) {
        for (const xir::Tensor& tensor : tensors) owned.push_back(std::make_unique<TestBuffer>(&tensor, location));
    }
    std::vector<vart::TensorBuffer*> pointers(bool reversed = false) const {
        std::vector<vart::TensorBuffer*> result;
        for (const auto& buffer : owned) result.push_back(buffer.get());
        if (reversed) std::reverse(result.begin(), result.end());
        return result;
    }
    std::vector<std::unique_ptr<TestBuffer>> owned;
};

void fill(Buffers& buffers, unsigned seed) {
    std::mt19937 random(seed);
    for (auto& buffer : buffers.owned)
        for (Bytes& entry : buffer->entries) {
            if (buffer->get_tensor()->get_data_type().type == xir::DataType::FLOAT) {
                std::normal_distribution<float> normal(0.0F, 2.0F);
                for (std::size_t i = 0; i + 4 <= entry.size(); i += 4) {
                    const float value = normal(random);
                    std::memcpy(entry.data() + i, &value, 4);
                }
            } else {
                for (char& byte : entry) byte = static_cast<char>(random());
            }
        }
}

// Our own runner on the entries of a batch, one by one.
void expect(npuforge::Runner& own, const Buffers& inputs, Buffers& outputs) {
    for (std::size_t batch = 0; batch < inputs.owned[0]->entries.size(); ++batch) {
        std::vector<npuforge::TensorBuffer> native;
        for (const Buffers* side : {&inputs, static_cast<const Buffers*>(&outputs)})
            for (const auto& buffer : side->owned) {
                npuforge::TensorBuffer one;
                const xir::Tensor& tensor = *buffer->get_tensor();
                one.name = tensor.get_name();
                one.data = buffer->entries[batch].data();
                one.bytes = buffer->entries[batch].size();
                one.type = tensor.get_data_type().type == xir::DataType::FLOAT   ? npuforge::cpu::Type::kFloat32
                           : tensor.get_data_type().type == xir::DataType::XUINT ? npuforge::cpu::Type::kUint8
                                                                                 : npuforge::cpu::Type::kInt8;
                for (const std::int32_t dim : tensor.get_shape()) one.shape.push(dim);
                one.shape.dim[0] = 1;
                native.push_back(one);
            }
        std::vector<npuforge::TensorBuffer*> in, out;
        for (std::size_t i = 0; i < native.size(); ++i) (i < inputs.owned.size() ? in : out).push_back(&native[i]);
        const auto [job, status] = own.execute_async(in, out);
        require(status == 0, "our own runner refused: " + own.message(job));
        require(own.wait(static_cast<int>(job)) == 0, "our own runner failed: " + own.message(job));
    }
}

void compare(const Buffers& found, const Buffers& expected, const std::string& what) {
    for (std::size_t i = 0; i < found.owned.size(); ++i)
        require(found.owned[i]->entries == expected.owned[i]->entries,
                what + ": output " + found.owned[i]->get_tensor()->get_name() + " differs");
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 4, "usage: plugin_exercise LIBRARY BIN PARTITION");
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    require(library != nullptr, std::string("dlopen: ") + (library ? "" : dlerror()));
    using Create = vart::Runner* (*)(const xir::Subgraph*);
    using CreateWithAttrs = vart::Runner* (*)(const xir::Subgraph*, xir::Attrs*);
    const auto create = reinterpret_cast<Create>(dlsym(library, "create_runner"));
    const auto create_with_attrs = reinterpret_cast<CreateWithAttrs>(dlsym(library, "create_runner_with_attrs"));
    require(create && create_with_attrs, "a symbol is missing");

    const int partition = std::atoi(argv[3]);
    npuforge::Runner own(npuforge::Session::open(argv[2]), partition);
    const auto inputs = tensors_of(own.get_input_tensors(), 1, false);
    const auto outputs = tensors_of(own.get_output_tensors(), 1, false);
    std::ifstream file(argv[2], std::ios::binary);
    const Bytes bin((std::istreambuf_iterator<char>(file)), {});
    xir::Subgraph subgraph("subgraph_under_test");
    subgraph.attrs["device"] = std::string("DPU");
    subgraph.attrs["npuforge_partition"] = static_cast<std::int32_t>(partition);
    for (const xir::Tensor& tensor : inputs) subgraph.inputs.push_back(&tensor);
    for (const xir::Tensor& tensor : outputs) subgraph.outputs.push_back(&tensor);

    const auto refused = [&](const std::string& part) {
        try {
            delete create(&subgraph);
        } catch (const std::exception& error) {
            require(std::string(error.what()).find(part) != std::string::npos, std::string("message: ") + error.what());
            return;
        }
        require(false, "expected a refusal that names " + part);
    };
    refused("reg_id_to_parameter_value");
    Bytes damaged = bin;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
    subgraph.attrs["reg_id_to_parameter_value"] = std::map<std::string, Bytes>{{"REG_0", damaged}};
    refused("CRC");
    subgraph.attrs["reg_id_to_parameter_value"] = std::map<std::string, Bytes>{{"REG_0", bin}};

    xir::Attrs attrs;
    attrs.set_attr("mode", std::string("sim"));
    std::unique_ptr<vart::Runner> runner(create_with_attrs(&subgraph, &attrs));
    auto* ext = dynamic_cast<vart::RunnerExt*>(runner.get());
    require(ext != nullptr, "not a RunnerExt");
    require(
        runner->get_input_tensors().size() == inputs.size() && runner->get_output_tensors().size() == outputs.size(),
        "tensor lists");
    require(ext->get_inputs().size() == inputs.size() && ext->get_outputs()[0]->data().second > 0, "own buffers");

    std::set<std::uint32_t> ids;
    for (const bool as_float : {false, true})
        for (const Location location : {Location::HOST_VIRT, Location::HOST_PHY, Location::DEVICE_0})
            for (const int batch : {1, 3}) {
                const auto in_tensors = tensors_of(own.get_input_tensors(), batch, as_float);
                const auto out_tensors = tensors_of(own.get_output_tensors(), batch, as_float);
                Buffers in(in_tensors, location), out(out_tensors, location),
                    expected(out_tensors, Location::HOST_VIRT);
                fill(in, static_cast<unsigned>(batch));
                expect(own, in, expected);
                const auto [job, status] = runner->execute_async(in.pointers(true), out.pointers(true));
                require(status == 0, "execute_async refused");
                require(ids.insert(job).second, "a job id came twice");
                require(runner->wait(static_cast<int>(job), -1) == 0, "wait");
                compare(out, expected, std::string(as_float ? "float32" : "int8") + ", batch " + std::to_string(batch));
                if (location == Location::HOST_PHY)
                    require(in.owned[0]->reads == batch && out.owned[0]->writes == batch, "cache synchronisation");
                require(runner->wait(static_cast<int>(job), 0) != 0, "a job was waited for twice");
            }

    {  // wrong buffers
        Buffers in(inputs, Location::HOST_VIRT), out(outputs, Location::HOST_VIRT);
        require(runner->execute_async({}, out.pointers()).second != 0, "no inputs accepted");
        xir::Tensor odd("odd", inputs[0].get_shape(), inputs[0].get_data_type());
        TestBuffer named(&odd, Location::HOST_VIRT);
        require(runner->execute_async({&named}, out.pointers()).second != 0, "a foreign name accepted");
        auto dims = inputs[0].get_shape();
        dims.back() += 1;
        xir::Tensor wide(inputs[0].get_name(), dims, inputs[0].get_data_type());
        TestBuffer shaped(&wide, Location::HOST_VIRT);
        require(runner->execute_async({&shaped}, out.pointers()).second != 0, "a foreign shape accepted");
        xir::Tensor half(inputs[0].get_name(), inputs[0].get_shape(), {xir::DataType::FLOAT, 16});
        TestBuffer typed(&half, Location::HOST_VIRT);
        require(runner->execute_async({&typed}, out.pointers()).second != 0, "float16 accepted");
        auto twice = in.pointers();
        twice.push_back(twice[0]);
        require(runner->execute_async(twice, out.pointers()).second != 0, "two buffers of one name accepted");
        for (const Location location : {Location::HOST_VIRT, Location::HOST_PHY}) {
            Buffers less(inputs, location), least(outputs, location);
            less.owned[0]->entries[0].resize(less.owned[0]->entries[0].size() - 1);
            least.owned[0]->entries[0].clear();
            require(runner->execute_async(less.pointers(), out.pointers()).second != 0, "a short input accepted");
            require(runner->execute_async(in.pointers(), least.pointers()).second != 0, "an empty output accepted");
        }
    }

    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
            Buffers in(inputs, Location::HOST_VIRT), out(outputs, Location::HOST_VIRT),
                expected(outputs, Location::HOST_VIRT);
            fill(in, 100 + thread);
            expect(own, in, expected);
            for (int repeat = 0; repeat < 5; ++repeat) {
                const auto [job, status] = runner->execute_async(in.pointers(), out.pointers());
                if (status != 0 || runner->wait(static_cast<int>(job), -1) != 0) ++wrong;
                if (out.owned[0]->entries != expected.owned[0]->entries) ++wrong;
            }
        });
    for (std::thread& thread : threads) thread.join();
    require(wrong == 0, "threads that share the runner");

    {  // any job, a look without waiting, destruction with work in flight
        Buffers in(inputs, Location::HOST_VIRT), out(outputs, Location::HOST_VIRT);
        fill(in, 7);
        const auto first = runner->execute_async(in.pointers(), out.pointers());
        require(runner->wait(-1, -1) == 0 && runner->wait(static_cast<int>(first.first), 0) != 0, "wait for any");
        Buffers more(outputs, Location::HOST_VIRT);
        runner->execute_async(in.pointers(), more.pointers());
        runner.reset();
    }
    std::puts("ok");
    return 0;
}
