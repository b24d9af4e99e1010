"""What several sub-commands share: progress bars, JSON output, `--shape` values."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from npuforge.compile.ir.errors import NpuforgeError, UsageError

# progress(what, done, total)
ProgressCallback = Callable[[str, int, int], None]


@contextmanager
def progress(quiet: bool = False) -> Iterator[ProgressCallback]:
    """A callback `(what, done, total)`: bars on a terminal (standard error), plain lines at 0, 25, 50, 75, 100 % elsewhere."""
    if quiet:
        yield lambda what, done, total: None
        return
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True)) as bars:
            tasks: dict[str, Any] = {}

            def show(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total)
                bars.update(tasks[what], completed=done, total=total)

            yield show
        return
    shown: dict[str, int] = {}

    def line(what: str, done: int, total: int) -> None:
        quarter = 4 * done // max(total, 1)
        if shown.get(what) != quarter and (done == total or what in shown or total > 1):
            shown[what] = quarter
            print(f"{what}: {done}/{total}", file=sys.stderr)

    yield line


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, default=str))


def check_target(path: Path) -> None:
    """Refuses, before the work, a file to write that is a folder or whose folder cannot be made or written to."""
    parent = next(p for p in path.absolute().parents if p.exists())
    reason = ""
    if path.is_dir():
        reason = "is a folder; give the name of a file"
    elif not parent.is_dir():
        reason = f"cannot be written ({parent} is a file); choose another place"
    elif not os.access(parent, os.W_OK | os.X_OK):
        reason = f"cannot be written (no permission in {parent}); choose another place"
    if reason:
        raise NpuforgeError(f"{path}: {reason}")


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


def show_notices(notices: list[str]) -> None:
    """Notices on standard error, one line each."""
    for notice in notices:
        print(f"notice: {' '.join(notice.split())}", file=sys.stderr)
