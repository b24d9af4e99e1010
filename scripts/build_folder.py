"""A folder that `npuforge compile` wrote, checked against its manifest before anything in it is used."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import FormatError, InputError, NpuforgeError
from npuforge.compile.ir.plain_text import DuplicateKeyError, parse_json
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.preprocess_io import parse_preprocess
from npuforge.compile.ir.quantization import QGraph
from npuforge.compile.ir.samples import Inputs, InputSpec, Sample, input_specs, load_sample, read_arrays
from npuforge.compile.ir.serialize import load
from npuforge.compile.steps.write_files import BIN, MANIFEST, QUANTISED, REFERENCE, SUMMARY, sha256
from npuforge.scripts.bundle import Checked, check_output, is_bundle_file, unpack

_ATTEMPTS, _PAUSE = 5, 0.2  # while another process writes; seconds


@dataclass
class Build:
    """Paths and records of one compiled network."""

    folder: Path
    manifest: dict[str, Any]
    preprocess: Preprocess
    unpacked: tempfile.TemporaryDirectory[str] | None = None  # of a tar: gone with this object

    @property
    def target(self) -> str:
        """The vendor's DPU it was compiled for, empty for our own NPU."""
        return str(self.manifest.get("target", ""))

    @property
    def files(self) -> list[Path]:
        """Everything that `npuforge compile` wrote."""
        return [self.folder / MANIFEST, *(self.folder / name for name in self.manifest["files"])]

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
        path = self.folder / SUMMARY
        try:
            found: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"), SUMMARY)
            found["model"]["sha256"]
        except (ValueError, KeyError, TypeError, DuplicateKeyError) as error:
            raise FormatError(f"{path}: not a summary of `npuforge compile` ({error}); compile again") from error
        return found

    @cached_property
    def inputs(self) -> dict[str, InputSpec]:
        """The network's inputs."""
        return input_specs(self.qgraph.graph)

    def sample(self, path: Path, fixed: Inputs | None = None) -> Sample:
        """An image, or a `.npz` with every input, as the network takes it; `fixed`: inputs that all samples share."""
        return load_sample(path, self.preprocess, self.inputs, fixed)

    def check_sample(self, run: Callable[[Sample], Mapping[str, np.ndarray]]) -> list[Checked]:
        """The outputs that `run` makes of the bundle's own sample, each beside the expected one. FormatError where the bundle has none."""
        entry = self.manifest.get("sample", {"sample": "an earlier npuforge wrote it"})
        if entry == {}:
            raise FormatError(
                f"{self.folder / MANIFEST}: no sample with its expected outputs, for the reason among the notices of {SUMMARY} "
                "(`npuforge report`); give images instead of --check, or use `npuforge compare`"
            )
        try:
            inputs, outputs = (str(entry[key]) for key in ("inputs", "outputs"))
            missing = [name for name in (inputs, outputs) if name not in self.manifest["files"]]
            if missing:
                raise ValueError(f"files do not name {missing[0]}")
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{self.folder / MANIFEST}: no sample with its expected outputs ({error}); compile again to get one"
            ) from error
        found = run(self.sample(self.folder / inputs))
        expected = read_arrays(self.folder / outputs)
        return [check_output(n, v, found.get(n), str(entry.get("comparison"))) for n, v in expected.items()]

    @cached_property
    def qgraph(self) -> QGraph:
        """The integer graph."""
        found: QGraph = load(self.folder / QUANTISED)
        return found


def changed_file(file: Path) -> str:
    """What is odd about a file of a build, for tools that show damaged files too: not the bytes that the manifest beside it names. Else empty."""
    try:
        entry = parse_json((file.parent / MANIFEST).read_text(encoding="utf-8"), MANIFEST)["files"].get(file.name)
        expected = "" if entry is None else str(entry["sha256"])
        return (
            f"{file}: not the file that {MANIFEST} names; it was changed or is damaged"
            if expected not in ("", sha256(file))
            else ""
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DuplicateKeyError):
        return ""


def open_build(folder: Path) -> Build:
    """The build in `folder`, in the tar file `folder`, or the one that a file `folder` (a `.bin`, an `.xmodel`) is part of.

    Raises FormatError where there is no build, or a file in it is not the one the manifest names. Where another process is just putting a new build
    there (the manifest comes last), it is waited for.
    """
    if is_bundle_file(folder):
        return _open_tar(folder)
    place = folder.parent if folder.is_file() else folder
    for _ in range(_ATTEMPTS):
        before = _stamp(place / MANIFEST)
        try:
            return _open(folder)
        except FormatError:
            time.sleep(_PAUSE)
            if _stamp(place / MANIFEST) == before:
                raise
    return _open(folder)


def _open_tar(file: Path) -> Build:
    temporary = tempfile.TemporaryDirectory(prefix="npuforge-")
    try:
        unpack(file, Path(temporary.name))
        build = _open(Path(temporary.name))
    except NpuforgeError as error:
        temporary.cleanup()
        raise type(error)(str(error).replace(temporary.name, str(file))) from error
    build.unpacked = temporary
    return build


def _stamp(path: Path) -> tuple[int, int]:
    """Changes when a file is replaced by another."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.is_file() else (0, 0)


def _open(folder: Path) -> Build:
    """`open_build`, once."""
    if folder.is_file():
        if not (folder.parent / MANIFEST).is_file():
            raise FormatError(
                f"{folder}: a file without {MANIFEST} beside it; give the folder that `npuforge compile` wrote, or a file in it"
            )
        folder = folder.parent
    path = folder / MANIFEST
    try:
        manifest = parse_json(path.read_text(encoding="utf-8"), MANIFEST)
        files = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        if manifest.get("format") != 1:
            raise ValueError(f"format {manifest.get('format')!r}, expected 1: another version of npuforge wrote it")
        if any(not isinstance(digest, str) or Path(name).name != name for name, digest in files.items()):
            raise ValueError("its files are not plain names with their sha256")
        own = () if manifest.get("target") else (BIN,)
        missing = [name for name in (*own, QUANTISED, REFERENCE, SUMMARY) if name not in files]
        if missing:
            raise ValueError(f"it does not list {missing[0]}")
        preprocess = parse_preprocess(manifest["preprocess"], str(path))
        if preprocess.takes_image:
            preprocess.input = preprocess.input or next(iter(manifest["inputs"]))
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be read ({error.strerror}); expected a folder that `npuforge compile` wrote"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        what = f"key {error} is missing" if isinstance(error, KeyError) else error
        raise FormatError(f"{path}: not a manifest of `npuforge compile` ({what}); compile again") from error
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            raise FormatError(f"{file}: missing, the manifest lists it; compile again")
        found = sha256(file)
        if found != expected:
            raise FormatError(
                f"{file}: sha256 is {found}, the manifest says {expected}; the file was changed or is damaged, compile again"
            )
    return Build(folder, manifest, preprocess)
