"""`npuforge evaluate`: mAP of the float network, the integer graph and the device on images with truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from npuforge.board_runtime.devices import check_device
from npuforge.board_runtime.heads import COCO_SETTINGS, Head
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.samples import Inputs
from npuforge.scripts import model_options as m
from npuforge.scripts.build_folder import Build, open_build
from npuforge.scripts.columns import DeviceColumn, FloatColumn, IntegerColumn
from npuforge.scripts.command_compare import Count, load_truth
from npuforge.scripts.common import DEVICE_HELP, parse_inputs, print_json, progress, show_refused_packages
from npuforge.scripts.comparison import COLUMNS, Progress
from npuforge.scripts.datasets import Dataset
from npuforge.scripts.mean_average_precision import Metrics, mean_average_precision
from npuforge.scripts.report.data import DEVICE, FLOAT, INTEGER


def evaluate_columns(
    build: Build,
    dataset: Dataset,
    wanted: list[str],
    device: str,
    reference: str,
    threads: int,
    show: Progress,
    fixed: Inputs | None = None,
    board: Path | None = None,
) -> dict[str, Metrics]:
    """COCO's evaluation of each wanted column over the dataset (settings: board_runtime.heads.COCO_SETTINGS)."""
    columns = {
        name: make()
        for name, make in (
            (FLOAT, lambda: FloatColumn(build, reference, fixed)),
            (INTEGER, lambda: IntegerColumn(build)),
            (DEVICE, lambda: DeviceColumn(build, device, threads, board=board)),
        )
        if name in wanted
    }
    for column in columns.values():
        if isinstance(column, FloatColumn):
            column.check([entry.path for entry in dataset.images])
    head = Head(build.preprocess, COCO_SETTINGS)
    found: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    for number, entry in enumerate(dataset.images, start=1):
        image = build.sample(entry.path, fixed)
        for name, column in columns.items():
            found[name].append(head.detect(column(image), image.geometry))
        show("evaluate", number, len(dataset.images))
    return {name: mean_average_precision(dataset, detections) for name, detections in found.items()}


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("evaluate")
    def command(
        build: Annotated[Path, typer.Argument(help="Folder that npuforge compile wrote")],
        images: Annotated[Path, typer.Option("--images", help="Folder of images")],
        truth: Annotated[
            Path, typer.Option("--truth", help="COCO JSON, or a folder of YOLO text (oriented boxes too) or VOC XML")
        ],
        columns: Annotated[
            str, typer.Option("--columns", help="Which of float,integer,device")
        ] = "float,integer,device",
        device: Annotated[str, typer.Option("--device", help=DEVICE_HELP)] = "sim",
        board: m.Board = None,
        reference: Annotated[str, typer.Option("--reference", help="auto, or a recorded .npz")] = "auto",
        given: m.FixedInputs = None,
        first: Annotated[int, typer.Option("--skip", help="Leave out the first N images by name", min=0)] = 0,
        count: Count = 0,
        threads: m.Threads = 2,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Measure mAP. Example: npuforge evaluate build/ --images val/ --truth instances.json"""
        check_device(device, board)
        wanted = columns.split(",")
        if not wanted or not set(wanted) <= set(COLUMNS):
            raise UsageError(f"--columns {columns}: expected some of {', '.join(COLUMNS)}, separated by commas")
        opened = open_build(build)
        show_refused_packages()
        dataset = load_truth(opened, images, truth, first, count)
        with progress(json) as show:
            metrics = evaluate_columns(
                opened, dataset, wanted, device, reference, threads, show, parse_inputs(given or []), board
            )
        if json:
            print_json({name: m.to_json() for name, m in metrics.items()})
            return
        boxes = ", oriented boxes" if dataset.oriented else ""
        print(f"{len(dataset.images)} images, {opened.manifest['mode']}{boxes}")
        for name, found in metrics.items():
            print(f"{name:<8} mAP50-95 {100 * found.map:6.2f}   mAP50 {100 * found.map50:6.2f}")
