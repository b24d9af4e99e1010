"""Networks whose `.xmodel` the vendor's graph runner is asked to run whole (test_whole_files.py): the ways in which values enter, leave and pass between children."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 4, 6, 5)
RNG = np.random.default_rng(2)
MASK = RNG.integers(0, 2, SHAPE).astype(bool)


def node(op: str, inputs: str, output: str, **attrs: int | list[int]) -> onnx.NodeProto:
    """A node named as its (one) output."""
    return helper.make_node(op, inputs.split(), [output], f"n_{output}", **attrs)


def conv(source: str, target: str) -> onnx.NodeProto:
    return node("Conv", f"{source} w", target, kernel_shape=[3, 3], pads=[1] * 4)


@dataclass
class Network:
    """`names`: how the tensors of outputs are called in the file where not as in ONNX; `inputs`: their types; `modes`: "pow2", "fine", "bf16"."""

    nodes: list[onnx.NodeProto]
    outputs: str
    names: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=lambda: {"x": TensorProto.FLOAT})
    modes: tuple[str, ...] = ("pow2", "bf16")
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of inputs that do not have SHAPE

    def model(self) -> onnx.ModelProto:
        constants = {"w": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6, "mask": MASK}
        constants |= {
            "k": RNG.normal(size=SHAPE).astype(np.float32),
            "level": np.float32(0.1),
            "high": np.float32(0.32),
        }
        constants |= {
            "flat": np.array([24, 5]),
            "four": np.arange(4),
            "half": np.array([12, 10]),
            "zero": np.array([0]),
        }
        constants |= {
            "boxes": np.array([1, 30, 4]),
            "classes": np.array([1, 4, 30]),
            "most": np.array([7]),
            "two": np.array(2),
        }
        constants |= {
            "deep": np.array([2, 2, 2, 3, 1, 1, 1, 5]),
            "none": np.zeros((0, 10), np.float32),
            "less": np.array([-1]),
            "no_axes": np.zeros(0, np.int64),
        }
        constants |= {"overlap": np.float32([0.5]), "least": np.float32([0.2])}
        used = {name for n in self.nodes for name in n.input}
        graph = helper.make_graph(
            self.nodes,
            "whole",
            [helper.make_tensor_value_info(n, kind, self.shapes.get(n, SHAPE)) for n, kind in self.inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in self.outputs.split()],
            [numpy_helper.from_array(v, name) for name, v in constants.items() if name in used],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        types = {v.name: v for v in onnx.shape_inference.infer_shapes(_typeless(model)).graph.value_info}
        types |= {v.name: v for v in model.graph.input}
        outputs = [types[name] for name in self.outputs.split()]
        del model.graph.output[:]
        model.graph.output.extend(outputs)
        return model


def _typeless(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same without outputs, so that shape inference says all types."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    return copy


BOOLS = [
    node("Not", "m", "no"),
    node("And", "m mask", "both"),
    node("Or", "mask m", "one"),
    node("Xor", "m no", "odd"),
    node("Equal", "m mask", "same"),
    node("Where", "no k x", "chosen"),
    node("Or", "both odd", "picked"),
    node("Concat", "m picked", "joined", axis=1),
    node("Transpose", "joined", "turned", perm=[0, 2, 3, 1]),
    node("Not", "turned", "not"),
    node("Cast", "x", "truth", to=TensorProto.BOOL),
    node("And", "truth m", "true"),
    node("Cast", "true", "number", to=TensorProto.FLOAT),
    node("Identity", "m", "alias"),
    node("Where", "alias x k", "last"),
]
BOOL_OUTPUTS = "both one same chosen not number last odd"
BOOL_INPUTS = {"x": TensorProto.FLOAT, "m": TensorProto.BOOL}
CAST = [node("Cast", "q", "qf", to=TensorProto.FLOAT), node("Mul", "qf k", "last")]
NETWORKS = {
    "bools without an NPU partition": Network(BOOLS, BOOL_OUTPUTS, {}, BOOL_INPUTS),
    "bools beside the NPU": Network(
        [conv("x", "c"), *BOOLS, node("Where", "m c x", "y"), node("Where", "mask x c", "z")],
        f"{BOOL_OUTPUTS} y z c",
        {"c": "c_float"},
        BOOL_INPUTS,
        ("pow2", "fine", "bf16"),
    ),
    "bools from an earlier child": Network(
        [
            conv("x", "a"),
            node("Greater", "a level", "g"),
            node("Softmax", "a", "s", axis=1),
            conv("s", "b"),
            node("Not", "g", "n"),
            node("Where", "g b k", "y"),
        ],
        "y n a b",
        {"a": "a_float", "b": "b_float"},
    ),
    "a result that a later child reads": Network(
        [conv("x", "a"), node("Softmax", "a", "s", axis=1), conv("s", "b"), node("Add", "b s", "y")],
        "y s a b",
        {"a": "a_float", "b": "b_float", "s": "s_output"},
        modes=("pow2", "fine", "bf16"),
    ),
    "results that its own child and later ones read": Network(
        [
            conv("x", "a"),
            node("Softmax", "a", "s", axis=1),
            node("Softmax", "s", "t", axis=2),
            node("ArgMax", "a", "top", axis=1),
            node("Greater", "a level", "big"),
            node("Softmax", "t", "u", axis=3),
            conv("u", "b"),
            node("Softmax", "b", "e", axis=1),
            conv("e", "d"),
            node("Add", "s e", "f"),
            node("Mul", "d f", "y"),
            node("Add", "top top", "twice"),
            node("Where", "big d e", "z"),
            node("GatherElements", "y top", "g", axis=1),
        ],
        "s t y top twice e z big g a b d",
        {"a": "a_float", "b": "b_float", "d": "d_float", **{n: f"{n}_output" for n in ("s", "e", "top", "big")}},
    ),
    "inputs that are outputs": Network(
        [conv("x", "c"), node("Add", "c x", "y"), node("Where", "m c x", "z"), node("Add", "q q", "r"), *CAST],
        "x y z m q r last c",
        {"c": "c_float", **{n: f"{n}_output" for n in ("x", "m", "q")}},
        BOOL_INPUTS | {"q": TensorProto.INT64},
        ("pow2", "fine", "bf16"),
    ),
    "constants beside an output of the NPU": Network(
        [conv("x", "c"), node("Identity", "k", "o"), node("Identity", "mask", "b")], "o c b", {"c": "c_float"}
    ),
    "constants beside outputs of the CPU": Network(
        [conv("x", "c"), node("Identity", "k", "o"), node("Softmax", "c", "s", axis=1)], "o s c", {"c": "c_float"}
    ),
}


NETWORKS |= {
    "tensors that do not begin with the batch": Network(
        [
            conv("x", "a"),
            node("Softmax", "a", "s", axis=1),
            node("Reshape", "s flat", "f"),
            node("Mul", "f row", "g"),
            node("Reshape", "g half", "h"),
            node("Reshape", "s flat", "r"),
            conv("s", "b"),
            node("Reshape", "b flat", "c"),
            node("Add", "c g", "y"),
            node("ReduceMax", "c", "top", axes=[0], keepdims=0),
            node("ReduceMax", "c", "one", keepdims=0),
            node("Reshape", "s deep", "e"),
            node("Concat", "h none h", "joined", axis=0),
            node("Mul", "c gain", "scaled"),
            node("ReduceMax", "pick", "largest", keepdims=0),
            node("Reshape", "largest no_axes", "same_largest"),
            node("Expand", "gain no_axes", "as_wide"),
            node("Tile", "largest no_axes", "tiled"),
            node("Equal", "four pick", "same"),
            node("Identity", "row", "again"),
        ],
        "f h r y top one same again e joined scaled same_largest as_wide tiled a b",
        {"a": "a_float", "b": "b_float"},
        {"x": TensorProto.FLOAT, "row": TensorProto.FLOAT, "pick": TensorProto.INT64, "gain": TensorProto.FLOAT},
        ("pow2", "fine", "bf16"),
        {"row": (5,), "pick": (4,), "gain": ()},
    ),
    "constants that do not begin with the batch": Network(
        [conv("x", "c"), node("Identity", "four", "o"), node("Identity", "half", "p")], "o c p", {"c": "c_float"}
    ),
    "an input that nothing reads": Network(
        [conv("x", "c"), node("Softmax", "c", "y", axis=1)], "y c", {"c": "c_float"}, BOOL_INPUTS
    ),
    "a constant alone": Network([node("Identity", "four", "o"), node("Neg", "x", "y")], "o y", modes=("pow2",)),
    "rows that the data decide": Network(
        [
            conv("x", "a"),
            node("Softmax", "a", "s", axis=1),
            node("Sub", "s high", "above"),
            node("Relu", "above", "kept"),
            node("NonZero", "kept", "places"),
            node("Transpose", "places", "rows", perm=[1, 0]),
            node("Cast", "places", "columns", to=TensorProto.FLOAT),
            node("GatherND", "kept rows", "inner"),
            node("Sub", "inner inner", "nothing"),
            node("Greater", "inner level", "large"),
            node("Shape", "rows", "size"),
            conv("s", "d"),
            node("GatherND", "d rows", "values"),
            node("ReduceMax", "d", "most_of_d", keepdims=0),
            node("Mul", "columns most_of_d", "scaled"),
            node("Compress", "inner large", "larger"),
            node("ReduceSum", "scaled", "sum", keepdims=1),
            node("Min", "rows less", "minus"),  # rows of -1, which the other child reads
            node("Cast", "minus", "float_minus", to=TensorProto.FLOAT),
            node("Mul", "minus minus", "square"),
            node("Cast", "square", "one", to=TensorProto.FLOAT),
            node("Mul", "one most_of_d", "wide"),
            node("Mul", "float_minus wide", "down"),
            node("Where", "large values inner", "some"),
        ],
        "rows values scaled nothing large size larger sum down some a d",
        {"a": "a_float", "d": "d_float", "rows": "rows_output", "large": "large_output"},
        modes=("pow2", "fine", "bf16"),
    ),
    "boxes that NonMaxSuppression picks": Network(
        [
            conv("x", "a"),
            node("Exp", "a", "sizes"),
            node("Reshape", "sizes boxes", "b"),
            node("Reshape", "a classes", "c"),
            node("Sigmoid", "c", "scores"),
            node("NonMaxSuppression", "b scores most overlap least", "picked", center_point_box=1),
            node("Gather", "picked two", "index", axis=1),
            node("Gather", "b index", "best", axis=1),
            node("Cast", "index", "shown", to=TensorProto.FLOAT),
            node("Sub", "shown shown", "null"),
            node("Sub", "null high", "minus"),
        ],
        "picked best null minus a",
        {"a": "a_float"},
        modes=("pow2", "fine", "bf16"),
    ),
}
