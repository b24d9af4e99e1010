// The Python module `_native`: exception translation and one call per area; the areas' bindings live in
// bind_<area>.cpp.
#include <pybind11/pybind11.h>

#include <exception>

#include "npuforge/device.hpp"

namespace py = pybind11;

#ifdef NPUFORGE_BIND_RUNTIME
void bind_runtime(py::module_& module);
#endif
#ifdef NPUFORGE_BIND_SIM
void bind_sim(py::module_& module);
#endif
#ifdef NPUFORGE_BIND_CSIM
void bind_csim(py::module_& module);
#endif
#ifdef NPUFORGE_BIND_HEADS
void bind_heads(py::module_& module);
#endif

namespace {

// The typed errors of the board package; the same classes as npuforge.compile.ir.errors (pure Python, part of every
// install).
void translate(std::exception_ptr error) {
    if (!error) return;
    const auto raise = [](const char* type, const char* message) {
        py::object cls = py::module_::import("npuforge.compile.ir.errors").attr(type);
        PyErr_SetString(cls.ptr(), message);
    };
    try {
        std::rethrow_exception(error);
    } catch (const npuforge::FormatError& e) {
        raise("FormatError", e.what());
    } catch (const npuforge::ArchError& e) {
        raise("ArchError", e.what());
    } catch (const npuforge::InstructionError& e) {
        raise("InstructionError", e.what());
    } catch (const npuforge::DeviceError& e) {
        raise("DeviceError", e.what());
    } catch (const npuforge::ArgumentError& e) {
        raise("UsageError", e.what());
    } catch (const npuforge::Error& e) {
        raise("NpuforgeError", e.what());
    }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    module.doc() = "C++ runtime of npuforge";
    py::register_exception_translator(translate);
#ifdef NPUFORGE_BIND_RUNTIME
    bind_runtime(module);
#endif
#ifdef NPUFORGE_BIND_SIM
    bind_sim(module);
#endif
#ifdef NPUFORGE_BIND_CSIM
    bind_csim(module);
#endif
#ifdef NPUFORGE_BIND_HEADS
    bind_heads(module);
#endif
}
