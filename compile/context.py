"""What a compile run knows besides the graph: the user's choices (`Options`) and what steps leave for later steps and reports (`Context`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels.arch import Arch
from npuforge.quant.statistics import Statistics

STEPS = "steps"  # the unit of pipeline steps themselves


class Progress(Protocol):
    """Called with what is being done, how many of how many are done, and their name (`images`)."""

    def __call__(self, what: str, done: int, total: int, unit: str = "") -> None: ...


# Notices about the record's head; raises InputError where it does not fit the outputs.
CheckHead = Callable[[Graph, Preprocess], list[str]]


def no_check(graph: Graph, record: Preprocess) -> list[str]:
    """Accepts every head."""
    return []


def no_opening(file: Path) -> None:
    """Accepts every build."""


def no_progress(what: str, done: int, total: int, unit: str = "") -> None:
    """Shows nothing."""


def no_notice(text: str) -> None:
    """Shows nothing."""


@dataclass
class Options:
    """The user's choices. `calibration`: samples, `inputs`: of the inputs that are the same in all of them (compile/ir/samples.py). `alpha`: None lets the quantiser choose per tensor. `own_scales`: a quantised model's scales
    and integer weights are taken over. `dump`: folder for the steps' graphs.

    `check_build` gets the written `.bin` before the build is put in place; raises UnsupportedError where the runtime cannot open it.
    `notice` is called with each notice the moment it is known, `progress` as the work goes on.
    """

    model: Path
    arch: Arch
    output: Path
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    preprocess: Preprocess | None = None
    calibration: list[Path] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    precision: str = "int8"  # or "bf16"
    mode: str = "fine"  # arithmetic of int8
    calibrator: str = "minmax"
    alpha: float | None = None
    own_scales: bool = True
    dump: Path | None = None
    progress: Progress = no_progress
    notice: Callable[[str], None] = no_notice
    check_head: CheckHead = no_check
    check_build: Callable[[Path], None] = no_opening

    @property
    def sources(self) -> list[Path]:
        """Files that no result may replace."""
        return [self.model, *self.calibration]


@dataclass
class Context:
    """Filled step by step. `limit`: another hardware's reason against a node, empty if it takes it."""

    options: Options
    limit: Callable[[Node, Graph], str] | None = None
    preprocess: Preprocess = field(default_factory=Preprocess)
    notices: list[str] = field(default_factory=list)
    statistics: Statistics | None = None
    qgraph: QGraph | None = None
    performance: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    position: str = ""  # of the step at work, "[6/12] calibrate"

    def note(self, texts: Iterable[str]) -> None:
        """Keeps notices and shows them at once."""
        for text in texts:
            self.notices.append(text)
            self.options.notice(text)
