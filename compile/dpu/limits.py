"""What a DPU target takes: `targets.json` (numbers with their sources) and the reason where a node exceeds it. The vendor's compiler has the last word."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.hw_kernels.ops.average_pool.op import window_counts
from npuforge.hw_kernels.windows import Window

TARGETS_FILE = Path(__file__).with_name("targets.json")
PREFIX = "dpu:"
_RESIZE_AS_XIR = (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"))


@dataclass(frozen=True)
class DpuTarget:
    """`name`: as the vendor's compiler takes it (`DPUCZDX8G_ISA1_B4096`). `operators`: limits by XIR's operator name."""

    name: str
    channel_parallel: int
    bank_depth: int
    operators: dict[str, dict[str, Any]]

    def reason(self, node: Node, graph: Graph) -> str:
        """Why this DPU does not take the node, empty if it does."""
        problem = _problem(self, node, graph)
        return f"{self.name}: {problem}" if problem else ""


@cache
def _families() -> dict[str, Any]:
    families: dict[str, Any] = json.loads(TARGETS_FILE.read_text(encoding="utf-8"))
    return families


def names() -> list[str]:
    """All targets by their full names."""
    return [f["prefix"] + size for f in _families().values() for size in f["channel_parallel"]]


def load(text: str) -> DpuTarget:
    """The target of `dpu:DPUCZDX8G` (the family's default size) or `dpu:DPUCZDX8G_ISA1_B1024`. UsageError for any other."""
    wanted = text.removeprefix(PREFIX)
    for family, values in _families().items():
        for size, parallel in values["channel_parallel"].items():
            name = values["prefix"] + size
            if wanted == name or (wanted == family and size == values["default"]):
                return DpuTarget(name, parallel, values["bank_depth"], values["operators"])
    known = ", ".join(PREFIX + n for n in (*_families(), *names()))
    raise UsageError(f"--target {text}: no such target; expected npuforge, ascend:SOC or one of {known}")


def activation_word(activation: Activation) -> str:
    """The activation as `targets.json` spells it."""
    if activation.kind == "Clip" and (activation.low, activation.high) == (0.0, math.inf):
        return "Relu"
    return "Relu6" if activation.kind == "Clip" and (activation.low, activation.high) == (0.0, 6.0) else activation.kind


def xir_operator(node: Node, graph: Graph) -> str:
    """XIR's float operator for a canonical NPU node, empty if a DPU has none."""
    if node.op == "Conv":
        group = int(node.attrs.get("group", 1))
        return "depthwise-conv2d" if 1 < group == graph.tensors[node.inputs[0]].shape[1] else "conv2d"
    if node.op == "ConvTranspose":
        return "transposed-conv2d"
    words = {"MaxPool": "maxpool2d", "AveragePool": "avgpool2d", "Add": "add", "Concat": "concat"}
    return (words | {"Resize": "resize", "ChannelGather": "strided_slice"}).get(node.op, "")


def _outside(what: str, values: list[int], allowed: list[int]) -> str:
    low, high = allowed
    wrong = not all(low <= v <= high for v in values)
    return f"{what} {'x'.join(map(str, values))} (height x width), allowed {low} to {high}" if wrong else ""


def _problem(target: DpuTarget, node: Node, graph: Graph) -> str:
    operator = xir_operator(node, graph)
    limits = target.operators.get(operator)
    if limits is None:
        return f"no operator {node.op}"
    word = activation_word(node.activation)
    if word not in limits["activations"]:
        remedy = "; --silu hardswish replaces it" if word == "Silu" else ""
        return f"{operator} with {word}, allowed {', '.join(limits['activations'])}{remedy}"
    channels_in, channels_out = graph.tensors[node.inputs[0]].shape[1], graph.tensors[node.outputs[0]].shape[1]
    most = limits.get("output_channels", 0) * target.channel_parallel
    if most and channels_out > most:
        return f"{channels_out} output channels, allowed {most}"
    if "kernel" in limits or "kernel_per_stride" in limits:
        problem = _window_problem(target, limits, node, channels_in)
        if problem:
            return problem
    return _meaning_problem(operator, node, graph)


def _window_problem(target: DpuTarget, limits: dict[str, Any], node: Node, channels: int) -> str:
    window, kernel = Window.of(node), [int(k) for k in node.attrs["kernel_shape"]]
    strides, dilations = [int(s) for s in window.strides], [int(d) for d in window.dilations]
    top, left, bottom, right = (int(p) for p in window.pads)
    problem = _outside("kernel", kernel, limits["kernel"]) if "kernel" in limits else ""
    if "stride" in limits:
        problem = problem or _outside("stride", strides, limits["stride"])
    if "kernel_per_stride" in limits:
        ratios = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
        problem = problem or _outside("kernel/stride", ratios, limits["kernel_per_stride"])
    if problem:
        return problem
    reach = [(k - 1) * d + limits["pad_excess"] for k, d in zip(kernel, dilations, strict=True)]
    reach = [min(r, limits.get("largest_pad", r)) for r in reach]
    if max(top, bottom) > reach[0] or max(left, right) > reach[1]:
        return f"pads {[top, left, bottom, right]} (top, left, bottom, right), allowed {reach[0]} and {reach[1]}"
    most = limits.get("dilated_channels", 0) * target.channel_parallel
    if most and max(dilations) * channels > most:
        return f"dilation times input channels {max(dilations) * channels}, allowed {most}"
    banked = kernel[0] * kernel[1] * -(-channels // target.channel_parallel)
    if limits.get("banked_input") and banked > target.bank_depth:
        return f"kernel times blocks of input channels {banked}, allowed {target.bank_depth}"
    return ""


def _meaning_problem(operator: str, node: Node, graph: Graph) -> str:
    """Where XIR's operator would not mean the same."""
    x, y = graph.tensors[node.inputs[0]].shape, graph.tensors[node.outputs[0]].shape
    if operator == "conv2d" and int(node.attrs.get("group", 1)) != 1:
        return f"convolution in {node.attrs['group']} groups, allowed 1 or as many as channels"
    if operator == "transposed-conv2d":
        bottom, right = (int(p) for p in Window.of(node).pads[2:])
        extra = [int(e) for e in node.attrs.get("output_padding", [0, 0])]
        if int(node.attrs.get("group", 1)) != 1 or bottom < extra[0] or right < extra[1]:
            return "transposed convolution in groups, or with output_padding beyond its pads"
    if operator == "maxpool2d" and any(d != 1 for d in Window.of(node).dilations):
        return "dilated pooling"
    if operator == "avgpool2d":
        divisor = window_counts(node, x[2], x[3])[1]
        if not (divisor == int(np.prod(node.attrs["kernel_shape"]))).all():
            return "average pooling whose border windows divide by fewer taps"
    if operator == "add" and any(graph.tensors[t].shape != y for t in node.inputs):
        return "addition with broadcasting"
    if operator == "resize":
        known = (
            node.attrs.get("mode", "nearest") == "nearest"
            and (
                node.attrs.get("coordinate_transformation_mode", "half_pixel"),
                node.attrs.get("nearest_mode", "round_prefer_floor"),
            )
            in _RESIZE_AS_XIR
        )
        if not known or y[2] % x[2] or y[3] % x[3]:
            return "a resize other than nearest by whole factors"
    if operator == "strided_slice":
        indices = [int(i) for i in node.attrs["indices"]]
        if indices[0] < 0 or indices != list(range(indices[0], indices[0] + len(indices))):
            return "a selection of channels that is no range"
    return ""
