"""`npuforge reference record`: runs the float network (on a GPU where ONNX Runtime has one) and saves its outputs for `compare --reference`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile import pipeline
from npuforge.compile.ir.samples import input_specs, list_samples
from npuforge.compile.reference import FloatReference
from npuforge.compile.steps.preprocessing import complete
from npuforge.compile.steps.write_files import check_apart, sha256, staging
from npuforge.scripts import model_options as m
from npuforge.scripts.common import check_target, print_json, progress, show_notice
from npuforge.scripts.recording import record, save_recording


def register(app: typer.Typer) -> None:
    """Adds the sub-command group."""
    group = typer.Typer(
        help="Record a float reference on a GPU machine, to compare with anywhere.", no_args_is_help=True
    )
    app.add_typer(group, name="reference")

    @group.callback()
    def callback() -> None:
        """Record a float reference on a GPU machine, to compare with anywhere."""

    @group.command("record")
    def command(
        model: m.Model,
        images: Annotated[Path, typer.Argument(help="Folder of images")],
        output: Annotated[Path, typer.Option("--output", "-o", help="The .npz to write")] = Path("reference.npz"),
        preprocess: m.PreprocessFile = "",
        given: m.FixedInputs = None,
        shape: m.Shapes = None,
        json: m.Json = False,
    ) -> None:
        """Record the float outputs. Example: npuforge reference record net.onnx images/ -o ref.npz"""
        check_target(output)
        files = list_samples(images)
        choices = m.Choices(model, shape=shape, preprocess=preprocess, given=given)
        options = choices.check(output)
        check_apart([output], [*files, *choices.sources(options)], "-o")
        graph = pipeline.inspect(options)
        record_of, notices = complete(graph, options.preprocess, bool(options.shapes))
        for notice in notices:
            show_notice(notice)
        reference = FloatReference(model, options.shapes)
        with progress(json) as show:
            recording = record(
                reference,
                sha256(model),
                files,
                record_of,
                input_specs(graph),
                options.inputs,
                sha256,
                lambda done, total: show("record", done, total),
            )
        with staging(output.parent) as folder:
            save_recording(recording, folder / output.name)
        if json:
            print_json({"file": str(output), "provider": recording.provider, "images": len(files)})
        else:
            print(f"{output}: {len(files)} images, {recording.provider}")
