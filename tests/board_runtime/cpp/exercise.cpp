// Many threads on one session and on runners, sessions created and destroyed with work in flight: for the sanitizers.
//
// exercise MODEL.bin DEVICE ROUNDS: exits 0 if every result of every thread equals the first one.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "npuforge/runner.hpp"
#include "npuforge/session.hpp"

using namespace npuforge;  // NOLINT

namespace {

struct Buffers {
    std::vector<std::vector<std::uint8_t>> memory;
    std::vector<InputBuffer> inputs;
    std::vector<OutputBuffer> outputs;

    explicit Buffers(const Session& session) {
        const Program& program = session.program();
        for (const std::string& name : program.inputs()) {
            InputBuffer buffer;
            buffer.shape = cpu::Shape(program.tensor(name).application_shape());
            const auto count = static_cast<std::size_t>(buffer.shape.count());
            memory.emplace_back(4 * count);
            auto* values = reinterpret_cast<float*>(memory.back().data());
            for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 17) * 0.25f - 2.0f;
            buffer.data = memory.back().data();
            inputs.push_back(buffer);
        }
        outputs.resize(program.outputs().size());
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            memory.emplace_back(session.output_prototype(i).bytes());
            outputs[i].data = memory.back().data();
            outputs[i].capacity = memory.back().size();
        }
    }
    void run(Session& session) { session.run(inputs.data(), inputs.size(), outputs.data(), outputs.size()); }
    bool same(const Buffers& other) const {
        for (std::size_t i = 0; i < outputs.size(); ++i)
            if (std::memcmp(outputs[i].data, other.outputs[i].data, outputs[i].capacity) != 0) return false;
        return true;
    }
};

int exercise(const char* path, const char* device, int rounds) {
    SessionOptions options;
    options.device = device;
    options.threads = 2;
    const auto program = Program::load(path);
    auto session = std::make_shared<Session>(program, options);
    Buffers expected(*session);
    expected.run(*session);
    std::atomic<int> wrong{0};

    std::vector<std::thread> threads;  // one session, many threads
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            Buffers own(*session);
            for (int i = 0; i < rounds; ++i) {
                own.run(*session);
                wrong += !own.same(expected);
            }
        });
    for (int t = 0; t < 2; ++t)  // sessions that come and go beside it
        threads.emplace_back([&] {
            for (int i = 0; i < rounds; ++i) {
                Session brief(program, options);
                Buffers own(brief);
                own.run(brief);
                wrong += !own.same(expected);
            }
        });
    for (std::thread& thread : threads) thread.join();
    threads.clear();

    for (int i = 0; i < rounds; ++i) {  // runners destroyed with jobs queued and running
        Buffers own(*session);
        auto runner = std::make_unique<Runner>(session, -1, 2);
        std::vector<TensorBuffer> buffers(own.inputs.size() + own.outputs.size());
        std::vector<TensorBuffer*> in, out;
        for (std::size_t k = 0; k < buffers.size(); ++k) {
            TensorBuffer& buffer = buffers[k];
            const bool input = k < own.inputs.size();
            const RunnerTensor& tensor =
                input ? runner->get_input_tensors()[k] : runner->get_output_tensors()[k - own.inputs.size()];
            buffer.name = tensor.name;
            for (const std::int32_t dim : tensor.dims) buffer.shape.push(dim);
            buffer.data = input ? const_cast<void*>(own.inputs[k].data) : own.outputs[k - own.inputs.size()].data;
            buffer.bytes = own.memory[k].size();
            (input ? in : out).push_back(&buffer);
        }
        // One job at a time: two that share their output buffers would race with each other.
        const auto first = runner->execute_async(in, out);
        wrong += runner->wait(static_cast<int>(first.first)) != Runner::kOk;
        const auto last = runner->execute_async(in, out);
        wrong += last.second != Runner::kOk;
        runner.reset();
    }
    for (int i = 0; i < rounds; ++i) {  // the session goes while other threads still hold it
        auto brief = std::make_shared<Session>(program, options);
        std::thread user([brief, &wrong, &expected] {
            Buffers own(*brief);
            own.run(*brief);
            wrong += !own.same(expected);
        });
        brief.reset();
        user.join();
    }
    if (wrong != 0) std::fprintf(stderr, "%d wrong results\n", wrong.load());
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: exercise MODEL.bin DEVICE ROUNDS\n");
        return 2;
    }
    try {
        return exercise(argv[1], argv[2], std::atoi(argv[3]));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
