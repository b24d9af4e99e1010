"""`npuforge quantize`: calibration and quantisation only; writes the integer graph and says what was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile import pipeline
from npuforge.compile.ir.serialize import save
from npuforge.compile.steps.write_files import staging
from npuforge.scripts import model_options as m
from npuforge.scripts.common import check_target, print_json, progress, show_notices


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("quantize")
    def command(
        model: m.Model,
        output: Annotated[Path, typer.Option("--output", "-o", help="The file to write (.npz)")],
        calib: m.Calibration = None,
        calib_count: m.CalibrationCount = 0,
        preprocess: m.PreprocessFile = "",
        arch: m.ArchName = "nf-b4096",
        shape: m.Shapes = None,
        mode: m.Mode = "fine",
        calibrator: m.Calibrator = "minmax",
        alpha: m.Alpha = None,
        dump_steps: m.DumpSteps = None,
        json: m.Json = False,
    ) -> None:
        """Calibrate and quantise only. Example: npuforge quantize net.onnx --calib images/ -o net.npz"""
        check_target(output)
        with progress(json) as show:
            options = m.make_options(
                model,
                arch,
                output,
                shapes=shape,
                preprocess=preprocess,
                calibration=calib,
                calibration_count=calib_count,
                mode=mode,
                calibrator=calibrator,
                alpha=alpha,
                dump=dump_steps,
                progress=show,
            )
            qgraph, ctx = pipeline.quantize(options)
        show_notices(ctx.notices)
        with staging(output.parent) as folder:
            save(qgraph, folder / output.name)
        if json:
            print_json({"mode": qgraph.mode, "layers": qgraph.notes, "images": len(options.calibration)})
        else:
            print(
                f"{output}: {qgraph.mode}, {len(qgraph.params)} layers, {len(options.calibration)} calibration images"
            )
