"""`npuforge compile`: the whole pipeline, from ONNX to a folder with `.bin`, `.xmodel` and manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile import pipeline
from npuforge.compile.steps.write_files import summary
from npuforge.scripts import model_options as m
from npuforge.scripts.common import print_json, progress
from npuforge.scripts.performance import performance_lines


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("compile")
    @m.takes_choices
    def command(
        choices: m.Choices,
        output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the artifacts")] = Path("build"),
        layers: Annotated[bool, typer.Option("--layers", help="Print the performance summary of every layer")] = False,
        json: m.Json = False,
    ) -> None:
        """Compile a network. Example: npuforge compile net.onnx --calib images/ --arch nf-b4096 -o build/"""
        with progress(json) as show:
            compiled, ctx = pipeline.compile_model(choices.check(output, show))
        if json:
            print_json(summary(compiled, ctx))
            return
        print("\n".join(performance_lines(compiled.performance, layers)))
        parts = ", ".join(f"{p['device']}" for p in compiled.meta["partitions"])
        print(f"partitions: {parts}")
        print(f"pool: {compiled.meta['pool_size']} bytes")
        print(f"written: {output}/ in {sum(ctx.seconds.values()):.1f} s")
