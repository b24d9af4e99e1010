"""Small networks of several layers: residency, streaming, views, shuffles, several partitions; and the `.bin` and `meta` they end in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend import check, run_and_compare, small_arch
from interpreter import Machine
from networks_int8 import Net, expected

from npuforge.compile.ir.errors import ArchError, FormatError, VerifyError
from npuforge.compile.ir.graph import Activation, Node, Partition, TensorInfo
from npuforge.compile.steps.generate import generate
from npuforge.compile.steps.write_bin import to_bytes, write_bin
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.isa.binfile import parse_bin, read_bin

ARCHS = ["nf-b1024", "nf-b4096", 131072, 65536]


def arch_of(which: str | int) -> Any:
    return small_arch(which) if isinstance(which, int) else load(which)


def backbone(net: Net) -> list[str]:
    """Image, residual blocks, down-sampling, pyramid with up-sampling and concat, two heads."""
    net.conv("stem", "input", 16, (3, 3), (2, 2), (1, 1, 1, 1), stage="table")
    net.conv("dw1", "stem", 16, (3, 3), (1, 1), (1, 1, 1, 1), group=16)
    net.conv("pw1", "dw1", 16, (1, 1))
    net.pair("Add", "res1", "stem", "pw1", "direct")
    net.conv("down1", "res1", 40, (3, 3), (2, 2), (1, 1, 1, 1), stage="table")
    net.conv("down2", "down1", 52, (3, 3), (2, 2), (1, 1, 1, 1))
    net.pool("MaxPool", "spp", "down2", (5, 5), pads=[2, 2, 2, 2])
    net.add("Concat", "wide", ["down2", "spp"], axis=1)
    net.conv("neck", "wide", 40, (1, 1), stage="table")
    net.add(
        "Resize",
        "up",
        ["neck"],
        sizes=list(net.shape("down1")[1:]),
        scales=[2.0, 2.0],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    net.add("Concat", "joined", ["up", "down1"], axis=1)
    net.conv("head1", "joined", 21, (3, 3), pads=(1, 1, 1, 1))
    net.conv("head2", "neck", 21, (1, 1))
    return ["head1", "head2"]


@pytest.mark.parametrize("which", ARCHS)
def test_backbone_and_pyramid(which: str | int) -> None:
    net = Net((3, 48, 64), 1)
    compiled = check(net, *backbone(net), arch=arch_of(which))
    assert compiled.memory is not None and compiled.memory.size <= 1.05 * compiled.memory.bound
    pooled = len(compiled.tiled.partitions[0].residency.pool)  # type: ignore[union-attr]
    assert pooled == 3 if which == "nf-b4096" else pooled >= 3  # image and two heads only


@pytest.mark.parametrize("which", ARCHS)
def test_shuffle_units(which: str | int) -> None:
    """ShuffleNet: split, convolve one half, concat, shuffle, three times; 29 channels do not fill blocks."""
    net = Net((5, 20, 16), 2)
    tensor = net.conv("start", "input", 58, (1, 1))
    for unit in range(3):
        left = net.add("ChannelGather", f"left{unit}", [tensor], indices=list(range(29)))
        right = net.add("ChannelGather", f"right{unit}", [tensor], indices=list(range(29, 58)))
        right = net.conv(f"a{unit}", right, 29, (1, 1), stage="table")
        right = net.conv(f"b{unit}", right, 29, (3, 3), pads=(1, 1, 1, 1), group=29)
        right = net.conv(f"c{unit}", right, 29, (1, 1))
        joined = net.add("Concat", f"joined{unit}", [left, right], axis=1)
        order = [i // 2 + 29 * (i % 2) for i in range(58)]
        tensor = net.add("ChannelGather", f"shuffled{unit}", [joined], indices=order)
    net.conv("end", tensor, 20, (3, 3), (2, 2))
    compiled = check(net, "end", arch=arch_of(which))
    places = compiled.tiled.lanes.places  # type: ignore[union-attr]
    # Both halves of a shuffled concat are whole blocks side by side: 29 channels in 2 blocks; a part that feeds both lies in two runs.
    assert [places[f"right{unit}"].map.blocks for unit in (1, 2)] == [2, 2]
    assert [places[f"left{unit}"].map.blocks for unit in (1, 2)] == [2, 2]
    assert any(len(p.runs) == 2 for p in places.values())


@pytest.mark.parametrize("which", ARCHS)
def test_squeeze_excite_and_transposed_convolution(which: str | int) -> None:
    net = Net((24, 12, 10), 3)
    net.conv("x", "input", 24, (3, 3), pads=(1, 1, 1, 1))
    net.pool("AveragePool", "squeeze", "x", (12, 10))
    net.conv("down", "squeeze", 6, (1, 1))
    net.conv("up", "down", 24, (1, 1), stage="table")
    net.pair("Mul", "gated", "x", "up", "direct")
    net.conv("deconv", "gated", 19, (4, 4), (2, 2), (1, 1, 1, 1), transpose=True, stage="table")
    net.affine("act", "deconv", "table")
    check(net, "act", arch=arch_of(which))


def test_nested_concat_shares_one_buffer_without_copies() -> None:
    net = Net((6, 8, 8), 4)
    a, b, c = (net.conv(name, "input", 16, (1, 1)) for name in "abc")
    net.add("Concat", "ab", [a, b], axis=1)
    net.conv("x", "ab", 16, (1, 1))
    net.add("Concat", "abcx", ["ab", c, "x"], axis=1)
    net.conv("y", "abcx", 16, (1, 1))
    compiled = check(net, "y")
    assert [layer["op"] for layer in compiled.meta["layers"]] == ["Conv"] * 5
    storages = {compiled.tiled.lanes.places[t].storage for t in ("a", "b", "c", "ab", "x", "abcx")}  # type: ignore[union-attr]
    assert len(storages) == 1


def test_weights_larger_than_the_memory_come_in_cuts() -> None:
    net = Net((160, 6, 6), 5)
    net.conv("x", "input", 160, (3, 3), pads=(1, 1, 1, 1))  # 225 KiB of weights
    net.conv("y", "x", 96, (3, 3), pads=(1, 1, 1, 1))
    compiled = check(net, "y", arch=small_arch(131072))
    assert max(layer["cuts"] for layer in compiled.performance["layers"]) > 1


def test_layer_that_cannot_fit_is_refused_by_name() -> None:
    net = Net((1024, 5, 5), 6)
    net.conv("enormous", "input", 16, (5, 5))
    with pytest.raises(ArchError, match=r"enormous needs at least \d+ bytes of SRAM"):
        generate(net.finish("enormous"), small_arch(65536))


def two_partitions(net: Net) -> None:
    """NPU, CPU (a sigmoid on one output), NPU."""
    net.conv("first", "input", 20, (3, 3))
    net.conv("second", "first", 24, (1, 1))
    graph = net.graph
    graph.nodes.insert(1, Node("sigmoid", "Sigmoid", ["first"], ["gate"], {}, Activation(), ["sigmoid"], "CPU"))
    graph.tensors["gate"] = TensorInfo("gate", graph.tensors["first"].shape)
    net._quantise("gate", 20)
    net.conv("third", "gate", 24, (1, 1))
    net.pair("Add", "y", "second", "third")
    graph.outputs = ["y"]
    graph.partitions = [
        Partition("NPU", ["first"], ["input"], ["first"]),
        Partition("CPU", ["sigmoid"], ["first"], ["gate"]),
        Partition("NPU", ["second", "third", "y"], ["first", "gate"], ["y"]),
    ]


def test_two_npu_partitions_with_a_cpu_partition_between() -> None:
    net = Net((9, 10, 8), 7)
    two_partitions(net)
    graph, qgraph = net.graph, net.qgraph
    graph.constants["unused"] = np.zeros(3, np.float32)
    compiled = generate(qgraph, load("nf-b1024"))
    machine = Machine(to_bytes(compiled))
    feeds = net.feeds()
    machine.write_tensor("input", feeds["input"][0])
    gate = net.random.integers(-128, 128, (1, *net.shape("gate")[1:], 20)).astype(np.int8)
    node = graph.nodes.pop(1)
    values = expected(qgraph, feeds | {"gate": gate})
    graph.nodes.insert(1, node)
    parts = machine.meta["partitions"]
    assert [p["device"] for p in parts] == ["NPU", "CPU", "NPU"]
    assert parts[2]["first_instruction"] == parts[0]["instruction_count"]
    machine.run(parts[0])
    np.testing.assert_array_equal(machine.read_tensor("first"), values["first"][0])
    machine.write_tensor("gate", gate[0])
    machine.run(parts[2])
    np.testing.assert_array_equal(machine.read_tensor("y"), values["y"][0])
    assert machine.meta["partitions"][1]["nodes"][0]["op"] == "Sigmoid"


def test_bin_has_the_sections_and_the_meta_of_the_contract(tmp_path: Path) -> None:
    net = Net((3, 16, 16), 8)
    net.conv("a", "input", 20, (3, 3), stage="table")
    net.conv("b", "a", 20, (3, 3), group=20)
    qgraph = net.finish("b")
    compiled = generate(qgraph, load("nf-b4096"))
    path = tmp_path / "model.bin"
    write_bin(compiled, path)
    parsed = read_bin(path)
    names = set(parsed.sections)
    assert {"meta", "instructions", "pool"} <= names
    assert {f"L0000_{s}" for s in ("weight", "bias", "requant", "table", "pad")} <= names
    assert parsed["L0000_bias"].array().tolist()[:20] == net.qgraph.params["a"].bias.tolist()  # type: ignore[union-attr]
    meta = parsed.json()
    for key in ("format", "tool", "name", "arch", "fingerprint", "mode", "pool_size", "inputs", "outputs", "tensors"):
        assert key in meta
    assert meta["fingerprint"] == load("nf-b4096").fingerprint and meta["format"] == 1
    image = meta["tensors"]["input"]["npu"]
    assert image["pixel_stride"] == 3 and image["lanes"] == [0, 1, 2] and image["row_stride"] == 48
    assert meta["sections"]["L0000_weight"] == "a"
    count = len(parsed["instructions"].data) // 128
    assert meta["partitions"] == [
        {"device": "NPU", "inputs": ["input"], "outputs": ["b"], "first_instruction": 0, "instruction_count": count}
    ]
    for layer in meta["layers"]:
        assert 0 <= layer["first_instruction"] <= layer["last_instruction"] < count
        assert layer["trace"]["after_instruction"] <= count
    plan = parsed.json("pool")
    assert plan["size"] == meta["pool_size"] and {b["name"] for b in plan["buffers"]} >= {"input", "b"}


def test_same_network_gives_the_same_bytes() -> None:
    images = []
    for _ in range(2):
        net = Net((3, 48, 64), 1)
        outputs = backbone(net)
        images.append(to_bytes(generate(net.finish(*outputs), small_arch(131072))))
    assert images[0] == images[1]


def test_write_to_a_missing_folder_is_a_typed_error(tmp_path: Path) -> None:
    net = Net((3, 16, 16), 9)
    net.conv("a", "input", 8, (3, 3))
    compiled = generate(net.finish("a"), load("nf-b1024"))
    with pytest.raises(FormatError, match="cannot be written"):
        write_bin(compiled, tmp_path / "absent" / "model.bin")


def test_one_flipped_parameter_bit_shows_in_the_comparison() -> None:
    """The comparison can fail: a weight changed after compilation gives other bits."""
    net = Net((8, 9, 9), 10)
    net.conv("a", "input", 16, (3, 3))
    qgraph = net.finish("a")
    feeds = net.feeds()
    values = {k: v[0] for k, v in expected(qgraph, feeds).items()}
    compiled = generate(qgraph, load("nf-b1024"))
    image = bytearray(to_bytes(compiled))
    parsed = parse_bin(bytes(image))
    image[parsed["L0000_weight"].offset] ^= 0x40
    from npuforge.hw_kernels.isa.binfile import refresh_crc

    machine = Machine(refresh_crc(bytes(image)))
    machine.write_tensor("input", feeds["input"][0])
    with pytest.raises(AssertionError, match="L0000 a"):
        run_and_compare(machine, values)


def test_node_without_parameters_is_a_verifier_error_with_its_name() -> None:
    net = Net((8, 9, 9), 11)
    net.conv("lonely", "input", 16, (3, 3))
    qgraph = net.finish("lonely")
    del qgraph.params["lonely"]
    with pytest.raises(VerifyError, match="lonely"):
        generate(qgraph, load("nf-b1024"))


def test_performance_adds_up() -> None:
    net = Net((3, 48, 64), 1)
    compiled = check(net, *backbone(net), arch="nf-b4096")
    figures = compiled.performance
    assert sum(layer["cycles"] for layer in figures["layers"]) <= figures["cycles"]
    assert figures["ddr_bytes"] == sum(layer["ddr_bytes"] for layer in figures["layers"])
    macs = {layer["name"]: layer["macs"] for layer in figures["layers"]}
    assert (
        macs["stem"] == 16 * 27 * 24 * 32 and macs["dw1"] == 16 * 9 * 24 * 32
    )  # the operator's own, not what the fold makes of it
    assert 0 < figures["utilisation"] < 1
    json.dumps(compiled.to_json())
