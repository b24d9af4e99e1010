"""`--target dpu:NAME`: import and fuse, the DPU's activations, partition by the target's limits, `pow2` quantisation, fix form, vendor's compiler.

Files: `quantised.xmodel` (the fix form), `arch.json`, `quantised.npz` (our integers), `dpu.json` (the report), what `vai_c_xir` made where it is, and what the
sub-commands need of every build: `reference.onnx`, `summary.json`, `sample.npz`, `expected.npz`, `manifest.json`.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile import pipeline
from npuforge.compile.context import Context, Options
from npuforge.compile.dpu.adapt import MEASURED_IMAGES, adapted, measured_loss, own_on_cpu, separated
from npuforge.compile.dpu.belonging import COMMAND, FIX_FORM
from npuforge.compile.dpu.fix_form import float_inputs, nhwc_outputs, write_fix_form
from npuforge.compile.dpu.limits import DpuTarget
from npuforge.compile.dpu.vendor_compiler import LOG, NOT_RUN, Compiled, check_compiled, compile_fix_form
from npuforge.compile.ir.errors import NpuforgeError, UnsupportedError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.samples import in_graph_layout, input_specs, load_sample
from npuforge.compile.ir.serialize import save
from npuforge.compile.ir.words import counted
from npuforge.compile.steps import calibrate, fold, fuse, partition
from npuforge.compile.steps.generate import TOOL
from npuforge.compile.steps.recognise_head import recognise
from npuforge.compile.steps.sample import write_sample
from npuforge.compile.steps.verify import verify as verify_graph
from npuforge.compile.steps.write_files import MANIFEST, QUANTISED, SUMMARY, files_of, origin, staging, write_reference
from npuforge.compile.xir.batches import unlike_batches
from npuforge.compile.xir.model import XModel

REPORT = "dpu.json"


@dataclass
class DpuBuild:
    """What was made. `cpu`: node name -> reason. `changed`: nodes whose activation is the DPU's; `loss`: per output, or per
    tensor in front of one whose size depends on the data, relative (root mean square)."""

    target: str
    dpu_nodes: int = 0
    cpu: dict[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    loss: dict[str, float] = field(default_factory=dict)
    loss_images: int = 0
    compiler: Compiled | None = None

    def to_json(self) -> dict[str, Any]:
        """As `dpu.json` holds it."""
        return dataclasses.asdict(self)


def compile_for_dpu(options: Options, target: DpuTarget, silu_as_hardswish: bool = False) -> DpuBuild:
    """The whole way. `options.mode` is taken as `pow2`. NpuforgeError where the vendor's compiler fails: all other files are in place then."""
    options = dataclasses.replace(options, mode="pow2", precision="int8")
    calibrate.check_images(options)
    ctx, build = Context(options, target.reason), DpuBuild(target.name)
    before: list[Graph] = []

    def see_tail(graph: Graph, _: Context) -> Graph:
        graph.fixed_tail = not ends_in_head(graph, options.preprocess)
        return graph

    def adapt(graph: Graph, _: Context) -> Graph:
        before[:] = [graph]
        after, build.changed = adapted(graph, silu_as_hardswish)
        return separated(after, target)

    def divide(graph: Graph, _: Context) -> Graph:
        placed = partition.partition(graph, limit=ctx.limit)
        for node in placed.nodes:
            node.reason = node.reason.replace("the NPU", target.name)
        placed, build.changed = own_on_cpu(placed, before[0], build.changed)
        return placed

    def graph_step(name: str, run: Any) -> pipeline.Step:
        return pipeline.Step(name, run, lambda graph: verify_graph(graph, name))

    steps = (
        pipeline.FRONT_END[0],
        graph_step("tail", see_tail),
        graph_step("fold", fold.run),
        graph_step("fuse", fuse.run),
        graph_step("dpu activations", adapt),
        graph_step("partition", divide),
        *pipeline.QUANTISER,
    )
    with staging(options.output, sources=options.sources) as folder:
        qgraph = pipeline.run_steps(steps, None, ctx, more=1)
        graph = qgraph.graph
        build.dpu_nodes = sum(n.device == "NPU" for n in graph.nodes)
        build.cpu = {n.name: n.reason for n in graph.nodes if n.device != "NPU"}
        _check_not_empty(build)
        if build.changed:
            _measure(before[0], graph, ctx, build)
        fix_form = write_fix_form(qgraph, folder / FIX_FORM)
        ctx.note(unlike_batches(fix_form))
        save(qgraph, folder / QUANTISED)
        build.compiler = _compiled(folder, target, options.output)
        sample = write_sample(ctx, options.arch, folder, fixed_size=True)
        _notices(build, ctx, graph.outputs)
        (folder / REPORT).write_text(json.dumps(build.to_json() | {"notices": ctx.notices}, indent=1), encoding="utf-8")
        write_reference(ctx, folder)
        (folder / SUMMARY).write_text(json.dumps(origin(ctx), indent=1, default=str), encoding="utf-8")
        (folder / MANIFEST).write_text(
            json.dumps(_manifest(graph, fix_form, target, ctx, folder, sample, bool(build.compiler.failure)), indent=1),
            encoding="utf-8",
        )
    if build.compiler.failure:
        log = f", {LOG} among them" if build.compiler.ran else ""
        raise NpuforgeError(
            f"{build.compiler.failure}; the other files of the build are in {options.output}{log}; then run there: {COMMAND}"
        )
    return build


def _compiled(folder: Path, target: DpuTarget, output: Path) -> Compiled:
    """The vendor's compiler's result; where it fails, no `model.xmodel` and the failure, with `output` in place of the `folder` for now."""
    try:
        made = compile_fix_form(folder / FIX_FORM, target, folder, "model")
        if made.ran:
            check_compiled(folder / "model.xmodel")
        return made
    except NpuforgeError as error:
        (folder / "model.xmodel").unlink(missing_ok=True)
        ran = (folder / LOG).is_file()
        return Compiled(COMMAND.split(), ran, failure=str(error).replace(str(folder), str(output)))


def ends_in_head(graph: Graph, record: Preprocess | None) -> bool:
    """Whether the preprocessing record declares a detection head, or the outputs show one: its decode, behind the last convolution, then stays in float."""
    if record is not None and record.head.kind not in ("none", "auto"):
        return True
    images = [t for t in graph.inputs if len(graph.tensors[t].shape) == 4]
    return bool(images) and recognise(graph, images[0]).head is not None


def _manifest(
    graph: Graph,
    fix_form: XModel,
    target: DpuTarget,
    ctx: Context,
    folder: Path,
    sample: dict[str, Any],
    failed: bool,
) -> dict[str, Any]:
    """As of every build; `target` instead of an arch of ours, which network inputs and outputs are N, H, W, C (in ONNX; in the file), and which inputs of the file
    are the float form of a network input. The log of a vendor's compiler that failed is not listed: a later run, by hand, writes another."""
    shapes = {t: list(graph.tensors[t].shape) for t in (*graph.inputs, *graph.outputs)}
    nhwc_inputs = [t for t in graph.inputs if graph.input_layout.get(t) == "NHWC"]
    onnx_shapes = shapes | {t: [shapes[t][i] for i in (0, 2, 3, 1)] for t in nhwc_inputs}
    return {
        "format": 1,
        "tool": TOOL,
        "name": graph.name or "network",
        "target": target.name,
        "arch": {"name": target.name},
        "fingerprint": f"0x{target.fingerprint:016x}",
        "mode": "pow2",
        "files": {name: entry for name, entry in files_of(folder).items() if not (failed and name == LOG)},
        "inputs": {t: onnx_shapes[t] for t in graph.inputs},
        "outputs": {t: shapes[t] for t in graph.outputs},
        "nhwc_inputs": nhwc_inputs,
        "nhwc_outputs": nhwc_outputs(fix_form, graph.outputs),
        "float_inputs": float_inputs(fix_form),
        "preprocess": ctx.preprocess.to_json(),
        "sample": sample,
    }


def _check_not_empty(build: DpuBuild) -> None:
    if not build.dpu_nodes:
        node, reason = next(((n, r) for n, r in build.cpu.items() if r.startswith(build.target)), ("", ""))
        raise UnsupportedError(f"nothing is left for the DPU; node '{node}': {reason or 'no node that computes'}")


def _measure(before: Graph, after: Graph, ctx: Context, build: DpuBuild) -> None:
    images = list(islice(ctx.options.calibration, MEASURED_IMAGES))

    def feed(path: Path) -> dict[str, np.ndarray]:
        sample = load_sample(path, ctx.preprocess, input_specs(after), ctx.options.inputs)
        return in_graph_layout(after, sample.inputs)

    build.loss, build.loss_images = measured_loss(before, after, map(feed, images)), len(images)


def loss_line(build: DpuBuild, outputs: list[str]) -> str:
    """What the notice says of `build.loss`; `outputs`: the network's."""
    if not build.loss:
        return f"their loss is not measured: on {build.loss_images} images no tensor of real numbers, of a fixed size, has a value other than 0"
    loss = ", ".join(f"{name} {value:.3g}" for name, value in build.loss.items())
    of = "the float outputs"
    if not set(build.loss) <= set(outputs):
        of += " (of integers, and of outputs whose size the data tell: of the nearest tensors in front)"
    return f"relative change of {of} on {build.loss_images} images: {loss}"


def _notices(build: DpuBuild, ctx: Context, outputs: list[str]) -> None:
    if build.changed:
        count = counted(len(build.changed), "activation")
        what = f"{count} {'is' if len(build.changed) == 1 else 'are'} the DPU's (LeakyReLU 26/256, SiLU as HardSwish on request)"
        ctx.note([f"{what}; {loss_line(build, outputs)}"])
    nodes_of: dict[str, list[str]] = {}
    for name, reason in build.cpu.items():
        nodes_of.setdefault(reason, []).append(f"'{name}'")
    for reason, names in nodes_of.items():
        which = f"node {names[0]} is" if len(names) == 1 else f"nodes {', '.join(names)} are"
        ctx.note([f"{which} left to the CPU: {reason}"])
    if build.compiler is not None and build.compiler.unlike_target:
        ctx.note([build.compiler.unlike_target])
    if build.compiler is not None and not build.compiler.ran and not build.compiler.failure:
        command = " ".join(build.compiler.command)
        ctx.note([f"{NOT_RUN}; in the vendor's container, in this folder: {command}"])
