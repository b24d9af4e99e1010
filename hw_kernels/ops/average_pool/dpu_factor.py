"""How a DPU divides by a pooling window: multiplier and shift in place of 1/(kH*kW) (vendor's `pool-fix`, Vitis AI 3.5, cpu_task/ops/pool-fix)."""

from __future__ import annotations

import math

import numpy as np

_OWN_CHOICE = {(3, 3): (7, 6), (5, 5): (10, 8), (6, 6): (7, 8), (7, 7): (21, 10), (14, 14): (21, 12)}


def dpu_factor(kernel_h: int, kernel_w: int) -> tuple[int, int]:
    """(N, M) with N/2^M in place of 1/(kernel_h*kernel_w): the hardware's own choice for five square windows, else the N/2^M with the least
    error for M < log2(128*kH*kW). The reciprocal and the least error so far are float32, as the vendor holds them."""
    if (kernel_h, kernel_w) in _OWN_CHOICE:
        return _OWN_CHOICE[kernel_h, kernel_w]
    area = kernel_h * kernel_w
    wanted, least, found = float(np.float32(1) / np.float32(area)), 1.0, (0, 0)
    for shift in range(math.ceil(math.log2(area * 128))):
        factor = math.floor(2.0**shift / area + 0.5)
        error = abs(factor / 2.0**shift - wanted)
        if error < least:
            least, found = float(np.float32(error)), (factor, shift)
    return found
