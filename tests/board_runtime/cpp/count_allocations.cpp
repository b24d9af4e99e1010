// Counts every allocation of the process (malloc family and operator new, which calls it) during inferences after
// warm-up.
//
// count_allocations MODEL.bin DEVICE THREADS RUNS: prints `open N` (not 0), `session N` and `runner N`, the allocations
// of RUNS calls each.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "npuforge/runner.hpp"
#include "npuforge/session.hpp"

static std::atomic<bool> counting{false};
static std::atomic<long> allocations{0};

static void note() {
    if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

// glibc's own entry points: the interposed functions must not allocate to find the real ones.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t size) {
    note();
    return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
    note();
    return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
    note();
    return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
    note();
    return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
    note();
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
    note();
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : 12;
}
void free(void* p) { __libc_free(p); }
}

using namespace npuforge;  // NOLINT

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: count_allocations MODEL.bin DEVICE THREADS RUNS\n");
        return 2;
    }
    try {
        SessionOptions options;
        options.device = argv[2];
        options.threads = std::atoi(argv[3]);
        const int runs = std::atoi(argv[4]);
        counting = true;  // proof that the counter counts
        const auto session = Session::open(argv[1], options);
        counting = false;
        std::printf("open %ld\n", allocations.exchange(0));
        const Program& program = session->program();
        std::vector<std::vector<std::uint8_t>> memory;
        std::vector<InputBuffer> inputs;
        std::vector<OutputBuffer> outputs(program.outputs().size());
        for (const std::string& name : program.inputs()) {
            const TensorMeta& tensor = program.tensor(name);
            InputBuffer buffer;
            buffer.shape = cpu::Shape(tensor.application_shape());
            memory.emplace_back(static_cast<std::size_t>(buffer.shape.count()) * 4, std::uint8_t{0});
            buffer.data = memory.back().data();
            inputs.push_back(buffer);
        }
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            memory.emplace_back(session->output_prototype(i).bytes(), std::uint8_t{0});
            outputs[i].data = memory.back().data();
            outputs[i].capacity = memory.back().size();
        }
        const auto infer = [&] { session->run(inputs.data(), inputs.size(), outputs.data(), outputs.size()); };
        infer();
        infer();
        counting = true;
        for (int i = 0; i < runs; ++i) infer();
        counting = false;
        std::printf("session %ld\n", allocations.exchange(0));

        Runner runner(session, -1);
        std::vector<TensorBuffer> buffers;
        std::vector<TensorBuffer*> in, out;
        for (const auto* list : {&runner.get_input_tensors(), &runner.get_output_tensors()})
            for (const RunnerTensor& tensor : *list) {
                TensorBuffer buffer;
                buffer.name = tensor.name;
                for (const std::int32_t dim : tensor.dims) buffer.shape.push(dim);
                buffer.type = tensor.type;
                buffer.bytes = static_cast<std::size_t>(buffer.shape.count()) * cpu::type_bytes(buffer.type);
                memory.emplace_back(buffer.bytes, std::uint8_t{0});
                buffer.data = memory.back().data();
                buffers.push_back(buffer);
            }
        for (std::size_t i = 0; i < buffers.size(); ++i)
            (i < runner.get_input_tensors().size() ? in : out).push_back(&buffers[i]);
        const auto job = [&] {
            const auto [id, status] = runner.execute_async(in, out);
            const int result = status == 0 ? runner.wait(static_cast<int>(id)) : status;
            if (result != 0) throw Error(runner.message(id));
        };
        job();
        job();
        counting = true;
        for (int i = 0; i < runs; ++i) job();
        counting = false;
        std::printf("runner %ld\n", allocations.exchange(0));
        return 0;
    } catch (const std::exception& error) {
        counting = false;
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
