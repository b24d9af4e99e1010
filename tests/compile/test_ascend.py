"""`--target ascend`: the generated TBE source, run on a stand-in for TBE written in numpy, computes what the NPU-DSL program means; files; `atc`.

The stand-in has the calls of `tbe.dsl` that CANN documents (vadd, vmuls, vlrelu, vexp, vrec, ...); nothing here was run on CANN itself.
"""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tbe_stand_in import as_tensor, install, numpy_modules

from npuforge.compile.ascend import flow, tbe
from npuforge.compile.context import Options
from npuforge.compile.ir.errors import NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import arch
from npuforge.hw_kernels import operator as operators
from npuforge.hw_kernels.dsl import kernel as k
from npuforge.hw_kernels.dsl.kernel_program import KernelOp


@k.kernel
def gelu_tanh(x: Any, *, slope: float = 1.0) -> Any:
    cube = k.vmul(k.vmul(x, x), x)
    inner = k.vmuls(k.vadd(x, k.vmuls(cube, 0.044715)), 0.7978845608028654)
    return k.vmuls(k.vmul(k.vmuls(x, 0.5), k.vadds(k.vtanh(inner), 1.0)), slope)


@k.kernel
def everything(a: Any, b: Any, *, steep: int, folded: bool = False) -> Any:
    low = k.vmins(k.vmaxs(k.vsub(a, b), -1.5), 2.5)
    bent = k.vlrelu(k.vadds(k.vmuls(a, -0.75), 0.25), 0.1)
    curves = k.vadd(k.vadd(k.vsilu(a), k.vgelu(b)), k.vadd(k.vmish(a), k.vsigmoid(b)))
    curves = k.vadd(curves, k.vadd(k.vsoftplus(a), k.vadd(k.verf(b), k.velu(k.vmuls(a, 2.0), 1.5))))
    for _ in range(steep):
        bent = k.vmul(bent, k.vabs(low))
    return k.vadd(k.vrelu(bent) if folded else bent, curves)


def stand_in(monkeypatch: pytest.MonkeyPatch, built: list[Any]) -> None:
    install(monkeypatch, numpy_modules(built))


def loaded(operator: tbe.CustomOperator) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(tbe.source(operator), operator.file, "exec"), space)
    return space


@pytest.mark.parametrize("attributes", [{"steep": 0}, {"steep": 2, "folded": True}])
def test_source_means_what_the_program_means(attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, [])
    operator = tbe.CustomOperator("my.ops", "EveryThing", everything)
    for other in ({"steep": 0}, {"steep": 2, "folded": True}, {"steep": 0}):
        operator.add("n", other)
    assert len(operator.variants) == 2
    random = np.random.default_rng(0)
    inputs = [np.concatenate([random.normal(0, 3, 500), np.linspace(-9, 9, 181)])[None] for _ in range(2)]
    found = loaded(operator)["every_thing_compute"](*map(as_tensor, inputs), None, **attributes)
    expected = everything.trace(attributes).meaning(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=5e-6)  # erf to 1.5e-7, times 9


def kits_own() -> list[str]:
    return sorted(name for name, operator in operators.registry().items() if isinstance(operator.dsl, k.Kernel))


@pytest.mark.parametrize("name", kits_own())
def test_the_kits_own_operators(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Program and generated source give the operator's own float64 reference, on its cases and on wide values."""
    stand_in(monkeypatch, [])
    own = operators.find(name)
    assert own is not None
    operator = tbe.CustomOperator(*name.split("::"), own.dsl)
    operator.add("n", {})
    space, random = loaded(operator), np.random.default_rng(0)
    inputs = [random.normal(0, 3, (2, 3, 40, 5))] + [random.normal(size=(1, 3, 1, 1))] * (own.dsl.inputs - 1)
    inputs[0].flat[:6] = (-1e4, 1e4, -700.0, 700.0, -8.0, 8.0)
    with np.errstate(over="ignore"):  # exp of a large number: its reciprocal is 0
        found = space[f"{operator.file}_compute"](*map(as_tensor, inputs), None)
    node = Node("n", name, [f"x{i}" for i in range(len(inputs))], ["y"], {})
    expected = own.reference(node, inputs)[0]
    np.testing.assert_allclose(own.dsl.trace().meaning(inputs), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_the_step_of_silu_polynomial_in_float32_and_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the edges and next to them the generated source takes the side that the reference takes."""
    stand_in(monkeypatch, [])
    own = operators.find("npuforge::SiluPolynomial")
    assert own is not None and own.dsl is not None
    operator = tbe.CustomOperator("npuforge", "SiluPolynomial", own.dsl)
    operator.add("n", {})
    compute = loaded(operator)["silu_polynomial_compute"]
    for dtype, tolerance in ((np.float32, 2e-6), (np.float16, 0.02)):
        far = np.finfo(dtype).max if dtype == np.float16 else dtype(1e30)
        x = np.array([-8.0, 8.0, 0.0, far, -far], dtype)
        with np.errstate(over="ignore"):
            x = np.concatenate([x, np.nextafter(x, dtype(np.inf)), np.nextafter(x, dtype(-np.inf))])
            x = x[np.isfinite(x)]
            found = compute(as_tensor(x), None)
        expected = own.reference(Node("n", "npuforge::SiluPolynomial", ["x"], ["y"], {}), [x.astype(np.float64)])[0]
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)  # the step is 0.19


def test_inputs_of_unlike_rank_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    stand_in(monkeypatch, built)
    own = operators.find("npuforge::ModSigmoid")
    assert own is not None
    operator = tbe.CustomOperator("npuforge", "ModSigmoid", own.dsl)
    operator.add("n", {})
    x, threshold = ({"shape": shape, "dtype": "float32"} for shape in ((2, 3, 4, 5), (3, 1, 1)))
    loaded(operator)["mod_sigmoid"](x, threshold, x)
    assert [tensor.shape for tensor in built[0][1]["tensor_list"]] == [(2, 3, 4, 5), (1, 3, 1, 1), (2, 3, 4, 5)]


def test_reductions_and_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    @k.kernel
    def reducing(a: Any, b: Any) -> Any:
        shifted = k.vsub(a, k.reduce_max(a))
        part = k.vexp(k.vmaxs(k.vmins(shifted, 0.0), -8.0))
        return k.vadd(
            k.vmul(k.reduce_mean(b, 3), k.vmul(k.vrelu(k.reduce_sum(b, 1)), part)),
            k.vmin(a, k.vmax(b, k.vmuls(a, 0.5))),
        )

    stand_in(monkeypatch, [])
    operator = tbe.CustomOperator("my.ops", "Reducing", reducing)
    operator.add("n", {})
    inputs = [np.random.default_rng(i).normal(0, 2, (1, 3, 5, 4)) for i in range(2)]
    found = loaded(operator)["reducing_compute"](*map(as_tensor, inputs), None)
    np.testing.assert_allclose(found, reducing.trace().meaning(inputs), rtol=1e-6, atol=1e-6)
    windowed = tbe.CustomOperator("my.ops", "Windowed", k.kernel(lambda a: k.pooling2d(a, 3, pad=1)))
    windowed.add("n", {})
    with pytest.raises(UnsupportedError, match=r"test_ascend.py:\d+: windows have no form in TBE's DSL"):
        tbe.source(windowed)


def test_the_entry_builds_and_refuses_other_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    stand_in(monkeypatch, built)
    operator = tbe.CustomOperator("org.somewhere", "CustomGELU", gelu_tanh)
    operator.add("n", {"slope": 2.0})
    space = loaded(operator)
    description = {"shape": (2, 3), "dtype": "Float32"}
    space["custom_gelu"](description, description, slope=2.0)
    ((schedule, config),) = built
    assert schedule[0] == "schedule" and config["name"] == "custom_gelu" and len(config["tensor_list"]) == 2
    half = 2 * 0.5 * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (0.5 + 0.044715 * 0.125)))
    np.testing.assert_allclose(config["tensor_list"][1], np.full((2, 3), half), rtol=1e-6)
    with pytest.raises(RuntimeError, match="CustomGELU: generated for other attributes"):
        space["custom_gelu_compute"](as_tensor(np.ones(3)), None, slope=3.0)


def test_information_and_plugin() -> None:
    operator = tbe.CustomOperator("org.somewhere", "CustomGELU", gelu_tanh)
    operator.add("n", {})
    lines = tbe.information(operator).splitlines()
    assert lines[0] == "[CustomGELU]" and "opFile.value=custom_gelu" in lines and "attr.list=slope" in lines
    assert "attr_slope.type=float" in lines and "attr_slope.defaultValue=1.0" in lines
    assert "input0.dtype=float16,float" in lines and "output0.name=y" in lines
    assert '.OriginOpType("org.somewhere::3::CustomGELU")' in tbe.parser_plugin("org.somewhere", "CustomGELU", 3, "TVM")


SHAPES = """
#include <cstdio>
int main() {
    ge::Operator op;
    op.tensors["x0"].SetShape(ge::Shape({2, 3, 4, 5}));
    op.tensors["x1"].SetShape(ge::Shape({3, 1, 1}));
    op.tensors["x0"].SetDataType(ge::DT_FLOAT16);
    op.tensors["y"];
    if (ge::shape_functions().at("Own")(op) != ge::GRAPH_SUCCESS) return 1;
    for (const auto d : op.tensors["y"].GetShape().GetDims()) std::printf("%d ", static_cast<int>(d));
    return op.tensors["y"].GetDataType() == ge::DT_FLOAT16 ? 0 : 2;
}
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda a, b, *, low=0.5, wide=True: k.vadds(k.vmul(a, b), low), "2 3 4 5 "),
        (lambda a, b: k.vmul(k.reduce_max(a), b), "2 3 1 1 "),
        (lambda a, b: k.vadd(k.reduce_sum(a, 1), k.vrelu(k.reduce_sum(b, 1))), "2 1 4 5 "),
    ],
)
def test_shape_function_of_a_program(program: Any, expected: str, tmp_path: Path) -> None:
    operator = tbe.CustomOperator("my.ops", "Own", k.kernel(program))
    operator.add("n", {})
    (tmp_path / "p.cpp").write_text(tbe.prototype(operator) + SHAPES)
    stand_ins = Path(__file__).parent / "cann_stand_in"
    words = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{stand_ins}", "p.cpp", "-o", "p"]
    subprocess.run(words, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "p"], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == expected


def test_attributes_that_are_missing_or_lists() -> None:
    operator = tbe.CustomOperator("my.ops", "EveryThing", everything)
    with pytest.raises(UnsupportedError, match="node 'n': EveryThing needs the attribute steep"):
        operator.add("n", {})
    with pytest.raises(UnsupportedError, match="node 'n': attribute steep is list"):
        operator.add("n", {"steep": [1, 2]})


# ---- the whole target
def options(folder: Path) -> Options:
    nodes = [
        helper.make_node("CustomGelu", ["x"], ["a"], "gelu", domain="test.ascend", slope=2.0),
        helper.make_node("AngleEncode", ["a"], ["b"], "encode", domain="npuforge"),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 6, 5]) for n, c in (("x", 4), ("y", 8))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test.ascend", 2), helper.make_opsetid("npuforge", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "net", values[:1], values[1:]), opset_imports=opsets, ir_version=9
    )
    onnx.save(model, folder / "net.onnx")
    return Options(folder / "net.onnx", arch.load("nf-b1024"), folder / "out")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator of a package, known for the length of one test."""

    class CustomGelu(KernelOp):
        names = onnx = ("test.ascend::CustomGelu",)
        pixel_kernel = gelu_tanh

    monkeypatch.setitem(operators.registry(), "test.ascend::CustomGelu", CustomGelu())


@pytest.mark.usefixtures("registered")
def test_files_and_what_was_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    build = flow.compile_for_ascend(options(tmp_path), "Ascend310P3")
    made = tmp_path / "out"
    operator = ["custom_gelu.py", "custom_gelu.ini", "custom_gelu_plugin.cc", "custom_gelu_proto.cc"]
    encode = ["angle_encode.py", "angle_encode.ini", "angle_encode_plugin.cc", "angle_encode_proto.cc"]
    assert {p.name for p in made.iterdir()} == {"model.onnx", "atc.sh", "ascend.json", *operator, *encode}
    assert build.operators == {"test.ascend::CustomGelu": operator, "npuforge::AngleEncode": encode} and not build.ran
    assert build.on_ai_cpu == {} and build.without_source == {}
    kept = onnx.load(made / "model.onnx").graph.node
    assert [(n.domain, n.op_type) for n in kept][:2] == [("test.ascend", "CustomGelu"), ("npuforge", "AngleEncode")]
    assert 'OriginOpType("test.ascend::2::CustomGelu")' in (made / "custom_gelu_plugin.cc").read_text()
    command = (made / "atc.sh").read_text()
    assert "--framework=5" in command and "--soc_version=Ascend310P3" in command and "x:1,4,6,5" in command


@pytest.mark.usefixtures("registered")
def test_atc_is_run_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atc(tmp_path, 'touch model.om; echo "given $3"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    build = flow.compile_for_ascend(options(tmp_path), "Ascend310")
    assert build.ran and build.failure == ""
    assert (tmp_path / "out" / "atc.log").read_text() == "given --output=model\n"


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('echo "E10001: given $3"; exit 7', "atc ended with 7: E10001: given --output=model"),
        ("echo done", r"atc ended with 0 and wrote no model.om: done"),
    ],
)
def test_what_was_made_stays_where_atc_fails(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run on a machine with CANN fails: these sources are what has to be built and installed."""
    atc(tmp_path, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(NpuforgeError, match=f"{words}; the sources and atc.log are in .*out; atc knows the custom"):
        flow.compile_for_ascend(options(tmp_path), "Ascend310")
    made = tmp_path / "out"
    assert {"custom_gelu.py", "atc.sh", "atc.log", "model.onnx"} <= {p.name for p in made.iterdir()}
    report = json.loads((made / "ascend.json").read_text())
    assert report["ran"] and report["failure"].startswith("atc ended with")


def atc(folder: Path, text: str) -> None:
    """A stand-in on the path."""
    program = folder / "atc"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_soc() -> None:
    assert (flow.soc_of("ascend"), flow.soc_of("ascend:Ascend910B")) == ("Ascend310", "Ascend910B")
    for wrong in ("ascend:", "ascend:a b", "ascendant"):
        with pytest.raises(UsageError, match="expected ascend or ascend:SOC"):
            flow.soc_of(wrong)
