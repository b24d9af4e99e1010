"""Registered operators as PyTorch functions: forward, backward and double backward come from the operator folders, nothing is defined here.

`run(name, *tensors, **attributes)` takes any operator. Element-wise functions (a `Formula`) compute in torch itself, on any device; the others in numpy
float64 on the CPU. Both are custom operators to torch, which `torch.compile` leaves whole. In `torch.onnx.export(dynamo=True)`
each becomes one node of its own domain. Needs `pip install npuforge[torch]`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.bindings.checked_attributes import check_attributes, check_convolution
from npuforge.hw_kernels.bindings.onnx_form import onnx_form
from npuforge.hw_kernels.bindings.open_shapes import infer_open
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.operator import Op

OPERATORS = operator.registry()  # found once, here: torch.compile cannot trace the search
TYPES = {k: getattr(torch, k) for k in ("float32", "int64", "int32", "int8", "uint8", "bool")}


def run(name: str, *inputs: Tensor, outputs: int = 1, **attributes: Any) -> Any:
    """Operator `name` (`Conv`, `npuforge::Silu`, ...) on tensors. One tensor, or a tuple if `outputs` is above 1.

    UnsupportedError: the operator is not known or has fewer outputs, or an attribute is one that only the importer of ONNX files reads (auto_pad, ceil_mode, ...).
    """
    op = OPERATORS.get(name)
    if op is None:
        raise UnsupportedError(f"operator {name} {operator.not_known(name)}")
    if outputs < 1:
        raise UnsupportedError(f"operator {name}: outputs={outputs}; expected 1 or more")
    check_attributes(name, len(inputs), attributes)
    check_convolution(name, [tuple(x.shape) for x in inputs], attributes)
    if torch.onnx.is_in_onnx_export():
        found = _as_onnx(name, op, inputs, outputs, attributes)
    elif isinstance(op, Unary):
        found = [torch.ops.npuforge.formula(inputs[0], name, *_packed(name, attributes), 0)]
    else:
        found = torch.ops.npuforge.run(list(inputs), name, *_packed(name, attributes), outputs)
    _check_outputs(name, outputs, len(found))
    return found[0] if outputs == 1 else tuple(found)


def _check_outputs(name: str, outputs: int, count: int) -> None:
    if outputs > count:
        raise UnsupportedError(f"operator {name}: outputs={outputs}, but it has {count}; give a number up to that")


def _packed(name: str, attributes: dict[str, Any]) -> tuple[str, list[int], list[float]]:
    """Attributes as the opaque operators take them: JSON in which numbers are places in the two lists, since a number that torch.compile holds
    open cannot become text. UnsupportedError names an attribute that is neither a number, a string nor a list of them."""
    ints: list[int] = []
    floats: list[float] = []
    members = [f'"{key}": {_json(name, key, value, ints, floats)}' for key, value in attributes.items()]
    return "{" + ", ".join(members) + "}", ints, floats


def _json(name: str, key: str, value: Any, ints: list[int], floats: list[float]) -> str:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([_json(name, key, v, ints, floats) for v in value]) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        ints.append(value)
        return f'{{"#int": {len(ints) - 1}}}'
    if isinstance(value, float):
        floats.append(value)
        return f'{{"#float": {len(floats) - 1}}}'
    raise UnsupportedError(
        f"operator {name}: attribute {key} is a {type(value).__name__}; expected a number, a string or a list of them"
    )


def _unpacked(text: str, ints: list[int], floats: list[float]) -> dict[str, Any]:
    def number(members: dict[str, Any]) -> Any:
        if "#int" in members:
            return int(ints[members["#int"]])
        return float(floats[members["#float"]]) if "#float" in members else members

    found: dict[str, Any] = json.loads(text, object_hook=number)
    return found


def _node(name: str, inputs: int, outputs: int, attributes: dict[str, Any]) -> Node:
    return Node(name, name, [f"x{i}" for i in range(inputs)], [f"y{i}" for i in range(outputs)], dict(attributes))


def _as_onnx(name: str, op: Op, inputs: tuple[Tensor, ...], outputs: int, attributes: dict[str, Any]) -> list[Tensor]:
    """One ONNX node; what the exporter sees are the inferred shapes."""
    node = _node(name, len(inputs), outputs, attributes)
    inferred = _inferred(node, op, inputs)[:outputs]
    _check_outputs(name, outputs, len(inferred))
    shapes = [tuple(_data_decides(inputs[0]) if d is None or d == -1 else d for d in shape) for shape in inferred]
    types = [_type(t, inputs[0]) for t in op.output_types(node, [_dtype_name(x) for x in inputs])]
    version = 1 if "::" in name else None
    kept, added = onnx_form(name, len(inputs), attributes, tuple(inputs[0].shape), _dtype_name(inputs[0]))
    operands: list[Tensor | None] = [*inputs, *[None] * (max(added, default=-1) + 1 - len(inputs))]
    for position, value in added.items():
        operands[position] = torch.tensor(value.tolist(), dtype=getattr(torch, value.dtype.name))
    return list(
        torch.onnx.ops.symbolic_multi_out(name, operands, kept, dtypes=types[:outputs], shapes=shapes, version=version)
    )


def _inferred(node: Node, op: Op, inputs: tuple[Tensor, ...]) -> list[tuple[Any, ...]]:
    """Output shapes, None for a size that the data decide."""
    try:
        found = infer_open(op, node, [tuple(x.shape) for x in inputs])
    except (IndexError, TypeError, ValueError):
        if not op.shape_from_values:
            raise
        raise UnsupportedError(
            f"operator {node.op}: its output's shape follows from values that are not there while a network is exported; "
            "use torch's own function, which exports to ONNX as well"
        ) from None
    standard = op.shape_from_values and "::" not in node.op  # those of the kit say themselves what is open
    return [(None,) * len(shape) for shape in found] if standard else list(found)


def _dtype_name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _data_decides(like: Tensor) -> int:
    """A size that the exporter knows nothing of; the nodes that make it go out of the exported graph, since nothing in it reads the number."""
    size: int = (like == like).sum().item()
    torch._check(size >= 0)
    return size


def _type(name: str, like: Tensor) -> torch.dtype:
    """Floats have the precision of the float inputs, float32 where there are none."""
    if name.startswith("float"):
        return like.dtype if like.is_floating_point() else torch.float32
    return TYPES[name]


# ---- element-wise: torch computes the formula
@torch.library.custom_op("npuforge::formula", mutates_args=())
def _formula(x: Tensor, name: str, text: str, ints: list[int], floats: list[float], order: int) -> Tensor:
    """Derivative of the given order (0: the value) of an element-wise function."""
    op, given = OPERATORS[name], _unpacked(text, ints, floats)
    assert isinstance(op, Unary)
    formula = op.formula_of(_node(name, 1, 1, given))
    function = (formula.value, formula.slope, formula.curvature)[order]
    result: Tensor = torch.as_tensor(function(torch, x, given))
    return result.clone() if result.data_ptr() == x.data_ptr() else result


@_formula.register_fake
def _(x: Tensor, name: str, text: str, ints: list[int], floats: list[float], order: int) -> Tensor:
    return torch.empty_like(x)


def _save_formula(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.name, *ctx.packed, ctx.order = inputs
    ctx.save_for_backward(x)


def _formula_backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    if ctx.order == 2:
        raise UnsupportedError(f"operator {ctx.name} can be differentiated twice only")
    (x,) = ctx.saved_tensors
    return dy * torch.ops.npuforge.formula(x, ctx.name, *ctx.packed, ctx.order + 1), *[None] * 5


_formula.register_autograd(_formula_backward, setup_context=_save_formula)


# ---- everything else: numpy computes, torch sees three opaque operators
def _arrays(tensors: list[Tensor]) -> list[Any]:
    wide = (t.detach().to("cpu", torch.float64) if t.is_floating_point() else t.detach().cpu() for t in tensors)
    return [t.contiguous().numpy() for t in wide]


def _back(array: Any, like: Tensor) -> Tensor:
    """A new tensor on the device of `like`; floats in its precision."""
    value = torch.from_numpy(np.array(array, order="C"))
    return value.to(like.device, _type("float", like) if value.is_floating_point() else None)


def _reference_tensor(inputs: list[Tensor]) -> Tensor:
    return next((x for x in inputs if x.is_floating_point()), inputs[0])


@torch.library.custom_op("npuforge::run", mutates_args=())
def _run(
    inputs: list[Tensor], name: str, text: str, ints: list[int], floats: list[float], outputs: int
) -> list[Tensor]:
    node = _node(name, len(inputs), outputs, _unpacked(text, ints, floats))
    found = OPERATORS[name].reference(node, _arrays(inputs))
    return [_back(y, _reference_tensor(inputs)) for y in found[:outputs]]


@_run.register_fake
def _(inputs: list[Tensor], name: str, text: str, ints: list[int], floats: list[float], outputs: int) -> list[Tensor]:
    op, node = OPERATORS[name], _node(name, len(inputs), outputs, _unpacked(text, ints, floats))
    shapes = infer_open(op, node, [tuple(x.shape) for x in inputs])[:outputs]
    types = op.output_types(node, [_dtype_name(x) for x in inputs])
    like, results = _reference_tensor(inputs), []
    for shape, kind in zip(shapes, types, strict=False):
        sizes = [
            torch.library.get_ctx().new_dynamic_size() if d is None or (isinstance(d, int) and d < 0) else d
            for d in shape
        ]
        results.append(like.new_empty(sizes, dtype=_type(kind, like)))
    return results


@torch.library.custom_op("npuforge::gradient", mutates_args=())
def _gradient(
    inputs: list[Tensor], dys: list[Tensor], name: str, text: str, ints: list[int], floats: list[float]
) -> list[Tensor]:
    """Of the float inputs, in order; zeros where the operator gives none."""
    op, node = OPERATORS[name], _node(name, len(inputs), len(dys), _unpacked(text, ints, floats))
    found = op.gradient(node, _arrays(inputs), _arrays(dys))
    pairs = [(x, g) for x, g in zip(inputs, found, strict=True) if x.is_floating_point()]
    return [torch.zeros_like(x) if g is None else _back(g, x) for x, g in pairs]


@_gradient.register_fake
def _(
    inputs: list[Tensor], dys: list[Tensor], name: str, text: str, ints: list[int], floats: list[float]
) -> list[Tensor]:
    return [torch.empty_like(x) for x in inputs if x.is_floating_point()]


@torch.library.custom_op("npuforge::second_gradient", mutates_args=())
def _second(
    inputs: list[Tensor],
    dys: list[Tensor],
    directions: list[Tensor],
    name: str,
    text: str,
    ints: list[int],
    floats: list[float],
) -> list[Tensor]:
    """Of the float inputs, then of the output gradients."""
    op, node = OPERATORS[name], _node(name, len(inputs), len(dys), _unpacked(text, ints, floats))
    given = iter(_arrays(directions))
    wide = [next(given) if x.is_floating_point() else None for x in inputs]
    of_inputs, of_dys = op.second_gradient(node, _arrays(inputs), _arrays(dys), wide)
    pairs = [(x, g) for x, g in zip(inputs, of_inputs, strict=True) if x.is_floating_point()]
    pairs += list(zip(dys, of_dys, strict=True))
    return [torch.zeros_like(x) if g is None else _back(g, x) for x, g in pairs]


@_second.register_fake
def _(
    inputs: list[Tensor],
    dys: list[Tensor],
    directions: list[Tensor],
    name: str,
    text: str,
    ints: list[int],
    floats: list[float],
) -> list[Tensor]:
    return [torch.empty_like(x) for x in (*(i for i in inputs if i.is_floating_point()), *dys)]


def _no_gradients(ctx: Any) -> list[Any]:
    """Of the packed attributes, as torch wants them where an input is a list of tensors: an empty list of numbers counts as one to it."""
    return [None if part else [] for part in ctx.packed]


def _save_run(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, ctx.name, *ctx.packed, _ = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.count = len(tensors)


def _run_backward(ctx: Any, dys: list[Tensor | None]) -> tuple[Any, ...]:
    inputs, results = list(ctx.saved_tensors[: ctx.count]), ctx.saved_tensors[ctx.count :]
    op = OPERATORS[ctx.name]
    if type(op).gradient is Op.gradient or op.no_gradient:
        raise UnsupportedError(f"operator {ctx.name} has no gradient: {op.no_gradient}; detach its inputs")
    like = _reference_tensor(inputs)
    given = [
        torch.zeros(y.shape, dtype=like.dtype, device=like.device)
        if dy is None or not y.is_floating_point()
        else dy.contiguous()
        for dy, y in zip(dys, results, strict=True)
    ]
    found = iter(torch.ops.npuforge.gradient(inputs, given, ctx.name, *ctx.packed))
    return [next(found) if x.is_floating_point() else None for x in inputs], None, *_no_gradients(ctx), None


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, dys, ctx.name, *ctx.packed = inputs
    ctx.save_for_backward(*tensors, *dys)
    ctx.count = len(tensors)


def _gradient_backward(ctx: Any, directions: list[Tensor | None]) -> tuple[Any, ...]:
    inputs, dys = list(ctx.saved_tensors[: ctx.count]), list(ctx.saved_tensors[ctx.count :])
    op = OPERATORS[ctx.name]
    if type(op).second_gradient is Op.second_gradient:
        raise UnsupportedError(f"operator {ctx.name} can be differentiated once only")
    floats = [x for x in inputs if x.is_floating_point()]
    given = [torch.zeros_like(x) if d is None else d.contiguous() for x, d in zip(floats, directions, strict=True)]
    found = torch.ops.npuforge.second_gradient(inputs, dys, given, ctx.name, *ctx.packed)
    of_inputs = iter(found[: len(floats)])
    return (
        [next(of_inputs) if x.is_floating_point() else None for x in inputs],
        list(found[len(floats) :]),
        None,
        *_no_gradients(ctx),
    )


_run.register_autograd(_run_backward, setup_context=_save_run)
_gradient.register_autograd(_gradient_backward, setup_context=_save_gradient)
