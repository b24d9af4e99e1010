"""Saves and loads IR dataclasses (Graph, QGraph, Preprocess …) as one `.npz` file: a JSON tree whose arrays are npz members.

Used for `--dump-steps` and for `quantised.npz` in a build folder. No pickle: a file from elsewhere cannot run code.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.compile.ir import bf16 as bf16_module
from npuforge.compile.ir import graph as graph_module
from npuforge.compile.ir import preprocess as preprocess_module
from npuforge.compile.ir import quantization as quantization_module
from npuforge.compile.ir.errors import FormatError
from npuforge.compile.ir.files import whole_file

_CLASSES: dict[str, type] = {
    name: item
    for module in (graph_module, bf16_module, quantization_module, preprocess_module)
    for name, item in vars(module).items()
    if dataclasses.is_dataclass(item) and isinstance(item, type)
}


def _pack(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _pack(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"__class__": type(value).__name__, "fields": fields}
    if isinstance(value, np.ndarray):
        key = f"a{len(arrays)}"
        arrays[key] = value
        return {"__array__": key}
    if isinstance(value, np.generic):
        return _pack(value.item(), arrays)
    if isinstance(value, dict):
        return {"__dict__": [[_pack(k, arrays), _pack(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"__tuple__": [_pack(v, arrays) for v in value]}
    if isinstance(value, list):
        return [_pack(v, arrays) for v in value]
    if isinstance(value, bytes):
        return {"__bytes__": value.hex()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot save a {type(value).__name__}")


def _unpack(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if "__class__" in value:
        kind = _CLASSES[value["__class__"]]
        return kind(**{k: _unpack(v, arrays) for k, v in value["fields"].items()})
    if "__array__" in value:
        return arrays[value["__array__"]]
    if "__dict__" in value:
        return {_unpack(k, arrays): _unpack(v, arrays) for k, v in value["__dict__"]}
    if "__tuple__" in value:
        return tuple(_unpack(v, arrays) for v in value["__tuple__"])
    if "__bytes__" in value:
        return bytes.fromhex(value["__bytes__"])
    raise KeyError(f"unknown entry {sorted(value)}")


def save(value: Any, path: Path) -> None:
    """Writes any tree of IR dataclasses, containers and arrays to `path` (temporary file, then rename)."""
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(_pack(value, arrays))
    try:
        with whole_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, __json__=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    except OSError as error:  # numpy's names no file
        raise OSError(error.errno, error.strerror, str(path)) from error


def load(path: Path) -> Any:
    """Reads what `save` wrote. Raises FormatError when the file is missing, damaged or from another version."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {k: file[k] for k in file.files}
        tree = json.loads(arrays.pop("__json__").tobytes().decode())
        return _unpack(tree, arrays)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
    ) as error:
        reason = "no .npz file" if "pickle" in str(error) else error
        raise FormatError(f"{path}: not a graph saved by npuforge ({reason}); compile the model again") from error
