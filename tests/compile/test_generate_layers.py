"""Hypothesis-drawn single layers of every kind: generated program on the plain interpreter == the operator's integer semantics, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from backend import check, small_arch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from networks_int8 import Net

ARCHS = st.sampled_from(["nf-b1024", "nf-b4096", 65536])
CHANNELS = st.integers(1, 70)
SIZES = st.integers(1, 23)
STAGES = st.sampled_from(["pwl", "table"])
SEEDS = st.integers(0, 10**6)
drawn = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),  # shrinking takes minutes; the drawn case is readable as it is
)


def run(net: Net, *outputs: str, arch: str | int) -> Any:
    """An integer is an nf-b1024 with so little SRAM."""
    return check(net, *outputs, arch=small_arch(arch) if isinstance(arch, int) else arch)


@st.composite
def windows(draw: Any, most: int = 5, dilated: bool = True) -> dict[str, Any]:
    """Kernel, strides, pads (smaller than the reach of the kernel), dilations."""
    kernel = (draw(st.integers(1, most)), draw(st.integers(1, most)))
    dilations = (draw(st.integers(1, 3)), draw(st.integers(1, 3))) if dilated else (1, 1)
    strides = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(draw(st.integers(0, reach[i % 2])) for i in range(4))
    return {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}


def fits(size: tuple[int, int], window: dict[str, Any]) -> bool:
    """Does the kernel fit into the padded map?"""
    pads, kernel, dilations = window["pads"], window["kernel"], window["dilations"]
    return all(size[i] + pads[i] + pads[i + 2] > (kernel[i] - 1) * dilations[i] for i in (0, 1))


@drawn
@given(CHANNELS, CHANNELS, SIZES, SIZES, windows(), STAGES, ARCHS, SEEDS)
def test_convolution(
    inputs: int, outputs: int, h: int, w: int, window: dict[str, Any], stage: str, arch: str | int, seed: int
) -> None:
    assume(fits((h, w), window))
    net = Net((inputs, h, w), seed)
    net.conv("y", "input", outputs, stage=stage, **window)
    run(net, "y", arch=arch)


@drawn
@given(st.integers(1, 4), CHANNELS, st.integers(8, 40), st.integers(8, 40), windows(7), STAGES, ARCHS, SEEDS)
def test_first_layer_on_an_image(
    inputs: int, outputs: int, h: int, w: int, window: dict[str, Any], stage: str, arch: str | int, seed: int
) -> None:
    assume(fits((h, w), window) and (inputs, outputs) != (1, 1))  # one to one is depthwise
    net = Net((inputs, h, w), seed)
    net.conv("y", "input", outputs, stage=stage, **window)
    compiled = run(net, "y", arch=arch)
    assert compiled.tiled is not None and compiled.tiled.lanes.partitions[0].layers[0].fold is not None


@drawn
@given(CHANNELS, SIZES, SIZES, windows(), STAGES, ARCHS, SEEDS)
def test_depthwise(
    channels: int, h: int, w: int, window: dict[str, Any], stage: str, arch: str | int, seed: int
) -> None:
    assume(fits((h, w), window) and channels > 4)
    net = Net((channels, h, w), seed)
    net.conv("y", "input", channels, group=channels, stage=stage, **window)
    run(net, "y", arch=arch)


@drawn
@given(st.integers(2, 5), st.sampled_from([3, 8, 16, 32]), st.sampled_from([2, 5, 16, 32]), windows(3), ARCHS, SEEDS)
def test_groups(group: int, per_in: int, per_out: int, window: dict[str, Any], arch: str | int, seed: int) -> None:
    assume(fits((9, 8), window))
    net = Net((group * per_in, 9, 8), seed)
    net.conv("y", "input", group * per_out, group=group, **window)
    run(net, "y", arch=arch)


@drawn
@given(
    st.integers(5, 40),
    CHANNELS,
    st.integers(1, 9),
    st.integers(1, 9),
    windows(4),
    st.integers(1, 2),
    st.data(),
    ARCHS,
    SEEDS,
)
def test_transposed_convolution(
    inputs: int, outputs: int, h: int, w: int, window: dict[str, Any], group: int, data: Any, arch: str | int, seed: int
) -> None:
    inputs, outputs = inputs // group * group, max(1, outputs // group) * group
    extra = tuple(
        data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(window["strides"], window["dilations"], strict=True)
    )
    for i, size in enumerate((h, w)):
        reach = (window["kernel"][i] - 1) * window["dilations"][i]
        out = (size - 1) * window["strides"][i] + reach + 1 + extra[i] - window["pads"][i] - window["pads"][i + 2]
        assume(out >= 1)
    net = Net((inputs, h, w), seed)
    net.conv("y", "input", outputs, group=group, transpose=True, output_padding=(extra[0], extra[1]), **window)
    run(net, "y", arch=arch)


@drawn
@given(CHANNELS, st.integers(4, 23), st.integers(4, 23), windows(9, dilated=False), st.booleans(), ARCHS, SEEDS)
def test_pooling(
    channels: int, h: int, w: int, window: dict[str, Any], average: bool, arch: str | int, seed: int
) -> None:
    kernel, pads = window["kernel"], window["pads"]
    assume(fits((h, w), window) and all(p < h for p in pads[::2]) and all(p < w for p in pads[1::2]))
    assume(channels > 4)
    net = Net((channels, h, w), seed)
    net.pool(
        "AveragePool" if average else "MaxPool", "y", "input", kernel, strides=list(window["strides"]), pads=list(pads)
    )
    run(net, "y", arch=arch)


@drawn
@given(st.integers(5, 70), SIZES, SIZES, st.sampled_from(["Add", "Sub", "Mul"]), st.sampled_from(["direct", "pwl", "table"]),
       st.tuples(st.booleans(), st.booleans(), st.booleans()), ARCHS, SEEDS)  # fmt: skip
def test_element_wise(
    channels: int, h: int, w: int, op: str, stage: str, broadcast: tuple[bool, bool, bool], arch: str | int, seed: int
) -> None:
    net = Net((channels, h, w), seed)
    one_channel, one_row, one_col = broadcast
    net.conv("b0", "input", 1 if one_channel else channels, (1, 1))
    net.pool("MaxPool", "b", "b0", (h if one_row else 1, w if one_col else 1))
    net.pair(op, "y", "input", "b", stage)
    net.affine("z", "y", "table")
    run(net, "y", "z", arch=arch)


@drawn
@given(st.integers(5, 40), SIZES, SIZES, st.integers(1, 30), st.integers(1, 30), st.sampled_from(["nearest", "linear"]),
       st.sampled_from(["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]), ARCHS, SEEDS)  # fmt: skip
def test_resize(
    channels: int, h: int, w: int, out_h: int, out_w: int, mode: str, coordinates: str, arch: str | int, seed: int
) -> None:
    net = Net((channels, h, w), seed)
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
    net.add("Resize", "y", ["input"], sizes=[out_h, out_w], scales=[out_h / h, out_w / w], **attrs)
    run(net, "y", arch=arch)


@drawn
@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), st.data(), ARCHS, SEEDS)
def test_concat_and_gather(parts: list[int], data: Any, arch: str | int, seed: int) -> None:
    net = Net((9, 6, 5), seed)
    names = [net.conv(f"p{i}", "input", channels, (1, 1)) for i, channels in enumerate(parts)]
    if data.draw(st.booleans()):
        names.append(names[0])  # one tensor twice: a copy
    net.add("Concat", "joined", names, axis=1)
    total = net.shape("joined")[0]
    indices = data.draw(st.lists(st.integers(-1, total - 1), min_size=1, max_size=30))
    if data.draw(st.booleans()):  # a plain pick: only the lane map changes
        indices = list(dict.fromkeys(i for i in indices if i >= 0)) or [0]
    net.add("ChannelGather", "picked", ["joined"], indices=indices)
    consumer = data.draw(st.sampled_from(["conv", "depthwise", "add", "concat", "output"]))
    if consumer == "conv":
        net.conv("y", "picked", 20, (3, 3), pads=(1, 1, 1, 1))
    elif consumer == "depthwise":
        net.conv("y", "picked", len(indices), (3, 3), group=len(indices))
    elif consumer == "add":
        net.conv("other", "input", len(indices), (1, 1))
        net.pair("Add", "y", "other", "picked")
    elif consumer == "concat":
        net.add("Concat", "y", ["picked", "p0"], axis=1)
    else:
        net.affine("y", "joined")
        run(net, "y", "picked", arch=arch)
        return
    run(net, "y", arch=arch)


@drawn
@given(st.integers(1, 20), st.integers(2, 4), st.integers(1, 5), st.integers(1, 5), st.booleans(), ARCHS, SEEDS)
def test_space_to_depth(channels: int, block: int, h: int, w: int, pooled: bool, arch: str | int, seed: int) -> None:
    net = Net((channels, h * block, w * block), seed)
    net.add("SpaceToDepth", "folded", ["input"], blocksize=block)
    order = np.random.default_rng(seed).permutation(net.shape("folded")[0])
    net.add("ChannelGather", "ordered", ["folded"], indices=[int(i) for i in order])
    if pooled:
        net.pool("MaxPool", "y", "ordered", (1, 1))
    else:
        net.qgraph.quant["input"].zero_point[:] = 7
        net.conv("y", "ordered", 21, (3, 3), pads=(1, 1, 1, 1))
        net.qgraph.params["y"].pad_value[:] = 7  # type: ignore[union-attr]
    run(net, "y", arch=arch)
