"""The vendor's module `vitis_ai_library`: `GraphRunner.create_graph_runner(graph)` runs a whole file, one runner per child, tensors from child to child by name.

As the vendor's it computes before `execute_async` returns. Inputs are the tensors of the `USER` children (int8 where the NPU reads them), outputs those that
no child reads; in a build folder's `.xmodel` they are the network's outputs, in ONNX's order of axes (names: docs/xmodel.md).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from npuforge.board_runtime.vart import Job, Runner, RunnerExt, array_type, as_arrays, shaped
from npuforge.board_runtime.xir import Graph
from npuforge.compile.ir.errors import FormatError, UsageError


class GraphRunner(RunnerExt):
    """Use `create_graph_runner`. Threads may share one."""

    def __init__(self, graph: Graph) -> None:  # the runners of the children do what a runner's own would
        self._graph, self._subgraph = graph, graph.get_root_subgraph()
        children = self._subgraph.toposort_child_subgraph()
        users = [c for c in children if c.get_attr("device") == "USER"]
        self._runners = [Runner.create_runner(c, "run") for c in children if c not in users]
        given = {t.name for c in users for t in c.get_output_tensors()}
        for child, runner in zip((c for c in children if c not in users), self._runners, strict=True):
            for tensor in runner.get_input_tensors():
                if tensor.name not in given:
                    raise FormatError(
                        f"{child.label} reads {tensor.label}, which no child before it gives; compile the network again"
                    )
            given |= {t.name for t in runner.get_output_tensors()}
        read = {t.name for runner in self._runners for t in runner.get_input_tensors()}
        self._inputs = [t for c in users for t in c.get_output_tensors()]
        self._outputs = [t for runner in self._runners for t in runner.get_output_tensors() if t.name not in read]
        self._numbers = itertools.count()
        self._done: dict[int, int] = {}  # job -> status, until somebody waits for it
        self._messages = {}
        self._guard = threading.Lock()

    @classmethod
    def create_graph_runner(cls, graph: Graph) -> GraphRunner:
        """A runner of all children of the root."""
        return cls(graph)

    def execute_async(self, inputs: Sequence[Any], outputs: Sequence[Any], enable_dynamic_array: bool = False) -> Job:
        """As `vart.Runner.execute_async`; output arrays have the tensors' own types. UsageError where the arrays do not fit."""
        inputs, outputs = as_arrays(inputs), as_arrays(outputs)
        for what, arrays, tensors in (("inputs", inputs, self._inputs), ("outputs", outputs, self._outputs)):
            if len(arrays) != len(tensors):
                raise UsageError(f"{what}: expected {len(tensors)} arrays, found {len(arrays)}")
        parts = self._batches(inputs, outputs) if enable_dynamic_array else [(inputs, outputs)]
        status, message = 0, ""
        for given, wanted in parts:
            if status == 0:
                status, message = self._run(shaped(given, self._inputs), shaped(wanted, self._outputs))
        with self._guard:
            job = next(self._numbers)
            self._done[job] = status
            if message:
                self.keep_message(job, message)
        return job, 0

    def _run(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> tuple[int, str]:
        """One batch of the network through all children."""
        values = {t.name: array for t, array in zip(self._inputs, inputs, strict=True)}
        values_out = {t.name: array for t, array in zip(self._outputs, outputs, strict=True)}
        for runner in self._runners:
            made = {
                t.name: values_out[t.name] if t.name in values_out else np.empty(t.dims, array_type(t))
                for t in runner.get_output_tensors()
            }
            job = runner.execute_async([values[t.name] for t in runner.get_input_tensors()], list(made.values()))
            status = runner.wait(job)
            if status != 0:
                return status, runner.message(job)
            values |= made
        return 0, ""

    def wait(self, job: Job, timeout: int = -1) -> int:
        """0 is success, 3 a job that nobody may wait for (any more). There is nothing to wait for, whatever `timeout` says."""
        with self._guard:
            return self._done.pop(job[0], 3)

    def message(self, job: Job) -> str:
        """Why a job failed, one line; empty if it did not."""
        return self._messages.get(job[0], "")
