"""ConvBnLeakyRelu as an array program of the NPU DSL."""

from __future__ import annotations

from typing import Any

from npuforge.hw_kernels.convolution_program import convolved
from npuforge.hw_kernels.dsl.array import array_kernel, reshape, vadd, vadds, vcmpsel, vdiv, vmul, vmuls, vsqrt, vsub


@array_kernel
def conv_bn_leaky_relu(
    x: Any,
    w: Any,
    b: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    *,
    strides: Any = (1, 1),
    pads: Any = (0, 0, 0, 0),
    dilations: Any = (1, 1),
    group: int = 1,
    epsilon: float = 1e-5,
    alpha: float = 0.01,
) -> Any:
    """The batch normalisation as a factor and an addend of each channel."""
    factor = vdiv(scale, vsqrt(vadds(variance, epsilon)))
    addend = vadd(vmul(vsub(b, mean), factor), bias)
    channels = (1, w.shape[0], 1, 1)
    y = convolved(x, w, strides, pads, dilations, group)
    y = vadd(vmul(y, reshape(factor, channels)), reshape(addend, channels))
    return vcmpsel(y, 0.0, "lt", vmuls(y, alpha), y)
