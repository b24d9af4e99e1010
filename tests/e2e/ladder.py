"""The bit-exact ladder: numpy integer semantics == `csim` == `sim`, every layer, zero differing bits. Shared by the ladder's and the mutations' tests.

`compare` is what decides; it has no tolerance, and `Difference` says which layer of which device differs in how many bits. Layers that stay on
chip are read at their trace points. Every tensor that an NPU node writes must be seen in the trace, so that nothing passes by not being looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.board_runtime import _native
from npuforge.board_runtime.session import Session, TraceRecord
from npuforge.compile.context import Context, Options
from npuforge.compile.ir.image import prepare
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.pipeline import FRONT_END, QUANTISER, run_steps
from npuforge.compile.steps.generate import CompiledProgram, generate
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels.arch import Arch, load
from npuforge.hw_kernels.isa.binfile import parse_bin
from npuforge.quant.executor import IntegerExecutor
from npuforge.quant.regions import npu_nodes

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
IMAGES = DATA / "coco128" / "images" / "train2017"
ARCHS = ("nf-b1024", "nf-b4096")
POLICIES = ("program", "load-first", "store-last", "random")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """One layer that is not what the integer semantics say."""

    device: str
    layer: str
    bits: int
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.device}: {self.layer}: {self.bits} differing bits {self.detail}".rstrip()


@dataclass
class Quantised:
    """An integer graph and how its input is prepared."""

    qgraph: QGraph
    preprocess: Preprocess

    def feed(self, image: Path) -> np.ndarray:
        """An image file as the int8 [1, H, W, C] that the NPU reads, and that `Session` takes as it is."""
        pixels, tensor, _ = prepare(image, self.preprocess)
        name = self.qgraph.graph.inputs[0]
        quant = self.qgraph.quant[name]
        nchw = tensor.transpose(0, 3, 1, 2) if self.qgraph.graph.input_layout.get(name) == "NHWC" else tensor
        given = pixels[np.newaxis] if quant.image_mean is not None else nchw
        return IntegerExecutor(self.qgraph).quantise_input(name, given)

    @cached_property
    def npu_tensors(self) -> list[str]:
        """What the NPU's nodes write, in order."""
        return [n.outputs[0] for n in npu_nodes(self.qgraph.graph)]

    def integers(self, feeds: Arrays) -> Arrays:
        """Every NPU tensor by the normative numpy semantics."""
        return IntegerExecutor(self.qgraph).run(feeds)


def quantise_network(model: Path, preset: str | Path, mode: str, images: list[Path]) -> Quantised:
    """Import to integer graph through the pipeline's own steps."""
    record = load_preprocess(preset)
    options = Options(model, load(ARCHS[0]), Path(), preprocess=record, calibration=images, mode=mode)
    ctx = Context(options)
    return Quantised(run_steps(FRONT_END + QUANTISER, None, ctx), ctx.preprocess)


class Binary:
    """A `.bin` in memory: all that the devices see."""

    def __init__(self, image: bytes, meta: dict[str, Any]) -> None:
        self.image, self.meta = image, meta

    @classmethod
    def of(cls, compiled: CompiledProgram) -> Binary:
        """The file of a compiled network."""
        return cls(to_bytes(compiled), json.loads(json.dumps(compiled.meta)))

    def trace(self, device: str, threads: int, feeds: Arrays) -> list[TraceRecord]:
        """All layers of one run on int8 [1, H, W, C] inputs."""
        session = Session(self.image, device=device, threads=threads)
        records: list[dict[str, Any]] = []
        session.native.run([feeds[spec.name] for spec in session.inputs], nhwc=True, trace=records)
        return [TraceRecord(**record) for record in records]


def compile_graph(quantised: Quantised, arch: str | Arch) -> Binary:
    """The back end with all its verifiers."""
    hardware = load(arch) if isinstance(arch, str) else arch
    return Binary.of(generate(quantised.qgraph, hardware, quantised.preprocess))


def differing_bits(a: np.ndarray, b: np.ndarray) -> int:
    """How many bits of two int8 arrays differ; all of them where the shapes do."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return 8 * max(a.size, b.size, 1)
    return int(np.bitwise_count(a.view(np.uint8) ^ b.view(np.uint8)).sum())


def compare(device: str, records: Iterable[TraceRecord], expected: Arrays, wanted: Iterable[str]) -> list[Difference]:
    """Every wanted tensor is in the trace with exactly the expected bits, and every pad lane of every layer is zero."""
    found: list[Difference] = []
    missing = set(wanted)
    for record in records:
        layer = f"{record.id} {record.name} ({record.tensor})"
        if record.pad_lane_errors:
            found.append(Difference(device, layer, record.pad_lane_errors, "bytes of pad lanes are not zero"))
        if record.tensor not in expected:
            continue  # made by the compiler: its bits show in what reads it, and sim and csim are compared on it
        missing.discard(record.tensor)
        bits = differing_bits(record.data, expected[record.tensor])
        if bits:
            found.append(Difference(device, layer, bits))
    return found + [Difference(device, tensor, 1, "is not in the trace") for tensor in sorted(missing)]


def compare_devices(first: list[TraceRecord], second: list[TraceRecord], names: str) -> list[Difference]:
    """The same layers in the same order with the same bits, those made by the compiler included."""
    if [r.id for r in first] != [r.id for r in second]:
        return [Difference(names, "layer list", 1, f"{len(first)} and {len(second)} layers")]
    return [
        Difference(names, f"{a.id} {a.name}", bits)
        for a, b in zip(first, second, strict=True)
        if (bits := differing_bits(a.data, b.data))
    ]


def climb(
    quantised: Quantised, binary: Binary, feeds: Arrays, threads: Iterable[int] = (1, 2), expected: Arrays | None = None
) -> list[Difference]:
    """The whole ladder for one input: integers, csim, sim on each number of threads."""
    values = quantised.integers(feeds) if expected is None else expected
    golden = binary.trace("csim", 1, feeds)
    wanted = visible(quantised, binary)
    found = compare("csim", golden, values, wanted)
    for count in threads:
        records = binary.trace("sim", count, feeds)
        found += compare(f"sim on {count} threads", records, values, wanted)
        found += compare_devices(golden, records, f"csim and sim on {count} threads")
    return found


def visible(quantised: Quantised, binary: Binary) -> list[str]:
    """NPU tensors that must be in the trace: all but views of channels of another tensor, which are free lane maps and never computed."""
    nodes = {n.outputs[0]: n for n in npu_nodes(quantised.qgraph.graph)}
    traced = {layer["tensor"] for layer in binary.meta["layers"]}
    moves = ("ChannelGather", "Concat", "SpaceToDepth")
    return [t for t in quantised.npu_tensors if nodes[t].op not in moves or t in traced]


def write_inputs(binary: Binary, feeds: Arrays) -> bytes:
    """The pool before a run with one NPU partition: zero but for the inputs, at the places that `meta` names."""
    pool = np.zeros(binary.meta["pool_size"], np.int8)
    for name, value in feeds.items():
        pool[_places(binary, name)] = value[0]
    return pool.tobytes()


def _places(binary: Binary, name: str) -> np.ndarray:
    """Pool address of every value [H, W, C] of a tensor, as `meta` has it."""
    place = binary.meta["tensors"][name]["npu"]
    rows = place["offset"] + np.arange(place["h"]) * place["row_stride"]
    columns = np.arange(place["w"]) * place["pixel_stride"]
    addresses: np.ndarray = rows[:, None, None] + columns[None, :, None] + np.asarray(place["lanes"])
    return addresses


def npu_partitions(meta: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(first instruction, count) of each."""
    for part in meta["partitions"]:
        if part["device"] == "NPU":
            yield part["first_instruction"], part["instruction_count"]


def csim_pool(image: bytes, pool: bytes, policy: str = "program", seed: int = 1, sram_fill: int = 0) -> bytes:
    """The pool after csim has run partition 0 of a `.bin`."""
    memory = bytearray(pool)
    _native.csim_run_partition(image, 0, memory, policy, seed, sram_fill)
    return bytes(memory)


def sim_pool(image: bytes, meta: dict[str, Any], pool: bytes, threads: int = 1, level: str = "auto") -> bytes:
    """The pool after sim has run partition 0 of a `.bin` with `threads` threads and instruction set `level`."""
    instructions = parse_bin(image)["instructions"].data
    partitions = list(npu_partitions(meta))
    size, sram = meta["pool_size"], meta["arch"]["sram_bytes"]
    device = _native.sim.Simulation(instructions, image, size, sram, threads, level, partitions)
    after: bytes = device.run(pool)[0]
    return after


def read_tensor(binary: Binary, pool: bytes, name: str) -> np.ndarray:
    """int8 [1, H, W, C] of a tensor at the border of the NPU partition."""
    return np.frombuffer(pool, np.int8)[_places(binary, name)][np.newaxis]


def compare_pools(binary: Binary, feeds: Arrays, expected: Arrays) -> list[Difference]:
    """The first NPU partition: the whole pool after csim under every token policy and after sim with every instruction set and no tracing is the
    same, and the outputs in it are the expected ones."""
    before = write_inputs(binary, feeds)
    golden = csim_pool(binary.image, before)
    others = {f"csim {p}": csim_pool(binary.image, before, p, 7, 0xA5) for p in POLICIES}
    for level in _native.sim.levels():
        for threads in (1, 2):
            others[f"sim {level} on {threads} threads"] = sim_pool(binary.image, binary.meta, before, threads, level)
    first = np.frombuffer(golden, np.int8)
    found = [
        Difference(name, "pool", bits)
        for name, pool in others.items()
        if (bits := differing_bits(np.frombuffer(pool, np.int8), first))
    ]
    part = next(p for p in binary.meta["partitions"] if p["device"] == "NPU")
    for name in part["outputs"]:
        bits = differing_bits(read_tensor(binary, golden, name), expected[name])
        found += [Difference("csim", f"output {name}", bits)] if bits else []
    return found
