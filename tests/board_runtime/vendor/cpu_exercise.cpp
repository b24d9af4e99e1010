// A CPU subgraph through libnpuforge-runner.so: a result that the file has twice, as the NPU reads it and as float, and
// buffers of every type; and one that is computed op by op. Usage: cpu_exercise <libnpuforge-runner.so> <model.bin>
// <partition>; the partition negates its one input. Right values: n = -y, with the tensors' own scales. Prints "ok" or
// the first difference. Built with the stand-ins.
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vart/runner_ext.hpp>
#include <xir/attrs/attrs.hpp>
#include <xir/graph/subgraph.hpp>

#include "npuforge/runner.hpp"
#include "test_buffer.hpp"

namespace {

constexpr xir::DataType kFloat = {xir::DataType::FLOAT, 32}, kFixed = {xir::DataType::XINT, 8};

void require(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("failed: %s\n", what.c_str());
    std::exit(1);
}

float at(const Bytes& bytes, std::size_t index) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * index, 4);
    return value;
}

void put(Bytes& bytes, std::size_t index, float value) { std::memcpy(bytes.data() + 4 * index, &value, 4); }

using Create = vart::Runner* (*)(const xir::Subgraph*);

// A child that is no partition, op by op: q -> real values -> p and whole numbers, with buffers of either type. At fix
// point 1 200 is beyond int8 and 0.26 lies between two values.
void exercise_operators(Create create) {
    const std::vector<std::int32_t> dims = {1, 1, 1, 4};
    const xir::DataType int64 = {xir::DataType::INT, 64};
    xir::Tensor fixed("q", dims, kFixed), again("p", dims, kFixed);
    fixed.attrs.set_attr("fix_point", std::int32_t{1});
    again.attrs.set_attr("npuforge_scale", std::vector<double>{0.25});
    again.attrs.set_attr("npuforge_zero_point", std::vector<std::int32_t>{3});
    xir::Op source("data-fix", fixed), real("fix2float", xir::Tensor("r", dims, kFloat));
    real.inputs["input"] = {&source};
    real.attrs.set_attr("fix_point", std::int32_t{1});
    xir::Op back("npuforge::Quantize", again), label("cast", xir::Tensor("i", dims, int64));
    back.inputs["input"] = label.inputs["input"] = {&real};
    back.attrs.set_attr("scale", std::vector<double>{0.25});
    back.attrs.set_attr("zero_point", std::vector<std::int32_t>{3});
    label.attrs.set_attr("data_type", std::string("INT64"));
    xir::Subgraph subgraph("subgraph_outputs");
    subgraph.attrs["device"] = std::string("CPU");
    subgraph.ops = {&real, &back, &label};
    subgraph.inputs = {source.get_output_tensor()};
    subgraph.outputs = {back.get_output_tensor(), label.get_output_tensor()};
    const std::unique_ptr<vart::Runner> runner(create(&subgraph));
    const float given[4] = {200.0F, 0.26F, -3.5F, 4.0F}, kept[4] = {31.0F, 0.5F, -3.5F, 4.0F};
    const std::int8_t q[4] = {127, 1, -7, 8}, p[4] = {127, 5, -11, 19};
    const std::int64_t whole[4] = {63, 0, -3, 4};
    for (const bool as_float : {false, true}) {
        const xir::Tensor a("q", dims, as_float ? kFloat : kFixed), b("p", dims, as_float ? kFloat : kFixed);
        const xir::Tensor c("i", dims, as_float ? kFloat : int64);
        TestBuffer in(&a, Location::HOST_VIRT), out(&b, Location::HOST_VIRT), number(&c, Location::HOST_VIRT);
        for (std::size_t i = 0; i < 4; ++i) {
            if (as_float)
                put(in.entries[0], i, given[i]);
            else
                in.entries[0][i] = static_cast<char>(q[i]);
        }
        const auto [job, status] = runner->execute_async({&in}, {&out, &number});
        require(status == 0 && runner->wait(static_cast<int>(job), -1) == 0, "operators refused");
        for (std::size_t i = 0; i < 4; ++i) {
            std::int64_t found = 0;
            if (as_float)
                found = static_cast<std::int64_t>(at(number.entries[0], i));
            else
                std::memcpy(&found, number.entries[0].data() + 8 * i, 8);
            require(found == whole[i], "operators: int64");
            require(as_float ? at(out.entries[0], i) == kept[i] : out.entries[0][i] == p[i], "operators: result");
        }
    }
    const xir::Tensor wrong("q", dims, {xir::DataType::INT, 32}), fine("p", dims, kFixed), number("i", dims, kFloat);
    TestBuffer in(&wrong, Location::HOST_VIRT), out(&fine, Location::HOST_VIRT), last(&number, Location::HOST_VIRT);
    require(runner->execute_async({&in}, {&out, &last}).second != 0, "operators: int32 accepted");
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 4, "usage: cpu_exercise LIBRARY BIN PARTITION");
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    require(library != nullptr, std::string("dlopen: ") + (library ? "" : dlerror()));
    const auto create = reinterpret_cast<Create>(dlsym(library, "create_runner"));
    require(create != nullptr, "no create_runner");
    exercise_operators(create);
    const int partition = std::atoi(argv[3]);
    npuforge::Runner own(npuforge::Session::open(argv[2]), partition);
    const npuforge::RunnerTensor &in = own.get_input_tensors()[0], &out = own.get_output_tensors()[0];
    const std::vector<std::int32_t> nhwc = in.dims, nchw = {nhwc[0], nhwc[3], nhwc[1], nhwc[2]};
    const auto count = static_cast<std::size_t>(nhwc[0] * nhwc[1] * nhwc[2] * nhwc[3]);
    const auto channels = static_cast<std::size_t>(nhwc[3]);

    const xir::Tensor y(in.name, nhwc, kFixed), n(out.name, nhwc, kFixed), n_float(out.name + "_float", nchw, kFloat);
    std::ifstream file(argv[2], std::ios::binary);
    const Bytes bin((std::istreambuf_iterator<char>(file)), {});
    xir::Subgraph subgraph("subgraph_under_test");
    subgraph.attrs["device"] = std::string("CPU");
    subgraph.attrs["npuforge_partition"] = static_cast<std::int32_t>(partition);
    subgraph.attrs["reg_id_to_parameter_value"] = std::map<std::string, Bytes>{{"REG_0", bin}};
    subgraph.inputs = {&y};
    subgraph.outputs = {&n, &n_float};
    const std::unique_ptr<vart::Runner> runner(create(&subgraph));

    // By hand, in the order N, H, W, C.
    std::vector<std::int8_t> given(count), fixed(count);
    std::vector<float> real(count), result(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t c = i % channels;
        given[i] = static_cast<std::int8_t>(static_cast<int>(i * 37 % 256) - 128);
        real[i] = static_cast<float>((given[i] - in.npu->zero_point[c]) * in.npu->scale[c]);
        result[i] = -real[i];
        const double scaled = std::floor(static_cast<double>(result[i]) / out.npu->scale[c] + 0.5);
        fixed[i] = static_cast<std::int8_t>(std::fmin(std::fmax(scaled + out.npu->zero_point[c], -128.0), 127.0));
    }
    const auto run = [&](xir::DataType input_type, xir::DataType output_type) {
        const std::string what = input_type.to_string() + " to " + output_type.to_string();
        const xir::Tensor a(in.name, nhwc, input_type), b(out.name, nhwc, output_type);
        TestBuffer source(&a, Location::HOST_VIRT), target(&b, Location::HOST_VIRT),
            plain(&n_float, Location::HOST_VIRT);
        for (std::size_t i = 0; i < count; ++i) {
            if (input_type.bit_width == 8)
                source.entries[0][i] = static_cast<char>(given[i]);
            else
                put(source.entries[0], i, real[i]);
        }
        const auto [job, status] = runner->execute_async({&source}, {&plain, &target});
        require(status == 0 && runner->wait(static_cast<int>(job), -1) == 0, what + " refused");
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t c = i % channels, pixel = i / channels;
            require(at(plain.entries[0], c * (count / channels) + pixel) == result[i], what + ": float result");
            if (output_type.bit_width == 8) {
                require(static_cast<std::int8_t>(target.entries[0][i]) == fixed[i], what + ": int8 result");
            } else {
                const double kept = (fixed[i] - out.npu->zero_point[c]) * out.npu->scale[c];
                require(at(target.entries[0], i) == static_cast<float>(kept), what + ": float32 of the int8 result");
            }
        }
    };
    for (const xir::DataType& input : {kFixed, kFloat})
        for (const xir::DataType& output : {kFixed, kFloat}) run(input, output);

    {  // what is refused: order of axes, types, a missing one of the two
        const xir::Tensor turned(in.name, nchw, kFloat), integers(in.name, nhwc, {xir::DataType::INT, 32});
        const xir::Tensor bf16(in.name, nhwc, {xir::DataType::BFLOAT, 16});
        TestBuffer target(&n, Location::HOST_VIRT), plain(&n_float, Location::HOST_VIRT), good(&y, Location::HOST_VIRT);
        for (const xir::Tensor* wrong : {&turned, &integers, &bf16}) {
            TestBuffer source(wrong, Location::HOST_VIRT);
            require(runner->execute_async({&source}, {&target, &plain}).second != 0, "a foreign buffer accepted");
        }
        require(runner->execute_async({&good}, {&target}).second != 0, "one of two results accepted");
        require(runner->execute_async({&good}, {&target, &target}).second != 0, "one buffer twice accepted");
    }
    const xir::Tensor foreign("m", nhwc, kFixed);
    subgraph.outputs = {&n, &foreign};
    try {
        delete create(&subgraph);
    } catch (const std::exception& error) {
        require(std::string(error.what()).find("tensor m is not in its .bin") != std::string::npos, error.what());
        std::puts("ok");
        return 0;
    }
    require(false, "a tensor that the .bin does not have was accepted");
}
