"""Files of one operator that break one rule of XIR: `FATAL` ends the process of the vendor's library, `STRICT` is against the facts though the library
does not look."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from xir_good_ops import AREA, FLOOR, GOOD, Shapes, X, attr, model_of

from npuforge.compile.xir.model import Attr, XModel


class Fault(NamedTuple):
    """The first good file of a type, changed."""

    name: str
    type: str
    message: str
    change: Callable[[XModel], object] | None = None
    case: Shapes | None = None

    def model(self) -> XModel:
        """The faulty file."""
        made = model_of(self.case or next(case for case in GOOD if case.type == self.type))
        if self.change is not None:
            self.change(made)
        return made


def _set(**attrs: Any) -> Callable[[XModel], object]:
    def change(model: XModel) -> None:
        op = model.ops[-1]
        op.attrs |= {name: attr(op.type, name, value) for name, value in attrs.items()}

    return change


def _without(name: str) -> Callable[[XModel], object]:
    return lambda model: model.ops[-1].attrs.pop(name)


def _shape(source: str, *shape: int) -> Callable[[XModel], object]:
    """Another shape for a source."""

    def change(model: XModel) -> None:
        (op,) = [op for op in model.ops if op.name == source]
        op.tensor.shape, op.attrs["shape"] = list(shape), Attr("int32_vec", list(shape))
        if "data" in op.attrs:
            op.attrs["data"] = Attr("bytes", bytes(math.prod(shape) * op.tensor.bit_width // 8))

    return change


def _inputs(*names: str) -> Callable[[XModel], object]:
    def change(model: XModel) -> None:
        op = model.ops[-1]
        op.args = [("input", list(names)), *op.args[1:]]

    return change


_NO_DATA = Shapes("reshape", {}, [X], [6, 32], {"shape": [2]}, {"shape": [6, 32]})


def _empty_data(model: XModel) -> None:
    model.ops[1].attrs["data"] = Attr("bytes", b"")


def _xint_data(model: XModel) -> None:
    model.ops[1].attrs["data_type"], model.ops[1].tensor.data_type = Attr("string", "XINT32"), "XINT"


def _shape_info(model: XModel) -> None:
    model.ops[0].tensor.attrs["shape_info"] = Attr("int32_vec", [4, 0])


def _custom(shape: list[int]) -> Shapes:
    return Shapes("com.example::Mine", {"shape": shape, "data_type": "FLOAT32"}, [X], [1])


WINDOWS = (
    "conv2d",
    "conv2d-fix",
    "depthwise-conv2d",
    "transposed-conv2d",
    "conv3d",
    "maxpool2d",
    "avgpool2d",
    "maxpool1d",
    "conv1d",
)
FATAL = [
    *(
        Fault(f"{t} pad_mode", t, "pad_mode 'WHAT'; expected one of FLOOR, CEIL, SAME, VALID", _set(pad_mode="WHAT"))
        for t in ("conv1d", "conv2d", "depthwise-conv2d", "transposed-conv2d", "conv3d", "maxpool1d", "maxpool2d")
    ),
    Fault("maxpool2d rank", "maxpool2d", r"'input' has the shape \[4, 6, 8\]; expected 4 axes", _shape("x0", 4, 6, 8)),
    Fault(
        "maxpool1d rank",
        "maxpool1d",
        r"'input' has the shape \[1, 2, 7, 4\]; expected 3 axes",
        _shape("x0", 1, 2, 7, 4),
    ),
    Fault(
        "maxpool2d stride 0", "maxpool2d", r"stride \[0, 0\]; expected every value to be positive", _set(stride=[0, 0])
    ),
    Fault(
        "pool-fix stride 0", "pool-fix", r"stride \[1, 0\]; expected every value to be positive", _set(stride=[1, 0])
    ),
    Fault("conv2d-fix stride 0", "conv2d-fix", r"stride \[0, 1\]; expected every value", _set(stride=[0, 1])),
    Fault("window beyond the input", "pool-fix", r"output would be \[1, 3, -46, 8\]; expected", _set(kernel=[99, 2])),
    Fault("window of 32 bits", "conv2d", "exceed 32 bits", _set(pad=[2**31 - 1, 0, 0, 0])),
    *(
        Fault(
            f"{t} weights rank", t, r"'weights' has the shape \[5, 2, 8\]; expected 4 axes", _shape("weights", 5, 2, 8)
        )
        for t in ("conv2d", "conv2d-fix", "depthwise-conv2d", "depthwise-conv2d-fix")
    ),
    *(
        Fault(
            f"{t} weights channels",
            t,
            r"weights \[5, 2, 3, 7\] of 7 input channels; .* has 8",
            _shape("weights", 5, 2, 3, 7),
        )
        for t in ("conv2d", "conv2d-fix")
    ),
    Fault("conv2d group", "conv2d", "group 3; expected a positive divisor of .* 8 channels", _set(group=3)),
    Fault(
        "conv2d group of weights",
        "conv2d",
        r"the input .* has 8 in 2 groups, expected 4",
        None,
        Shapes("conv2d", AREA | FLOOR | {"group": 2}, [X], [1, 3, 2, 6], {"weights": [6, 2, 3, 8]}),
    ),
    Fault("conv2d group 0", "conv2d", "group 0; expected a positive divisor", _set(group=0)),
    Fault("conv2d-fix group 0", "conv2d-fix", "group 0; expected a positive divisor", _set(group=0)),
    Fault(
        "depthwise-conv2d weights",
        "depthwise-conv2d",
        r"weights \[2, 2, 3, 7\] of 7",
        None,
        Shapes("depthwise-conv2d", AREA | FLOOR, [X], [1, 3, 2, 14], {"weights": [2, 2, 3, 7]}),
    ),
    *(
        Fault(
            f"{t} shapes",
            t,
            r"the shapes \[1, 4, 6, 8\] and \[6, 3\] of its inputs do not broadcast",
            _shape("x1", 6, 3),
        )
        for t in ("add", "sub", "mul", "div", "min", "max", "depthwise-fix")
    ),
    *(Fault(f"{t} of one", t, "'input' has 1 producers; expected 2..n", _inputs("x0")) for t in ("add", "sub", "max")),
    Fault("eltwise-fix shapes", "eltwise-fix", "do not broadcast", _shape("x1", 1, 4, 2, 8)),
    Fault(
        "eltwise-fix of three",
        "eltwise-fix",
        "expected all alike where there are more than two",
        None,
        Shapes("eltwise-fix", {}, [X, X, [1, 1, 6, 8]], X),
    ),
    Fault(
        "concat sizes",
        "concat",
        r"\[1, 4, 6, 8\], \[1, 3, 6, 8\]; expected them alike beside axis 2",
        _shape("x1", 1, 3, 6, 8),
    ),
    Fault("concat-fix sizes", "concat-fix", "expected them alike beside axis 2", _shape("x1", 1, 4, 6, 9)),
    Fault("concat ranks", "concat", "expected them alike beside axis 2", _shape("x1", 1, 4)),
    Fault(
        "stack of maps",
        "stack",
        "values of op 'x0' .* are not known",
        None,
        Shapes("stack", {"axis": 0}, [X, X], [2, *X]),
    ),
    Fault(
        "reshape count",
        "reshape",
        r"shape \[1, 5\] holds 5 elements; the input \[1, 4, 6, 8\] has 192",
        _set(shape=[1, 5]),
    ),
    Fault("reshape 0 and -1", "reshape", r"shape \[1, 0, -1\] holds 768 elements", _set(shape=[1, 0, -1])),
    Fault("reshape by no values", "reshape", "values of op 'shape' .* are not in the file", _empty_data, _NO_DATA),
    Fault("reshape by XINT values", "reshape", "are XINT32; expected INT, UINT or FLOAT", _xint_data, _NO_DATA),
    Fault("reshape-fix -1", "reshape-fix", r"shape \[2, -1\]; expected every size spelled out", _set(shape=[2, -1])),
    Fault("reshape-fix count", "reshape-fix", "holds 95 elements; .* has 192", _set(shape=[1, 95])),
    Fault(
        "flatten axes",
        "flatten",
        "start_axis 3 and end_axis 1; .* the first not behind the last",
        _set(start_axis=3, end_axis=1),
    ),
    Fault("flatten end", "flatten", "end_axis 4; expected axes of", _set(end_axis=4)),
    Fault("inner-product", "inner-product", r"192 values from axis 1, expected K x 192", _shape("weights", 10, 191)),
    *(Fault(f"{t} paddings", t, "3 paddings; expected 8", _set(paddings=[0, 0, 0])) for t in ("pad", "pad-fix")),
    Fault("pad below nothing", "pad", r"output would be \[1, -6, 13, 8\]", _set(paddings=[0, 0, -5, -5, 3, 4, 0, 0])),
    Fault(
        "strided_slice stride 0",
        "strided_slice",
        r"strides \[1, 0, 1, 1\]; expected none to be 0",
        _set(strides=[1, 0, 1, 1]),
    ),
    Fault("strided_slice-fix stride 0", "strided_slice-fix", "expected none to be 0", _set(strides=[0, 1, 1, 1])),
    Fault("resize by nothing", "resize", r"scale \[\] and no argument 'size'; expected 2 factors", _without("scale")),
    Fault("resize mode", "resize", "mode 'CUBIC'; expected one of NEAREST, BILINEAR, TRILINEAR", _set(mode="CUBIC")),
    Fault("resize mode and scale", "resize", "expected 5 axes", _set(mode="TRILINEAR")),
    Fault("resize scale 0", "resize", r"scale \[0.0, 2.0\]; expected positive factors", _set(scale=[0.0, 2.0])),
    Fault("resize rank", "resize", "of an input .*; expected 4 axes", _shape("x0", 1, 4, 6, 5, 8)),
    Fault("upsample-fix rank", "upsample-fix", "expected 4 axes", _shape("x0", 4, 6, 8)),
    Fault("upsample-fix scale", "upsample-fix", "expected positive factors", _set(scale=[-2.0, 2.0])),
    Fault("matmul of one", "matmul", "'input' has 1 producers; expected 2, the factors", _inputs("x0")),
    Fault("matmul of three", "matmul", "'input' has 3 producers; expected 2, the factors", _inputs("x0", "x1", "x1")),
    Fault("matmul rank", "matmul", "expected 2 axes or more each", _shape("x1", 3)),
    Fault("matmul sizes", "matmul", "3 columns by 4 rows; expected the same number", _shape("x1", 5, 4, 6)),
    Fault("matmul batches", "matmul", "do not broadcast", _shape("x0", 2, 2, 3, 4)),
    Fault("matmul bias", "matmul", r"bias \[5\]; expected \[6\]", _shape("bias", 5)),
    *(
        Fault(f"{t} scale 0", t, "scale 0; expected a positive one", _set(scale=0))
        for t in ("reorg", "reorg-fix", "pixel-shuffle")
    ),
    *(Fault(f"{t} stride 0", t, "stride 0; expected a positive one", _set(stride=0)) for t in ("gstiling", "tile-fix")),
    Fault("pixel-shuffle channels", "pixel-shuffle", "expected channels to be multiples of 9", _set(scale=3)),
    Fault(
        "pixel-shuffle-fix sizes", "pixel-shuffle-fix", "expected height and width to be multiples of 3", _set(scale=3)
    ),
    Fault(
        "pixel-shuffle-fix upscale",
        "pixel-shuffle-fix",
        "attribute 'upscale' is missing; expected bool",
        _without("upscale"),
    ),
    Fault("gstiling sizes", "gstiling", "expected height and width to be multiples of 4", _set(stride=4)),
    Fault("batchnorm axis", "batchnorm", "axis -1; expected 0 to 3", _set(axis=-1)),
    Fault("batchnorm sizes", "batchnorm", r"'gamma' has the shape \[7\]; axis 3 .* needs \[8\]", _shape("gamma", 7)),
    Fault("priorbox rank", "priorbox", "expected 4 axes", _shape("x0", 4, 6, 8)),
    Fault("float2fix bits", "float2fix", "bit_width 0; expected a positive one", _set(bit_width=0)),
    Fault(
        "cast bits", "cast", "data_type 'INT99999999999'; expected a type and a width", _set(data_type="INT99999999999")
    ),
    Fault(
        "div by 0",
        "div",
        r"divisors \[2, 0\] of a shape of 2 values",
        _shape_info,
        Shapes("div", {}, [[2], [2]], [2], known={"x1": [2, 0]}),
    ),
    Fault(
        "custom shape",
        "com.example::Mine",
        r"shape \[1, -1\]; expected at least one dimension, each positive",
        None,
        _custom([1, -1]),
    ),
    Fault("custom without shape", "com.example::Mine", r"shape \[\]; expected at least one", None, _custom([])),
]
STRICT = [
    # the library reads on behind the lists: it ends or not by what lies there
    Fault(
        "strided_slice rank",
        "strided_slice",
        "have 1, 2 and 1 values; expected 4",
        _set(begin=[0], end=[1, 2], strides=[1]),
    ),
    Fault("transposed-conv2d weights", "transposed-conv2d", "of 7 input channels", _shape("weights", 5, 2, 3, 7)),
    Fault("conv2d bias", "conv2d", r"bias \[8\]; expected \[5\], one value per output channel", _shape("bias", 8)),
    Fault("pool-fix type", "pool-fix", "type 'MEDIAN'; expected MAX or AVG", _set(type="MEDIAN")),
    Fault("eltwise-fix type", "eltwise-fix", "type 'DIV'; expected ADD or MUL", _set(type="DIV")),
    Fault("upsample-fix mode", "upsample-fix", "mode 'X'; expected NEAREST or BILINEAR", _set(mode="X")),
    Fault("pad mode", "pad", "mode 'WRAP'; expected one of CONSTANT, REFLECT, SYMMETRIC", _set(mode="WRAP")),
    Fault(
        "fix round_mode",
        "fix",
        "round_mode 'UP'; expected one of STD_ROUND, DPU_ROUND, PY3_ROUND",
        _set(round_mode="UP"),
    ),
    Fault("transpose order", "transpose", r"order \[0, 1, 1, 2\]; expected a permutation", _set(order=[0, 1, 1, 2])),
    Fault("transpose length", "transpose", r"order \[0, 1\]; expected a permutation of the 4 axes", _set(order=[0, 1])),
    Fault("reorg sizes", "reorg", "expected height and width to be multiples of 4", _set(scale=4)),
    Fault("stack shapes", "stack", r"inputs of the shapes \[2\], \[3\]; expected all alike", _shape("x1", 3)),
    Fault("squeeze axis", "squeeze", r"axis \[-1\]; expected different ones from 0 to 2", _set(axis=[-1])),
    Fault("scale sizes", "scale", r"'bias' has the shape \[8\]; axis 2 .* needs \[6\]", _shape("bias", 8)),
    Fault("prelu sizes", "prelu", r"'weight' has the shape \[7\]; expected \[1\] or \[8\]", _shape("weight", 7)),
    Fault(
        "threshold axes", "threshold", r"'threshold' has the shape \[5, 1\]; expected 1 axes", _shape("threshold", 5, 1)
    ),
    Fault(
        "threshold type",
        "threshold",
        "'threshold' is FLOAT32; expected XINT24",
        None,
        Shapes("threshold", {}, [X], X, {"threshold": [5]}),
    ),
    Fault("two ellipses", "strided_slice", "ellipsis_mask 3; expected at most one ellipsis", _set(ellipsis_mask=3)),
    Fault(
        "resize size",
        "resize",
        r"size \[1, 2, 3\] .* its 2 sizes",
        None,
        Shapes("resize", {"mode": "NEAREST"}, [X], X, {"size": [3]}, {"size": [1, 2, 3]}),
    ),
]
