"""Drawn residual blocks for the ladder: a convolution and a skip tensor added to it, with every kind of stage on either; and what may not be fused.

`residuals` draws a `Case` whose Add is the residual stage of the convolution, `apart` one whose Add has to stay a layer of its own.
"""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from ladder_layers import Case
from layer_strategies import CHANNELS, SIZES, WHOLE, Builder

from npuforge.compile.ir.graph import Activation

PIECEWISE = ("none", "Relu", "Clip", "LeakyRelu", "PRelu")


def _same_size(draw: Any) -> dict[str, Any]:
    """A window that keeps the size of any map (with strides of 1)."""
    kernel = [draw(st.sampled_from([1, 1, 3, 5])), draw(st.sampled_from([1, 1, 3, 5]))]
    dilations = [draw(st.integers(1, 2)), draw(st.integers(1, 2))]
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    top, left = draw(st.integers(0, reach[0])), draw(st.integers(0, reach[1]))
    pads = [top, left, reach[0] - top, reach[1] - left]
    return {"kernel_shape": kernel, "strides": [1, 1], "pads": pads, "dilations": dilations}


def _piecewise(b: Builder, channels: int) -> Activation:
    """An activation that the residual stage has."""
    activation = b.activation(channels)
    assume(activation.kind in PIECEWISE)
    return activation


def _group(draw: Any, inputs: int, outputs: int) -> int:
    found = [g for g in range(1, 6) if inputs % g == outputs % g == 0 and not g == inputs == outputs]
    return int(draw(st.sampled_from(found))) if found else 1


@st.composite
def residuals(draw: Any) -> Case:
    """The skip tensor is the convolution's own input, an earlier layer, a network input, or another convolution; it is read again or not."""
    b = Builder(draw)
    h, w = draw(SIZES), draw(SIZES)
    outputs = draw(CHANNELS)
    kind = draw(st.sampled_from(["input", "earlier", "network", "convolution", "strided"]))
    inputs = outputs if kind == "input" else draw(CHANNELS)
    assume((inputs, outputs) != (1, 1))  # that is depthwise
    x = b.lead(inputs, h, w)
    if kind == "strided":
        window = _same_size(draw) | {"strides": [draw(st.integers(1, 3)), draw(st.integers(1, 3))]}
        y = b.conv("y", x, outputs, window, _group(draw, inputs, outputs))
        skip = b.input("skip", *b.shape(y)[1:])
    else:
        skip = x
        if kind == "earlier":
            skip = b.add(
                "Affine",
                "skip",
                [b.input("other", outputs, h, w)],
                b.activation(outputs),
                scale=[1.0] * outputs,
                bias=[0.0] * outputs,
            )
        elif kind == "network":
            skip = b.input("skip", outputs, h, w)
        elif kind == "convolution":
            skip = b.conv("skip", x, outputs, _same_size(draw))
        y = b.conv("y", x, outputs, _same_size(draw), _group(draw, inputs, outputs))
    z = b.add("Add", "z", [y, skip] if draw(st.booleans()) else [skip, y], _piecewise(b, outputs))
    after = draw(st.sampled_from(["leaves", "read", "read with the skip tensor"]))
    if after != "leaves":
        z = b.conv("after", z, draw(st.integers(1, 40)), WHOLE)
    if after == "read with the skip tensor" and kind != "convolution":
        other = b.conv("late", skip, b.shape(z)[1], WHOLE)
        z = b.add("Mul", "end", [z, other], b.activation(b.shape(z)[1]))
    return b.finish(z)


@st.composite
def apart(draw: Any) -> Case:
    """An Add that cannot be a residual stage: the convolution is read twice, the skip tensor broadcasts, or the Add has a table."""
    b = Builder(draw)
    h, w, channels = draw(SIZES), draw(SIZES), draw(st.integers(2, 40))
    x = b.lead(channels, h, w)
    y = b.conv("y", x, channels, WHOLE)
    kind = draw(st.sampled_from(["read twice", "broadcasts", "table", "depthwise"]))
    assume(kind != "broadcasts" or h > 1)
    skip, activation = b.input("skip", channels, 1 if kind == "broadcasts" else h, w), Activation()
    if kind == "table":
        activation = Activation("Silu")
    elif kind == "depthwise":
        y = b.conv("deep", y, channels, WHOLE, channels)
    z = b.add("Add", "z", [y, skip], activation)
    if kind == "read twice":
        z = b.add("Mul", "end", [z, y])
    return b.finish(z)
