"""XIR's shape rules, one row per built-in operator, as the vendor's library applies them on loading (before a file's own tensor wins).

On what a rule refuses the library ends its process. `refusals` names those ops; `shape_problems` also those whose stored tensor differs from the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from npuforge.compile.xir import shape_rules as rules
from npuforge.compile.xir.model import XModel, XOp
from npuforge.compile.xir.shape_inputs import Inputs, Shape, ShapeError
from npuforge.compile.xir.window_shapes import convolution, pool

Rule = Callable[[XOp, Inputs], Shape]
LARGEST = (1 << 31) - 1  # a dimension of XIR is an int32


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_CONVOLUTIONS = tuple(
    f"{kind}conv{axes}{fix}"
    for kind in ("", "depthwise-", "transposed-", "transposed-depthwise-")
    for axes in ("2d", "3d")
    for fix in ("", "-fix")
)
_BLOCKS = _names("reorg reorg-fix pixel-shuffle pixel-shuffle-fix gstiling tile-fix")
_CORRELATIONS = _names(
    "correlation1d_elemwise correlation1d_elemwise-fix correlation2d_elemwise correlation2d_elemwise-fix cost_volume cost_volume-fix"
)
_SAME = _names(
    "relu leaky-relu relu6 elu celu gelu mish selu sigmoid swish tanh hard-sigmoid hard-sigmoid-fix hard-swish hard-tanh fix fix2float float2fix "
    "identity upload download placeholder softmax hard-softmax cast exp neg l2_normalize instancenorm groupnorm"
)
RULES: dict[str, Rule] = {
    **dict.fromkeys(("conv1d", *_CONVOLUTIONS), convolution),
    **dict.fromkeys(_names("maxpool1d maxpool2d avgpool2d pool-fix"), pool),
    **dict.fromkeys(_names("data data-fix const const-fix random_standard_normal"), rules.given),
    **dict.fromkeys(_names("add sub mul div min max depthwise-fix"), rules.broadcast),
    "eltwise-fix": rules.eltwise,
    **dict.fromkeys(_names("concat concat-fix"), rules.concat),
    "stack": rules.stack,
    "reshape": rules.reshape,
    "reshape-fix": rules.reshape_fix,
    "squeeze": rules.squeeze,
    "transpose": rules.transpose,
    "flatten": rules.flatten,
    "inner-product": rules.inner_product,
    **dict.fromkeys(_names("pad pad-fix"), rules.pad),
    **dict.fromkeys(_names("strided_slice strided_slice-fix"), rules.strided_slice),
    "resize": rules.resize,
    **dict.fromkeys(_names("upsample-fix downsample-fix"), rules.upsample),
    **dict.fromkeys(
        _names("reduction_mean reduction_product reduction_sum reduction_max reduction_max-fix"), rules.reduction
    ),
    **dict.fromkeys(_names("argmax argmax-fix"), rules.argmax),
    "matmul": rules.matmul,
    **dict.fromkeys(_BLOCKS, rules.space_to_depth),
    **dict.fromkeys(_names("batchnorm scale"), rules.per_channel),
    "prelu": rules.prelu,
    "threshold": rules.threshold,
    "shape": rules.shape_of,
    "priorbox": rules.priorbox,
    **dict.fromkeys(_CORRELATIONS, rules.correlation),
    **dict.fromkeys(_SAME, rules.same),
}
_FLAT = {"bias": 1}
AXES: dict[str, dict[str, int]] = {  # how many axes the tensors of an argument have
    "conv1d": {"input": 3, "weights": 3} | _FLAT,
    **{name: {"input": 4, "weights": 4} | _FLAT for name in _CONVOLUTIONS if "2d" in name},
    **{name: {"input": 5, "weights": 5} | _FLAT for name in _CONVOLUTIONS if "3d" in name},
    "maxpool1d": {"input": 3},
    **{name: {"input": 4} for name in _names("maxpool2d avgpool2d pool-fix upsample-fix downsample-fix priorbox")},
    **{name: {"input": 4} for name in (*_BLOCKS, *_CORRELATIONS)},
    "inner-product": _FLAT,
    "matmul": _FLAT,
    "scale": {"scale": 1} | _FLAT,
    "batchnorm": {"gamma": 1, "beta": 1, "moving_mean": 1, "moving_var": 1},
    "prelu": {"weight": 1},
    "threshold": {"threshold": 1},
}


def inferred(op: XOp, inputs: Inputs) -> Shape:
    """The output shape. op: one that fits the operator table. ShapeError where the library would end its process."""
    for arg, axes in AXES.get(op.type, {}).items():
        for producer in inputs.get(arg, ()):
            if len(producer.tensor.shape) != axes:
                raise ShapeError(f"argument {arg!r} has the shape {producer.tensor.shape}; expected {axes} axes")
    shape = RULES.get(op.type, rules.given)(op, inputs)
    if any(not 0 <= d <= LARGEST for d in shape):
        raise ShapeError(f"its output would be {shape}; expected sizes of 0 to {LARGEST}")
    return shape


def refusals(model: XModel, beside: Container[str] = ()) -> list[str]:
    """One line per op that the library would refuse for its inputs' shapes or its attributes' values. beside: names of faulty ops; they and those that
    read them are not looked at."""
    return _found(model, beside, contradictions=False)


def shape_problems(model: XModel) -> list[str]:
    """The refusals, and one line per op whose tensor's shape is not what the library infers (it lets the file win)."""
    return _found(model, (), contradictions=True)


def _found(model: XModel, beside: Container[str], contradictions: bool) -> list[str]:
    ops = {op.name: op for op in model.ops}
    found = []
    for op in model.ops:
        if op.name in beside or any(producer in beside for producer in op.inputs()):
            continue
        try:
            expected = inferred(op, {arg: [ops[p] for p in producers] for arg, producers in op.args})
        except ShapeError as error:
            found.append(f"{op.label}: {error}")
            continue
        if contradictions and expected != op.tensor.shape:
            found.append(f"{op.label}: its tensor has shape {op.tensor.shape}; the operator gives {expected}")
    return found
