"""Device `dpu`: an .xmodel on the vendor's runtime, behind `Session`'s interface: `DpuSession`.

Our own reader checks the file first. Then its children run in order, each on a runner that the vendor's `vart` makes for it (mode `run`): DPU children on the
DPU; CPU children, for which the vendor has a closed runner only, on our plug-in libnpuforge-runner.so, op by op. The vendor's runtime ends the process
where it cannot open something; so all runners are opened once in a process of its own before they are opened here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import queue
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.board_runtime.compiled_folder import CompiledFolder, read_folder
from npuforge.board_runtime.open_rows import OPEN, filling, used_part
from npuforge.board_runtime.session import Span, TensorSpec, TraceRecord, named_arrays, write_profile
from npuforge.compile.dpu.belonging import check_belongs, output_op
from npuforge.compile.ir.errors import DeviceError, FormatError
from npuforge.compile.xir.model import FLOAT_FORM_OF, UNREAD_INPUTS, XModel, XOp, XTensor
from npuforge.compile.xir.validate import read_checked
from npuforge.hw_kernels.bf16 import from_float32

DEVICE = "dpu"
PLUG_IN = "libnpuforge-runner.so"
_VENDORS_CPU_RUNNER = "libvart-cpu-runner.so"
_TYPES: dict[str, np.dtype[Any]] = {
    "xint8": np.dtype(np.int8),
    "float32": np.dtype(np.float32),
}  # what the vendor's module passes on, both ways
_FATAL = re.compile(r"^F\d{4,8} [^\]]*\] (.+)$", re.MULTILINE)  # the line before glog ends the process
_PROBE_SECONDS = 300
Values = dict[str, np.ndarray]


_Buffer = tuple[str, tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class _Step:
    """One child and its runner; tensors as the runner has them (the batch is the hardware's)."""

    name: str
    device: str
    runner: Any
    inputs: list[_Buffer]
    outputs: list[_Buffer]


class DpuSession:
    """Runs whole networks. Any number of threads may call `run`; `threads` of them are served at once, each by its own runners.

    `folder`: a build of `npuforge compile --target dpu:…` with the vendor's compiled `model.xmodel` in it, or any other build, whose own .xmodel is then run.
    DeviceError where the vendor's runtime is not there or refuses the file; FormatError where the file was compiled from another network (belonging.py).
    """

    def __init__(self, folder: str | os.PathLike[str], threads: int = 1) -> None:
        self.folder: CompiledFolder = read_folder(Path(folder))
        path = self.folder.xmodel
        _check_modules()
        self._model = read_checked(path)
        _check_compiled(self._model, path)
        self.device, self.name = DEVICE, self.folder.name
        self.inputs, self.outputs, self.preprocess = self.folder.inputs, self.folder.outputs, self.folder.preprocess
        self._tensors = {op.tensor.name: op.tensor for op in self._model.ops}
        self._entries = {spec.name: _entries(self._model, spec.name, self.folder.float_inputs) for spec in self.inputs}
        self._exits = _exits(self._model, self.outputs)
        if self.folder.target:
            check_belongs(self._model, path)
        plug_in = _plug_in(self._model)
        _probe(path, plug_in)
        graphs = [_graph(str(path))]
        chains = [_runners(graphs[0], plug_in) for _ in range(threads)]
        self._left = [b for s in chains[0] if s.device == "DPU" for b, _, kind in s.outputs if self._is_fixed(b, kind)]
        self._free: queue.SimpleQueue[list[_Step]] = queue.SimpleQueue()
        for steps in chains:
            self._free.put(steps)
        weakref.finalize(self, _release, chains, graphs)

    def run(self, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> Values:
        """One inference; outputs by name in the ONNX shape, float32."""
        return self._leaving(self._infer(inputs))

    def trace(self, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> tuple[Values, list[TraceRecord]]:
        """One inference and what left the DPU: its subgraphs' int8 outputs (bf16: bits) [1, H, W, C]; what lies inside is not to be seen."""
        values = self._infer(inputs)
        bits = {n: values[n] if values[n].dtype == np.int8 else from_float32(values[n]) for n in self._left}
        names = [(self.folder.graph_tensor(name), name) for name in self._left]
        records = [TraceRecord("", tensor, tensor, bits[name], 0) for tensor, name in names]
        return self._leaving(values), records

    def _is_fixed(self, name: str, kind: np.dtype[Any]) -> bool:
        return kind == np.int8 or (name in self._tensors and self._tensors[name].dtype == "BFLOAT16")

    def profile(
        self, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray], file: str | os.PathLike[str], runs: int = 1
    ) -> Values:
        """`runs` inferences; writes a Chrome/Perfetto trace of the subgraphs."""
        inferences = []
        for _ in range(max(1, runs)):
            spans: list[Span] = []
            values = self._infer(inputs, spans)
            inferences.append(spans)
        write_profile(Path(file), self.name, self.device, inferences)
        return self._leaving(values)

    def _infer(
        self,
        inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray],
        spans: list[Span] | None = None,
    ) -> Values:
        """All tensors that cross a border, by their names in the file."""
        values: Values = {}
        for spec, array in zip(self.inputs, named_arrays(self.name, self.inputs, inputs), strict=True):
            for op in self._entries[spec.name]:
                nhwc = self.folder.is_nhwc_in_file(spec, op)
                values[op.tensor.name] = entering(np.asarray(array), spec, op.tensor, nhwc)
        begin = time.perf_counter_ns()
        with self._steps() as steps:
            for step in steps:
                start = time.perf_counter_ns()
                self._execute(step, values)
                if spans is not None:
                    kind = "NPU" if step.device == "DPU" else "CPU"
                    spans.append((step.name, kind, start - begin, time.perf_counter_ns() - start))
        return values

    @contextlib.contextmanager
    def _steps(self) -> Iterator[list[_Step]]:
        steps = self._free.get()
        try:
            yield steps
        finally:
            self._free.put(steps)

    def _execute(self, step: _Step, values: Values) -> None:
        arrays = [_filled(values[name], dims, kind, name) for name, dims, kind in step.inputs]
        results = [np.zeros(dims, kind) for _, dims, kind in step.outputs]
        job = step.runner.execute_async(arrays, results)
        status = step.runner.wait(job) if job[1] == 0 else job[1]
        if status != 0:
            raise DeviceError(
                f"subgraph {step.name}: the vendor's runner ended with status {status}; its own messages are above"
            )
        for (name, dims, _), array in zip(step.outputs, results, strict=True):
            batch = self._tensors[name].shape[0] if name in self._tensors and self._tensors[name].shape else dims[0]
            values[name] = array[:batch]

    def _leaving(self, values: Values) -> Values:
        return {spec.name: left(values[t.name], t, spec, self.folder) for spec, t in self._exits}


def entering(array: np.ndarray, spec: TensorSpec, tensor: XTensor, nhwc_in_file: bool) -> np.ndarray:
    """A network input as its USER subgraph gives it: N, H, W, C where the file says so; int8 = floor(x * 2^fix_point + 1/2) where it is fixed."""
    if array.shape != spec.shape:
        raise FormatError(f"input {spec.name}: expected shape {list(spec.shape)}, found {list(array.shape)}")
    value = np.asarray(array, np.float32)
    if len(tensor.shape) > value.ndim:  # a scalar, or one that does not begin with the batch
        value = value[np.newaxis]
    if nhwc_in_file and not spec.nhwc:
        value = value.transpose(0, 2, 3, 1)
    fix_point = tensor.attrs.get("fix_point")
    if tensor.dtype == "XINT8" and fix_point is not None:
        scaled = np.floor(value.astype(np.float64) * 2.0**fix_point.value + 0.5)
        return np.clip(scaled, -128, 127).astype(np.int8)
    return value  # an int8 tensor without one scale: our runner takes float32 and does it


def _filled(value: np.ndarray, dims: tuple[int, ...], kind: np.dtype[Any], name: str) -> np.ndarray:
    """The array that a runner reads: C-contiguous, writable, with the hardware's batch. The unused batches are 0."""
    if value.shape[1:] != dims[1:] or value.shape[0] > dims[0]:
        raise DeviceError(f"tensor {name}: the runner expects {list(dims)}, found {list(value.shape)}; compile again")
    filled = np.zeros(dims, value.dtype if value.dtype == np.float32 else kind)  # our runner also takes real values
    filled[: value.shape[0]] = value
    return filled


def left(value: np.ndarray, tensor: XTensor, spec: TensorSpec, folder: CompiledFolder) -> np.ndarray:
    """A network output as it left its child, in the ONNX shape: real values, and of open axes the part that is there."""
    fix_point = tensor.attrs.get("fix_point")
    if value.dtype == np.int8:
        if fix_point is None:
            raise FormatError(f"output {spec.name}: tensor {tensor.name} is int8 without a fix_point; compile again")
        value = value.astype(np.float32) * np.float32(2.0**-fix_point.value)
    if spec.name in folder.nhwc_outputs:
        value = value.transpose(0, 3, 1, 2)
    if OPEN in spec.shape:
        value = value.reshape(value.shape[value.ndim - len(spec.shape) :])  # without the file's leading axis
        return np.ascontiguousarray(used_part(value, spec.shape, filling(tensor)))
    return np.ascontiguousarray(value).reshape(spec.shape)  # the first makes an axis of a scalar's none


def _entries(model: XModel, name: str, float_inputs: Mapping[str, str]) -> list[XOp]:
    """The ops by which a network input enters: the USER subgraphs' op of that name, and the float form that CPU nodes read; none where nothing reads it."""
    if UNREAD_INPUTS in model.attrs and name in model.attrs[UNREAD_INPUTS].value:
        return []
    users = {op for child in model.by_device("USER") for leaf in child.leaves() for op in leaf.ops}
    given = [op for op in model.ops if op.name in users]
    found = [op for op in given if name in (op.name, op.tensor.name)][:1]
    found += [op for op in given if name in (float_inputs.get(op.name), _input_of(op.tensor)) and op not in found]
    if not found:
        raise FormatError(
            f"{model.name}: no USER subgraph gives the network input {name!r}; found {', '.join(sorted(users)) or 'none'}"
        )
    return found


def _input_of(tensor: XTensor) -> str | None:
    attr = tensor.attrs.get(FLOAT_FORM_OF)
    return None if attr is None else str(attr.value)


def _exits(model: XModel, outputs: Sequence[TensorSpec]) -> list[tuple[TensorSpec, XTensor]]:
    """The tensors of the network's outputs, by the file's `return_ops`."""
    returned = model.attrs["return_ops"].value if "return_ops" in model.attrs else []
    if len(returned) != len(outputs):
        raise FormatError(
            f"{model.name}: expected {len(outputs)} names in the attribute return_ops, found {len(returned)}; compile again"
        )
    ops = {op.name: op for op in model.ops}
    tensors = {op.tensor.name: op.tensor for op in model.ops}
    found = []
    for spec, name in zip(outputs, returned, strict=True):
        op = output_op(ops, name)
        tensor = tensors.get(name) if op is None else op.tensor
        if tensor is None:
            raise FormatError(f"{model.name}: no op gives {name!r}, which return_ops names for output {spec.name}")
        found.append((spec, tensor))
    return found


def _check_compiled(model: XModel, path: Path) -> None:
    """FormatError where the file has nothing for a DPU."""
    if model.by_device("DPU"):
        return
    if "npuforge_mode" in model.attrs:  # a file for our NPU
        raise FormatError(
            f"{path}: npuforge compile left all of the network to the CPU, so there is nothing for a DPU; run the build with --device sim "
            "(npuforge inspect says why each node is on the CPU)"
        )
    raise FormatError(f"{path}: no subgraph for a DPU; expected what the vendor's compiler or npuforge compile wrote")


def _check_modules() -> None:
    missing = [name for name in ("xir", "vart") if importlib.util.find_spec(name) is None]
    if missing:
        raise DeviceError(
            f"--device {DEVICE}: the vendor's Python module {missing[0]} is not installed; on a board, use Vitis AI's image or install its "
            "VART packages (unilog, xir, vart) for this Python"
        )


def _needs_plug_in(device: str, runner: Mapping[str, str]) -> bool:
    library = Path(runner.get("run", "")).name
    return library == PLUG_IN or (device == "CPU" and (not library or library.startswith(_VENDORS_CPU_RUNNER)))


def plug_in_places() -> list[Path]:
    """Folders in which our plug-in is looked for: beside this module, where setup.py puts it, then the loader's."""
    return [Path(__file__).parent, *(Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p)]


def _plug_in(model: XModel) -> str:
    """Path of our plug-in where the file needs it, else empty."""
    assert model.root is not None
    if not any(
        _needs_plug_in(c.get("device", ""), c.get("runner") or {})
        for c in model.root.children
        if c.get("device") != "USER"
    ):
        return ""
    for place in plug_in_places():
        if (place / PLUG_IN).is_file():
            return str((place / PLUG_IN).resolve())
    raise DeviceError(
        f"--device {DEVICE}: {PLUG_IN}, which computes subgraphs on the CPU, is neither beside npuforge nor on LD_LIBRARY_PATH; it is built where "
        "CMake finds the vendor's vart: install VART with its headers, then npuforge again (docs/xmodel.md)"
    )


def _graph(path: str) -> Any:
    """The vendor's graph. Ends the process where the vendor's library does."""
    return importlib.import_module("xir").Graph.deserialize(path)


def _runners(graph: Any, plug_in: str) -> list[_Step]:
    """A runner for every child that computes, in order. Ends the process where the vendor's runtime does."""
    vart = importlib.import_module("vart")
    steps = []
    for child in graph.get_root_subgraph().toposort_child_subgraph():
        device = child.get_attr("device") if child.has_attr("device") else ""
        if device == "USER":
            continue
        ours = _needs_plug_in(device, child.get_attr("runner") if child.has_attr("runner") else {})
        if ours:
            child.set_attr("runner", {"run": plug_in})
        runner = vart.Runner.create_runner(child, "run")
        sides = [runner.get_input_tensors(), runner.get_output_tensors()]
        steps.append(_Step(child.get_name(), device, runner, *([_tensor(t, ours) for t in side] for side in sides)))
    return steps


def _tensor(tensor: Any, ours: bool) -> _Buffer:
    """`ours`: of our plug-in, which takes float32 for any type (bf16, pixels, bool, integers)."""
    kind = _TYPES.get(tensor.dtype.lower(), np.dtype(np.float32) if ours else None)
    if kind is None:
        raise DeviceError(
            f"tensor {tensor.name} is {tensor.dtype.lower()}; between subgraphs the vendor's Python module passes int8 and float32 only"
        )
    return tensor.name, tuple(tensor.dims), kind


def _release(chains: list[list[_Step]], graphs: list[Any]) -> None:
    """Runners first, then the graph whose tensors they point to."""
    for steps in chains:
        steps.clear()
    graphs.clear()


def _probe(path: Path, plug_in: str) -> None:
    """Opens everything in a process of its own; DeviceError with the vendor's last words where that fails."""
    command = [sys.executable, "-m", "npuforge.board_runtime.dpu", str(path), plug_in]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        raise DeviceError(
            f"{path}: the vendor's runtime did not open it within {_PROBE_SECONDS} s; is the DPU free?"
        ) from None
    if done.returncode == 0:
        return
    fatal = _FATAL.findall(done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = fatal[-1] if fatal else lines[-1].removeprefix("error: ") if lines else f"exit code {done.returncode}"
    raise DeviceError(f"{path}: the vendor's runtime refuses it: {' '.join(last.split())}")


def _main(arguments: Sequence[str]) -> None:
    """What `_probe` runs: [file, plug-in or empty]."""
    graph = _graph(arguments[0])
    _release([_runners(graph, arguments[1])], [graph])


if __name__ == "__main__":
    try:
        _main(sys.argv[1:])
    except DeviceError as error:
        sys.exit(f"error: {error}")
