"""Float execution of networks: the file itself (`FloatReference`), the graph after fuse (`GraphExecutor`), single nodes (`NodesExecutor`).

Any tensor can be asked for by name. How ONNX is run is in `onnx_runner.py`, how a `Graph` becomes ONNX in `graph_to_onnx.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from npuforge.compile.graph_to_onnx import graph_to_onnx
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.onnx_runner import Feeds, OnnxRunner
from npuforge.compile.steps.import_onnx import prepare_model


class FloatReference:
    """The float meaning of an ONNX file, untouched by the compiler. `outputs`: tensors wanted besides the model's own outputs, by ONNX name."""

    def __init__(
        self,
        source: str | Path | onnx.ModelProto,
        shapes: dict[str, tuple[int, ...]] | None = None,
        providers: Sequence[str] | None = None,
        outputs: Iterable[str] = (),
        threads: int = 0,
    ) -> None:
        model = prepare_model(source, shapes)
        names = [v.name for v in model.graph.output]
        self._runner = OnnxRunner(model, [*names, *outputs], providers, threads)
        self.input_names = [v.name for v in model.graph.input]
        self.output_names = names

    @property
    def provider(self) -> str:
        """The execution provider in use."""
        return self._runner.provider

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """All wanted tensors for one set of inputs (in the file's own layout)."""
        return self._runner.run(feeds)


class GraphExecutor:
    """Float execution of a `Graph` (after fuse). `outputs`: tensors wanted, the graph's outputs if none; inputs are N, C, H, W as in the graph."""

    def __init__(
        self, graph: Graph, outputs: Iterable[str] = (), providers: Sequence[str] | None = None, threads: int = 0
    ) -> None:
        wanted = list(outputs) or list(graph.outputs)
        inner = [t for t in wanted if t not in graph.outputs and t not in graph.inputs]
        self._runner = OnnxRunner(graph_to_onnx(graph, inner), wanted, providers, threads)

    @property
    def provider(self) -> str:
        """The execution provider in use."""
        return self._runner.provider

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """All wanted tensors for one set of inputs."""
        return self._runner.run(feeds)


class NodesExecutor:
    """Runs some nodes of a `Graph` in ONNX Runtime on float values: the CPU partitions for the integer executor's `run_cpu`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._runners: dict[tuple[str, ...], OnnxRunner] = {}

    def __call__(self, nodes: list[Node], values: Feeds) -> dict[str, np.ndarray]:
        """All tensors that `nodes` (in order) write, from the float tensors known."""
        key = tuple(n.name for n in nodes)
        runner = self._runners.get(key)
        if runner is None:
            written = [t for n in nodes for t in n.outputs if t]
            constants = self._graph.constants
            read = dict.fromkeys(t for n in nodes for t in n.inputs if t and t not in written and t not in constants)
            part = replace(self._graph, nodes=nodes, inputs=list(read), outputs=written, partitions=[])
            runner = self._runners[key] = OnnxRunner(graph_to_onnx(part), written)
        return runner.run({t: np.asarray(values[t], self._graph.tensors[t].dtype) for t in runner.inputs})


# ---- Graph → ONNX
