"""Hypothesis strategies for single layers, one per engine function: float layers with random, often extreme weights and activations.

`CASES[name]` draws a `Case`, which `ladder_layers` quantises and runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from ladder_layers import FEEDS, HARDWARE, MODES, Case

from npuforge.compile.ir.graph import Activation, Graph, Node, Partition, TensorInfo
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.steps.partition import failed
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.ops.resize.op import COORDINATE_MODES

CHANNELS = st.integers(1, 70)
SIZES = st.integers(1, 21)
ACTIVATIONS = ("none", "Relu", "Clip", "LeakyRelu", "PRelu", "Silu", "Sigmoid", "Tanh", "Gelu", "CustomGELU", "Mish",
               "HardSwish", "HardSigmoid", "ClipSigmoid")  # fmt: skip
Pair = tuple[int, int]


class Builder:
    """Adds canonical nodes; tensors are called after their node."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.graph = Graph("layer", [], {}, {}, [], [], 13)

    def input(self, name: str, channels: int, height: int, width: int) -> str:
        self.graph.tensors[name] = TensorInfo(name, (1, channels, height, width))
        self.graph.inputs.append(name)
        return name

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.graph.tensors[tensor].shape

    def constant(self, name: str, value: np.ndarray) -> str:
        self.graph.constants[name] = value.astype(np.float32)
        self.graph.tensors[name] = TensorInfo(name, value.shape)
        return name

    def add(self, op: str, name: str, inputs: list[str], activation: Activation | None = None, **attrs: Any) -> str:
        node = Node(name, op, inputs, [name], attrs, activation or Activation(), [name], "NPU")
        shapes = [self.shape(t) for t in inputs]
        shape = tuple(int(s) for s in operator.get(node).infer(node, shapes)[0])
        assume(all(size >= 1 for size in shape) and np.prod(shape) < 60000)
        self.graph.tensors[name] = TensorInfo(name, shape)
        assert failed(node, self.graph) == "", "the drawn layer would not be placed on the NPU"
        self.graph.nodes.append(node)
        return name

    def normal(self, *shape: int, axis: int = 0) -> np.ndarray:
        """Normal values whose size along `axis` varies: alike, over six decades, with whole channels of zeros, or one giant."""
        values = self.random.normal(size=shape)
        kind = self.draw(st.sampled_from(["alike", "decades", "zeros", "giant"]))
        count = shape[axis]
        scale = np.ones(count)
        if kind == "decades":
            scale = 10.0 ** self.random.uniform(-3, 3, count)
        elif kind == "zeros":
            scale = self.random.integers(0, 2, count).astype(float)
        elif kind == "giant":
            scale[self.random.integers(count)] = 1e4
        return values * scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])

    def activation(self, channels: int) -> Activation:
        kind = self.draw(st.sampled_from(ACTIVATIONS))
        result = Activation(kind)
        if kind == "LeakyRelu":
            result.alpha = self.draw(st.sampled_from([0.1, 0.01, 0.3, -0.5, 1.7]))
        elif kind == "Clip":
            result.low, result.high = self.draw(st.sampled_from([(0.0, 6.0), (-1.0, 1.0), (-0.5, float("inf"))]))
        elif kind == "PRelu":
            result.slope = self.random.uniform(-1, 2, channels)
        elif kind == "HardSigmoid":
            result.alpha, result.beta = self.draw(st.sampled_from([(1 / 6, 0.5), (0.2, 0.5)]))
        return result

    def conv(self, name: str, x: str, outputs: int, window: dict[str, Any], group: int = 1, **extra: Any) -> str:
        """Conv, or ConvTranspose with `output_padding` in `extra`."""
        channels = self.shape(x)[1]
        op = "ConvTranspose" if extra else "Conv"
        shape = (channels, outputs // group) if extra else (outputs, channels // group)
        self.constant(f"{name}.w", self.normal(*shape, *window["kernel_shape"], axis=0))
        self.constant(f"{name}.b", self.normal(outputs) * self.draw(st.sampled_from([0.0, 1.0, 100.0])))
        inputs = [x, f"{name}.w", f"{name}.b"]
        return self.add(op, name, inputs, self.activation(outputs), group=group, **window, **extra)

    def lead(self, channels: int, height: int, width: int) -> str:
        """A map with these channels: the network's input, or what a 1x1 convolution made of it and left on chip."""
        if self.draw(st.booleans()):
            return self.input("input", channels, height, width)
        self.input("input", self.draw(st.integers(1, 20)), height, width)
        return self.conv("lead", "input", channels, WHOLE)

    def finish(self, output: str, preprocess: Preprocess | None = None) -> Case:
        graph = self.graph
        graph.outputs = [output]
        graph.partitions = [Partition("NPU", [n.name for n in graph.nodes], list(graph.inputs), [output])]
        lines = [
            f"{n.op} {n.name}({', '.join(f'{t}{list(self.shape(t))}' for t in n.inputs)}) {n.attrs} {n.activation.kind}"
            for n in graph.nodes
        ]
        mode, arch, feed = (self.draw(st.sampled_from(choices)) for choices in (MODES, HARDWARE, FEEDS))
        return Case(graph, self.random, mode, arch, feed, preprocess, description=lines)


WHOLE: dict[str, Any] = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1]}


def _window(
    draw: Any, size: Pair, most: int = 5, dilated: bool = True, pads_below_kernel: bool = False
) -> dict[str, Any]:
    """A window that fits at least once into a map of `size`."""
    kernel = [draw(st.integers(1, most)), draw(st.integers(1, most))]
    dilations = [draw(st.integers(1, 3)), draw(st.integers(1, 3))] if dilated else [1, 1]
    strides = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    most_pad = [k - 1 for k in kernel] if pads_below_kernel else reach
    pads = [draw(st.integers(0, most_pad[i % 2])) for i in range(4)]
    assume(all(size[i] + pads[i] + pads[i + 2] > reach[i] for i in (0, 1)))
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}


@st.composite
def dense(draw: Any) -> Case:
    b = Builder(draw)
    h, w = draw(SIZES), draw(SIZES)
    return b.finish(b.conv("y", b.lead(draw(CHANNELS), h, w), draw(CHANNELS), _window(draw, (h, w))))


@st.composite
def grouped(draw: Any) -> Case:
    b = Builder(draw)
    h, w, group = draw(SIZES), draw(SIZES), draw(st.integers(2, 7))
    per_in, per_out = draw(st.integers(1, 70 // group)), draw(st.integers(1, 70 // group))
    assume((per_in, per_out) != (1, 1))  # that is depthwise
    return b.finish(b.conv("y", b.lead(group * per_in, h, w), group * per_out, _window(draw, (h, w), 4), group))


@st.composite
def transposed(draw: Any) -> Case:
    b = Builder(draw)
    h, w, group = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 3))
    channels, outputs = group * draw(st.integers(1, 70 // group)), group * draw(st.integers(1, 70 // group))
    kernel, strides = [draw(st.integers(1, 4)) for _ in "hw"], [draw(st.integers(1, 3)) for _ in "hw"]
    dilations = [draw(st.integers(1, 2)) for _ in "hw"]
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, reach[i % 2])) for i in range(4)]
    extra = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations, strict=True)]
    out = [(n - 1) * strides[i] + reach[i] + 1 + extra[i] - pads[i] - pads[i + 2] for i, n in enumerate((h, w))]
    assume(min(out) >= 1)
    window = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    x = b.lead(channels, h, w)
    return b.finish(b.conv("y", x, outputs, window, group, output_padding=extra))


@st.composite
def depthwise(draw: Any) -> Case:
    b = Builder(draw)
    h, w, channels = draw(SIZES), draw(SIZES), draw(CHANNELS)
    return b.finish(b.conv("y", b.lead(channels, h, w), channels, _window(draw, (h, w)), channels))


@st.composite
def max_pool(draw: Any) -> Case:
    b = Builder(draw)
    h, w = draw(SIZES), draw(SIZES)
    window = _window(draw, (h, w), 7, pads_below_kernel=True)
    for i, size in enumerate((h, w)):  # every window holds a pixel
        taps = [t * window["dilations"][i] - window["pads"][i] for t in range(window["kernel_shape"][i])]
        out = (size + window["pads"][i] + window["pads"][i + 2] - taps[-1] + taps[0] - 1) // window["strides"][i] + 1
        starts = [window["strides"][i] * o for o in range(out)]
        assume(all(any(0 <= start + tap < size for tap in taps) for start in starts))
    x = b.lead(draw(CHANNELS), h, w)
    return b.finish(b.add("MaxPool", "y", [x], None, **window, ceil_pads=[0, 0, 0, 0]))


@st.composite
def average_pool(draw: Any) -> Case:
    b = Builder(draw)
    h, w = draw(SIZES), draw(SIZES)
    x = b.lead(draw(CHANNELS), h, w)
    if draw(st.booleans()) and draw(st.booleans()):
        window: dict[str, Any] = WHOLE | {"kernel_shape": [h, w]}
    else:
        window = _window(draw, (h, w), 7, dilated=False)
    del window["dilations"]
    attrs = window | {"ceil_pads": [0, 0, 0, 0], "count_include_pad": draw(st.integers(0, 1))}
    probe = Node("y", "AveragePool", [x], ["y"], attrs)
    assume(operator.get(probe).failed_constraint(probe, _with_output(b, probe)) is None)
    return b.finish(b.add("AveragePool", "y", [x], **attrs))


def _with_output(b: Builder, node: Node) -> Graph:
    shape = tuple(int(s) for s in operator.get(node).infer(node, [b.shape(t) for t in node.inputs])[0])
    assume(all(s >= 1 for s in shape))
    tensors = b.graph.tensors | {t: TensorInfo(t, shape) for t in node.outputs}
    return Graph("probe", [node], tensors, b.graph.constants, b.graph.inputs, [])


@st.composite
def element_wise(draw: Any) -> Case:
    b = Builder(draw)
    h, w, channels = draw(SIZES), draw(SIZES), draw(CHANNELS)
    one_channel, one_row, one_column = (draw(st.sampled_from([False, False, True])) for _ in range(3))
    other = (1 if one_channel else channels, 1 if one_row else h, 1 if one_column else w)
    a = b.lead(channels, h, w)
    second = a if draw(st.integers(0, 9)) == 0 and other == (channels, h, w) else b.input("other", *other)
    op = draw(st.sampled_from(["Add", "Sub", "Mul"]))
    return b.finish(b.add(op, "y", [a, second], b.activation(channels)))


@st.composite
def affine(draw: Any) -> Case:
    b = Builder(draw)
    channels = draw(CHANNELS)
    x = b.lead(channels, draw(SIZES), draw(SIZES))
    scale, bias = np.ones(channels), np.zeros(channels)
    if draw(st.booleans()):
        scale, bias = b.normal(channels), b.normal(channels)
    return b.finish(b.add("Affine", "y", [x], b.activation(channels), scale=scale.tolist(), bias=bias.tolist()))


@st.composite
def resize(draw: Any) -> Case:
    b = Builder(draw)
    h, w = draw(SIZES), draw(SIZES)
    x = b.lead(draw(CHANNELS), h, w)
    sizes = [draw(st.integers(1, 30)), draw(st.integers(1, 30))]
    coordinates = COORDINATE_MODES
    attrs = {
        "mode": draw(st.sampled_from(["nearest", "linear"])),
        "coordinate_transformation_mode": draw(st.sampled_from(coordinates)),
        "nearest_mode": draw(st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])),
    }
    return b.finish(b.add("Resize", "y", [x], sizes=sizes, scales=[sizes[0] / h, sizes[1] / w], **attrs))


def _gather(b: Builder, x: str, name: str) -> str:
    """A slice, a shuffle, a pick in any order, or one with repeats and zeros."""
    channels = b.shape(x)[1]
    kind = b.draw(st.sampled_from(["slice", "shuffle", "pick", "any"]))
    if kind == "slice":
        start = b.draw(st.integers(0, channels - 1))
        indices = list(range(start, b.draw(st.integers(start + 1, channels))))
    elif kind == "shuffle":
        groups = b.draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
        indices = np.arange(channels).reshape(groups, -1).T.ravel().tolist()
    elif kind == "pick":
        indices = b.random.permutation(channels)[: b.draw(st.integers(1, channels))].tolist()
    else:
        indices = b.random.integers(-1, channels, b.draw(st.integers(1, 70))).tolist()
    return b.add("ChannelGather", name, [x], indices=indices)


@st.composite
def moves(draw: Any) -> Case:
    """Concat, channel slice and shuffle, space-to-depth, one behind the other, read by a layer of some engine or leaving as they are."""
    b = Builder(draw)
    h, w = 2 * draw(st.integers(1, 7)), 2 * draw(st.integers(1, 7))
    x = b.lead(draw(CHANNELS), h, w)
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["gather", "concat", "space"]))
        if kind == "gather":
            x = _gather(b, x, f"gather{number}")
        elif kind == "space" and b.shape(x)[1] <= 17 and not (b.shape(x)[2] % 2 or b.shape(x)[3] % 2):
            x = b.add("SpaceToDepth", f"space{number}", [x], blocksize=2)
        else:
            parts = [x, b.conv(f"side{number}", x, draw(st.integers(1, 30)), WHOLE)]
            parts += [x] if draw(st.integers(0, 3)) == 0 else []
            x = b.add("Concat", f"concat{number}", draw(st.permutations(parts)), axis=1)
    assume(b.shape(x)[1] <= 140)
    reader = draw(st.sampled_from(["none", "conv", "depthwise", "add", "pool"]))
    channels = b.shape(x)[1]
    near = WHOLE | {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    if reader == "conv":
        x = b.conv("y", x, draw(st.integers(1, 40)), near)
    elif reader == "depthwise":
        x = b.conv("y", x, channels, near, channels)
    elif reader == "add":
        x = b.add("Add", "y", [x, b.conv("twin", x, channels, WHOLE)], b.activation(channels))
    elif reader == "pool":
        x = b.add("MaxPool", "y", [x], None, **near, ceil_pads=[0, 0, 0, 0])
    return b.finish(x)


@st.composite
def image(draw: Any) -> Case:
    """The first layer on three channels of raw pixels (pow2: of preprocessed values), at times behind a Focus."""
    b = Builder(draw)
    h, w = draw(st.integers(8, 40)), draw(st.integers(8, 40))
    if focus := draw(st.integers(0, 3)) == 0:
        h, w = h // 2 * 2, w // 2 * 2
    x = b.input("input", 3, h, w)
    if focus:
        x = b.add("SpaceToDepth", "focus", [x], blocksize=2)
        if draw(st.booleans()):
            x = b.add("ChannelGather", "order", [x], indices=b.random.permutation(12).tolist())
    window = _window(draw, (b.shape(x)[2], b.shape(x)[3]), 7)
    y = b.conv("y", x, draw(CHANNELS), window)
    mean = [draw(st.sampled_from([0.0, 103.53, 127.5, 255.0, 123.675])) for _ in range(3)]
    std = [draw(st.sampled_from([1.0, 57.375, 255.0, 0.5])) for _ in range(3)]
    return b.finish(y, Preprocess(w, h, mean=mean, std=std))


CASES: dict[str, Callable[[], st.SearchStrategy[Case]]] = {
    "convolution": dense,
    "grouped convolution": grouped,
    "transposed convolution": transposed,
    "depthwise": depthwise,
    "max pooling": max_pool,
    "average pooling": average_pool,
    "element-wise": element_wise,
    "affine and activations": affine,
    "resize": resize,
    "concat, slice, shuffle, space-to-depth": moves,
    "image input": image,
}
