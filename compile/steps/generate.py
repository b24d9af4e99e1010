"""Step `generate`: final addresses, tokens, instruction words, the `meta` record and the performance summary of a compiled network.

`generate(qgraph, arch, preprocess)` runs the back end from `lanes` on; `run` is its last step alone, for the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.memory_checker import check_plan, check_tokens
from npuforge.compile.steps import lanes as lanes_step
from npuforge.compile.steps import plan_memory as plan_step
from npuforge.compile.steps import tile as tile_step
from npuforge.compile.steps import tokens
from npuforge.compile.steps.layers import align
from npuforge.compile.steps.meta import constant_sections, cpu_node, layer_meta, performance, tensor_meta
from npuforge.compile.steps.plan_memory import MemoryPlan
from npuforge.compile.steps.tile import TileResult
from npuforge.hw_kernels.arch import Arch
from npuforge.hw_kernels.dsl.tile import Buffer
from npuforge.hw_kernels.isa import binfile
from npuforge.hw_kernels.isa.codec import encode
from npuforge.hw_kernels.isa.instructions import INSTRUCTION_BYTES
from npuforge.hw_kernels.timing import schedule

TOOL = "npuforge 0.1.0"
_SECTION_TYPES = {
    "weight": None,
    "bias": binfile.Dtype.INT32,
    "requant": binfile.Dtype.UINT8,
    "table": binfile.Dtype.INT16,
}


@dataclass
class CompiledProgram:
    """Everything that goes into the `.bin`, and what reports need."""

    name: str
    arch: Arch
    meta: dict[str, Any]
    sections: list[tuple[str, binfile.Dtype, bytes]]  # parameters and constants, in file order
    instructions: bytes
    pool: dict[str, Any]
    performance: dict[str, Any]
    tiled: TileResult | None = None
    memory: MemoryPlan | None = None
    file_offsets: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For --dump-steps."""
        return {"meta": self.meta, "pool": self.pool, "performance": self.performance}


def _plans(tiled: TileResult, memory: MemoryPlan) -> dict[str, Any]:
    """The `pool` section: the DDR plan, and for pictures the SRAM plan of every NPU partition (times: instructions)."""
    sram = [part["sram"] for part in tiled.to_json()["partitions"]]
    return {**memory.to_json(), "sram_bytes": tiled.lanes.arch.sram_bytes, "sram": sram}


def _parameter_sections(tiled: TileResult) -> list[tuple[str, binfile.Dtype, bytes]]:
    result = []
    for emitted in tiled.partitions:
        for plan in emitted.plans:
            for name, array in plan.sections:
                result.append((f"{plan.layer.id}_{name}", _dtype(name, array), array.tobytes()))
    return result


def _dtype(name: str, array: np.ndarray) -> binfile.Dtype:
    known = {
        "int8": binfile.Dtype.INT8,
        "int16": binfile.Dtype.INT16,
        "int32": binfile.Dtype.INT32,
        "uint16": binfile.Dtype.BF16,
        "float32": binfile.Dtype.FLOAT32,
    }
    return known.get(array.dtype.name, binfile.Dtype.UINT8)


def run(tiled: TileResult, memory: MemoryPlan, preprocess: Preprocess) -> CompiledProgram:
    """The step."""
    lanes = tiled.lanes
    qgraph, graph, arch = lanes.qgraph, lanes.qgraph.graph, lanes.arch
    constants, extra = constant_sections(graph)
    sections = _parameter_sections(tiled) + extra
    writer = _writer(sections, sum(len(e.instructions) + 1 for e in tiled.partitions) * INSTRUCTION_BYTES)
    offsets = writer.layout()
    address = tiled.sram_address | _group_addresses(tiled, offsets)
    address |= {buffer: memory.address[storage] for storage, buffer in tiled.pool.items()}
    words: list[bytes] = []
    schedules, partitions, layers = [], [], []
    by_index = {e.lowered.index: e for e in tiled.partitions}
    nodes = {n.name: n for n in graph.nodes}
    for index, part in enumerate(graph.partitions):
        record: dict[str, Any] = {"device": part.device, "inputs": list(part.inputs), "outputs": list(part.outputs)}
        if index in by_index:
            emitted = by_index[index]
            stream = tokens.stream(emitted.instructions, address)
            schedules.append(schedule(stream, arch))
            layers += layer_meta(tiled, memory, emitted, len(words))
            record |= {"first_instruction": len(words), "instruction_count": len(stream)}
            words += [encode(name, **fields) for name, fields in stream]
        else:
            record["nodes"] = [cpu_node(nodes[name]) for name in part.nodes]
        partitions.append(record)
    figures = performance(tiled, schedules)
    meta = {
        "format": 1,
        "tool": TOOL,
        "name": graph.name,
        "arch": arch.to_json(),
        "fingerprint": arch.fingerprint,
        "mode": qgraph.mode,
        "pool_size": memory.size,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "tensors": tensor_meta(qgraph, tiled, memory),
        "input_layout": {name: graph.input_layout.get(name, "NCHW") for name in graph.inputs},
        "partitions": partitions,
        "constants": constants,
        "layers": layers,
        "preprocess": preprocess.to_json(),
        "sections": {
            f"{p.layer.id}_{n}": p.layer.name for e in tiled.partitions for p in e.plans for n, _ in p.sections
        },
        "performance": {k: v for k, v in figures.items() if k not in ("layers", "partitions")},
    }
    return CompiledProgram(
        graph.name, arch, meta, sections, b"".join(words), _plans(tiled, memory), figures, tiled, memory, offsets
    )


def _writer(sections: list[tuple[str, binfile.Dtype, bytes]], instruction_bytes: int) -> binfile.BinWriter:
    """Parameters first (their offsets are in the instructions), then instructions, pool and meta."""
    writer = binfile.BinWriter()
    for name, dtype, data in sections:
        writer.add(name, dtype, data)
    writer.add("instructions", binfile.Dtype.INSTRUCTIONS, size=instruction_bytes)
    writer.add("pool", binfile.Dtype.JSON)
    writer.add("meta", binfile.Dtype.JSON)
    return writer


def _group_addresses(tiled: TileResult, offsets: dict[str, int]) -> dict[Buffer, int]:
    """File offset of every layer's sections; they must lie one after the other as planned."""
    result: dict[Buffer, int] = {}
    for emitted in tiled.partitions:
        for plan in emitted.plans:
            if plan.group is not None:
                start = offsets[f"{plan.layer.id}_{plan.sections[0][0]}"]
                for name, _ in plan.sections:
                    assert offsets[f"{plan.layer.id}_{name}"] == start + plan.offsets[name], name
                result[plan.group] = start
    return result


def verify(compiled: CompiledProgram) -> None:
    """Independent checks of what was generated: SRAM plan, pool plan, tokens of every partition."""
    assert compiled.tiled is not None
    for number, blocks in enumerate(compiled.tiled.sram_blocks):
        rows = [
            {"name": b.name, "lower": b.lower, "upper": b.upper, "size": align(b.size), "offset": a} for b, a in blocks
        ]
        check_plan(rows, compiled.arch.sram_bytes, f"SRAM plan of partition {number}")
    check_plan(compiled.pool["buffers"], compiled.meta["pool_size"], "pool")
    for part in compiled.meta["partitions"]:
        if part["device"] == "NPU":
            first, count = part["first_instruction"], part["instruction_count"]
            stream = compiled.instructions[first * INSTRUCTION_BYTES : (first + count) * INSTRUCTION_BYTES]
            check_tokens(stream, compiled.arch.sram_bytes, compiled.meta["pool_size"])


def generate(qgraph: QGraph, arch: Arch, preprocess: Preprocess | None = None) -> CompiledProgram:
    """The whole back end with all its verifiers."""
    lanes = lanes_step.run(qgraph, arch)
    lanes_step.verify(lanes)
    tiled = tile_step.run(lanes)
    tile_step.verify(tiled)
    memory = plan_step.run(tiled)
    plan_step.verify(memory)
    compiled = run(tiled, memory, preprocess or Preprocess())
    verify(compiled)
    return compiled
