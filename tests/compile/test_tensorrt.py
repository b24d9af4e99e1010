"""TensorRT export: the generated functions, compiled by g++, compute the operator folders' float64 formulas; files; nvcc where it is.

The functions are what the CUDA kernels call element by element. No kernel was run here (no GPU), nothing was linked with TensorRT.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.context import Options
from npuforge.compile.tensorrt import operators, plugin
from npuforge.compile.tensorrt.expression import function_of
from npuforge.hw_kernels import arch, operator
from npuforge.hw_kernels.dsl.kernel import kernel, vmuls
from npuforge.hw_kernels.dsl.kernel_program import KernelOp
from npuforge.hw_kernels.formulas import FORMULAS, Formula

ATTRIBUTES = {"LeakyRelu": {"alpha": 0.3}, "Elu": {"alpha": 0.7}, "HardSigmoid": {"alpha": 0.25, "beta": 0.4}}


def test_every_formula_as_compiled_code(tmp_path: Path) -> None:
    functions = {name: function_of(f"npuforge_{name}", f) for name, f in FORMULAS.items()}
    text = '#include "f.h"\n'
    (tmp_path / "f.h").write_text(plugin.header(functions))
    for name, function in functions.items():
        given = "".join(f", {ATTRIBUTES.get(name, {}).get(p, v)!r}f" for p, v in function.parameters.items())
        loop = f"for (int i = 0; i < n; ++i) y[i] = {function.name}(x[i]{given});"
        text += f'extern "C" void run_{name}(const float* x, float* y, int n) {{ {loop} }}\n'
    (tmp_path / "f.cpp").write_text(text)
    flags = ["-O1", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-ffp-contract=off"]
    subprocess.run(["g++", *flags, "f.cpp", "-o", "f.so"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    x = np.concatenate([np.linspace(-12, 12, 481), [-1e5, -90, 90, 1e5], np.random.default_rng(0).normal(0, 4, 300)])
    x = x.astype(np.float32)
    pointer = ctypes.POINTER(ctypes.c_float)
    for name, formula in FORMULAS.items():
        own = np.abs(x) + 0.01 if name in ("Log", "Sqrt", "Reciprocal") else np.minimum(x, 80) if name == "Exp" else x
        own = own.astype(np.float32)
        with np.errstate(all="ignore"):
            expected = formula.value(np, own.astype(np.float64), ATTRIBUTES.get(name, {}))
        found = np.empty_like(own)
        getattr(library, f"run_{name}")(own.ctypes.data_as(pointer), found.ctypes.data_as(pointer), len(own))
        # an argument of exp is rounded to float32: its error is |x| of it
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6, err_msg=name)
        nan = np.full(1, np.nan, np.float32)
        getattr(library, f"run_{name}")(nan.ctypes.data_as(pointer), found.ctypes.data_as(pointer), 1)
        zero = name in ("ThresholdedRelu", "Shrink")  # as in ONNX Runtime: a comparison with NaN is false
        assert found[0] == 0 if zero else np.isnan(found[0]), name


def options(folder: Path) -> Options:
    make = helper.make_node
    nodes = [
        make("CustomGELU", ["x"], ["a"], "gelu", domain="com.example"),
        make("ClipSigmoid", ["a"], ["b"], "gate", domain="npuforge"),
        make("AngleEncode", ["b"], ["y"], "encode", domain="npuforge"),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 6, 5]) for n, c in (("x", 4), ("y", 8))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1), helper.make_opsetid("npuforge", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "net", values[:1], values[1:]), opset_imports=opsets, ir_version=9
    )
    onnx.save(model, folder / "net.onnx")
    return Options(folder / "net.onnx", arch.load("nf-b1024"), folder / "out")


def test_files_without_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = options(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    notices: list[str] = []
    given.notice = notices.append
    made = plugin.export(given)
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {
        *("model.onnx", "build.sh", "export.json", plugin.HEADER, plugin.KERNELS, plugin.PLUGINS),
        *(operators.HEADER, operators.KERNELS, operators.PLUGINS),
    }
    assert made.operators == ["CustomGELU", "ClipSigmoid", "AngleEncode"] and not made.compiled
    assert made.without_kernel == {}
    assert any("nvcc is not on the path" in n for n in notices)
    assert f"{plugin.PLUGINS} {operators.KERNELS}" in (tmp_path / "out" / "build.sh").read_text()
    source = (tmp_path / "out" / plugin.PLUGINS).read_text()
    assert "REGISTER_TENSORRT_PLUGIN(CreatorCustomGELU);" in source and 'name = "ClipSigmoid"' in source
    assert [n.domain for n in onnx.load(tmp_path / "out" / "model.onnx").graph.node] == [
        "com.example",
        "npuforge",
        "npuforge",
    ]


def test_a_program_of_the_dsl_is_called_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(KernelOp):
        names = ("npuforge::AngleEncode",)
        pixel_kernel = kernel(lambda x: vmuls(x, 2.0))

    given, notices = options(tmp_path), list[str]()
    given.notice = notices.append
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(operator.registry(), "npuforge::AngleEncode", Twice())
    plugin.export(given)
    (line,) = (n for n in notices if "'encode'" in n)
    assert "is an NPU-DSL program, so no plug-in was made" in line


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the path")
def test_nvcc_compiles_the_kernels(tmp_path: Path) -> None:
    assert plugin.export(options(tmp_path)).compiled
    assert (tmp_path / "out" / "npuforge_kernels.o").stat().st_size > 1000


def test_one_function_for_all_nodes_of_a_type() -> None:
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Silu", ["x"], ["a"], "one", domain="npuforge"),
                helper.make_node("Silu", ["a"], ["y"], "two", domain="npuforge"),
            ],
            "net",
            [],
            [],
        )
    )
    found = plugin.find_sources(model)
    assert list(found.functions) == ["Silu"] and not found.folders and not found.without


def test_compositions_are_written_as_standard_operators(tmp_path: Path) -> None:
    given = options(tmp_path)
    nodes = [
        helper.make_node("ConvBnLeakyRelu", ["x", *"wbsomv"], ["y"], "block", domain="npuforge"),
        helper.make_node("LeakyReluMask", ["y"], ["z", "mask"], "mask", domain="npuforge"),
    ]
    weights = [numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")]
    weights += [numpy_helper.from_array(np.ones(4, np.float32), n) for n in "bsomv"]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, 6, 5]) for n in ("x", "z")]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("npuforge", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), given.model)
    made = plugin.export(given)
    assert made.operators == ["LeakyReluMask"] and made.lowered == {"block": "npuforge::ConvBnLeakyRelu"}
    assert {n.domain for n in onnx.load(given.output / "model.onnx").graph.node} == {"", "npuforge"}


def test_a_formula_outside_the_vocabulary() -> None:
    with pytest.raises(AttributeError):
        function_of("f", Formula(*[lambda m, x, _: m.sinh(x)] * 3))
