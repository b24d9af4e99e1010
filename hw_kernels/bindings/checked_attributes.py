"""Owns which ONNX attributes the operators' references do not compute, for a framework that calls them without the importer.

The importer writes them out (compile/steps/canonical.py: padding as `pads`, sizes as attributes); a framework's call has no importer in front of it,
and an attribute that is passed over would give one result here and another from the exported network.
"""

from __future__ import annotations

from typing import Any

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.hw_kernels.ops.resize.op import COORDINATE_MODES, NEAREST_MODES

WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")
# Attribute: the values that change nothing, what to do for the others.
WINDOW_ATTRIBUTES: dict[str, tuple[tuple[Any, ...], str]] = {
    "auto_pad": (("NOTSET",), "give pads, [top, left, bottom, right], instead"),
    "ceil_mode": ((0,), "pad the map, or give pads, so that the last window fits, with ceil_mode=0"),
    "output_shape": ((None, []), "give pads and output_padding instead"),
    "storage_order": ((0,), "use 0, indices are counted row by row"),
}
RESIZE_MODES: dict[str, tuple[Any, ...]] = {
    "mode": ("nearest", "linear"),
    "coordinate_transformation_mode": COORDINATE_MODES,
    "nearest_mode": NEAREST_MODES,
    "antialias": (0,),
    "exclude_outside": (0,),
    "keep_aspect_ratio_policy": ("stretch",),
}


def check_attributes(name: str, inputs: int, attributes: dict[str, Any]) -> None:
    """UnsupportedError names the operator, the attribute that its reference would pass over, and what to give instead."""
    if name in WINDOWED:
        _check_window(name, attributes)
    elif name == "Resize":
        _check_resize(inputs, attributes)


def _check_window(name: str, attributes: dict[str, Any]) -> None:
    for key, (neutral, remedy) in WINDOW_ATTRIBUTES.items():
        if key not in attributes or attributes[key] in neutral:
            continue
        if key == "auto_pad" and attributes[key] == "VALID" and not any(attributes.get("pads") or ()):
            continue  # pads of 0, which is the default
        raise UnsupportedError(
            f"operator {name}: attribute {key}={attributes[key]} is read from ONNX files only; {remedy}"
        )


def _check_resize(inputs: int, attributes: dict[str, Any]) -> None:
    if inputs != 1 or "sizes" not in attributes or "scales" not in attributes:
        raise UnsupportedError(
            f"operator Resize: {inputs} inputs and attributes {sorted(attributes)}; expected the map alone with sizes=[height, width]"
            " and scales=[vertical, horizontal] as attributes"
        )
    if "axes" in attributes:
        raise UnsupportedError(
            "operator Resize: attribute axes is read from ONNX files only; sizes and scales are those of height and width"
        )
    for key, known in RESIZE_MODES.items():
        if key in attributes and attributes[key] not in known:
            raise UnsupportedError(
                f"operator Resize: attribute {key}={attributes[key]} is not computed here; expected one of {list(known)}"
            )
