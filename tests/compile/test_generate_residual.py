"""Residual stages: which Adds become part of a convolution, that the bits are those of two layers (plain interpreter), where skip tensors may lie."""

from __future__ import annotations

from typing import Any

import pytest
from backend import check, small_arch
from networks_int8 import Net

from npuforge.compile.steps.generate import CompiledProgram
from npuforge.hw_kernels.isa.codec import decode, split


def fields(compiled: CompiledProgram, name: str) -> list[dict[str, int]]:
    """Of all instructions of an opcode."""
    return [v for i, v in map(decode, split(compiled.instructions)) if i.name == name]


def sums(compiled: CompiledProgram) -> list[dict[str, int]]:
    """Instructions with a residual stage."""
    return [v for v in fields(compiled, "CONV") if v["residual"]]


def layers(compiled: CompiledProgram) -> dict[str, str]:
    """Name -> id of every layer."""
    return {layer["name"]: layer["id"] for layer in compiled.meta["layers"]}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("stage", ["pwl", "table"])
@pytest.mark.parametrize("sum_stage", ["pwl", "direct"])
def test_projection_and_skip_tensor_are_one_layer(swapped: bool, stage: str, sum_stage: str) -> None:
    net = Net((21, 9, 7), 1)
    skip = net.conv("skip", "input", 37, (1, 1))
    net.conv("wide", skip, 50, (3, 3), pads=(1, 1, 1, 1))
    net.conv("y", "wide", 37, (1, 1), stage=stage)
    net.pair("Add", "z", *(["y", skip] if swapped else [skip, "y"]), sum_stage)
    compiled = check(net, "z")
    assert not fields(compiled, "ELTWISE") and sums(compiled)
    ids = layers(compiled)
    assert ids["z"] == f"{ids['y']}+"
    assert {v["sum_stage"] for v in sums(compiled)} == {0 if sum_stage == "pwl" else 2}
    rows = {row["name"]: row for row in compiled.performance["layers"]}
    assert rows["z"]["cycles"] == 0 and rows["y"]["cycles"] > 0


def test_the_sum_takes_the_place_of_a_skip_tensor_read_for_the_last_time() -> None:
    net = Net((16, 12, 12), 2)
    net.conv("skip", "input", 32, (1, 1))
    net.conv("wide", "skip", 64, (1, 1))
    net.conv("y", "wide", 32, (1, 1))
    net.pair("Add", "z", "y", "skip")
    net.conv("end", "z", 16, (1, 1))
    assert all(v["out_addr"] == v["b_addr"] for v in sums(check(net, "end")))


def test_the_sum_stays_away_from_a_skip_tensor_that_the_convolution_reads_too() -> None:
    net = Net((16, 12, 12), 3)
    net.conv("skip", "input", 32, (1, 1))
    net.conv("y", "skip", 32, (1, 1))
    net.pair("Add", "z", "y", "skip")
    net.conv("end", "z", 16, (1, 1))
    found = sums(check(net, "end"))
    assert found and all(v["out_addr"] != v["b_addr"] for v in found)


def test_a_skip_tensor_read_again_later_is_left_alone() -> None:
    net = Net((16, 12, 12), 4)
    net.conv("skip", "input", 32, (1, 1))
    net.conv("wide", "skip", 64, (1, 1))
    net.conv("y", "wide", 32, (1, 1))
    net.pair("Add", "z", "y", "skip")
    net.conv("end", "z", 32, (1, 1))
    net.pair("Mul", "late", "end", "skip")
    assert all(v["out_addr"] != v["b_addr"] for v in sums(check(net, "late")))


def test_of_two_convolutions_the_later_one_takes_the_sum() -> None:
    net = Net((24, 9, 9), 5)
    net.conv("shortcut", "input", 40, (1, 1), (2, 2))
    net.conv("y", "input", 40, (3, 3), (2, 2), (1, 1, 1, 1))
    net.pair("Add", "z", "shortcut", "y", "pwl")
    compiled = check(net, "z")
    ids = layers(compiled)
    assert ids["z"] == f"{ids['y']}+" and ids["shortcut"] != ids["y"]


def test_lanes_of_the_skip_tensor_are_taken_over() -> None:
    """The skip tensor is a slice that begins inside a block of a concat."""
    net = Net((20, 6, 6), 6)
    net.conv("a", "input", 20, (1, 1))
    net.conv("b", "input", 30, (1, 1))
    net.add("Concat", "both", ["a", "b"], axis=1)
    net.add("ChannelGather", "part", ["both"], indices=list(range(5, 35)))
    net.conv("y", "both", 30, (3, 3), pads=(1, 1, 1, 1))
    net.pair("Add", "z", "y", "part")
    net.add("Concat", "end", ["z", "a"], axis=1)
    compiled = check(net, "end")
    assert sums(compiled) and "z" in layers(compiled)


@pytest.mark.parametrize("group", [2, 4, 5])
def test_grouped_convolution(group: int) -> None:
    channels = 32 * group if group < 5 else 40
    net = Net((channels, 7, 5), 7)
    net.conv("skip", "input", channels, (1, 1))
    net.conv("y", "skip", channels, (3, 3), pads=(1, 1, 1, 1), group=group)
    net.pair("Add", "z", "skip", "y")
    assert sums(check(net, "z"))


def test_first_layer_on_an_image() -> None:
    net = Net((3, 18, 14), 8)
    other = net.input("other", (24, 9, 7))
    net.conv("y", "input", 24, (3, 3), (2, 2), (1, 1, 1, 1), stage="table")
    net.pair("Add", "z", "y", other)
    assert sums(check(net, "z"))


@pytest.mark.parametrize("seed", range(4))
def test_bands_cuts_and_skip_tensors_that_stream(seed: int) -> None:
    """64 KiB of SRAM: the maps and the weights do not fit whole."""
    net = Net((48, 30, 26), seed)
    net.conv("skip", "input", 70, (1, 1))
    net.conv("wide", "skip", 70, (3, 3), pads=(1, 1, 1, 1))
    net.conv("y", "wide", 70, (3, 3), pads=(1, 1, 1, 1), stage="table" if seed % 2 else "pwl")
    net.pair("Add", "z", "y", "skip", "pwl" if seed % 3 else "direct")
    net.conv("end", "z", 33, (3, 3), pads=(1, 1, 1, 1))
    compiled = check(net, "end", arch=small_arch(65536))
    assert len(sums(compiled)) > 1 and not fields(compiled, "ELTWISE")


def test_a_chain_of_blocks_with_copies_of_concats_between() -> None:
    net = Net((32, 8, 8), 9)
    x, ends = net.conv("lead", "input", 32, (1, 1)), []
    for number in range(3):
        net.conv(f"y{number}", x, 32, (3, 3), pads=(1, 1, 1, 1))
        net.add("Concat", f"twice{number}", [x, x], axis=1)  # needs a copy, before the convolution moves behind it
        ends.append(net.conv(f"side{number}", f"twice{number}", 16, (1, 1)))
        x = net.pair("Add", f"z{number}", f"y{number}", x)
    compiled = check(net, x, *ends)
    assert {v for v in layers(compiled) if v.startswith("z")} == {"z0", "z1", "z2"} and not fields(compiled, "ELTWISE")


def apart(kind: str) -> tuple[Net, tuple[str, ...]]:
    """A net whose Add has to stay a layer."""
    net = Net((24, 6, 6), 10)
    skip, outputs, extra = net.conv("skip", "input", 24, (1, 1)), ["z"], dict[str, Any]()
    y = net.conv("y", "skip", 24, (1, 1), **extra)
    if kind == "read twice":
        net.pair("Mul", "other", y, skip)
        outputs.append("other")
    elif kind == "leaves":
        outputs.append(y)
    elif kind == "depthwise":
        y = net.conv("deep", "skip", 24, (3, 3), pads=(1, 1, 1, 1), group=24)
    elif kind == "broadcasts":
        skip = net.pool("AveragePool", "mean", "skip", (6, 6))
    elif kind == "with itself":
        skip = y
    net.pair("Add" if kind != "difference" else "Sub", "z", y, skip, "table" if kind == "table" else "direct")
    return net, tuple(outputs)


@pytest.mark.parametrize("kind", ["read twice", "leaves", "broadcasts", "with itself", "table", "difference"])
def test_what_stays_a_layer(kind: str) -> None:
    net, outputs = apart(kind)
    compiled = check(net, *outputs)
    assert not sums(compiled) and fields(compiled, "ELTWISE")


def test_a_depthwise_convolution_takes_no_sum_but_may_be_the_skip_tensor() -> None:
    net, outputs = apart("depthwise")
    (found,) = {v["residual"] for v in fields(check(net, *outputs), "CONV")}
    assert found == 0
    net = Net((24, 6, 6), 11)
    net.conv("deep", "input", 24, (3, 3), pads=(1, 1, 1, 1), group=24)
    net.conv("y", "input", 24, (1, 1))
    net.pair("Add", "z", "deep", "y")
    compiled = check(net, "z")
    assert layers(compiled)["z"] == f"{layers(compiled)['y']}+"
