"""What a DPU target takes: `targets/<family>.json` (numbers with their sources) and the reason where a node exceeds it.

The vendor's compiler has the last word. Counts of channels are multiples of the target's `channel_parallel`; a weight memory is [banks, width, depth]. A
target lacks its family's operators in `without`, and has the limits in `instead` in place of its family's.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import InputError, UsageError
from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.hw_kernels.ops.average_pool.op import window_counts
from npuforge.hw_kernels.windows import Window

TARGETS = Path(__file__).with_name("targets")
PREFIX = "dpu:"
_RESIZE_AS_XIR = (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"))
ALONE = {"LeakyRelu": "leaky-relu", "HardSwish": "hard-swish"}  # activations that may be an operator by themselves
MOVES = (
    "moves"  # channels selected out of order, blocks of pixels to channels: on a DPU a convolution with weights 0 and 1
)
_BILINEAR = {
    "half_pixel": (2, 4),
    "pytorch_half_pixel": (2, 4),
    "asymmetric": (2, 4, 8),
}  # scales that the vendor's compiler transforms
_CONFIGURABLE = ("DPUCZDX8G_ISA1", "DPUCVDX8G_ISA3")  # families whose users build hardware with options of their own
_SIDES = ("top", "left", "bottom", "right")  # as ONNX orders pads


@dataclass(frozen=True)
class DpuTarget:
    """`name`: as the vendor's compiler takes it (`DPUCZDX8G_ISA1_B4096`). `operators`: limits by XIR's operator name.

    `fingerprint`: of the vendor's own configuration of that name, or the one that a board's `arch.json` gives. `arch`: what the vendor's compiler is told.
    """

    name: str
    fingerprint: int
    channel_parallel: int
    output_channel_parallel: int
    weights: dict[str, tuple[int, int, int]]  # engine (conv, depthwise) -> banks, width, depth of its weight memory
    operators: dict[str, dict[str, Any]]
    arch: dict[str, str]

    def reason(self, node: Node, graph: Graph) -> str:
        """Why this DPU does not take the node, empty if it does."""
        problem = _problem(self, node, graph)
        return f"{self.name}: {problem}" if problem else ""


@cache
def _families() -> dict[str, Any]:
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(TARGETS.glob("*.json"))}


def names() -> list[str]:
    """All targets by their full names."""
    return [name for family in _families().values() for name in family["targets"]]


def load(text: str) -> DpuTarget:
    """The target of `dpu:DPUCZDX8G` (the family's default), `dpu:DPUCZDX8G_ISA1_B1024` or `dpu:FILE`, a board's `arch.json`. UsageError for any other."""
    wanted = text.removeprefix(PREFIX)
    if wanted.endswith(".json"):
        return of_arch_file(Path(wanted))
    wanted = _families()[wanted]["default"] if wanted in _families() else wanted
    for family in _families().values():
        if wanted in family["targets"]:
            return _target(wanted, family)
    known = ", ".join(PREFIX + n for n in (*_families(), *names()))
    raise UsageError(
        f"--target {text}: no such target; expected npuforge, ascend:SOC or one of {known}, or a board's arch.json"
    )


def of_arch_file(path: Path) -> DpuTarget:
    """The target of an `arch.json`: by its name, or by the fingerprint of hardware that was built with options of its own.

    A fingerprint's lowest four bits are the size, bits 28 and 29 say whether convolutions and depthwise convolutions have LeakyReLU (the vendor's
    target_factory, DPUCZDX8G ISA1 and DPUCVDX8G ISA3). InputError where the file is wrong or its DPU is not among the families here.
    """
    try:
        arch = json.loads(path.read_text(encoding="utf-8"))
        name, text = arch.get("target"), arch.get("fingerprint")
        fingerprint = int(str(text), 16) if text is not None else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a board's arch.json") from None
    except (ValueError, AttributeError) as error:
        raise InputError(f'{path}: expected {{"target": NAME}} or {{"fingerprint": "0x…"}} ({error})') from None
    if fingerprint is None:
        if not isinstance(name, str) or name not in names():
            raise InputError(f"{path}: target {name!r} is not known; expected one of {', '.join(names())}")
        return load(name)
    for family in _families().values():
        for known, own in family["targets"].items():
            if int(own["fingerprint"], 16) == fingerprint:
                return _target(known, family)
    for size in (t for t in map(load, names()) if t.name.startswith(_CONFIGURABLE)):
        if size.fingerprint >> 48 == fingerprint >> 48 and size.fingerprint & 0xF == fingerprint & 0xF:
            return _with_options(size, fingerprint)
    raise InputError(
        f"{path}: no DPU here has a fingerprint like 0x{fingerprint:016x}; expected one of {', '.join(names())}"
    )


def _with_options(size: DpuTarget, fingerprint: int) -> DpuTarget:
    operators = {name: dict(limits) for name, limits in size.operators.items()}
    for bit, changed in ((28, ("conv2d", "transposed-conv2d")), (29, ("depthwise-conv2d",))):
        for name in changed:
            has = operators[name]["activations"]
            if fingerprint >> bit & 1:
                operators[name]["activations"] = has if "LeakyRelu" in has else [*has, "LeakyRelu"]
            else:
                operators[name]["activations"] = [a for a in has if a != "LeakyRelu"]
    text = f"{fingerprint:016x}"
    arch = {"fingerprint": f"0x{text}"}
    return replace(size, name=f"{size.name}_{text.upper()}", fingerprint=fingerprint, operators=operators, arch=arch)


def _target(name: str, family: dict[str, Any]) -> DpuTarget:
    own = family["targets"][name]
    weights = {
        engine: tuple(own[f"{engine}_weights"]) for engine in ("conv", "depthwise") if f"{engine}_weights" in own
    }
    instead = own.get("instead", {})
    operators = {
        op: limits | instead.get(op, {})
        for op, limits in family["operators"].items()
        if op not in own.get("without", [])
    }
    parallel = own["channel_parallel"], own["output_channel_parallel"]
    return DpuTarget(name, int(own["fingerprint"], 16), *parallel, weights, operators, {"target": name})


def numbers(text: str) -> set[int]:
    """Whole numbers as the vendor writes them: `1-16`, `1,2,3,5,7`, `1-3,7`."""
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def activation_word(activation: Activation) -> str:
    """The activation as the target files spell it."""
    if activation.kind == "Clip" and (activation.low, activation.high) == (0.0, math.inf):
        return "Relu"
    return "Relu6" if activation.kind == "Clip" and (activation.low, activation.high) == (0.0, 6.0) else activation.kind


def is_leaky(activation: Activation) -> bool:
    """Whether a LeakyReLU's slope, from 0 to 1, is one that adapt.py replaces by the DPU's."""
    return 0 <= activation.alpha <= 1


def xir_operator(node: Node, graph: Graph) -> str:
    """XIR's float operator for a canonical NPU node, empty if a DPU has none."""
    if node.op == "Conv":
        group = int(node.attrs.get("group", 1))
        return "depthwise-conv2d" if 1 < group == graph.tensors[node.inputs[0]].shape[1] else "conv2d"
    if node.op == "ConvTranspose":
        return "transposed-conv2d"
    if node.op == "Affine":
        return ALONE.get(activation_word(node.activation), "") if is_plain(node) else ""
    if node.op == "ChannelGather":
        indices = [int(i) for i in node.attrs["indices"]]
        in_a_row = indices[0] >= 0 and indices == list(range(indices[0], indices[0] + len(indices)))
        return "strided_slice" if in_a_row else MOVES
    if node.op == "SpaceToDepth":
        return MOVES
    words = {"MaxPool": "maxpool2d", "AveragePool": "avgpool2d", "Add": "add", "Mul": "mul", "Concat": "concat"}
    return (words | {"Resize": "resize"}).get(node.op, "")


def _outside(what: str, values: list[int], allowed: str) -> str:
    return "" if set(values) <= numbers(allowed) else f"{what} {_by(values)} (height x width), allowed {allowed}"


def _by(values: list[int]) -> str:
    return "x".join(map(str, values))


def _problem(target: DpuTarget, node: Node, graph: Graph) -> str:
    operator = xir_operator(node, graph)
    limits = target.operators.get("conv2d" if operator == MOVES else operator)
    if limits is None:
        return f"no operator {operator or _users_operator(node)}{_remedy(target, node)}"
    word = activation_word(node.activation)
    if word not in limits["activations"]:
        remedy = _remedy(target, node)
        return f"{operator} with {word}, allowed {', '.join(limits['activations'])}{remedy}"
    if node.activation.kind == "LeakyRelu" and not is_leaky(node.activation):
        return f"{operator} with LeakyRelu of slope {node.activation.alpha:.4g}, allowed slopes from 0 to 1"
    if any(t in graph.constants for t in node.inputs[:1]):
        return f"{operator} with a constant in front"
    channels_in, channels_out = graph.tensors[node.inputs[0]].shape[1], graph.tensors[node.outputs[0]].shape[1]
    for side, count in (("input", channels_in), ("output", channels_out)):
        most = limits.get(f"{side}_channels", 0) * target.channel_parallel
        if most and count > most:
            return f"{count} {side} channels, allowed {most}"
    kernel = _kernel(node, operator)
    problem = _window_problem(target, limits, node, kernel, channels_in) if kernel else ""
    if operator == "resize" and node.attrs.get("mode", "nearest") == "linear":
        problem = problem or _linear_resize_problem(target)
    return problem or _meaning_problem(operator, node, graph)


def _linear_resize_problem(target: DpuTarget) -> str:
    """The vendor's compiler makes it a transposed depthwise convolution with a kernel of twice the stride (the inspector's `filter_upsample`)."""
    engine = target.operators.get("depthwise-conv2d")
    if engine is not None and 2 in numbers(engine["kernel"]):
        return ""
    return "a linear resize, which needs depthwise convolutions with a kernel of 2 per stride; allowed nearest"


def _users_operator(node: Node) -> str:
    """What an Affine of the integer graph, which no ONNX file has, is there."""
    if node.op != "Affine":
        return node.op
    if is_plain(node) and node.activation.kind != Activation().kind:
        return f"{activation_word(node.activation)} by itself"
    return "of a factor and a summand per channel (Mul, Add, BatchNormalization with constants)"


def _remedy(target: DpuTarget, node: Node) -> str:
    """What a user can do for SiLU, where the DPU has HardSwish."""
    has = any("HardSwish" in limits["activations"] for limits in target.operators.values())
    return "; --silu hardswish replaces it" if node.activation.kind == "Silu" and has else ""


def is_plain(node: Node) -> bool:
    """Whether an Affine changes nothing but by its activation."""
    return bool(np.all(np.asarray(node.attrs["scale"]) == 1) and np.all(np.asarray(node.attrs["bias"]) == 0))


def _kernel(node: Node, operator: str) -> list[int]:
    """Height and width of the window in the file; of a node that moves channels that of its convolution, which steps by it. Empty if there is none."""
    if operator == MOVES:
        return [int(node.attrs.get("blocksize", 1))] * 2
    return [int(k) for k in node.attrs.get("kernel_shape", ())]


def _window_problem(target: DpuTarget, limits: dict[str, Any], node: Node, kernel: list[int], channels: int) -> str:
    window = Window.of(node) if "kernel_shape" in node.attrs else Window(tuple(kernel), (0, 0, 0, 0), (1, 1), 1)
    strides, dilations = [int(s) for s in window.strides], [int(d) for d in window.dilations]
    problem = _outside("kernel", kernel, limits["kernel"]) if "kernel" in limits else ""
    if "stride" in limits:
        problem = problem or _outside("stride", strides, limits["stride"])
    if (
        "kernel_per_stride" in limits
    ):  # as the vendor's inspector divides: neither the whole part nor the rounded-up one may be outside
        allowed = limits["kernel_per_stride"]
        for round_up in (0, 1):
            ratios = [(k + round_up * (s - 1)) // s for k, s in zip(kernel, strides, strict=True)]
            problem = problem or _outside("kernel/stride", ratios, allowed)
    if not problem and limits.get("square") and kernel[0] != kernel[1]:
        problem = f"kernel {_by(kernel)} (height x width), allowed square ones only"
    if not problem and limits.get("stride_within_kernel") and any(s > k for k, s in zip(kernel, strides, strict=True)):
        problem = f"stride {_by(strides)} beyond the kernel {_by(kernel)} (height x width)"
    return (
        problem or _pad_problem(limits, window, kernel) or _memory_problem(target, limits, kernel, dilations, channels)
    )


def _pad_problem(limits: dict[str, Any], window: Window, kernel: list[int]) -> str:
    pads = [int(p) for p in window.pads]
    reach = [(k - 1) * int(d) for k, d in zip(kernel, window.dilations, strict=True)] * 2
    allowed = [min(r, limits.get("pads", {}).get(side, r)) for side, r in zip(_SIDES, reach, strict=True)]
    if all(p <= most for p, most in zip(pads, allowed, strict=True)):
        return ""
    return f"pads {pads} (top, left, bottom, right), allowed {allowed}"


def _memory_problem(
    target: DpuTarget, limits: dict[str, Any], kernel: list[int], dilations: list[int], channels: int
) -> str:
    most = limits.get("dilated_channels", 0) * target.channel_parallel
    if most and max(dilations) * channels > most:
        return f"dilation times input channels {max(dilations) * channels}, allowed {most}"
    area = math.prod(kernel)
    if "kernel_area" in limits:
        blocks = -(-channels // limits["kernel_area"]["channels"]) if "channels" in limits["kernel_area"] else 1
        if area * blocks > limits["kernel_area"]["most"]:
            return f"kernel {_by(kernel)} covers {area * blocks} taps, allowed {limits['kernel_area']['most']}"
    engine = limits.get("weights")
    if engine:
        banks, width, depth = target.weights[engine]
        blocks = -(-channels // width) * -(-target.output_channel_parallel // banks)
        words = area * (blocks if engine == "conv" else -(-target.channel_parallel // width))
        if words > depth:
            return f"weights of {words} words in a memory of {depth} (kernel {_by(kernel)}, {channels} input channels)"
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
    if operator in ("add", "mul") and any(t in graph.constants or graph.tensors[t].shape != y for t in node.inputs):
        return "element-wise with broadcasting or a constant"
    if operator == "resize" and not _resize_known(node, x, y):
        return "a resize other than nearest by whole factors or linear by 2 or 4 (asymmetric: or 8)"
    return ""


def _resize_known(node: Node, x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    coordinates = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if y[2] % x[2] or y[3] % x[3]:
        return False
    if node.attrs.get("mode", "nearest") == "nearest":
        return (coordinates, node.attrs.get("nearest_mode", "round_prefer_floor")) in _RESIZE_AS_XIR
    scales = {y[2] // x[2], y[3] // x[3]}
    return node.attrs["mode"] == "linear" and len(scales) == 1 and scales <= set(_BILINEAR.get(coordinates, ()))
