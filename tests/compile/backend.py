"""Compiles an integer graph and compares every layer's trace point, and the outputs, with the operators' integer semantics, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from interpreter import Machine
from networks_int8 import Net, expected

from npuforge.compile.steps.generate import CompiledProgram, generate
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels.arch import Arch, load


def small_arch(sram_bytes: int, like: str = "nf-b1024") -> Arch:
    """An arch of the kit with another SRAM size."""
    return Arch(**{**vars(load(like)), "sram_bytes": sram_bytes, "name": f"{like}-{sram_bytes}"})


def check(net: Net, *outputs: str, arch: str | Arch = "nf-b1024") -> CompiledProgram:
    """Generates (with all verifiers), runs, compares. Returns the program."""
    qgraph = net.finish(*outputs)
    feeds = net.feeds()
    values = expected(qgraph, feeds)
    compiled = generate(qgraph, load(arch) if isinstance(arch, str) else arch)
    machine = Machine(to_bytes(compiled))
    for name, value in feeds.items():
        machine.write_tensor(name, value[0])
    compared = run_and_compare(machine, {k: v[0] for k, v in values.items()})
    for name in outputs:
        np.testing.assert_array_equal(machine.read_tensor(name), values[name][0], err_msg=name)
    assert compared or {n.op for n in qgraph.graph.nodes} == {"ChannelGather"}  # which only renames lanes
    return compiled


def run_and_compare(machine: Machine, values: dict[str, np.ndarray]) -> int:
    """Runs all NPU partitions; every trace point of a tensor in `values` must show its bits, and pad lanes zero. Returns how many."""
    points: dict[int, list[dict[str, Any]]] = {}
    pieces: dict[int, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    gathered: dict[str, np.ndarray] = {}
    for layer in machine.meta["layers"]:
        if layer["trace"]["space"] != "before_sum":
            points.setdefault(layer["trace"]["after_instruction"], []).append(layer)
            continue
        for piece in layer["trace"]["pieces"]:
            pieces.setdefault(piece["after_instruction"], []).append((layer, piece))
    compared = 0

    def hook(index: int) -> None:
        nonlocal compared
        for layer, piece in pieces.get(index, []):
            tensor = layer["tensor"]
            into = gathered.setdefault(tensor, np.zeros_like(values[tensor]))
            assert not machine.read_piece(layer["trace"], piece, into).any(), f"{layer['id']}: pad lanes are not zero"
            if piece is layer["trace"]["pieces"][-1]:
                np.testing.assert_array_equal(into, values[tensor], err_msg=f"{layer['id']} {layer['name']}")
                compared += 1
        for layer in points.get(index, []):
            if layer["tensor"] not in values:  # made by the compiler
                continue
            found, pad = machine.read_trace(layer["trace"])
            np.testing.assert_array_equal(found, values[layer["tensor"]], err_msg=f"{layer['id']} {layer['name']}")
            assert not pad.any(), f"{layer['id']} {layer['name']}: pad lanes are not zero"
            compared += 1

    for partition in machine.meta["partitions"]:
        if partition["device"] == "NPU":
            machine.run(partition, hook)
    return compared
