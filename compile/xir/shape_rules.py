"""XIR's shape rules for operators without a window: broadcasting, joining, reshaping, slicing, resizing, reducing, multiplying."""

from __future__ import annotations

import math

import numpy as np

from npuforge.compile.xir.model import XOp
from npuforge.compile.xir.shape_inputs import Inputs, Shape, ShapeError, elements, known_values, needed_values


def _first(inputs: Inputs) -> Shape:
    return inputs["input"][0].tensor.shape


def _shapes(inputs: Inputs) -> list[Shape]:
    return [op.tensor.shape for op in inputs["input"]]


def same(op: XOp, inputs: Inputs) -> Shape:
    """Element-wise operators of one input."""
    return list(_first(inputs))


def broadcast_shapes(a: Shape, b: Shape) -> Shape:
    """NumPy's rule over trailing axes."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    short = [1] * (len(long) - len(short)) + short
    if any(p != q and 1 not in (p, q) for p, q in zip(long, short, strict=True)):
        raise ShapeError(f"the shapes {a} and {b} of its inputs do not broadcast; expected equal trailing axes or 1")
    return [q if p == 1 else p for p, q in zip(long, short, strict=True)]


def broadcast(op: XOp, inputs: Inputs) -> Shape:
    """One or more inputs. XIR calculates on with the values of a `shape` operator: they must be there, and a divisor must not be 0."""
    sources = inputs["input"]
    result = list(sources[0].tensor.shape)
    for other in sources[1:]:
        result = broadcast_shapes(result, other.tensor.shape)
    if len(sources) > 1 and "shape_info" in sources[0].tensor.attrs:
        if op.type == "mul":
            for source in sources:
                known_values(source)
        if op.type == "div":
            divisors, count = needed_values(sources[1]), len(sources[0].tensor.attrs["shape_info"].value)
            if 0 in divisors or len(divisors) not in (1, count):
                raise ShapeError(
                    f"divisors {divisors} of a shape of {count} values; expected 1 or {count} other than 0"
                )
    return result


def eltwise(op: XOp, inputs: Inputs) -> Shape:
    """`eltwise-fix`: two inputs broadcast, more must be alike."""
    shapes = _shapes(inputs)
    if len(shapes) > 2 and any(s != shapes[0] for s in shapes):
        raise ShapeError(f"inputs of the shapes {_listed(shapes)}; expected all alike where there are more than two")
    return broadcast(op, inputs)


def concat(op: XOp, inputs: Inputs) -> Shape:
    """Equal beside the axis, which may be negative."""
    shapes = _shapes(inputs)
    axis = op.get("axis") % len(shapes[0])
    if any(len(s) != len(shapes[0]) for s in shapes) or len({(*s[:axis], *s[axis + 1 :]) for s in shapes}) != 1:
        raise ShapeError(f"inputs of the shapes {_listed(shapes)}; expected them alike beside axis {axis}")
    return [*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]]


def stack(op: XOp, inputs: Inputs) -> Shape:
    """A new axis. XIR stacks shapes alone: every input's values must be known to it."""
    shapes, axis = _shapes(inputs), op.get("axis")
    if any(s != shapes[0] for s in shapes):
        raise ShapeError(f"inputs of the shapes {_listed(shapes)}; expected all alike")
    if axis < 0:
        raise ShapeError(f"axis {axis}; expected 0 to {len(shapes[0])}")
    for source in inputs["input"]:
        needed_values(source)
    return [*shapes[0][:axis], len(shapes), *shapes[0][axis:]]


def _listed(shapes: list[Shape]) -> str:
    return ", ".join(map(str, shapes[:4])) + (f" … {len(shapes)} in all" if len(shapes) > 4 else "")


def reshape(op: XOp, inputs: Inputs) -> Shape:
    """Argument `shape` before the attribute. 0 is the input's size, -1 the elements over the product of the sizes above 0: XIR leaves those that a 0
    stands for out of the product, so that a 0 and a -1 go together only where the 0 stands for 1."""
    x = _first(inputs)
    given = needed_values(inputs["shape"][0]) if inputs.get("shape") else list(op.get("shape", [0]))
    if any(d == 0 and i >= len(x) for i, d in enumerate(given)):
        raise ShapeError(f"shape {given} copies an axis that the input {x} has not")
    rest = elements(x) // math.prod(d for d in given if d > 0)
    wanted = [rest if d < 0 else x[i] if d == 0 else d for i, d in enumerate(given)]
    return _of_same_size(x, wanted, given)


def reshape_fix(op: XOp, inputs: Inputs) -> Shape:
    """The attribute alone, every size spelled out."""
    shape = list(op.get("shape"))
    if any(d < 1 for d in shape):
        raise ShapeError(f"shape {shape}; expected every size spelled out, without -1 and 0")
    return _of_same_size(_first(inputs), shape, shape)


def _of_same_size(x: Shape, wanted: Shape, given: Shape) -> Shape:
    if math.prod(wanted) != elements(x) or elements(x) >= 1 << 31:
        raise ShapeError(f"shape {given} holds {math.prod(wanted)} elements; the input {x} has {elements(x)}")
    return wanted


def squeeze(op: XOp, inputs: Inputs) -> Shape:
    """Without axes all of size 1. XIR takes no negative ones."""
    x, axes = _first(inputs), op.get("axis", [])
    if any(a < 0 for a in axes) or len(set(axes)) != len(axes):
        raise ShapeError(f"axis {axes}; expected different ones from 0 to {len(x) - 1}")
    gone = set(axes) or {i for i, d in enumerate(x) if d == 1}
    return [d for i, d in enumerate(x) if i not in gone]


def transpose(op: XOp, inputs: Inputs) -> Shape:
    """order: a permutation."""
    x, order = _first(inputs), op.get("order")
    if sorted(order) != list(range(len(x))):
        raise ShapeError(f"order {order}; expected a permutation of the {len(x)} axes of {x}")
    return [x[i] for i in order]


def flatten(op: XOp, inputs: Inputs) -> Shape:
    """start_axis to end_axis become one, both inclusive; negative ones count from the end."""
    x = _first(inputs)
    start, end = (a + len(x) if a < 0 else a for a in (op.get("start_axis"), op.get("end_axis")))
    if not 0 <= start <= end < len(x):
        raise ShapeError(
            f"start_axis {op.get('start_axis')} and end_axis {op.get('end_axis')}; expected axes of {x}, the first not behind the last"
        )
    return [*x[:start], math.prod(x[start : end + 1]), *x[end + 1 :]]


def inner_product(op: XOp, inputs: Inputs) -> Shape:
    """The input flat from `axis`; weights of [K, its length]."""
    x, weights = _first(inputs), inputs["weights"][0].tensor.shape
    kept = x[: max(op.get("axis"), 0)]
    length = math.prod(x[len(kept) :])
    if elements(weights) % length or not weights:
        raise ShapeError(
            f"weights {weights}; the input {x} has {length} values from axis {len(kept)}, expected K x {length}"
        )
    return [*kept, elements(weights) // length]


def pad(op: XOp, inputs: Inputs) -> Shape:
    """paddings: before and after each axis."""
    x, paddings = _first(inputs), op.get("paddings")
    if len(paddings) != 2 * len(x):
        raise ShapeError(f"{len(paddings)} paddings; expected {2 * len(x)}, two for each axis of {x}")
    return [d + paddings[2 * i] + paddings[2 * i + 1] for i, d in enumerate(x)]


def strided_slice(op: XOp, inputs: Inputs) -> Shape:
    """NumPy's slices with TensorFlow's masks (bit i: entry i of the three lists, which have one per axis of the input)."""
    x = _first(inputs)
    begin, end, strides = (op.get(name) for name in ("begin", "end", "strides"))
    if not len(begin) == len(end) == len(strides) == len(x):
        raise ShapeError(
            f"begin, end and strides have {len(begin)}, {len(end)} and {len(strides)} values; expected {len(x)}, one for each axis of {x}"
        )
    if 0 in strides:
        raise ShapeError(f"strides {strides}; expected none to be 0")
    from_start, to_end, ellipsis, new, shrink = (
        op.get(f"{name}_mask", 0) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    )
    ellipses = [i for i in range(len(x)) if ellipsis >> i & 1]
    if len(ellipses) > 1:
        raise ShapeError(f"ellipsis_mask {ellipsis}; expected at most one ellipsis")
    result: Shape = []
    axis = 0
    for i in range(len(x)):
        if i in ellipses:
            behind = sum(1 for j in range(i + 1, len(x)) if not new >> j & 1)
            result += x[axis : max(len(x) - behind, axis)]
            axis = max(len(x) - behind, axis)
        elif new >> i & 1:
            result.append(1)
        elif axis >= len(x):
            raise ShapeError(f"entry {i} of begin, end and strides slices axis {axis}; the input {x} has {len(x)}")
        else:
            first, last = (None if from_start >> i & 1 else begin[i]), (None if to_end >> i & 1 else end[i])
            if shrink >> i & 1:
                if strides[i] < 0 or not -x[axis] <= begin[i] < x[axis]:
                    raise ShapeError(
                        f"entry {i} takes index {begin[i]} by stride {strides[i]}; axis {axis} of {x} has {x[axis]}"
                    )
            else:
                result.append(len(range(*slice(first, last, strides[i]).indices(x[axis]))))
            axis += 1
    _slice_of_a_shape(inputs["input"][0])
    return [*result, *x[axis:]] or [1]


def _slice_of_a_shape(source: XOp) -> None:
    info = source.tensor.attrs.get("shape_info")
    if info is not None and len(info.value) != elements(source.tensor.shape):
        raise ShapeError(
            f"shape_info of its input has {len(info.value)} values; expected {elements(source.tensor.shape)}"
        )


_RANKS = {"NEAREST": 4, "BILINEAR": 4, "TRILINEAR": 5}


def resize(op: XOp, inputs: Inputs) -> Shape:
    """By the argument `size` (H, W, D, or a whole shape) or else by `scale` (W, H, D)."""
    x, mode = _first(inputs), op.get("mode")
    rank = _RANKS[mode]
    if len(x) != rank:
        raise ShapeError(f"mode {mode} of an input {x}; expected {rank} axes")
    if inputs.get("size"):
        if "shape_info" in inputs["input"][0].tensor.attrs:
            raise ShapeError("its input is a shape; expected a feature map")
        known_values(inputs["input"][0])  # XIR reads a constant here as if it were a size
        size = needed_values(inputs["size"][0])
        if len(size) == rank and (size[0], size[-1]) == (x[0], x[-1]):
            return size
        if len(size) != rank - 2:
            raise ShapeError(f"size {size} of an input {x}; expected its {rank - 2} sizes between batch and channels")
        return [x[0], *size, x[-1]]
    scale = [float(s) for s in op.get("scale", [])]
    if len(scale) != rank - 2:
        raise ShapeError(f"scale {scale} and no argument 'size'; expected {rank - 2} factors for mode {mode}")
    width, height, *depth = _finite_scale(scale)
    return [
        x[0],
        *(int(np.float32(d) * np.float32(s)) for d, s in zip(x[1:-1], [height, width, *depth], strict=True)),
        x[-1],
    ]


def _finite_scale(scale: list[float]) -> list[float]:
    if not all(0.0 < s < 2.0**31 for s in scale):
        raise ShapeError(f"scale {scale}; expected positive factors")
    return scale


def upsample(op: XOp, inputs: Inputs) -> Shape:
    """`upsample-fix`, `downsample-fix`: by `scale` (W, H)."""
    x = _first(inputs)
    width, height = (np.float32(s) for s in _finite_scale([float(s) for s in op.get("scale")]))
    sizes = [np.float32(x[1]), np.float32(x[2])]
    if op.type == "downsample-fix":
        return [x[0], math.ceil(sizes[0] / height), math.ceil(sizes[1] / width), x[3]]
    return [x[0], int(sizes[0] * height), int(sizes[1] * width), x[3]]


def reduction(op: XOp, inputs: Inputs) -> Shape:
    """Axes may be negative."""
    x, axis = _first(inputs), op.get("axis")
    if (
        "shape_info" in inputs["input"][0].tensor.attrs
        and op.type != "reduction_mean"
        and len(axis) != 1
        and axis[:1] != [0]
    ):
        raise ShapeError(f"axis {axis} of a shape; expected [0]")
    axes = {a % len(x) for a in axis}
    kept = [1 if i in axes else d for i, d in enumerate(x)]
    return kept if op.get("keep_dims") else [d for i, d in enumerate(x) if i not in axes]


def argmax(op: XOp, inputs: Inputs) -> Shape:
    """The axis stays, of size 1."""
    x = list(_first(inputs))
    x[op.get("axis")] = 1
    return x


def matmul(op: XOp, inputs: Inputs) -> Shape:
    """Two inputs, batches broadcast; bias one value per column."""
    if len(inputs["input"]) != 2:
        raise ShapeError(f"argument 'input' has {len(inputs['input'])} producers; expected 2, the factors")
    given = _shapes(inputs)
    a, b = (list(s) for s in given)
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"factors {a} and {b}; expected 2 axes or more each")
    if op.get("transpose_a"):
        a[-2:] = a[:-3:-1]
    if op.get("transpose_b"):
        b[-2:] = b[:-3:-1]
    if a[-1] != b[-2]:
        raise ShapeError(
            f"factors {given[0]} and {given[1]}: {a[-1]} columns by {b[-2]} rows; expected the same number"
        )
    for bias in inputs.get("bias", ()):
        if bias.tensor.shape != [b[-1]]:
            raise ShapeError(f"bias {bias.tensor.shape}; expected {[b[-1]]}, one value per column")
    return [*broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]]


def space_to_depth(op: XOp, inputs: Inputs) -> Shape:
    """`reorg`, `pixel-shuffle`, `gstiling`, `tile-fix`: blocks of factor x factor pixels against channels."""
    x, name = _first(inputs), "stride" if "stride" in op.attrs else "scale"
    factor = op.get(name)
    to_pixels = op.get("upscale" if op.type.startswith("pixel-shuffle") else "reverse")
    if factor < 1:
        raise ShapeError(f"{name} {factor}; expected a positive one")
    parts = [x[3]] if to_pixels else x[1:3]
    block = factor * factor if to_pixels else factor
    if any(d % block for d in parts):
        raise ShapeError(
            f"{name} {factor} of an input {x}; expected {'channels' if to_pixels else 'height and width'} to be multiples of {block}"
        )
    if to_pixels:
        return [x[0], x[1] * factor, x[2] * factor, x[3] // block]
    return [x[0], x[1] // factor, x[2] // factor, x[3] * factor * factor]


def per_channel(op: XOp, inputs: Inputs) -> Shape:
    """`batchnorm`, `scale`: every further argument has one value for each place along `axis`, which `batchnorm` counts from the front alone."""
    x, axis = _first(inputs), op.get("axis", -1)
    if op.type == "batchnorm" and axis < 0:
        raise ShapeError(f"axis {axis}; expected 0 to {len(x) - 1}")
    for arg, producers in inputs.items():
        for producer in producers if arg != "input" else ():
            if producer.tensor.shape != [x[axis]]:
                raise ShapeError(
                    f"argument {arg!r} has the shape {producer.tensor.shape}; axis {axis} of {x} needs {[x[axis]]}"
                )
    return list(x)


def prelu(op: XOp, inputs: Inputs) -> Shape:
    """One slope, or one per channel."""
    x, weight = _first(inputs), inputs["weight"][0].tensor.shape
    if weight not in ([1], x[-1:]):
        raise ShapeError(f"argument 'weight' has the shape {weight}; expected [1] or {x[-1:]}")
    return list(x)


def threshold(op: XOp, inputs: Inputs) -> Shape:
    """Thresholds of 24 bits along one axis."""
    limits = inputs["threshold"][0].tensor
    if limits.dtype != "XINT24":
        raise ShapeError(f"argument 'threshold' is {limits.dtype}; expected XINT24")
    return list(_first(inputs))


def shape_of(op: XOp, inputs: Inputs) -> Shape:
    """One value per axis."""
    return [len(_first(inputs))]


def given(op: XOp, inputs: Inputs) -> Shape:
    """Sources and custom operators: the attribute."""
    return list(op.get("shape"))


def priorbox(op: XOp, inputs: Inputs) -> Shape:
    """Caffe's: [1, 2, 4 values of every prior of every pixel]."""
    x = _first(inputs)
    ratios = [1.0]
    for ratio in op.get("aspect_ratio", []):
        if not any(abs(ratio - known) < 1e-6 for known in ratios):
            ratios += [ratio, *([1.0 / ratio if ratio else math.inf] if op.get("flip") else [])]
    priors = len(ratios) * len(op.get("min_sizes")) + len(op.get("max_sizes", []))
    return [1, 2, 4 * x[1] * x[2] * priors]


def correlation(op: XOp, inputs: Inputs) -> Shape:
    """Stereo and flow operators: a fourth axis of displacements."""
    if not inputs.get("input"):
        raise ShapeError("argument 'input' has 0 producers; expected 1 or more")
    x = _first(inputs)
    if op.type.startswith("cost_volume"):
        return [*x[:3], op.get("maxdisp") // 4, 2 * x[3]]
    side = op.get("pad_size")
    return [*x[:3], side + 1 if "1d" in op.type else (2 * side + 1) ** 2, x[3]]
