"""Owns which attributes a framework's call may have: those that the operator knows, less those that only the importer of ONNX files reads;
and which shapes a convolution takes.

The importer writes them out (compile/steps/canonical.py: padding as `pads`, sizes as attributes); a framework's call has no importer in front of it,
and an attribute that is passed over would give one result here and another from the exported network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.hw_kernels import operator
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


def _known_attributes() -> dict[str, tuple[str, ...] | None]:
    """By operator: what it declares, else ONNX's attributes in any operator set and those of the kit's graph, which its cases have."""
    registered = operator.registry()
    cases = {name: {key for case in op.cases for key in case.attrs} for name, op in registered.items()}
    standard: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in registered:
            standard.setdefault(schema.name, cases[schema.name]).update(schema.attributes)
    own = {name: op.attributes for name, op in registered.items()}
    return own | {name: tuple(sorted(keys)) for name, keys in standard.items()}


_KNOWN = _known_attributes()  # made once, here: torch.compile cannot trace the search


def check_names(name: str, attributes: dict[str, Any]) -> None:
    """UnsupportedError names the operator, an attribute that it does not have, and the nearest that it has."""
    known = _KNOWN[name] if name in _KNOWN else operator.registry()[name].attributes
    if known is not None:
        for key in attributes:
            if key not in known:
                raise UnsupportedError(operator.unknown_attribute(name, key, known))


def check_attributes(name: str, inputs: int, attributes: dict[str, Any]) -> None:
    """UnsupportedError also names an attribute that the operator's reference would pass over, and what to give instead."""
    check_names(name, attributes)
    if name in WINDOWED:
        _check_window(name, attributes)
    elif name == "Resize":
        _check_resize(inputs, attributes)


def check_convolution(name: str, shapes: Sequence[Sequence[int]], attributes: dict[str, Any]) -> None:
    """UnsupportedError where map (N, C, H, W), weights and attributes of Conv or ConvTranspose do not belong together.

    The rules are ONNX's: channels of the map in `group` equal parts, weights of Conv [M, C / group, kH, kW], of ConvTranspose [C, M / group, kH, kW].
    """
    if name not in ("Conv", "ConvTranspose"):
        return
    found, weight, group = shapes[0], shapes[1] if len(shapes) > 1 else (), attributes.get("group", 1)
    if len(found) != 4 or len(weight) != 4:
        raise UnsupportedError(
            f"operator {name}: a map of {len(found)} and weights of {len(weight)} dimensions; expected four of each, "
            "with N = 1 and a size of 1 added where they are missing"
        )
    taken = weight[1] * group if name == "Conv" else weight[0]
    if found[1] != taken or found[1] % group or (name == "Conv" and weight[0] % group):
        raise UnsupportedError(
            f"operator {name}: {found[1]} channels with weights {list(weight)} and group={group}; expected {taken} channels, "
            "and whole numbers of channels in a group"
        )
    kernel = attributes.get("kernel_shape")
    if kernel is not None and list(kernel) != list(weight[2:]):
        raise UnsupportedError(
            f"operator {name}: kernel_shape={list(kernel)}, but the weights are {list(weight)}; leave kernel_shape out"
        )
    extra = attributes.get("output_padding", (0, 0))
    steps = zip(attributes.get("strides", (1, 1)), attributes.get("dilations", (1, 1)), strict=True)
    if any(e >= max(both) for e, both in zip(extra, steps, strict=True)):
        raise UnsupportedError(
            f"operator {name}: output_padding={list(extra)}; expected less than the stride or the dilation"
        )


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
