"""Random networks of the operators that detection networks are made of: import, fold, fuse, partition, verified after each step, equal to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuforge.compile.steps import token_maps

Shape = tuple[int, ...]
UNARY = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "HardSigmoid", "Abs", "Elu", "Identity")


class Network:
    """Grows a network node by node; every method adds one construction behind a tensor `x`."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.input = (1, self.pick(3, 4, 6, 8), self.pick(8, 9, 12), self.pick(8, 10))
        self.shapes: dict[str, Shape] = {"x": self.input}
        self.maps = ["x"]
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: list[tuple[Any, ...]] = []

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def constant(self, value: Any, dtype: type | None = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def normal(self, *shape: int) -> str:
        return self.constant(self.random.normal(0, 0.4, shape), np.float32)

    def node(self, op: str, inputs: list[str], *shapes: Shape, inner: bool = False, **attrs: Any) -> str:
        outputs = [f"t{len(self.shapes) + i}" for i in range(len(shapes))]
        self.shapes.update(zip(outputs, shapes, strict=True))
        self.nodes.append((op, inputs, outputs, attrs, f"n{len(self.nodes)}"))
        self.maps += [] if inner else outputs
        return outputs[0]

    # ---- constructions
    def conv(self, x: str, c: int, h: int, w: int) -> None:
        k, out, stride = self.pick(1, 3), self.pick(2, 4, 6, 8), self.pick(1, 1, 2)
        pad, group = self.pick(0, k // 2), 2 if c % 2 == 0 and self.pick(0, 0, 1) else 1
        bias = [self.normal(out)] if self.pick(0, 1) else []
        if min(h, w) + 2 * pad < k:
            return
        size = [(d + 2 * pad - k) // stride + 1 for d in (h, w)]
        window = {"kernel_shape": [k, k], "pads": [pad] * 4, "strides": [stride] * 2, "group": group}
        self.node("Conv", [x, self.normal(out, c // group, k, k), *bias], (1, out, *size), **window)

    def up(self, x: str, c: int, h: int, w: int) -> None:
        window = {"kernel_shape": [2, 2], "strides": [2, 2]}
        self.node("ConvTranspose", [x, self.normal(c, 4, 2, 2)], (1, 4, 2 * h, 2 * w), **window)

    def batch_norm(self, x: str, c: int, h: int, w: int) -> None:
        variance = self.constant(np.abs(self.random.normal(0, 1, c)) + 0.2, np.float32)
        self.node("BatchNormalization", [x, *(self.normal(c) for _ in range(3)), variance], (1, c, h, w))

    def unary(self, x: str, *shape: int) -> None:
        self.node(self.pick(*UNARY), [x], (1, *shape))

    def silu(self, x: str, *shape: int) -> None:
        self.node("Mul", [x, self.node("Sigmoid", [x], (1, *shape), inner=True)], (1, *shape))

    def constant_operand(self, x: str, c: int, h: int, w: int) -> None:
        operands = [x, self.pick(self.normal(c, 1, 1), self.normal())]
        self.node(self.pick("Add", "Mul", "Sub"), self.pick(operands, operands[::-1]), (1, c, h, w))

    def two_operands(self, x: str, *shape: int) -> None:
        like = [t for t in self.maps if self.shapes[t] == (1, *shape)]
        self.node(self.pick("Add", "Mul", "Sub"), [x, self.pick(*like)], (1, *shape))

    def concat(self, x: str, c: int, h: int, w: int) -> None:
        other = self.pick(*(t for t in self.maps if self.shapes[t][2:] == (h, w)))
        zeros = [self.constant(np.zeros((1, 2, h, w)), np.float32)] if self.pick(0, 1) else []
        channels = c + self.shapes[other][1] + 2 * len(zeros)
        if channels < 40:
            self.node("Concat", [x, other, *zeros], (1, channels, h, w), axis=1)

    def shuffle(self, x: str, c: int, h: int, w: int) -> None:
        if c % 2:
            return
        apart = self.node("Reshape", [x, self.constant([1, 2, c // 2, h, w])], (1, 2, c // 2, h, w), inner=True)
        turned = self.node("Transpose", [apart], (1, c // 2, 2, h, w), inner=True, perm=[0, 2, 1, 3, 4])
        self.node("Reshape", [turned, self.constant([1, c, h, w])], (1, c, h, w))

    def split(self, x: str, c: int, h: int, w: int) -> None:
        if c > 1:
            first = int(self.random.integers(1, c))
            self.node("Split", [x, self.constant([first, c - first])], (1, first, h, w), (1, c - first, h, w), axis=1)

    def slice(self, x: str, c: int, h: int, w: int) -> None:
        start = int(self.random.integers(0, c))
        self.node("Slice", [x, *(self.constant([v]) for v in (start, c, 1))], (1, c - start, h, w))

    def gather(self, x: str, c: int, h: int, w: int) -> None:
        indices = self.random.integers(0, c, int(self.random.integers(1, 8)))
        self.node("Gather", [x, self.constant(indices)], (1, len(indices), h, w), axis=1)

    def pool(self, x: str, c: int, h: int, w: int) -> None:
        stride, pad, op = self.pick(1, 2), self.pick(0, 1), self.pick("MaxPool", "AveragePool")
        if min(h, w) < 3:
            return
        count = {"count_include_pad": self.pick(0, 1)} if op == "AveragePool" else {}
        size = [(d + 2 * pad - 3) // stride + 1 for d in (h, w)]
        self.node(op, [x], (1, c, *size), kernel_shape=[3, 3], strides=[stride] * 2, pads=[pad] * 4, **count)

    def resize(self, x: str, c: int, h: int, w: int) -> None:
        mode = self.pick(("nearest", "asymmetric"), ("linear", "half_pixel"))
        attrs = {"mode": mode[0], "coordinate_transformation_mode": mode[1], "nearest_mode": "floor"}
        self.node("Resize", [x, "", self.constant([1, 1, 2, 2], np.float32)], (1, c, 2 * h, 2 * w), **attrs)

    def pad(self, x: str, c: int, h: int, w: int) -> None:
        top, left, bottom, right = (int(p) for p in self.random.integers(0, 2, 4))
        pads = self.constant([0, 0, top, left, 0, 0, bottom, right])
        self.node("Pad", [x, pads], (1, c, h + top + bottom, w + left + right))

    def focus(self, x: str, c: int, h: int, w: int) -> None:
        if h % 2 or w % 2 or c > 8:
            return
        parts = []
        for start in ([0, 0], [1, 0], [0, 1], [1, 1]):
            ends = [self.constant(v) for v in (start, [9999, 9999], [2, 3], [2, 2])]
            parts.append(self.node("Slice", [x, *ends], (1, c, h // 2, w // 2), inner=True))
        self.node("Concat", parts, (1, 4 * c, h // 2, w // 2), axis=1)

    def squeeze_excite(self, x: str, c: int, h: int, w: int) -> None:
        gate = self.node("GlobalAveragePool", [x], (1, c, 1, 1), inner=True)
        gate = self.node("Conv", [gate, self.normal(c, c, 1, 1)], (1, c, 1, 1), inner=True)
        gate = self.node("Sigmoid", [gate], (1, c, 1, 1), inner=True)
        self.node("Mul", self.pick([x, gate], [gate, x]), (1, c, h, w))

    def channels_last(self, x: str, c: int, h: int, w: int) -> None:
        last = self.node("Transpose", [x], (1, h, w, c), inner=True, perm=[0, 2, 3, 1])
        last = self.node("Relu", [last], (1, h, w, c), inner=True)
        self.node("Transpose", [last], (1, c, h, w), perm=[0, 3, 1, 2])

    def dense(self, x: str, c: int, h: int, w: int) -> None:
        """A product with constants over the channels: of an N, H, W, C map, windows, rows, or from the left."""
        out, op = self.pick(2, 4, 6), self.pick("Add", "Mul")
        if self.pick(0, 0, 1):
            flat = self.node("Reshape", [x, self.constant([1, c, h * w])], (1, c, h * w), inner=True)
            row = self.node("MatMul", [self.normal(out, c), flat], (1, out, h * w), inner=True)
            row = self.node(op, [row, self.normal(out, 1)], (1, out, h * w), inner=True)
            self.node("Reshape", [row, self.constant([1, out, h, w])], (1, out, h, w))
            return
        if h % 2 == 0 and w % 2 == 0 and self.pick(0, 0, 1):
            apart, windows = (1, c, h // 2, 2, w // 2, 2), (h * w // 4, 4, c)
            last = self.node("Reshape", [x, self.constant(apart)], apart, inner=True)
            turned = (1, h // 2, w // 2, 2, 2, c)
            last = self.node("Transpose", [last], turned, inner=True, perm=[0, 2, 4, 3, 5, 1])
            last = self.node("Reshape", [last, self.constant(windows)], windows, inner=True)
            last = self.node("MatMul", [last, self.normal(c, out)], (*windows[:2], out), inner=True)
            last = self.node(op, [last, self.normal(out)], (*windows[:2], out), inner=True)
            turned = (*turned[:5], out)
            last = self.node("Reshape", [last, self.constant(turned)], turned, inner=True)
            apart = (1, out, h // 2, 2, w // 2, 2)
            last = self.node("Transpose", [last], apart, inner=True, perm=[0, 5, 1, 3, 2, 4])
            self.node("Reshape", [last, self.constant([1, out, h, w])], (1, out, h, w))
            return
        tokens = self.pick((1, h, w), (h, w), (1, h * w), (h * w,))
        last = self.node("Transpose", [x], (1, h, w, c), inner=True, perm=[0, 2, 3, 1])
        last = self.node("Reshape", [last, self.constant([*tokens, c])], (*tokens, c), inner=True)
        last = self.node("MatMul", [last, self.normal(c, out)], (*tokens, out), inner=True)
        last = self.node(op, [last, self.normal(out)], (*tokens, out), inner=True)
        last = self.node(self.pick(*UNARY), [last], (*tokens, out), inner=True)
        last = self.node("Reshape", [last, self.constant([1, h, w, out])], (1, h, w, out), inner=True)
        self.node("Transpose", [last], (1, out, h, w), perm=[0, 3, 1, 2])


CONSTRUCTIONS = [v for k, v in vars(Network).items() if k not in ("pick", "constant", "normal", "node") and k[0] != "_"]


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_networks(
    build: Callable[..., Any], same: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    for seed in range(first, first + 10):
        # products of small networks become convolutions where the CPU is slow enough
        monkeypatch.setattr(token_maps, "CPU_MACS_PER_SECOND", 1e5 if seed % 2 else 1e9)
        network = Network(seed)
        for _ in range(int(network.random.integers(5, 18))):
            x = network.maps[-1] if network.pick(0, 1, 1) else network.pick(*network.maps)
            construction = network.pick(network.__class__.conv, network.__class__.conv, *CONSTRUCTIONS)
            if np.prod(network.shapes[x]) < 20000:
                construction(network, x, *network.shapes[x][1:])
        read = {t for node in network.nodes for t in node[1]}
        outputs = [t for node in network.nodes for t in node[2] if t not in read]
        inner = network.pick(*(t for t in network.maps if t != "x"))
        outputs += [inner] if inner not in outputs and network.pick(0, 0, 1) else []
        constants = {k: v for k, v in network.constants.items() if k in read}
        model = build(network.nodes, shape=network.input, constants=constants, outputs=outputs, opset=14)
        try:
            same(model, 2e-4, place=True)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
