"""The three columns of a comparison: float reference, integer graph, device. Each turns one prepared image into the network's outputs by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.board_runtime.devices import open_session
from npuforge.board_runtime.session import TraceRecord
from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.image import Geometry, fit, load_image, to_float
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.lane_executor import LaneExecutor
from npuforge.compile.reference import FloatReference, NodesExecutor
from npuforge.compile.steps.write_files import sha256
from npuforge.hw_kernels.arch import from_json
from npuforge.quant.executor import Arrays, IntegerExecutor, dequantise
from npuforge.scripts.build_folder import Build
from npuforge.scripts.recording import load_recording


@dataclass
class Prepared:
    """An image as the network takes it. `pixels`: uint8 [H, W, 3] in model order; `tensor`: float32 in the ONNX input's layout.

    `picture`: the image itself, uint8 [H, W, 3] BGR.
    """

    path: Path
    pixels: np.ndarray
    tensor: np.ndarray
    geometry: Geometry
    picture: np.ndarray


def prepare_image(path: Path, record: Preprocess) -> Prepared:
    """Reads and prepares one image file."""
    picture = load_image(path)
    pixels, geometry = fit(picture, record)
    return Prepared(path, pixels, to_float(pixels, record), geometry, picture)


class FloatColumn:
    """The untouched ONNX file in ONNX Runtime, or a recording of it. `reference`: `auto` or the path of a recorded `.npz`."""

    def __init__(self, build: Build, reference: str = "auto") -> None:
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
        for path in images:
            recorded, actual = str(self._recording.image_sha256.get(path.name)), sha256(path)
            if recorded != actual:
                raise FormatError(
                    f"{self.source}: image {path.name} had sha256 {recorded[:16]}… when recorded, {path} has {actual[:16]}…; "
                    "record the same images"
                )

    def __call__(self, image: Prepared) -> Arrays:
        if self._live is not None:
            found = self._live.run({self._live.input_names[0]: image.tensor})
            return {name: found[name] for name in self._live.output_names}
        assert self._recording is not None
        return self._recording.outputs[image.path.name]


class IntegerColumn:
    """The integer or bf16 graph with the numpy semantics; nodes of the CPU partition in float."""

    def __init__(self, build: Build) -> None:
        self.qgraph = build.qgraph
        run_cpu = NodesExecutor(self.qgraph.graph)
        self.executor: IntegerExecutor | LaneExecutor = (
            LaneExecutor(self.qgraph, from_json(build.manifest["arch"]), run_cpu)
            if self.qgraph.mode == "bf16"
            else IntegerExecutor(self.qgraph, run_cpu)
        )
        self._input = self.qgraph.graph.inputs[0]

    @property
    def written(self) -> Mapping[str, str]:
        """Layer id -> tensor it writes, where that is not the one its trace record names: bf16 copies have bits of their own."""
        return self.executor.written if isinstance(self.executor, LaneExecutor) else {}

    def feeds(self, image: Prepared) -> np.ndarray:
        """What the graph takes: raw pixels where the input is an image, else the float tensor as N, C, H, W."""
        quant = self.qgraph.quant.get(self._input)
        if quant is not None and quant.image_mean is not None:
            return image.pixels[np.newaxis]
        return self.tensor(image)

    def tensor(self, image: Prepared) -> np.ndarray:
        """The float tensor in the graph's layout (N, C, H, W)."""
        nhwc = self.qgraph.graph.input_layout.get(self._input) == "NHWC"
        return image.tensor.transpose(0, 3, 1, 2) if nhwc else image.tensor

    def dequantised(self, tensor: str, integers: Arrays) -> np.ndarray:
        """Float values of an int8 tensor."""
        return dequantise(integers[tensor], self.qgraph.quant[tensor])

    def integers_and_outputs(self, image: Prepared) -> tuple[Arrays, Arrays]:
        """int8 tensors of all NPU nodes, and the network's outputs."""
        return self.executor.run_all({self._input: self.feeds(image)})

    def __call__(self, image: Prepared) -> Arrays:
        return self.executor.run_outputs({self._input: self.feeds(image)})


class DeviceColumn:
    """The compiled network on a device. `expected_arch`: the arch JSON of the hardware at hand, ArchError for another one."""

    def __init__(
        self, build: Build, device: str, threads: int = 2, expected_arch: Mapping[str, Any] | None = None
    ) -> None:
        self.session = open_session(build.folder, device, threads, expected_arch)
        self._input = self.session.inputs[0].name
        self._build = build

    def trace(self, image: Prepared) -> tuple[Arrays, list[TraceRecord]]:
        """The outputs, and what every layer left on the device."""
        outputs, records = self.session.trace({self._input: image.tensor})
        if not all(record.id for record in records):  # tensors that left a DPU; it knows no layers
            layers = {t: n.name for n in self._build.qgraph.graph.nodes for t in n.outputs}
            records = [replace(record, name=layers.get(record.tensor, record.tensor)) for record in records]
        return outputs, records

    def __call__(self, image: Prepared) -> Arrays:
        return self.session.run({self._input: image.tensor})
