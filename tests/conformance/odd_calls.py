"""Calls of single C++ operators with damaged attributes, shapes and types: every call gives a result or a typed error, and none crashes.

python tests/conformance/odd_calls.py FIRST COUNT: exits 0 if so. Also run with the sanitizers (board_runtime/README.md).
"""

from __future__ import annotations

import faulthandler
import json
import sys
from typing import Any

import numpy as np

from npuforge.board_runtime import _native
from npuforge.compile.ir.errors import NpuforgeError
from npuforge.hw_kernels import operator
from npuforge.hw_kernels.operator import Case

ODD = (0, -1, 1, 2, 3, 7, 1 << 40, -(1 << 40), (1 << 62) + 1, -(1 << 63))
TYPES = ("float32", "int64", "int32", "bool", "uint8", "int8")
TEXTS = ("", "none", "add", "SAME_UPPER", "linear", "cubic", "reflect", "wrap", "b...i,...->b", "tf_crop_and_resize")


def subjects() -> list[tuple[str, Case]]:
    """Every operator of the build on every case of its folder."""
    known = operator.registry()
    return [(name, case) for name in _native.cpu_operators() if name in known for case in known[name].cases]


class Damage:
    """One damaged call."""

    def __init__(self, seed: int, choices: list[tuple[str, Case]]) -> None:
        self.random = np.random.default_rng(seed)
        self.op, case = choices[int(self.random.integers(len(choices)))]
        self.attrs = json.loads(json.dumps({k: np.asarray(v).tolist() for k, v in case.attrs.items()}))
        self.inputs: list[np.ndarray | None] = [np.ascontiguousarray(x) for x in operator.case_inputs(case, seed)]
        self.outputs = case.outputs
        for _ in range(int(self.random.integers(1, 4))):
            self.pick(self.attribute, self.attribute, self.shape, self.shape, self.dtype, self.values, self.count)()
        self.constant = [i > 0 and x is not None and x.dtype.kind != "f" for i, x in enumerate(self.inputs)]
        if self.pick(0, 0, 0, 1):
            self.constant = [bool(self.random.integers(2)) for _ in self.inputs]

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def attribute(self) -> None:
        """Another value, another length, another kind, or none."""
        if not self.attrs:
            return
        key = self.pick(*self.attrs)
        value = self.attrs[key]
        if isinstance(value, list) and value and self.pick(0, 1, 1):
            value[int(self.random.integers(len(value)))] = self.pick(*ODD)
        elif isinstance(value, list):
            self.attrs[key] = self.pick(value[:-1], value + value[:1], [])
        elif isinstance(value, str):
            self.attrs[key] = self.pick(*TEXTS)
        elif self.pick(0, 0, 1):
            del self.attrs[key]
        else:
            self.attrs[key] = self.pick(*ODD)

    def _some(self) -> int:
        return int(self.random.integers(len(self.inputs)))

    def shape(self) -> None:
        """Other dimensions, also none and empty ones."""
        i = self._some()
        x = self.inputs[i]
        if x is None:
            return
        dims = [int(d) for d in x.shape]
        if dims and self.pick(0, 1, 1):
            dims[int(self.random.integers(len(dims)))] = self.pick(0, 1, 2, 3, 9)
        else:
            dims = self.pick(dims[:-1], [*dims, 2], [1, *dims], [], [0])
        size = int(np.prod(dims, dtype=np.int64))
        if len(dims) <= 9 and size < 1 << 16:
            self.inputs[i] = np.resize(x, size).reshape(dims) if x.size else np.zeros(dims, x.dtype)

    def dtype(self) -> None:
        i = self._some()
        if (x := self.inputs[i]) is not None:
            with np.errstate(invalid="ignore"):
                self.inputs[i] = x.astype(self.pick(*TYPES))

    def values(self) -> None:
        """An odd number in place of one element."""
        x = self.inputs[self._some()]
        if x is None or x.size == 0:
            return
        odd = self.pick(*ODD) if x.dtype.kind == "i" and x.dtype.itemsize == 8 else self.pick(0, 1, 3, 100)
        x.reshape(-1)[int(self.random.integers(x.size))] = (
            self.pick(np.nan, np.inf, -1e30) if x.dtype.kind == "f" else odd
        )

    def count(self) -> None:
        """An input omitted, missing or added; another number of outputs."""
        i = self._some()
        change = self.pick("omit", "drop", "add", "outputs")
        if change == "omit":
            self.inputs[i] = None
        elif change == "drop" and len(self.inputs) > 1:
            self.inputs.pop()
        elif change == "add":
            self.inputs.append(np.arange(3, dtype=np.int64))
        elif change == "outputs":
            self.outputs = int(self.random.integers(1, 4))

    def call(self) -> bool:
        """True if it gave a result, False if a typed error."""
        try:
            _native.run_operator(self.op, json.dumps(self.attrs), "null", self.inputs, self.constant, self.outputs)
        except NpuforgeError:
            return False
        return True

    def __str__(self) -> str:
        shapes = [None if x is None else (x.shape, x.dtype.name) for x in self.inputs]
        return f"{self.op} {self.attrs} {shapes} constant {self.constant} outputs {self.outputs}"


def main(first: int, count: int) -> int:
    """Runs `count` calls; a crash leaves the last one on standard error."""
    faulthandler.enable()
    choices = subjects()
    results = 0
    for seed in range(first, first + count):
        damage = Damage(seed, choices)
        print(seed, damage, file=sys.stderr, flush=True)
        results += damage.call()
    print(f"{count} calls, {results} results, {count - results} typed errors")
    return 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:3])))
