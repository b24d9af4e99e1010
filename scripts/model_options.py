"""Options that the sub-commands reading a model share, and how they become `compile.context.Options`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from npuforge.board_runtime.heads import Head
from npuforge.compile.context import Options, Progress, no_progress
from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.image import list_images
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.hw_kernels import arch as arches
from npuforge.quant.quantize import MODES
from npuforge.quant.ranges import CALIBRATORS
from npuforge.scripts.common import parse_shapes

Model = Annotated[Path, typer.Argument(help="The ONNX file", metavar="MODEL.onnx", show_default=False)]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", help="Static shape of a dynamic input: NAME=1x3x416x416 (repeatable)")
]
ArchName = Annotated[str, typer.Option("--arch", help="Hardware configuration: a name (npuforge arch) or a JSON file")]
PreprocessFile = Annotated[
    str, typer.Option("--preprocess", help="Preprocessing record: a YAML file or a built-in name", show_default=False)
]
Calibration = Annotated[Path | None, typer.Option("--calib", help="Folder of calibration images", show_default=False)]
CalibrationCount = Annotated[int, typer.Option("--calib-count", help="Use the first N images by name (0: all)", min=0)]
Mode = Annotated[
    str, typer.Option("--mode", help="Integer arithmetic: fine (scales per channel) or pow2 (what a DPU takes)")
]
Calibrator = Annotated[str, typer.Option("--calibrator", help="minmax, percentile or mse")]
Alpha = Annotated[
    float | None,
    typer.Option("--alpha", help="Exponent of the per-channel scales; default: chosen per tensor", min=0.0, max=1.0),
]
DumpSteps = Annotated[
    Path | None, typer.Option("--dump-steps", help="Save the graph after every step in this folder", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]


def _known(option: str, value: str, legal: tuple[str, ...]) -> str:
    if value not in legal:
        raise UsageError(f"{option} {value}: expected one of {', '.join(legal)}")
    return value


def check_head(graph: Graph, record: Preprocess) -> None:
    """UsageError where the record's detection head does not fit the network's outputs: decodes outputs of the right shapes once."""
    shapes = {name: graph.tensors[name].shape for name in graph.outputs}
    if record.head.kind != "none" and all(d >= 0 for shape in shapes.values() for d in shape):
        Head(record).detect({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})


def make_options(
    model: Path,
    arch: str,
    output: Path,
    *,
    shapes: list[str] | None = None,
    preprocess: str = "",
    calibration: Path | None = None,
    calibration_count: int = 0,
    mode: str = "fine",
    calibrator: str = "minmax",
    alpha: float | None = None,
    dump: Path | None = None,
    progress: Progress = no_progress,
) -> Options:
    """The checked choices; every wrong one is a UsageError or CalibrationError before any work is done."""
    images = [] if calibration is None else list_images(calibration)
    return Options(
        model=model,
        arch=arches.load(arch),
        output=output,
        shapes=parse_shapes(shapes or []),
        preprocess=load_preprocess(preprocess) if preprocess else None,
        calibration=images[:calibration_count] if calibration_count else images,
        mode=_known("--mode", mode, MODES),
        calibrator=_known("--calibrator", calibrator, tuple(CALIBRATORS)),
        alpha=alpha,
        dump=dump,
        progress=progress,
        check_head=check_head,
    )
