"""Attributes that references do not compute are refused where no importer wrote them out; neutral values pass. PyTorch: where it is installed."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.hw_kernels.bindings.checked_attributes import check_attributes, check_convolution
from npuforge.hw_kernels.operator import Op, registry

WINDOW = {"kernel_shape": [2, 2], "strides": [2, 2]}
SIZED = {"sizes": [6, 6], "scales": [2.0, 2.0]}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("MaxPool", WINDOW | {"ceil_mode": 1}, r"operator MaxPool: attribute ceil_mode=1 .*; pad the map"),
    ("AveragePool", WINDOW | {"ceil_mode": 1}, r"operator AveragePool: attribute ceil_mode=1"),
    ("AveragePool", WINDOW | {"auto_pad": "SAME_LOWER"}, r"attribute auto_pad=SAME_LOWER .*; give pads"),
    ("Conv", WINDOW | {"auto_pad": "SAME_UPPER"}, r"operator Conv: attribute auto_pad=SAME_UPPER"),
    ("Conv", WINDOW | {"auto_pad": "VALID", "pads": [1] * 4}, r"attribute auto_pad=VALID"),
    ("ConvTranspose", WINDOW | {"auto_pad": "SAME_UPPER"}, r"operator ConvTranspose: attribute auto_pad=SAME_UPPER"),
    (
        "ConvTranspose",
        WINDOW | {"output_shape": [7, 6]},
        r"attribute output_shape=\[7, 6\] .*; give pads and output_padding",
    ),
    ("MaxPool", WINDOW | {"storage_order": 1}, r"attribute storage_order=1"),
    ("Resize", {"scales": [2.0, 2.0]}, r"operator Resize: .* expected the map alone with sizes=\[height, width\]"),
    (
        "Resize",
        SIZED | {"mode": "cubic"},
        r"operator Resize: attribute mode=cubic .* expected one of \['nearest', 'linear'\]",
    ),
    ("Resize", SIZED | {"coordinate_transformation_mode": "tf_crop_and_resize"}, r"tf_crop_and_resize"),
    ("Resize", SIZED | {"axes": [2, 3]}, r"attribute axes"),
    ("LeakyRelu", {"alhpa": 0.1}, r"operator LeakyRelu has no attribute alhpa; use alpha \(it has alpha"),
    ("npuforge::LeakyReluMask", {"slope": 0.1}, r"LeakyReluMask has no attribute slope; .* \(it has alpha\)"),
    ("npuforge::Silu", {"beta": 2.0}, r"npuforge::Silu has no attribute beta; leave it out \(it has none\)"),
    ("npuforge::RotatedConv", {"rotation": 2}, r"has no attribute rotation; use rotations"),
    ("Conv", WINDOW | {"groups": 2}, r"operator Conv has no attribute groups; use group"),
    ("Relu", {"ceil_mode": 1}, r"operator Relu has no attribute ceil_mode"),
]


@pytest.mark.parametrize(("name", "attributes", "message"), REFUSED)
def test_what_a_reference_would_pass_over_is_refused(name: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        check_attributes(name, 1, attributes)


def test_a_resize_with_sizes_as_an_input_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="operator Resize: 3 inputs"):
        check_attributes("Resize", 3, {"mode": "nearest"})


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "message"),
    [
        ("Conv", [(1, 3, 8, 8), (4, 1, 3, 3)], {"group": 2}, r"3 channels with weights \[4, 1, 3, 3\] and group=2; expected 2"),
        ("Conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, r"3 channels .* expected 2 channels"),
        ("Conv", [(1, 4, 8, 8), (3, 2, 3, 3)], {"group": 2}, r"whole numbers of channels in a group"),
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], {"kernel_shape": [5, 5]}, r"kernel_shape=\[5, 5\], but the weights are"),
        ("Conv", [(3, 8, 8), (4, 3, 3, 3)], {}, r"a map of 3 and weights of 4 dimensions; expected four of each"),
        ("ConvTranspose", [(1, 3, 8, 8), (4, 1, 2, 2)], {}, r"3 channels .* expected 4"),
        ("ConvTranspose", [(1, 3, 8, 8), (3, 1, 2, 2)], {"group": 2}, r"whole numbers"),
        ("ConvTranspose", [(1, 3, 8, 8), (3, 1, 2, 2)], {"strides": [2, 2], "output_padding": [0, 2]}, r"output_padding=\[0, 2\]; .* less"),
    ],
)  # fmt: skip
def test_a_convolution_whose_parts_do_not_belong_together_is_refused(
    name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        check_convolution(name, shapes, attributes)


def test_convolutions_that_onnx_allows_pass() -> None:
    check_convolution("Conv", [(2, 4, 8, 8), (6, 2, 3, 1)], {"group": 2, "kernel_shape": [3, 1]})
    check_convolution("ConvTranspose", [(1, 4, 8, 8), (4, 3, 2, 2)], {"group": 2, "dilations": [3, 3], "output_padding": [2, 2]})  # fmt: skip
    check_convolution("MaxPool", [(1, 4, 8, 8)], {"kernel_shape": [3, 1]})


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("MaxPool", WINDOW | {"ceil_mode": 0, "storage_order": 0, "auto_pad": "NOTSET"}),
        ("Conv", WINDOW | {"auto_pad": "VALID", "pads": [0] * 4}),
        ("ConvTranspose", WINDOW | {"auto_pad": "VALID", "output_shape": []}),
        ("Resize", SIZED | {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ("Clip", {"min": 0.0}),
        ("AveragePool", WINDOW | {"count_include_pad": 1}),
        ("npuforge::ConvBnLeakyRelu", WINDOW | {"dilations": [2, 2], "group": 2, "epsilon": 0.1, "alpha": 0.2}),
    ],
)
def test_neutral_values_pass(name: str, attributes: dict[str, Any]) -> None:
    check_attributes(name, 1, attributes)


def read_by(op: Op) -> set[str]:
    """Attributes that the operator's own file names when it reads them."""
    return set(
        re.findall(r'attrs(?:\.get\(|\[)\s*"([a-z_]+)"', Path(inspect.getfile(type(op))).read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("name", sorted(n for n, op in registry().items() if op.attributes is not None))
def test_what_an_operator_reads_and_what_its_cases_give_is_declared(name: str) -> None:
    op = registry()[name]
    assert {key for case in op.cases for key in case.attrs} | read_by(op) <= set(op.attributes or ())


def test_every_operator_of_the_kit_declares_its_attributes() -> None:
    assert [n for n, op in registry().items() if "::" in n and op.attributes is None] == []


@pytest.mark.torch
def test_run_refuses_them() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
    from npuforge.hw_kernels.bindings.torch_ops import run

    for name, attributes, message in REFUSED:
        with pytest.raises(UnsupportedError, match=message):
            run(name, torch.zeros(1, 1, 3, 3), **attributes)


@pytest.mark.torch
def test_run_decodes_each_image_of_a_batch() -> None:
    """As each alone; with a threshold, by which images would keep different numbers of rows, or with other channels it is refused."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install npuforge[torch]")
    from npuforge.hw_kernels.bindings.torch_ops import run

    attributes: dict[str, Any] = {"anchors": [10.0, 13.0], "strides": [8], "num_classes": 1}
    x = torch.randn(2, 6, 2, 2, generator=torch.Generator().manual_seed(1))
    found = run("npuforge::YoloDecode", x, outputs=3, **attributes)
    alone = [run("npuforge::YoloDecode", image[None], outputs=3, **attributes) for image in x]
    for whole, parts in zip(found, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(whole, torch.cat(parts), rtol=0, atol=0)
    with pytest.raises(ModelError, match="score_threshold"):
        run("npuforge::YoloDecode", x, outputs=3, score_threshold=0.5, **attributes)
    with pytest.raises(ModelError, match="expected"):
        run("npuforge::YoloDecode", torch.zeros(1, 7, 2, 2), outputs=3, **attributes)
