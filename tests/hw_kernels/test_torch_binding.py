"""PyTorch binding: forward and gradients against the references and torch's own layers, gradcheck, torch.compile, ONNX export.
Training: `test_torch_training.py`.

Run where PyTorch is: `pip install npuforge[torch]`, then `pytest -m torch tests/hw_kernels/test_torch_binding.py`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contract import Subject, subjects

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
import torch

from npuforge.compile.ir.errors import UnsupportedError, UsageError
from npuforge.hw_kernels.bindings import torch_modules as modules
from npuforge.hw_kernels.bindings import torch_ops
from npuforge.hw_kernels.bindings.torch_ops import run
from npuforge.hw_kernels.levels import declared, for_frameworks

pytestmark = pytest.mark.torch


EVERY = [s for s in subjects() if for_frameworks(s.case)]
TRAINED = [s for s in EVERY if declared(s.op, "gradient")]


def tensors(subject: Subject) -> list[Any]:
    """Float32, as a network's are."""
    return [torch.from_numpy(np.array(x)) for x in subject.inputs()]


def leaves(subject: Subject) -> list[Any]:
    """Float64, requiring gradients where the operator has them."""
    node, arrays = (
        subject.graph().nodes[0],
        [x.astype(np.float64) if x.dtype.kind == "f" else x for x in subject.inputs()],
    )
    outputs = [np.zeros(y.shape) for y in subject.op.reference(node, arrays)]
    pairs = zip(arrays, subject.op.gradient(node, arrays, outputs), strict=True)
    return [torch.from_numpy(np.array(x)).requires_grad_(g is not None) for x, g in pairs]


def call(subject: Subject) -> Callable[..., Any]:
    return lambda *inputs: run(subject.name, *inputs, outputs=subject.case.outputs, **subject.case.attrs)


@pytest.mark.parametrize("subject", EVERY, ids=str)
def test_forward_is_the_reference(subject: Subject) -> None:
    found = call(subject)(*tensors(subject))
    inputs = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in subject.inputs()]
    expected = subject.op.reference(subject.graph().nodes[0], inputs)
    for y, value in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert tuple(y.shape) == value.shape
        assert y.dtype == (torch.float32 if value.dtype.kind == "f" else torch.from_numpy(value).dtype)
        np.testing.assert_allclose(y.numpy(), value, rtol=2e-5, atol=2e-6)


def checkable(subject: Subject) -> bool:
    """gradcheck takes every element in turn, and wants one at least."""
    return 0 < sum(x.size for x in subject.inputs() if x.dtype.kind == "f") <= 1200 and all(
        x.size for x in subject.inputs()
    )


@pytest.mark.parametrize("subject", [s for s in TRAINED if checkable(s)], ids=str)
def test_gradcheck(subject: Subject) -> None:
    assert torch.autograd.gradcheck(call(subject), leaves(subject), fast_mode=True)


SMOOTH = [s for s in TRAINED if declared(s.op, "second gradient") and checkable(s)]


@pytest.mark.parametrize("subject", SMOOTH, ids=str)
def test_gradgradcheck(subject: Subject) -> None:
    assert torch.autograd.gradgradcheck(call(subject), leaves(subject), fast_mode=True)


OWN_FUNCTIONS = {
    "LeakyRelu": lambda x: torch.nn.functional.leaky_relu(x, 0.01),
    "npuforge::Silu": torch.nn.functional.silu,
    "Mish": torch.nn.functional.mish,
    "HardSwish": torch.nn.functional.hardswish,
    "com.example::CustomGELU": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "Gelu": torch.nn.functional.gelu,
    "Relu": torch.nn.functional.relu,
    "Elu": torch.nn.functional.elu,
    "Selu": torch.nn.functional.selu,
    "Celu": torch.nn.functional.celu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Softplus": torch.nn.functional.softplus,
    "Softsign": torch.nn.functional.softsign,
    "npuforge::ClipSigmoid": lambda x: torch.sigmoid(x).clip(0.1, 0.9),
}


@pytest.mark.parametrize("name", OWN_FUNCTIONS)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_functions_and_gradients_are_torchs(name: str, kind: Any) -> None:
    values = torch.cat(
        [torch.linspace(-30, 30, 401), torch.tensor([0.0, -0.0, 1e5, -1e5, 1e-30, 1e-42, float("nan")])]
    ).to(kind)
    results = []
    for function in (lambda x: run(name, x), OWN_FUNCTIONS[name]):
        x = values.clone().requires_grad_()
        y = function(x)
        (dx,) = torch.autograd.grad(y.sum(), x)
        results.append((y.detach(), dx))
    (y, dx), (expected, expected_dx) = results
    # ONNX's constants of Selu have float32's digits, torch's have more.
    tolerance = 1e-5 if kind == torch.float32 else 1e-7 if name == "Selu" else 1e-8
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    # At a kink torch takes one side or the other; and NaN's slope is not the same for all of its own functions.
    kink = torch.isnan(values) | (values == 0) | ((name == "HardSwish") & (values.abs() == 3))
    torch.testing.assert_close(dx[~kink], expected_dx[~kink], rtol=10 * tolerance, atol=10 * tolerance)


def test_leaky_relu_uses_its_mask_not_the_gradients_sign() -> None:
    x = torch.tensor([-2.0, 3.0], dtype=torch.float64, requires_grad=True)
    y, mask = run("npuforge::LeakyReluMask", x, outputs=2, alpha=0.25)
    assert mask.tolist() == [0.0, 1.0]
    (dx,) = torch.autograd.grad(y, x, torch.tensor([-8.0, -1.0], dtype=torch.float64))
    assert dx.tolist() == [-2.0, -1.0]


def test_an_operator_without_gradient_says_why() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    with pytest.raises(UnsupportedError, match="npuforge::RotatedIou has no gradient: used to match"):
        run("npuforge::RotatedIou", x, x).sum().backward()


# ---- torch.compile and ONNX
class Mixed(torch.nn.Module):
    """Own operators of every kind: element-wise, with parameters, lowered at import."""

    def __init__(self) -> None:
        super().__init__()
        m = modules
        self.layers = torch.nn.Sequential(
            m.Conv2d(3, 8, 3, padding=1), m.BatchNorm2d(8), m.LeakyReLU(0.2), m.RotatedConv2d(8, 4, 3, padding=1), m.SiLU(),
            m.Conv2d(16, 8, 1), m.ModSigmoid(8), m.ConvTranspose2d(8, 8, 2, stride=2), m.ClipSigmoid(), m.Conv2d(8, 5, 1), m.CustomGELU(),
            m.Conv2d(5, 4, 1),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def test_torch_compile_keeps_forward_and_gradients() -> None:
    torch.manual_seed(1)
    network = Mixed().train()
    torch._dynamo.reset()
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 3, 8, 8)
    state = {k: v.clone() for k, v in network.state_dict().items()}
    network(x).square().sum().backward()
    expected = [p.grad.clone() for p in network.parameters()]
    network.load_state_dict(state)
    network.zero_grad()
    compiled(x).square().sum().backward()
    for p, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient)


def test_torch_compile_takes_calls_with_attributes() -> None:
    """Outside modules."""
    torch._dynamo.reset()

    def f(x: Any) -> Any:
        pooled = run("MaxPool", x, kernel_shape=[2, 2], strides=[1, 1], auto_pad="NOTSET")
        return run("LeakyRelu", pooled, alpha=0.125).sum()

    x = torch.randn(1, 2, 6, 6)
    expected = torch.nn.functional.leaky_relu(torch.nn.functional.max_pool2d(x, 2, 1), 0.125).sum()
    torch.testing.assert_close(torch.compile(f, backend="aot_eager", fullgraph=True)(x), expected)


def test_torch_compile_with_open_sizes_and_attributes_that_change() -> None:
    """A number that torch.compile holds open instead of compiling it in."""
    torch._dynamo.reset()

    def f(x: Any, alpha: float, axis: int) -> Any:
        return run("Softmax", run("LeakyRelu", x, alpha=alpha), axis=axis)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for height, alpha, axis in ((6, 0.1, 1), (7, 0.25, 2), (9, 0.3, 3)):
        x = torch.randn(2, 3, height, 5, requires_grad=True)
        y = torch.nn.functional.leaky_relu(x, alpha).softmax(axis)
        weights = torch.randn_like(y)
        (expected,) = torch.autograd.grad((y * weights).sum(), x)
        found = compiled(x, alpha, axis)
        torch.testing.assert_close(found, y)
        torch.testing.assert_close(torch.autograd.grad((found * weights).sum(), x)[0], expected)


@pytest.mark.parametrize(
    "layer", [lambda: modules.LeakyReLU(0.2), lambda: modules.LeakyReLU(0.2, mask=True), lambda: modules.BatchNorm2d(4),
              lambda: modules.RotatedConv2d(4, 2, 3), lambda: modules.Operator("npuforge::YoloDecode", 3, anchors=[1.0, 2.0], strides=[8], num_classes=2)]
)  # fmt: skip
def test_modules_compile_whole_with_open_sizes(layer: Any) -> None:
    torch._dynamo.reset()
    network = layer()
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (5, 6):
        x = torch.randn(1, 7 if isinstance(network, modules.Operator) and network.outputs == 3 else 4, size, size)
        torch.testing.assert_close(compiled(x), network(x))


def test_attributes_of_every_kind_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers from numpy, NaN and infinity, quotes and backslashes; what is none of them is named."""
    given = {
        "a": 1,
        "b": np.float32(0.5),
        "c": np.array([2, 3]),
        "d": math.inf,
        "e": 'say "\\"',
        "f": [True, 0.25, "x"],
        "g": [],
    }
    expected = {"a": 1, "b": 0.5, "c": [2, 3], "d": math.inf, "e": 'say "\\"', "f": [True, 0.25, "x"], "g": []}
    found = torch_ops._unpacked(*torch_ops._packed("Any", given))
    assert found == expected
    assert [type(v) for v in (found["a"], found["b"], found["c"][0], found["f"][0])] == [int, float, int, bool]
    assert math.isnan(torch_ops._unpacked(*torch_ops._packed("Any", {"a": math.nan}))["a"])
    with pytest.raises(UnsupportedError, match="operator LeakyRelu: attribute alpha is a Tensor; expected a number"):
        run("LeakyRelu", torch.ones(2), alpha=torch.tensor(0.1))


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    for module, arguments in (
        (modules.Conv2d, (3, 4, 3)),
        (modules.ConvTranspose2d, (4, 3, 3)),
        (modules.RotatedConv2d, (3, 4, 3)),
    ):
        with pytest.raises(UsageError, match="groups is 2, expected a divisor of"):
            module(*arguments, groups=2)
    with pytest.raises(UnsupportedError, match="kernel_shape"):
        run("Conv", torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), kernel_shape=[5, 5])


def exported(network: Any, x: Any) -> Any:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install npuforge[torch]")
    import onnx

    program = torch.onnx.export(network.eval(), (x,), dynamo=True, verbose=False)
    buffer = io.BytesIO()
    program.save(buffer)
    return onnx.load_from_string(buffer.getvalue())


def test_export_import_and_simulate_give_the_same_numbers() -> None:
    """torch → ONNX with the operators' domains → our importer → float graph, integers, csim and sim."""
    from ladder import Quantised, climb, compile_graph

    from npuforge.compile.ir.preprocess import Preprocess
    from npuforge.compile.steps.fold import fold
    from npuforge.compile.steps.fuse import fuse
    from npuforge.compile.steps.import_onnx import import_onnx
    from npuforge.compile.steps.partition import partition
    from npuforge.quant.calibrate import calibrate
    from npuforge.quant.executor import IntegerExecutor, ReferenceExecutor
    from npuforge.quant.quantize import quantize

    torch.manual_seed(2)
    network = Mixed().eval()
    x = torch.randn(1, 3, 8, 8)
    model = exported(network, x)
    domains = {(n.domain, n.op_type) for n in model.graph.node}
    own = {"RotatedConv", "Silu", "ModSigmoid", "ClipSigmoid"}
    assert {("npuforge", o) for o in own} | {("com.example", "CustomGELU"), ("", "ConvTranspose")} <= domains
    graph = partition(fuse(fold(import_onnx(model).graph)))
    assert {n.device for n in graph.nodes} == {"NPU"}
    (name,), (output,) = graph.inputs, graph.outputs
    feeds = [{name: torch.randn(1, 3, 8, 8).numpy()} for _ in range(2)] + [{name: x.numpy()}]
    expected = network(x).detach().numpy()
    np.testing.assert_allclose(ReferenceExecutor(graph).run(feeds[-1])[output], expected, rtol=1e-4, atol=1e-5)
    statistics = calibrate(graph, feeds, lambda wanted: ReferenceExecutor(graph, wanted).run)
    integer = Quantised(quantize(graph, statistics, "fine"), Preprocess())
    found = IntegerExecutor(integer.qgraph).run_outputs(feeds[-1])[output]
    assert 10 * np.log10(np.square(expected).sum() / np.square(found - expected).sum()) > 20
    stored = IntegerExecutor(integer.qgraph).quantise_input(name, feeds[-1][name])
    assert climb(integer, compile_graph(integer, "nf-b1024"), {name: stored}) == []


def test_export_of_several_outputs_keeps_attributes() -> None:
    model = exported(modules.LeakyReLU(0.3, mask=True), torch.randn(1, 2, 3, 4))
    (node,) = [n for n in model.graph.node if n.domain == "npuforge"]
    assert node.op_type == "LeakyReluMask" and len(node.output) == 2
    assert node.attribute[0].name == "alpha" and abs(node.attribute[0].f - 0.3) < 1e-7
