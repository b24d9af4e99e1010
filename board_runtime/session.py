"""A compiled network on a device: `Session`. Needs numpy and the native module only; no onnx, no ONNX Runtime.

session = Session("build/", device="sim", threads=2)
outputs = session.run({"images": pixels})          # uint8 [1, H, W, C], or float32 in the ONNX shape
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import npuforge.board_runtime._native as _native
import numpy as np

from npuforge.compile.ir.errors import FormatError, UsageError, WriteError
from npuforge.compile.ir.files import whole_file

DEVICES: tuple[str, ...] = _native.DEVICES
Span = tuple[str, str, int, int]  # of a partition: name, NPU or CPU, start and duration in nanoseconds


@dataclass(frozen=True)
class TensorSpec:
    """A network input or output. `shape` in the ONNX layout; `image`: also takes uint8 pixels [1, H, W, C] in the model's channel order."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nhwc: bool
    image: bool
    fix_point: int | None


@dataclass(frozen=True)
class TraceRecord:
    """What one layer left on the device: int8 [1, H, W, C], logical channels. `pad_lane_errors`: bytes of pad lanes that are not 0."""

    id: str
    name: str
    tensor: str
    data: np.ndarray
    pad_lane_errors: int


def bin_path(source: str | os.PathLike[str]) -> Path:
    """The `.bin` itself, or `model.bin` in a build folder."""
    path = Path(source)
    return path / "model.bin" if path.is_dir() else path


class Session:
    """Runs whole models; any number of threads may call `run` at once.

    `expected_arch`: the arch JSON of the hardware at hand; a `.bin` for another one is refused with the parameters that differ.
    `level`: the processor's instruction set that `sim` uses: auto (the best), scalar, avx2 or avx512; the bits are the same.
    `board`: description of the board, for the device `uio` (docs/board.md). Raises DeviceError where its hardware is not there or does not answer.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes,
        device: str = "sim",
        threads: int = 1,
        expected_arch: Mapping[str, Any] | None = None,
        level: str = "auto",
        board: str | os.PathLike[str] | None = None,
    ) -> None:
        arch = "" if expected_arch is None else json.dumps(dict(expected_arch))
        if isinstance(source, bytes):
            program = _native.Program.parse(source, arch)
        else:
            path = bin_path(source)
            if not path.is_file():
                raise FormatError(f"{path}: no such file; give a .bin or a folder that npuforge compile wrote")
            program = _native.Program.load(os.fspath(path), arch)
        self._program = program
        self.native = _native.Session(program, device, threads, level, "" if board is None else os.fspath(board))
        self.device = device
        self.inputs = [TensorSpec(**spec) for spec in program.inputs]
        self.outputs = [TensorSpec(**spec) for spec in program.outputs]

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self._program.name)

    @property
    def meta(self) -> dict[str, Any]:
        """The meta section of the `.bin`."""
        return dict(json.loads(self._program.meta_json))

    @property
    def preprocess(self) -> dict[str, Any]:
        """The preprocessing record, class names and head included."""
        return dict(self.meta.get("preprocess") or {})

    def run(self, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """One inference; outputs by name in the ONNX shape."""
        return self._named(self.native.run(self._arrays(inputs)))

    def trace(
        self, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]
    ) -> tuple[dict[str, np.ndarray], list[TraceRecord]]:
        """One inference and what every NPU layer left, in the order of the program; on `uio` only the layers whose output leaves the NPU."""
        records: list[dict[str, Any]] = []
        outputs = self.native.run(self._arrays(inputs), trace=records)
        return self._named(outputs), [TraceRecord(**record) for record in records]

    def profile(
        self, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray], file: str | os.PathLike[str], runs: int = 1
    ) -> dict[str, np.ndarray]:
        """`runs` inferences; writes a Chrome/Perfetto trace of the partitions."""
        arrays, inferences = self._arrays(inputs), []
        for _ in range(max(1, runs)):
            spans: list[Span] = []
            outputs = self.native.run(arrays, profile=spans)
            inferences.append(spans)
        write_profile(Path(file), self.name, self.device, inferences)
        return self._named(outputs)

    def prometheus(self) -> str:
        """Latency histogram, requests, errors, queue depth and pool use in Prometheus text format."""
        return str(self.native.prometheus())

    def _arrays(self, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> list[np.ndarray]:
        return named_arrays(self.name, self.inputs, inputs)

    def _named(self, outputs: list[np.ndarray]) -> dict[str, np.ndarray]:
        return {spec.name: array for spec, array in zip(self.outputs, outputs, strict=True)}


def named_arrays(
    model: str, specs: Sequence[TensorSpec], inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Arrays in the order of `specs`; given by name, none may be missing or unknown."""
    if not isinstance(inputs, Mapping):
        return [np.asarray(array) for array in inputs]
    unknown = [name for name in inputs if name not in {spec.name for spec in specs}]
    missing = [spec.name for spec in specs if spec.name not in inputs]
    if unknown or missing:
        names = ", ".join(spec.name for spec in specs)
        raise UsageError(f"model {model}: expected the inputs {names}, found {', '.join(inputs) or 'none'}")
    return [np.asarray(inputs[spec.name]) for spec in specs]


def write_profile(file: Path, model: str, device: str, inferences: Sequence[Sequence[Span]]) -> None:
    """A Chrome/Perfetto trace of inferences, one after the other."""
    events, start = [], 0
    for index, spans in enumerate(inferences):
        end = max((s + d for _, _, s, d in spans), default=0)
        events.append(_event(f"inference {index}", "run", start, end, 1))
        events += [_event(name, kind, start + s, d, 2 if kind == "NPU" else 3) for name, kind, s, d in spans]
        start += end
    names = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": tid, "args": {"name": text}}
        for tid, text in ((1, model), (2, f"NPU ({device})"), (3, "CPU"))
    ]
    text = json.dumps({"traceEvents": names + events, "displayTimeUnit": "ms"})
    try:
        with whole_file(file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{os.fspath(file)}: cannot be written ({error.strerror})") from None


def _event(name: str, category: str, start: int, duration: int, tid: int) -> dict[str, Any]:
    span = {"name": name, "cat": category, "ph": "X", "ts": start / 1000, "dur": duration / 1000}
    return {**span, "pid": 1, "tid": tid}
