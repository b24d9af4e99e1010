"""LayerNormalization in integers, as kernel.hpp has it: values and bias with 8 fraction bits, scale with 12, epsilon with 16;
int8 and bf16 in NHWC-16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels.fixed_math import normalised, scaled
from npuforge.hw_kernels.kernel_data import nothing_to_do, padded, real, scales, store
from npuforge.hw_kernels.normalise_fixed import (
    Parameters,
    bf16_set,
    error_bound,
    fitting,
    float_bits,
    int8_set,
    int8_settings,
)
from npuforge.hw_kernels.operator import HlsKernel, KernelCase, KernelForm, KernelRun, get

MAX_LENGTH = 4096


def fixed_layer_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: int) -> np.ndarray:
    """int16 [n] to int16 [n]."""
    values = normalised([int(v) for v in x], epsilon)
    return np.array([scaled(v, int(s), int(b)) for v, s, b in zip(values, scale, bias, strict=True)], np.int16)


def _case(random: np.random.Generator) -> KernelCase:
    length = int(random.choice([1, 2, int(random.integers(1, 200)), 4096]))
    x, scale, bias = random.integers(-32768, 32768, (3, length)).astype(np.int16)
    x = (x // int(random.choice([1, 100, 32767]))).astype(np.int16)
    epsilon = int(random.choice([0, 1, 65536]))
    expected = fixed_layer_normalization(x, scale, bias, epsilon)
    return [x, scale, bias, length, epsilon, np.zeros(length, np.int16)], [expected]


KERNEL = HlsKernel(
    f"layer_normalization<{MAX_LENGTH}>",
    ("const int16_t*", "const int16_t*", "const int16_t*", "int32_t", "int32_t", "int16_t*"),
    _case,
)


# ---- int8 and bf16: the features, ONNX's last axis, lie in the lanes
def _on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Of LayerNormalization and RMSNormalization, one call."""
    given = np.asarray(inputs[0], np.float64)
    if not given.size:
        return nothing_to_do(node, inputs)
    centred, shape = node.op == "LayerNormalization", given.shape
    axis = int(node.attrs.get("axis", -1)) % given.ndim
    row_shape = shape[axis:]
    rows, channels = int(np.prod(shape[:axis])), shape[-1]
    pixels = int(np.prod(row_shape)) // channels
    bias = inputs[2] if len(inputs) > 2 and inputs[2] is not None else np.zeros(1)
    scale, bias = (
        np.broadcast_to(np.asarray(v, np.float64), row_shape).reshape(pixels, channels) for v in (inputs[1], bias)
    )
    parameters = Parameters(scale, bias, float(node.attrs.get("epsilon", 1e-5)), centred)
    x = store(given, -1, mode)
    stored: list[Any] = [x.real, *inputs[1:]]
    y = get(node).reference(node, stored)[0]
    out = fitting(scales(y, -1, mode), parameters)
    sets = x.bits.reshape(rows, pixels, channels)
    sizes = [rows, pixels, channels]
    if mode == "bf16":
        found = np.stack([bf16_set(s, parameters) for s in sets])
        arguments = [x.lanes, float_bits(scale), float_bits(bias), *sizes, int(float_bits(parameters.epsilon)[0])]
    else:
        settings = int8_settings(x.quant, out, parameters)
        found = np.stack([int8_set(s, slice(None), settings, centred) for s in sets])
        edges = [settings.into.records, settings.multipliers, settings.offsets, settings.out.records]
        arguments = [x.lanes, *edges, *sizes, settings.epsilon]
    expected = padded(found.reshape(shape))
    names = np.broadcast_to(np.arange(rows)[:, None, None], sets.shape).reshape(shape)
    parameters = replace(parameters, scale=scale.reshape(row_shape), bias=bias.reshape(row_shape))
    bound = error_bound(x, names, y, out, parameters)
    call: KernelCase = ([*arguments, int(centred), np.zeros_like(expected)], [expected])
    return KernelRun([call], stored, [real(found.reshape(shape), out, -1)], [bound])


_SIZES = ("int32_t",) * 5  # rows, pixels, channels, epsilon, centred
_BEYOND = (0, -1, 2**30)
KERNEL_INT8 = KernelForm(
    "layer_normalization_int8",
    ("const int8_t*", "const int32_t*", "const int16_t*", "const int32_t*", "const int32_t*", *_SIZES, "int8_t*"),
    _on_the_npus_data,
    {5: _BEYOND, 6: (*_BEYOND, 2**15 + 1), 7: (*_BEYOND, 2**15 + 1), 8: (-1, 2**30 + 1)},
)
KERNEL_BF16 = KernelForm(
    "layer_normalization_bf16",
    ("const uint16_t*", "const uint32_t*", "const uint32_t*", *_SIZES, "uint16_t*"),
    _on_the_npus_data,
    {3: _BEYOND, 4: (*_BEYOND, 2**15 + 1), 5: (*_BEYOND, 2**15 + 1), 6: (-1, 0x7F800000)},
)
