"""`npuforge quantize`: calibration and quantisation only; writes the integer graph and says what was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile import pipeline
from npuforge.compile.ir.serialize import save
from npuforge.compile.steps.write_files import check_apart, staging
from npuforge.scripts import model_options as m
from npuforge.scripts.common import check_target, print_json, progress


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("quantize")
    @m.takes_choices
    def command(
        choices: m.Choices,
        output: Annotated[Path, typer.Option("--output", "-o", help="The file to write (.npz)")],
        json: m.Json = False,
    ) -> None:
        """Calibrate and quantise only. Example: npuforge quantize net.onnx --calib images/ -o net.npz"""
        check_target(output)
        with progress(json) as show:
            options = choices.check(output, show)
            check_apart([output], choices.sources(options), "-o")
            qgraph, _ = pipeline.quantize(options)
        with staging(output.parent) as folder:
            save(qgraph, folder / output.name)
        if json:
            print_json({"mode": qgraph.mode, "layers": qgraph.notes, "images": len(options.calibration)})
        else:
            print(
                f"{output}: {qgraph.mode}, {len(qgraph.params)} layers, {len(options.calibration)} calibration images"
            )
