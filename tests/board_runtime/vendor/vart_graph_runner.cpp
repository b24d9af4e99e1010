// A whole .xmodel on the vendor's own graph runner, which its Python module does for int8 and float32 only. Usage:
// vart_graph_runner <model.xmodel> <folder>; reads <tensor's name, hex>.in, the bytes of each input in the tensor's own
// type, runs twice, writes <tensor's name, hex>.out for each output and prints "ok", or says what differs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>
#include <vitis/ai/graph_runner.hpp>
#include <xir/attrs/attrs.hpp>
#include <xir/graph/graph.hpp>

namespace {

void require(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("failed: %s\n", what.c_str());
    std::exit(1);
}

std::string file_of(const std::string& folder, const xir::Tensor& tensor, const char* suffix) {
    std::string path = folder + "/";
    for (const unsigned char letter : tensor.get_name()) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", letter);
        path += digits;
    }
    return path + suffix;
}

std::pair<char*, std::size_t> memory_of(vart::TensorBuffer& buffer) {
    const std::vector<int> first(buffer.get_tensor()->get_shape().size(), 0);
    const auto [address, bytes] = buffer.data(first);
    return {reinterpret_cast<char*>(address), bytes};
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 3, "usage: vart_graph_runner MODEL FOLDER");
    const std::string folder = argv[2];
    const auto graph = xir::Graph::deserialize(argv[1]);
    const auto attrs = xir::Attrs::create();
    const auto runner = vitis::ai::GraphRunner::create_graph_runner(graph.get(), attrs.get());
    std::map<std::string, std::vector<char>> results;
    for (int turn = 0; turn < 2; ++turn) {
        const auto inputs = runner->get_inputs(), outputs = runner->get_outputs();
        for (vart::TensorBuffer* buffer : inputs) {
            const std::string path = file_of(folder, *buffer->get_tensor(), ".in");
            std::ifstream file(path, std::ios::binary);
            const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
            const auto [address, size] = memory_of(*buffer);
            require(bytes.size() == size, path + ": " + std::to_string(bytes.size()) + " bytes; expected " +
                                              std::to_string(size) + " for " + buffer->get_tensor()->get_name());
            std::memcpy(address, bytes.data(), size);
            buffer->sync_for_write(0, size);
        }
        const auto [job, status] = runner->execute_async(inputs, outputs);
        require(status == 0 && runner->wait(static_cast<int>(job), -1) == 0, "the job");
        for (vart::TensorBuffer* buffer : outputs) {
            const auto [address, size] = memory_of(*buffer);
            buffer->sync_for_read(0, size);
            const std::vector<char> bytes(address, address + size);
            const std::string path = file_of(folder, *buffer->get_tensor(), ".out");
            require(turn == 0 || results[path] == bytes, path + ": another result the second time");
            results[path] = bytes;
        }
    }
    for (const auto& [path, bytes] : results) {
        std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    std::printf("ok\n");
    return 0;
}
