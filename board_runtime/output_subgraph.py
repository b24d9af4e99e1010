"""The child of an .xmodel that is no partition of its `.bin`: network outputs of the NPU as float, in ONNX's order of axes. Same interface as `_native.Runner`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import FormatError, NpuforgeError, UsageError
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.model import XModel, XOp, XSubgraph, XTensor

_DTYPES = {"XINT8": "int8", "FLOAT32": "float32"}


def _dequantised(op: XOp, q: np.ndarray) -> np.ndarray:
    scale = np.asarray(op.get("scale"), np.float64)
    shift = np.asarray(op.get("zero_point"), np.float64)
    if op.get("mean") is not None:
        shift = np.asarray(op.get("mean"), np.float64) - 128.0
    result: np.ndarray = ((q - shift) * scale).astype(np.float32)
    return result


_COMPUTE: dict[str, Callable[[XOp, np.ndarray], np.ndarray]] = {
    "fix2float": lambda op, q: (q * 2.0 ** -op.get("fix_point")).astype(np.float32),
    "npuforge::Dequantize": _dequantised,
    "transpose": lambda op, x: x.transpose(op.get("order")),
    "reshape": lambda op, x: x.reshape(op.get("shape")),
    "identity": lambda op, x: x,
}


def _spec(tensor: XTensor) -> dict[str, Any]:
    fix_point = tensor.attrs.get("fix_point")
    spec = {"name": tensor.name, "dims": list(tensor.shape), "dtype": _DTYPES[tensor.dtype]}
    return spec if fix_point is None else spec | {"fix_point": fix_point.value}


class OutputRunner:
    """Jobs are done when `execute_async` returns."""

    def __init__(self, model: XModel, subgraph: XSubgraph) -> None:
        ops = {op.name: op for op in model.ops}
        self._ops = [ops[name] for name in subgraph.ops]
        for op in self._ops:
            if op.type not in _COMPUTE:
                raise FormatError(f"subgraph {subgraph.name!r}: {op.label}: no operator of an outputs subgraph")
        tensors = {op.tensor.name: op.tensor for op in model.ops}
        self._names = {op.name: op.tensor.name for op in model.ops}
        self._inputs, self._outputs = ([_spec(tensors[name]) for name in side] for side in border(model, subgraph))
        self._jobs = itertools.count()
        self._waiting: dict[int, str] = {}  # job -> message, empty for success
        self._messages: dict[int, str] = {}

    def get_input_tensors(self) -> list[dict[str, Any]]:
        """As the native runner's: int8, N, H, W, C."""
        return list(self._inputs)

    def get_output_tensors(self) -> list[dict[str, Any]]:
        """float32, in ONNX's order of axes."""
        return list(self._outputs)

    def execute_async(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], nhwc: bool = False
    ) -> tuple[int, int]:
        """(job id, status). `nhwc`: of the other runners; here the file says it."""
        job, message = next(self._jobs), ""
        try:
            self._check("input", self._inputs, inputs)
            self._check("output", self._outputs, outputs)
            values = {spec["name"]: array for spec, array in zip(self._inputs, inputs, strict=True)}
            for op in self._ops:
                values[op.tensor.name] = _COMPUTE[op.type](op, values[self._names[next(iter(op.inputs()))]])
            for spec, array in zip(self._outputs, outputs, strict=True):
                array[...] = values[spec["name"]]
        except NpuforgeError as error:
            message = str(error)
            self._messages[job] = message
            return job, 1
        self._waiting[job] = message
        return job, 0

    @staticmethod
    def _check(what: str, specs: list[dict[str, Any]], arrays: Sequence[np.ndarray]) -> None:
        if len(arrays) != len(specs):
            raise UsageError(f"{what}s: expected {len(specs)} arrays, found {len(arrays)}")
        for spec, array in zip(specs, arrays, strict=True):
            if list(array.shape) != spec["dims"] or array.dtype != spec["dtype"]:
                raise UsageError(
                    f"{what} {spec['name']!r}: expected {spec['dtype']} {spec['dims']}, found {array.dtype} {list(array.shape)}"
                )

    def wait(self, job: int, timeout: int = -1) -> int:
        """0, or 3 for a job that nobody may wait for."""
        return 3 if self._waiting.pop(job, None) is None else 0

    def message(self, job: int) -> str:
        """Why a job was refused."""
        return self._messages.get(job, "")
