"""The vendor's `vart.Runner` interface over our runtime: `create_runner`, `get_input_tensors`, `get_output_tensors`, `execute_async`, `wait`; of
`vart.RunnerExt` also `get_inputs`, `get_outputs`.

An application written for the vendor's modules runs unchanged: `python -m npuforge.board_runtime.vart application.py arguments…` gives it these under
the names `vart` and `xir`, and graph_runner.py as `vitis_ai_library`. One that is free to change imports them with
`from npuforge.board_runtime import vart, xir`.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from npuforge.board_runtime.session import bin_path
from npuforge.board_runtime.xir import Graph, Subgraph, Tensor
from npuforge.board_runtime.xir_ops import power_of_two
from npuforge.compile.ir.errors import NpuforgeError, UsageError

Job = tuple[int, int]
_Arrays = tuple[list[np.ndarray], list[np.ndarray]]
_MODES = {"run": "", "sim": "sim", "csim": "csim"}


@dataclass
class _Held:
    """Arrays of a job and the native jobs that nobody has waited for yet."""

    parts: list[_Arrays]
    jobs: list[int] = field(default_factory=list)
    failed: tuple[int, str] | None = None


class TensorBuffer(np.ndarray):
    """An array for one tensor, C-contiguous, in the tensor's type (float32 for bf16); `np.array(buffer, copy=False)` is a plain array on the same memory."""

    tensor: Tensor | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """A new one, zeros."""
        buffer = np.zeros(tensor.dims, array_type(tensor)).view(cls)
        buffer.tensor = tensor
        return buffer

    def get_tensor(self) -> Tensor:
        """What the buffer is for; UsageError for a part or a copy of one."""
        if self.tensor is None:
            raise UsageError("this array is no whole TensorBuffer; ask the one that get_inputs or get_outputs gave")
        return self.tensor


class Runner:
    """Jobs of one subgraph. Use `create_runner`. Threads may share a runner; destroying it waits for the job that runs and cancels the rest."""

    def __init__(self, graph: Graph, subgraph: Subgraph, device: str, threads: int, workers: int) -> None:
        self._graph, self._subgraph = graph, subgraph  # the graph must live as long as its runners
        self._native = graph.runner(subgraph, device, threads, workers)
        self._inputs = subgraph.tensors(self._native.get_input_tensors())
        self._outputs = subgraph.tensors(self._native.get_output_tensors())
        self._held: dict[int, _Held] = {}
        self._messages: dict[int, str] = {}
        self._lock = threading.Lock()

    @classmethod
    def create_runner(
        cls, subgraph: Subgraph | str | os.PathLike[str], mode: str = "run", *, threads: int = 1, workers: int = 1
    ) -> Self:
        """`subgraph`: of `xir.Graph`, or a build folder (the whole network). `mode`: `run` or `sim` (fast simulator), `csim` (the HLS code)."""
        if mode not in _MODES:
            raise UsageError(f"mode: expected run, sim or csim, found {mode!r}")
        if not isinstance(subgraph, Subgraph):
            subgraph = Graph.deserialize(bin_path(subgraph)).get_root_subgraph()
        return cls(subgraph.graph, subgraph, _MODES[mode], threads, workers)

    def get_input_tensors(self) -> list[Tensor]:
        """Name, dims (N, H, W, C) and dtype of every input."""
        return list(self._inputs)

    def get_output_tensors(self) -> list[Tensor]:
        """The same of every output."""
        return list(self._outputs)

    def execute_async(self, inputs: Sequence[Any], outputs: Sequence[Any], enable_dynamic_array: bool = False) -> Job:
        """Queues a job on C-contiguous arrays, in the order of the tensors: (job id, status). The arrays are kept until `wait`.

        As in the vendor's module any object with a buffer will do, of any shape with the tensor's number of elements; what it holds has the tensor's
        order. Every tensor also takes and gives float32 arrays: real values of int8 tensors, whole numbers of integer ones. bf16 tensors take and give
        float32, or the bit patterns as uint16. `enable_dynamic_array`: the arrays may hold several of the network's batches.
        A status other than 0: nothing was queued; the reason is on standard error and in `message`.
        """
        inputs, outputs = as_arrays(inputs), as_arrays(outputs)
        if enable_dynamic_array:
            parts = self._batches(inputs, outputs)
        else:
            parts = [(shaped(inputs, self._inputs), shaped(outputs, self._outputs))]
        held = _Held(parts)
        with self._lock:  # so that nobody waits for the job before its arrays are held
            for part in parts:
                job, status = self._native.execute_async(*part)
                if status != 0:
                    for queued in held.jobs:
                        self._native.wait(queued, -1)
                    self._say(str(self._native.message(job)))
                    return job, status
                held.jobs.append(job)
            self._held[held.jobs[0]] = held
            return held.jobs[0], 0

    def _batches(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[_Arrays]:
        """One pair of lists of views per batch of the network."""
        counts = set()
        for array, tensor in zip((*inputs, *outputs), (*self._inputs, *self._outputs), strict=True):
            whole, rest = divmod(array.shape[0] if array.ndim else 0, tensor.dims[0])
            if rest or not whole:
                raise UsageError(
                    f"{tensor.name}: a batch of {array.shape[:1]}; expected a multiple of {tensor.dims[0]}"
                )
            counts.add(whole)
        if len(counts) != 1:
            raise UsageError(f"arrays hold different numbers of batches: {sorted(counts)}")

        def part(arrays: Sequence[np.ndarray], tensors: list[Tensor], index: int) -> list[np.ndarray]:
            return [a[index * t.dims[0] : (index + 1) * t.dims[0]] for a, t in zip(arrays, tensors, strict=True)]

        return [(part(inputs, self._inputs, i), part(outputs, self._outputs, i)) for i in range(counts.pop())]

    def wait(self, job: Job, timeout: int = -1) -> int:
        """Waits for a job given as `execute_async` returned it; 0 is success, 1 a job that failed (the reason is on standard error and in `message`), 2 one
        that is not done within `timeout` milliseconds (negative: no limit), 3 one that nobody may wait for (any more)."""
        if job[1] != 0:
            return int(job[1])
        with self._lock:
            held = self._held.get(job[0])
            waiting = [job[0]] if held is None else list(held.jobs)
        end = time.monotonic() + timeout / 1000
        for native in waiting:
            left = timeout if timeout <= 0 else max(0, round(1000 * (end - time.monotonic())))
            status = int(self._native.wait(native, left))
            if status in (_TIMEOUT, _UNKNOWN) or held is None:
                return status
            with self._lock:
                held.jobs.remove(native)
                if status != 0:
                    held.failed = held.failed or (status, str(self._native.message(native)))
        assert held is not None
        with self._lock:
            self._held.pop(job[0], None)
        if held.failed is None:
            return 0
        self.keep_message(job[0], held.failed[1])
        self._say(held.failed[1])
        return held.failed[0]

    def _say(self, message: str) -> None:
        """Why a job failed, on standard error, as our plug-in for the vendor's VART does."""
        print(f"npuforge-runner: {self._subgraph.label}: {message}", file=sys.stderr)

    def keep_message(self, job: int, message: str) -> None:
        """For `message`; those of the oldest jobs are forgotten."""
        self._messages[job] = message
        if len(self._messages) > _MESSAGES:
            del self._messages[next(iter(self._messages))]

    def message(self, job: Job) -> str:
        """Why a job failed, one line; empty if it did not."""
        return self._messages.get(job[0]) or str(self._native.message(job[0]))

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Convenience: one job from start to end, outputs in the tensors' own types; a failure is an exception."""
        outputs = [np.empty(t.dims, array_type(t)) for t in self._outputs]
        job = self.execute_async(inputs, outputs)
        if self.wait(job) != 0:
            raise NpuforgeError(self.message(job))
        return outputs

    def __repr__(self) -> str:
        return f"<vart.{type(self).__name__} of {self._subgraph.name!r}>"

    def __del__(self) -> None:
        native = self.__dict__.pop("_native", None)
        del native  # joins the workers while the arrays are still held


class RunnerExt(Runner):
    """A runner that also makes the buffers of a job. As in the vendor's module every call gives new ones, so that threads may share a runner."""

    def get_inputs(self) -> list[TensorBuffer]:
        """One buffer per input tensor, in the order of `get_input_tensors`."""
        return [TensorBuffer.of(tensor) for tensor in self._inputs]

    def get_outputs(self) -> list[TensorBuffer]:
        """One buffer per output tensor, in the order of `get_output_tensors`."""
        return [TensorBuffer.of(tensor) for tensor in self._outputs]


def array_type(tensor: Tensor) -> np.dtype[Any]:
    """Of an array for the tensor: its own type, float32 for bf16, which numpy does not have. UsageError for a type that it has not either (`int4`)."""
    try:
        return np.dtype(_NUMPY.get(tensor.dtype, tensor.dtype.removeprefix("x")))
    except TypeError:
        raise UsageError(
            f"{tensor.label}: no array of numpy holds {tensor.dtype}; expected a type such as xint8 or float32"
        ) from None


def as_arrays(buffers: Sequence[Any]) -> list[np.ndarray]:
    """Arrays on the buffers' own memory. UsageError for an object that has none (a list of numbers)."""
    try:
        return [b if isinstance(b, np.ndarray) else np.asarray(memoryview(b)) for b in buffers]
    except TypeError as error:
        raise UsageError(f"execute_async: expected arrays or other buffers ({error}); give numpy arrays") from None


def shaped(arrays: list[np.ndarray], tensors: list[Tensor]) -> list[np.ndarray]:
    """Those that are the tensor's in number of elements, as views of its shape; the others as they are, for the runner to refuse."""
    shaped = list(arrays)
    for index, (array, tensor) in enumerate(zip(arrays, tensors, strict=False)):
        if list(array.shape) != tensor.dims and array.size == tensor.get_element_num() and array.flags.c_contiguous:
            shaped[index] = array.view(np.ndarray).reshape(tensor.dims)
    return shaped


_NUMPY = {"bfloat16": "float32"}
_TIMEOUT, _UNKNOWN = 2, 3
_MESSAGES = 64  # kept, as the native runner does


def get_input_scale(tensor: Tensor) -> float:
    """2**fix_point: what float values are multiplied by (`pow2` mode)."""
    return power_of_two(tensor.get_attr("fix_point"))


def get_output_scale(tensor: Tensor) -> float:
    """2**-fix_point: what int8 results are multiplied by (`pow2` mode)."""
    return power_of_two(-tensor.get_attr("fix_point"))


def run_application(arguments: Sequence[str]) -> None:
    """Runs a Python script that says `import vart`, `import xir` on these modules: [script, its arguments…]."""
    if not arguments:
        raise UsageError("usage: python -m npuforge.board_runtime.vart APPLICATION.py [ARGUMENT…]")
    if not Path(arguments[0]).is_file():
        raise UsageError(
            f"application {arguments[0]}: no such file; usage: python -m npuforge.board_runtime.vart APPLICATION.py [ARGUMENT…]"
        )
    own = importlib.import_module("npuforge.board_runtime.vart")
    xir, library = (importlib.import_module(f"npuforge.board_runtime.{name}") for name in ("xir", "graph_runner"))
    sys.modules |= {"vart": own, "xir": xir, "vitis_ai_library": library}
    sys.argv = list(arguments)
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    try:
        run_application(sys.argv[1:])
    except NpuforgeError as error:
        sys.exit(f"error: {error}")
