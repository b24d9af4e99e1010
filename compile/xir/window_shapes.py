"""XIR's shape rules for what slides a window: convolutions and pooling over 1, 2 or 3 axes.

Attributes of several values are in the order W, H, D (`pad`: before and after each), tensors N, H, W, D, C; weights [O, kH, kW, kD, I], depthwise weights
[multiplier, kH, kW, kD, I].
"""

from __future__ import annotations

from npuforge.compile.xir.model import XOp
from npuforge.compile.xir.shape_inputs import Inputs, Shape, ShapeError

_AXES = {1: (1,), 2: (2, 1), 3: (2, 1, 3)}  # of the tensor, for each value of an attribute of so many


def _positive(op: XOp, *names: str) -> None:
    for name in names:
        value = op.get(name, [1])
        if any(v < 1 for v in value):
            raise ShapeError(f"{name} {value}; expected every value to be positive")


def _int32(*terms: int) -> None:
    """XIR adds and subtracts these in 32 bits, in one order or another."""
    if sum(abs(term) for term in terms) >= 1 << 31:
        raise ShapeError(
            "the sizes of its window (kernel, stride, dilation, pad) exceed 32 bits; expected smaller ones"
        )


def _window(op: XOp) -> tuple[list[int], list[int], list[int], list[int], str]:
    """kernel, stride, dilation, pad (with XIR's defaults) and pad_mode; a `-fix` operator rounds down."""
    _positive(op, "kernel", "stride", "dilation")
    kernel, stride = op.get("kernel"), op.get("stride")
    dilation, pad = op.get("dilation", [1] * len(kernel)), op.get("pad", [0] * (2 * len(kernel)))
    return kernel, stride, dilation, pad, "FLOOR" if op.type.endswith("-fix") else op.get("pad_mode")


def _spatial(op: XOp, x: Shape) -> Shape:
    """Sizes behind the window, in the tensor's order."""
    kernel, stride, dilation, pad, mode = _window(op)
    result = [0] * len(kernel)
    for i, axis in enumerate(_AXES[len(kernel)]):
        _int32(x[axis], *pad[2 * i : 2 * i + 2], kernel[i] * dilation[i], stride[i])
        padded, span, step = x[axis] + pad[2 * i] + pad[2 * i + 1], (kernel[i] - 1) * dilation[i] + 1, stride[i]
        result[axis - 1] = {
            "FLOOR": (padded - span + step) // step,
            "CEIL": -((span - padded - step) // step),
            "SAME": -(-padded // step),
            "VALID": -((span - 1 - padded) // step),
        }[mode]
    return result


def _transposed_spatial(op: XOp, x: Shape) -> Shape:
    kernel, stride, dilation, pad, mode = _window(op)
    result = [0] * len(kernel)
    for i, axis in enumerate(_AXES[len(kernel)]):
        _int32(x[axis] * stride[i], *pad[2 * i : 2 * i + 2], kernel[i] * dilation[i])
        spread = (x[axis] - 1) * stride[i]
        if mode == "SAME":
            result[axis - 1] = x[axis] * stride[i]
        elif mode == "VALID":
            result[axis - 1] = spread + kernel[i]
        else:
            result[axis - 1] = spread + dilation[i] * (kernel[i] - 1) + 1 - pad[2 * i] - pad[2 * i + 1]
    return result


def convolution(op: XOp, inputs: Inputs) -> Shape:
    """Every operator with weights, by its type's name: transposed or not, depthwise or not, float or `-fix`."""
    x, weights = inputs["input"][0].tensor.shape, inputs["weights"][0].tensor.shape
    group = op.get("group", 1) if op.type in ("conv2d", "conv2d-fix") else 1
    if group < 1 or x[-1] % group or weights[0] % group:
        raise ShapeError(
            f"group {group}; expected a positive divisor of the input's {x[-1]} channels and of the {weights[0]} of the output"
        )
    if weights[-1] * group != x[-1]:
        raise ShapeError(
            f"weights {weights} of {weights[-1]} input channels; the input {x} has {x[-1]} in {group} groups, expected {x[-1] // group}"
        )
    transposed = "transposed" in op.type
    channels = _output_channels(op.type, x, weights)
    for bias in inputs.get("bias", ()):
        if bias.tensor.shape != [channels]:
            raise ShapeError(f"bias {bias.tensor.shape}; expected {[channels]}, one value per output channel")
    return [x[0], *(_transposed_spatial(op, x) if transposed else _spatial(op, x)), channels]


def _output_channels(op_type: str, x: Shape, weights: Shape) -> int:
    if "depthwise" not in op_type:
        return weights[0]
    if "3d" in op_type or op_type == "transposed-depthwise-conv2d":
        return x[-1]
    return weights[0] * weights[-1]


def pool(op: XOp, inputs: Inputs) -> Shape:
    """`global`: one value per channel, whatever the window says."""
    x = inputs["input"][0].tensor.shape
    return [x[0], *([1] * (len(x) - 2) if op.get("global", False) else _spatial(op, x)), x[-1]]
