"""What `--device` may say, and the one way to open a build on it: `open_session`. Sessions of all devices have `Session`'s interface."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npuforge.board_runtime import session
from npuforge.board_runtime.dpu import DEVICE as DPU
from npuforge.board_runtime.dpu import DpuSession
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import UsageError

DEVICES: tuple[str, ...] = (*session.DEVICES, DPU)
UIO = "uio"  # a board with our overlay
AnySession = Session | DpuSession


def open_session(
    folder: str | os.PathLike[str],
    device: str,
    threads: int = 1,
    expected_arch: Mapping[str, Any] | None = None,
    level: str = "auto",
    board: Path | None = None,
) -> AnySession:
    """A build folder on `sim`, `csim`, `uio` (its `.bin`, compiled for our NPU) or `dpu` (its `.xmodel`, on the vendor's runtime).

    `board`: the description of the board, which `uio` needs. Raises UsageError for a device that is not here or that the build was not compiled
    for, FormatError for a damaged file, DeviceError for a board that is not there or does not answer.
    """
    check_device(device, board)
    path = Path(folder)
    target = _target(path)
    if device != DPU:
        if target:
            raise UsageError(f"--device {device}: {path} was compiled for {target}; run it with --device {DPU}")
        return Session(path, device, threads, expected_arch, level, board)
    if expected_arch is not None:
        raise UsageError(
            f"--arch: belongs to our own hardware; the vendor's runtime compares the fingerprints of --device {DPU}"
        )
    return DpuSession(path, threads)


def check_device(device: str, board: Path | None = None) -> None:
    """UsageError for a device that this installation does not have, and for a board's description where none belongs or the one that is lacking."""
    if device not in DEVICES:
        raise UsageError(f"--device {device}: this installation has {', '.join(DEVICES)}")
    if device == UIO and board is None:
        raise UsageError(
            f"--device {UIO}: give the description of the board, --board board.json; npuforge board writes it (docs/board.md)"
        )
    if device != UIO and board is not None:
        raise UsageError(f"--board {board}: belongs to --device {UIO}, found --device {device}")


def _target(folder: Path) -> str:
    """The vendor's DPU that a build folder was compiled for, empty for our own NPU."""
    try:
        return str(json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("target", ""))
    except (OSError, ValueError, AttributeError):
        return ""
