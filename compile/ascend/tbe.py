"""TBE-style DSL source, operator information and ONNX parser plug-in for CANN, generated from an operator's NPU-DSL program.

The program is traced once per set of attribute values that the network has; the source picks the traced sequence by the attributes it is called with.
Curves that TBE has no instruction for are written with `vexp`, `vlog` and `vrec` (GELU and erf by Abramowitz and Stegun 7.1.26, error of erf below 1.5e-7;
below 5e-6 where |x| < 2e-5, as its sign is a clipped line).
"""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass, field
from typing import Any

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Activation
from npuforge.hw_kernels.dsl.kernel import Kernel, Operation, Trace
from npuforge.hw_kernels.dsl.trace import WINDOWED

Values = tuple[tuple[str, Any], ...]
_TYPES = {float: ("float", "OPTION_ATTR_FLOAT"), int: ("int", "OPTION_ATTR_INT"), bool: ("bool", "OPTION_ATTR_BOOL")}
_CURVES = {
    "Sigmoid": """def _sigmoid(x):
    return tbe.vrec(_adds(tbe.vexp(_muls(x, -1.0)), 1.0))
""",
    "Tanh": """def _tanh(x):
    return _adds(_muls(_sigmoid(_muls(x, 2.0)), 2.0), -1.0)
""",
    "Silu": """def _silu(x):
    return tbe.vmul(x, _sigmoid(x))
""",
    "Mish": """def _mish(x):
    e = tbe.vexp(x)
    n = _adds(tbe.vmul(e, _adds(e, 2.0)), 2.0)
    return tbe.vmul(x, _adds(_muls(tbe.vrec(n), -2.0), 1.0))
""",
    "Erfc": """def _erfc(z):
    t = tbe.vrec(_adds(_muls(z, 0.3275911), 1.0))
    tail = _muls(t, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = tbe.vmul(_adds(tail, coefficient), t)
    return tbe.vmul(tail, tbe.vexp(_muls(tbe.vmul(z, z), -1.0)))
""",
    "Gelu": """def _gelu(x):
    tail = _erfc(_muls(tbe.vabs(x), 0.7071067811865476))
    return tbe.vsub(tbe.vrelu(x), tbe.vmul(tbe.vabs(x), _muls(tail, 0.5)))
""",
    "Erf": """def _erf(x):
    sign = tbe.vmins(tbe.vmaxs(_muls(x, 6.0e4), _number(x, -1.0)), _number(x, 1.0))
    return tbe.vmul(sign, _adds(_muls(_erfc(tbe.vabs(x)), -1.0), 1.0))
""",
    "Softplus": """def _softplus(x):
    return tbe.vadd(tbe.vrelu(x), tbe.vlog(_adds(tbe.vexp(_muls(tbe.vabs(x), -1.0)), 1.0)))
""",
    "Elu": """def _elu(x, alpha):
    return tbe.vadd(tbe.vrelu(x), _muls(_adds(tbe.vexp(tbe.vmins(x, _number(x, 0.0))), -1.0), alpha))
""",
}
DTYPES = {"float16": "float16", "float32": "float"}  # element types that the source takes, as CANN calls them
_BOTH = """def _both(a, b):
    shape = [max(int(m), int(n)) for m, n in zip(a.shape, b.shape)]
    return tbe.broadcast(a, shape), tbe.broadcast(b, shape)
"""
_RANK = """def _shape(own, *others):
    return (1,) * (max(len(s) for s in others) - len(own)) + tuple(own)
"""
_NEEDS = {"Tanh": ("Sigmoid",), "Silu": ("Sigmoid",), "Gelu": ("Erfc",), "Erf": ("Erfc",)}


def file_name(kind: str) -> str:
    """Base name of an operator type's files: `CustomGELU` gives `custom_gelu`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()


@dataclass
class CustomOperator:
    """One operator type of a network. `variants`: the sets of attribute values that its nodes have, in order."""

    domain: str
    type: str
    kernel: Kernel
    variants: list[Values] = field(default_factory=list)

    @property
    def file(self) -> str:
        """Base name of its files."""
        return file_name(self.type)

    def add(self, node: str, attributes: dict[str, Any]) -> None:
        """Enters the attributes of one node; UnsupportedError where one is missing or of a type that CANN's files here do not have."""
        parameters = inspect.signature(self.kernel.function).parameters
        values = {
            n: parameters[n].default for n in self.kernel.attributes if parameters[n].default is not inspect._empty
        }
        values |= {n: v for n, v in attributes.items() if n in self.kernel.attributes}
        for name in self.kernel.attributes:
            if name not in values:
                raise UnsupportedError(f"node '{node}': {self.type} needs the attribute {name}; add it to the model")
            if type(values[name]) not in _TYPES:
                found = type(values[name]).__name__
                raise UnsupportedError(
                    f"node '{node}': attribute {name} is {found}; expected a number or true or false"
                )
        ordered = tuple((n, values[n]) for n in self.kernel.attributes)
        if ordered not in self.variants:
            self.variants.append(ordered)

    @property
    def inputs(self) -> list[str]:
        """Names of its inputs."""
        return [f"x{i}" for i in range(self.kernel.inputs)]


def _steps(activation: Activation, x: str) -> list[str]:
    """The activation as TBE calls, each an expression on the value before (`x`)."""
    kind = activation.kind
    if kind == "none":
        return []
    if kind == "Relu":
        return [f"tbe.vrelu({x})"]
    if kind == "LeakyRelu":
        return [
            f"tbe.vabs({x})" if activation.alpha == -1.0 else f"tbe.vlrelu({x}, _number({x}, {activation.alpha!r}))"
        ]
    if kind == "Clip":
        low = [f"tbe.vmaxs({x}, _number({x}, {activation.low!r}))"] if activation.low > -math.inf else []
        return low + ([f"tbe.vmins({x}, _number({x}, {activation.high!r}))"] if activation.high < math.inf else [])
    if kind == "Exp":
        return [f"tbe.vexp({x})"]
    if kind == "Elu":
        return [f"_elu({x}, {activation.alpha!r})"]
    if kind in _CURVES:
        return [f"_{kind.lower()}({x})"]
    raise UnsupportedError(f"the activation {kind} has no TBE form here; expected one of the NPU DSL's")


def _lines(index: int, o: Operation, broadcast: bool) -> list[str]:
    """One operation of the trace as statements that set `v<index>`; `broadcast`: some values are reduced, pairs may be unlike."""
    v = f"v{index}"
    if o.kind == "input":
        return [f"{v} = x{o.a}"]
    if o.kind in WINDOWED or o.kind == "channel_sum":
        lines = [f"{v} = {_reduction(o)}"]
    elif o.kind == "max2":
        lines = [f"{v} = tbe.vmax({', '.join(f'_muls(v{n}, {o.factor!r})' for n in o.reads)})"]
    elif o.kind != "affine":
        lines = [
            f"{v} = tbe.v{o.kind}(*_both(v{o.a}, v{o.b}))" if broadcast else f"{v} = tbe.v{o.kind}(v{o.a}, v{o.b})"
        ]
    else:
        lines = [f"{v} = v{o.a}" if o.factor == 1.0 else f"{v} = _muls(v{o.a}, {o.factor!r})"]
    if o.bias != 0.0:
        lines.append(f"{v} = _adds({v}, {o.bias!r})")
    return lines + [f"{v} = {step}" for step in _steps(o.activation, v)]


def _broadcasts(trace: Trace, inputs: int) -> bool:
    """Whether operands may have unlike shapes: one is reduced, or there are several inputs."""
    return inputs > 1 or any(o.kind in WINDOWED or o.kind == "channel_sum" for o in trace.operations)


def _reduction(o: Operation) -> str:
    """A reduction over whole axes; TBE's windows are operators of their own, which a DSL program cannot call."""
    whole = tuple(axis for axis, size in zip((2, 3), o.window.kernel, strict=True) if size == 0)
    if o.kind == "channel_sum":
        whole = (1,)
    elif 0 not in o.window.kernel or o.kind == "depthwise":
        raise UnsupportedError(f"{o.where}: windows have no form in TBE's DSL; split the operator at its window")
    call = "tbe.reduce_max" if o.kind == "pool_max" else "tbe.reduce_sum"
    reduced = f"{call}(v{o.a}, axis={whole!r}, keepdims=True)"
    if not o.mean:
        return reduced
    count = " * ".join(f"int(v{o.a}.shape[{axis}])" for axis in whole)
    return f"_muls({reduced}, 1.0 / ({count}))"


def _program(number: int, operator: CustomOperator, trace: Trace) -> str:
    broadcast = _broadcasts(trace, len(operator.inputs))
    body = [line for i, o in enumerate(trace.operations) for line in _lines(i, o, broadcast)]
    head = f"def _program_{number}({', '.join(operator.inputs)}):"
    return "\n".join([head, *(f"    {line}" for line in body), f"    return v{trace.result}", ""])


def source(operator: CustomOperator) -> str:
    """The Python file for CANN: `<file>_compute` in TBE's DSL, `<file>` that schedules and builds it."""
    traces = [operator.kernel.trace(dict(values)) for values in operator.variants]
    kinds = {o.activation.kind for t in traces for o in t.operations} & set(_CURVES)
    needed = {n for k in kinds for n in (*_NEEDS.get(k, ()), k)}
    curves = [text for name, text in _CURVES.items() if name in needed]
    if any(_broadcasts(trace, len(operator.inputs)) for trace in traces):
        curves.append(_BOTH)
    several = len(operator.inputs) > 1
    curves += [_RANK] if several else []
    shapes = ", ".join(f'{x}.get("shape")' for x in operator.inputs)
    programs = [_program(i, operator, trace) for i, trace in enumerate(traces)]
    names, attributes = ", ".join(operator.inputs), list(operator.kernel.attributes)
    optional = "".join(f", {n}={dict(operator.variants[0])[n]!r}" for n in attributes)
    given = "{" + ", ".join(f'"{n}": {n}' for n in attributes) + "}"
    table = ", ".join(f"({dict(values)!r}, _program_{i})" for i, values in enumerate(operator.variants))
    checks = ["REQUIRED_INPUT"] * len(operator.inputs) + ["REQUIRED_OUTPUT"]
    checks += [_TYPES[type(value)][1] for _, value in operator.variants[0]] + ["KERNEL_NAME"]
    placeholders = "\n".join(
        f"    data_{x} = tvm.placeholder({_shape(x, shapes if several else '')}, "
        f'name="data_{x}", dtype={x}.get("dtype").lower())'
        for x in operator.inputs
    )
    data = ", ".join(f"data_{x}" for x in operator.inputs)
    return f'''"""{operator.domain}::{operator.type} for CANN's TBE, generated by npuforge from the NPU-DSL program {operator.kernel.name}."""

import math

import tbe.dsl as tbe
from tbe import tvm
from tbe.common.register import register_op_compute
from tbe.common.utils import para_check


def _number(x, value):
    return tvm.const(value, x.dtype)


def _muls(x, value):
    return tbe.vmuls(x, _number(x, value))


def _adds(x, value):
    return tbe.vadds(x, _number(x, value))


{chr(10).join(text + chr(10) for text in (*curves, *programs))}
_PROGRAMS = [{table}]


@register_op_compute("{operator.type}")
def {operator.file}_compute({names}, y{optional}, kernel_name="{operator.file}"):
    given = {given}
    for values, program in _PROGRAMS:
        if all(math.isclose(given[name], value, rel_tol=1e-6) for name, value in values.items()):
            return program({names})
    raise RuntimeError("{operator.type}: generated for other attributes than %s" % given)


@para_check.check_op_params({", ".join(f"para_check.{c}" for c in checks)})
def {operator.file}({names}, y{optional}, kernel_name="{operator.file}"):
{placeholders}
    result = {operator.file}_compute({data}, y{"".join(f", {n}" for n in attributes)}, kernel_name)
    with tvm.target.cce():
        schedule = tbe.auto_schedule(result)
    tbe.build(schedule, {{"name": kernel_name, "tensor_list": [{data}, result]}})
'''


def _shape(x: str, all_shapes: str) -> str:
    """The shape of an input as an expression; of several, all with the largest rank."""
    own = f'{x}.get("shape")'
    return f"_shape({own}, {all_shapes})" if all_shapes else own


def information(operator: CustomOperator) -> str:
    """The operator information file (.ini) of CANN's operator library."""
    lines = [f"[{operator.type}]"]
    for kind, names in (("input", operator.inputs), ("output", ["y"])):
        for i, name in enumerate(names):
            fields = {"name": name, "dtype": ",".join(DTYPES.values()), "paramType": "required", "format": "ND,ND"}
            lines += [f"{kind}{i}.{key}={value}" for key, value in fields.items()]
    if operator.kernel.attributes:
        lines.append(f"attr.list={','.join(operator.kernel.attributes)}")
    for name, value in operator.variants[0]:
        word = str(value).lower() if isinstance(value, bool) else repr(value)
        fields = {"type": _TYPES[type(value)][0], "value": "all", "paramType": "optional", "defaultValue": word}
        lines += [f"attr_{name}.{key}={text}" for key, text in fields.items()]
    return "\n".join([*lines, f"opFile.value={operator.file}", f"opInterface.value={operator.file}", ""])


def prototype(operator: CustomOperator) -> str:
    """The C++ source of the operator's prototype and shape function, for CANN's op_proto library.

    The result has the shape to which its inputs broadcast, each with size 1 along the axes that the program reduces on the way. UnsupportedError where
    that differs between variants.
    """
    paths = {_paths(operator.kernel.trace(dict(values))) for values in operator.variants}
    if len(paths) > 1:
        raise UnsupportedError(
            f"{operator.type}: by their attributes its nodes reduce unlike axes; CANN has one shape function per type, so give them two types"
        )
    kind, (read,) = operator.type, paths
    lines = [f".INPUT({x}, TensorType({{DT_FLOAT16, DT_FLOAT}}))" for x in operator.inputs]
    lines.append(".OUTPUT(y, TensorType({DT_FLOAT16, DT_FLOAT}))")
    for name, value in operator.variants[0]:
        word = str(value).lower() if isinstance(value, bool) else repr(value)
        lines.append(f".ATTR({name}, {_TYPES[type(value)][0].capitalize()}, {word})")
    body = "\n".join(f"    {line}" for line in [*lines, f".OP_END_FACTORY_REG({kind})"])
    terms = ", ".join(f"{{{number}, {{{', '.join(map(str, axes))}}}}}" for number, axes in read)
    names = ", ".join(f'"{x}"' for x in operator.inputs)
    return f"""// Generated by npuforge: prototype and shape function of {operator.domain}::{kind}, for CANN's op_proto library.
#include "graph/operator_reg.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ge {{

REG_OP({kind})
{body}

IMPLEMT_COMMON_INFERFUNC({kind}InferShape) {{
    std::vector<std::vector<std::int64_t>> shapes;
    std::size_t rank = 0;
    for (const char* name : {{{names}}}) {{
        shapes.push_back(op.GetInputDescByName(name).GetShape().GetDims());
        rank = std::max(rank, shapes.back().size());
    }}
    struct Term {{
        std::size_t input;
        std::vector<std::size_t> reduced;
    }};
    std::vector<std::int64_t> dims(rank, 1);
    for (const Term& term : std::vector<Term>{{{terms}}}) {{
        std::vector<std::int64_t> own = shapes[term.input];
        own.insert(own.begin(), rank - own.size(), 1);
        for (const std::size_t axis : term.reduced)
            if (axis < rank) own[axis] = 1;
        for (std::size_t i = 0; i < rank; ++i) {{
            if (dims[i] != own[i] && dims[i] != 1 && own[i] != 1) return GRAPH_FAILED;
            if (dims[i] == 1) dims[i] = own[i];
        }}
    }}
    TensorDesc desc = op.GetOutputDescByName("y");
    desc.SetShape(Shape(dims));
    desc.SetDataType(op.GetInputDescByName("{operator.inputs[0]}").GetDataType());
    op.UpdateOutputDesc("y", desc);
    return GRAPH_SUCCESS;
}}
COMMON_INFER_FUNC_REG({kind}, {kind}InferShape);

}}  // namespace ge
"""


def _paths(trace: Trace) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """What the result is made of: input number, and the axes of N, C, H, W along which it is reduced on the way."""
    found: list[set[tuple[int, frozenset[int]]]] = []
    for o in trace.operations:
        axes = frozenset(axis for axis, size in zip((2, 3), o.window.kernel, strict=True) if size == 0)
        axes = frozenset({1}) if o.kind == "channel_sum" else axes if o.kind in WINDOWED else frozenset()
        before = {(o.a, frozenset[int]())} if o.kind == "input" else set().union(*(found[v] for v in o.reads))
        found.append({(number, reduced | axes) for number, reduced in before})
    return tuple(sorted((number, tuple(sorted(reduced))) for number, reduced in found[trace.result]))


def parser_plugin(domain: str, kind: str, version: int, implemented: str) -> str:
    """The C++ source that tells CANN's ONNX parser which node the operator is. `implemented`: where it is, of CANN's `ImplyType`."""
    return f"""// Generated by npuforge: the ONNX node {domain}::{kind} as CANN's operator {kind}.
#include "register/register.h"

namespace domi {{
REGISTER_CUSTOM_OP("{kind}")
    .FrameworkType(ONNX)
    .OriginOpType("{domain}::{version}::{kind}")
    .ParseParamsByOperatorFn(AutoMappingByOpFn)
    .ImplyType(ImplyType::{implemented});
}}  // namespace domi
"""
