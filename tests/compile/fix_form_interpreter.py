"""XIR's float operators as the vendor documents them, in float64 (exact for the numbers of a fix form). Imports no arithmetic of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from npuforge.compile.xir.model import XModel, XOp


def windows(x: np.ndarray, op: XOp, fill: float) -> np.ndarray:
    """[out_h, out_w, kh, kw, c] of an NHWC map."""
    (kw, kh), (sw, sh), (dw, dh) = op.get("kernel"), op.get("stride"), op.get("dilation", [1, 1])
    left, right, top, bottom = op.get("pad", [0, 0, 0, 0])
    padded = np.pad(x[0], ((top, bottom), (left, right), (0, 0)), constant_values=fill)
    out_h, out_w = (padded.shape[0] - (kh - 1) * dh - 1) // sh + 1, (padded.shape[1] - (kw - 1) * dw - 1) // sw + 1
    rows = np.arange(out_h)[:, None] * sh + np.arange(kh) * dh
    columns = np.arange(out_w)[:, None] * sw + np.arange(kw) * dw
    return padded[rows[:, None, :, None], columns[None, :, None, :]]


def transposed(op: XOp, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    (kw, kh), (sw, sh), (left, right, top, bottom) = op.get("kernel"), op.get("stride"), op.get("pad")
    stuffed = np.zeros((1, (x.shape[1] - 1) * sh + 1, (x.shape[2] - 1) * sw + 1, x.shape[3]))
    stuffed[:, ::sh, ::sw] = x
    plain = XOp("", "", op.tensor, [], dict(op.attrs))
    plain.attrs["stride"] = plain.attrs["stride"]._replace(value=[1, 1])
    around = [kw - 1 - left, kw - 1 - right, kh - 1 - top, kh - 1 - bottom]
    plain.attrs["pad"] = plain.attrs["pad"]._replace(value=around)
    return np.einsum("yxhwi,ohwi->yxo", windows(stuffed, plain, 0), weights)[None]


def bilinear(x: np.ndarray, scale: int, centers: bool) -> np.ndarray:
    """Both axes by one factor; positions beyond the border take the border."""
    for axis in (1, 2):
        size = x.shape[axis]
        at = (np.arange(size * scale) + 0.5) / scale - 0.5 if centers else np.arange(size * scale) / scale
        at = np.clip(at, 0, size - 1)
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = x.take(low, axis) * (1 - share) + x.take(np.minimum(low + 1, size - 1), axis) * share
    return x


NOT_ONNX = ("shape", "data_type", "device", "activation")  # beginnings of attributes' names


def of_onnx(op: XOp, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """A node for the CPU that XIR has no operator for: ONNX's, or scale and bias per channel."""
    if op.type == "onnx::Affine":
        return inputs[0] * np.reshape(op.get("scale"), (-1, 1, 1)) + np.reshape(op.get("bias"), (-1, 1, 1))
    attrs = {name: op.get(name) for name in op.attrs if not name.startswith(NOT_ONNX)}
    names = [f"x{number}" for number in range(len(inputs))]
    node = helper.make_node(op.type.removeprefix("onnx::"), names, ["y"], **attrs)
    return np.asarray(ReferenceEvaluator(node).run(None, dict(zip(names, inputs, strict=True)))[0])


def activated(op: XOp, x: np.ndarray) -> np.ndarray:
    kind = op.get("activation", "none")
    if kind in ("PRelu", "LeakyRelu"):
        slope = op.get("activation_slope" if kind == "PRelu" else "activation_alpha")
        return np.where(x < 0, x * np.reshape(slope, (-1, 1, 1)), x)
    assert kind in ("none", "Sigmoid", "Silu"), kind
    gate = 1 / (1 + np.exp(-x))
    return {"none": x, "Sigmoid": gate, "Silu": x * gate}[kind]


def execute(model: XModel, image: np.ndarray) -> dict[str, np.ndarray]:
    """Values by op name for an image in N, C, H, W."""
    return execute_ops(model.ops, {"x": image.transpose(0, 2, 3, 1).astype(np.float64)})


def execute_ops(ops: Sequence[XOp], given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values by op name; `given`: of ops that are not computed. `avgpool2d` of 3x3 divides as the compiled pool-fix does, 7/64."""
    values = dict(given)
    for op in ops:
        if op.name in values:
            continue
        args = {k: [values[p] for p in v] for k, v in op.args}
        x = args["input"][0] if "input" in args else np.zeros(0)
        if op.type == "const":
            result = np.frombuffer(op.get("data"), "<f4").reshape(op.get("shape")).astype(np.float64)
        elif op.type in ("fix2float", "download", "identity"):  # values are real numbers here, fixed or not
            result = x
        elif op.type in ("fix", "float2fix"):
            assert (op.get("bit_width"), op.get("round_mode"), op.get("if_signed")) == (8, "DPU_ROUND", True)
            scale = 2.0 ** op.get("fix_point")
            result = np.clip(np.floor(x * scale + 0.5), -128, 127) / scale
        elif op.type == "conv2d":
            result = np.einsum("yxhwi,ohwi->yxo", windows(x, op, 0), args["weights"][0])[None]
            result = result + args["bias"][0] if "bias" in args else result
        elif op.type == "depthwise-conv2d":
            product = np.einsum("yxhwc,qhwc->yxcq", windows(x, op, 0), args["weights"][0])
            result = product.reshape(1, *product.shape[:2], -1) + args["bias"][0]
        elif op.type == "transposed-conv2d":
            result = transposed(op, x, args["weights"][0]) + args["bias"][0]
        elif op.type == "maxpool2d":
            result = windows(x, op, -np.inf).max((2, 3))[None]
        elif op.type == "avgpool2d":
            assert op.get("kernel") == [3, 3] and op.get("count_include_pad")
            result = windows(x, op, 0).sum((2, 3))[None] * 7 / 64
        elif op.type in ("relu", "relu6"):
            result = np.clip(x, 0, 6 if op.type == "relu6" else np.inf)
        elif op.type == "leaky-relu":
            result = np.where(x < 0, x * op.get("alpha"), x)
        elif op.type == "hard-swish":  # as the vendor's quantiser has it (pytorch_nndct, hardswish.py)
            gate = np.floor(np.clip(x + 3, 0, 6) * 2731 / 16384 * 128 + 0.5)
            result = x * np.clip(gate, -128, 127) / 128
        elif op.type == "add":
            result = args["input"][0] + args["input"][1]
        elif op.type == "mul":
            result = args["input"][0] * args["input"][1]
        elif op.type == "concat":
            result = np.concatenate(args["input"], op.get("axis"))
        elif op.type == "resize" and op.get("mode") == "BILINEAR":
            result = bilinear(x, int(op.get("scale")[0]), op.get("half_pixel_centers"))
        elif op.type == "resize":
            w, h = (int(s) for s in op.get("scale"))
            result = x.repeat(h, 1).repeat(w, 2)
        elif op.type == "reshape":
            result = x.reshape(op.get("shape"))
        elif op.type == "transpose":
            result = x.transpose(op.get("order"))
        elif op.type.startswith("onnx::"):
            result = activated(op, of_onnx(op, args["input"]))
        else:
            assert op.type == "sigmoid", op.type
            result = 1 / (1 + np.exp(-x))
        assert list(result.shape) == op.tensor.shape, op.name
        values[op.name] = result
    return values
