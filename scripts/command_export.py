"""`npuforge export`: a network with custom operators for another runtime, with the source of its operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile.context import Options
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.tensorrt.plugin import export
from npuforge.hw_kernels import arch as arches
from npuforge.scripts import model_options as m
from npuforge.scripts.common import parse_shapes, print_json, show_notice

RUNTIMES = ("tensorrt",)


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("export")
    def command(
        model: m.Model,
        to: Annotated[str, typer.Option("--to", help="tensorrt: plug-in source with CUDA kernels", show_default=False)],
        output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the sources")] = Path("export"),
        shape: m.Shapes = None,
        json: m.Json = False,
    ) -> None:
        """Export for another runtime. Example: npuforge export net.onnx --to tensorrt -o plugin/"""
        if to not in RUNTIMES:
            raise UsageError(f"--to {to}: expected one of {', '.join(RUNTIMES)}")
        shapes = parse_shapes(shape or [])
        made = export(Options(model, arches.load(m.DEFAULT_ARCH), output, shapes, notice=show_notice))
        if json:
            print_json(made.to_json())
            return
        print(f"plug-ins: {', '.join(made.operators) or 'none'}; kernels compiled: {'yes' if made.compiled else 'no'}")
        print(f"written: {output}/")
