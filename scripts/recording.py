"""A float reference recorded on another machine (usually one with a GPU): network outputs per image in one `.npz`, tied to the model by its hash."""

from __future__ import annotations

import hashlib
import json
import platform
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.files import whole_file
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.samples import Inputs, InputSpec, companion, load_sample
from npuforge.compile.reference import FloatReference


@dataclass
class Recording:
    """Outputs by image file name, and where they came from. `image_sha256`: of each file and of each input given once, by `digests`."""

    model_sha256: str
    provider: str
    machine: str
    preprocess: dict[str, Any]
    image_sha256: dict[str, str]
    outputs: dict[str, dict[str, np.ndarray]]


def digests(images: Sequence[Path], fixed: Inputs, digest: Callable[[Path], str]) -> dict[str, str]:
    """sha256 of every sample's files by name, and of the inputs that all share as `--input NAME`."""
    files = [file for path in images for file in (path, companion(path)) if file is not None]
    shared = {
        f"--input {name}": hashlib.sha256(f"{value.dtype}{value.shape}".encode() + value.tobytes()).hexdigest()
        for name, value in fixed.items()
    }
    return {file.name: digest(file) for file in files} | shared


def record(
    reference: FloatReference,
    model_sha256: str,
    images: list[Path],
    preprocess: Preprocess,
    specs: Mapping[str, InputSpec],
    fixed: Inputs,
    digest: Callable[[Path], str],
    progress: Callable[[int, int], None],
) -> Recording:
    """Runs the network on every image."""
    outputs: dict[str, dict[str, np.ndarray]] = {}
    for number, path in enumerate(images, start=1):
        found = reference.run(load_sample(path, preprocess, specs, fixed).inputs)
        outputs[path.name] = {name: found[name] for name in reference.output_names}
        progress(number, len(images))
    hashes = digests(images, fixed, digest)
    return Recording(
        model_sha256, reference.provider, platform.node() or "unknown", preprocess.to_json(), hashes, outputs
    )


def save_recording(recording: Recording, path: Path) -> None:
    """Writes the `.npz` (temporary file, then rename)."""
    arrays: dict[str, np.ndarray] = {}
    names: dict[str, list[str]] = {}
    for image, tensors in recording.outputs.items():
        for tensor, value in tensors.items():
            key = f"t{len(arrays)}"
            arrays[key], names[key] = value, [image, tensor]
    header = {k: v for k, v in asdict(recording).items() if k != "outputs"} | {"names": names, "format": 1}
    try:
        with whole_file(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    except OSError as error:  # numpy's names no file
        raise OSError(error.errno, error.strerror, str(path)) from error


def load_recording(path: Path, model_sha256: str, preprocess: Preprocess) -> Recording:
    """Reads a recording made of this very model with this very preprocessing; FormatError otherwise, saying which differs."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes().decode())
            names = header.pop("names")
            header.pop("format")
            outputs: dict[str, dict[str, np.ndarray]] = {}
            for key, (image, tensor) in names.items():
                outputs.setdefault(image, {})[tensor] = file[key]
        recording = Recording(**header, outputs=outputs)
    except FileNotFoundError as error:
        raise FormatError(f"{path}: no such file; expected `auto` or what `npuforge reference record` wrote") from error
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
    ) as error:
        reason = "no .npz file" if "pickle" in str(error) else error
        raise FormatError(
            f"{path}: not a reference recorded by `npuforge reference record` ({reason}); record it again"
        ) from error
    if recording.model_sha256 != model_sha256:
        raise FormatError(
            f"{path}: recorded from the model with sha256 {recording.model_sha256[:16]}…, this build comes from {model_sha256[:16]}…; "
            "record the reference again from the same ONNX file"
        )
    head_free = {k: v for k, v in preprocess.to_json().items() if k not in ("head", "class_names", "input")}
    differing = sorted(k for k, v in head_free.items() if recording.preprocess.get(k) != v)
    if differing:
        raise FormatError(
            f"{path}: recorded with another preprocessing: {', '.join(differing)} differ; record it again"
        )
    return recording
