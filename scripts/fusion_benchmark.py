"""What fusion buys on the NPU: convolution, BatchNorm and activation as one layer, as three layers of one program, and as three programs.

    python -m npuforge.scripts.fusion_benchmark --markdown docs/fusion.md --plot docs/fusion.svg

Every convolution of the two bundled networks (LeakyReLU, SiLU) with an activation, int8, weights as trained. *One program* keeps what fits on chip;
*three programs* is how a runtime that launches operators one by one works: every map goes to DDR and back. Figures are simulated cycles and DDR bytes
of the timing model.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from npuforge.compile.context import Context, Options
from npuforge.compile.ir.graph import Activation, Graph, Node, Partition, TensorInfo
from npuforge.compile.pipeline import FRONT_END, run_steps
from npuforge.compile.steps.generate import generate
from npuforge.hw_kernels.arch import Arch, load
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor
from npuforge.quant.quantize import quantize

DATA = Path(__file__).parent / "demo_data"
NETWORKS = {
    "LeakyReLU: the network for upright boxes": DATA / "demo.onnx",
    "SiLU: the network for oriented boxes": DATA / "oriented.onnx",
}
VARIANTS = ("fused", "one program", "three programs")


@dataclass
class Cost:
    """Simulated cycles and DDR bytes."""

    cycles: int = 0
    ddr_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cycles + other.cycles, self.ddr_bytes + other.ddr_bytes)


@dataclass
class Row:
    """One convolution in every variant."""

    name: str
    shape: str
    activation: str
    costs: dict[str, Cost]


def single(nodes: list[Node], source: Graph, inputs: list[str]) -> Graph:
    """Nodes as a network of their own, on the NPU."""
    tensors, constants = {}, {}
    for node in nodes:
        for t in (*node.inputs, *node.outputs):
            tensors[t] = source.tensors[t]
            if t in source.constants:
                constants[t] = source.constants[t]
    outputs = [nodes[-1].outputs[0]]
    part = Partition("NPU", [n.name for n in nodes], inputs, outputs)
    placed = [replace(n, device="NPU") for n in nodes]
    return Graph("layer", placed, tensors, constants, inputs, outputs, source.opset, partitions=[part])


def cost(graph: Graph, arch: Arch) -> Cost:
    """Quantised on one random input, compiled, by the timing model."""
    random = np.random.default_rng(0)
    feeds = [{t: random.normal(0.0, 1.0, graph.tensors[t].shape).astype(np.float32) for t in graph.inputs}]
    statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    figures = generate(quantize(graph, statistics, alpha=0.75, algorithms=()), arch).performance
    return Cost(int(figures["cycles"]), int(figures["ddr_bytes"]))


def split(node: Node, graph: Graph) -> list[Node]:
    """Convolution, BatchNorm (scale and shift per channel) and activation as nodes of their own; new tensors are added to `graph`."""
    y, channels = node.outputs[0], graph.tensors[node.outputs[0]].shape[1]
    sums, normal = f"{y}/sum", f"{y}/normal"
    for name in (sums, normal):
        graph.tensors[name] = TensorInfo(name, graph.tensors[y].shape)
    scale = {"scale": [1.25] * channels, "bias": [0.125] * channels}
    identity = {"scale": [1.0] * channels, "bias": [0.0] * channels}
    return [
        replace(node, outputs=[sums], activation=Activation()),
        Node(f"{node.name}/bn", "Affine", [sums], [normal], scale, sources=node.sources),
        Node(f"{node.name}/act", "Affine", [normal], [y], identity, node.activation, node.sources),
    ]


def measure(node: Node, graph: Graph, arch: Arch) -> Row:
    """All variants of one convolution."""
    x = node.inputs[:1]
    parts = split(node, graph)
    costs = {
        "fused": cost(single([node], graph, x), arch),
        "one program": cost(single(parts, graph, x), arch),
        "three programs": Cost(),
    }
    for part in parts:
        costs["three programs"] += cost(single([part], graph, part.inputs[:1]), arch)
    weight, out = graph.constants[node.inputs[1]].shape, graph.tensors[node.outputs[0]].shape
    shape = f"{weight[2]}x{weight[3]}, {weight[1] * int(node.attrs['group'])}→{out[1]}, {out[2]}x{out[3]}"
    return Row(node.name, shape, node.activation.kind, costs)


def rows(arch: Arch, model: Path) -> list[Row]:
    """Every convolution of `model` with an activation behind it."""
    graph: Graph = run_steps(FRONT_END, None, Context(Options(model, arch, Path())))
    chosen = [n for n in graph.nodes if n.op == "Conv" and n.activation.kind != "none" and n.device == "NPU"]
    return [measure(node, graph, arch) for node in chosen]


def _figures(costs: dict[str, Cost]) -> str:
    return " | ".join([str(costs[v].cycles) for v in VARIANTS] + [str(costs[v].ddr_bytes) for v in VARIANTS])


def _table(measured: list[Row]) -> list[str]:
    """Layers of one network, their sum and what it comes to."""
    total = {v: sum((r.costs[v] for r in measured), Cost()) for v in VARIANTS}
    fused = total["fused"]
    ratios = [
        f"{total[v].cycles / fused.cycles:.2f} times the cycles and {total[v].ddr_bytes / fused.ddr_bytes:.2f} times the DDR bytes in *{v}*"
        for v in VARIANTS[1:]
    ]
    return [
        "| layer | shape | activation | cycles fused | one program | three programs | DDR bytes fused | one program | three programs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {r.name} | {r.shape} | {r.activation} | {_figures(r.costs)} |" for r in measured),
        f"| **sum of {len(measured)}** | | | {_figures(total)} |",
        "",
        f"Against fused layers: {', '.join(ratios)}.",
        "",
    ]


def markdown(networks: dict[str, list[Row]], arch: Arch) -> str:
    """The page; rows by title of the network."""
    lines = [
        "# What fusion buys",
        "",
        "Generated by `python -m npuforge.scripts.fusion_benchmark --markdown docs/fusion.md --plot docs/fusion.svg`; do not edit.",
        "",
        f"Convolution, BatchNorm and activation of every layer of the two [bundled networks](demo.md) on {arch.name}, int8, each layer as a network of its own. *Fused*: "
        "one instruction stream, BatchNorm in the weights, activation in the output stage. *One program*: three layers, maps stay on chip where they fit. "
        "*Three programs*: launched one by one, every map through DDR. Simulated cycles and DDR bytes of the [timing model](code-generator.md), not measurements.",
        "",
        "![cycles per layer](fusion.svg)",
        "",
    ]
    for title, measured in networks.items():
        lines += [f"## {title}", "", *_table(measured)]
    return "\n".join(lines)


def plot(networks: dict[str, list[Row]]) -> str:
    """Bars of the cycles of every layer, network by network, as SVG."""
    step, left, width = 36, 150, 560
    largest = max(r.costs[v].cycles for measured in networks.values() for r in measured for v in VARIANTS)
    colours = dict(zip(VARIANTS, ("#2a7f62", "#c58b2a", "#b0413e"), strict=True))
    parts, top = [], 34
    for title, measured in networks.items():
        parts.append(f'<text x="{left}" y="{top + 12}" font-weight="bold">{title}</text>')
        top += 24
        for r in measured:
            parts.append(f'<text x="{left - 8}" y="{top + 15}" text-anchor="end">{r.name[-22:]}</text>')
            for k, v in enumerate(VARIANTS):
                bar = width * r.costs[v].cycles / largest
                parts.append(f'<rect x="{left}" y="{top + k * 8}" width="{bar:.1f}" height="7" fill="{colours[v]}"/>')
            top += step
    legend = "".join(
        f'<rect x="{left + 140 * k}" y="10" width="10" height="10" fill="{colours[v]}"/><text x="{left + 140 * k + 15}" y="19">{v}</text>'
        for k, v in enumerate(VARIANTS)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {top}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{legend}{"".join(parts)}</svg>\n'
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="fusion_benchmark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", default="nf-b4096")
    parser.add_argument("--markdown", type=Path, help="write the page here, else to standard output")
    parser.add_argument("--plot", type=Path, help="write the picture here")
    options = parser.parse_args()
    arch = load(options.arch)
    measured = {title: rows(arch, model) for title, model in NETWORKS.items()}
    if options.plot:
        options.plot.write_text(plot(measured), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(markdown(measured, arch), encoding="utf-8")
    else:
        print(markdown(measured, arch))


if __name__ == "__main__":
    main()
