"""The child of an .xmodel that is no partition of its `.bin`: network outputs of the NPU as float, in ONNX's order of axes. Same interface as `_native.Runner`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import FormatError, NpuforgeError, UsageError
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.model import XModel, XOp, XSubgraph, XTensor
from npuforge.hw_kernels.bf16 import to_float32
from npuforge.quant.executor import quantise

_DTYPES = {"XINT8": "int8", "BFLOAT16": "uint16", "FLOAT32": "float32"}  # bf16 as its bits


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
    "npuforge::Cast": lambda op, bits: to_float32(bits),
    "transpose": lambda op, x: x.transpose(op.get("order")),
    "reshape": lambda op, x: x.reshape(op.get("shape")),
    "identity": lambda op, x: x,
}


def _spec(tensor: XTensor) -> dict[str, Any]:
    fix_point = tensor.attrs.get("fix_point")
    spec = {"name": tensor.name, "dims": list(tensor.shape), "dtype": _DTYPES[tensor.dtype]}
    return spec if fix_point is None else spec | {"fix_point": fix_point.value}


def _quant(tensor: XTensor) -> TensorQuant | None:
    """What the values of a tensor at the NPU's border mean; None for any other."""
    if tensor.dtype == "BFLOAT16":
        return TensorQuant(np.ones(1), np.zeros(1, np.int32), dtype="bf16")
    attrs = {name: attr.value for name, attr in tensor.attrs.items()}
    if tensor.dtype != "XINT8":
        return None
    if "fix_point" in attrs:
        return TensorQuant(np.asarray([2.0 ** -attrs["fix_point"]]), np.zeros(1, np.int32))
    if "npuforge_scale" not in attrs or "npuforge_zero_point" not in attrs:
        raise FormatError(f"tensor {tensor.name!r}: no scales; compile the network again")
    mean = attrs.get("npuforge_image_mean")
    zero_point = np.asarray(attrs["npuforge_zero_point"], np.int32)
    return TensorQuant(np.asarray(attrs["npuforge_scale"]), zero_point, None if mean is None else np.asarray(mean))


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
        sides = border(model, subgraph)
        self._inputs, self._outputs = ([_spec(tensors[name]) for name in side] for side in sides)
        self._quants = {name: _quant(tensors[name]) for name in sides[0]}
        self._jobs = itertools.count()
        self._waiting: dict[int, str] = {}  # job -> message, empty for success
        self._messages: dict[int, str] = {}

    def get_input_tensors(self) -> list[dict[str, Any]]:
        """As the native runner's: int8 or bf16, N, H, W, C."""
        return list(self._inputs)

    def get_output_tensors(self) -> list[dict[str, Any]]:
        """float32, in ONNX's order of axes."""
        return list(self._outputs)

    def execute_async(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> tuple[int, int]:
        """(job id, status). Inputs may also be float32, which is then converted."""
        job, message = next(self._jobs), ""
        try:
            self._check("input", self._inputs, inputs)
            self._check("output", self._outputs, outputs)
            names = [spec["name"] for spec in self._inputs]
            values = {name: self._stored(name, array) for name, array in zip(names, inputs, strict=True)}
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

    def _stored(self, name: str, array: np.ndarray) -> np.ndarray:
        """An input in the tensor's own type."""
        quant = self._quants[name]
        if quant is None or array.dtype != np.float32:
            return array
        if quant.dtype != "bf16" and np.isnan(array).any():
            raise UsageError(f"tensor {name!r}: contains NaN, which has no int8 value")
        return quantise(np.moveaxis(array, -1, 1), quant)

    def _check(self, what: str, specs: list[dict[str, Any]], arrays: Sequence[np.ndarray]) -> None:
        if len(arrays) != len(specs):
            raise UsageError(f"{what}s: expected {len(specs)} arrays, found {len(arrays)}")
        for spec, array in zip(specs, arrays, strict=True):
            types = [spec["dtype"], *(["float32"] if what == "input" and self._quants[spec["name"]] else [])]
            if list(array.shape) != spec["dims"] or array.dtype.name not in types:
                raise UsageError(
                    f"{what} {spec['name']!r}: expected {' or '.join(types)} {spec['dims']}, found {array.dtype} {list(array.shape)}"
                )

    def wait(self, job: int, timeout: int = -1) -> int:
        """0, or 3 for a job that nobody may wait for."""
        return 3 if self._waiting.pop(job, None) is None else 0

    def message(self, job: int) -> str:
        """Why a job was refused."""
        return self._messages.get(job, "")
