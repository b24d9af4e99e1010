"""A curve whose pre-activation leaves 16 bits within one step of its operand has no scale to raise: its multipliers saturate, and so does its output."""

from __future__ import annotations

import numpy as np
import pytest

from npuforge.compile.ir.graph import Activation, Graph, Node, TensorInfo
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor, dequantise
from npuforge.quant.quantize import quantize

CHANNELS = 3
LARGE = 1e7


def graph(op: str) -> Graph:
    """One layer with a sigmoid; its middle channel is enormous."""
    attrs: dict[str, object] = {}
    tensors = {name: TensorInfo(name, (1, CHANNELS, 5, 5)) for name in ("a", "b", "y")}
    inputs = ["a", "b"]
    constants: dict[str, np.ndarray] = {}
    if op == "Conv":
        inputs = ["a", "w", "c"]
        constants["w"] = np.diag([1.0, LARGE, 1.0]).reshape(CHANNELS, CHANNELS, 1, 1).astype(np.float32)
        constants["c"] = np.zeros(CHANNELS, np.float32)
        attrs = {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    elif op == "Affine":
        inputs = ["a"]
        attrs = {"scale": [1.0, LARGE, 1.0], "bias": [0.0, LARGE / 2, 0.0]}
    tensors |= {name: TensorInfo(name, value.shape) for name, value in constants.items()}
    names = [t for t in inputs if t not in constants]
    node = Node("layer", op, inputs, ["y"], attrs, Activation("Sigmoid"), ["layer"], "NPU")
    return Graph(op, [node], tensors, constants, names, ["y"], 13)


@pytest.mark.parametrize("op", ["Conv", "Affine", "Add", "Sub"])
def test_enormous_channel_saturates(op: str) -> None:
    network, random = graph(op), np.random.default_rng(2)
    feeds = {n: random.uniform(-1, 1, (1, CHANNELS, 5, 5)).astype(np.float32) for n in network.inputs}
    if op in ("Add", "Sub"):
        feeds = {n: v * np.array([1, LARGE, 1], np.float32).reshape(1, -1, 1, 1) for n, v in feeds.items()}
    statistics = calibrate(network, [feeds], lambda wanted: ReferenceExecutor(network, wanted).run)
    qgraph = quantize(network, statistics, alpha=1.0)
    found = dequantise(IntegerExecutor(qgraph).run(feeds)["y"], qgraph.quant["y"])
    expected = ReferenceExecutor(network).run(feeds)["y"]
    enormous, others = np.abs(found - expected)[:, 1], np.abs(found - expected)[:, [0, 2]]
    operand = sum((-1 if op == "Sub" and n == "b" else 1) * feeds[n][:, 1] for n in network.inputs)
    near_zero = (
        np.abs(operand + (0.5 if op == "Affine" else 0)) < 0.02 * np.abs(operand).max()
    )  # the operands' rounding
    assert near_zero.mean() < 0.2
    assert enormous[~near_zero].max() == 0.0
    if op in ("Conv", "Affine"):  # the channels share the fraction bits, here 5: steps of 1/32
        assert others.max() < 0.03
