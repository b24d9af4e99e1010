"""Small networks in the canonical operators for the quantiser's tests, and their calibration with the float64 reference."""

from collections.abc import Callable

import numpy as np

from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.hw_kernels import operator
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import Arrays, ReferenceExecutor
from npuforge.quant.statistics import Statistics


class Builder:
    """Adds nodes one by one; tensors are named after their node."""

    def __init__(self, shape: tuple[int, int, int, int], seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.graph = Graph("small", [], {"input": TensorInfo("input", shape)}, {}, ["input"], [], 13)

    def add(self, op: str, name: str, inputs: list[str], activation: Activation | None = None, **attrs: object) -> str:
        graph = self.graph
        node = Node(name, op, inputs, [name], dict(attrs), activation or Activation(), [name], "NPU")
        shape = operator.get(node).infer(node, [graph.tensors[t].shape for t in inputs])[0]
        graph.tensors[name] = TensorInfo(name, shape)
        graph.nodes.append(node)
        return name

    def conv(
        self,
        name: str,
        x: str,
        outputs: int,
        kernel: int,
        activation: Activation | None = None,
        group: int = 1,
        spread: float = 1.0,
        **attrs: object,
    ) -> str:
        channels = self.graph.tensors[x].shape[1]
        weight = self.random.normal(
            0, 1.0 / np.sqrt(channels / group * kernel**2), (outputs, channels // group, kernel, kernel)
        )
        weight *= np.geomspace(1.0, spread, outputs)[self.random.permutation(outputs)][:, None, None, None]
        bias = self.random.normal(0, 0.3, outputs)
        for suffix, value in (("weight", weight), ("bias", bias)):
            self.graph.constants[f"{name}.{suffix}"] = value.astype(np.float32)
            self.graph.tensors[f"{name}.{suffix}"] = TensorInfo(f"{name}.{suffix}", value.shape)
        pads = [kernel // 2] * 4
        return self.add(
            "Conv",
            name,
            [x, f"{name}.weight", f"{name}.bias"],
            activation,
            **(
                {"kernel_shape": [kernel, kernel], "strides": [1, 1], "pads": pads, "dilations": [1, 1], "group": group}
                | attrs
            ),
        )

    def finish(self, *outputs: str) -> Graph:
        self.graph.outputs = list(outputs)
        return self.graph


def small_network(seed: int = 0) -> Graph:
    """Focus, SiLU convolution, a residual addition, depthwise, pooling, resize, concat: a bit of everything."""
    b = Builder((1, 3, 16, 12), seed)
    silu, leaky = Activation("Silu"), Activation("LeakyRelu", alpha=0.1)
    b.add("SpaceToDepth", "focus", ["input"], blocksize=2)
    b.add("ChannelGather", "order", ["focus"], indices=[0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11])
    b.conv("stem", "order", 12, 3, silu, spread=30.0)
    b.conv("depthwise", "stem", 12, 3, leaky, group=12)
    b.conv("pointwise", "depthwise", 12, 1)
    b.add("Add", "residual", ["stem", "pointwise"], Activation("Relu"))
    b.add(
        "MaxPool",
        "down",
        ["residual"],
        kernel_shape=[2, 2],
        strides=[2, 2],
        pads=[0, 0, 0, 0],
        dilations=[1, 1],
        ceil_pads=[0] * 4,
    )
    b.conv("deep", "down", 20, 3, silu, spread=0.05)
    resize = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    b.add("Resize", "up", ["deep"], sizes=[8, 6], scales=[2.0, 2.0], **resize)
    b.add("Concat", "joined", ["up", "residual"], axis=1)
    b.conv("head", "joined", 7, 1)
    return b.finish("head")


def pixel_images(graph: Graph, count: int, seed: int = 1) -> list[Arrays]:
    """Smooth-ish random pixels 0..255 as float N, C, H, W."""
    random = np.random.default_rng(seed)
    _, channels, h, w = graph.tensors["input"].shape
    result = []
    for _ in range(count):
        coarse = (
            random.uniform(0, 255, (1, channels, (h + 3) // 4, (w + 3) // 4)).repeat(4, 2).repeat(4, 3)[:, :, :h, :w]
        )
        result.append(np.clip(np.round(coarse + random.normal(0, 12, coarse.shape)), 0, 255))
    return [{"input": image.astype(np.float32)} for image in result]


def images(graph: Graph, count: int) -> list[Arrays]:
    """Preprocessed images, values about -2..2."""
    return preprocessed(pixel_images(graph, count), 127.5, 64.0)


def preprocessed(pixels: list[Arrays], mean: float, std: float) -> list[Arrays]:
    """(pixel - mean)/std."""
    return [{"input": ((p["input"] - mean) / std).astype(np.float32)} for p in pixels]


def calibrated(graph: Graph, feeds: list[Arrays], histograms: bool = False) -> Statistics:
    """Statistics through the float64 reference."""
    make: Callable[[list[str]], Callable[[Arrays], Arrays]] = lambda wanted: ReferenceExecutor(graph, wanted).run  # noqa: E731
    return calibrate(graph, feeds, make, histograms)


def sqnr(reference: np.ndarray, found: np.ndarray) -> float:
    """Signal to noise in decibels, computed here, not by the code under test."""
    noise = float(((reference - found) ** 2).sum())
    return 200.0 if noise == 0.0 else float(10 * np.log10((reference**2).sum() / noise))
