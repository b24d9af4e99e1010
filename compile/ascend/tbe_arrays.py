"""TBE source and operator information for CANN, generated from an operator's array program of the NPU DSL.

The program is traced once for each set of input shapes and attribute values that the network has; the source picks the traced sequence by those it is called
with. Arithmetic, comparisons and reductions are calls of `tbe.dsl`; what arranges elements (reshape, transpose, slices, gathering), and products of matrices, are `tvm.compute`.
Prototype and shape function: array_prototype.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from npuforge.compile.ascend.tbe import file_name
from npuforge.compile.ir.errors import InstructionError, UnsupportedError
from npuforge.hw_kernels.dsl.array import ArrayKernel
from npuforge.hw_kernels.dsl.array_trace import PAIRS, ArrayOperation, ArrayTrace, Result, Shape

Variant = tuple[tuple[Shape, ...], tuple[tuple[str, Any], ...]]
SHAPE_WORDS = 9  # per output whose size the data tell: its rank, then its dimensions, int32
ATTRIBUTES: dict[int, tuple[str, str, str]] = {  # in an .ini, in a check of parameters, in a prototype
    AttributeProto.INT: ("int", "INT", "Int"),
    AttributeProto.FLOAT: ("float", "FLOAT", "Float"),
    AttributeProto.INTS: ("listInt", "LIST_INT", "ListInt"),
    AttributeProto.FLOATS: ("listFloat", "LIST_FLOAT", "ListFloat"),
}
DTYPES = {"float32": ("float", "DT_FLOAT"), "int64": ("int64", "DT_INT64")}
_HELPERS = """def _number(value):
    return tvm.const(value, "float32")


def _as(x, dtype):
    return tvm.compute([int(n) for n in x.shape], lambda *i: x(*i).astype(dtype))


def _index(count):
    return tvm.compute([count], lambda i: i.astype("float32"))


def _reshape(x, shape):
    def at(*place):
        flat = 0
        for size, i in zip(shape, place):
            flat = flat * size + i
        found = []
        for size in reversed([int(n) for n in x.shape]):
            found.append(tvm.floormod(flat, size))
            flat = tvm.floordiv(flat, size)
        return x(*reversed(found))

    return tvm.compute(shape, at)


def _transpose(x, axes):
    return tvm.compute([int(x.shape[a]) for a in axes], lambda *i: x(*[i[axes.index(a)] for a in range(len(axes))]))


def _slice(x, start, shape):
    return tvm.compute(shape, lambda *i: x(*[first + k for first, k in zip(start, i)]))


def _gather(x, indices):
    whole = _as(indices, "int32")
    rank = len(indices.shape)
    shape = [int(n) for n in (*indices.shape, *x.shape[1:])]
    return tvm.compute(shape, lambda *i: x(whole(*i[:rank]), *i[rank:]))


def _matmul(a, b):
    along = tvm.reduce_axis((0, int(a.shape[2])), name="along")
    shape = [int(n) for n in (*a.shape[:2], b.shape[2])]
    return tvm.compute(shape, lambda i, m, n: tvm.sum(a(i, m, along) * b(i, along, n), axis=[along]))


def _same(found, expected):
    if isinstance(expected, list):
        return len(found) == len(expected) and all(_same(f, e) for f, e in zip(found, expected))
    return math.isclose(found, expected, rel_tol=1e-6)
"""


@dataclass
class ArrayOperator:
    """One operator type of a network. `inputs`, `outputs`: element types; `attributes`: name -> kind. `variants`: shapes of the inputs and attribute
    values of its nodes, with their traces, in order."""

    domain: str
    type: str
    kernel: ArrayKernel
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, int] = field(default_factory=dict)
    variants: dict[Variant, ArrayTrace] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Base name of its files."""
        return file_name(self.type)

    def open_axes(self) -> list[int | None]:
        """By output the axis whose size the data tell; UnsupportedError where nodes differ in that."""
        found = [[r.axis if r.count >= 0 else None for r in trace.results] for trace in self.variants.values()]
        if any(f != found[0] for f in found):
            raise UnsupportedError(
                f"{self.type}: by their attributes some of its nodes have outputs whose size the data tell and some have not; one operator of CANN has "
                "the same on every node, so give all of them a threshold, or none"
            )
        return found[0]

    def add_node(
        self, node: onnx.NodeProto, attributes: dict[str, Any], shapes: dict[str, Shape], types: dict[str, str]
    ) -> None:
        """Enters one node, given what is known of the model's tensors; InstructionError where the program refuses it."""
        for letter, tensors, own in (("input", node.input, self.inputs), ("output", node.output, self.outputs)):
            found = [types.get(t, "unknown") for t in tensors]
            for number, dtype in enumerate(found):
                if dtype not in DTYPES:
                    raise InstructionError(f"{letter} {number} is {dtype}; expected {' or '.join(DTYPES)}")
            if self.variants and found != own:
                raise InstructionError(f"its {letter}s are {found}, another node's {own}")
            own[:] = found
        if missing := [t for t in node.input if t not in shapes]:
            raise InstructionError(f"the shape of its input {missing[0]} is not known")
        self.add([shapes[t] for t in node.input], attributes)

    def add(self, shapes: list[Shape], attributes: dict[str, Any]) -> None:
        """Enters one node; InstructionError where the program refuses its shapes or attributes."""
        given = tuple((n, _plain(v)) for n, v in sorted(attributes.items()))
        key = (tuple(shapes), given)
        if key not in self.variants:
            trace = self.kernel.trace(shapes, attributes)
            trace.results = trace.results[: len(self.outputs)]
            self.variants[key] = trace


def _plain(value: Any) -> Any:
    """A number or tuple of numbers as Python's own."""
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(_plain(v) for v in value)
    return float(value) if isinstance(value, float | np.floating) else int(value)


def source(operator: ArrayOperator) -> str:
    """The Python file for CANN: `<file>_compute` in TBE's DSL, `<file>` that schedules and builds it."""
    inputs = [f"x{i}" for i in range(len(operator.inputs))]
    outputs = [f"y{i}" for i in range(len(operator.outputs))]
    attributes = sorted(operator.attributes)
    programs = [_program(i, trace, inputs) for i, trace in enumerate(operator.variants.values())]
    table = "".join(
        f"    ({[list(s) for s in shapes]}, {_literal(given)}, _program_{i}),\n"
        for i, (shapes, given) in enumerate(operator.variants)
    )
    checks = ["REQUIRED_INPUT"] * len(inputs) + ["REQUIRED_OUTPUT"] * len(outputs)
    checks += [f"REQUIRED_ATTR_{ATTRIBUTES[operator.attributes[n]][1]}" for n in attributes] + ["KERNEL_NAME"]
    signature = ", ".join([*inputs, *outputs, *attributes])
    placeholders = "\n".join(
        f'    data_{x} = tvm.placeholder(list({x}.get("shape")) or [1], name="data_{x}", dtype={x}.get("dtype").lower())'
        for x in inputs
    )
    data = ", ".join(f"data_{x}" for x in inputs)
    given = "{" + ", ".join(f'"{n}": {n}' for n in attributes) + "}"
    return f'''"""{operator.domain}::{operator.type} for CANN's TBE, generated by npuforge from the NPU-DSL program {operator.kernel.name}."""

import math

import tbe.dsl as tbe
from tbe import tvm
from tbe.common.register import register_op_compute
from tbe.common.utils import para_check


{_HELPERS}

{"".join(program + chr(10) + chr(10) for program in programs)}_PROGRAMS = [
{table}]


@register_op_compute("{operator.type}")
def {operator.file}_compute({signature}, kernel_name="{operator.file}"):
    shapes, given = [[int(n) for n in x.shape] for x in ({", ".join(inputs)},)], {given}
    for own, values, program in _PROGRAMS:
        same = [s or [1] for s in own] == shapes and all(_same(given[name], values[name]) for name in values)
        if same:
            return program({", ".join(inputs)})
    raise RuntimeError("{operator.type}: generated for other shapes or attributes than %s, %s" % (shapes, given))


@para_check.check_op_params({", ".join(f"para_check.{c}" for c in checks)})
def {operator.file}({signature}, kernel_name="{operator.file}"):
{placeholders}
    results = {operator.file}_compute({", ".join([data, *outputs, *attributes])}, kernel_name)
    with tvm.target.cce():
        schedule = tbe.auto_schedule(results)
    tbe.build(schedule, {{"name": kernel_name, "tensor_list": [{data}, *results]}})
'''


def _literal(given: tuple[tuple[str, Any], ...]) -> str:
    return "{" + ", ".join(f"{n!r}: {_value(v)}" for n, v in given) + "}"


def _value(value: Any) -> str:
    """A number or list of numbers as Python source, infinite ones too."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value) if np.isfinite(value) else f'float("{value!r}")'


def _program(number: int, trace: ArrayTrace, inputs: list[str]) -> str:
    """One traced sequence as a function."""
    lines = [f"def _program_{number}({', '.join(inputs)}):"]
    lines += [f"    {line}" for line in _statements(trace, trace.order, inputs)]
    results = [_result(r, trace) for r in trace.results]
    sized = [r for r in trace.results if r.count >= 0]
    if sized:
        lines += [f"    {line}" for line in _shape_tensor(sized, trace)]
        results.append("shape_out")
    return "\n".join([*lines, f"    return [{', '.join(results)}]", ""])


def _result(result: Result, trace: ArrayTrace) -> str:
    return f"v{result.value}" if result.dtype == "float32" else f'_as(v{result.value}, "{result.dtype}")'


def _shape_tensor(sized: list[Result], trace: ArrayTrace) -> list[str]:
    """The tensor that tells CANN the size of such outputs."""
    words = []
    for result in sized:
        shape = trace.operations[result.value].shape
        words.append(f"tbe.broadcast(_number({float(len(shape))}), [1])")
        for axis in range(SHAPE_WORDS - 1):
            open_axis = axis == result.axis
            size = float(shape[axis]) if axis < len(shape) else 0.0
            words.append(f"_reshape(v{result.count}, [1])" if open_axis else f"tbe.broadcast(_number({size}), [1])")
    return ["words = [", *(f"    {word}," for word in words), "]", 'shape_out = _as(tbe.concat(words, 0), "int32")']


def _statements(trace: ArrayTrace, order: tuple[int, ...] | list[int], inputs: list[str]) -> list[str]:
    """The operations as statements that set `v<number>`."""
    lines: list[str] = []
    for index in order:
        o = trace.operations[index]
        if o.loop is not None:
            names = ", ".join(f"v{v}" for v in o.loop.parameters)
            lines.append(f"def _round_{index}({names}):")
            lines += [f"    {line}" for line in _statements(trace, o.loop.body, inputs)]
            lines.append(f"    return [{', '.join(f'v{v}' for v in o.loop.results)}]")
            lines.append(f"v{index} = [{', '.join(f'v{v}' for v in o.reads)}]")
            lines.append(f"for _ in range({o.loop.count}):")
            lines.append(f"    v{index} = _round_{index}(*v{index})")
        else:
            lines.append(f"v{index} = {_expression(o, trace, inputs)}")
    return lines


def _expression(o: ArrayOperation, trace: ArrayTrace, inputs: list[str]) -> str:
    """One operation, of no loop."""

    def like(operand: int | float, shape: Shape = o.shape) -> str:
        """An operand, broadcast to `shape` where it has another."""
        if not isinstance(operand, int):
            return _constant(operand)
        same = trace.operations[operand].shape == shape
        return f"v{operand}" if same else f"tbe.broadcast(v{operand}, {list(shape)})"

    kind, x = o.kind, o.operands
    if kind == "input":
        return f'_as({inputs[o.number]}, "float32")'
    if kind == "part":
        return f"v{x[0]}[{o.number}]"
    if kind in PAIRS:
        suffix = "" if isinstance(x[1], int) else "s"
        return f"tbe.v{kind}{suffix}({like(x[0])}, {like(x[1])})"
    if kind in ("abs", "exp"):
        return f"tbe.v{kind}(v{x[0]})"
    if kind == "sqrt":
        return f"tbe.vsqrt(v{x[0]}, 1)"  # accurate, not fast
    if kind == "floor":
        return f'tbe.cast_to(tbe.floor(v{x[0]}), "float32")'
    if kind == "select":
        first, second, then, otherwise = (like(v) for v in x)
        return f'tbe.vcmpsel({first}, {second}, "{o.word}", {then}, {otherwise})'
    if kind == "reduce":
        return f"tbe.reduce_{o.word}(v{x[0]}, axis={list(o.axes)}, keepdims=True)"
    if kind == "matmul":
        return f"_matmul(v{x[0]}, v{x[1]})"
    if kind == "broadcast":
        value = f"v{x[0]}" if isinstance(x[0], int) else _constant(x[0])
        return f"tbe.broadcast({value}, {list(o.shape)})"
    if kind == "reshape":
        return f"_reshape(v{x[0]}, {list(o.shape)})"
    if kind == "transpose":
        return f"_transpose(v{x[0]}, {list(o.axes)})"
    if kind == "slice":
        return f"_slice(v{x[0]}, {list(o.start)}, {list(o.shape)})"
    if kind == "concat":
        return f"tbe.concat([{', '.join(f'v{v}' for v in x)}], {o.axes[0]})"
    if kind == "index":
        return f"_index({o.shape[0]})"
    assert kind == "gather", kind
    return f"_gather(v{x[0]}, v{x[1]})"


def _constant(value: float) -> str:
    return f"_number({_value(value)})"


def information(operator: ArrayOperator) -> str:
    """The operator information file (.ini) of CANN's operator library."""
    lines = [f"[{operator.type}]"]
    sized = operator.open_axes()
    for side, letter, types in (("input", "x", operator.inputs), ("output", "y", operator.outputs)):
        for i, dtype in enumerate(types):
            fields = {"name": f"{letter}{i}", "dtype": DTYPES[dtype][0], "paramType": "required", "format": "ND"}
            if side == "output" and sized[i] is not None:
                fields["outputShapeDependOnCompute"] = "true"
            lines += [f"{side}{i}.{key}={value}" for key, value in fields.items()]
    if operator.attributes:
        lines.append(f"attr.list={','.join(sorted(operator.attributes))}")
    for name in sorted(operator.attributes):
        fields = {"type": ATTRIBUTES[operator.attributes[name]][0], "value": "all", "paramType": "required"}
        lines += [f"attr_{name}.{key}={text}" for key, text in fields.items()]
    return "\n".join([*lines, f"opFile.value={operator.file}", f"opInterface.value={operator.file}", ""])
