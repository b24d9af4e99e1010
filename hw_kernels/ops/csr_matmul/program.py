"""CsrMatMul as an array program of the NPU DSL: rows of x are gathered by column, then each row of y adds
those between its two pointers."""

from __future__ import annotations

import math
from typing import Any

from npuforge.hw_kernels.dsl.array import (
    array_kernel,
    broadcast,
    gather,
    index,
    part,
    reduce_sum,
    repeat,
    reshape,
    transpose,
    vadds,
    vcmpsel,
    vmul,
    whole_in_range,
)


@array_kernel
def csr_matmul(x: Any, values: Any, columns: Any, pointers: Any) -> Any:
    """A value whose column is not in range is NaN, and so is the row that it belongs to. One round for each column of x, over rows times values."""
    (inner, width), (count,), rows = x.shape, values.shape, pointers.shape[0] - 1
    named, valid = whole_in_range(columns, inner)
    products = vmul(gather(x, named), reshape(values, (count, 1)))
    products = transpose(vcmpsel(reshape(valid, (count, 1)), 0.0, "eq", math.nan, products), (1, 0))
    position = reshape(index(count), (1, count))
    first, end = (reshape(part(pointers, 0, i, i + rows), (rows, 1)) for i in (0, 1))
    own = vcmpsel(position, first, "ge", vcmpsel(position, end, "lt", broadcast(1.0, (rows, count)), 0.0), 0.0)
    turns = reshape(index(width), (1, width))

    def add_column(y: Any, turn: Any) -> tuple[Any, Any]:
        column = reshape(gather(products, reshape(turn, (1,))), (1, count))
        total = reduce_sum(vcmpsel(own, 1.0, "eq", column, 0.0), 1)
        return vcmpsel(turns, turn, "eq", total, y), vadds(turn, 1.0)

    y, _ = repeat(width, add_column, broadcast(0.0, (rows, width)), broadcast(0.0, (1, 1)))
    return y
