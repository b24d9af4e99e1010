"""What several sub-commands share: progress bars, JSON output, `--shape` values."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from npuforge.compile.context import STEPS, no_progress
from npuforge.compile.context import Progress as ProgressCallback
from npuforge.compile.ir.errors import InputError, UsageError, WriteError
from npuforge.hw_kernels.operator import refused_packages

DEVICE_HELP = "sim (fast, bit-exact), csim (the HLS C++ itself), uio (a board with our overlay) or dpu (model.xmodel on the vendor's runtime)"


@contextmanager
def progress(quiet: bool = False) -> Iterator[ProgressCallback]:
    """A callback (`context.Progress`): bars on a terminal (standard error); elsewhere plain lines, one per pipeline step and at 25, 50, 75, 100 %."""
    if quiet:
        yield no_progress
        return
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True)) as bars:
            tasks: dict[str, Any] = {}

            def show(what: str, done: int, total: int, unit: str = "") -> None:
                key = STEPS if unit == STEPS else what  # one bar for all steps
                if key not in tasks:
                    tasks[key] = bars.add_task(what, total=total)
                bars.update(tasks[key], description=what, completed=done, total=total)

            yield show
        return
    shown: dict[str, int] = {}
    begun: set[str] = set()

    def line(what: str, done: int, total: int, unit: str = "") -> None:
        if unit == STEPS:
            if what not in begun:
                begun.add(what)
                print(what, file=sys.stderr)
            return
        quarter = 4 * done // max(total, 1)
        if shown.get(what) != quarter and (done == total or what in shown or total > 1):
            shown[what] = quarter
            print(f"{what}: {done}/{total} {unit}".rstrip(), file=sys.stderr)

    yield line


def input_files(texts: list[str]) -> list[Path]:
    """The files that values of `--input` name."""
    return [Path(text.rpartition("=")[2]) for text in texts]


def parse_inputs(texts: list[str]) -> dict[str, np.ndarray]:
    """`NAME=FILE.npy` values of `--input`. UsageError for another form, InputError for a file that is no array."""
    found: dict[str, np.ndarray] = {}
    for text in texts:
        name, sign, file = text.rpartition("=")
        if not sign or not name or not file or name in found:
            raise UsageError(f"--input {text}: expected NAME=FILE.npy, each name once")
        try:
            value = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            reason = "no .npy file" if "pickle" in str(error) else getattr(error, "strerror", None) or error
            raise InputError(f"--input {text}: {file} cannot be read ({reason}); write it with numpy.save") from error
        if not isinstance(value, np.ndarray):
            raise InputError(f"--input {text}: {file} holds several arrays; give one .npy per input")
        found[name] = value
    return found


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, default=str))


def check_target(path: Path, option: str = "-o") -> None:
    """Refuses, before the work, a file to write that is a folder or whose folder cannot be made or written to."""
    if path.is_dir():
        raise WriteError(f"{path}: is a folder; give the name of a file with {option}")
    _check_writable(path, next(p for p in path.absolute().parents if p.exists()), option)


def check_picture(path: Path) -> None:
    """As `check_target`, for `--graph`: a page or a picture by its suffix."""
    if path.suffix not in (".html", ".svg"):
        raise UsageError(f"--graph {path}: expected a file *.html or *.svg")
    check_target(path, "--graph")


def check_report(path: Path, option: str) -> None:
    """As `check_target`, for the page and the JSON file of the same name beside it."""
    if path.suffix == ".json":
        raise UsageError(
            f"{option} {path}: expected the name of the page, {path.with_suffix('.html')}; the JSON file goes beside it"
        )
    for file in (path, path.with_suffix(".json")):
        check_target(file, option)


def check_folder(path: Path, option: str) -> None:
    """Refuses, before the work, a folder for results that cannot be made or written to."""
    _check_writable(path, next(p for p in (path.absolute(), *path.absolute().parents) if p.exists()), option)


def _check_writable(path: Path, folder: Path, option: str) -> None:
    reason = f"{folder} is a file"
    if folder.is_dir():
        try:
            with tempfile.TemporaryFile(
                dir=folder
            ):  # the one sure test: permissions, read-only mounts, special folders
                return
        except OSError as error:
            reason = f"{error.strerror} in {folder}"
    raise WriteError(f"{path}: cannot be written ({reason}); choose another place with {option}")


def parse_shapes(values: list[str]) -> dict[str, tuple[int, ...]]:
    """`name=1x3x416x416` (or `1x3x416x416` for a single input, key "") to a dictionary."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _, text = value.rpartition("=")
        try:
            shape = tuple(int(part) for part in text.lower().split("x"))
        except ValueError:
            shape = ()
        if not shape or min(shape) < 1:
            raise UsageError(f"--shape '{value}': expected NAME=1x3x416x416 with positive whole numbers")
        shapes[name] = shape
    return shapes


def show_refused_packages() -> None:
    """A notice for every installed package whose operators cannot be loaded."""
    for problem in refused_packages():
        show_notice(problem)


def show_notice(notice: str) -> None:
    """A notice on standard error, one line."""
    print(f"notice: {' '.join(notice.split())}", file=sys.stderr)
