// Python binding of the simulator on raw programs, for tests and measurements: submodule `sim` with Simulation,
// best_level, levels.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "npu_isa.hpp"
#include "npuforge/sim.hpp"

namespace py = pybind11;

namespace npuforge {
namespace {

struct AlignedDelete {
    void operator()(std::uint8_t* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::uint8_t[], AlignedDelete>;

AlignedBytes aligned_copy(const std::string& bytes) {
    AlignedBytes copy(static_cast<std::uint8_t*>(::operator new[](bytes.size() + 64, std::align_val_t{64})));
    std::memcpy(copy.get(), bytes.data(), bytes.size());
    return copy;
}

// A program given as bytes, without a `.bin` around it.
class Simulation {
  public:
    Simulation(const std::string& instructions, const std::string& image, std::size_t pool_size, std::size_t sram_bytes,
               int threads, const std::string& level,
               const std::vector<std::pair<std::size_t, std::size_t>>& partitions, bool bf16)
        : image_(aligned_copy(image)),
          instructions_(aligned_copy(instructions)),
          pool_size_(pool_size),
          sram_bytes_(sram_bytes),
          pool_(aligned_copy(std::string(pool_size, '\0'))) {
        if (instructions.size() % isa::INSTRUCTION_BYTES != 0)
            throw ArgumentError("instructions: expected a multiple of " + std::to_string(isa::INSTRUCTION_BYTES) +
                                " bytes, found " + std::to_string(instructions.size()));
        DeviceProgram program;
        program.image = image_.get();
        program.image_size = image.size();
        program.instructions = reinterpret_cast<const std::uint32_t*>(instructions_.get());
        program.instruction_count = instructions.size() / isa::INSTRUCTION_BYTES;
        program.pool_size = pool_size;
        program.sram_bytes = sram_bytes;
        program.bf16 = bf16;
        for (const auto& [first, count] : partitions) program.partitions.push_back({first, count});
        if (partitions.empty()) program.partitions.push_back({0, program.instruction_count});
        device_ = sim::make_device(std::move(program), threads, sim::parse_level(level));
        context_ = device_->create_context();
    }

    // The pool after the run, and the on-chip memory right after each instruction in `trace`.
    std::pair<py::bytes, std::map<std::size_t, py::bytes>> run(const std::string& pool, std::size_t partition,
                                                               const std::set<std::size_t>& trace) {
        if (pool.size() != pool_size_)
            throw ArgumentError("pool: expected " + std::to_string(pool_size_) + " bytes, found " +
                                std::to_string(pool.size()));
        std::map<std::size_t, std::string> traced;
        TraceHook hook;
        if (!trace.empty()) {
            hook = [&](std::size_t instruction, const TraceMemory& memory) {
                if (trace.count(instruction) != 0)
                    traced[instruction] = std::string(reinterpret_cast<const char*>(memory.sram), sram_bytes_);
            };
        }
        std::copy(pool.begin(), pool.end(), pool_.get());
        {
            py::gil_scoped_release release;
            device_->run(*context_, partition, pool_.get(), hook);
        }
        std::map<std::size_t, py::bytes> memories;
        for (const auto& [instruction, bytes] : traced) memories[instruction] = py::bytes(bytes);
        return {py::bytes(reinterpret_cast<const char*>(pool_.get()), pool_size_), memories};
    }

    // Runs on the pool as it is, for measurements.
    void repeat(std::size_t partition, int times) {
        py::gil_scoped_release release;
        for (int i = 0; i < times; ++i) device_->run(*context_, partition, pool_.get(), TraceHook());
    }

  private:
    AlignedBytes image_, instructions_;
    std::size_t pool_size_, sram_bytes_;
    AlignedBytes pool_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<DeviceContext> context_;
};

}  // namespace
}  // namespace npuforge

void bind_sim(py::module_& module) {
    using namespace npuforge;
    py::module_ sub = module.def_submodule("sim", "The fast simulator on raw programs.");
    sub.def("best_level", [] { return sim::level_name(sim::best_level()); });
    sub.def("levels", [] {
        std::vector<std::string> names;
        for (int level = 0; level <= static_cast<int>(sim::best_level()); ++level)
            names.emplace_back(sim::level_name(static_cast<sim::Level>(level)));
        return names;
    });
    py::class_<Simulation>(sub, "Simulation")
        .def(py::init([](const py::bytes& instructions, const py::bytes& image, std::size_t pool_size,
                         std::size_t sram_bytes, int threads, const std::string& level,
                         const std::vector<std::pair<std::size_t, std::size_t>>& partitions, bool bf16) {
                 return std::make_unique<Simulation>(std::string(instructions), std::string(image), pool_size,
                                                     sram_bytes, threads, level, partitions, bf16);
             }),
             py::arg("instructions"), py::arg("image"), py::arg("pool_size"), py::arg("sram_bytes"),
             py::arg("threads") = 1, py::arg("level") = "auto",
             py::arg("partitions") = std::vector<std::pair<std::size_t, std::size_t>>(), py::arg("bf16") = true,
             "Loads a program; `partitions` are (first instruction, count), by default one over all; `bf16`: the arch "
             "has that "
             "feature.")
        .def(
            "run",
            [](Simulation& s, const py::bytes& pool, std::size_t partition, const std::set<std::size_t>& trace) {
                return s.run(std::string(pool), partition, trace);
            },
            py::arg("pool"), py::arg("partition") = 0, py::arg("trace") = std::set<std::size_t>(),
            "Returns the pool after the run, and on-chip memory after each traced instruction.")
        .def("repeat", &Simulation::repeat, py::arg("partition") = 0, py::arg("times") = 1,
             "Runs again on the pool as the last run left it.");
}
