"""Options that the sub-commands reading a model share, declared once (`Choices`), and how they become `compile.context.Options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from npuforge.board_runtime.heads import Head
from npuforge.board_runtime.session import Session
from npuforge.compile.context import Options, Progress, no_progress
from npuforge.compile.ir.errors import InputError, NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.compile.ir.samples import list_samples
from npuforge.compile.ir.words import counted
from npuforge.hw_kernels import arch as arches
from npuforge.quant.quantize import MODES
from npuforge.quant.ranges import CALIBRATORS
from npuforge.scripts.common import input_files, parse_inputs, parse_shapes, show_notice

DEFAULT_ARCH = "nf-b4096"
PRECISIONS = ("int8", "bf16")
ANY_ROWS = ("boxes", "detections", "yolodecode")  # heads that decode any number of rows
MOST_THREADS = 256  # board_runtime/src/sim/device.cpp refuses more

Model = Annotated[Path, typer.Argument(help="The ONNX file", metavar="MODEL.onnx", show_default=False)]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", help="Static shape of a dynamic input: NAME=1x3x416x416 (repeatable)")
]
ArchName = Annotated[str, typer.Option("--arch", help="Hardware configuration: a name (npuforge arch) or a JSON file")]
PreprocessFile = Annotated[
    str, typer.Option("--preprocess", help="Preprocessing record: a YAML file or a built-in name", show_default=False)
]
Calibration = Annotated[
    Path | None,
    typer.Option("--calib", help="Folder of calibration images, or of .npz with every input", show_default=False),
]
Board = Annotated[
    Path | None,
    typer.Option("--board", help="Description of the board, for --device uio; npuforge board writes it"),
]
FixedInputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="Value of an input besides the image, for all samples: NAME=FILE.npy (repeatable)"),
]
CalibrationCount = Annotated[int, typer.Option("--calib-count", help="Use the first N images by name (0: all)", min=0)]
Precision = Annotated[
    str, typer.Option("--precision", help="int8, or bf16 (no calibration; needs an arch with the feature bf16)")
]
Mode = Annotated[
    str, typer.Option("--mode", help="Integer arithmetic: fine (scales per channel) or pow2 (what a DPU takes)")
]
Calibrator = Annotated[str, typer.Option("--calibrator", help="minmax, percentile or mse")]
Alpha = Annotated[
    float | None,
    typer.Option("--alpha", help="Exponent of the per-channel scales; default: chosen per tensor", min=0.0, max=1.0),
]
Recalibrate = Annotated[
    bool, typer.Option("--recalibrate", help="Ignore the scales of a model that is quantised already; choose new ones")
]
DumpSteps = Annotated[
    Path | None, typer.Option("--dump-steps", help="Save the graph after every step in this folder", show_default=False)
]
PlacementGraph = Annotated[
    Path | None,
    typer.Option("--graph", help="Write the graph coloured by device here: .html (with reasons and remedies) or .svg"),
]
Threads = Annotated[
    int, typer.Option("--threads", help="Threads of the simulator; bench: of both sides", min=1, max=MOST_THREADS)
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]


@dataclass
class Choices:
    """The options of `compile` and `quantize`, as typed. Other sub-commands that read a model take some of them."""

    model: Model
    calib: Calibration = None
    calib_count: CalibrationCount = 0
    preprocess: PreprocessFile = ""
    given: FixedInputs = None
    arch: ArchName = DEFAULT_ARCH
    shape: Shapes = None
    precision: Precision = "int8"
    mode: Mode = "fine"
    calibrator: Calibrator = "minmax"
    alpha: Alpha = None
    recalibrate: Recalibrate = False
    dump_steps: DumpSteps = None

    def check(self, output: Path, progress: Progress = no_progress) -> Options:
        """The checked choices; a wrong one is an NpuforgeError before any work is done. Notices go to standard error."""
        images = [] if self.calib is None else list_samples(self.calib)
        precision, hardware = _known("--precision", self.precision, PRECISIONS), arches.load(self.arch)
        if precision == "bf16":
            _check_bf16(hardware, self.mode)
        return Options(
            model=self.model,
            arch=hardware,
            output=output,
            shapes=parse_shapes(self.shape or []),
            preprocess=load_preprocess(self.preprocess) if self.preprocess else None,
            calibration=images[: self.calib_count] if self.calib_count else images,
            inputs=parse_inputs(self.given or []),
            precision=precision,
            mode=_known("--mode", self.mode, MODES),
            calibrator=_known("--calibrator", self.calibrator, tuple(CALIBRATORS)),
            alpha=self.alpha,
            own_scales=not self.recalibrate,
            dump=self.dump_steps,
            progress=progress,
            notice=show_notice,
            check_head=check_head,
            check_build=check_build,
        )

    def sources(self, options: Options) -> list[Path]:
        """The files that the choices name, folders listed."""
        named = [Path(name) for name in (self.preprocess, self.arch) if name]
        return [self.model, *options.calibration, *input_files(self.given or []), *named]


def takes_choices(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a typer command, whose first parameter is `choices: Choices`, the fields of `Choices` as arguments and options of its own."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    hints = get_type_hints(Choices, include_extras=True)
    shared = [p.replace(annotation=hints[p.name]) for p in inspect.signature(Choices).parameters.values()]

    def command(**given: Any) -> None:
        choices = Choices(**{p.name: given.pop(p.name) for p in shared})
        function(choices, **given)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (shared[0], own[0], *shared[1:], *own[1:])]
    command.__doc__ = function.__doc__
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def typed_options(context: typer.Context) -> set[str]:
    """The options of the running sub-command that stand on the command line, by their long names."""
    sources = {p.opts[0]: context.get_parameter_source(p.name or "") for p in context.command.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _known(option: str, value: str, legal: tuple[str, ...]) -> str:
    if value not in legal:
        raise UsageError(f"{option} {value}: expected one of {', '.join(legal)}")
    return value


def _check_bf16(arch: arches.Arch, mode: str) -> None:
    """UsageError where the choices do not go with bf16."""
    if mode != "fine":
        raise UsageError(f"--mode {mode}: belongs to int8; leave it out with --precision bf16")
    if not arch.bf16:
        able = [name for name in arches.names() if arches.load(name).bf16]
        raise UsageError(f"--precision bf16: arch {arch.name} has no feature bf16; choose --arch {' or '.join(able)}")


def check_head(graph: Graph, record: Preprocess) -> list[str]:
    """InputError where the record's detection head does not fit the network's outputs: decodes outputs of the right shapes once.

    Rows that only a run counts (NMS in the graph) are taken as one; a head that wants a certain number of them is not checked, a notice says so. A notice,
    too, where `class_names` are not as many as the classes.
    """
    head = record.head
    if head.kind == "none":
        return []
    _check_output_names(graph, record)
    shapes = {name: graph.tensors[name].shape for name in graph.outputs}
    if any(d < 0 for shape in shapes.values() for d in shape):
        if head.kind not in ANY_ROWS or any(shape[-1] < 0 for shape in shapes.values() if len(shape) > 1):
            return [
                f"the {head.kind} head is not checked: only a run knows the shapes of the network's outputs; "
                "where they do not fit, `run` and `compare` say so"
            ]
        shapes = {name: tuple(d if d >= 0 else 1 for d in shape) for name, shape in shapes.items()}
    try:
        decoder = Head(record)
        decoder.detect({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
        classes = decoder.class_count(shapes)
    except UsageError as error:  # the runtime's: arguments that do not fit
        raise InputError(str(error)) from error
    named = len(record.class_names)
    if not named or classes is None or named == classes:
        return []
    return [
        f"class_names of the preprocessing has {counted(named, 'name')}, the network's {head.kind} head "
        f"{counted(classes, 'class', 'classes')}; give {classes}, in the order of the network's training, or labels are wrong"
    ]


def check_build(file: Path) -> None:
    """UnsupportedError where the runtime cannot open what was compiled: an operator of the CPU partition with element types or attributes that it lacks."""
    try:
        Session(file, device="sim")
    except NpuforgeError as error:
        raise UnsupportedError(
            f"the runtime could not open this build: {error}; export the network without that node, or with real numbers (float32) in front of it"
        ) from error


def _check_output_names(graph: Graph, record: Preprocess) -> None:
    """InputError where `head.options.outputs` names a tensor that is no output."""
    roles = record.head.options.get("outputs", {})
    for role, names in roles.items() if isinstance(roles, dict) else ():
        for name in names if isinstance(names, list) else [names]:
            if name not in graph.outputs:
                raise InputError(
                    f"{record.head.kind} head: the network has no output `{name}` (head.options.outputs.{role}); "
                    f"its outputs are {', '.join(f'`{o}`' for o in graph.outputs)}"
                )
