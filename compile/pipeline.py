"""The compile pipeline: the ordered list of steps. Read this page first.

Each step takes what the step before returned and the context, and returns the next state. After each step its verifier checks the state and
names the offending node, and `--dump-steps DIR` saves it. The state is a `Graph` up to the partition, then a `QGraph`, then the code generator's own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuforge.compile.context import STEPS, Context, Options
from npuforge.compile.ir.errors import WriteError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.ir.serialize import save
from npuforge.compile.steps import (
    calibrate,
    fold,
    fuse,
    generate,
    import_onnx,
    lanes,
    partition,
    plan_memory,
    preprocessing,
    quantise,
    tile,
    write_files,
)
from npuforge.compile.steps.dequantise import forget_scales
from npuforge.compile.steps.generate import CompiledProgram
from npuforge.compile.steps.verify import verify as verify_graph
from npuforge.hw_kernels.operator import refused_packages


@dataclass(frozen=True)
class Step:
    """`run(state, ctx) -> state`, then `verify(state)`."""

    name: str
    run: Callable[[Any, Context], Any]
    verify: Callable[[Any], None]


def _graph_step(name: str, run: Callable[[Any, Context], Graph]) -> Step:
    return Step(name, run, lambda graph: verify_graph(graph, name))


def _import(state: None, ctx: Context) -> Graph:
    imported = import_onnx.import_onnx(ctx.options.model, ctx.options.shapes)
    ctx.note(refused_packages())
    ctx.note(str(w) for w in imported.warnings)
    if imported.graph.grids and (not ctx.options.own_scales or ctx.options.mode != "fine"):
        forget_scales(imported.graph)
        ctx.note(["the quantised model's own scales are not used: calibration chooses new ones"])
    return imported.graph


def _plan(tiled: tile.TileResult, ctx: Context) -> tuple[tile.TileResult, plan_memory.MemoryPlan]:
    return tiled, plan_memory.run(tiled)


def _generate(state: tuple[tile.TileResult, plan_memory.MemoryPlan], ctx: Context) -> CompiledProgram:
    return generate.run(*state, ctx.preprocess)


FRONT_END = (
    _graph_step("import", _import),  # ONNX -> Graph, simplified, static shapes
    _graph_step("fold", fold.run),  # BatchNorm, constants, pads, no-ops
    _graph_step("fuse", fuse.run),  # canonical operators with fused activations
    _graph_step("partition", partition.run),  # NPU or CPU, with a reason for every CPU node
)
QUANTISER = (
    _graph_step("preprocess", preprocessing.run),  # the one preprocessing record, checked against the input
    _graph_step("calibrate", calibrate.run),  # one pass over the images
    Step("quantise", quantise.run, quantise.verify),  # the integer graph
)
BACK_END = (
    Step("lanes", lambda qgraph, ctx: lanes.run(qgraph, ctx.options.arch), lanes.verify),  # channels -> lanes, views
    Step("tile", lambda state, ctx: tile.run(state), tile.verify),  # row bands, SRAM residency
    Step("plan_memory", _plan, lambda state: plan_memory.verify(state[1])),  # the DDR pool
    Step("generate", _generate, generate.verify),  # addresses, tokens, instruction words, meta
)

ALL_STEPS = FRONT_END + QUANTISER + BACK_END


def run_steps(steps: tuple[Step, ...], state: Any, ctx: Context, more: int = 0) -> Any:
    """Runs the steps in order, verifies and dumps each. `more`: steps that the caller does afterwards, counted in the progress."""
    for number, step in enumerate(steps, start=1):
        _begin(step.name, number, len(steps) + more, ctx)
        start = time.perf_counter()
        state = step.run(state, ctx)
        step.verify(state)
        ctx.seconds[step.name] = time.perf_counter() - start
        if ctx.options.dump is not None:
            try:
                _dump(state, ctx.options.dump, f"{len(ctx.seconds):02d}-{step.name}")
            except OSError as error:
                raise WriteError(
                    f"{error.filename or ctx.options.dump}: cannot be written ({error.strerror}); choose another --dump-steps folder"
                ) from error
    return state


def _begin(name: str, number: int, total: int, ctx: Context) -> None:
    ctx.position = f"[{number}/{total}] {name}"
    ctx.options.progress(ctx.position, number - 1, total, STEPS)


def _dump(state: Any, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(state, Graph | QGraph):
        save(state, folder / f"{name}.npz")
        graph = state if isinstance(state, Graph) else state.graph
        rows = [
            {
                "name": n.name,
                "op": n.op,
                "device": n.device,
                "inputs": n.inputs,
                "outputs": n.outputs,
                "sources": n.sources,
            }
            | {
                "activation": n.activation.kind,
                "shapes": [graph.tensors[t].shape for t in n.outputs if t in graph.tensors],
            }
            for n in graph.nodes
        ]
        text = json.dumps(rows, indent=1)
    elif isinstance(state, tuple):
        text = json.dumps([part.to_json() for part in state], indent=1)
    else:
        text = json.dumps(state.to_json(), indent=1)
    (folder / f"{name}.json").write_text(text, encoding="utf-8")


def inspect(options: Options) -> Graph:
    """The partitioned graph: what `npuforge inspect` shows is what `npuforge compile` does."""
    graph: Graph = run_steps(FRONT_END, None, Context(options))
    return graph


def quantize(options: Options) -> tuple[QGraph, Context]:
    """The integer graph."""
    calibrate.check_images(options)
    ctx = Context(options)
    return run_steps(FRONT_END + QUANTISER, None, ctx), ctx


def compile_model(options: Options) -> tuple[CompiledProgram, Context]:
    """The whole pipeline; writes the bundle into `options.output`, whole or not at all."""
    calibrate.check_images(options)
    ctx = Context(options)
    with write_files.staging(options.output, sources=options.sources) as folder:
        compiled: CompiledProgram = run_steps(ALL_STEPS, None, ctx, more=1)
        _begin("write", len(ALL_STEPS) + 1, len(ALL_STEPS) + 1, ctx)
        write_files.run(compiled, ctx, folder)
        options.check_build(folder / write_files.BIN)
    options.progress(ctx.position, len(ALL_STEPS) + 1, len(ALL_STEPS) + 1, STEPS)
    return compiled, ctx
