"""The records of the `meta` section: tensors at partition borders, layers with trace points, CPU nodes and constants; the performance summary.

Owned by the `generate` step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Activation, Graph, Node
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.steps.emit import Emitted
from npuforge.compile.steps.layers import Layer
from npuforge.compile.steps.plan_memory import MemoryPlan
from npuforge.compile.steps.tile import TileResult
from npuforge.hw_kernels.arch import LANES
from npuforge.hw_kernels.dsl.tile import Ref
from npuforge.hw_kernels.isa import binfile
from npuforge.hw_kernels.isa.instructions import Engine
from npuforge.hw_kernels.timing import Schedule


def constant_sections(graph: Graph) -> tuple[dict[str, Any], list[tuple[str, binfile.Dtype, bytes]]]:
    """Constants that CPU partitions read."""
    nodes = {n.name: n for n in graph.nodes}
    used: dict[str, None] = {}
    for part in graph.partitions:
        if part.device == "CPU":
            for name in part.nodes:
                used |= dict.fromkeys(t for t in nodes[name].inputs if t in graph.constants)
    meta: dict[str, Any] = {}
    sections: list[tuple[str, binfile.Dtype, bytes]] = []
    for tensor in used:
        value = np.asarray(graph.constants[tensor])
        dtype = value.dtype.name
        if dtype == "int64":
            stored, kind = np.clip(value, -(1 << 31), (1 << 31) - 1).astype("<i4"), binfile.Dtype.INT32
        elif dtype == "int32":
            stored, kind = value.astype("<i4"), binfile.Dtype.INT32
        elif dtype in ("bool", "uint8"):
            stored, kind = value.astype(np.uint8), binfile.Dtype.UINT8
        elif dtype == "int8":
            stored, kind = value, binfile.Dtype.INT8
        else:
            dtype, stored, kind = "float32", value.astype("<f4"), binfile.Dtype.FLOAT32
        section = f"C{len(sections):04d}"
        sections.append((section, kind, np.ascontiguousarray(stored).tobytes()))
        meta[tensor] = {"section": section, "shape": list(value.shape), "dtype": dtype}
    return meta, sections


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    return value


def _activation(activation: Activation) -> dict[str, Any] | None:
    if activation.kind == "none":
        return None
    record: dict[str, Any] = {"kind": activation.kind, "alpha": activation.alpha, "beta": activation.beta}
    if np.isfinite(activation.low):
        record["low"] = activation.low
    if np.isfinite(activation.high):
        record["high"] = activation.high
    if activation.slope is not None:
        record["slope"] = np.asarray(activation.slope).ravel().tolist()
    return record


def cpu_node(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attrs": _jsonable(node.attrs),
        "activation": _activation(node.activation),
    }


def tensor_meta(qgraph: QGraph, tiled: TileResult, memory: MemoryPlan) -> dict[str, Any]:
    graph, places = qgraph.graph, tiled.lanes.places
    border = {t for e in tiled.partitions for t in (*e.lowered.inputs, *e.lowered.outputs)}
    names: dict[str, None] = dict.fromkeys((*graph.inputs, *graph.outputs))
    nodes = {n.name: n for n in graph.nodes}
    for part in graph.partitions:
        names |= dict.fromkeys((*part.inputs, *part.outputs))
        if part.device == "CPU":
            for name in part.nodes:
                names |= dict.fromkeys(t for t in (*nodes[name].inputs, *nodes[name].outputs) if t in graph.tensors)
    result: dict[str, Any] = {}
    for name in names:
        if name in graph.constants:
            continue
        info = graph.tensors[name]
        record: dict[str, Any] = {"shape": [int(s) for s in info.shape], "dtype": info.dtype, "npu": None}
        if name in border:
            place, quant = places[name], qgraph.quant[name]
            storage = place.storage
            record["npu"] = {
                "offset": memory.address[storage] + place.first_block * storage.dtype.block_bytes,
                "dtype": storage.dtype.value,
                "h": storage.height,
                "w": storage.width,
                "c": len(place.map.lanes),
                "row_stride": storage.row_stride,
                "pixel_stride": storage.pixel_stride,
                "lanes": [int(v) for v in place.map.lanes],
                "scale": [float(v) for v in quant.scale],
                "zero_point": [int(v) for v in quant.zero_point],
                "image_mean": None if quant.image_mean is None else [float(v) for v in quant.image_mean],
                "fix_point": None if quant.fix_point is None else int(quant.fix_point),
            }
        result[name] = record
    return result


def _trace(tiled: TileResult, memory: MemoryPlan, emitted: Emitted, layer: Layer, base: int) -> dict[str, Any]:
    place, trace = tiled.lanes.places[layer.output], emitted.traces[layer]
    storage = place.storage
    start = tiled.sram_address[emitted.sram[storage]] if trace.in_sram else memory.address[storage]
    return {
        "space": "sram" if trace.in_sram else "pool",
        "address": start + place.first_block * storage.dtype.block_bytes,
        "dtype": storage.dtype.value,
        "h": storage.height,
        "w": storage.width,
        "row_stride": storage.row_stride,
        "pixel_stride": storage.pixel_stride,
        "lanes": [int(v) for v in place.lanes_from_first_block],
        "lane_count": LANES * (place.end_block - place.first_block),
        "after_instruction": base + trace.after,
    }


def _trace_before_sum(tiled: TileResult, emitted: Emitted, layer: Layer, base: int) -> dict[str, Any]:
    """The convolution's own output of a layer with a residual stage, piece by piece: no instruction leaves it in memory."""
    place = tiled.lanes.places[layer.output]
    pieces = []
    for piece in emitted.pieces[layer]:
        fields, where = piece.instr.fields, piece.instr.fields["out_addr"]
        assert isinstance(where, Ref)
        pieces.append(
            {
                "address": tiled.sram_address[where.buffer] + where.offset,
                "row_stride": fields["out_row_stride"],
                "pixel_stride": fields["out_pixel_stride"],
                "first_row": piece.first_row,
                "rows": fields["out_h"],
                "first_lane": LANES * piece.first_block,
                "lane_count": LANES * int(fields["blocks_out"]),  # type: ignore[arg-type]
                "after_instruction": base + piece.after,
            }
        )
    return {
        "space": "before_sum",
        "dtype": place.storage.dtype.value,
        "h": place.storage.height,
        "w": place.storage.width,
        "lanes": [int(v) for v in place.map.lanes],
        "lane_count": LANES * place.map.blocks,
        "pieces": pieces,
    }


def layer_meta(tiled: TileResult, memory: MemoryPlan, emitted: Emitted, base: int) -> list[dict[str, Any]]:
    records = []
    for index, plan in enumerate(emitted.plans):
        layer = plan.layer
        own = [
            i for i, instr in enumerate(emitted.instructions) if instr.layer == index and instr.engine != Engine.LOAD
        ]
        own = own or [i for i, instr in enumerate(emitted.instructions) if instr.layer == index]
        tensor = tiled.lanes.moved_names.get(layer.output, layer.output)
        record = {
            "id": layer.id,
            "name": layer.name,
            "op": layer.node.op,
            "sources": list(layer.node.sources),
            "first_instruction": base + own[0],
            "last_instruction": base + own[-1],
            "tensor": tensor,
            "made": layer.output != tensor,  # bytes of `tensor`, moved by the compiler
            "macs": layer.macs,
            "trace": _trace(tiled, memory, emitted, layer, base),
        }
        if layer.residual is None:
            records.append(record)
            continue
        node = layer.residual.node
        records.append(record | {"tensor": layer.before_sum, "trace": _trace_before_sum(tiled, emitted, layer, base)})
        records.append(record | {"id": sum_id(layer), "macs": 0, **_names(node)})
    return records


def sum_id(layer: Layer) -> str:
    """Of the Add that is the residual stage of a convolution: a layer in every report, without instructions or cycles of its own."""
    return f"{layer.id}+"


def _names(node: Node) -> dict[str, Any]:
    return {"name": node.name, "op": node.op, "sources": list(node.sources)}


def performance(tiled: TileResult, schedules: list[Schedule]) -> dict[str, Any]:
    """Simulated cycles per layer. `cycles`: by how much the layer moves the end of all that came before; `busy`: of its busiest engine.

    `partitions`: cycles of each NPU partition, its END instruction included, which belongs to no layer.
    """
    arch, rows, now = tiled.lanes.arch, [], 0
    for emitted, timed in zip(tiled.partitions, schedules, strict=True):
        reached = 0
        for index, plan in enumerate(emitted.plans):
            own = [i for i, instr in enumerate(emitted.instructions) if instr.layer == index]
            end = max(timed.end[i] for i in own)
            busy = {e: sum(timed.end[i] - timed.start[i] for i in own if timed.engines[i] == e) for e in Engine}
            working = [i for i in own if timed.engines[i] != Engine.LOAD] or own
            start = min(timed.start[i] for i in working)
            array = busy[Engine.CONV] or busy[Engine.VECTOR]
            rows.append(
                {
                    "id": plan.layer.id,
                    "name": plan.layer.name,
                    "op": plan.layer.node.op,
                    "sources": list(plan.layer.node.sources),
                    "macs": plan.layer.macs,
                    "start": now + start,
                    "end": now + end,
                    "cycles": max(0, end - reached),
                    "busy": {e.name.lower(): busy[e] for e in Engine},
                    "utilisation": plan.layer.macs / (array * arch.macs_per_cycle) if array else 0.0,
                    "ddr_bytes": sum(timed.costs[i].ddr_bytes for i in own),
                    "bands": len(plan.work.bands),
                    "cuts": len(plan.work.cuts),
                }
            )
            reached = max(reached, end)
            if plan.layer.residual is not None:
                free = {"macs": 0, "cycles": 0, "busy": {e.name.lower(): 0 for e in Engine}, "utilisation": 0.0}
                rows.append(
                    rows[-1] | free | {"id": sum_id(plan.layer), "ddr_bytes": 0, **_names(plan.layer.residual.node)}
                )
        now += timed.cycles
    macs = sum(plan.layer.macs for emitted in tiled.partitions for plan in emitted.plans)
    return {
        "cycles": now,
        "milliseconds": now / (arch.clock_mhz * 1000),
        "macs": macs,
        "utilisation": macs / (now * arch.macs_per_cycle) if now else 0.0,
        "ddr_bytes": sum(s.ddr_bytes for s in schedules),
        "busy": {e.name.lower(): sum(s.busy(e) for s in schedules) for e in Engine},
        "partitions": [timed.cycles for timed in schedules],
        "layers": rows,
    }
