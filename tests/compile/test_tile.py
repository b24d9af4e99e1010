"""Decisions of the tile step: bands, cuts, what stays in SRAM, prefetch; the estimate of SRAM needs is what is used."""

from __future__ import annotations

import pytest
from backend import small_arch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks_int8 import Net
from test_generate_networks import backbone

from npuforge.compile.memory_checker import check_plan
from npuforge.compile.steps import lanes, plan_layers, tile
from npuforge.compile.steps.generate import generate
from npuforge.compile.steps.layers import align
from npuforge.hw_kernels.arch import Arch, load


def tiled(net: Net, outputs: list[str], arch: Arch) -> tile.TileResult:
    result = tile.run(lanes.run(net.finish(*outputs), arch))
    tile.verify(result)
    return result


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 500), st.integers(1, 600))
def test_bands_and_cuts_cover_everything_once(size: int, count: int) -> None:
    bands = plan_layers.even_bands(size, count)
    assert [r for low, high in bands for r in range(low, high)] == list(range(size)) and len(bands) <= count
    cuts = plan_layers.even_cuts([size], count)
    assert [b for c in cuts for b in range(c.first, c.first + c.count)] == list(range(size)) and len(cuts) <= count
    assert [c.index for c in cuts] == list(range(len(cuts)))


def test_cuts_do_not_go_across_runs_of_blocks() -> None:
    spans = [(c.first, c.count) for c in plan_layers.even_cuts([3, 2, 4], 1)]
    assert spans == [(0, 3), (3, 2), (5, 4)]
    assert [(c.first, c.count) for c in plan_layers.even_cuts([3, 2], 3)] == [(0, 2), (2, 1), (3, 2)]


@pytest.mark.parametrize("sram", [65536, 98304, 131072, 262144])
def test_sram_plan_is_valid_and_within_the_arch(sram: int) -> None:
    net = Net((3, 48, 64), 1)
    result = tiled(net, backbone(net), small_arch(sram))
    rows = [
        {"name": b.name, "lower": b.lower, "upper": b.upper, "size": align(b.size), "offset": a}
        for b, a in result.sram_blocks[0]
    ]
    check_plan(rows, sram, "SRAM")


def test_more_sram_means_less_in_the_pool() -> None:
    counts = []
    for sram in (65536, 131072, 2097152):
        net = Net((3, 48, 64), 1)
        counts.append(len(tiled(net, backbone(net), small_arch(sram)).partitions[0].residency.pool))
    assert counts[0] >= counts[1] >= counts[2] == 3


def test_streaming_layer_loads_the_next_band_before_it_computes_this_one() -> None:
    net = Net((32, 64, 32), 2)
    net.conv("x", "input", 32, (3, 3), pads=(1, 1, 1, 1))
    result = tiled(net, ["x"], small_arch(65536))
    names = [i.name for i in result.partitions[0].instructions]
    first = names.index("CONV")
    assert names[:first].count("LOAD") == 3  # parameters, band 0, band 1
    assert "STORE" in names[first : first + 4]
    assert len(result.partitions[0].plans[0].work.bands) >= 4


def test_parameters_are_prefetched_while_earlier_layers_run() -> None:
    net = Net((16, 16, 16), 3)
    tensor = "input"
    for i in range(6):
        tensor = net.conv(f"c{i}", tensor, 32, (3, 3), pads=(1, 1, 1, 1))
    result = tiled(net, [tensor], load("nf-b4096"))
    plans = result.partitions[0].plans
    # c1 to c5: 9216 bytes of weights, 448 of the rest, 302 cycles at 32 bytes a cycle after a latency of 64; four times that, 1464, is to lie between.
    # c1 to c5 take 32 + 32 groups of pixels * 9 taps * 2 * 2 blocks = 1184 cycles, c0 half the work: two layers before are enough, one is not.
    assert [p.early for p in plans] == [0, 0, 0, 1, 2, 3]
    instructions = result.partitions[0].instructions
    for index in range(1, 6):
        loaded = min(n for n, i in enumerate(instructions) if i.name == "LOAD" and i.layer == index)
        assert loaded < next(n for n, i in enumerate(instructions) if i.name == "CONV" and i.layer == index - 1)


def test_neighbours_of_a_long_layer_are_banded_too() -> None:
    net = Net((16, 64, 64), 4)
    net.conv("point", "input", 16, (1, 1))
    net.conv("deep", "point", 16, (7, 7), pads=(3, 3, 3, 3), group=16)  # 49 taps on the vector engine
    net.conv("end", "deep", 16, (1, 1))
    result = tiled(net, ["end"], load("nf-b4096"))
    assert [len(p.work.bands) for p in result.partitions[0].plans] == [8, 8, 8]


def residual(net: Net, late_reader: bool) -> list[str]:
    """x, y = x + conv(conv(x)); with a late reader x is still needed after the sum, which then is a layer of its own."""
    net.conv("x", "input", 16, (1, 1))
    net.conv("w", "x", 16, (1, 1))
    net.conv("c", "w", 16, (3, 3), pads=(1, 1, 1, 1))
    net.pair("Add", "y", "x", "c")
    net.conv("end", "y", 16, (1, 1))
    if late_reader:
        net.conv("again", "c", 16, (1, 1))
        net.conv("late", "x", 16, (1, 1))
        return ["end", "late", "again"]
    return ["end"]


@pytest.mark.parametrize("sram", [65536, 2097152])
def test_sum_takes_the_place_of_an_operand_that_is_read_for_the_last_time(sram: int) -> None:
    net = Net((16, 80, 80), 5)
    result = tiled(net, residual(net, False), small_arch(sram))
    places, residency = result.lanes.places, result.partitions[0].residency
    assert residency.holder(places["y"].storage) is places["x"].storage  # in SRAM, or both in the pool
    blocks = {b.name for b, _ in result.sram_blocks[0]}
    assert ("x" in blocks and "y" not in blocks) if sram > 65536 else "x" not in blocks


def test_operand_that_is_read_later_stays() -> None:
    net = Net((16, 40, 40), 5)
    result = tiled(net, residual(net, True), load("nf-b4096"))
    places, residency = result.lanes.places, result.partitions[0].residency
    assert residency.holder(places["y"].storage) is places["y"].storage


def tiny_yolo(size: int) -> tuple[Net, list[str]]:
    """The shape of a tiny YOLOv3: maps and weights larger than a small SRAM, 4.5 MiB of weights in one layer."""
    net, tensor, route = Net((3, size, size)), "input", ""
    for i, channels in enumerate((16, 32, 64, 128, 256)):
        route = net.conv(f"c{i}", tensor, channels, (3, 3), pads=(1, 1, 1, 1))
        tensor = net.pool("MaxPool", f"p{i}", route, (2, 2), strides=[2, 2])
    tensor = net.conv("c5", tensor, 512, (3, 3), pads=(1, 1, 1, 1))
    tensor = net.conv("c6", tensor, 1024, (3, 3), pads=(1, 1, 1, 1))
    tensor = net.conv("c7", tensor, 256, (1, 1))
    net.conv("o1", net.conv("c8", tensor, 512, (3, 3), pads=(1, 1, 1, 1)), 255, (1, 1))
    attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    sizes = list(net.shape(route)[1:])
    net.add("Resize", "up", [net.conv("c9", tensor, 128, (1, 1))], sizes=sizes, scales=[2.0, 2.0], **attrs)
    net.add("Concat", "joined", ["up", route], axis=1)
    net.conv("o2", net.conv("c10", "joined", 256, (3, 3), pads=(1, 1, 1, 1)), 255, (1, 1))
    return net, ["o1", "o2"]


@pytest.mark.parametrize(
    ("size", "arch", "least"), [(416, "nf-b4096", 0.7), (416, "nf-b1024", 0.8), (1280, "nf-b1024", 0.8)]
)
def test_large_maps_and_weights_stream_and_keep_the_array_busy(size: int, arch: str, least: float) -> None:
    """A DPU reaches 56 to 62 % on tiny-YOLOv3 (DESIGN section 5)."""
    net, outputs = tiny_yolo(size)
    compiled = generate(net.finish(*outputs), load(arch))
    assert compiled.performance["utilisation"] > least
    assert any(layer["cuts"] > 1 for layer in compiled.performance["layers"])
