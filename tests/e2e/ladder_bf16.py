"""The bf16 side of the ladder: numpy lane semantics == `csim` == `sim`, every layer, zero differing bits. Shared by the layer and network tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from ladder import (
    POLICIES,
    Arrays,
    Binary,
    Difference,
    Quantised,
    compare,
    compare_devices,
    csim_pool,
    differing_bits,
    sim_pool,
)

from npuforge.board_runtime import _native
from npuforge.board_runtime.session import Session, TraceRecord
from npuforge.compile.context import Context, Options
from npuforge.compile.ir.image import prepare
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.compile.pipeline import FRONT_END, QUANTISER, run_steps
from npuforge.compile.steps.generate import generate
from npuforge.hw_kernels.arch import Arch, load
from npuforge.quant.executor import quantise

ARCHS = ("nf-b1024-bf16", "nf-b4096-bf16")
Devices = tuple[tuple[str, int], ...]


def trace(binary: Binary, device: str, threads: int, feeds: Arrays) -> tuple[Arrays, list[TraceRecord]]:
    """The outputs, and all layers, of one run on float inputs in the ONNX layout."""
    return Session(binary.image, device=device, threads=threads).trace(feeds)


@dataclass
class Ladder(Quantised):
    """A bf16 graph on one arch."""

    arch: Arch = field(default_factory=lambda: load(ARCHS[0]))

    def binary(self) -> Binary:
        """Compiled, with all verifiers."""
        return Binary.of(generate(self.qgraph, self.arch, self.preprocess))

    def climb(self, binary: Binary, feeds: Arrays, devices: Devices) -> list[Difference]:
        """Every device and number of threads against the numpy semantics, layers that the compiler made included, and against the first device."""
        executor = LaneExecutor(self.qgraph, self.arch)
        bits, floats = executor.run_all({name: self._channels_first(name, value) for name, value in feeds.items()})
        wanted = [executor.written[layer["id"]] for layer in binary.meta["layers"]]
        found: list[Difference] = []
        first: list[TraceRecord] | None = None
        for device, threads in devices:
            what = f"{device} on {threads} threads"
            outputs, records = trace(binary, device, threads, feeds)
            first = first or records
            found += compare(what, [replace(r, tensor=executor.written[r.id]) for r in records], bits, wanted)
            found += compare_devices(first, records, f"{devices[0][0]} and {what}")
            for name, value in outputs.items():
                made_here = name in bits  # else by the CPU partition, in float
                if made_here and not np.array_equal(value, floats[name], equal_nan=True):
                    found.append(Difference(what, f"output {name}", int((value != floats[name]).sum())))
        return found

    def _channels_first(self, name: str, value: np.ndarray) -> np.ndarray:
        """A float feed as N, C, H, W, whatever the model's layout."""
        return value.transpose(0, 3, 1, 2) if self.qgraph.graph.input_layout.get(name) == "NHWC" else value

    def compare_pools(self, binary: Binary, feeds: Arrays) -> list[Difference]:
        """The first NPU partition without tracing: one pool under every token policy and on every instruction set."""
        before = np.zeros(binary.meta["pool_size"], np.uint8)
        for name, value in feeds.items():
            place = binary.meta["tensors"][name]["npu"]
            before[_addresses(place)] = quantise(value, self.qgraph.quant[name])[0][..., None].view(np.uint8)
        given = before.tobytes()
        pools = {f"csim {p}": csim_pool(binary.image, given, p, 7, 0xA5) for p in POLICIES}
        for level in _native.sim.levels():
            for threads in (1, 2):
                pools[f"sim {level} on {threads} threads"] = sim_pool(binary.image, binary.meta, given, threads, level)
        first = np.frombuffer(next(iter(pools.values())), np.int8)
        return [
            Difference(name, "pool", bits)
            for name, pool in pools.items()
            if (bits := differing_bits(np.frombuffer(pool, np.int8), first))
        ]


def _addresses(place: dict[str, Any]) -> np.ndarray:
    """Pool address of both bytes of every value [H, W, C, 2] of a tensor, as `meta` has it."""
    rows = place["offset"] + np.arange(place["h"]) * place["row_stride"]
    pixels = rows[:, None] + np.arange(place["w"]) * place["pixel_stride"]
    lanes = 2 * np.asarray(place["lanes"])
    return np.asarray(pixels[:, :, None, None] + lanes[:, None] + np.arange(2))


def network(model: Path, preset: str | Path, arch: str) -> Ladder:
    """A model through import and rounding to bf16, without calibration images."""
    ctx = Context(Options(model, load(arch), Path(), preprocess=load_preprocess(preset), precision="bf16"))
    qgraph = run_steps(FRONT_END + QUANTISER, None, ctx)
    return Ladder(qgraph, ctx.preprocess, load(arch))


def image_feed(image: Path, ladder: Ladder) -> Arrays:
    """An image file as the float tensor that the network takes, in the ONNX layout."""
    return {ladder.qgraph.graph.inputs[0]: prepare(image, ladder.preprocess)[1]}
