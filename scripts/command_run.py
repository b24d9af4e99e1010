"""`npuforge run`: detections of images on a device, printed and drawn."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from npuforge.board_runtime.devices import check_device
from npuforge.board_runtime.heads import Head, Settings
from npuforge.compile.ir.errors import DeviceError, InputError, UsageError
from npuforge.compile.ir.samples import SUFFIX, list_samples
from npuforge.compile.steps.write_files import check_apart, staging
from npuforge.hw_kernels import arch as arches
from npuforge.scripts import model_options as m
from npuforge.scripts.build_folder import Build, open_build
from npuforge.scripts.columns import DeviceColumn
from npuforge.scripts.common import (
    DEVICE_HELP,
    check_folder,
    check_target,
    input_files,
    parse_inputs,
    print_json,
    progress,
    show_notice,
)
from npuforge.scripts.draw import check_formats, class_name, draw_detections, save_image


def detection_rows(detections: np.ndarray, class_names: list[str], oriented: bool = False) -> list[dict[str, Any]]:
    """Plain rows for JSON and for the terminal; of oriented boxes the corners, in order around the box."""
    return [
        {
            "class": class_name(int(row[5]), class_names),
            "score": round(float(row[4]), 4),
            "box": [round(float(v), 1) for v in row[:4]],
            ("corners" if oriented else "keypoints"): [round(float(v), 1) for v in row[6:]],
        }
        for row in detections
    ]


def drawn_name(path: Path) -> Path:
    """The drawing of a sample: named as the image; of a `.npz`, a PNG."""
    return path.with_suffix(".png") if path.suffix.lower() == SUFFIX else path


def _check(build: Build, column: DeviceColumn, json: bool) -> None:
    """Prints each output of the sample; DeviceError where one is not as expected."""
    checked, device = build.check_sample(column), column.device
    if json:
        print_json({"sample": build.manifest["sample"]["origin"], "outputs": [asdict(found) for found in checked]})
    else:
        print("\n".join(map(str, checked)))
    wrong = [found for found in checked if not found.right]
    if not wrong and not any(found.values for found in checked):
        show_notice("nothing was compared: the build's sample gives no rows; give images instead of --check")
    if wrong:
        what = wrong[0].unlike or f"an error of {wrong[0].largest:.3g} of the largest value"
        raise DeviceError(
            f"output '{wrong[0].name}' of the sample on {device}: expected what expected.npz of the build holds, found {what}; "
            "flash the hardware that the build was compiled for, or compile again"
        )


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("run")
    def command(
        build: Annotated[
            Path, typer.Argument(help="Folder or .tar that npuforge compile wrote, or the model.bin in the folder")
        ],
        image: Annotated[Path | None, typer.Argument(help="An image or a folder of images")] = None,
        device: Annotated[str, typer.Option("--device", help=DEVICE_HELP)] = "sim",
        board: m.Board = None,
        draw: Annotated[Path | None, typer.Option("--draw", help="Folder for the drawn images")] = None,
        tensors: Annotated[Path | None, typer.Option("--tensors", help="Save the output tensors as .npz here")] = None,
        score: Annotated[float | None, typer.Option("--score", help="Score threshold", min=0.0, max=1.0)] = None,
        given: m.FixedInputs = None,
        threads: m.Threads = 2,
        profile: Annotated[Path | None, typer.Option("--profile", help="Write a Chrome/Perfetto trace")] = None,
        arch: Annotated[
            str,
            typer.Option(
                "--arch", help="The hardware at hand (a name or a JSON file): refuse a network compiled for another"
            ),
        ] = "",
        check: Annotated[
            bool,
            typer.Option(
                "--check", help="Run the build's own sample instead; error where its outputs are not those expected"
            ),
        ] = False,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Detect on images. Example: npuforge run build/ image.jpg --device sim --draw out/"""
        check_device(device, board)
        expected_arch = arches.load(arch).to_json() if arch else None
        if check:
            others = (image, draw, tensors, score, given, profile)
            if any(value is not None for value in others):
                raise UsageError(
                    "--check runs the build's own sample; leave out the image and the options of its detections"
                )
            opened = open_build(build)
            _check(opened, DeviceColumn(opened, device, threads, expected_arch, board), json)
            return
        if image is None:
            raise UsageError("no image is given; give an image or a folder, or --check for the build's own sample")
        if tensors is not None:
            check_target(tensors, "--tensors")
        if profile is not None:
            check_target(profile, "--profile")
        if draw is not None:
            check_folder(draw, "--draw")
        opened = open_build(build)
        files, fixed = list_samples(image), parse_inputs(given or [])
        read = [*files, *opened.files, *input_files(given or [])]
        if tensors is not None:
            check_apart([tensors], read, "--tensors")
        if profile is not None:
            check_apart([profile], read, "--profile")
        if draw is not None:
            check_apart([draw / path.name for path in files], read, "--draw")
            check_formats([drawn_name(path) for path in files])
        column = DeviceColumn(opened, device, threads, expected_arch, board)
        record = opened.preprocess
        head = None if record.head.kind == "none" else Head(record, Settings(score_threshold=score))
        if head is None and draw is None:
            show_notice("no detection head is declared (head.kind of --preprocess at compile): output tensors only")
        if head is None and draw is not None:
            raise InputError("--draw needs a detection head in the preprocessing record (head.kind)")
        results: dict[str, Any] = {}
        pictures: dict[str, np.ndarray] = {}
        arrays: dict[str, np.ndarray] = {}
        with progress(json) as show:
            for number, path in enumerate(files, start=1):
                prepared = opened.sample(path, fixed)
                if profile is not None and number == 1:
                    column.session.profile(prepared.inputs, profile, 3)
                outputs = column(prepared)
                if tensors is not None:
                    arrays |= {f"{path.name}:{name}": value for name, value in outputs.items()}
                if head is None:
                    results[path.name] = {name: list(value.shape) for name, value in outputs.items()}
                else:
                    found = head.detect(outputs, prepared.geometry)
                    results[path.name] = detection_rows(found, record.class_names, head.oriented)
                    if draw is not None:
                        pictures[drawn_name(path).name] = draw_detections(
                            prepared.picture, found, record.class_names, oriented=head.oriented
                        )
                show("run", number, len(files))
        if draw is not None:
            with staging(draw, "--draw") as folder:
                for name, picture in pictures.items():
                    save_image(folder / name, picture)
        if tensors is not None:
            with staging(tensors.parent, "--tensors") as folder:
                np.savez(folder / tensors.name, **arrays)  # type: ignore[arg-type]
        if json:
            print_json(results)
            return
        for name, rows in results.items():
            if head is None:
                print(f"{name}: " + ", ".join(f"{tensor} {shape}" for tensor, shape in rows.items()))
                continue
            print(f"{name}: {len(rows)} detections")
            for row in rows:
                place = row.get("corners") or row["box"]
                print(f"  {row['score']:.3f} {row['class']:<20} {place}")
