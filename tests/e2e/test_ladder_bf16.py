"""bf16 on the ladder: drawn layers of every engine function, and whole networks. numpy == csim == sim (every instruction set), zero differing bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from ladder import DATA
from ladder_bf16 import ARCHS, Ladder, image_feed, network, trace
from ladder_layers import Case, hardware
from layer_strategies import CASES
from test_ladder_networks import NETWORKS, absent, images

from npuforge.compile.ir.graph import Graph, Node, Partition, TensorInfo
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.hw_kernels.arch import Arch, from_json, load
from npuforge.quant.bf16 import quantize_bf16

COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate),
}
SPECIAL = np.array([np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3e38, -3e38, -0.0], np.float32)
DEVICES = (("csim", 1), ("sim", 1), ("sim", 2))


def with_bf16(arch: Arch) -> Arch:
    return from_json(arch.to_json() | {"features": ["bf16"]})


def inputs(case: Case, kind: str) -> dict[str, np.ndarray]:
    """Ordinary values; or some that are tiny, huge, infinite, NaN."""
    result = {}
    for name in case.graph.inputs:
        shape = case.graph.tensors[name].shape
        value = case.random.normal(0.2, 1.5, shape).astype(np.float32)
        if kind == "tiny":
            value *= np.float32(2.0**-60)
        if kind == "special":
            value = np.where(case.random.random(shape) < 0.02, case.random.choice(SPECIAL, shape), value)
        result[name] = value
    return result


def climb_case(case: Case) -> list[str]:
    ladder = Ladder(quantize_bf16(case.graph), case.preprocess or Preprocess(), with_bf16(hardware(case.arch)))
    binary = ladder.binary()
    found = []
    for kind in ("ordinary", "tiny", "special"):
        feeds = inputs(case, kind)
        found += [f"{kind}: {d}" for d in ladder.climb(binary, feeds, DEVICES) + ladder.compare_pools(binary, feeds)]
    return found


@pytest.mark.parametrize("engine", CASES)
def test_drawn_layers(engine: str) -> None:
    drawn(engine, 5, derandomize=True)


@pytest.mark.full
@pytest.mark.parametrize("engine", CASES)
def test_many_drawn_layers(engine: str) -> None:
    drawn(engine, 100, print_blob=True)


def drawn(engine: str, examples: int, **options: Any) -> None:
    @settings(**COMMON, max_examples=examples, **options)
    @given(CASES[engine]())
    def holds(case: Case) -> None:
        found = climb_case(case)
        assert not found, f"{case}\n" + "\n".join(found)

    holds()


def test_a_copy_into_other_lanes_makes_plus_zero_of_minus_zero() -> None:
    """The copy is a convolution, whose sum starts at +0; all other values stay, NaN and infinities included, and the view it was made of keeps -0."""
    nodes = [
        Node("picked", "ChannelGather", ["input"], ["picked"], {"indices": [33, 7]}, device="NPU"),
        Node("joined", "Concat", ["picked", "input"], ["joined"], {"axis": 1}, device="NPU"),
    ]
    tensors = {
        name: TensorInfo(name, (1, channels, 1, 4)) for name, channels in (("input", 40), ("picked", 2), ("joined", 42))
    }
    partition = Partition("NPU", ["picked", "joined"], ["input"], ["joined"])
    graph = Graph("copy", nodes, tensors, {}, ["input"], ["joined"], 13, partitions=[partition])
    ladder = Ladder(quantize_bf16(graph), Preprocess(), load(ARCHS[0]))
    given = np.ones((1, 40, 1, 4), np.float32)
    given[0, 33], given[0, 7] = [-0.0, np.nan, np.inf, -2.0], [1e-40, -1e-40, -np.inf, 3.0]
    binary = ladder.binary()
    assert ladder.climb(binary, {"input": given}, DEVICES) == []
    executor = LaneExecutor(ladder.qgraph, ladder.arch)
    bits, _ = executor.run_all({"input": given})
    records = trace(binary, "csim", 1, {"input": given})[1]
    (copy,) = (r.data[0, 0].view(np.uint16).T for r in records if executor.written[r.id] == "picked#lanes0")
    wanted = [[0x0000, 0x7FC0, 0x7F80, 0xC000], [0x0000, 0x0000, 0xFF80, 0x4040]]
    np.testing.assert_array_equal(copy, wanted)
    np.testing.assert_array_equal(bits["picked"][0, 0].T, [[0x8000, *wanted[0][1:]], [0x0000, 0x8000, *wanted[1][2:]]])


def climb_network(name: str, arch: str, devices: tuple[tuple[str, int], ...]) -> None:
    model, preset, _, least = NETWORKS[name]
    ladder = network(model, preset, arch)
    binary = ladder.binary()
    assert len({layer["tensor"] for layer in binary.meta["layers"]} & set(ladder.npu_tensors)) >= least
    found = ladder.climb(binary, image_feed(images(1)[0], ladder), devices)
    assert not found, "\n".join(map(str, found))


@pytest.mark.data
@absent
def test_yolo_fastest_on_the_simulator() -> None:
    assert (DATA / "models").is_dir()
    climb_network("yolo_fastest_1.1", "nf-b4096-bf16", (("sim", 1), ("sim", 2)))


@pytest.mark.full
@pytest.mark.data
@absent
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network(name: str, arch: str) -> None:
    climb_network(name, arch, DEVICES)
