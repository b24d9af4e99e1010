"""ONNX protobuf at node level: operator names, attributes to and from Python values, one node run or shape-inferred by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from npuforge.compile.ir.errors import ModelError, UnsupportedError
from npuforge.compile.ir.graph import Node, TensorInfo
from npuforge.hw_kernels.operator import registry

STANDARD = ("", "ai.onnx")


def operator_name(domain: str, op_type: str) -> str:
    """`Conv` for the standard domain, `com.example::CustomGELU` for any other."""
    return op_type if domain in STANDARD else f"{domain}::{op_type}"


def split_operator(op: str) -> tuple[str, str]:
    """(domain, type) of an operator name."""
    domain, found, op_type = op.rpartition("::")
    return (domain, op_type) if found else ("", op)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes as Python values: int, float, str, lists of these, numpy arrays for tensors."""
    result: dict[str, Any] = {}
    for attribute in node.attribute:
        kind = attribute.type
        if kind in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise UnsupportedError(
                f"node '{node.name}' ({node.op_type}) carries a sub-graph in '{attribute.name}'; control flow cannot be compiled: "
                "export the network with the branch resolved (torch.jit.trace, or onnxsim)"
            )
        if kind == onnx.AttributeProto.TENSOR:
            result[attribute.name] = numpy_helper.to_array(attribute.t)
        elif kind == onnx.AttributeProto.STRING:
            result[attribute.name] = attribute.s.decode("utf-8", "replace")
        elif kind == onnx.AttributeProto.STRINGS:
            result[attribute.name] = [s.decode("utf-8", "replace") for s in attribute.strings]
        elif kind == onnx.AttributeProto.INTS:
            result[attribute.name] = [int(i) for i in attribute.ints]
        elif kind == onnx.AttributeProto.FLOATS:
            result[attribute.name] = [float(f) for f in attribute.floats]
        elif kind == onnx.AttributeProto.INT:
            result[attribute.name] = int(attribute.i)
        elif kind == onnx.AttributeProto.FLOAT:
            result[attribute.name] = float(attribute.f)
        else:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op_type}): attribute '{attribute.name}' has the unsupported type "
                f"{onnx.AttributeProto.AttributeType.Name(kind)}; export the network without it"
            )
    return result


# Legal values of the attributes that ONNX keeps as words, by attribute or by (operator, attribute). Its own checker lets any word pass.
_REDUCTIONS = ("none", "add", "mul", "max", "min")
WORDS: dict[str | tuple[str, str], tuple[str, ...]] = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("linear", "bilinear", "nearest", "cubic", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "coordinate_transformation_mode"): (
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
        *("tf_half_pixel_for_nn", "tf_crop_and_resize"),
    ),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("ScatterElements", "reduction"): _REDUCTIONS,
    ("ScatterND", "reduction"): _REDUCTIONS,
}


def refuse_unknown_words(node: Node) -> None:
    """ModelError where a standard operator has an attribute with a word that ONNX does not define."""
    for name, value in node.attrs.items():
        legal = WORDS.get((node.op, name), WORDS.get(name, ()))
        unset = name == "auto_pad" and value == ""  # as ONNX Runtime reads it: NOTSET
        if legal and isinstance(value, str) and value not in legal and not unset:
            raise ModelError(
                f"node '{node.name}' ({node.op}): attribute {name} is {value[:40]!r}, expected one of {', '.join(legal)}; export the network again"
            )


def make_node(op: str, inputs: list[str], outputs: list[str], attrs: Mapping[str, Any], name: str) -> onnx.NodeProto:
    """The ONNX node of an operator in its ONNX form."""
    domain, op_type = split_operator(op)
    node = helper.make_node(op_type, inputs, outputs, name=name, domain=domain)
    for key, value in attrs.items():
        if isinstance(value, list) and not value:
            continue
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        node.attribute.append(helper.make_attribute(key, value))
    return node


def element_type(dtype: str) -> int:
    """ONNX element type of a numpy dtype name."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def value_info(info: TensorInfo) -> onnx.ValueInfoProto:
    """Name, type and shape as ONNX writes them; a dimension of -1 (known only from the data) is left open."""
    return helper.make_tensor_value_info(info.name, element_type(info.dtype), open_dimensions(info.shape))


def open_dimensions(shape: Sequence[int]) -> list[int | None]:
    """Dimensions with -1 as None."""
    return [None if d < 0 else int(d) for d in shape]


# With ceil_mode, only from operator set 22 on does ONNX's inference leave out a window that would start behind the map, as ONNX Runtime and the
# frameworks always did.
_FIRST_SHAPES = dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), 22)


def infer_node(
    node: Node, tensors: Mapping[str, TensorInfo], constants: Mapping[str, np.ndarray], opset: int
) -> list[tuple[tuple[int | None, ...] | None, str]]:
    """(shape, dtype) of each output of a standard node, from ONNX's own inference; None where ONNX cannot tell."""
    attrs = dict(node.attrs)
    if node.op == "ConvTranspose" and str(attrs.get("auto_pad", "")).startswith("SAME"):
        attrs.pop(
            "output_padding", None
        )  # the size is the stride's multiple (ONNX's text, ONNX Runtime); ONNX's inference adds it
    proto = make_node(node.op, node.inputs, node.outputs, attrs, node.name)
    opset = max(opset, _FIRST_SHAPES.get(node.op, 0))
    schema = onnx.defs.get_schema(node.op, opset, "")
    types = {
        t: helper.make_tensor_type_proto(element_type(tensors[t].dtype), open_dimensions(tensors[t].shape))
        for t in node.inputs
        if t
    }
    data = {
        t: numpy_helper.from_array(constants[t], t) for t in node.inputs if t in constants and constants[t].size <= 4096
    }
    found = onnx.shape_inference.infer_node_outputs(
        schema, proto, types, data, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
    )
    result: list[tuple[tuple[int | None, ...] | None, str]] = []
    for name in node.outputs:
        if not name:
            result.append(((), "float32"))
            continue
        if name not in found or not found[name].HasField("tensor_type"):
            result.append((None, "float32"))
            continue
        tensor_type = found[name].tensor_type
        dtype = (
            np.dtype(helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)).name
            if tensor_type.elem_type
            else "float32"
        )
        if not tensor_type.HasField("shape"):
            result.append((None, dtype))
            continue
        dims = tuple(int(d.dim_value) if d.HasField("dim_value") else None for d in tensor_type.shape.dim)
        result.append((dims, dtype))
    return result


# Operators that ONNX's reference implementation has from a later operator set on than 18; what they do did not change.
_FIRST_REFERENCE = {"DequantizeLinear": 19}


# Operators that ONNX's reference implementation (1.22) computes otherwise than its text says and ONNX Runtime does: indices beyond the depth, windows of an
# even size, signs and axes of norms, cubic samples at the border, large values, windows beyond the end, sums of integers.
_OURS = (
    "OneHot",
    "LRN",
    "LpNormalization",
    "GridSample",
    "Softplus",
    "LpPool",
    "MaxPool",
    "ReduceL2",
    "ReduceSumSquare",
)
_RECURRENT = ("RNN", "GRU", "LSTM")  # forward over whole sequences only
MOST_DIMENSIONS = 64  # numpy's limit


def run_node(node: Node, constants: Mapping[str, np.ndarray], opset: int) -> list[np.ndarray]:
    """Outputs of a standard node whose inputs are all constants, computed by ONNX's own reference implementation where it is right, else by our operators' (no
    ONNX Runtime is needed)."""
    if node.op in _RECURRENT and (node.attrs.get("direction", "forward") != "forward" or "".join(node.inputs[4:5])):
        raise ValueError("a recurrent node of constants is computed forward over whole sequences only")
    if node.op == "MaxPool" and any(node.outputs[1:]):
        raise ValueError("the places of a constant's maxima are not computed")
    if node.op in _OURS:
        operator, values = registry()[node.op], [constants[t] for t in node.inputs]
        types = operator.output_types(node, [v.dtype.name for v in values])
        wide = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in values]
        return [np.asarray(y).astype(t) for y, t in zip(operator.reference(node, wide), types, strict=True)]
    inputs = list(dict.fromkeys(t for t in node.inputs if t))
    outputs = [t for t in node.outputs if t]
    proto = make_node(node.op, node.inputs, node.outputs, node.attrs, node.name)
    graph = helper.make_graph(
        [proto],
        "constant",
        [value_info(TensorInfo(t, constants[t].shape, constants[t].dtype.name)) for t in inputs],
        [onnx.ValueInfoProto(name=t) for t in outputs],
    )
    version = max(opset, _FIRST_REFERENCE.get(node.op, 0))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)
    for name in ("axis", "axes", "perm"):
        given = np.atleast_1d(node.attrs.get(name, 0))
        if np.abs(given.astype(np.float64)).max(initial=0.0) > MOST_DIMENSIONS:  # the evaluator would fill the memory
            raise ValueError(f"attribute {name} is {given.tolist()}, no tensor has so many dimensions")
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(model).run(outputs, {t: constants[t] for t in inputs})
    return [np.asarray(value) for value in found]
