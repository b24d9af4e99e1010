"""C++ sources of ours as one text, for export: every `#include "..."` of ours is replaced by the file, once; `<...>` stay."""

from __future__ import annotations

import re
from pathlib import Path

from npuforge.compile.ir.errors import NpuforgeError

ROOT = Path(__file__).resolve().parents[1]  # holds hw_kernels and board_runtime, in a checkout and in a wheel
_INCLUDE = re.compile(r'#include "([^"]+)"')


class Joined:
    """Text with each of our headers in it once."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.parts: list[str] = []

    def add(self, path: Path) -> None:
        """A file, and what it includes in the places where it does."""
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            found = _INCLUDE.match(line)
            if found is None:
                if line.strip() != "#pragma once":
                    self.parts.append(line)
            elif found[1] not in self.seen:
                self.seen.add(found[1])
                self.add(_header(found[1], path))


def _header(name: str, includer: Path) -> Path:
    for folder in (ROOT / "board_runtime" / "include", ROOT):
        if (folder / name).is_file():
            return folder / name
    raise NpuforgeError(f'{includer}: #include "{name}" is neither in board_runtime/include nor below {ROOT}')
