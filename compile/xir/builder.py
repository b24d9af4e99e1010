"""Assembling an XModel: ops with unique names, attribute values with their wire types, numpy constants, subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuforge.compile.ir.errors import UnsupportedError
from npuforge.compile.xir.model import Attr, Attrs, XOp, XTensor

ROUND_MODE = "DPU_ROUND"
RUNNER_LIBRARY = "libnpuforge-runner.so"
RUNNER_MODES = ("run", "sim", "csim")  # what the library's create_runner_with_attrs takes
BOOL = "npuforge_bool"  # attribute of a tensor whose bytes are truth values, 0 or 1
SCALAR = "npuforge_scalar"  # of one that has no axes in the network, and one in the file
_KINDS = {"f": "FLOAT", "i": "INT", "u": "UINT", "b": "UINT"}
_RESERVED = (
    "shape",
    "data_type",
    "device",
    "output_index",
    "output_count",
    "input_positions",
    "empty_positions",
    "empty_types",
)


def string(value: str) -> Attr:
    """A string attribute."""
    return Attr("string", value)


def integer(value: int) -> Attr:
    """An int32 attribute."""
    return Attr("int32", int(value))


def integers(values: Sequence[int] | np.ndarray) -> Attr:
    """An int32 list."""
    return Attr("int32_vec", [int(v) for v in values])


def floats(values: Sequence[float] | np.ndarray) -> Attr:
    """A float list, rounded to float32 as the file holds it."""
    return Attr("float_vec", [float(v) for v in np.asarray(values, np.float32).reshape(-1)])


def doubles(values: Sequence[float] | np.ndarray) -> Attr:
    """A double list: scales, which have more bits than a float."""
    return Attr("double_vec", [float(v) for v in np.asarray(values, np.float64).reshape(-1)])


def dtype_of(name: str) -> tuple[str, int]:
    """XIR's data type and width of a numpy type name."""
    dtype = np.dtype(name)
    if dtype.kind not in _KINDS:
        raise UnsupportedError(
            f"tensors of type {name} cannot be stored in an .xmodel; expected floats, integers or bool"
        )
    return _KINDS[dtype.kind], dtype.itemsize * 8


def plain_tensor(name: str, shape: Sequence[int], dtype: str) -> XTensor:
    """A tensor of a numpy type. XIR has neither bool nor scalars: they are UINT8 and one element, with our attributes, by which the plug-in knows what an
    operator reads."""
    kind, width = dtype_of(dtype)
    ours = [BOOL] * (np.dtype(dtype).kind == "b") + [SCALAR] * (not shape)
    return XTensor(name, stored_shape(shape, name), kind, width, {key: Attr("bool", True) for key in ours})


def stored_shape(shape: Sequence[int], name: str) -> list[int]:
    """XIR has no scalars: they become one element. Empty tensors cannot be stored."""
    if any(d <= 0 for d in shape):
        raise UnsupportedError(
            f"tensor {name}: shape {list(shape)}; an .xmodel holds no empty tensors; export the network without it"
        )
    return [int(d) for d in shape] or [1]


def custom_attr(value: Any) -> Attrs:
    """The attribute(s) of a Python value under the key "" (and "_shape", "_dtype" for arrays)."""
    if isinstance(value, (bool, np.bool_)):
        return {"": Attr("bool", bool(value))}
    if isinstance(value, (int, np.integer)):
        wide = not -(1 << 31) <= int(value) < 1 << 31
        return {"": Attr("int64" if wide else "int32", int(value))}
    if isinstance(value, (float, np.floating)):
        return {"": Attr("float", float(np.float32(value)))}
    if isinstance(value, str):
        return {"": string(value)}
    if isinstance(value, bytes):
        return {"": Attr("bytes", value)}
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        return {"": Attr("bytes", data.tobytes()), "_shape": integers(value.shape), "_dtype": string(value.dtype.name)}
    if isinstance(value, (list, tuple)):
        if all(isinstance(v, str) for v in value) and value:
            return {"": Attr("string_vec", list(value))}
        if all(isinstance(v, (int, np.integer)) for v in value):
            wide = any(not -(1 << 31) <= int(v) < 1 << 31 for v in value)
            return {"": Attr("int64_vec" if wide else "int32_vec", [int(v) for v in value])}
        if all(isinstance(v, (int, float, np.number)) for v in value):
            return {"": floats(value)}
    raise UnsupportedError(f"an attribute of type {type(value).__name__} cannot be stored in an .xmodel")


class Builder:
    """Collects ops in topological order. Names of ops and of tensors are made unique by a `#` and a number."""

    def __init__(self) -> None:
        self.ops: list[XOp] = []
        self._names: set[str] = set()
        self._tensors: set[str] = set()

    def op(
        self,
        name: str,
        op_type: str,
        tensor: XTensor,
        args: Mapping[str, Sequence[str]],
        attrs: Attrs,
        device: str,
        leaf: list[str],
    ) -> str:
        """One more op, listed in `leaf`; returns its name."""
        name = self._unique(name, self._names)
        tensor.name = self._unique(tensor.name, self._tensors)
        listed = [(arg, list(producers)) for arg, producers in args.items() if producers]
        self.ops.append(XOp(name, op_type, tensor, listed, {**attrs, "device": string(device)}))
        leaf.append(name)
        return name

    def rename_tensor(self, op: XOp, name: str) -> None:
        """Another name for an op's output; the old one is free again."""
        self._tensors.remove(op.tensor.name)
        op.tensor.name = self._unique(name, self._tensors)

    def constant(
        self,
        name: str,
        value: np.ndarray,
        device: str,
        leaf: list[str],
        fixed: bool = False,
        attrs: Attrs | None = None,
    ) -> str:
        """A `const` or (`fixed`) `const-fix` op with its data; `attrs` go to the tensor."""
        tensor = plain_tensor(name, value.shape, value.dtype.name)
        tensor.data_type = f"X{tensor.data_type}" if fixed else tensor.data_type
        tensor.attrs |= attrs or {}
        data = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
        own = {"shape": integers(tensor.shape), "data_type": string(tensor.dtype), "data": Attr("bytes", data)}
        return self.op(name, "const-fix" if fixed else "const", tensor, {}, own, device, leaf)

    def custom(
        self,
        name: str,
        op_type: str,
        tensor: XTensor,
        inputs: Sequence[str],
        values: Mapping[str, Any],
        device: str,
        leaf: list[str],
    ) -> str:
        """An operator that XIR doesn't know: all inputs under `input`, attributes as they are (`onnx_` before reserved names)."""
        attrs: Attrs = {"shape": integers(tensor.shape), "data_type": string(tensor.dtype)}
        for key, value in values.items():
            plain = f"onnx_{key}" if key in _RESERVED or key.startswith("__") else key
            attrs |= {plain + suffix: attr for suffix, attr in custom_attr(value).items()}
        return self.op(name, op_type, tensor, {"input": inputs}, attrs, device, leaf)

    @staticmethod
    def _unique(name: str, taken: set[str]) -> str:
        candidate, number = name or "unnamed", 1
        while candidate in taken:
            number += 1
            candidate = f"{name}#{number}"
        taken.add(candidate)
        return candidate
