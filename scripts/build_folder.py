"""A folder that `npuforge compile` wrote, checked against its manifest before anything in it is used."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import parse_preprocess
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.ir.serialize import load
from npuforge.compile.steps.write_files import BIN, MANIFEST, QUANTISED, REFERENCE, SUMMARY, sha256


@dataclass
class Build:
    """Paths and records of one compiled network."""

    folder: Path
    manifest: dict[str, Any]
    preprocess: Preprocess

    @property
    def bin(self) -> Path:
        """The `.bin` file."""
        return self.folder / BIN

    @property
    def reference(self) -> Path:
        """The float network with static shapes, arithmetic untouched."""
        return self.folder / REFERENCE

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What `compile` wrote for the report."""
        found: dict[str, Any] = json.loads((self.folder / SUMMARY).read_text(encoding="utf-8"))
        return found

    @cached_property
    def qgraph(self) -> QGraph:
        """The integer graph."""
        found: QGraph = load(self.folder / QUANTISED)
        return found


def open_build(folder: Path) -> Build:
    """Raises FormatError where the folder is not a build or a file in it is not the one the manifest names."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{path}: not a build folder of `npuforge compile` ({reason})") from error
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            raise FormatError(f"{file}: missing, the manifest lists it; compile again")
        found = sha256(file)
        if found != expected:
            raise FormatError(
                f"{file}: sha256 is {found[:16]}…, the manifest says {expected[:16]}…; the file was changed or is damaged, compile again"
            )
    return Build(folder, manifest, parse_preprocess(manifest["preprocess"], str(path)))
