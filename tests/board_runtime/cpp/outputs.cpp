// Runs a `.bin` once on a fixed input and writes the bytes of all outputs to stdout: outputs MODEL.bin DEVICE. Element
// i of an input is (i * 2654435761 mod 2^64) mod 255, as float32.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "npuforge/session.hpp"

using namespace npuforge;  // NOLINT

namespace {

void run(const char* path, const char* device) {
    SessionOptions options;
    options.device = device;
    Session session(Program::load(path), options);
    const Program& program = session.program();
    std::vector<std::vector<std::uint8_t>> memory;
    std::vector<InputBuffer> inputs;
    std::vector<OutputBuffer> outputs(program.outputs().size());
    for (const std::string& name : program.inputs()) {
        InputBuffer buffer;
        buffer.shape = cpu::Shape(program.tensor(name).application_shape());
        const auto count = static_cast<std::size_t>(buffer.shape.count());
        memory.emplace_back(4 * count);
        auto* values = reinterpret_cast<float*>(memory.back().data());
        for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 2654435761u % 255u);
        buffer.data = memory.back().data();
        inputs.push_back(buffer);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        memory.emplace_back(session.output_prototype(i).bytes());
        outputs[i].data = memory.back().data();
        outputs[i].capacity = memory.back().size();
    }
    session.run(inputs.data(), inputs.size(), outputs.data(), outputs.size());
    for (const OutputBuffer& output : outputs) std::fwrite(output.data, 1, output.capacity, stdout);
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) return 2;
    try {
        run(arguments[1], arguments[2]);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
