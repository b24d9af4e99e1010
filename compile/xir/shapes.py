"""XIR's shape rules for the operators that the writer emits, as the vendor's library applies them on loading (before a file's own tensor wins).

`inferred` gives None for operators without a rule here. `shape_problems` names every op whose stored tensor differs from its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from npuforge.compile.xir.model import XModel, XOp

Shape = list[int]
_SAME = (
    *(
        "relu",
        "leaky-relu",
        "prelu",
        "relu6",
        "elu",
        "celu",
        "gelu",
        "mish",
        "selu",
        "sigmoid",
        "swish",
        "tanh",
        "hard-sigmoid",
    ),
    *(
        "hard-sigmoid-fix",
        "hard-swish",
        "hard-tanh",
        "fix",
        "fix2float",
        "float2fix",
        "identity",
        "upload",
        "download",
        "placeholder",
    ),
    *("softmax", "hard-softmax", "cast", "exp", "neg", "l2_normalize", "batchnorm", "scale"),
)


def _pads(op: XOp) -> tuple[int, int]:
    """Total padding of height and width."""
    left, right, top, bottom = op.get("pad", [0, 0, 0, 0])
    return top + bottom, left + right


def _window(op: XOp, shape: Shape) -> Shape:
    """Height and width behind a window: FLOOR rule."""
    result = []
    for axis, pad in enumerate(_pads(op)):
        kernel, stride, dilation = (
            op.get("kernel")[1 - axis],
            op.get("stride")[1 - axis],
            op.get("dilation", [1, 1])[1 - axis],
        )
        result.append((shape[1 + axis] + pad - ((kernel - 1) * dilation + 1) + stride) // stride)
    return result


def _transposed(op: XOp, shape: Shape) -> Shape:
    result = []
    for axis, pad in enumerate(_pads(op)):
        kernel, stride, dilation = (
            op.get("kernel")[1 - axis],
            op.get("stride")[1 - axis],
            op.get("dilation", [1, 1])[1 - axis],
        )
        result.append((shape[1 + axis] - 1) * stride + dilation * (kernel - 1) + 1 - pad)
    return result


def _convolution(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    x, weights = inputs["input"][0], inputs["weights"][0]
    if len(weights) != 4 or weights[3] * op.get("group", 1) != x[3]:
        raise ValueError(f"weights {weights} do not fit the input {x} with group {op.get('group', 1)}")
    return [x[0], *_window(op, x), weights[0]]


def _depthwise(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    x, weights = inputs["input"][0], inputs["weights"][0]
    if len(weights) != 4 or weights[3] != x[3]:
        raise ValueError(f"weights {weights} do not fit the input {x}")
    return [x[0], *_window(op, x), weights[0] * weights[3]]


def _transposed_convolution(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    x, weights = inputs["input"][0], inputs["weights"][0]
    if weights[3] != x[3]:
        raise ValueError(f"weights {weights} do not fit the input {x}")
    return [x[0], *_transposed(op, x), weights[0]]


def _transposed_depthwise(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    x, weights = inputs["input"][0], inputs["weights"][0]
    return [x[0], *_transposed(op, x), weights[0] * weights[3]]


def _pool(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    x = inputs["input"][0]
    return [x[0], *_window(op, x), x[3]]


def _broadcast(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    return list(np.broadcast_shapes(*(tuple(s) for s in inputs["input"])))


def _concat(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    shapes, axis = inputs["input"], op.get("axis") % len(inputs["input"][0])
    others = {tuple(s[:axis] + s[axis + 1 :]) for s in shapes}
    if len(others) != 1:
        raise ValueError(f"inputs {shapes} differ beside axis {axis}")
    return [*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]]


def _reshape(op: XOp, inputs: dict[str, list[Shape]]) -> Shape | None:
    if inputs.get("shape"):
        return None  # from another op's data
    x, wanted = inputs["input"][0], list(op.get("shape"))
    wanted = [x[i] if d == 0 else d for i, d in enumerate(wanted)]
    if -1 in wanted:
        wanted[wanted.index(-1)] = math.prod(x) // -math.prod(wanted)
    if math.prod(wanted) != math.prod(x):
        raise ValueError(f"{x} cannot be reshaped to {wanted}")
    return wanted


def _transpose(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    x, order = inputs["input"][0], op.get("order")
    if sorted(order) != list(range(len(x))):
        raise ValueError(f"order {order} is no permutation of {len(x)} axes")
    return [x[i] for i in order]


def _slice(op: XOp, inputs: dict[str, list[Shape]]) -> Shape | None:
    if any(op.get(f"{m}_mask") for m in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")):
        return None
    ranges = zip(inputs["input"][0], op.get("begin"), op.get("end"), op.get("strides"), strict=True)
    return [len(range(size)[slice(begin, end, step)]) for size, begin, end, step in ranges]


def _upsample(op: XOp, inputs: dict[str, list[Shape]]) -> Shape | None:
    if inputs.get("size"):
        return None
    x, scale = inputs["input"][0], op.get("scale")
    return [x[0], int(x[1] * scale[1]), int(x[2] * scale[0]), x[3]]


def _reduction(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    x = inputs["input"][0]
    axes = {a % len(x) for a in op.get("axis")}
    kept = [1 if i in axes else d for i, d in enumerate(x)]
    return kept if op.get("keep_dims") else [d for i, d in enumerate(x) if i not in axes]


def _matmul(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    a, b = (list(s) for s in inputs["input"])
    if op.get("transpose_a"):
        a[-2:] = a[:-3:-1]
    if op.get("transpose_b"):
        b[-2:] = b[:-3:-1]
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ValueError(f"{a} and {b} cannot be multiplied")
    return [*np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2])), a[-2], b[-1]]


def _source(op: XOp, inputs: dict[str, list[Shape]]) -> Shape:
    return list(op.get("shape"))


_RULES: dict[str, Callable[[XOp, dict[str, list[Shape]]], Shape | None]] = {
    "conv2d-fix": _convolution,
    "depthwise-conv2d-fix": _depthwise,
    "transposed-conv2d-fix": _transposed_convolution,
    "transposed-depthwise-conv2d-fix": _transposed_depthwise,
    "pool-fix": _pool,
    "concat": _concat,
    "concat-fix": _concat,
    "reshape": _reshape,
    "reshape-fix": _reshape,
    "transpose": _transpose,
    "strided_slice": _slice,
    "strided_slice-fix": _slice,
    "upsample-fix": _upsample,
    "matmul": _matmul,
    **dict.fromkeys(("data", "data-fix", "const", "const-fix"), _source),
    **dict.fromkeys(("add", "sub", "mul", "div", "min", "max", "eltwise-fix", "depthwise-fix"), _broadcast),
    **dict.fromkeys(
        ("reduction_mean", "reduction_product", "reduction_sum", "reduction_max", "reduction_max-fix"), _reduction
    ),
    **dict.fromkeys(_SAME, lambda op, inputs: list(inputs["input"][0])),
}


def inferred(op: XOp, inputs: dict[str, list[Shape]]) -> Shape | None:
    """The output shape from the shapes of each argument's producers. ValueError where the library would abort."""
    rule = _RULES.get(op.type)
    return None if rule is None else rule(op, inputs)


def shape_problems(model: XModel, types: Sequence[str] | None = None) -> list[str]:
    """One line per op whose tensor's shape is not what the library infers (it lets the file win) or whose inputs it would refuse."""
    shapes = {op.name: op.tensor.shape for op in model.ops}
    found = []
    for op in model.ops:
        if types is not None and op.type not in types:
            continue
        try:
            expected = inferred(op, {arg: [shapes[p] for p in producers] for arg, producers in op.args})
        except (ValueError, TypeError, IndexError, KeyError, ArithmeticError) as error:
            found.append(f"{op.label}: {error}")
            continue
        if expected is not None and expected != op.tensor.shape:
            found.append(f"{op.label}: its tensor has shape {op.tensor.shape}; the operator gives {expected}")
    return found
