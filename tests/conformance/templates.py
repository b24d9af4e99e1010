"""One function per construction of the random networks: it draws a fitting tensor and parameters, and adds a node (or none)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from random_graphs import Network

TEMPLATES: list[Callable[[Network], Any]] = []


def template(function: Callable[[Network], Any]) -> Callable[[Network], Any]:
    TEMPLATES.append(function)
    return function


SMOOTH: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (op, {})
        for op in ("Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Mish", "HardSwish", "HardSigmoid", "Elu", "Selu")
    ),
    *(
        (op, {})
        for op in ("Sin", "Cos", "Atan", "Asinh", "LeakyRelu", "Celu", "Gelu", "Identity", "Exp", "Sinh", "Cosh")
    ),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {"alpha": 0.5}),
    ("Gelu", {"approximate": "tanh"}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("ThresholdedRelu", {"alpha": -0.0}),
)


@template
def unary(n: Network) -> None:
    if x := n.floats():
        op, attrs = n.pick(*SMOOTH)
        n.node(op, [x], **attrs)


@template
def exact_unary(n: Network) -> None:
    if x := n.floats():
        n.node(n.pick("Relu", "Abs", "Neg"), [x], exact=True)


@template
def jumping_unary(n: Network) -> None:
    if x := n.floats(exact=True):
        op, attrs = n.pick(
            ("Floor", {}),
            ("Ceil", {}),
            ("Round", {}),
            ("Sign", {}),
            ("Shrink", {"bias": 0.3, "lambd": 0.4}),
            ("ThresholdedRelu", {}),
        )
        n.node(op, [x], exact=True, **attrs)


@template
def guarded_unary(n: Network) -> None:
    """Functions with a domain, on |x| + 0.5 or tanh(x) / 2."""
    x = n.floats()
    if x is None:
        return
    if n.pick(0, 1):
        magnitude = n.node("Abs", [x])
        shifted = magnitude and n.node("Add", [magnitude, n.constant(0.5)])
        if shifted:
            n.node(n.pick("Log", "Sqrt", "Reciprocal"), [shifted])
    elif (bounded := n.node("Tanh", [x])) and (half := n.node("Mul", [bounded, n.constant(0.5)])):
        n.node(n.pick("Asin", "Acos", "Atanh", "Tan"), [half])


@template
def clip(n: Network) -> None:
    if x := n.floats():
        low, high = sorted(n.random.normal(0, 1, 2))
        n.node("Clip", [x, n.pick("", n.constant(low)), n.constant(high)], exact=True)


@template
def binary(n: Network) -> None:
    x = n.floats()
    if x and (y := n.like(x)):
        n.node(n.pick("Add", "Sub", "Mul"), n.pick([x, y], [y, x]))


@template
def extreme(n: Network) -> None:
    x = n.floats()
    if x and (y := n.like(x)):
        n.node(n.pick("Max", "Min"), [x, y, n.constant(0.1)], exact=True)


@template
def sum_or_mean(n: Network) -> None:
    x = n.floats()
    if x and (y := n.like(x)):
        n.node(n.pick("Sum", "Mean"), [x, y, x])


@template
def divide(n: Network) -> None:
    if x := n.floats():
        shape = n.values[x].shape[1:]
        n.node("Div", [x, n.constant(n.random.uniform(0.5, 2.0, shape))])


@template
def power(n: Network) -> None:
    if x := n.floats():
        base = n.node("Abs", [x])
        n.node("Pow", [base, n.pick(n.constant(2.0), n.constant(1.5), n.ints(3))]) if base else None


@template
def compare_and_select(n: Network) -> None:
    x = n.floats(exact=True)
    if x is None:
        return
    other = n.pick(n.constant(0.0), n.normal(*n.values[x].shape))
    mask = n.node(n.pick("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"), [x, other], exact=True)
    if mask and n.pick(0, 1):
        mask = n.node("Not", [mask], exact=True)
    if mask and (y := n.like(x)):
        n.node("Where", [mask, x, y], exact=True)


@template
def logic(n: Network) -> None:
    mask = n.tensor(lambda v: v.dtype == np.bool_)
    if mask:
        n.node(
            n.pick("And", "Or", "Xor"),
            [mask, n.constant(n.random.integers(0, 2, n.values[mask].shape), np.bool_)],
            exact=True,
        )


@template
def cast(n: Network) -> None:
    if x := n.tensor(lambda v: True, exact=True):
        n.node("Cast", [x], exact=True, to=n.pick(1, 6, 7, 9))


@template
def integer_arithmetic(n: Network) -> None:
    x = n.tensor(lambda v: v.dtype in (np.int64, np.int32), exact=True)
    if x:
        dtype = n.values[x].dtype
        op = n.pick("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")
        n.node(op, [x, n.constant(n.pick(-3, 2, 5), dtype)], exact=True)


# ---- moves
@template
def transpose(n: Network) -> None:
    if x := n.tensor(lambda v: v.ndim > 0):
        n.node("Transpose", [x], exact=True, perm=[int(p) for p in n.random.permutation(n.values[x].ndim)])


@template
def reshape(n: Network) -> None:
    x = n.tensor(lambda v: True)
    if x is None:
        return
    dims = [int(d) for d in n.values[x].shape]
    choice = n.pick("merge", "flat", "split", "flatten", "unsqueeze", "squeeze")
    if choice == "flatten":
        n.node("Flatten", [x], exact=True, axis=n.integer(0, len(dims)))
    elif choice == "unsqueeze":
        n.node("Unsqueeze", [x, n.ints(n.integer(0, len(dims)))], exact=True) if len(dims) < 5 else None
    elif choice == "squeeze":
        ones = [i for i, d in enumerate(dims) if d == 1]
        n.node("Squeeze", [x, n.ints(n.pick(*ones))], exact=True) if ones else None
    elif choice == "flat":
        n.node("Reshape", [x, n.ints(-1)], exact=True)
    elif choice == "merge" and len(dims) > 1:
        n.node("Reshape", [x, n.ints(*dims[:-2], -1)], exact=True)
    elif choice == "split" and dims and dims[-1] % 2 == 0:
        n.node("Reshape", [x, n.ints(*dims[:-1], 2, dims[-1] // 2)], exact=True)


@template
def slice_axis(n: Network) -> None:
    x = n.tensor(lambda v: v.ndim > 0)
    if x:
        axis = n.integer(0, n.values[x].ndim - 1)
        size, step = n.values[x].shape[axis], n.pick(1, 1, 2, -1)
        start = n.integer(0, size - 1)
        bounds = (start, size) if step > 0 else (start, -size - 1)
        n.node(
            "Slice",
            [x, n.ints(bounds[0]), n.ints(bounds[1]), n.ints(n.pick(axis, axis - n.values[x].ndim)), n.ints(step)],
            exact=True,
        )


@template
def concat(n: Network) -> None:
    x = n.floats(low=1)
    if x:
        axis = n.integer(0, n.values[x].ndim - 1)
        own = n.values[x].shape
        other = n.tensor(
            lambda v: (
                v.dtype == np.float32
                and v.ndim == len(own)
                and all(a == b for i, (a, b) in enumerate(zip(v.shape, own, strict=True)) if i != axis)
            )
        )
        n.node("Concat", [x, other or x, n.pick(x, n.normal(*own))], exact=True, axis=axis)


@template
def split(n: Network) -> None:
    x = n.tensor(lambda v: v.ndim > 0 and max(v.shape) > 1)
    if x:
        axis = int(np.argmax(n.values[x].shape))
        first = n.integer(1, n.values[x].shape[axis] - 1)
        n.node("Split", [x, n.ints(first, n.values[x].shape[axis] - first)], 2, exact=True, axis=axis)


@template
def gather(n: Network) -> None:
    x = n.tensor(lambda v: v.ndim > 0)
    if x:
        axis = n.integer(0, n.values[x].ndim - 1)
        size = n.values[x].shape[axis]
        if n.pick(0, 1):
            n.node(
                "Gather",
                [x, n.constant(n.random.integers(-size, size, n.pick((), (3,), (2, 2))), np.int64)],
                exact=True,
                axis=axis,
            )
        else:
            shape = [*n.values[x].shape]
            shape[axis] = n.integer(1, 4)
            n.node(
                "GatherElements",
                [x, n.constant(n.random.integers(-size, size, shape), np.int64)],
                exact=True,
                axis=axis,
            )


@template
def gather_or_scatter_nd(n: Network) -> None:
    x = n.floats(low=2)
    if x is None:
        return
    shape = n.values[x].shape
    rows = n.random.choice(shape[0], min(2, shape[0]), replace=False)
    indices = n.constant(rows[:, None], np.int64)
    if n.pick(0, 1):
        n.node("GatherND", [x, indices], exact=True)
    else:
        n.node(
            "ScatterND",
            [x, indices, n.normal(len(rows), *shape[1:])],
            exact=True,
            reduction=n.pick("none", "max", "min"),
        )


@template
def scatter_elements(n: Network) -> None:
    x = n.floats(low=1)
    if x:
        shape, axis = n.values[x].shape, n.integer(0, n.values[x].ndim - 1)
        some = [1 if d == axis else s for d, s in enumerate(shape)]
        indices = n.constant(n.random.integers(-shape[axis], shape[axis], some), np.int64)
        n.node(
            "ScatterElements",
            [x, indices, n.normal(*some)],
            exact=True,
            axis=axis,
            reduction=n.pick("none", "max", "add"),
        )


@template
def expand_or_tile(n: Network) -> None:
    x = n.tensor(lambda v: 0 < v.ndim < 5)
    if x is None:
        return
    if n.pick(0, 1):
        n.node("Tile", [x, n.ints(*(n.integer(1, 2) for _ in n.values[x].shape))], exact=True)
    else:
        n.node("Expand", [x, n.ints(2, *n.values[x].shape)], exact=True)


@template
def pad(n: Network) -> None:
    x = n.floats(low=1)
    if x is None:
        return
    mode = n.pick("constant", "constant", "edge", "reflect", "wrap")
    low = -1 if mode == "constant" else 0
    widths = [[n.integer(low if d > 2 else 0, min(2, d - 1)) for d in n.values[x].shape] for _ in range(2)]
    n.node(
        "Pad",
        [x, n.ints(*widths[0], *widths[1]), *([n.constant(0.7)] if mode == "constant" else [])],
        exact=True,
        mode=mode,
    )


@template
def blocks(n: Network) -> None:
    x = n.floats(4, 4)
    if x:
        _, c, h, w = n.values[x].shape
        if h % 2 == 0 and w % 2 == 0:
            n.node("SpaceToDepth", [x], exact=True, blocksize=2)
        elif c % 4 == 0:
            n.node("DepthToSpace", [x], exact=True, blocksize=2, mode=n.pick("DCR", "CRD"))


@template
def triangle(n: Network) -> None:
    x = n.floats(low=2)
    if x:
        n.node("Trilu", [x, n.constant(n.integer(-2, 2), np.int64)], exact=True, upper=n.pick(0, 1))


@template
def cumulative(n: Network) -> None:
    x = n.floats(low=1)
    if x:
        axis = n.constant(n.integer(0, n.values[x].ndim - 1), np.int64)
        n.node("CumSum", [x, axis], exclusive=n.pick(0, 1), reverse=n.pick(0, 1))
