"""The child of an .xmodel that is no partition of its `.bin`, the one that network outputs leave by: those of the NPU as float, in ONNX's order of axes; as they are those
that an earlier child gives, inputs, constants. Same interface as `_native.Runner`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuforge.board_runtime.open_rows import shown
from npuforge.board_runtime.xir_ops import power_of_two
from npuforge.compile.ir.errors import FormatError, NpuforgeError, UsageError
from npuforge.compile.ir.quantization import TensorQuant
from npuforge.compile.xir.batch_axis import OPEN_SHAPE
from npuforge.compile.xir.listing import border
from npuforge.compile.xir.model import Attrs, XModel, XOp, XSubgraph, XTensor
from npuforge.compile.xir.shapes import inferred
from npuforge.compile.xir.validate import TENSOR_ATTRS
from npuforge.hw_kernels.bf16 import to_float32
from npuforge.quant.executor import quantise

_INTEGERS = {"INT64": "int64", "INT32": "int32", "INT8": "int8", "UINT8": "uint8"}
_DTYPES = {"XINT8": "int8", "BFLOAT16": "uint16", "FLOAT32": "float32", **_INTEGERS}  # bf16 as its bits
_TYPES = {  # what each operator reads and gives; any other gives what it reads
    "fix2float": ("XINT8", "FLOAT32"),
    "npuforge::Dequantize": ("XINT8", "FLOAT32"),
    "npuforge::Cast": ("BFLOAT16", "FLOAT32"),
}
_DEQUANTIZE = {
    "scale": "double_vec",
    "zero_point": "int32_vec",
    "mean": "double_vec",
}  # attributes, one value for all channels or one for each

_LARGEST_FIX_POINT = 64
_BORDER = {f"npuforge_{name}": TENSOR_ATTRS[f"npuforge_{name}"] for name in ("scale", "zero_point", "image_mean")}


def _dequantised(op: XOp, q: np.ndarray) -> np.ndarray:
    scale = np.asarray(op.get("scale"), np.float64)
    shift = np.asarray(op.get("zero_point"), np.float64)
    if op.get("mean") is not None:
        shift = np.asarray(op.get("mean"), np.float64) - 128.0
    with np.errstate(over="ignore"):  # what float32 does not hold is infinite
        result: np.ndarray = ((q - shift) * scale).astype(np.float32)
    return result


_COMPUTE: dict[str, Callable[[XOp, np.ndarray], np.ndarray]] = {
    "fix2float": lambda op, q: (q * np.float64(power_of_two(-op.get("fix_point")))).astype(np.float32),
    "npuforge::Dequantize": _dequantised,
    "npuforge::Cast": lambda op, bits: to_float32(bits),
    "transpose": lambda op, x: x.transpose(op.get("order")),
    "reshape": lambda op, x: x.reshape(op.tensor.shape),
    "identity": lambda op, x: shown(x) if OPEN_SHAPE in op.attrs else x,
}


def _spec(tensor: XTensor) -> dict[str, Any]:
    fix_point = tensor.attrs.get("fix_point")
    spec = {"name": tensor.name, "dims": list(tensor.shape), "dtype": _DTYPES[tensor.dtype]}
    return spec if fix_point is None else spec | {"fix_point": fix_point.value}


def _checked_ops(model: XModel, subgraph: XSubgraph) -> list[XOp]:
    """The child's ops, each behind what it reads. FormatError where one is none of an outputs subgraph, or does not fit what it reads."""
    inside, known = set(subgraph.ops), {op.name: op for op in model.ops}
    ops = [op for op in model.ops if op.name in inside]
    for op in ops:
        where = f"subgraph {subgraph.name!r}: {op.label}"
        if op.type == "const":
            _constant(where, op)
            continue
        if op.type not in _COMPUTE:
            raise FormatError(f"{where}: no operator of an outputs subgraph")
        sources = [known[name].tensor for name in op.inputs()]
        if len(sources) != 1:
            raise FormatError(f"{where}: reads {len(sources)} tensors; expected 1")
        reads, gives = _TYPES.get(op.type, (sources[0].dtype, sources[0].dtype))
        if (sources[0].dtype, op.tensor.dtype) != (reads, gives) or reads not in _DTYPES:
            raise FormatError(
                f"{where}: makes {op.tensor.dtype} of {sources[0].dtype}; expected {_expected_types(op.type)}"
            )
        shape = inferred(op, {arg: [known[name] for name in names] for arg, names in op.args})
        if op.type.startswith("npuforge::"):
            shape = sources[0].shape
        if op.tensor.shape != shape:
            raise FormatError(f"{where}: its tensor has shape {op.tensor.shape}; the operator gives {shape}")
        if op.type == "fix2float":
            _check_fix_point(where, op.get("fix_point"))
        if op.type == "npuforge::Dequantize":
            _check_scales(where, sources[0], op.attrs, _DEQUANTIZE)
    return ops


def _check_fix_point(where: str, value: int) -> None:
    """The limits of our plug-in: within them every real value is a float32."""
    if abs(value) > _LARGEST_FIX_POINT:
        limit = _LARGEST_FIX_POINT
        raise FormatError(f"{where}: fix_point {value}; expected {-limit} to {limit}; compile the network again")


def _constant(where: str, op: XOp) -> np.ndarray:
    """The values of a `const` op."""
    data, dtype = op.get("data"), _DTYPES.get(op.tensor.dtype)
    if (
        dtype is None
        or not isinstance(data, bytes)
        or len(data) != math.prod(op.tensor.shape) * np.dtype(dtype).itemsize
    ):
        raise FormatError(f"{where}: expected data for {op.tensor.dtype} {op.tensor.shape}; compile the network again")
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(op.tensor.shape)


def _expected_types(op_type: str) -> str:
    return " of ".join(reversed(_TYPES[op_type])) if op_type in _TYPES else f"the same, one of {', '.join(_DTYPES)}"


def _check_scales(where: str, tensor: XTensor, attrs: Attrs, kinds: dict[str, str]) -> None:
    """Scales and zero points (or means in their place) of an int8 tensor's channels, which are its last axis."""
    channels = tensor.shape[-1] if tensor.shape else 1
    *needed, mean = kinds
    for name in (*needed, *([mean] if mean in attrs else [])):
        attr = attrs.get(name)
        if attr is None or attr.kind != kinds[name] or len(attr.value) not in (1, channels):
            raise FormatError(f"{where}: no attribute {name} of one value or {channels}; compile the network again")
    if not all(0.0 < s < np.inf for s in attrs[needed[0]].value):
        raise FormatError(f"{where}: {needed[0]} holds a value that is not positive; compile the network again")


def _quant(tensor: XTensor) -> TensorQuant | None:
    """What the values of a tensor at the NPU's border mean; None for any other."""
    if tensor.dtype == "BFLOAT16":
        return TensorQuant(np.ones(1), np.zeros(1, np.int32), dtype="bf16")
    if tensor.dtype != "XINT8":
        return None
    attrs = {name: attr.value for name, attr in tensor.attrs.items()}
    if "fix_point" in attrs:
        _check_fix_point(f"tensor {tensor.name!r}", attrs["fix_point"])
        return TensorQuant(np.asarray([power_of_two(-attrs["fix_point"])]), np.zeros(1, np.int32))
    _check_scales(f"tensor {tensor.name!r}", tensor, tensor.attrs, _BORDER)
    mean = attrs.get("npuforge_image_mean")
    zero_point = np.asarray(attrs["npuforge_zero_point"], np.int32)
    return TensorQuant(np.asarray(attrs["npuforge_scale"]), zero_point, None if mean is None else np.asarray(mean))


def _whole(name: str, values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """float32 values in an integer type that holds them exactly."""
    limits, real = np.iinfo(dtype), values.astype(np.float64)
    wrong = ~((real >= limits.min) & (real < limits.max + 1.0) & (np.floor(real) == real))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise UsageError(
            f"input {name!r}: element {at} is {real.flat[at]:f}, expected a whole number that {dtype} holds"
        )
    return real.astype(dtype)


class OutputRunner:
    """Jobs are done when `execute_async` returns."""

    def __init__(self, model: XModel, subgraph: XSubgraph) -> None:
        self._ops = _checked_ops(model, subgraph)
        tensors = {op.tensor.name: op.tensor for op in model.ops}
        self._names = {op.name: op.tensor.name for op in model.ops}
        sides = border(model, subgraph)
        for name in (*sides[0], *sides[1]):
            if tensors[name].dtype not in _DTYPES:
                raise FormatError(
                    f"subgraph {subgraph.name!r}: tensor {name!r} is {tensors[name].dtype}; expected one of {', '.join(_DTYPES)}"
                )
        self._inputs, self._outputs = ([_spec(tensors[name]) for name in side] for side in sides)
        self._constants = {op.tensor.name: _constant(op.label, op) for op in self._ops if op.type == "const"}
        self._integers = {name for side in sides for name in side if tensors[name].dtype in _INTEGERS}
        self._quants = {name: _quant(tensors[name]) for name in sides[0]}
        self._jobs = itertools.count()
        self._waiting: dict[int, str] = {}  # job -> message, empty for success
        self._messages: dict[int, str] = {}

    def get_input_tensors(self) -> list[dict[str, Any]]:
        """As the native runner's: int8 or bf16, N, H, W, C; what does not come from the NPU as the file has it."""
        return list(self._inputs)

    def get_output_tensors(self) -> list[dict[str, Any]]:
        """In ONNX's order of axes; what comes from the NPU as float32."""
        return list(self._outputs)

    def execute_async(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> tuple[int, int]:
        """(job id, status). Arrays may also be float32, which is then converted."""
        job, message = next(self._jobs), ""
        try:
            self._check("input", self._inputs, inputs)
            self._check("output", self._outputs, outputs)
            names = [spec["name"] for spec in self._inputs]
            values = {name: self._stored(name, array) for name, array in zip(names, inputs, strict=True)}
            values |= self._constants
            for op in (op for op in self._ops if op.type != "const"):
                values[op.tensor.name] = _COMPUTE[op.type](op, values[self._names[next(iter(op.inputs()))]])
            for spec, array in zip(self._outputs, outputs, strict=True):
                array[...] = self._leaving(spec["name"], values[spec["name"]], array.dtype)
        except NpuforgeError as error:
            message = str(error)
            self._messages[job] = message
            return job, 1
        self._waiting[job] = message
        return job, 0

    def _stored(self, name: str, array: np.ndarray) -> np.ndarray:
        """An input in the tensor's own type."""
        quant = self._quants[name]
        if name in self._integers and array.dtype == np.float32:
            return _whole(name, array, self._type(name))
        if quant is None or array.dtype != np.float32:
            return array
        if quant.dtype != "bf16" and np.isnan(array).any():
            raise UsageError(f"tensor {name!r}: contains NaN, which has no int8 value")
        return quantise(np.moveaxis(array, -1, 1), quant)

    def _leaving(self, name: str, values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
        """An output in the array's type."""
        if name not in self._integers or dtype != np.float32:
            return values
        floats = values.astype(np.float32)
        lost = floats.astype(np.float64).astype(object) != values.astype(object)  # Python's comparison is exact
        if lost.any():
            at = int(np.flatnonzero(lost)[0])
            raise UsageError(
                f"output {name!r}: element {at} is {values.flat[at]}, which float32 does not hold; give a buffer of type {values.dtype}"
            )
        return floats

    def _type(self, name: str) -> np.dtype[Any]:
        return np.dtype(next(spec["dtype"] for spec in (*self._inputs, *self._outputs) if spec["name"] == name))

    def _check(self, what: str, specs: list[dict[str, Any]], arrays: Sequence[np.ndarray]) -> None:
        if len(arrays) != len(specs):
            raise UsageError(f"{what}s: expected {len(specs)} arrays, found {len(arrays)}")
        for spec, array in zip(specs, arrays, strict=True):
            real = spec["name"] in self._integers or (what == "input" and self._quants[spec["name"]] is not None)
            types = [spec["dtype"], *(["float32"] if real else [])]
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
