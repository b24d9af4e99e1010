"""Constructions of the random networks, second part: reductions and layers (see templates.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
from random_graphs import Network
from templates import TEMPLATES, template

__all__ = ["TEMPLATES"]


# ---- reductions
@template
def reduce(n: Network) -> None:
    x = n.floats(low=1)
    if x:
        axes = [int(a) for a in np.flatnonzero(n.random.integers(0, 2, n.values[x].ndim))]
        op = n.pick("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
        n.node(op, [x, *([n.ints(*axes)] if axes else [])], keepdims=n.pick(0, 1))


@template
def reduce_exactly(n: Network) -> None:
    x = n.floats(low=1)
    if x:
        n.node(
            n.pick("ReduceMax", "ReduceMin"),
            [x, n.ints(n.integer(-n.values[x].ndim, -1))],
            exact=True,
            keepdims=n.pick(0, 1),
        )


@template
def positions(n: Network) -> None:
    x = n.floats(low=1, exact=True)
    if x is None:
        return
    axis = n.integer(0, n.values[x].ndim - 1)
    op = n.pick("ArgMax", "ArgMin", "TopK", "Hardmax")
    if op == "TopK":
        k = n.integer(1, n.values[x].shape[axis])
        n.node("TopK", [x, n.ints(k)], 2, exact=True, axis=axis, largest=n.pick(0, 1))
    elif op == "Hardmax":
        n.node("Hardmax", [x], exact=True, axis=axis)
    else:
        n.node(op, [x], exact=True, axis=axis, keepdims=n.pick(0, 1), select_last_index=n.pick(0, 1))


@template
def one_hot(n: Network) -> None:
    x = n.tensor(lambda v: v.dtype == np.int64 and 0 < v.ndim < 4, exact=True)
    if x:
        n.node("OneHot", [x, n.constant(4, np.int64), n.constant([0.0, 1.5])], exact=True, axis=n.pick(-1, 0))


@template
def non_zero(n: Network) -> None:
    x = n.floats(low=1, exact=True)
    if x and (rectified := n.node("Relu", [x], exact=True)):
        found = n.node("NonZero", [rectified], exact=True)
        if found:
            n.values.pop(found)  # its shape depends on the data: an output, nothing is built on it


# ---- layers
@template
def softmax(n: Network) -> None:
    x = n.floats(low=1)
    if x:
        n.node(n.pick("Softmax", "LogSoftmax"), [x], axis=n.integer(-n.values[x].ndim, n.values[x].ndim - 1))


@template
def normalise(n: Network) -> None:
    x = n.floats(low=3)
    if x is None:
        return
    shape = n.values[x].shape
    c = shape[1]
    op = n.pick(
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "GroupNormalization",
        "LpNormalization",
        "LRN",
    )
    if op == "BatchNormalization":
        n.node(op, [x, *(n.normal(c) for _ in range(3)), n.constant(n.random.uniform(0.3, 2, c))])
    elif op == "LayerNormalization":
        axis = n.integer(1, len(shape) - 1)
        if np.prod(shape[axis:]) > 3:
            n.node(op, [x, n.normal(*shape[axis:]), n.normal(*shape[axis:])], axis=axis, epsilon=0.1)
    elif op == "LpNormalization":
        shifted = n.node("Exp", [x])
        n.node(op, [shifted], axis=n.integer(0, len(shape) - 1), p=n.pick(1, 2)) if shifted else None
    elif op == "LRN":
        n.node(op, [x], size=n.pick(1, 3, 5), alpha=0.1) if len(shape) == 4 else None
    elif np.prod(shape[2:]) > 3:
        groups = {"num_groups": n.pick(*(g for g in (1, 2, 3) if c % g == 0))} if op == "GroupNormalization" else {}
        n.node(op, [x, n.normal(c), n.normal(c)], epsilon=0.1, **groups)


@template
def matmul(n: Network) -> None:
    x = n.floats(low=1, high=4)
    if x:
        k = n.values[x].shape[-1]
        n.node("MatMul", [x, n.normal(k, n.integer(1, 5))])


@template
def matmul_of_two(n: Network) -> None:
    x = n.floats(low=2, high=4)
    if x:
        perm = [*range(n.values[x].ndim - 2), n.values[x].ndim - 1, n.values[x].ndim - 2]
        turned = n.node("Transpose", [x], exact=True, perm=perm)
        n.node("MatMul", [x, turned]) if turned else None


@template
def gemm(n: Network) -> None:
    x = n.floats(2, 2)
    if x:
        m, k = n.values[x].shape
        a, b, out = n.pick(0, 1), n.pick(0, 1), n.integer(1, 5)
        rows, inner = (k, m) if a else (m, k)
        weight = n.normal(out, inner) if b else n.normal(inner, out)
        bias = n.pick([], [n.normal(out)], [n.normal(rows, 1)], [n.normal()])
        n.node("Gemm", [x, weight, *bias], transA=a, transB=b, alpha=0.7, beta=0.5)


@template
def einsum(n: Network) -> None:
    x = n.floats(3, 3)
    if x:
        n.node("Einsum", [x, n.normal(n.values[x].shape[2], 3)], equation=n.pick("bij,jk->bik", "bij,jk->kb"))


def _window(n: Network, spatial: tuple[int, ...], kernel: list[int]) -> dict[str, Any] | None:
    """Strides, dilations and pads under which the windows fit."""
    dilations = [n.pick(1, 1, 2) for _ in spatial]
    pads = [n.integer(0, max(0, k - 1)) for k in kernel * 2]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(s + pads[i] + pads[i + len(kernel)] < r for i, (s, r) in enumerate(zip(spatial, reach, strict=True))):
        return None
    return {"strides": [n.pick(1, 1, 2) for _ in spatial], "dilations": dilations, "pads": pads}


@template
def convolution(n: Network) -> None:
    x = n.floats(3, 5)
    if x is None:
        return
    _, c, *spatial = n.values[x].shape
    kernel = [n.pick(1, 2, 3) for _ in spatial]
    window = _window(n, tuple(spatial), kernel)
    group = n.pick(1, c) if n.pick(0, 1) else 1
    out = group * n.integer(1, 4)
    if window:
        bias = n.pick([], [n.normal(out)])
        n.node("Conv", [x, n.normal(out, c // group, *kernel), *bias], group=group, kernel_shape=kernel, **window)


@template
def transposed_convolution(n: Network) -> None:
    x = n.floats(3, 5)
    if x is None:
        return
    _, c, *spatial = n.values[x].shape
    kernel, strides = [n.pick(2, 3) for _ in spatial], [n.pick(1, 2) for _ in spatial]
    group = n.pick(1, c)
    attrs = {"strides": strides, "group": group, "pads": [n.integer(0, 1) for _ in kernel * 2]}
    n.node("ConvTranspose", [x, n.normal(c, n.integer(1, 2), *kernel)], kernel_shape=kernel, **attrs)


@template
def pool(n: Network) -> None:
    x = n.floats(3, 5)
    if x is None:
        return
    spatial = n.values[x].shape[2:]
    op = n.pick("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
    exact = op in ("MaxPool", "GlobalMaxPool")
    if op.startswith("Global"):
        n.node(op, [x], exact=exact)
        return
    kernel = [n.pick(1, 2, 3) for _ in spatial]
    window = _window(n, spatial, kernel)
    if window is None or any(p >= k for p, k in zip(window["pads"], kernel * 2, strict=True)):
        return
    window["pads"] = [min(p, (k - 1) // 2) for p, k in zip(window["pads"], kernel * 2, strict=True)]
    if any(
        s + window["pads"][i] + window["pads"][i + len(kernel)] < (k - 1) * d + 1
        for i, (s, k, d) in enumerate(zip(spatial, kernel, window["dilations"], strict=True))
    ):
        return
    if op == "AveragePool":
        window["count_include_pad"] = n.pick(0, 1)
    if op != "LpPool":
        window["ceil_mode"] = n.pick(0, 0, 1)
    if op == "AveragePool" and window["ceil_mode"]:
        window["dilations"] = [1] * len(kernel)
        window["count_include_pad"] = 0
    n.node(op, [x], exact=exact, kernel_shape=kernel, **window)


@template
def resize(n: Network) -> None:
    x = n.floats(4, 4)
    if x is None:
        return
    shape = n.values[x].shape
    mode = n.pick("nearest", "linear", "cubic")
    coordinates = n.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    scales = n.constant([1, 1, *n.pick((2, 2), (2, 1), (1.5, 2), (0.5, 0.5), (3, 2))])
    if mode == "nearest":
        n.node(
            "Resize",
            [x, "", scales],
            exact=True,
            mode=mode,
            coordinate_transformation_mode=coordinates,
            nearest_mode=n.pick("floor", "round_prefer_floor"),
        )
    elif n.pick(0, 1) or mode == "cubic":
        n.node("Resize", [x, "", scales], mode=mode, coordinate_transformation_mode=coordinates)
    else:
        sizes = n.ints(*shape[:2], n.integer(1, 8), n.integer(1, 8))
        n.node("Resize", [x, "", "", sizes], mode=mode, coordinate_transformation_mode=coordinates)


@template
def grid_sample(n: Network) -> None:
    x = n.floats(4, 4, exact=True)
    if x:
        grid = n.constant(n.random.uniform(-1.3, 1.3, (n.values[x].shape[0], 3, 2, 2)))
        mode = n.pick("linear", "linear", "cubic")
        n.node(
            "GridSample",
            [x, grid],
            mode=mode,
            padding_mode=n.pick("zeros", "border", "reflection"),
            align_corners=n.pick(0, 1),
        )


@template
def roi_align(n: Network) -> None:
    x = n.floats(4, 4)
    if x:
        images, _, h, w = n.values[x].shape
        corners = n.random.uniform(0, 1, (2, 4)) * [w, h, w, h]
        boxes = np.concatenate(
            [np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:]) + 1], 1
        )
        batch = n.constant(n.random.integers(0, images, 2), np.int64)
        n.node("RoiAlign", [x, n.constant(boxes), batch], output_height=2, output_width=2, sampling_ratio=n.pick(1, 2))


@template
def prelu(n: Network) -> None:
    x = n.floats(low=2)
    if x:
        n.node("PRelu", [x, n.normal(n.values[x].shape[1], *[1] * (n.values[x].ndim - 2))])


@template
def silu(n: Network) -> None:
    x = n.floats()
    if x and (gate := n.node("Sigmoid", [x])):
        n.node("Mul", [x, gate])


@template
def quantise(n: Network) -> None:
    """Not followed by DequantizeLinear: the importer takes the pair for a quantised model and removes it."""
    if x := n.floats(low=1, exact=True):
        scale, zero = n.constant(0.037), n.constant(n.integer(-9, 9), np.int8)
        if q := n.node("QuantizeLinear", [x, scale, zero], exact=True):
            n.values.pop(q)


@template
def shape_chain(n: Network) -> None:
    x = n.floats(low=1)
    if x is None:
        return
    shape = n.node("Shape", [x], exact=True)
    count = shape and n.node("Gather", [shape, n.constant(0, np.int64)], exact=True)
    if shape and count:
        n.node("Reshape", [x, shape], exact=True)
    if shape:
        n.values.pop(shape)
