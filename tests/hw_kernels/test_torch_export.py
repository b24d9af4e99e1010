"""Every operator of the kit, and the standard ones it names, from torch by its current exporter through import to the devices: same numbers.

All of them in one network, each on inputs of its own. Resize is in `test_torch_modules.py`: `ReferenceExecutor` runs only the kit's form of it. Run where
PyTorch is.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import Subject
from ladder import Quantised, compile_graph

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install npuforge[torch]")
import onnx
import torch

from npuforge.board_runtime.session import Session
from npuforge.compile.ir.graph import Graph
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.steps.fold import fold
from npuforge.compile.steps.fuse import fuse
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.compile.steps.partition import partition
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.bindings import torch_modules as modules
from npuforge.hw_kernels.bindings.torch_ops import run
from npuforge.hw_kernels.levels import for_frameworks
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor
from npuforge.quant.quantize import quantize

pytestmark = pytest.mark.torch
NAMED = (
    "Conv", "ConvTranspose", "BatchNormalization", "LeakyRelu", "PRelu", "Relu", "Clip", "HardSigmoid", "HardSwish", "Mish", "Sigmoid", "Tanh", "Gelu",
    "MaxPool", "AveragePool", "ReduceMean", "Softmax", "LayerNormalization", "GroupNormalization", "Gemm", "MatMul", "DepthToSpace",
    "SpaceToDepth", "NonMaxSuppression",
)  # fmt: skip


OTHER_CASE = {
    "ReduceMean": 2
}  # the first becomes a GlobalAveragePool at import, which `ReferenceExecutor` does not run


def chosen() -> list[Subject]:
    """The first case of each operator that a torch program could call."""
    names = sorted(n for n in operator.registry() if "::" in n) + list(NAMED)
    found = []
    for name in names:
        cases = operator.registry()[name].cases
        number = OTHER_CASE.get(name) or next(
            (i for i, c in enumerate(cases) if for_frameworks(c) and all(0 not in s for s in c.x)), None
        )
        if number is not None:
            found.append(Subject(name, number))
    return found


SUBJECTS = chosen()


class Every(torch.nn.Module):
    """Each operator on its own inputs; parameters are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[
            tuple[str, int, list[str], int, dict[str, Any]]
        ] = []  # plain values: torch traces what `forward` reads
        for i, subject in enumerate(SUBJECTS):
            case, names = subject.case, []
            for j, value in enumerate(subject.inputs()[len(case.x) :]):
                names.append(f"c{i}_{j}")
                self.register_buffer(names[-1], torch.from_numpy(np.array(value)))
            self.calls.append((subject.name, len(case.x), names, case.outputs, dict(case.attrs)))

    def forward(self, *given: Any) -> list[Any]:
        results: list[Any] = []
        start = 0
        for name, count, constants, outputs, attributes in self.calls:
            inputs = [*given[start : start + count], *(getattr(self, c) for c in constants)]
            start += count
            y = run(name, *inputs, outputs=outputs, **attributes)
            results += y if isinstance(y, tuple) else [y]
        return results


def names_of_outputs() -> list[str]:
    return [f"{s}/{k}" for s in SUBJECTS for k in range(s.case.outputs)]


def arrays(seed: int) -> list[np.ndarray]:
    return [np.array(x) for s in SUBJECTS for x in s.inputs(seed)[: len(s.case.x)]]


@pytest.fixture(scope="module")
def imported() -> tuple[Graph, list[np.ndarray]]:
    """The network as a placed graph, and torch's own outputs for seed 5."""
    network = Every().eval()
    given = tuple(torch.from_numpy(x) for x in arrays(5))
    buffer = io.BytesIO()
    torch.onnx.export(network, given, dynamo=True, verbose=False, opset_version=21).save(buffer)
    model = onnx.load_from_string(buffer.getvalue())
    found = {f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in model.graph.node}
    assert found >= {s.name for s in SUBJECTS}, "each is a node of its own domain"
    return partition(fuse(fold(import_onnx(model).graph))), [y.numpy() for y in network(*given)]


def test_the_kits_operators_are_all_there() -> None:
    left_out = {n for n in operator.registry() if "::" in n} - {s.name for s in SUBJECTS}
    assert left_out == set()
    assert {s.name for s in SUBJECTS} >= set(NAMED)


def test_import_gives_torchs_numbers(imported: tuple[Graph, list[np.ndarray]]) -> None:
    graph, expected = imported
    values = ReferenceExecutor(graph, graph.outputs).run(dict(zip(graph.inputs, arrays(5), strict=True)))
    for name, output, right in zip(names_of_outputs(), graph.outputs, expected, strict=True):
        np.testing.assert_allclose(values[output], right, rtol=1e-4, atol=1e-5, err_msg=name)


def test_simulator_gives_torchs_numbers(imported: tuple[Graph, list[np.ndarray]]) -> None:
    """Convolutions on the NPU within int8's precision, the rest on the CPU partition in float32. Others go to the NPU where they stand before a
    convolution: `test_torch_binding.py` has such a network."""
    graph, expected = imported
    feeds = [dict(zip(graph.inputs, arrays(seed), strict=True)) for seed in (5, 6)]
    statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    binary = compile_graph(Quantised(quantize(graph, statistics, "fine"), Preprocess()), "nf-b1024")
    found = Session(binary.image, device="sim").run(feeds[0])
    on_npu = {t for part in graph.partitions if part.device == "NPU" for t in part.outputs}
    assert len(on_npu & set(graph.outputs)) >= 3
    for name, output, right in zip(names_of_outputs(), graph.outputs, expected, strict=True):
        if output in on_npu:
            noise = np.square(found[output] - right).sum()
            assert 10 * np.log10(np.square(right).sum() / max(noise, 1e-30)) > 25, name
        else:
            np.testing.assert_allclose(found[output], right, rtol=1e-4, atol=1e-4, err_msg=name)


# ---- sizes that are open in the exported file
def _open_networks() -> dict[str, Any]:
    m = modules
    return {
        "Conv2d": m.Conv2d(3, 4, 3, padding=1), "ConvTranspose2d": m.ConvTranspose2d(3, 4, 2, stride=2), "RotatedConv2d": m.RotatedConv2d(3, 4, 3),
        "BatchNorm2d": m.BatchNorm2d(3), "ModSigmoid": m.ModSigmoid(3), "LeakyReLU": m.LeakyReLU(0.1), "mask": m.LeakyReLU(0.1, mask=True),
        "MaxPool": m.Operator("MaxPool", kernel_shape=[2, 2], strides=[2, 2]), "Softmax": m.Operator("Softmax", axis=1),
        "Clip": m.Operator("Clip", min=-0.5, max=0.5), "Transpose": m.Operator("Transpose", perm=[0, 2, 3, 1]),
        "ReduceMean": m.Operator("ReduceMean", axes=[2, 3]), "AlignNhwc16": m.Operator("npuforge::AlignNhwc16"),
    }  # fmt: skip


class First(torch.nn.Module):
    """The first output of a module of one input."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return y[0] if isinstance(y, tuple) else y


@pytest.mark.parametrize("name", sorted(_open_networks()))
def test_open_sizes_stay_open(tmp_path: Path, name: str) -> None:
    """In the file, and ONNX's own inference gets the sizes that torch gets of another input."""
    network = First(_open_networks()[name]).eval()
    open_ = torch.export.Dim.DYNAMIC
    file = tmp_path / "net.onnx"
    torch.onnx.export(network, (torch.rand(2, 3, 32, 32),), file, dynamo=True, input_names=["x"], verbose=False,
                      dynamic_shapes=({0: open_, 2: open_, 3: open_},))  # fmt: skip
    graph = onnx.load(file).graph
    dims = graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value if not d.dim_param else 0 for d in dims] == [0, 3, 0, 0]
    wanted = tuple(network(torch.rand(5, 3, 24, 40)).shape)
    imported = import_onnx(file, {graph.input[0].name: (5, 3, 24, 40)}).graph
    assert imported.tensors[imported.outputs[0]].shape == wanted


def test_open_sizes_of_two_inputs(tmp_path: Path) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return run("Concat", run("Add", x, y), y, axis=1)

    n = torch.export.Dim("n", min=1, max=64)
    file = tmp_path / "net.onnx"
    torch.onnx.export(Sum(), (torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)), file, dynamo=True, verbose=False,
                      dynamic_shapes=({0: n}, {0: n}))  # fmt: skip
    graph = onnx.load(file).graph
    assert [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.output)] == [
        ["n", 3, 8, 8], ["n", 3, 8, 8], ["n", 6, 8, 8],
    ]  # fmt: skip
