"""What a compiled folder already knows, as `ReportData`: model, arch, layers with simulated cycles, placement with reasons, memory plans.

A comparison fills in the rest: losses (`set_losses`), device differences, images, accuracy and gates.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npuforge.compile.dpu.flow import REPORT as DPU_REPORT
from npuforge.compile.dpu.vendor_compiler import NOT_RUN, Compiled, completed
from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.ir.words import counted
from npuforge.quant.analysis import LayerLoss
from npuforge.scripts.report.data import (
    Block,
    CpuNode,
    Layer,
    Loss,
    MemoryPlan,
    Partition,
    Performance,
    Reference,
    ReportData,
)

PACKAGES = ("npuforge", "onnx", "onnxruntime", "numpy", "opencv-python-headless", "faster-coco-eval")


def report_of_build(folder: str | Path, qgraph: QGraph, device: str, reference: Reference) -> ReportData:
    """`folder`: what `npuforge compile` wrote; `qgraph`: its quantised graph (placement and reasons)."""
    folder = Path(folder)
    manifest, summary = _read(folder / "manifest.json"), _read(folder / "summary.json")
    try:
        figures = (
            None if "target" in manifest else summary["performance"]
        )  # the vendor's compiler says nothing of the kind
        rows = figures["layers"] if figures else []
        preprocess = manifest["preprocess"]
        compiler, notices = _of_vendor(folder, manifest, list(summary["notices"]))
        images = len(summary["calibration_images"])
        data = ReportData(
            title=manifest["name"],
            model=summary["model"]["file"],
            mode=manifest["mode"],
            device=device,
            arch=manifest["arch"],
            fingerprint=manifest["fingerprint"],
            preprocess=preprocess,
            versions=versions(),
            reference=reference,
            created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            calibration=f"{summary['calibrator']}, {counted(images, 'image')}",
            compiler=compiler,
            class_names=list(preprocess["class_names"]),
            layers=[_layer(row, summary["notes"]) for row in rows],
            partitions=_partitions(qgraph, rows, list(figures["partitions"]) if figures else []),
            performance=_performance(figures, manifest["arch"]) if figures else None,
            memory=_memory(summary, manifest["arch"]) if figures else [],
            notices=notices,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{folder}: summary.json or manifest.json is not as this npuforge writes it ({type(error).__name__}: {error}); compile again"
        ) from error
    data.reference.model_sha256 = data.reference.model_sha256 or summary["model"]["sha256"]
    return data


def _of_vendor(folder: Path, manifest: Mapping[str, Any], notices: list[str]) -> tuple[str, list[str]]:
    """What a vendor's compiler made, also since the build was written, and the notices that then hold. A file of another network is one more notice."""
    if "target" not in manifest:
        return "", notices
    recorded = Compiled(**_read(folder / DPU_REPORT)["compiler"])
    try:
        found = completed(recorded, folder, int(manifest["fingerprint"], 16), str(manifest["target"]))
    except FormatError as error:
        return str(recorded), [*notices, str(error)]
    if found is not recorded:
        notices = [n for n in notices if not n.startswith(NOT_RUN)] + [found.unlike_target] * bool(found.unlike_target)
    return str(found), notices


def set_losses(data: ReportData, losses: Iterable[LayerLoss]) -> None:
    """Puts the analysis' figures (in network order) on the layers, by node name. A node that became no layer of its own (a concatenation without
    copies) gets a row without cycles, after the node before it."""
    at = -1
    for loss in losses:
        known = next((i for i, layer in enumerate(data.layers) if layer.name == loss.node), None)
        if known is None:
            data.layers.insert(at + 1, Layer("–", loss.node, loss.op, list(loss.sources)))
        at = at + 1 if known is None else known
        data.layers[at].alone = Loss(**asdict(loss.alone))
        data.layers[at].accumulated = Loss(**asdict(loss.accumulated))


def versions() -> dict[str, str]:
    """Versions of what takes part, as installed here."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: expected a file that `npuforge compile` wrote: {error}") from error


def _layer(row: Mapping[str, Any], notes: Mapping[str, str]) -> Layer:
    return Layer(
        row["id"],
        row["name"],
        row["op"],
        list(row["sources"]),
        cycles=row["cycles"],
        macs=row["macs"],
        utilisation=row["utilisation"] if row["macs"] else None,
        ddr_bytes=row["ddr_bytes"],
        note=notes.get(row["name"], ""),
    )


def _partitions(qgraph: QGraph, rows: list[dict[str, Any]], cycles: list[int]) -> list[Partition]:
    """`cycles` of the NPU partitions in order; of another target none, and no figure."""
    nodes = {n.name: n for n in qgraph.graph.nodes}
    result, left = [], iter(cycles)
    for part in qgraph.graph.partitions:
        own = [r for r in rows if r["name"] in part.nodes]
        record = Partition(part.device, len(part.nodes), list(part.inputs), list(part.outputs))
        if part.device == "CPU":
            record.nodes = [CpuNode(n, nodes[n].op, nodes[n].reason) for n in part.nodes]
        else:
            record.cycles, record.macs = next(left) if cycles else 0, sum(r["macs"] for r in own)
        result.append(record)
    return result


def _performance(figures: Mapping[str, Any], arch: Mapping[str, Any]) -> Performance:
    possible = figures["utilisation"] * figures["cycles"]
    array_macs = round(figures["macs"] / possible) if possible else 0
    return Performance(
        figures["cycles"], figures["macs"], array_macs, arch["clock_mhz"], figures["ddr_bytes"], dict(figures["busy"])
    )


def _memory(summary: Mapping[str, Any], arch: Mapping[str, Any]) -> list[MemoryPlan]:
    pool = summary["memory"]
    plans = [MemoryPlan("DDR pool", pool["size"], pool["lower_bound"], [Block(**b) for b in pool["buffers"]])]
    for number, rows in enumerate(summary.get("sram", [])):
        blocks = [Block(**b) for b in rows]
        name = "On-chip memory" + (f", NPU partition {number}" if len(summary["sram"]) > 1 else "")
        peak = max((b.offset + b.size for b in blocks), default=0)
        plans.append(MemoryPlan(name, peak, _lower_bound(blocks), blocks, arch["sram_bytes"], "instruction"))
    return plans


def _lower_bound(blocks: list[Block]) -> int:
    """The largest sum of sizes alive at one time."""
    changes = sorted([(b.upper, -b.size) for b in blocks] + [(b.lower, b.size) for b in blocks])
    alive = peak = 0
    for _, change in changes:
        alive += change
        peak = max(peak, alive)
    return peak
