"""TensorRT plug-in source for the custom operators of a network: element-wise ones from their formulas, the others from `parallel.hpp` (operators.py).

Each kind: functions (`.h`), CUDA kernels (`.cu`), plug-ins (`.cpp`). Plug-in name = the ONNX operator's type, version "1", no namespace: what TensorRT's
ONNX parser looks for. Linear tensors. Operators that are compositions of standard ones are written as those in `model.onnx`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from npuforge.compile.context import Context, Options
from npuforge.compile.ir.errors import NpuforgeError, UnsupportedError
from npuforge.compile.ir.foreign_tools import run_tool
from npuforge.compile.onnxruntime.export import lower
from npuforge.compile.steps.import_onnx import prepare_export
from npuforge.compile.steps.infer import find_operator
from npuforge.compile.steps.onnx_nodes import STANDARD, operator_name
from npuforge.compile.steps.write_files import staging
from npuforge.compile.tensorrt import operators
from npuforge.compile.tensorrt.expression import Function, function_of
from npuforge.hw_kernels.bindings.model_types import as_node, tensor_types
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.levels import folder
from npuforge.hw_kernels.operator import refused_packages

HEADER, KERNELS, PLUGINS = "npuforge_functions.h", "npuforge_kernels.cu", "npuforge_plugins.cpp"
TEMPLATE = Path(__file__).with_name("plugin_template.hpp")
TYPES = ("float32", "int64")  # what the templates know
NVCC, LOG = "nvcc", "nvcc.log"
FLAGS = ("-O2", "-std=c++17", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC")


@dataclass
class Export:
    """What was made. `operators`: types with a plug-in. `lowered`: node -> operator written as standard ones. `without_kernel`: node -> custom operator
    that has none. `compiled`: the kernels, by nvcc. `failure`: how that ended."""

    operators: list[str] = field(default_factory=list)
    lowered: dict[str, str] = field(default_factory=dict)
    without_kernel: dict[str, str] = field(default_factory=dict)
    compiled: bool = False
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `export.json` holds it."""
        return dataclasses.asdict(self)


@dataclass
class Found:
    """The custom operators of a network by type: `functions` of element-wise ones, `folders` of the others. `without`: nodes of those without source."""

    functions: dict[str, Function] = field(default_factory=dict)
    folders: dict[str, Path] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)


def find_sources(model: onnx.ModelProto) -> Found:
    """UnsupportedError where two operators would be one plug-in."""
    found, owners = Found(), dict[str, str]()
    for node in model.graph.node:
        if node.domain in STANDARD:
            continue
        name = operator_name(node.domain, node.op_type)
        operator = find_operator(name)
        where = None if operator is None else folder(operator)
        if isinstance(operator, Unary) and operator.formula is not None:
            found.functions[node.op_type] = function_of(f"npuforge_{node.op_type}", operator.formula)
        elif where is not None and (where / operators.PARALLEL).is_file():
            found.folders[node.op_type] = where
        else:
            found.without[node.name] = name
            continue
        if owners.setdefault(node.op_type, name) != name:
            raise UnsupportedError(
                f"node '{node.name}': {name} and {owners[node.op_type]} would be one plug-in to TensorRT, which finds them by "
                "type; rename one of them"
            )
    return found


def refuse_types(model: onnx.ModelProto, found: Found) -> None:
    """UnsupportedError for a node with a plug-in that does not read an input's element type: float32, for positions and other integers int64."""
    types = tensor_types(model)
    for node in model.graph.node:
        if node.domain in STANDARD or node.op_type not in (*found.functions, *found.folders):
            continue
        name = operator_name(node.domain, node.op_type)
        operator = find_operator(name)
        assert operator is not None, "an operator with a source is registered"
        for position, tensor in enumerate(node.input):
            takes = operator.host_types_of(as_node(node), position) or TYPES
            if tensor and types.get(tensor, "unknown") not in takes:
                raise UnsupportedError(
                    f"node '{node.name}' ({name}): input {position} expected as {' or '.join(takes)}, found {types.get(tensor, 'unknown')}; "
                    f"export the network with a Cast to {takes[0]} in front of the node"
                )


def _why_none(name: str) -> str:
    """What the operator is, in words of a notice."""
    operator = find_operator(name)
    if operator is None:
        return "is an operator that nobody registered"
    return (
        "is an NPU-DSL program"
        if isinstance(operator.program, KernelProgram)
        else "has neither an element-wise formula nor a parallel.hpp"
    )


def header(functions: dict[str, Function]) -> str:
    """The functions, for nvcc and any C++ compiler."""
    head = (
        "// Generated by npuforge from hw_kernels/formulas.py.\n#pragma once\n#include <cmath>\n\n#ifdef __CUDACC__\n"
    )
    both = "#define NPUFORGE_BOTH __host__ __device__\n#else\n#define NPUFORGE_BOTH\n#endif\n\n"
    return head + both + "\n".join(f.text for f in functions.values())


def kernels(functions: dict[str, Function]) -> str:
    """One kernel and one launcher per operator; a launcher returns cudaGetLastError()."""
    parts = [f'// Generated by npuforge.\n#include <cuda_runtime.h>\n#include "{HEADER}"\n']
    for kind, function in functions.items():
        given = "".join(f", float {p}" for p in function.parameters)
        passed = "".join(f", {p}" for p in function.parameters)
        parts.append(f"""
__global__ void kernel_{kind}(const float* x, float* y, long long count{given}) {{
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        y[i] = {function.name}(x[i]{passed});
}}

extern "C" int launch_{kind}(const float* x, float* y, long long count, const float* parameters, cudaStream_t stream) {{
    if (count == 0) return 0;
    const long long blocks = (count + 255) / 256;
    kernel_{kind}<<<static_cast<unsigned>(blocks < 65535 ? blocks : 65535), 256, 0, stream>>>(
        x, y, count{"".join(f", parameters[{i}]" for i in range(len(function.parameters)))});
    return static_cast<int>(cudaGetLastError());
}}
""")
    return "".join(parts)


def plugins(functions: dict[str, Function]) -> str:
    """The plug-in library's source; needs TensorRT's headers."""
    parts = [f"// Generated by npuforge.\n{TEMPLATE.read_text(encoding='utf-8')}\n"]
    for kind, function in functions.items():
        names = ", ".join(f'"{p}"' for p in function.parameters)
        defaults = ", ".join(f"{v!r}f" for v in function.parameters.values())
        parts.append(f"""
extern "C" int launch_{kind}(const float*, float*, long long, const float*, cudaStream_t);
namespace {{
struct Traits{kind} {{
    static constexpr const char* name = "{kind}";
    static std::vector<std::string> names() {{ return {{{names}}}; }}
    static std::vector<float> defaults() {{ return {{{defaults}}}; }}
    static int launch(const float* x, float* y, long long count, const float* parameters, cudaStream_t stream) {{
        return launch_{kind}(x, y, count, parameters, stream);
    }}
}};
using Creator{kind} = npuforge_plugin::Creator<Traits{kind}>;
REGISTER_TENSORRT_PLUGIN(Creator{kind});
}}  // namespace
""")
    return "".join(parts)


def export(options: Options) -> Export:
    """Writes `model.onnx`, the sources, `build.sh`, `export.json`; compiles the kernels where nvcc is on the path."""
    ctx, made = Context(options), Export()
    model = prepare_export(options.model, options.shapes, dynamic=True)
    made.lowered = lower(model)
    found = find_sources(model)
    made.operators, made.without_kernel = [*found.functions, *found.folders], found.without
    refuse_types(model, found)
    ctx.note(refused_packages())
    ctx.note(f"node '{node}' ({name}) is written as standard operators" for node, name in made.lowered.items())
    ctx.note(
        f"node '{node}' ({name}) {_why_none(name)}, so no plug-in was made" for node, name in found.without.items()
    )
    texts: dict[str, str] = {}
    if found.functions:
        texts |= {
            HEADER: header(found.functions),
            KERNELS: kernels(found.functions),
            PLUGINS: plugins(found.functions),
        }
    if found.folders:
        texts |= {
            operators.HEADER: operators.header(found.folders),
            operators.KERNELS: operators.kernels(found.folders),
            operators.PLUGINS: operators.plugins(found.folders),
        }
    with staging(options.output, sources=options.sources) as place:
        (place / "model.onnx").write_bytes(model.SerializeToString())
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        if texts:
            sources = " ".join(name for name in texts if not name.endswith(".h"))
            command = f"{NVCC} {' '.join(FLAGS)} -shared {sources} -lnvinfer -o libnpuforge_plugins.so"
            (place / "build.sh").write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
            sources_of_kernels = [name for name in texts if name.endswith(".cu")]
            made.compiled, made.failure = compile_kernels(place, sources_of_kernels)
            state = (
                "were compiled"
                if made.compiled
                else f"were not compiled: {made.failure or f'{NVCC} is not on the path'}"
            )
            ctx.note(
                [f"the kernels {state}; the plug-in library needs TensorRT's headers and was not built: {command}"]
            )
        text = json.dumps(made.to_json() | {"notices": ctx.notices}, indent=1)
        (place / "export.json").write_text(text, encoding="utf-8")
    if made.failure:
        log = f" and {LOG}" if (options.output / LOG).is_file() else ""
        raise NpuforgeError(f"{made.failure}; the sources{log} are in {options.output}")
    return made


def compile_kernels(place: Path, sources: list[str]) -> tuple[bool, str]:
    """An object of each source, by nvcc: whether they were made, and how it failed, which is empty where there is no nvcc."""
    program = shutil.which(NVCC)
    if program is None:
        return False, ""
    for source in sources:
        words = [program, *FLAGS, "-c", source, "-o", f"{Path(source).stem}.o"]
        try:
            done = run_tool(NVCC, words, place)
        except NpuforgeError as error:
            return False, str(error)
        if done.code:
            (place / LOG).write_text(done.log, encoding="utf-8")
            for half in place.glob("*.o"):
                half.unlink()
            return False, f"{done.ended}: {done.first_error}"
    return True, ""
