"""Files of one operator each that keep XIR's rules: `GOOD`, one or more per built-in type. Shapes are worked out by hand from the facts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuforge.compile.xir.model import Attr, XModel, XOp, XTensor
from npuforge.compile.xir.validate import CUSTOM, UNDECLARED, operator_table


@dataclass
class Shapes:
    """An operator, its attributes, the shapes of its `input`s and of other arguments' producers. known: integers of a producer (`x0`, `weights`, …)."""

    type: str
    attrs: dict[str, Any]
    inputs: list[list[int]]
    output: list[int]
    others: dict[str, list[int]] = field(default_factory=dict)
    known: dict[str, list[int]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)


def _source(name: str, shape: list[int], case: Shapes) -> XOp:
    dtype = case.dtypes.get(name, "INT32" if name in case.known else "FLOAT32")
    kind, width = dtype.rstrip("0123456789"), int(dtype.lstrip("XINTUFLOA"))
    attrs = {"shape": Attr("int32_vec", shape), "data_type": Attr("string", dtype)}
    if name in case.known:
        attrs["data"] = Attr("bytes", np.array(case.known[name], f"<i{width // 8}").tobytes())
    elif name in case.others:
        attrs["data"] = Attr("bytes", bytes(math.prod(shape) * width // 8))
    return XOp(name, "const" if "data" in attrs else "data", XTensor(name, shape, kind, width), [], attrs)


def attr(op_type: str, name: str, value: Any) -> Attr:
    """With the wire type that the definition asks for."""
    rules = operator_table().get(op_type, CUSTOM)["attrs"] | UNDECLARED.get(op_type, {})
    return Attr(rules[name]["type"], value)


def model_of(case: Shapes) -> XModel:
    """Sources `x0`, `x1`, … and one per other argument, then the operator `o`."""
    names = [f"x{i}" for i in range(len(case.inputs))]
    sources = [_source(n, list(s), case) for n, s in zip(names, case.inputs, strict=True)]
    sources += [_source(arg, list(shape), case) for arg, shape in case.others.items()]
    args = [("input", names)] if names else []
    args += [(arg, [arg]) for arg in case.others]
    op = XOp("o", case.type, XTensor("o", list(case.output), "FLOAT", 32), args)
    op.attrs = {name: attr(case.type, name, value) for name, value in case.attrs.items()}
    return XModel("net", [*sources, op])


X = [1, 4, 6, 8]
SOURCE = {"shape": [2, 3], "data_type": "FLOAT32"}
FLOOR, SAME, VALID, CEIL = ({"pad_mode": mode} for mode in ("FLOOR", "SAME", "VALID", "CEIL"))
LINE = {"kernel": [2], "stride": [2]}
AREA = {"kernel": [3, 2], "stride": [2, 1]}
ROOM = {"kernel": [3, 2, 2], "stride": [2, 1, 1]}
D3 = [1, 4, 6, 5, 8]
FIX = {"fix_point": 3, "bit_width": 8, "round_mode": "DPU_ROUND", "if_signed": True}
SLICE = {"begin": [0, 1, 0, -3], "end": [1, 3, 6, 8], "strides": [1, 1, 4, 2]}
PRIORS = {
    "min_sizes": [1.0],
    "max_sizes": [2.0],
    "aspect_ratio": [2.0],
    "flip": True,
    "clip": True,
    "variance": [0.1],
    "step": [1.0],
    "offset": 0.5,
}


def _with_fix(name: str, attrs: dict[str, Any], *rest: Any) -> list[Shapes]:
    float_attrs = attrs | FLOOR if name.partition("conv")[1] else attrs
    return [Shapes(name, float_attrs, *rest), Shapes(f"{name}-fix", attrs, *rest)]


RELATED = (
    "relu",
    "relu6",
    "elu",
    "celu",
    "gelu",
    "mish",
    "selu",
    "sigmoid",
    "swish",
    "tanh",
    "exp",
    "neg",
    "l2_normalize",
)
PASSING = ("identity", "upload", "download", "placeholder", "hard-tanh", "hard-swish", "hard-sigmoid")
GOOD = [
    *(Shapes(t, SOURCE, [], [2, 3]) for t in ("data", "data-fix", "random_standard_normal")),
    *(Shapes(t, SOURCE | {"data": bytes(24)}, [], [2, 3]) for t in ("const", "const-fix")),
    # the last of the windows that start every second place: (6 - 3) / 2 + 1 = 2 (rounded down), (4 - 2) / 1 + 1 = 3
    *_with_fix("conv2d", AREA, [X], [1, 3, 2, 5], {"weights": [5, 2, 3, 8], "bias": [5]}),
    *_with_fix("conv2d", AREA | {"group": 4}, [X], [1, 3, 2, 12], {"weights": [12, 2, 3, 2]}),
    *_with_fix("depthwise-conv2d", AREA, [X], [1, 3, 2, 16], {"weights": [2, 2, 3, 8], "bias": [16]}),
    # (6 - 1) * 2 + 3 = 13, (4 - 1) * 1 + 2 = 5
    *_with_fix("transposed-conv2d", AREA, [X], [1, 5, 13, 5], {"weights": [5, 2, 3, 8], "bias": [5]}),
    *_with_fix("transposed-depthwise-conv2d", AREA, [X], [1, 5, 13, 8], {"weights": [1, 2, 3, 8]}),
    *_with_fix("conv3d", ROOM, [D3], [1, 3, 2, 4, 5], {"weights": [5, 2, 3, 2, 8], "bias": [5]}),
    *_with_fix("depthwise-conv3d", ROOM, [D3], [1, 3, 2, 4, 8], {"weights": [1, 2, 3, 2, 8]}),
    *_with_fix("transposed-conv3d", ROOM, [D3], [1, 5, 13, 6, 5], {"weights": [5, 2, 3, 2, 8]}),
    *_with_fix("transposed-depthwise-conv3d", ROOM, [D3], [1, 5, 13, 6, 8], {"weights": [1, 2, 3, 2, 8]}),
    Shapes("conv1d", LINE | FLOOR, [[1, 7, 4]], [1, 3, 5], {"weights": [5, 2, 4], "bias": [5]}),
    # conv2d's other modes: CEIL rounds (6 - 3) / 2 + 1 up to 3; SAME is 6 / 2 and 4 / 1; VALID (6 - 2) / 2 and (4 - 1) / 1
    Shapes("conv2d", AREA | CEIL, [X], [1, 3, 3, 5], {"weights": [5, 2, 3, 8]}),
    Shapes("conv2d", AREA | SAME, [X], [1, 4, 3, 5], {"weights": [5, 2, 3, 8]}),
    Shapes("conv2d", AREA | VALID, [X], [1, 3, 2, 5], {"weights": [5, 2, 3, 8]}),
    Shapes("transposed-conv2d", AREA | SAME, [X], [1, 4, 12, 5], {"weights": [5, 2, 3, 8]}),
    Shapes("maxpool1d", LINE | CEIL, [[1, 7, 4]], [1, 4, 4]),
    Shapes("maxpool2d", AREA | FLOOR | {"pad": [1, 1, 0, 0]}, [X], [1, 3, 3, 8]),
    Shapes("avgpool2d", AREA | FLOOR | {"global": True}, [X], [1, 1, 1, 8]),
    Shapes("pool-fix", AREA | {"type": "AVG"}, [X], [1, 3, 2, 8]),
    *(Shapes(t, {}, [X, [6, 1], [8]], X) for t in ("add", "sub", "mul", "div", "min", "max", "depthwise-fix")),
    Shapes("eltwise-fix", {"type": "MUL", "nonlinear": "RELU"}, [X, [1, 4, 1, 8]], X),
    Shapes("eltwise-fix", {}, [X, X, X], X),
    *(Shapes(t, {"axis": -2}, [X, [1, 4, 1, 8]], [1, 4, 7, 8]) for t in ("concat", "concat-fix")),
    Shapes("stack", {"axis": 1}, [[2], [2]], [2, 2], known={"x0": [1, 2], "x1": [3, 4]}),
    Shapes("reshape", {"shape": [2, -1]}, [X], [2, 96]),
    Shapes("reshape", {"shape": [0, 0, 48]}, [X], [1, 4, 48]),
    Shapes("reshape", {}, [X], [6, 32], {"shape": [2]}, {"shape": [6, 32]}),
    Shapes("reshape-fix", {"shape": [2, 96]}, [X], [2, 96]),
    Shapes("squeeze", {}, [[1, 4, 1]], [4]),
    Shapes("squeeze", {"axis": [2]}, [[1, 4, 1]], [1, 4]),
    Shapes("transpose", {"order": [0, 3, 1, 2]}, [X], [1, 8, 4, 6]),
    Shapes("flatten", {"start_axis": 1, "end_axis": -2}, [X], [1, 24, 8]),
    Shapes("inner-product", {"axis": 1}, [X], [1, 10], {"weights": [10, 192], "bias": [10]}),
    *(
        Shapes(t, {"paddings": [0, 0, 1, 2, 3, 4, 0, 0], "mode": "REFLECT"}, [X], [1, 7, 13, 8])
        for t in ("pad", "pad-fix")
    ),
    *(Shapes(t, SLICE, [X], [1, 2, 2, 2]) for t in ("strided_slice", "strided_slice-fix")),
    Shapes("resize", {"mode": "BILINEAR", "scale": [0.5, 2.0]}, [X], [1, 8, 3, 8]),
    Shapes("resize", {"mode": "TRILINEAR", "scale": [0.5, 2.0, 3.0]}, [D3], [1, 8, 3, 15, 8]),
    Shapes("resize", {"mode": "NEAREST"}, [X], [1, 7, 9, 8], {"size": [2]}, {"size": [7, 9]}),
    Shapes("upsample-fix", {"mode": "NEAREST", "scale": [2.0, 3.0]}, [X], [1, 12, 12, 8]),
    Shapes("downsample-fix", {"mode": "NEAREST", "scale": [4.0, 2.0]}, [X], [1, 2, 2, 8]),
    *(
        Shapes(f"reduction_{t}", {"axis": [-1, 1], "keep_dims": keep}, [X], shape)
        for t in ("mean", "product", "sum", "max", "max-fix")
        for keep, shape in ((True, [1, 1, 6, 1]), (False, [1, 6]))
    ),
    *(Shapes(t, {"axis": -1}, [X], [1, 4, 6, 1]) for t in ("argmax", "argmax-fix")),
    Shapes(
        "matmul", {"transpose_a": True, "transpose_b": False}, [[2, 1, 3, 4], [5, 3, 6]], [2, 5, 4, 6], {"bias": [6]}
    ),
    *(Shapes(t, {"scale": 2, "reverse": False}, [X], [1, 2, 3, 32]) for t in ("reorg", "reorg-fix")),
    *(Shapes(t, {"scale": 2, "reverse": True}, [X], [1, 8, 12, 2]) for t in ("reorg", "reorg-fix")),
    Shapes("pixel-shuffle", {"scale": 2, "upscale": True}, [X], [1, 8, 12, 2]),
    Shapes("pixel-shuffle-fix", {"scale": 2, "upscale": False, "reverse": True}, [X], [1, 2, 3, 32]),
    *(Shapes(t, {"stride": 2, "reverse": False}, [X], [1, 2, 3, 32]) for t in ("gstiling", "tile-fix")),
    *(Shapes(t, {"stride": 2, "reverse": True}, [X], [1, 8, 12, 2]) for t in ("gstiling", "tile-fix")),
    Shapes(
        "batchnorm",
        {"axis": 3, "epsilon": 0.1},
        [X],
        X,
        {"gamma": [8], "beta": [8], "moving_mean": [8], "moving_var": [8]},
    ),
    Shapes("scale", {"axis": 2}, [X], X, {"scale": [6], "bias": [6]}),
    Shapes("prelu", {}, [X], X, {"weight": [8]}),
    Shapes("threshold", {}, [X], X, {"threshold": [5]}, dtypes={"threshold": "XINT24"}),
    Shapes("shape", {}, [X], [4]),
    # of 24 pixels: ratios 1, 2 and 1/2 of one size and one largest, 4 values each
    Shapes("priorbox", PRIORS, [X], [1, 2, 24 * 4 * 4]),
    *(Shapes(f"correlation1d_elemwise{f}", SOURCE | {"pad_size": 2}, [X], [1, 4, 6, 3, 8]) for f in ("", "-fix")),
    *(Shapes(f"correlation2d_elemwise{f}", SOURCE | {"pad_size": 2}, [X], [1, 4, 6, 25, 8]) for f in ("", "-fix")),
    *(Shapes(f"cost_volume{f}", SOURCE | {"maxdisp": 12}, [X], [1, 4, 6, 3, 16]) for f in ("", "-fix")),
    *(Shapes(t, {}, [X], X) for t in RELATED),
    *(Shapes(t, {}, [X], X) for t in PASSING),
    Shapes("hard-sigmoid-fix", {}, [X], X),
    Shapes("leaky-relu", {"alpha": 0.5}, [X], X),
    *(Shapes(t, FIX, [X], X) for t in ("fix", "fix2float", "float2fix")),
    Shapes("softmax", {"axis": -1}, [X], X),
    Shapes("hard-softmax", {"axis": 3, "type": "any"}, [X], X),
    Shapes("cast", {"data_type": "int8"}, [X], X),
    Shapes("instancenorm", {"eps": 0.1, "affine": False}, [X], X),
    Shapes("groupnorm", {"eps": 0.1, "affine": False, "num_groups": 2, "num_channels": 8}, [X], X),
]
