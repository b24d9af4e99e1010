"""Residual stages: drawn convolutions with an Add behind them, numpy == csim == sim at every layer, the convolution before its sum included; and how
many Adds of real networks are fused, counted by hand from their ONNX graphs.

Run by `pytest tests/e2e/test_ladder_residual.py` (a fixed sample) and `pytest -m full tests/e2e/test_ladder_residual.py` (200 new cases).
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from ladder import ARCHS, Binary, compile_graph
from ladder_layers import Case, climb_compiled, hardware, inputs, quantised
from ladder_residual import apart, residuals
from test_ladder_layers import COMMON
from test_ladder_networks import absent, network

from npuforge.hw_kernels.isa.binfile import parse_bin
from npuforge.hw_kernels.isa.codec import decode, split


def opcodes(binary: Binary) -> list[tuple[str, dict[str, int]]]:
    """All instructions."""
    return [(i.name, v) for i, v in map(decode, split(parse_bin(binary.image)["instructions"].data))]


def fused(binary: Binary) -> set[str]:
    """Names of the Adds that are residual stages."""
    before = {layer["id"] for layer in binary.meta["layers"] if layer["trace"]["space"] == "before_sum"}
    return {
        layer["name"]
        for layer in binary.meta["layers"]
        if layer["id"].removesuffix("+") in before and layer["op"] == "Add"
    }


def climbs(case: Case) -> Binary:
    """The whole ladder; the program for further questions."""
    integer = quantised(case)
    binary = compile_graph(integer, hardware(case.arch))
    found = climb_compiled(case, integer, binary)
    assert not found, f"{case}\n" + "\n".join(map(str, found))
    return binary


def climbs_fused(case: Case) -> None:
    binary = climbs(case)
    assert fused(binary) == {"z"}, case
    assert all(name != "ELTWISE" or v["kind"] in (2, 3) for name, v in opcodes(binary)), (
        "an Add is left on the vector engine"
    )


@settings(**COMMON, max_examples=20, derandomize=True)
@given(residuals())
def test_conv_residual(case: Case) -> None:
    climbs_fused(case)


@pytest.mark.full
@settings(**COMMON, max_examples=200, print_blob=True)
@given(residuals())
def test_many_conv_residuals(case: Case) -> None:
    climbs_fused(case)


@settings(**COMMON, max_examples=12, derandomize=True)
@given(apart())
def test_what_stays_a_layer_of_its_own(case: Case) -> None:
    binary = climbs(case)
    assert not fused(binary) and all(not v.get("residual") for _, v in opcodes(binary))


def test_a_wrong_convolution_is_seen_although_its_output_is_never_in_memory() -> None:
    """The trace of the convolution before its sum is compared with its own integers, and one bit there is noticed."""
    case = one_block()
    integer = quantised(case)
    binary = compile_graph(integer, "nf-b1024")
    feeds = inputs(case, "uniform")
    expected = integer.integers(feeds)
    for device in ("csim", "sim"):
        records = {r.tensor: r for r in binary.trace(device, 1, feeds)}
        assert np.array_equal(records["y"].data, expected["y"]) and np.array_equal(records["z"].data, expected["z"])
        assert not np.array_equal(expected["y"], expected["z"])


def one_block() -> Case:
    """The first drawn block of the fixed sample with a real sum."""
    found: list[Case] = []

    @settings(**COMMON, max_examples=1, derandomize=True)
    @given(residuals())
    def take(case: Case) -> None:
        found.append(case)

    take()
    return found[0]


# Counted in the ONNX graphs: yolo_fastest_1.1 has 18 Adds, each of a projection (Conv and BatchNormalization) and the Add or projection before it;
# yolox_nano has 7, in the bottlenecks of its backbone's three CSP layers (1 + 3 + 3), each of a Conv with SiLU and the bottleneck's input.
RESIDUALS = {"yolo_fastest_1.1": 18, "yolox_nano": 7}


@pytest.mark.data
@pytest.mark.slow
@absent
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", RESIDUALS)
def test_every_residual_add_of_the_networks_is_fused(name: str, arch: str) -> None:
    integer = network(name, "fine", 1)
    adds = {n.name for n in integer.qgraph.graph.nodes if n.op == "Add"}
    assert len(adds) == RESIDUALS[name]
    binary = compile_graph(integer, arch)
    assert fused(binary) == adds
    assert all(name != "ELTWISE" or v["kind"] != 0 for name, v in opcodes(binary)), (
        "an Add is left on the vector engine"
    )
