"""`npuforge inspect`: what would run where and why; the same decision as `npuforge compile` makes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from npuforge.compile import pipeline
from npuforge.compile.ir.errors import NpuforgeError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.words import counted
from npuforge.compile.steps.partition import Row, explain
from npuforge.compile.steps.preprocessing import complete
from npuforge.compile.steps.remedies import remedy
from npuforge.compile.steps.write_files import check_apart
from npuforge.scripts import model_options as m
from npuforge.scripts.common import check_picture, print_json, show_notice
from npuforge.scripts.placement_page import totals as device_totals
from npuforge.scripts.placement_page import write_placement

NAMES_SHOWN = 3  # node names of a reason


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


def summary_lines(totals: dict[str, Any]) -> list[str]:
    """Inputs, outputs, partitions and the NPU's share."""
    lines = [f"model: {totals['model']}"]
    for what in ("inputs", "outputs"):
        lines.append(f"{what}: " + ", ".join(f"{t} {'x'.join(map(str, s))}" for t, s in totals[what].items()))
    parts = ", ".join(f"{p['device']} ({counted(p['nodes'], 'node')})" for p in totals["partitions"])
    lines.append(f"partitions: {parts}")
    lines.append(f"{totals['npu_share']:.1%} of {totals['macs'] / 1e6:.1f} MMAC on the NPU")
    return lines


def reason_lines(rows: list[Row], graph: Graph | None = None) -> list[str]:
    """The CPU's nodes by reason, most frequent first, with the first few names of each; where `graph` is given, all names and the remedies."""
    advice = _advice(graph) if graph is not None else {}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.reason:
            groups.setdefault(row.reason, []).append(row)
    if not groups:
        return ["no node on the CPU"]
    lines = [f"{counted(sum(map(len, groups.values())), 'node')} on the CPU, because:"]
    for reason, members in sorted(groups.items(), key=lambda g: -len(g[1])):
        lines.append(f"{len(members):>4} x {reason}")
        shown = members if graph is not None else members[:NAMES_SHOWN]
        names = ", ".join(f"{row.node} ({row.op})" for row in shown)
        more = len(members) - len(shown)
        lines.append(f"       {names}" + (f" and {more} more" if more else ""))
        for text in dict.fromkeys(advice[row.node] for row in members if advice):
            operators = dict.fromkeys(row.op for row in members if advice[row.node] == text)
            lines.append(f"       remedy for {', '.join(operators)}: {text}")
    return lines


def _advice(graph: Graph) -> dict[str, str]:
    """What to change, by node."""
    return {n.name: remedy(n, graph) for n in graph.nodes}


def node_lines(rows: list[Row]) -> list[str]:
    """One line per node in execution order: partition, device, operator, output shape, MACs."""
    lines = ["nodes:"]
    for row in rows:
        name = row.op if row.activation == "none" else f"{row.op}+{row.activation}"
        shape = "x".join(str(d) for d in row.output_shape)
        lines.append(
            f"{row.partition:>3} {row.device:<4} {name:<24} {shape:<16} {row.macs / 1e6:>8.2f} MMAC  {row.node}"
        )
    return lines


def placement(graph: Graph, rows: list[Row]) -> dict[str, Any]:
    """Totals by device, and every node with its reason and what to change."""
    advice = _advice(graph)
    return {"devices": device_totals(rows), "nodes": [r.to_json() | {"remedy": advice[r.node]} for r in rows]}


def compile_refuses(graph: Graph, shaped: bool) -> str:
    """What `npuforge compile` says against the network itself, whatever the record and the images; empty if nothing."""
    try:
        complete(graph, None, shaped)
    except NpuforgeError as error:
        return str(error)
    return ""


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("inspect")
    def command(
        model: m.Model,
        arch: m.ArchName = m.DEFAULT_ARCH,
        shape: m.Shapes = None,
        precision: m.Precision = "int8",
        dump_steps: m.DumpSteps = None,
        verbose: Annotated[
            bool, typer.Option("--verbose", "-v", help="List every node, and every node and the remedy of a reason")
        ] = False,
        picture: m.PlacementGraph = None,
        json: m.Json = False,
    ) -> None:
        """Show what runs where and why. Example: npuforge inspect net.onnx --arch nf-b4096"""
        if picture is not None:
            check_picture(picture)
            check_apart([picture], [model], "--graph")
        choices = m.Choices(model, arch=arch, shape=shape, precision=precision, dump_steps=dump_steps)
        graph = pipeline.inspect(choices.check(Path()))
        refused = compile_refuses(graph, shape is not None)
        if refused:
            show_notice(f"npuforge compile refuses this network: {refused}")
        rows = explain(graph)
        totals = summary(graph, rows)
        if picture is not None:
            write_placement(graph, picture)
        if json:
            print_json(totals | placement(graph, rows) | ({"compile_refuses": refused} if refused else {}))
            return
        lines = summary_lines(totals) + reason_lines(rows, graph if verbose else None)
        if verbose:
            lines += node_lines(rows)
        elif any(row.reason for row in rows):
            lines.append("every node with its shape and MACs: --verbose, or --json")
        print("\n".join(lines))
