"""C++ sources of ours as one text, for export: every `#include "..."` of ours is replaced by the file, once; `<...>` stay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from npuforge.compile.ir.errors import NpuforgeError

ROOT = Path(__file__).resolve().parents[1]  # holds hw_kernels and board_runtime, in a checkout and in a wheel
_INCLUDE = re.compile(r'#include "([^"]+)"')
_RUNTIME = ("cpu_operators", "json", "json_value")  # of board_runtime/src: what every CPU kernel stands on
_BY_HEADER = {"npuforge/cpu_gemm.hpp": "cpu_gemm"}  # and what some do


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

    def add_cpu_operators(self, folders: Iterable[Path]) -> str:
        """The kernels of the CPU partition (`cpu.hpp`) of operator folders and all they stand on; returns `register_all`, which goes behind them."""
        ordered = sorted(folders)
        for folder in ordered:
            self.add(folder / "cpu.hpp")
        more = [name for header, name in _BY_HEADER.items() if header in self.seen]
        for name in (*_RUNTIME, *more):
            self.add(ROOT / "board_runtime" / "src" / f"{name}.cpp")
        calls = "".join(f"    register_{folder.name}(registry);\n" for folder in ordered)
        body = f"void register_all(Registry& registry) {{\n{calls}}}\n"
        return f"namespace npuforge::cpu {{\n{body}}}  // namespace npuforge::cpu\n"


def _header(name: str, includer: Path) -> Path:
    for folder in (ROOT / "board_runtime" / "include", ROOT):
        if (folder / name).is_file():
            return folder / name
    raise NpuforgeError(f'{includer}: #include "{name}" is neither in board_runtime/include nor below {ROOT}')
