"""NPU program of Resize: RESIZE with a record per output row and column; row records of a band count from the first input row it holds."""

from __future__ import annotations

import numpy as np

from npuforge.hw_kernels.arch import ADDRESS_ALIGNMENT
from npuforge.hw_kernels.dsl.npu import Npu
from npuforge.hw_kernels.dsl.program import Cut, LayerProgram, Packed, Work, tile
from npuforge.hw_kernels.dsl.tile import Dtype, Image, Param, Tile
from npuforge.hw_kernels.isa.codec import RESIZE_BF16_DTYPE, RESIZE_DTYPE

_ALIGNED_RECORDS = ADDRESS_ALIGNMENT // RESIZE_DTYPE.itemsize
assert RESIZE_BF16_DTYPE.itemsize == RESIZE_DTYPE.itemsize


def band_start(bands: list[tuple[int, int]], low: int) -> int:
    """Index of the first record of the band that starts at output row `low`; every band's records are 64-byte aligned."""
    return sum(-(-(high - first) // _ALIGNED_RECORDS) * _ALIGNED_RECORDS for first, high in bands if first < low)


def _records(first: np.ndarray, second: np.ndarray, weight: np.ndarray, origin: int = 0) -> np.ndarray:
    records = np.zeros(len(first), RESIZE_BF16_DTYPE if weight.dtype == np.float32 else RESIZE_DTYPE)
    records["i0"], records["i1"], records["w1"] = first - origin, second - origin, weight
    return records


class ResizeProgram(LayerProgram):
    """Sections `rows` and `cols`."""

    @staticmethod
    def _tables(work: Work) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        from npuforge.hw_kernels.ops.resize.op import float_tables, tables  # op.py imports this file

        if "tables" not in work.cache:
            make = float_tables if work.dtype == Dtype.BF16 else tables
            work.cache["tables"] = make(work.node, *work.in_sizes[0])
        return list(work.cache["tables"])

    def input_rows(self, work: Work, operand: int, low: int, high: int) -> tuple[int, int]:
        first, second, _ = self._tables(work)[0]
        return int(min(first[low:high].min(), second[low:high].min())), int(
            max(first[low:high].max(), second[low:high].max())
        ) + 1

    def pack(self, work: Work) -> Packed:
        rows, cols = self._tables(work)
        last_low, last_high = work.bands[-1]
        dtype = RESIZE_BF16_DTYPE if work.dtype == Dtype.BF16 else RESIZE_DTYPE
        out = np.zeros(band_start(work.bands, last_low) + last_high - last_low, dtype)
        for low, high in work.bands:
            origin, _ = self.input_rows(work, 0, low, high)
            start = band_start(work.bands, low)
            out[start : start + high - low] = _records(rows[0][low:high], rows[1][low:high], rows[2][low:high], origin)
        return Packed({"rows": out, "cols": _records(*cols)})

    def __call__(self, npu: Npu, work: Work, x: list[Tile | Image], y: Tile, p: dict[str, Param], cut: Cut) -> None:
        low, high = self.input_rows(work, 0, y.first_row, y.end_row)
        size = RESIZE_DTYPE.itemsize
        records = p["rows"].part(band_start(work.bands, y.first_row) * size, y.rows * size, "row records")
        emit = npu.resize_bf16 if work.dtype == Dtype.BF16 else npu.resize
        emit(tile(x[0]).band(low, high), y, records, p["cols"])


RESIZE = ResizeProgram()
