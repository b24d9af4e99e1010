"""Command line of the lint, and the kit's own files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from npuforge.compile.ir.errors import NpuforgeError, UsageError

from .constructs import GENERATED, findings
from .recursion import calls, recursion
from .source import bare, context

ROOT = Path(__file__).parents[1]
PORT = "npu_port.hpp"


def sources() -> list[Path]:
    """Everything that is synthesised: hls/ but for the portability header, and the kernels of operator folders."""
    engines = [p for p in (ROOT / "hls").iterdir() if p.suffix in (".hpp", ".cpp") and p.name != PORT]
    return sorted(engines) + sorted((ROOT / "ops").glob("*/kernel.hpp"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(
            f"{path}: cannot be read: {reason}; expected files of HLS C++, or none for the kit's own"
        ) from None


def main(arguments: Iterable[str]) -> int:
    """Checks the files named, or all of the kit's; 0: nothing found, 1: something, 2: a file that cannot be read."""
    own = sources()
    try:
        texts = {path: _read(path) for path in [Path(a) for a in arguments] or own}
    except NpuforgeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    others = [_read(path) for path in own if path.suffix == ".hpp" and path.parent.name == "hls" and path not in texts]
    known = context(bare("\n".join([*others, *texts.values()])))
    headers = {GENERATED, PORT} | {p.name for p in own if p.parent.name == "hls"} | {path.name for path in texts}
    lines = [f"{path}:{f}" for path, text in texts.items() for f in findings(text, known, frozenset(headers))]
    lines += [f"recursion: {name} reaches itself" for name in recursion(calls("\n".join(texts.values())))]
    print("\n".join(lines) or f"{len(texts)} files: nothing found")
    return 1 if lines else 0
