"""`--target ascend`: AI CPU operators. The generated kernels and prototypes, compiled by g++ on stand-in declarations and driven as CANN does (shape
function, then kernel), against the float64 references on every case. Nothing here was run on CANN itself.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from npuforge.compile.ascend import aicpu, flow
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.onnxruntime.source import Signature
from npuforge.hw_kernels import arch
from npuforge.hw_kernels.dsl.kernel import Kernel
from npuforge.hw_kernels.levels import declared, folder, is_standard
from npuforge.hw_kernels.operator import Op, case_graph, case_inputs, registry

STAND_IN = Path(__file__).parent / "cann_stand_in"
CODES = {"float32": 0, "int64": 9}
ROOM = 1 << 20


def on_ai_cpu(op: Op) -> bool:
    """Where its array program refuses the node, too."""
    return not is_standard(op) and declared(op, "CPU") and not isinstance(flow.program_of(op), Kernel)


@dataclass
class Subject:
    """A case under an operator type of its own: what CANN fixes per type (inputs, attributes) differs between cases."""

    name: str
    number: int
    type: str

    def node_and_inputs(self) -> tuple[Any, list[Any]]:
        case = registry()[self.name].cases[self.number]
        return case_graph(self.name, case, 5).nodes[0], case_inputs(case, 5)

    def operator(self) -> aicpu.AiCpuOperator:
        node, inputs = self.node_and_inputs()
        own = registry()[self.name]
        types = ["float32" if x.dtype.kind == "f" else "int64" for x in inputs]
        where = folder(own)
        assert where is not None
        results = own.output_types(node, types)
        domain, kind = self.name.split("::")
        proto = helper.make_node(kind, node.inputs, node.outputs, domain=domain, **node.attrs)
        model = helper.make_model(helper.make_graph([proto], "one", [], []))
        signature = Signature(domain, kind, where, types, len(types), results, [])
        (made,) = aicpu.operators_of(model, [signature])
        return made


SUBJECTS = [
    Subject(name, i, f"{name.split('::')[1]}{i}")
    for name, op in sorted(registry().items())
    if on_ai_cpu(op)
    for i in range(len(op.cases))
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    place = tmp_path_factory.mktemp("aicpu")
    entries = [s.operator() for s in SUBJECTS]
    for name, text in aicpu.files(entries, {"npuforge": 1, "com.example": 1}).items():
        if name in (aicpu.KERNELS, aicpu.PROTO):  # each case as its own CANN type
            parts = text.split("\nclass " if name == aicpu.KERNELS else "\nREG_OP(")
            for k, subject in enumerate(SUBJECTS):
                parts[k + 1] = _renamed(parts[k + 1], subject)
            text = ("\nclass " if name == aicpu.KERNELS else "\nREG_OP(").join(parts)
        (place / name).write_text(text)
    # -fno-gnu-unique: what a process that loads a second such library has registered with the first would be registered twice
    flags = ["-O1", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare", "-shared", "-fPIC"]
    flags.append("-fno-gnu-unique")
    words = ["g++", *flags, "-ffp-contract=off", f"-I{STAND_IN}", f"-I{place}", str(STAND_IN / "exercise.cpp")]
    subprocess.run([*words, "-o", "a.so"], cwd=place, check=True)
    plugin = next(place.glob("*_plugin.cc"))
    subprocess.run(["g++", "-std=c++17", "-Werror", "-fsyntax-only", f"-I{STAND_IN}", str(plugin)], check=True)
    return ctypes.CDLL(str(place / "a.so"))


def _renamed(text: str, subject: Subject) -> str:
    """The operator's CANN type replaced everywhere but in its own name `domain::type`."""
    kind = subject.name.split("::")[1]
    return text.replace(kind, subject.type).replace(f"::{subject.type}", f"::{kind}")


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.type)
def test_kernel_and_shapes_against_the_reference(subject: Subject, library: ctypes.CDLL) -> None:
    node, inputs = subject.node_and_inputs()
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
    expected = registry()[subject.name].reference(node, wide)
    given = [np.ascontiguousarray(x, np.float32 if x.dtype.kind == "f" else np.int64) for x in inputs]
    kinds = {n: np.atleast_1d(np.asarray(v)) for n, v in node.attrs.items()}
    proto = helper.make_node("N", [], [], **node.attrs)
    floats = [a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) for a in proto.attribute]
    names = [a.name for a in proto.attribute]
    values = np.concatenate([kinds[n].astype(np.float64) for n in names]) if names else np.zeros(0)
    count = len(expected)
    room = [np.full(ROOM, 0xA5, np.uint8) for _ in range(count)]
    out_dims, ranks, types = (np.zeros(n, t) for n, t in ((8 * count, np.int64), (count, np.int32), (count, np.int32)))

    def array(kind: Any, values: list[Any]) -> Any:
        return (kind * len(values))(*values)

    def pointer(x: np.ndarray) -> Any:
        return x.ctypes.data_as(ctypes.c_void_p)

    integer, address = ctypes.c_int, ctypes.c_void_p
    code = library.run_operator(
        subject.type.encode(), len(names), array(ctypes.c_char_p, [n.encode() for n in names]), array(integer, floats),
        array(integer, [len(kinds[n]) for n in names]), pointer(values), len(given),
        array(integer, [CODES[str(x.dtype)] for x in given]), array(integer, [x.ndim for x in given]),
        pointer(np.array([d for x in given for d in x.shape], np.int64)), array(address, [x.ctypes.data for x in given]),
        pointer(np.array([x.nbytes for x in given], np.int64)), count, ctypes.c_int64(ROOM),
        array(address, [r.ctypes.data for r in room]), pointer(out_dims), pointer(ranks), pointer(types),
    )  # fmt: skip
    assert code == 0
    for i, reference in enumerate(expected):
        shape = tuple(int(d) for d in out_dims[8 * i : 8 * i + ranks[i]])
        dtype = np.dtype({0: np.float32, 9: np.int64}[int(types[i])])
        assert shape == np.shape(reference)
        found = room[i][: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
        if dtype == np.int64:
            np.testing.assert_array_equal(found, reference)
        else:
            np.testing.assert_allclose(found, reference, rtol=2e-5, atol=2e-5)


def test_a_second_library_in_the_process(library: ctypes.CDLL, tmp_path: Path) -> None:
    """As where pytest makes the fixture twice: each has its own registry."""
    copy = shutil.copy(library._name, tmp_path / "b.so")
    test_kernel_and_shapes_against_the_reference(SUBJECTS[0], ctypes.CDLL(str(copy)))


def test_only_the_data_tell_the_size_of_nms() -> None:
    lines = {s.name: aicpu.files([s.operator()], {"npuforge": 1}) for s in SUBJECTS if s.number == 0}
    nms, iou = lines["npuforge::RotatedNms"]["rotated_nms.ini"], lines["npuforge::RotatedIou"]["rotated_iou.ini"]
    assert "opInfo.subTypeOfInferShape=3" in nms and "output0.type=DT_INT64" in nms
    assert "opInfo.subTypeOfInferShape=1" in iou and "opInfo.opKernelLib=CUSTAICPUKernel" in iou.splitlines()
    assert "ImplyType::AI_CPU" in lines["npuforge::RotatedIou"]["rotated_iou_plugin.cc"]


def test_nodes_that_cann_cannot_tell_apart(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    sizes: dict[str, Any] = {"num_classes": 1, "domain": "npuforge"}
    nodes = [
        helper.make_node("YoloDecode", ["x"], ["a", "b", "c"], "one", anchors=[1.0, 2.0], strides=[8], **sizes),
        helper.make_node(
            "YoloDecode", ["x", "x"], ["d", "e", "f"], "two", anchors=[1.0, 2.0] * 2, strides=[8, 8], **sizes
        ),
    ]
    results = [value(n, 1, None) for n in "abcdef"]
    graph = helper.make_graph(nodes, "net", [value("x", 1, [1, 6, 3, 4])], results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "net.onnx")
    options = Options(tmp_path / "net.onnx", arch.load("nf-b1024"), tmp_path / "out")
    with pytest.raises(UnsupportedError, match="node 'two': YoloDecode has inputs 2, node 'one' 1"):
        flow.compile_for_ascend(options, "Ascend310P3")
