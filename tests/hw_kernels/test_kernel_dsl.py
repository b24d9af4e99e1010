"""The DSL for a user's own operators: tracing and its errors, optimiser, interpreter, lowering; an operator of a second package through
`npuforge.ops`, from an ONNX file to csim and sim."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.errors import InstructionError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import bf16
from npuforge.hw_kernels.dsl import kernel as k
from npuforge.hw_kernels.dsl.kernel import Kernel, kernel, optimise
from npuforge.hw_kernels.dsl.kernel_program import KernelProgram
from npuforge.hw_kernels.dsl.tile import Dtype

HERE = Path(__file__).resolve().parent
NODE = Node("n", "x", ["a"], ["y"])


@kernel
def custom_gelu(x: Any) -> Any:
    cube = k.vmul(k.vmul(x, x), x)
    inner = k.vmuls(k.vadd(x, k.vmuls(cube, 0.044715)), 0.7978845608028654)
    return k.vmul(k.vmuls(x, 0.5), k.vadds(k.vtanh(inner), 1.0))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def run(program: Kernel, *inputs: np.ndarray) -> np.ndarray:
    bits = KernelProgram(program).bits(NODE, [bf16.from_float32(x.astype(np.float32)) for x in inputs])
    return bf16.to_float32(bits)


def test_meaning_and_interpreter_of_the_page_s_example() -> None:
    x = bf16.to_float32(bf16.from_float32(np.linspace(-3.0, 3.0, 777).astype(np.float32))).reshape(-1, 1)
    assert np.allclose(custom_gelu.trace().meaning([x]), gelu(x.astype(np.float64)), atol=1e-12)
    assert np.abs(run(custom_gelu, x) - gelu(x.astype(np.float64))).max() < 0.02


def test_the_optimiser_joins_what_needs_no_tile_between() -> None:
    kinds = [o.kind for o in optimise(custom_gelu.trace()).operations]
    # x*x, *x, *0.044715 | x + that, scaled | tanh(..)+1 | 0.5*x | product: scaling a sum and adding behind a curve stay operations
    assert len([o for o in custom_gelu.trace().operations if o.kind != "input"]) == 9
    assert kinds.count("mul") == 3 and kinds.count("add") == 1 and len(kinds) <= 9

    @kernel
    def chain(x: Any) -> Any:
        k.vmuls(x, 7.0)  # unused
        return k.vrelu(k.vadds(k.vmuls(k.vmuls(x, 2.0), 3.0), 1.0))

    (only,) = [o for o in optimise(chain.trace()).operations if o.kind != "input"]
    assert (only.kind, only.factor, only.bias, only.activation.kind) == ("affine", 6.0, 1.0, "Relu")

    @kernel
    def twice(x: Any) -> Any:
        return k.vmul(k.vtanh(x), k.vtanh(x))

    assert [o.kind for o in optimise(twice.trace()).operations] == ["input", "affine", "mul"]


UNARY: list[Callable[[Any], Any]] = [
    lambda x: k.vadds(x, 0.5), lambda x: k.vmuls(x, -1.5), k.vrelu, k.vabs, k.vtanh, k.vsigmoid, lambda x: k.vmaxs(x, -1.0),
    k.vsoftplus, k.verf, lambda x: k.velu(x, 1.5),
    lambda x: k.vmins(x, 2.0), lambda x: k.vlrelu(x, 0.25),
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [k.vadd, k.vsub, k.vmul]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 99), st.integers(0, 99)),
        min_size=1,
        max_size=12,
    )
)
def test_optimising_keeps_the_meaning(choices: list[tuple[int, int, int]]) -> None:
    @kernel
    def drawn(x: Any, y: Any) -> Any:
        values = [x, y]
        for which, a, b in choices:
            first, second = values[a % len(values)], values[b % len(values)]
            values.append(UNARY[which](first) if which < len(UNARY) else BINARY[which - len(UNARY)](first, second))
        return values[-1]

    random = np.random.default_rng(len(choices))
    inputs = [random.normal(0.0, 1.0, (40, 3)) for _ in range(2)]
    trace = drawn.trace()
    short = optimise(trace)
    assert len(short.operations) <= len(trace.operations)
    np.testing.assert_allclose(short.meaning(inputs), trace.meaning(inputs), rtol=1e-9, atol=1e-9)


def line_of(function: Any, offset: int) -> str:
    return f"{Path(function.__code__.co_filename).name}:{function.__code__.co_firstlineno + offset}"


def test_errors_name_the_line_of_the_program() -> None:
    def number(x: Any) -> Any:
        y = k.vmuls(x, 2.0)
        return k.vadd(y, 3)

    def tile(x: Any) -> Any:
        return k.vmuls(x, x)

    def to_int8(x: Any) -> Any:
        return k.cast(x, Dtype.INT8)

    def infinite(x: Any) -> Any:
        return k.vadds(x, float("inf"))

    def nothing(x: Any) -> Any:
        k.vrelu(x)

    for function, offset, words in (
        (number, 2, "vadd: expected a tile as second operand, found int 3; use vadds(tile, 3)"),
        (tile, 1, "vmuls: expected a number as second operand, found a tile; use vmul(tile, tile)"),
        (to_int8, 1, "cast: the NPU has no instruction from bf16 to int8"),
        (infinite, 1, "vadds: expected a finite number, found inf"),
        (nothing, 0, "nothing: a program returns one tile, found NoneType"),
    ):
        with pytest.raises(InstructionError) as error:
            kernel(function).trace()
        assert words in str(error.value) and line_of(function, offset) in str(error.value), error.value
    with pytest.raises(InstructionError, match="a fixed number of tiles"):
        kernel(lambda *x: x[0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: x * x, "*: Python's operators are no instructions; use vmul(tile, tile)"),
        (lambda x: 2.0 * x, "vmuls(tile, number)"),
        (lambda x: x + 1, "vadds(tile, number)"),
        (lambda x: 1 - x, "vadds(vmuls(tile, -1.0), number)"),
        (lambda x: x - x, "vsub(tile, tile)"),
        (lambda x: x / 2, "vmuls(tile, 1.0 / number)"),
        (lambda x: -x, "vmuls(tile, -1.0)"),
        (lambda x: x**2, "vmul(tile, tile)"),
        (lambda x: k.vrelu(x) if x > 0 else x, "vmaxs"),
        (lambda x: np.float64(2.0) * x, "numpy.multiply: a tile has no values"),
        (lambda x: np.tanh(x), "numpy.tanh: a tile has no values"),
        (lambda x: math.tanh(x), "TypeError: must be real number"),
        (lambda x: x[0], "TypeError: 'Value' object is not subscriptable"),
    ],
)
def test_python_on_tiles_is_refused_at_its_line(wrong: Callable[..., Any], words: str) -> None:
    with pytest.raises(InstructionError) as error:
        kernel(wrong).trace()
    assert words in str(error.value) and line_of(wrong, 0) in str(error.value), error.value


def test_tiles_of_two_programs_do_not_mix() -> None:
    kept = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return k.vrelu(x)

    kernel(keep).trace()
    with pytest.raises(InstructionError, match="belongs to another program"):
        kernel(lambda x: k.vadd(x, kept[0])).trace()


PACKAGE = '''
"""An operator of somebody else's package."""
from npuforge.hw_kernels.dsl.kernel import cast, kernel, reduce_mean, vadd, vadds, vmul, vmuls, vsigmoid, vtanh
from npuforge.hw_kernels.dsl.kernel_program import KernelOp
from npuforge.hw_kernels.operator import Case, register


@kernel
def custom_gelu(x, *, slope):
    cube = vmul(vmul(x, x), x)
    inner = vmuls(vadd(x, vmuls(cube, 0.044715)), 0.7978845608028654)
    return vmuls(vmul(vmuls(x, 0.5), vadds(vtanh(inner), 1.0)), slope)


@register
class CustomGelu(KernelOp):
    """y = slope * 0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))"""

    names = onnx = ("org.somewhere::CustomGELU",)
    pixel_kernel = custom_gelu
    cases = (Case([(1, 20, 5, 7)], {"slope": 2.0}),)


@kernel
def squeeze_gate(x, *, strength):
    mean = cast(reduce_mean(x), x.dtype)
    gate = cast(vsigmoid(vmuls(mean, strength)), x.dtype)
    return vmul(x, gate)


@register
class SqueezeGate(KernelOp):
    """y = x * sigmoid(strength * mean of x over height and width)"""

    names = onnx = ("org.somewhere::SqueezeGate",)
    pixel_kernel = squeeze_gate
    cases = (Case([(1, 20, 5, 7)], {"strength": 1.5}),)
'''
USER = """
import sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
sys.path.insert(0, sys.argv[2])
from ladder import Quantised, climb, compile_graph
from ladder_bf16 import Ladder
from npuforge.compile.context import Context, Options
from npuforge.compile.pipeline import FRONT_END, run_steps
from npuforge.hw_kernels.arch import load
from npuforge.hw_kernels.operator import find
from npuforge.compile.ir.preprocess import Preprocess
from npuforge.compile.ir.errors import InstructionError
from npuforge.quant.bf16 import quantize_bf16
from npuforge.quant.calibrate import calibrate
from npuforge.quant.executor import ReferenceExecutor, quantise
from npuforge.quant.quantize import quantize

random = np.random.default_rng(1)
w = [random.normal(0, 0.3, s).astype(np.float32) for s in ((20, 3, 3, 3), (7, 20, 1, 1))]
own = {"CustomGELU": {"slope": 2.0}, "SqueezeGate": {"strength": 1.5}}


def network(*operators):
    nodes = [helper.make_node("Conv", ["x", "w0"], ["t0"], "first", kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    for i, op in enumerate(operators):
        nodes.append(helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], op, domain="org.somewhere", **own[op]))
    nodes.append(helper.make_node("Conv", [f"t{len(operators)}", "w1"], ["y"], "last", kernel_shape=[1, 1]))
    return save(nodes)


def save(nodes):
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 24, 20]) for n, c in (("x", 3), ("y", 7))]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], [numpy_helper.from_array(v, f"w{i}") for i, v in enumerate(w)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.somewhere", 1)]
    path = Path(sys.argv[1]) / f"{nodes[1].name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


assert find("org.somewhere::CustomGELU") is not None
path = network("CustomGELU", "SqueezeGate")
for arch in ("nf-b1024-bf16", "nf-b4096-bf16"):
    placed = run_steps(FRONT_END, None, Context(Options(path, load(arch), Path(sys.argv[1]), precision="bf16")))
    assert [p.device for p in placed.partitions] == ["NPU"], placed.partitions
    ladder = Ladder(quantize_bf16(placed), Preprocess(), load(arch))
    feeds = {"x": random.normal(0, 1, (1, 3, 24, 20)).astype(np.float32)}
    found = ladder.climb(ladder.binary(), feeds, (("csim", 1), ("sim", 1), ("sim", 2)))
    assert not found, found
try:
    run_steps(FRONT_END, None, Context(Options(path, load("nf-b1024"), Path(sys.argv[1]))))
    raise SystemExit("CustomGELU is written for bf16: its third line multiplies what no int8 tile holds")
except InstructionError as error:
    assert "somewhere_ops.py:10: vmul: expected an int8 tile as first operand, found int32" in str(error), error
path = network("SqueezeGate")
placed = run_steps(FRONT_END, None, Context(Options(path, load("nf-b1024"), Path(sys.argv[1]))))
assert [p.device for p in placed.partitions] == ["NPU"], placed.partitions
feeds = {"x": random.normal(0, 1, (1, 3, 24, 20)).astype(np.float32)}
for mode in ("fine", "pow2"):
    statistics = calibrate(placed, [feeds], lambda wanted: ReferenceExecutor(placed, wanted).run)
    integer = Quantised(quantize(placed, statistics, mode), Preprocess())
    stored = {"x": quantise(feeds["x"], integer.qgraph.quant["x"])}
    found = climb(integer, compile_graph(integer, "nf-b1024"), stored)
    assert not found, found
print("zero differing bits")
"""


def test_an_operator_of_a_second_package_from_onnx_to_the_devices(tmp_path: Path) -> None:
    """A package with an entry point `npuforge.ops`, as pip would install it; its operator runs on the NPU between two convolutions."""
    site = tmp_path / "site"
    info = site / "somewhere-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "somewhere_ops.py").write_text(PACKAGE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somewhere\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[npuforge.ops]\ngelu = somewhere_ops:CustomGelu\ngate = somewhere_ops:SqueezeGate\n", encoding="utf-8"
    )
    script = tmp_path / "user.py"
    script.write_text(USER, encoding="utf-8")
    paths = [str(site), *sys.path]
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path[:0] = {paths!r}; sys.argv = {['user', str(tmp_path), str(HERE.parent / 'e2e')]!r}; exec(open({str(script)!r}).read())",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "zero differing bits" in result.stdout, result.stderr[-3000:]
