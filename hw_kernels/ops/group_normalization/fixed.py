"""GroupNormalization in integers, as kernel.hpp has it, one group: values and bias with 8 fraction bits, scale with 12, epsilon with 16;
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

MAX_VALUES = 32768


def fixed_group_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: int) -> np.ndarray:
    """int16 [channels, pixels] to the same."""
    values = normalised([int(v) for v in x.ravel()], epsilon)
    pixels = x.shape[1]
    rows = [scaled(v, int(scale[i // pixels]), int(bias[i // pixels])) for i, v in enumerate(values)]
    return np.array(rows, np.int16).reshape(x.shape)


def _case(random: np.random.Generator) -> KernelCase:
    channels, pixels = (int(v) for v in random.choice([(1, 1), (3, 7), (16, 64), (5, 1), (32, 128)]))
    x = (random.integers(-32768, 32768, (channels, pixels)) // int(random.choice([1, 100]))).astype(np.int16)
    scale, bias = random.integers(-32768, 32768, (2, channels)).astype(np.int16)
    epsilon = int(random.choice([0, 1, 65536]))
    expected = fixed_group_normalization(x, scale, bias, epsilon)
    return [x, scale, bias, channels, pixels, epsilon, np.zeros((channels, pixels), np.int16)], [expected]


KERNEL = HlsKernel(
    f"group_normalization<{MAX_VALUES}>",
    ("const int16_t*", "const int16_t*", "const int16_t*", "int32_t", "int32_t", "int32_t", "int16_t*"),
    _case,
)


# ---- int8 and bf16
def _on_the_npus_data(node: Node, inputs: list[Any], mode: str) -> KernelRun:
    """Of GroupNormalization and InstanceNormalization (as many groups as channels), one call."""
    if not np.size(inputs[0]):
        return nothing_to_do(node, inputs)
    x = store(np.asarray(inputs[0], np.float64), 1, mode)
    images, channels = x.bits.shape[0], x.bits.shape[-1]
    groups = int(node.attrs["num_groups"]) if node.op == "GroupNormalization" else channels
    scale, bias = (np.asarray(v, np.float64).reshape(1, channels) for v in inputs[1:3])
    parameters = Parameters(scale, bias, float(node.attrs.get("epsilon", 1e-5)))
    stored: list[Any] = [x.real, *inputs[1:]]
    y = np.moveaxis(get(node).reference(node, stored)[0], 1, -1)
    out = fitting(scales(y, -1, mode), parameters)
    maps = x.bits.reshape(images, -1, channels)
    found, count = np.empty_like(maps), channels // groups
    sizes = [images, maps.shape[1], channels, groups]
    settings = None if mode == "bf16" else int8_settings(x.quant, out, parameters)
    for group in range(groups):
        here = slice(group * count, (group + 1) * count)
        own = replace(parameters, scale=scale[:, here], bias=bias[:, here])
        for image in range(images):
            values = maps[image, :, here]
            found[image, :, here] = (
                bf16_set(values, own) if settings is None else int8_set(values, here, settings, True)
            )
    if settings is None:
        arguments = [x.lanes, float_bits(scale), float_bits(bias), *sizes, int(float_bits(parameters.epsilon)[0])]
    else:
        edges = [settings.into.records, settings.multipliers, settings.offsets, settings.out.records]
        arguments = [x.lanes, *edges, *sizes, settings.epsilon]
    bits = found.reshape(x.bits.shape)
    expected = padded(bits)
    names = np.arange(images)[:, None, None] * groups + (np.arange(channels) // count)
    names = np.broadcast_to(names, maps.shape).reshape(x.bits.shape)
    bound = np.moveaxis(error_bound(x, names, y, out, parameters), -1, 1)
    return KernelRun([([*arguments, np.zeros_like(expected)], [expected])], stored, [real(bits, out, 1)], [bound])


_SIZES = ("int32_t",) * 5  # images, pixels, channels, groups, epsilon
_BEYOND = (0, -1, 2**30)
KERNEL_INT8 = KernelForm(
    "group_normalization_int8",
    ("const int8_t*", "const int32_t*", "const int16_t*", "const int32_t*", "const int32_t*", *_SIZES, "int8_t*"),
    _on_the_npus_data,
    {5: _BEYOND, 6: (*_BEYOND, 2**15 + 1), 7: (*_BEYOND, 2**15 + 1), 8: (0, -1, 2**20), 9: (-1, 2**30 + 1)},
)
KERNEL_BF16 = KernelForm(
    "group_normalization_bf16",
    ("const uint16_t*", "const uint32_t*", "const uint32_t*", *_SIZES, "uint16_t*"),
    _on_the_npus_data,
    {3: _BEYOND, 4: (*_BEYOND, 2**15 + 1), 5: (*_BEYOND, 2**15 + 1), 6: (0, -1, 2**20), 7: (-1, 0x7F800000)},
)
