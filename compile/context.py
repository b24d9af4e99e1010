"""What a compile run knows besides the graph: the user's choices (`Options`) and what steps leave for later steps and reports (`Context`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.quantization import QGraph
from npuforge.hw_kernels.arch import Arch
from npuforge.quant.statistics import Statistics

Progress = Callable[[str, int, int], None]  # (what, done, total)


CheckHead = Callable[
    [Graph, Preprocess], None
]  # raises UsageError where the record's head does not fit the network's outputs


def no_check(graph: Graph, record: Preprocess) -> None:
    """Accepts every head."""


def no_progress(what: str, done: int, total: int) -> None:
    """Shows nothing."""


@dataclass
class Options:
    """The user's choices. `calibration`: image files. `alpha`: None lets the quantiser choose per tensor. `dump`: folder for the steps' graphs."""

    model: Path
    arch: Arch
    output: Path
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    preprocess: Preprocess | None = None
    calibration: list[Path] = field(default_factory=list)
    mode: str = "fine"
    calibrator: str = "minmax"
    alpha: float | None = None
    dump: Path | None = None
    progress: Progress = no_progress
    check_head: CheckHead = no_check


@dataclass
class Context:
    """Filled step by step."""

    options: Options
    preprocess: Preprocess = field(default_factory=Preprocess)
    notices: list[str] = field(default_factory=list)
    statistics: Statistics | None = None
    qgraph: QGraph | None = None
    performance: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
