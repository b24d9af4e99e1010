"""Programs of the NPU DSL that the tests run in int8 and bf16, and networks of one node around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from ladder import Quantised
from ladder_bf16 import Ladder

from npuforge.compile.ir.graph import Graph, Node, Partition, TensorInfo
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.dsl import kernel as k
from npuforge.hw_kernels.dsl.kernel import Kernel, kernel
from npuforge.hw_kernels.dsl.kernel_program import KernelOp
from npuforge.quant.bf16 import quantize_bf16
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor
from npuforge.quant.quantize import quantize

NAME = "org.somewhere::Drawn"


@kernel
def custom_gelu(x: Any) -> Any:
    """One text for both precisions: casts are steps to memory in int8 and nothing in bf16."""
    square = k.cast(k.vmul(x, x), x.dtype)
    cube = k.cast(k.vmul(square, x), x.dtype)
    inner = k.vmuls(k.vadd(x, k.vmuls(cube, 0.044715)), 0.7978845608028654)
    gate = k.cast(k.vmuls(k.vtanh(inner), 0.5), x.dtype)
    half = k.cast(k.vadds(gate, 0.5), x.dtype)
    return k.vmul(x, half)


@kernel
def squeeze_gate(x: Any) -> Any:
    mean = k.cast(k.reduce_mean(x), x.dtype)
    return k.vmul(x, k.cast(k.vsigmoid(mean), x.dtype))


@kernel
def softmax_numerator(x: Any) -> Any:
    below = k.cast(k.vsub(x, k.reduce_max(x)), x.dtype, -8.0, 0.0)
    return k.vexp(below)


@kernel
def blurred_difference(x: Any) -> Any:
    blur = k.cast(
        k.depthwise_conv2d(x, [[1 / 16, 2 / 16, 1 / 16], [2 / 16, 4 / 16, 2 / 16], [1 / 16, 2 / 16, 1 / 16]], pad=1),
        x.dtype,
    )
    return k.vabs(k.vsub(x, blur))


@kernel
def pooled_twice(x: Any) -> Any:
    peak = k.pooling2d(x, 3, 1, "MAX", pad=1)
    floor = k.pooling2d(x, (3, 1), 1, "MIN", pad=(1, 0))
    return k.pooling2d(k.cast(k.vsub(peak, floor), x.dtype), 2, 2, "AVG")


@kernel
def larger_smaller(x: Any, y: Any) -> Any:
    return k.vadd(k.vmax(x, y), k.vmuls(k.vmin(x, k.vmuls(y, -2.0)), 0.5))


@kernel
def row_sums(x: Any) -> Any:
    return k.vmul(x, k.cast(k.vlrelu(k.vadds(k.cast(k.reduce_sum(x, 3), x.dtype), 0.25), 0.1), x.dtype))


@kernel
def dilated_windows(x: Any) -> Any:
    """Windows with gaps, and means and sums of the pixels that windows at the border have."""
    peak = k.pooling2d(x, 3, 1, "MAX", pad=2, dilation=2)
    edges = k.cast(
        k.depthwise_conv2d(x, [[0.1, 0.2, -0.1], [0.3, -0.5, 0.25], [0.0, 0.2, 0.1]], pad=(3, 1), dilation=(3, 1)),
        x.dtype,
    )
    mean = k.cast(k.pooling2d(edges, (3, 2), 1, "AVG", pad=(2, 1), dilation=(2, 2)), x.dtype)
    row = k.cast(k.vmuls(k.pooling2d(peak, (1, 3), 1, "SUM", pad=(0, 1)), 0.25), x.dtype)
    return k.vadd(mean, row)


@kernel
def smallest_of_columns(x: Any) -> Any:
    return k.vsub(x, k.reduce_min(x, 2))


@kernel
def pixel_gate(x: Any) -> Any:
    """A gate per pixel from the mean of its channels."""
    mean = k.cast(k.reduce_mean(x, 1), x.dtype)
    return k.vmul(k.cast(k.vsigmoid(k.vadds(k.vmuls(mean, 3.0), 0.5)), x.dtype), x)


@kernel
def spread_over_channels(x: Any, y: Any) -> Any:
    """Sums over channels of what was computed before, and of a scaled view."""
    centred = k.cast(k.vsub(x, k.cast(k.reduce_mean(x, 1), x.dtype)), x.dtype)
    variance = k.cast(k.reduce_mean(k.cast(k.vmul(centred, centred), x.dtype, 0.0, 12.0), (1,)), x.dtype, 0.0, 4.0)
    other = k.cast(k.vrelu(k.vmuls(k.reduce_sum(k.vmuls(y, 0.5), 1), 0.125)), x.dtype)
    return k.vadd(
        k.cast(k.vmul(centred, variance), x.dtype, -10.0, 10.0),
        k.pooling2d(k.cast(k.vadd(y, other), x.dtype), 3, pad=1),
    )


PROGRAMS: dict[str, tuple[Kernel, int]] = {
    p.name: (p, p.inputs)
    for p in (
        custom_gelu,
        squeeze_gate,
        softmax_numerator,
        blurred_difference,
        pooled_twice,
        larger_smaller,
        row_sums,
        pixel_gate,
        spread_over_channels,
        smallest_of_columns,
        dilated_windows,
    )
}


@contextmanager
def registered(program: Kernel) -> Iterator[None]:
    """The program as the operator NAME."""
    namespace = {"__doc__": "y = f(x)", "names": (NAME,), "onnx": (NAME,), "pixel_kernel": program}
    known = dict(operator.registry())
    operator.register(type("Drawn", (KernelOp,), namespace))
    try:
        yield
    finally:
        operator._REGISTERED.clear()
        operator._REGISTERED.update(known)


def one_node(program: Kernel, *shapes: tuple[int, int, int, int]) -> Graph:
    """A network of one node on the NPU; one shape for all inputs, or one for each."""
    inputs = [f"x{i}" for i in range(program.inputs)]
    given = list(shapes) if len(shapes) > 1 else [shapes[0]] * len(inputs)
    node = Node("node", NAME, inputs, ["y"], {}, device="NPU")
    out = operator.get(node).infer(node, given)[0]
    tensors = {t: TensorInfo(t, s, "float32") for t, s in zip(inputs, given, strict=True)}
    tensors["y"] = TensorInfo("y", out, "float32")
    part = Partition("NPU", ["node"], inputs, ["y"])
    return Graph("drawn", [node], tensors, {}, inputs, ["y"], 17, partitions=[part])


def noise(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Inputs with a scale of their own in every channel."""
    random = np.random.default_rng(seed)
    shapes = {t: graph.tensors[t].shape for t in graph.inputs}
    return {
        t: (random.normal(0.1, 1.0, s) * random.uniform(0.3, 1.5, (1, s[1], 1, 1))).astype(np.float32)
        for t, s in shapes.items()
    }


def in_int8(graph: Graph, mode: str) -> Quantised:
    """Quantised by what `noise` gives."""
    feeds = [noise(graph, seed) for seed in (11, 12)]
    statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    return Quantised(quantize(graph, statistics, mode), Preprocess())


def in_bf16(graph: Graph, arch: str) -> Ladder:
    """Rounded to bf16."""
    return Ladder(quantize_bf16(graph), Preprocess(), load(arch))
