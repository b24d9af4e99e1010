"""`npuforge export`: a network with custom operators for another runtime, with the source of its operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile.context import Options
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.onnxruntime import export as onnxruntime_export
from npuforge.compile.tensorrt import plugin
from npuforge.hw_kernels import arch as arches
from npuforge.scripts import model_options as m
from npuforge.scripts.bundle import refuse_tar_with
from npuforge.scripts.common import parse_shapes, print_json, show_notice

RUNTIMES = {
    "onnxruntime": "a custom-operator library from the operators' C++ kernels",
    "tensorrt": "plug-in source with CUDA kernels",
}


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("export")
    def command(
        model: m.Model,
        to: Annotated[
            str,
            typer.Option("--to", help="; ".join(f"{n}: {what}" for n, what in RUNTIMES.items()), show_default=False),
        ],
        output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the sources")] = Path("export"),
        onnxruntime_include: Annotated[
            Path | None,
            typer.Option("--onnxruntime-include", help="Folder with onnxruntime_c_api.h, to build the library"),
        ] = None,
        shape: m.Shapes = None,
        json: m.Json = False,
    ) -> None:
        """Export for another runtime. Example: npuforge export net.onnx --to tensorrt -o plugin/"""
        if to not in RUNTIMES:
            raise UsageError(f"--to {to}: expected one of {', '.join(RUNTIMES)}")
        if onnxruntime_include is not None and to != "onnxruntime":
            raise UsageError(f"--onnxruntime-include belongs to --to onnxruntime, found --to {to}")
        refuse_tar_with(f"--to {to}", output)
        options = Options(model, arches.load(m.DEFAULT_ARCH), output, parse_shapes(shape or []), notice=show_notice)
        made: onnxruntime_export.Export | plugin.Export
        if to == "onnxruntime":
            made = onnxruntime_export.export(options, onnxruntime_include)
            what = "library"
        else:
            made = plugin.export(options)
            what = "kernels"
        if json:
            print_json(made.to_json())
            return
        print(f"operators: {', '.join(made.operators) or 'none'}; {what} compiled: {'yes' if made.compiled else 'no'}")
        print(f"written: {output}/")
