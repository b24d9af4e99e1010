"""The placement of a network as a picture: its graph coloured by device (SVG), and a page around it with reasons, remedies, MACs and bytes (HTML).

The same rows as `npuforge inspect --json`; hovering a node shows its line.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from npuforge.compile.ir.errors import WriteError
from npuforge.compile.ir.files import whole_file
from npuforge.compile.ir.graph import Graph
from npuforge.compile.layered_picture import Layers, escape
from npuforge.compile.steps.partition import Row, explain
from npuforge.compile.steps.remedies import remedy

COLOURS = {"NPU": "#cfe8d4", "CPU": "#f6d5b8"}
EDGES = {"NPU": "#2f7d46", "CPU": "#b5651d"}
STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:24px;color:#1c2024;max-width:1200px}table{border-collapse:collapse;margin:12px 0}"
    "td,th{padding:3px 10px;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}td.n,th.n{text-align:right}"
    ".NPU{background:#cfe8d4}.CPU{background:#f6d5b8}.graph{overflow:auto;border:1px solid #ddd;max-height:80vh}"
)


def totals(rows: list[Row]) -> dict[str, dict[str, int]]:
    """Nodes, MACs and bytes by device."""
    found: dict[str, dict[str, int]] = {d: {"nodes": 0, "macs": 0, "bytes": 0} for d in ("NPU", "CPU")}
    for row in rows:
        entry = found[row.device]
        entry["nodes"] += 1
        entry["macs"] += row.macs
        entry["bytes"] += row.bytes
    return found


def _tip(row: Row, advice: str) -> str:
    shape = "x".join(map(str, row.output_shape))
    lines = [
        f"{row.node} ({row.op}) → {shape}",
        f"{row.device}, partition {row.partition}, {row.macs:,} MACs, {row.bytes:,} bytes",
    ]
    lines += [f"because: {row.reason}", f"to bring it over: {advice}"] if row.reason else []
    return "\n".join(lines)


def svg(graph: Graph) -> str:
    """The graph from top to bottom."""
    rows = {r.node: r for r in explain(graph)}
    producer = {t: n for n in graph.nodes for t in n.outputs}
    sheet = Layers(box_width=190, box_height=30, gap_x=24, gap_y=20, margin=20)
    sheet.place((n.name, [producer[t].name for t in n.inputs if t in producer]) for n in graph.nodes)
    parts = [sheet.head(), f"<title>{escape(graph.name)}: green NPU, orange CPU</title>"]
    for node in graph.nodes:
        for tensor in dict.fromkeys(node.inputs):
            if tensor in producer:
                source = producer[tensor]
                parts.append(sheet.line(source.name, node.name, source.device != node.device, tensor))
    for node in graph.nodes:
        x, y = sheet.corner(node.name)
        row = rows[node.name]
        name = row.op if row.activation == "none" else f"{row.op}+{row.activation}"
        shape = "x".join(map(str, row.output_shape))
        parts.append(
            f'<g><title>{escape(_tip(row, remedy(node, graph)))}</title><rect x="{x}" y="{y}" width="{sheet.box_width}" height="{sheet.box_height}" rx="4" '
            f'fill="{COLOURS[row.device]}" stroke="{EDGES[row.device]}"/>'
            f'<text x="{x + 6}" y="{y + 12}" font-weight="600">{escape(name[:30])}</text>'
            f'<text x="{x + 6}" y="{y + 25}" fill="#555">{escape(shape)}, {row.macs / 1e6:.2f} MMAC</text></g>'
        )
    return "\n".join([*parts, "</svg>"])


def _table(head: list[str], rows: list[list[Any]], classes: list[str] | None = None) -> str:
    def cell(value: Any) -> str:
        return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f"<td>{escape(str(value))}</td>"

    body = "".join(
        f'<tr class="{classes[i] if classes else ""}">{"".join(map(cell, row))}</tr>' for i, row in enumerate(rows)
    )
    return f"<table><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr>{body}</table>"


def html(graph: Graph) -> str:
    """The page: totals by device and partition, reasons with remedies, the graph, every node."""
    rows = explain(graph)
    nodes = {n.name: n for n in graph.nodes}
    sides = totals(rows)
    share = sides["NPU"]["macs"] / max(1, sides["NPU"]["macs"] + sides["CPU"]["macs"])
    reasons: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.reason:
            reasons[row.reason, remedy(nodes[row.node], graph)].append(row)
    by_reason = [
        [
            len(members),
            reason,
            advice,
            sum(r.macs for r in members),
            ", ".join(r.node for r in members[:4]) + (" …" if len(members) > 4 else ""),
        ]
        for (reason, advice), members in sorted(reasons.items(), key=lambda g: -len(g[1]))
    ]
    partitions = [
        [
            i,
            p.device,
            len(p.nodes),
            sum(r.macs for r in rows if r.partition == i),
            sum(r.bytes for r in rows if r.partition == i),
        ]
        for i, p in enumerate(graph.partitions)
    ]
    listed = [
        [
            r.partition,
            r.device,
            r.op,
            "x".join(map(str, r.output_shape)),
            r.macs,
            r.bytes,
            r.node,
            r.reason,
            remedy(nodes[r.node], graph),
        ]
        for r in rows
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(graph.name)}: placement</title><style>{STYLE}</style></head>'
        f"<body><h1>{escape(graph.name)}: what runs where</h1>"
        f"<p>{share:.1%} of the multiply-accumulates on the NPU; {len(graph.partitions)} partitions. Green: NPU, orange: CPU, red lines cross over. "
        "Hover a node for its reason.</p>"
        + _table(
            ["device", "nodes", "MACs", "bytes read and written"],
            [[d, *s.values()] for d, s in sides.items()],
            list(sides),
        )
        + "<h2>Partitions</h2>"
        + _table(["number", "device", "nodes", "MACs", "bytes"], partitions, [str(p[1]) for p in partitions])
        + "<h2>Why on the CPU, and what to change</h2>"
        + (
            _table(["nodes", "reason", "to bring them over", "MACs", "which"], by_reason)
            if by_reason
            else "<p>No node is.</p>"
        )
        + f'<h2>Graph</h2><div class="graph">{svg(graph)}</div><h2>Nodes</h2>'
        + _table(
            ["partition", "device", "operator", "output", "MACs", "bytes", "node", "reason", "to bring it over"],
            listed,
            [r.device for r in rows],
        )
        + "</body></html>\n"
    )


def write_placement(graph: Graph, path: Path) -> None:
    """`.svg`: the graph alone; any other name: the page. WriteError where that is not possible."""
    text = svg(graph) + "\n" if path.suffix == ".svg" else html(graph)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{path}: cannot be written ({error.strerror}); choose another --graph") from error
