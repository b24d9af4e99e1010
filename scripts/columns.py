"""The three columns of a comparison: float reference, integer graph, device. Each turns one prepared image into the network's outputs by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.board_runtime.devices import open_session
from npuforge.board_runtime.session import Session, TraceRecord
from npuforge.compile.host_program import host_program
from npuforge.compile.integer_graph import executor_of, feeds_of
from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.graph import Graph, Node
from npuforge.compile.ir.samples import Inputs, Sample
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.compile.reference import FloatReference, NodesExecutor
from npuforge.compile.steps.write_files import sha256
from npuforge.hw_kernels.arch import from_json
from npuforge.quant.executor import Arrays, dequantise
from npuforge.scripts.build_folder import Build
from npuforge.scripts.recording import digests, load_recording


class FloatColumn:
    """The untouched ONNX file in ONNX Runtime, or a recording of it. `reference`: `auto` or the path of a recorded `.npz`.

    `fixed`: inputs that are the same for all samples; a recording must have been made with them.
    """

    def __init__(self, build: Build, reference: str = "auto", fixed: Inputs | None = None) -> None:
        self._fixed = dict(fixed or {})
        self._recording = None
        self._live: FloatReference | None = None
        if reference == "auto":
            self._live = FloatReference(build.reference)
            self.provider, self.source = self._live.provider, "live"
        else:
            model = build.summary["model"]["sha256"]
            self._recording = load_recording(Path(reference), model, build.preprocess)
            self.provider, self.source = self._recording.provider, Path(reference).name

    def check(self, images: Sequence[Path]) -> None:
        """FormatError, before the work, where a recording lacks an image or was made of another one of that name."""
        if self._recording is None:
            return
        missing = [path.name for path in images if path.name not in self._recording.outputs]
        if missing:
            others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
            raise FormatError(f"{self.source}: holds no outputs of image {missing[0]}{others}; record the same images")
        for name, actual in digests(images, self._fixed, sha256).items():
            recorded = str(self._recording.image_sha256.get(name))
            if recorded != actual:
                raise FormatError(
                    f"{self.source}: image {name} had sha256 {recorded[:16]}… when recorded, now it has {actual[:16]}…; "
                    "record the same images"
                )

    def __call__(self, image: Sample) -> Arrays:
        if self._live is not None:
            found = self._live.run({name: image.inputs[name] for name in self._live.input_names})
            return {name: found[name] for name in self._live.output_names}
        assert self._recording is not None
        return self._recording.outputs[image.path.name]


class CpuNodes:
    """The integer graph's CPU nodes in float: those between NPU partitions by the runtime's C++ kernels, those behind the last in ONNX Runtime.

    Between them a float becomes an integer again: another order of summation, right as well, moves a value across a rounding border, and
    integer graph and device would differ where neither is wrong.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._behind = NodesExecutor(graph)
        self._taken = {t for n in graph.nodes if n.device == "NPU" for t in n.inputs}
        self._sessions: dict[tuple[str, ...], Session] = {}

    def __call__(self, nodes: list[Node], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All tensors that `nodes` (in order) write, from the float tensors known."""
        written = [t for n in nodes for t in n.outputs if t]
        if self._taken.isdisjoint(written):
            return self._behind(nodes, values)
        constants, tensors = self._graph.constants, self._graph.tensors
        read = dict.fromkeys(t for n in nodes for t in n.inputs if t and t not in written and t not in constants)
        key = tuple(n.name for n in nodes)
        if key not in self._sessions:
            part = replace(self._graph, nodes=nodes, inputs=list(read), outputs=written, partitions=[], input_layout={})
            self._sessions[key] = Session(host_program(part))
        return self._sessions[key].run({t: np.asarray(values[t], tensors[t].dtype, order="C") for t in read})


class IntegerColumn:
    """The integer or bf16 graph with the numpy semantics; nodes of the CPU partition in float."""

    def __init__(self, build: Build) -> None:
        self.qgraph = build.qgraph
        self.executor = executor_of(self.qgraph, lambda: from_json(build.manifest["arch"]), CpuNodes(self.qgraph.graph))

    @property
    def written(self) -> Mapping[str, str]:
        """Layer id -> tensor it writes, where that is not the one its trace record names: bf16 copies have bits of their own."""
        return self.executor.written if isinstance(self.executor, LaneExecutor) else {}

    def feeds(self, image: Sample) -> Arrays:
        """What the graph takes: the preprocessed inputs in its layout (N, C, H, W)."""
        return feeds_of(self.qgraph, image)

    def dequantised(self, tensor: str, integers: Arrays) -> np.ndarray:
        """Float values of an int8 tensor."""
        return dequantise(integers[tensor], self.qgraph.quant[tensor])

    def integers_and_outputs(self, image: Sample) -> tuple[Arrays, Arrays]:
        """int8 tensors of all NPU nodes, and the network's outputs."""
        return self.executor.run_all(self.feeds(image))

    def __call__(self, image: Sample) -> Arrays:
        return self.executor.run_outputs(self.feeds(image))


class DeviceColumn:
    """The compiled network on a device. `expected_arch`: the arch JSON of the hardware at hand, ArchError for another one. `board`: for `uio`."""

    def __init__(
        self,
        build: Build,
        device: str,
        threads: int = 2,
        expected_arch: Mapping[str, Any] | None = None,
        board: Path | None = None,
    ) -> None:
        self.session = open_session(build.folder, device, threads, expected_arch, board=board)
        self.device = device
        self._build = build

    def trace(self, image: Sample) -> tuple[Arrays, list[TraceRecord]]:
        """The outputs, and what every layer left on the device."""
        outputs, records = self.session.trace(image.inputs)
        if not all(record.id for record in records):  # tensors that left a DPU; it knows no layers
            layers = {t: n.name for n in self._build.qgraph.graph.nodes for t in n.outputs}
            records = [replace(record, name=layers.get(record.tensor, record.tensor)) for record in records]
        return outputs, records

    def __call__(self, image: Sample) -> Arrays:
        return self.session.run(image.inputs)
