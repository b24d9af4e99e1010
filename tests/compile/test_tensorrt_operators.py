"""TensorRT plug-ins from the operator folders' `parallel.hpp`: the generated source, compiled by g++ on stand-in declarations and driven as TensorRT
does, against the float64 references on every case; the kernels by nvcc where it is. No kernel was run on a GPU.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuforge.compile.ir.graph import Node
from npuforge.compile.tensorrt import operators, plugin
from npuforge.hw_kernels.host import Unary
from npuforge.hw_kernels.levels import folder, is_standard
from npuforge.hw_kernels.operator import Case, Op, case_graph, case_inputs, registry

STAND_IN = Path(__file__).parent / "tensorrt_stand_in"
ROOM = 1 << 20  # bytes of each output


def has_parallel(op: Op) -> bool:
    where = folder(op)
    return where is not None and (where / operators.PARALLEL).is_file()


OWN = {n.split("::")[1]: folder(op) for n, op in registry().items() if has_parallel(op)}


def write(place: Path) -> None:
    folders = {kind: where for kind, where in OWN.items() if where is not None}
    (place / operators.HEADER).write_text(operators.header(folders))
    (place / operators.KERNELS).write_text(operators.kernels(folders))
    (place / operators.PLUGINS).write_text(operators.plugins(folders))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    place = tmp_path_factory.mktemp("plugins")
    write(place)
    (place / "launchers.inc").write_text("".join(f"ON_HOST({kind})\n" for kind in OWN))
    flags = ["-O1", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare", "-Wno-sign-conversion"]
    words = ["g++", *flags, "-shared", "-fPIC", "-ffp-contract=off", f"-I{STAND_IN}", f"-I{place}"]
    subprocess.run([*words, str(STAND_IN / "exercise.cpp"), "-o", "p.so"], cwd=place, check=True)
    found = ctypes.CDLL(str(place / "p.so"))
    found.last_message.restype = ctypes.c_char_p
    return found


def run(library: ctypes.CDLL, kind: str, attributes: dict[str, Any], inputs: list[Any], count: int) -> list[np.ndarray]:
    """The outputs; AssertionError with the plug-in's message where it refuses."""
    names = list(attributes)
    lists = [np.atleast_1d(np.asarray(v)) for v in attributes.values()]
    # what the operator declares decides, as in TensorRT's ONNX parser
    floats = [np.issubdtype(v.dtype, np.floating) or n == "anchors" for n, v in zip(names, lists, strict=True)]
    values = np.concatenate([v.astype(np.float64) for v in lists]) if lists else np.zeros(0)
    given = [np.ascontiguousarray(x, np.float32 if x.dtype.kind == "f" else np.int64) for x in inputs]
    dims = np.array([d for x in given for d in x.shape], np.int64)
    data = (ctypes.c_void_p * len(given))(*[x.ctypes.data for x in given])
    room = [np.full(ROOM, 0xA5, np.uint8) for _ in range(count)]
    out = (ctypes.c_void_p * count)(*[r.ctypes.data for r in room])
    out_dims, ranks, types = (np.zeros(n, t) for n, t in ((8 * count, np.int64), (count, np.int32), (count, np.int32)))

    def integers(values: list[Any]) -> Any:
        return (ctypes.c_int * len(values))(*[int(v) for v in values])

    code = library.run_plugin(
        kind.encode(), len(names), (ctypes.c_char_p * len(names))(*[n.encode() for n in names]), integers(floats),
        integers([len(v) for v in lists]), values.ctypes.data_as(ctypes.c_void_p), len(given),
        integers([x.ndim for x in given]), dims.ctypes.data_as(ctypes.c_void_p), data, count, ctypes.c_int64(ROOM), out,
        *(v.ctypes.data_as(ctypes.c_void_p) for v in (out_dims, ranks, types)),
    )  # fmt: skip
    sized = kind == "RotatedNms" or attributes.get("score_threshold", 0) > 0
    assert code == 0, f"step {code}: {library.last_message().decode()}"
    results = []
    for i in range(count):
        shape = tuple(int(d) for d in out_dims[8 * i : 8 * i + ranks[i]])
        dtype = {0: np.dtype(np.float32), 8: np.dtype(np.int64)}[int(types[i])]
        size = int(np.prod(shape))
        results.append(room[i][: size * dtype.itemsize].view(dtype).reshape(shape))
        assert (room[i][size * dtype.itemsize :][:64] == 0xA5).all() or sized  # nothing behind the end
    return results


CASES = [(n, case) for n, op in sorted(registry().items()) if has_parallel(op) for case in op.cases]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n.split('::')[1]}-{i}" for i, (n, _) in enumerate(CASES)])
def test_plugin_against_the_reference(name: str, case: Case, library: ctypes.CDLL) -> None:
    node, inputs = case_graph(name, case, 5).nodes[0], case_inputs(case, 5)
    expected = registry()[name].reference(node, [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs])
    found = run(library, name.split("::")[1], node.attrs, inputs, len(expected))
    for y, reference in zip(found, expected, strict=True):
        assert y.shape == np.shape(reference)
        if y.dtype == np.int64:
            np.testing.assert_array_equal(y, reference)
        else:
            np.testing.assert_allclose(y, reference, rtol=2e-5, atol=2e-5)


def test_rows_above_a_threshold_in_many_blocks(library: ctypes.CDLL) -> None:
    """More rows than one index chooses from; all of them, none, and two images, which are refused."""
    attributes = {"anchors": [4.0, 5.0, 9.0, 7.0], "strides": [8], "num_classes": 2, "score_threshold": 0.3}
    x = np.random.default_rng(3).normal(0, 2, (1, 14, 31, 17))
    own = registry()["npuforge::YoloDecode"]
    for threshold, heads in ((0.3, x), (1e-6, x), (1.0, x)):
        node = Node("n", "npuforge::YoloDecode", ["x"], ["b", "s", "c"], attributes | {"score_threshold": threshold})
        expected = own.reference(node, [heads.astype(np.float32).astype(np.float64)])
        found = run(library, "YoloDecode", node.attrs, [heads], 3)
        for y, reference in zip(found, expected, strict=True):
            assert y.shape == reference.shape
            np.testing.assert_allclose(y, reference, rtol=2e-5, atol=2e-5)
    with pytest.raises(AssertionError, match="with a score_threshold one image is expected"):
        run(library, "YoloDecode", attributes, [np.concatenate([x, x])], 3)


def test_every_operator_of_the_kit_has_a_source() -> None:
    """A formula, a parallel.hpp, or standard operators that it is made of."""
    own = {n: op for n, op in registry().items() if not is_standard(op) and folder(op) is not None}
    without = [
        n
        for n, op in own.items()
        if not (isinstance(op, Unary) and op.formula is not None) and not has_parallel(op) and not op.lowers_to
    ]
    assert len(own) > 15 and without == []


def test_what_a_device_cannot_refuse_is_nan(library: ctypes.CDLL) -> None:
    x = np.arange(6, dtype=np.float64).reshape(3, 2)
    values, pointers = np.array([1.0, 2.0, 3.0]), np.array([0, 1, 2, 3])
    (y,) = run(library, "CsrMatMul", {}, [x, values, np.array([2, 3, 0]), pointers], 1)
    np.testing.assert_array_equal(y, [[4, 5], [np.nan, np.nan], [0, 3]])  # column 3 is outside
    (y,) = run(library, "CsrMatMul", {}, [x, values, np.array([2, 1, 0]), np.array([0, 2, 1, 9])], 1)
    np.testing.assert_array_equal(y, [[8, 11], [np.nan, np.nan], [np.nan, np.nan]])
    regions = np.array([[0, 2, 2, 2, 2, 0], [1, 2, 2, 2, 2, 0], [0.5, 2, 2, 2, 2, 0]])
    (y,) = run(library, "RotatedRoiAlign", {"output_height": 1}, [np.ones((1, 1, 5, 5)), regions], 1)
    np.testing.assert_array_equal(y.ravel(), [1, np.nan, np.nan])


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        ("YoloDecode", {"strides": [8], "num_classes": 1}, "attribute anchors is needed"),
        ("YoloDecode", {"anchors": [1.0, 2.0, 3.0], "strides": [8], "num_classes": 1}, "width, height pairs"),
        ("YoloDecode", {"anchors": [1.0, 2.0], "strides": [8], "num_classes": 2}, "an input is not images x anchors"),
        (
            "YoloDecode",
            {"anchors": [1.0, 2.0], "strides": [8], "num_classes": 1, "score_threshold": 1.5},
            "score_threshold must be a number from 0 to 1",
        ),
        ("UnalignNhwc16", {"channels": 0}, "channels must be 1 or more"),
        ("AngleEncode", {"axis": 4}, "axis out of range"),
        ("RotatedNms", {"max_output_boxes_per_class": -1}, "must not be negative"),
    ],
)
def test_refusals(kind: str, attributes: dict[str, Any], message: str, library: ctypes.CDLL) -> None:
    with pytest.raises(AssertionError, match=message):
        run(library, kind, attributes, [np.zeros((1, 6, 2, 2))], 1)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the path")
def test_nvcc_compiles_every_kernel(tmp_path: Path) -> None:
    write(tmp_path)
    assert plugin.compile_kernels(tmp_path, [operators.KERNELS])
    assert (tmp_path / "npuforge_operators.o").stat().st_size > 10_000
