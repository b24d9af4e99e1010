"""Builds the functions of an operator's `kernel.hpp` for the tests and calls them with numpy arrays."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hls_support import HLS

from npuforge.hw_kernels.isa.generate import header_text
from npuforge.hw_kernels.operator import UNWRITTEN

Arguments = tuple[str, ...]  # C types in order
CTYPES = {"int32_t": ctypes.c_int32}
COMPILERS = [("g++", ()), ("clang++", ("-fsanitize=undefined", "-fno-sanitize-recover=all", "-fsanitize-trap=all"))]
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wvla", "-fno-exceptions", "-fno-rtti", "-nostdinc++")


def function(name: str, top: str, arguments: Arguments, accepts: bool) -> str:
    """A C function with the kernel's arguments; `accepts`: it gives what the kernel says, 1 or 0."""
    names = [f"a{i}" for i in range(len(arguments))]
    parameters = ", ".join(f"{t} {n}" for t, n in zip(arguments, names, strict=True))
    call = f"npuforge::hls::{top}({', '.join(names)})"
    if accepts:
        return f'extern "C" int32_t {name}({parameters}) {{ return {call} ? 1 : 0; }}\n'
    return f'extern "C" void {name}({parameters}) {{ {call}; }}\n'


@cache
def library(header: Path, functions: str, compiler: str, flags: tuple[str, ...], where: Path) -> Any:
    """`functions` compiled with the header, warnings being errors."""
    where.mkdir(exist_ok=True)
    (where / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    source, output = where / "call.cpp", where / "call.so"
    source.write_text(f'#include "{header}"\n{functions}', encoding="utf-8")
    places = ["-I", str(where), "-I", str(HLS), str(source), "-o", str(output)]
    subprocess.run([compiler, *STRICT, *flags, "-O1", "-shared", "-fPIC", *places], check=True)
    return ctypes.CDLL(str(output))


def passed(kinds: Arguments, arguments: list[Any]) -> list[Any]:
    """The arguments as ctypes; arrays must have the declared element type."""
    found: list[Any] = []
    for kind, value in zip(kinds, arguments, strict=True):
        if kind.endswith("*"):
            assert value.dtype.name == kind.removeprefix("const ").removesuffix("_t*"), (kind, value.dtype)
            assert value.flags["C_CONTIGUOUS"], kind
            found.append(value.ctypes.data_as(ctypes.c_void_p))
        else:
            found.append(CTYPES[kind](value))
    return found


def outputs(kinds: Arguments, arguments: list[Any]) -> list[np.ndarray]:
    """The arrays that the kernel writes."""
    return [v for k, v in zip(kinds, arguments, strict=True) if k.endswith("*") and "const" not in k]


def check_refusals(
    accepts: Any, kinds: Arguments, arguments: list[Any], refused: Mapping[int, tuple[int, ...]]
) -> None:
    """Every value just beyond a bound is refused, and nothing is written."""
    for position, values in refused.items():
        assert kinds[position] == "int32_t"
        for value in values:
            changed = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
            for array in outputs(kinds, changed):
                array[...] = UNWRITTEN
            changed[position] = value
            assert accepts(*passed(kinds, changed)) == 0, (position, value)
            assert all((array == UNWRITTEN).all() for array in outputs(kinds, changed))
