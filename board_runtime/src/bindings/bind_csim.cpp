// Python binding of the csim device for tests: one NPU partition of a `.bin` on a caller-owned pool, under any policy
// of the token sequencer.
#include <pybind11/pybind11.h>

#include <cstring>
#include <memory>
#include <string>

#include "npuforge/csim.hpp"
#include "npuforge/program.hpp"

namespace py = pybind11;

namespace {

void run_partition(const py::bytes& image, std::size_t partition, py::buffer pool,
                   const npuforge::csim::Options& options) {
    const std::string bytes = image;
    const auto file = npuforge::BinFile::parse(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    const auto program = npuforge::Program::parse(file);
    const py::buffer_info memory = pool.request(true);
    const std::size_t size = static_cast<std::size_t>(memory.size * memory.itemsize);
    if (size != program->pool_size())
        throw npuforge::ArgumentError("csim: pool expected with " + std::to_string(program->pool_size()) +
                                      " bytes, found " + std::to_string(size));
    const auto device = npuforge::csim::make_device(npuforge::Program::device_program(program), options);
    const auto context = device->create_context();
    auto* data = static_cast<std::uint8_t*>(memory.ptr);
    py::gil_scoped_release release;
    device->run(*context, partition, data, {});
}

}  // namespace

void bind_csim(py::module_& module) {
    module.def(
        "csim_run_partition",
        [](const py::bytes& image, std::size_t partition, const py::buffer& pool, const std::string& policy,
           std::uint32_t seed, std::uint8_t sram_fill) {
            npuforge::csim::Options options;
            options.policy = policy;
            options.seed = seed;
            options.sram_fill = sram_fill;
            run_partition(image, partition, pool, options);
        },
        py::arg("image"), py::arg("partition"), py::arg("pool"), py::arg("policy") = "program", py::arg("seed") = 1,
        py::arg("sram_fill") = 0,
        "Runs NPU partition `partition` of the `.bin` bytes `image` on csim, changing the writable buffer `pool`. "
        "`policy`: program, "
        "load-first, store-last or random (with `seed`); `sram_fill`: every byte of the on-chip memory before the "
        "run.");
}
