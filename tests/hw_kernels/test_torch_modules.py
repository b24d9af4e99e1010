"""Every module of the PyTorch binding: export that ONNX's checker takes and ONNX Runtime or torch agrees with, torch.compile, gradcheck and
gradgradcheck in float64; and calls by `run` whose attributes are inputs in newer operator sets.

Run where PyTorch is: `pip install npuforge[torch]`, then `pytest -m torch tests/hw_kernels/test_torch_modules.py`.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnxruntime
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install npuforge[torch]")
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from npuforge.compile.ir.errors import UnsupportedError, UsageError
from npuforge.compile.steps.import_onnx import import_onnx
from npuforge.hw_kernels.bindings import torch_modules as modules
from npuforge.hw_kernels.bindings.onnx_form import onnx_form
from npuforge.hw_kernels.bindings.torch_ops import run
from npuforge.quant.executor import ReferenceExecutor

pytestmark = pytest.mark.torch
functional = torch.nn.functional

# Module, and the domain and type of the node that it is in a file.
EVERY: dict[str, tuple[Any, tuple[str, str]]] = {
    "LeakyReLU": (lambda: modules.LeakyReLU(0.2), ("", "LeakyRelu")),
    "LeakyReLU mask": (lambda: modules.LeakyReLU(0.2, mask=True), ("npuforge", "LeakyReluMask")),
    "SiLU": (lambda: modules.SiLU(), ("npuforge", "Silu")),
    "SiLU polynomial": (lambda: modules.SiLU(polynomial=True), ("npuforge", "SiluPolynomial")),
    "ClipSigmoid": (lambda: modules.ClipSigmoid(), ("npuforge", "ClipSigmoid")),
    "CustomGELU": (lambda: modules.CustomGELU(), ("com.example", "CustomGELU")),
    "ModSigmoid": (lambda: modules.ModSigmoid(4), ("npuforge", "ModSigmoid")),
    "Conv2d": (lambda: modules.Conv2d(4, 6, (3, 2), padding="same", dilation=(1, 2), groups=2), ("", "Conv")),
    "ConvTranspose2d": (
        lambda: modules.ConvTranspose2d(4, 6, (3, 2), 2, "same", groups=2, dilation=(2, 1)),
        ("", "ConvTranspose"),
    ),
    "RotatedConv2d": (lambda: modules.RotatedConv2d(4, 2, 3, padding=1), ("npuforge", "RotatedConv")),
    "BatchNorm2d": (lambda: modules.BatchNorm2d(4), ("", "BatchNormalization")),
    "Operator": (lambda: modules.Operator("HardSwish"), ("", "HardSwish")),
}


def image(dtype: Any = torch.float32) -> Any:
    return torch.randn(2, 4, 5, 4, generator=torch.Generator().manual_seed(3), dtype=dtype)


def values(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def exported(network: Any, *x: Any) -> onnx.ModelProto:
    buffer = io.BytesIO()
    torch.onnx.export(network.eval(), x, dynamo=True, verbose=False).save(buffer)
    model = onnx.load_from_string(buffer.getvalue())
    onnx.checker.check_model(model, full_check=True)
    return model


def test_no_module_is_missing() -> None:
    public = {
        n for n, v in vars(modules).items() if n[0].isupper() and getattr(v, "__module__", "") == modules.__name__
    }
    assert public == {name.split()[0] for name in EVERY}


@pytest.mark.parametrize("name", EVERY)
def test_exports_as_one_node_with_torchs_numbers(name: str) -> None:
    make, node = EVERY[name]
    network = make().eval()
    model = exported(network, image())
    assert [(n.domain, n.op_type) for n in model.graph.node] == [node]
    expected = values(network(image()))
    graph = import_onnx(model).graph
    found = ReferenceExecutor(graph, graph.outputs).run({graph.inputs[0]: image().numpy()})
    for output, right in zip(graph.outputs, expected, strict=True):
        np.testing.assert_allclose(found[output], right.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_torch_compile_takes_the_whole_module(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(4)
    network = EVERY[name][0]().train()
    x, y = (image().requires_grad_() for _ in range(2))
    state = {k: v.clone() for k, v in network.state_dict().items()}
    expected = values(network(x))
    expected[0].square().sum().backward()
    network.load_state_dict(state)
    found = values(torch.compile(network, backend="aot_eager", fullgraph=True)(y))
    found[0].square().sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("name", EVERY)
def test_gradients_of_input_and_parameters_twice(name: str) -> None:
    torch.manual_seed(5)
    network = EVERY[name][0]().double().eval()
    names = [n for n, _ in network.named_parameters()]

    def function(x: Any, *parameters: Any) -> Any:
        made = torch.func.functional_call(network, dict(zip(names, parameters, strict=True)), (x,))
        return values(made)[0]

    x = image(torch.float64)[:1, :, :3, :3].clone().requires_grad_()
    parameters = [p.detach().clone().requires_grad_() for p in network.parameters()]
    assert torch.autograd.gradcheck(function, (x, *parameters))
    assert torch.autograd.gradgradcheck(function, (x, *parameters))


# ---- convolutions against torch's own and ONNX Runtime
@pytest.mark.parametrize("padding", [(1, 0), "same", "valid"])
def test_conv2d_is_torchs(padding: Any) -> None:
    ours = modules.Conv2d(4, 6, (3, 4), padding=padding, dilation=(2, 1), groups=2)
    theirs = torch.nn.Conv2d(4, 6, (3, 4), padding=padding, dilation=(2, 1), groups=2)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(image()), theirs(image()))


def test_conv_transpose2d_is_torchs() -> None:
    arguments: tuple[Any, ...] = (4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, True, (2, 1))
    ours, theirs = modules.ConvTranspose2d(*arguments), torch.nn.ConvTranspose2d(*arguments)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(image()), theirs(image()))


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"),
    [((3, 3), (2, 2), (1, 1)), ((4, 5), (2, 3), (1, 1)), ((2, 3), (2, 1), (1, 2)), ((5, 3), (1, 2), (1, 1))],
)
def test_conv_transpose2d_same_is_onnx_runtimes(
    kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> None:
    ours = modules.ConvTranspose2d(4, 6, kernel, stride, "same", dilation=dilation)
    attributes = {"kernel_shape": kernel, "strides": stride, "dilations": dilation, "auto_pad": "SAME_UPPER"}
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)],
        "same",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 5, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.detach().numpy(), n) for n, v in (("w", ours.weight), ("b", ours.bias))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": image().numpy()})
    assert expected.shape == (2, 6, 5 * stride[0], 4 * stride[1])
    np.testing.assert_allclose(ours(image()).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_conv_transpose2d_same_with_a_window_smaller_than_the_stride() -> None:
    """By hand: each pixel's window in a cell of 3 x 3, the bias elsewhere."""
    ours = modules.ConvTranspose2d(1, 1, 2, 3, "same")
    x = torch.tensor([[[[1.0, -2.0]]]])
    expected = ours.bias.detach().expand(3, 6).clone()
    expected[:2, :2] += ours.weight.detach()[0, 0]
    expected[:2, 3:5] += -2.0 * ours.weight.detach()[0, 0]
    torch.testing.assert_close(ours(x)[0, 0], expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: modules.Conv2d(4, 4, 3, 2, "same"),
            "padding 'same' needs a stride of 1, found 2; give padding as numbers",
        ),
        (lambda: modules.Conv2d(4, 4, 3, 1, "SAME"), "padding is 'SAME', expected numbers, 'same' or 'valid'"),
        (
            lambda: modules.Conv2d(4, 4, (3, 3, 3)),
            r"kernel is \(3, 3, 3\), expected one whole number or \(height, width\)",
        ),
        (lambda: modules.ConvTranspose2d(4, 4, 3, 2, "same", 1), "found output_padding 1; leave it out"),
    ],
)
def test_wrong_sizes_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


# ---- attributes that newer operator sets have as inputs
CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("Clip", {"min": -0.5, "max": 0.25}, lambda x: x.clamp(-0.5, 0.25)),
    ("Clip", {"max": 0.25}, lambda x: x.clamp(max=0.25)),
    ("ReduceMean", {"axes": [2, 3], "keepdims": 1}, lambda x: x.mean((2, 3), keepdim=True)),
    ("ReduceMax", {"axes": [1], "keepdims": 0}, lambda x: x.amax(1)),
    ("Pad", {"pads": [0, 0, 1, 2, 0, 0, 2, 1], "value": -1.0}, lambda x: functional.pad(x, (2, 1, 1, 2), value=-1.0)),
    ("Unsqueeze", {"axes": [0]}, lambda x: x[None]),
    ("Slice", {"starts": [1], "ends": [3], "axes": [2]}, lambda x: x[:, :, 1:3]),
    ("Resize", {"sizes": [10, 8], "scales": [2.0, 2.0]}, lambda x: functional.interpolate(x, scale_factor=2)),
    (
        "Resize",
        {"sizes": [7, 9], "scales": [7 / 5, 9 / 4], "mode": "linear"},
        lambda x: functional.interpolate(x, (7, 9), mode="bilinear"),
    ),
    (
        "Resize",
        {"sizes": [11, 7], "scales": [2.2, 1.75], "mode": "linear", "coordinate_transformation_mode": "align_corners"},
        lambda x: functional.interpolate(x, (11, 7), mode="bilinear", align_corners=True),
    ),
]


@pytest.mark.parametrize(("name", "attributes", "theirs"), CALLS, ids=lambda v: v if isinstance(v, str) else "")
def test_run_exports_what_onnx_runtime_computes_as_torch(name: str, attributes: dict[str, Any], theirs: Any) -> None:
    network, x = modules.Operator(name, **attributes), image()
    model = exported(network, x)
    torch.testing.assert_close(network(x), theirs(x), rtol=1e-5, atol=1e-5)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(found, theirs(x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "attributes", "message"),
    [
        (
            "Affine",
            {"scale": [1.0] * 4, "bias": [0.0] * 4},
            "operator Affine is a form of the kit's graph .* Mul and Add",
        ),
        (
            "Resize",
            {"sizes": [7, 8], "scales": [2.0, 2.0]},
            r"sizes=\[7, 8\] and scales=\[2.0, 2.0\] .*give scales=\[1.4, 2.0\]",
        ),
    ],
)
def test_what_no_file_can_say_is_refused(name: str, attributes: dict[str, Any], message: str) -> None:
    """Asked directly: of two ways that torch's exporter tries, it shows the error of the last."""
    with pytest.raises(UnsupportedError, match=message):
        onnx_form(name, 1, attributes, (2, 4, 5, 4), "float32")


def test_an_operator_whose_shape_comes_from_values_says_so() -> None:
    class Reshaped(torch.nn.Module):
        def forward(self, x: Any, shape: Any) -> Any:
            return run("Reshape", x, shape)

    with pytest.raises(
        Exception, match=r"operator Reshape: its output's shape follows from values .*; use torch's own"
    ):
        exported(Reshaped(), image(), torch.tensor([8, -1]))
