// Python bindings of the session, the loader's view of a `.bin`, the CPU operators and the memory pool. The GIL is
// released while C++ runs.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "npuforge/cpu_plan.hpp"
#include "npuforge/json.hpp"
#include "npuforge/memory.hpp"
#include "npuforge/program.hpp"
#include "npuforge/runner.hpp"
#include "npuforge/session.hpp"
#ifdef NPUFORGE_HAVE_UIO
#include "npuforge/uio.hpp"
#endif

namespace py = pybind11;
using namespace npuforge;  // NOLINT: this file only glues names together

namespace {

py::dtype dtype_of(cpu::Type type) { return py::dtype(cpu::type_name(type)); }

cpu::Type type_of_array(const py::array& array, const std::string& what) {
    try {
        return cpu::type_of(py::cast<std::string>(array.dtype().attr("name")), what);
    } catch (const FormatError& error) {  // here it is the application's array, not a file
        throw ArgumentError(error.what());
    }
}

py::tuple shape_tuple(const cpu::Shape& shape) {
    py::tuple out(static_cast<std::size_t>(shape.rank));
    for (int i = 0; i < shape.rank; ++i) out[static_cast<std::size_t>(i)] = shape.dim[i];
    return out;
}

cpu::Shape shape_of(const py::array& array, const std::string& what) {
    cpu::Shape shape;
    if (array.ndim() > cpu::kMaxRank)
        throw ArgumentError(what + ": more than " + std::to_string(cpu::kMaxRank) + " dimensions");
    for (py::ssize_t i = 0; i < array.ndim(); ++i) shape.push(array.shape(i));
    return shape;
}

// C-contiguous arrays; `keep` holds what had to be copied.
InputBuffer input_buffer(const py::array& given, bool nhwc, const std::string& name, std::vector<py::array>& keep) {
    InputBuffer buffer;
    const py::array array = py::array::ensure(given, py::array::c_style);
    if (!array) throw ArgumentError("input '" + name + "': expected a numpy array");
    keep.push_back(array);
    buffer.type = type_of_array(array, "input '" + name + "'");
    buffer.shape = shape_of(array, "input '" + name + "'");
    buffer.data = array.data();
    buffer.nhwc = nhwc;
    return buffer;
}

py::array finish(const py::array& array, const OutputBuffer& output) {
    std::vector<py::ssize_t> shape;
    for (int i = 0; i < output.shape.rank; ++i) shape.push_back(static_cast<py::ssize_t>(output.shape.dim[i]));
    if (shape.size() == static_cast<std::size_t>(array.ndim()) && std::equal(shape.begin(), shape.end(), array.shape()))
        return array;
    return py::array(array.dtype(), shape, array.data());  // a result smaller than its bound
}

py::list run(Session& session, const std::vector<py::array>& arrays, bool nhwc, py::object trace, py::object profile) {
    const auto& names = session.program().inputs();
    if (arrays.size() != names.size())
        throw ArgumentError("expected " + std::to_string(names.size()) + " inputs, found " +
                            std::to_string(arrays.size()));
    std::vector<InputBuffer> inputs;
    std::vector<py::array> keep, results;
    for (std::size_t i = 0; i < arrays.size(); ++i) inputs.push_back(input_buffer(arrays[i], nhwc, names[i], keep));
    std::vector<OutputBuffer> outputs(session.program().outputs().size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const cpu::Tensor& prototype = session.output_prototype(i);
        std::vector<py::ssize_t> shape(prototype.shape.dim, prototype.shape.dim + prototype.shape.rank);
        results.emplace_back(dtype_of(prototype.type), shape);
        outputs[i].data = results.back().mutable_data();
        outputs[i].capacity = static_cast<std::size_t>(results.back().nbytes());
    }
    std::vector<TraceTensor> traced;
    std::vector<ProfileEvent> events;
    RunOptions options;
    if (!trace.is_none()) options.trace = &traced;
    if (!profile.is_none()) options.profile = &events;
    {
        const py::gil_scoped_release release;
        session.run(inputs.data(), inputs.size(), outputs.data(), outputs.size(), options);
    }
    for (const TraceTensor& tensor : traced) {
        const TracePoint& point = *tensor.layer->trace;
        py::dict entry;
        entry["id"] = tensor.layer->id;
        entry["name"] = tensor.layer->name;
        entry["tensor"] = tensor.layer->tensor;
        entry["pad_lane_errors"] = tensor.pad_lane_errors;
        const std::vector<py::ssize_t> shape = {1, point.h, point.w, static_cast<py::ssize_t>(point.lanes.size())};
        const char* dtype = point.lane_bytes == 2 ? "uint16" : "int8";  // bf16: bit patterns
        entry["data"] = py::array(py::dtype(dtype), shape, tensor.data.data());
        trace.attr("append")(entry);
    }
    for (const ProfileEvent& event : events)
        profile.attr("append")(py::make_tuple(event.name, event.category, event.start_ns, event.duration_ns));
    py::list out;
    for (std::size_t i = 0; i < outputs.size(); ++i) out.append(finish(results[i], outputs[i]));
    return out;
}

// One CPU operator on its own, for its tests: attributes and activation as JSON text, constants marked by `constant`.
py::list run_operator(const std::string& op, const std::string& attrs, const std::string& activation,
                      const std::vector<py::object>& arrays, const std::vector<bool>& constant,
                      std::size_t output_count) {
    CpuNode meta;
    meta.name = "node";
    meta.op = op;
    meta.attrs = json::parse(attrs, "attributes");
    meta.activation = json::parse(activation, "activation");
    std::vector<cpu::Tensor> tensors(arrays.size()), results(output_count);
    std::vector<const cpu::Tensor*> inputs;
    std::vector<cpu::Tensor*> outputs;
    std::vector<py::array> keep;
    keep.reserve(arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        meta.inputs.push_back(arrays[i].is_none() ? "" : "x" + std::to_string(i));
        if (arrays[i].is_none()) {
            inputs.push_back(nullptr);
            continue;
        }
        const InputBuffer buffer = input_buffer(py::cast<py::array>(arrays[i]), false, meta.inputs.back(), keep);
        tensors[i].type = buffer.type;
        tensors[i].shape = buffer.shape;
        tensors[i].data = const_cast<void*>(buffer.data);
        tensors[i].constant = constant[i];
        inputs.push_back(&tensors[i]);
    }
    for (std::size_t i = 0; i < output_count; ++i) {
        meta.outputs.push_back("y" + std::to_string(i));
        outputs.push_back(&results[i]);
    }
    const cpu::Factory* factory = cpu::Registry::instance().find(op);
    if (!factory) throw ArgumentError("operator " + op + " is not known to the CPU partition");
    const cpu::NodeInfo info(meta);
    const cpu::Kernel kernel = (*factory)(info);
    cpu::Args args{inputs.data(), inputs.size(), outputs.data(), outputs.size(), nullptr};
    cpu::infer(info, kernel, args);
    std::vector<py::array> memory;
    for (cpu::Tensor& result : results) {
        const std::vector<py::ssize_t> shape(result.shape.dim, result.shape.dim + result.shape.rank);
        memory.emplace_back(dtype_of(result.type), shape);
        result.data = memory.back().mutable_data();
    }
    const std::unique_ptr<std::uint8_t[]> scratch(new std::uint8_t[(kernel.scratch ? kernel.scratch(args) : 0) + 16]);
    args.scratch = scratch.get();
    if (kernel.alias)
        std::memcpy(results[0].data, tensors[0].data, results[0].bytes());
    else
        kernel.run(args);
    const cpu::FusedActivation fused(meta);
    if (!fused.empty()) fused.apply(results[0]);
    py::list out;
    for (std::size_t i = 0; i < output_count; ++i) {
        OutputBuffer buffer;
        buffer.shape = results[i].shape;
        out.append(finish(memory[i], buffer));
    }
    return out;
}

using PortList = std::vector<std::tuple<std::string, bool, bool>>;

// The VART runner. Arrays must stay alive until wait(): vart.py keeps them.
TensorBuffer tensor_buffer(py::array array, bool output, const std::string& what) {
    if (!(array.flags() & py::array::c_style)) throw ArgumentError(what + ": expected a C-contiguous array");
    if (output && !array.writeable()) throw ArgumentError(what + ": expected a writable array");
    TensorBuffer buffer;
    buffer.data = const_cast<void*>(array.data());
    buffer.bytes = static_cast<std::size_t>(array.nbytes());
    buffer.bf16 = py::cast<std::string>(array.dtype().attr("name")) == "uint16";  // bit patterns: numpy has no bf16
    if (!buffer.bf16) buffer.type = type_of_array(array, what);
    buffer.shape = shape_of(array, what);
    return buffer;
}

std::pair<std::uint32_t, int> execute_async(Runner& runner, const std::vector<py::array>& inputs,
                                            const std::vector<py::array>& outputs) {
    const auto check = [](const char* what, std::size_t expected, std::size_t found) {
        if (found > expected)
            throw ArgumentError(std::string(what) + "s: expected " + std::to_string(expected) + " arrays, found " +
                                std::to_string(found));
    };
    check("input", runner.get_input_tensors().size(), inputs.size());
    check("output", runner.get_output_tensors().size(), outputs.size());
    std::vector<TensorBuffer> buffers;
    buffers.reserve(inputs.size() + outputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
        buffers.push_back(tensor_buffer(inputs[i], false, "input " + std::to_string(i)));
    for (std::size_t i = 0; i < outputs.size(); ++i)
        buffers.push_back(tensor_buffer(outputs[i], true, "output " + std::to_string(i)));
    std::vector<TensorBuffer*> in, out;
    for (std::size_t i = 0; i < buffers.size(); ++i) (i < inputs.size() ? in : out).push_back(&buffers[i]);
    const py::gil_scoped_release release;
    return runner.execute_async(in, out);
}

py::list runner_tensors(const std::vector<RunnerTensor>& tensors) {
    py::list out;
    for (const RunnerTensor& tensor : tensors) {
        py::dict entry;
        entry["name"] = tensor.name;
        entry["dims"] = tensor.dims;
        entry["dtype"] = cpu::type_name(tensor.type);
        if (tensor.npu) {
            entry["scale"] = tensor.npu->scale;
            entry["zero_point"] = tensor.npu->zero_point;
            if (tensor.npu->is_image()) entry["image_mean"] = tensor.npu->image_mean;
            if (tensor.npu->has_fix_point) entry["fix_point"] = tensor.npu->fix_point;
        }
        out.append(entry);
    }
    return out;
}

py::dict describe_tensor(const TensorMeta& tensor) {
    py::dict out;
    out["name"] = tensor.name;
    out["shape"] = shape_tuple(cpu::Shape(tensor.application_shape()));
    out["dtype"] = tensor.dtype;
    out["nhwc"] = tensor.nhwc;
    out["image"] = tensor.npu && tensor.npu->is_image();
    out["fix_point"] =
        tensor.npu && tensor.npu->has_fix_point ? py::object(py::int_(tensor.npu->fix_point)) : py::none();
    return out;
}

}  // namespace

void bind_runtime(py::module_& module) {
    py::class_<Program, std::shared_ptr<Program>>(module, "Program", "A loaded, checked .bin.")
        .def_static(
            "load",
            [](const std::string& path, const std::string& arch) {
                return std::const_pointer_cast<Program>(Program::load(path, arch));
            },
            py::arg("path"), py::arg("expected_arch") = "", py::call_guard<py::gil_scoped_release>())
        .def_static(
            "parse",
            [](const py::bytes& bytes, const std::string& arch) {
                const std::string_view view = bytes;
                return std::const_pointer_cast<Program>(Program::parse(
                    BinFile::parse(reinterpret_cast<const std::uint8_t*>(view.data()), view.size()), arch));
            },
            py::arg("image"), py::arg("expected_arch") = "")
        .def("check_arch", &Program::check_arch, py::arg("expected_arch"))
        .def_property_readonly("name", &Program::name)
        .def_property_readonly("mode", &Program::mode)
        .def_property_readonly("fingerprint", &Program::fingerprint)
        .def_property_readonly("pool_size", &Program::pool_size)
        .def_property_readonly("meta_json", [](const Program& program) { return program.meta().text(); })
        .def_property_readonly("inputs",
                               [](const Program& program) {
                                   py::list out;
                                   for (const std::string& name : program.inputs())
                                       out.append(describe_tensor(program.tensor(name)));
                                   return out;
                               })
        .def_property_readonly("outputs", [](const Program& program) {
            py::list out;
            for (const std::string& name : program.outputs()) out.append(describe_tensor(program.tensor(name)));
            return out;
        });

    py::class_<Session, std::shared_ptr<Session>>(module, "Session", "A model on a device; run() is thread-safe.")
        .def(py::init([](const std::shared_ptr<Program>& program, const std::string& device, int threads,
                         const std::string& level, const std::string& board) {
                 SessionOptions options;
                 options.level = level;
                 options.board = board;
                 options.device = device;
                 options.threads = threads;
                 return std::make_shared<Session>(program, options);
             }),
             py::arg("program"), py::arg("device") = "sim", py::arg("threads") = 1, py::arg("level") = "auto",
             py::arg("board") = "", py::call_guard<py::gil_scoped_release>())
        .def("run", &run, py::arg("inputs"), py::arg("nhwc") = false, py::arg("trace") = py::none(),
             py::arg("profile") = py::none())
        .def("warm_up", &Session::warm_up, py::arg("count"), py::call_guard<py::gil_scoped_release>())
        .def("prometheus", &Session::prometheus)
        .def_property_readonly("traces_layers", &Session::traces_layers)
        .def_property_readonly("arena_bytes", [](const Session& session) { return session.cpu_plan().arena_bytes(); })
        .def_property_readonly("cpu_placements",
                               [](const Session& session) {
                                   py::list out;
                                   for (const auto& p : session.cpu_plan().placements())
                                       out.append(py::make_tuple(p.name, p.offset, p.size, p.first, p.last));
                                   return out;
                               })
        .def_property_readonly("output_prototypes", [](const Session& session) {
            py::list out;
            for (std::size_t i = 0; i < session.program().outputs().size(); ++i) {
                const cpu::Tensor& tensor = session.output_prototype(i);
                out.append(py::make_tuple(session.program().outputs()[i], cpu::type_name(tensor.type),
                                          shape_tuple(tensor.shape)));
            }
            return out;
        });

    py::class_<Runner>(module, "Runner", "The VART interface on one partition (-1: the whole model).")
        .def(py::init([](const std::shared_ptr<Session>& session, int partition, std::size_t workers,
                         const std::optional<std::pair<PortList, PortList>>& given) {
                 Ports ports;
                 if (given) {
                     for (const auto& [name, border, inner] : given->first)
                         ports.inputs.push_back({name, border, inner});
                     for (const auto& [name, border, inner] : given->second)
                         ports.outputs.push_back({name, border, inner});
                 }
                 return std::make_unique<Runner>(session, partition, workers, given ? &ports : nullptr);
             }),
             py::arg("session"), py::arg("partition") = -1, py::arg("workers") = 1, py::arg("ports") = py::none(),
             py::call_guard<py::gil_scoped_release>(),
             "ports: lists of (name, whether it has the NPU's form, whether something reads it) of inputs and of "
             "outputs, as "
             "an .xmodel declares them.")
        .def_static("create_runner", &Runner::create_runner, py::arg("bundle"), py::arg("mode") = "run",
                    py::arg("threads") = 1, py::call_guard<py::gil_scoped_release>())
        .def("get_input_tensors", [](const Runner& runner) { return runner_tensors(runner.get_input_tensors()); })
        .def("get_output_tensors", [](const Runner& runner) { return runner_tensors(runner.get_output_tensors()); })
        .def("execute_async", &execute_async, py::arg("inputs"), py::arg("outputs"))
        .def("wait", &Runner::wait, py::arg("job"), py::arg("timeout_ms") = -1,
             py::call_guard<py::gil_scoped_release>())
        .def("message", &Runner::message, py::arg("job"));

    module.def("run_operator", &run_operator, "One CPU operator on numpy arrays.", py::arg("op"), py::arg("attrs"),
               py::arg("activation"), py::arg("inputs"), py::arg("constant"), py::arg("outputs") = 1);
    module.def(
        "cpu_operators", [] { return cpu::Registry::instance().names(); }, "Names of all CPU operators of this build.");
    module.def(
        "parse_json", [](const py::bytes& text) { return json::parse(std::string_view(text)).text(); },
        "Canonical text of a JSON document; FormatError if it is none.");
    module.def("pool_statistics", [] {
        const auto s = MemoryPool::shared().statistics();
        py::dict out;
        out["bytes_in_use"] = s.bytes_in_use;
        out["bytes_cached"] = s.bytes_cached;
        out["peak_in_use"] = s.peak_in_use;
        out["allocations"] = s.allocations;
        out["recycled"] = s.recycled;
        return out;
    });
    module.def("pool_trim", [] { MemoryPool::shared().trim(); });
    py::list devices;
#ifdef NPUFORGE_HAVE_SIM
    devices.append("sim");
#endif
#ifdef NPUFORGE_HAVE_CSIM
    devices.append("csim");
#endif
#ifdef NPUFORGE_HAVE_UIO
    devices.append("uio");
    module.def(
        "board_arch", [](const std::string& path) { return uio::Board::read(path).arch; },
        "JSON text of the arch in a board's description, which is read and checked; no hardware is touched.",
        py::arg("path"));
#endif
    module.attr("DEVICES") = py::tuple(devices);
}
