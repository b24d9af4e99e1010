"""`npuforge inspect`: what would run where and why; the same decision as `npuforge compile` makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from npuforge.compile import pipeline
from npuforge.compile.ir.graph import Graph
from npuforge.compile.steps.partition import Row, explain
from npuforge.scripts import model_options as m
from npuforge.scripts.common import print_json


def summary(graph: Graph, rows: list[Row]) -> dict[str, Any]:
    """Counts by device."""
    total = sum(r.macs for r in rows)
    on_npu = sum(r.macs for r in rows if r.device == "NPU")
    return {
        "model": graph.name,
        "inputs": {t: list(graph.tensors[t].shape) for t in graph.inputs},
        "outputs": {t: list(graph.tensors[t].shape) for t in graph.outputs},
        "partitions": [{"device": p.device, "nodes": len(p.nodes)} for p in graph.partitions],
        "macs": total,
        "npu_macs": on_npu,
        "npu_share": on_npu / total if total else 0.0,
    }


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("inspect")
    def command(
        model: m.Model,
        arch: m.ArchName = m.DEFAULT_ARCH,
        shape: m.Shapes = None,
        dump_steps: m.DumpSteps = None,
        json: m.Json = False,
    ) -> None:
        """Show what runs where and why. Example: npuforge inspect net.onnx --arch nf-b4096"""
        graph = pipeline.inspect(m.Choices(model, arch=arch, shape=shape, dump_steps=dump_steps).check(Path()))
        rows = explain(graph)
        totals = summary(graph, rows)
        if json:
            print_json(totals | {"nodes": [r.to_json() for r in rows]})
            return
        for row in rows:
            name = row.op if row.activation == "none" else f"{row.op}+{row.activation}"
            shape_text = "x".join(str(d) for d in row.output_shape)
            print(
                f"{row.partition:>3} {row.device:<4} {name:<24} {shape_text:<16} {row.macs / 1e6:>8.2f} MMAC  {row.node}"
            )
            if row.reason:
                print(f"{'':>8} because: {row.reason}")
        parts = ", ".join(f"{p['device']} ({p['nodes']} nodes)" for p in totals["partitions"])
        print(f"partitions: {parts}")
        print(f"{totals['npu_share']:.1%} of {totals['macs'] / 1e6:.1f} MMAC on the NPU")
