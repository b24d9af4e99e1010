"""Stand-ins for CANN's `tbe` package, with the calls that CANN documents: in numpy (float32 arrays are computed at once), or on Apache TVM.

TVM is the project that TBE was made from: `tvm.compute`, `tvm.placeholder`, `tvm.floordiv` are its own there, compiled for this machine's CPU. Nothing here
is CANN.
"""

from __future__ import annotations

import contextlib
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

COMPARE = {w: getattr(operator, w) for w in ("lt", "le", "gt", "ge", "eq", "ne")}


class Tensor(np.ndarray):
    """An array that is read as TVM's tensors are, x(i, j)."""

    def __call__(self, *place: Any) -> Any:
        return np.asarray(self)[tuple(np.asarray(i) for i in place)]


def as_tensor(value: Any) -> Tensor:
    return np.asarray(value).view(Tensor)


def _numpy_compute(shape: Any, function: Callable[..., Any]) -> Tensor:
    places = np.indices([int(n) for n in shape])
    value = np.asarray(function(*places))
    return as_tensor(np.broadcast_to(value.reshape(value.shape[-len(shape) :]), [int(n) for n in shape]))


def _numpy_reduce_axis(extent: tuple[int, int], name: str) -> np.ndarray:
    """The places along it, on an axis in front of those of any result here."""
    return np.arange(*extent).reshape(-1, *[1] * 8)


def _numpy_sum(terms: Any, axis: list[Any]) -> np.ndarray:
    assert len(axis) == 1 and terms.ndim == axis[0].ndim and len(terms) == len(axis[0])
    return np.asarray(terms).sum(0, keepdims=True)


def _same_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """TBE's pairs take arrays of one shape only."""

    def checked(a: Any, b: Any) -> Tensor:
        assert np.shape(a) == np.shape(b), (np.shape(a), np.shape(b))
        return as_tensor(function(a, b))

    return checked


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: as_tensor(function(x))


def _with_number(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(x: Any, value: Any) -> Tensor:
        assert np.shape(value) == () and value.dtype == x.dtype
        return as_tensor(function(x, value))

    return checked


def _numpy_vcmpsel(a: Any, b: Any, word: str, then: Any, otherwise: Any) -> Tensor:
    assert all(np.shape(v) in ((), np.shape(a)) for v in (b, then, otherwise))
    return as_tensor(np.where(COMPARE[word](np.asarray(a), b), then, otherwise).astype(a.dtype))


def _numpy_broadcast(x: Any, shape: Any) -> Tensor:
    assert np.ndim(x) in (0, len(shape))
    return as_tensor(np.broadcast_to(x, shape).copy())


def numpy_modules(built: list[Any]) -> dict[str, Any]:
    """`tbe` and its modules by name. `built`: what `tbe.build` is given."""
    dsl: Any = types.ModuleType("tbe.dsl")
    single = {
        "vabs": np.abs,
        "vexp": np.exp,
        "vrec": np.reciprocal,
        "vlog": np.log,
        "vrelu": lambda x: np.maximum(x, 0),
    }
    pairs = {
        "vadd": np.add,
        "vsub": np.subtract,
        "vmul": np.multiply,
        "vdiv": np.divide,
        "vmax": np.maximum,
        "vmin": np.minimum,
    }
    numbers = {"vadds": np.add, "vmuls": np.multiply, "vmaxs": np.maximum, "vmins": np.minimum}
    calls: dict[str, Any] = {n: _same_shape(f) for n, f in pairs.items()} | {
        n: _with_number(f) for n, f in numbers.items()
    }
    calls |= {n: _of_one(f) for n, f in single.items()}
    calls |= {
        "vsqrt": lambda x, priority_flag: as_tensor(np.sqrt(x)),
        "vlrelu": lambda x, alpha: as_tensor(np.where(x < 0, x * alpha, x)),
        "vcmpsel": _numpy_vcmpsel,
        "broadcast": _numpy_broadcast,
        "floor": lambda x: as_tensor(np.floor(x).astype(np.int32)),
        "cast_to": lambda x, dtype: as_tensor(x.astype(dtype)),
        "concat": lambda arrays, axis: as_tensor(np.concatenate(arrays, axis)),
        "auto_schedule": lambda result: ("schedule", result),
        "build": lambda *given: built.append(given),
    }
    for word in ("sum", "max", "min"):
        calls[f"reduce_{word}"] = _numpy_reduction(word)
    for name, function in calls.items():
        setattr(dsl, name, function)
    tvm: Any = types.ModuleType("tbe.tvm")
    tvm.const = lambda value, dtype: np.asarray(value, dtype)[()]
    tvm.placeholder = lambda shape, name, dtype: as_tensor(np.full(shape, 0.5, dtype))
    tvm.compute, tvm.reduce_axis, tvm.sum = _numpy_compute, _numpy_reduce_axis, _numpy_sum
    tvm.floordiv, tvm.floormod = np.floor_divide, np.mod
    tvm.target = types.SimpleNamespace(cce=contextlib.nullcontext)
    return _package(dsl, tvm)


def _numpy_reduction(word: str) -> Callable[..., Any]:
    def reduction(x: Any, axis: Any, keepdims: bool) -> Tensor:
        return as_tensor(getattr(np, word)(np.asarray(x), axis=tuple(np.atleast_1d(axis)), keepdims=keepdims))

    return reduction


def tvm_modules(built: list[Any]) -> dict[str, Any]:
    """The same on Apache TVM; the test is skipped where that is not installed."""
    pytest.importorskip("tvm")
    from tvm import te, tirx  # type: ignore[import-not-found]

    dsl: Any = types.ModuleType("tbe.dsl")

    def like(x: Any, function: Callable[..., Any]) -> Any:
        return te.compute(x.shape, function)

    def at(x: Any, place: Any) -> Any:
        return x(*place) if isinstance(x, te.Tensor) else x

    def pair(function: Callable[..., Any]) -> Callable[..., Any]:
        def made(a: Any, b: Any) -> Any:
            assert not isinstance(b, te.Tensor) or [int(n) for n in a.shape] == [int(n) for n in b.shape]
            return like(a, lambda *i: function(a(*i), at(b, i)))

        return made

    def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
        def made(x: Any, axis: Any, keepdims: bool) -> Any:
            sizes = [int(n) for n in x.shape]
            along = {a: te.reduce_axis((0, sizes[a]), name=f"r{a}") for a in axis}
            shape = [1 if a in along else n for a, n in enumerate(sizes)]
            return te.compute(
                shape, lambda *i: function(x(*[along.get(a, k) for a, k in enumerate(i)]), axis=list(along.values()))
            )

        return made

    def broadcast(x: Any, shape: Any) -> Any:
        if not isinstance(x, te.Tensor):
            return te.compute(shape, lambda *i: x)
        own = [int(n) for n in x.shape]
        return te.compute(shape, lambda *i: x(*[0 if n == 1 else k for n, k in zip(own, i, strict=True)]))

    def concat(arrays: Any, axis: int) -> Any:
        sizes = [int(a.shape[axis]) for a in arrays]
        shape = [int(n) for n in arrays[0].shape]
        shape[axis] = sum(sizes)

        def value(*i: Any) -> Any:
            begin, found = sum(sizes) - sizes[-1], arrays[-1](*_moved(i, axis, sum(sizes) - sizes[-1]))
            for array, size in zip(arrays[-2::-1], sizes[-2::-1], strict=True):
                begin -= size
                inside = array(*_moved(i, axis, begin))
                found = tirx.if_then_else(i[axis] < begin + size, inside, found)
            return found

        return te.compute(shape, value)

    def vcmpsel(a: Any, b: Any, word: str, then: Any, otherwise: Any) -> Any:
        compare = COMPARE[word]
        return like(a, lambda *i: tirx.Select(compare(a(*i), at(b, i)), at(then, i), at(otherwise, i)))

    words = ("add", "sub", "mul", "div", "max", "min")
    functions = (operator.add, operator.sub, operator.mul, operator.truediv, te.max, te.min)
    pairs: dict[str, Any] = dict(zip(words, functions, strict=True))
    for name, function in pairs.items():
        setattr(dsl, f"v{name}", pair(function))
        setattr(dsl, f"v{name}s", pair(function))
    dsl.vabs = lambda x: like(x, lambda *i: tirx.abs(x(*i)))
    dsl.vexp = lambda x: like(x, lambda *i: te.exp(x(*i)))
    dsl.vsqrt = lambda x, priority_flag: like(x, lambda *i: te.sqrt(x(*i)))
    dsl.floor = lambda x: like(x, lambda *i: te.floor(x(*i)).astype("int32"))
    dsl.cast_to = lambda x, dtype: like(x, lambda *i: x(*i).astype(dtype))
    dsl.vcmpsel, dsl.broadcast, dsl.concat = vcmpsel, broadcast, concat
    dsl.reduce_sum, dsl.reduce_max, dsl.reduce_min = reduction(te.sum), reduction(te.max), reduction(te.min)
    dsl.auto_schedule = lambda results: results
    dsl.build = lambda *given: built.append(given)
    tvm: Any = types.ModuleType("tbe.tvm")
    tvm.const = lambda value, dtype: tirx.const(value, dtype)
    tvm.placeholder = lambda shape, name, dtype: te.placeholder(shape, name=name, dtype=dtype)
    tvm.compute, tvm.floordiv, tvm.floormod = te.compute, te.floordiv, te.floormod
    tvm.reduce_axis, tvm.sum = te.reduce_axis, te.sum
    tvm.target = types.SimpleNamespace(cce=contextlib.nullcontext)
    return _package(dsl, tvm)


def _moved(place: Any, axis: int, by: int) -> list[Any]:
    return [k - by if a == axis else k for a, k in enumerate(place)]


def run_tvm(tensors: list[Any], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Compiles inputs and results, as `tbe.build` was given them, for this CPU, and runs them."""
    import tvm
    from tvm import te

    function = te.create_prim_func(tensors)
    module = tvm.compile(tvm.IRModule({"main": function}), target="llvm")
    results = [np.zeros([int(n) for n in t.shape], str(t.dtype)) for t in tensors[len(inputs) :]]
    arrays = [tvm.runtime.tensor(a) for a in (*inputs, *results)]
    module["main"](*arrays)
    return [a.numpy() for a in arrays[len(inputs) :]]


def _package(dsl: Any, tvm: Any) -> dict[str, Any]:
    register: Any = types.ModuleType("tbe.common.register")
    register.register_op_compute = lambda name: lambda function: function
    utils: Any = types.ModuleType("tbe.common.utils")
    kinds = ("FLOAT", "INT", "BOOL", "LIST_FLOAT", "LIST_INT")
    names = ["REQUIRED_INPUT", "REQUIRED_OUTPUT", "KERNEL_NAME"]
    names += [f"{use}_ATTR_{kind}" for use in ("OPTION", "REQUIRED") for kind in kinds]
    checks: dict[str, Any] = {name: name for name in names}
    utils.para_check = types.SimpleNamespace(check_op_params=lambda *given: lambda f: f, **checks)
    root: Any = types.ModuleType("tbe")
    root.dsl, root.tvm = dsl, tvm
    modules = {"tbe": root, "tbe.dsl": dsl, "tbe.tvm": tvm, "tbe.common": types.ModuleType("tbe.common")}
    return modules | {"tbe.common.register": register, "tbe.common.utils": utils}


def install(monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any]) -> None:
    """The modules as this process's."""
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
