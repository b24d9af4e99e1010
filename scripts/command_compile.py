"""`npuforge compile`: the whole pipeline, from ONNX to a folder with `.bin`, `.xmodel` and manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile import pipeline
from npuforge.compile.ascend.flow import PREFIX as ASCEND
from npuforge.compile.ascend.flow import compile_for_ascend, soc_of
from npuforge.compile.dpu.flow import compile_for_dpu
from npuforge.compile.dpu.limits import PREFIX as DPU
from npuforge.compile.dpu.limits import DpuTarget
from npuforge.compile.dpu.limits import load as load_target
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.words import counted
from npuforge.compile.steps.partition import explain
from npuforge.compile.steps.write_files import check_apart, summary
from npuforge.scripts import model_options as m
from npuforge.scripts.bundle import folder_for, refuse_tar_with, results_of
from npuforge.scripts.command_inspect import placement, reason_lines, summary_lines
from npuforge.scripts.command_inspect import summary as placement_summary
from npuforge.scripts.common import check_picture, print_json, progress, show_notice
from npuforge.scripts.performance import performance_lines
from npuforge.scripts.placement_page import write_placement

NPUFORGE = "npuforge"
SILU = ("keep", "hardswish")
OURS = ("--arch", "--alpha", "--layers")  # options that say nothing to a DPU
NOT_CANNS = (*OURS, "--mode", "--precision", "--calibrator", "--recalibrate", "--dump-steps")  # nor these to CANN
UNUSED_BY_CANN = ("--calib", "--calib-count", "--preprocess", "--input")  # what many give to every target


def _refuse_unused(context: typer.Context, target: str, mode: str) -> None:
    """UsageError where an option was typed that changes nothing with the target; a notice where it does no harm."""
    typed = m.typed_options(context)
    if target.startswith(DPU) and "--mode" in typed and mode == "fine":
        raise UsageError(f"--mode fine: a DPU's arithmetic is pow2; leave it out with --target {target}")
    refused = [name for name in (OURS if target.startswith(DPU) else NOT_CANNS) if name in typed]
    if refused:
        raise UsageError(f"{', '.join(refused)}: for npuforge's own NPU; leave it out with --target {target}")
    unused = [name for name in UNUSED_BY_CANN if name in typed and target.startswith(ASCEND)]
    if unused:
        show_notice(f"{', '.join(unused)}: not used with --target {target}, whose network stays float; leave it out")


def _for_dpu(choices: m.Choices, output: Path, target: DpuTarget, silu: str, json: bool) -> None:
    """The quantised network for a vendor's DPU; the lines that say what was made."""
    if silu not in SILU:
        raise UsageError(f"--silu {silu}: expected one of {', '.join(SILU)}")
    if choices.precision != "int8":
        raise UsageError(f"--precision {choices.precision}: a DPU computes int8; leave it out with --target")
    with progress(json) as show:
        build = compile_for_dpu(choices.check(output, show), target, silu == "hardswish")
    if json:
        print_json(build.to_json())
        return
    print(f"{build.target}: {counted(build.dpu_nodes, 'node')} for the DPU, {len(build.cpu)} for the CPU")
    made = build.compiler
    if made is not None and made.ran:
        print(made)
    print(f"written: {output}/")


def _for_ascend(choices: m.Choices, output: Path, target: str, standard: bool, json: bool) -> None:
    """ONNX and CANN's files; the lines that say what was made."""
    soc = soc_of(target)
    with progress(json) as show:
        build = compile_for_ascend(choices.check(output, show), soc, standard)
    if json:
        print_json(build.to_json())
        return
    print(
        f"{build.soc}: {counted(len(build.operators) - len(build.on_ai_cpu), 'custom operator')} with TBE source, "
        f"{len(build.on_ai_cpu)} for the AI CPU, {counted(len(build.without_source), 'node')} without"
    )
    print(f"written: {output}/")


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("compile")
    @m.takes_choices
    def command(
        choices: m.Choices,
        output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the artifacts, or NAME.tar")] = Path(
            "build"
        ),
        target: Annotated[
            str,
            typer.Option(
                "--target",
                help="npuforge; a vendor's DPU: dpu:DPUCZDX8G, dpu:DPUCZDX8G_ISA1_B1024, dpu:FILE (a board's arch.json); CANN: ascend:Ascend310P3",
            ),
        ] = NPUFORGE,
        silu: Annotated[
            str, typer.Option("--silu", help="With a DPU: keep (SiLU by itself on the CPU) or hardswish (replaces it)")
        ] = "keep",
        standard: Annotated[
            bool,
            typer.Option(
                "--standard",
                help="With CANN: write custom operators that standard ones compose (ConvBnLeakyRelu, RotatedConv) as those",
            ),
        ] = False,
        picture: m.PlacementGraph = None,
        layers: Annotated[bool, typer.Option("--layers", help="Print the performance summary of every layer")] = False,
        json: m.Json = False,
        *,
        context: typer.Context,
    ) -> None:
        """Compile a network. Example: npuforge compile net.onnx --calib images/ --arch nf-b4096 -o build/"""
        if silu != "keep" and not target.startswith(DPU):
            raise UsageError(f"--silu {silu}: belongs to --target dpu:...; leave it out")
        if standard and not target.startswith(ASCEND):
            raise UsageError("--standard: belongs to --target ascend:...; leave it out")
        if picture is not None:
            if target != NPUFORGE:
                raise UsageError(f"--graph {picture}: shows what our NPU takes; leave it out with --target {target}")
            check_picture(picture)
        if target != NPUFORGE:
            refuse_tar_with(f"--target {target}", output)
        if target.startswith((DPU, ASCEND)):
            _refuse_unused(context, target, choices.mode)
        if target.startswith(ASCEND):
            _for_ascend(choices, output, target, standard, json)
            return
        if target != NPUFORGE:
            _for_dpu(choices, output, load_target(target), silu, json)
            return
        with folder_for(output) as folder, progress(json) as show:
            options = choices.check(folder, show)
            sources = choices.sources(options)
            check_apart(results_of(output), sources, "-o")
            if picture is not None:
                check_apart([picture], sources, "--graph")
            compiled, ctx = pipeline.compile_model(options)
        assert ctx.qgraph is not None
        graph = ctx.qgraph.graph
        rows = explain(graph)
        if picture is not None:
            write_placement(graph, picture)
        if json:
            shown = {"placement": placement_summary(graph, rows) | placement(graph, rows), "seconds": ctx.seconds}
            print_json(summary(compiled, ctx) | shown)
            return
        print("\n".join(performance_lines(compiled.performance, layers)))
        print("\n".join(summary_lines(placement_summary(graph, rows))[3:] + reason_lines(rows)))
        print(f"pool: {compiled.meta['pool_size']} bytes")
        print(f"written: {output}{'' if output.is_file() else '/'} in {sum(ctx.seconds.values()):.1f} s")
