"""Valid small models and random damage to them, for the importer's fuzz test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F = np.float32
Nodes = list[tuple[Any, ...]]
ONE: dict[str, Any] = {"kernel_shape": [1, 1]}
THREE: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def _model(
    nodes: Nodes, constants: dict[str, np.ndarray], shape: tuple[int, ...] = (1, 4, 8, 8), opset: int = 13
) -> onnx.ModelProto:
    protos = [
        helper.make_node(op, i, o, name=f"n{k}", domain=d[0] if d else "", **a)
        for k, (op, i, o, a, *d) in enumerate(nodes)
    ]
    graph = helper.make_graph(
        protos,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    opsets = [
        helper.make_opsetid("", opset),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("com.example", 1),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def seeds() -> list[onnx.ModelProto]:
    """Small models that together use most of what the importer looks at."""
    rng = np.random.default_rng(0)

    def w(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(F)

    grid = {
        "s": F(0.05),
        "z": np.array(3, np.int8),
        "wq": rng.integers(-128, 128, (4, 4, 1, 1)).astype(np.int8),
        "ws": np.full(4, 0.01, F),
    }
    grid["wz"] = np.zeros(4, np.int8)
    return [
        _model(
            [
                ("Conv", ["x", "w"], ["a"], THREE),
                ("BatchNormalization", ["a", "g", "b", "m", "v"], ["c"], {}),
                ("Sigmoid", ["c"], ["d"], {}),
                ("Mul", ["c", "d"], ["e"], {}),
                ("MaxPool", ["e"], ["f"], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
                ("Resize", ["f", "", "scales"], ["h"], {"mode": "nearest"}),
                ("Concat", ["h", "e"], ["i"], {"axis": 1}),
                ("Conv", ["i", "v2"], ["y"], {**ONE, "auto_pad": "SAME_UPPER"}),
            ],
            {
                "w": w(4, 4, 3, 3),
                "g": w(4),
                "b": w(4),
                "m": w(4),
                "v": np.abs(w(4)) + F(0.1),
                "scales": np.array([1, 1, 2, 2], F),
                "v2": w(3, 8, 1, 1),
            },
        ),
        _model(
            [
                ("Pad", ["x", "pads"], ["a"], {}),
                ("Conv", ["a", "w", "b"], ["c"], {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [1, 1]}),
                ("Clip", ["c", "lo", "hi"], ["d"], {}),
                ("ConvTranspose", ["d", "t"], ["e"], {"strides": [2, 2], "output_padding": [1, 1]}),
                ("GlobalAveragePool", ["e"], ["f"], {}),
                ("Flatten", ["f"], ["g"], {}),
                ("Gemm", ["g", "m", "n"], ["h"], {"transB": 1}),
                ("Softmax", ["h"], ["y"], {"axis": 1}),
            ],
            {
                "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
                "w": w(6, 4, 3, 3),
                "b": w(6),
                "lo": F(0),
                "hi": F(6),
                "t": w(6, 5, 2, 2),
                "m": w(7, 5),
                "n": w(7),
            },
        ),
        _model(
            [
                ("Shape", ["x"], ["s"], {}),
                ("Gather", ["s", "zero"], ["n"], {}),
                ("Unsqueeze", ["n", "axes"], ["n1"], {}),
                ("Concat", ["n1", "rest"], ["t"], {"axis": 0}),
                ("Reshape", ["x", "t"], ["a"], {}),
                ("Transpose", ["a"], ["b"], {"perm": [0, 2, 1, 3, 4]}),
                ("Reshape", ["b", "back"], ["c"], {}),
                ("Split", ["c", "parts"], ["d", "e"], {"axis": 1}),
                ("Slice", ["e", "from", "to", "on", "step"], ["f"], {}),
                ("Conv", ["f", "w"], ["y"], ONE),
            ],
            {
                **{
                    "zero": np.array(0),
                    "axes": np.array([0]),
                    "rest": np.array([2, 2, 8, 8]),
                    "back": np.array([1, 4, 8, 8]),
                },
                **{
                    "parts": np.array([1, 3]),
                    "from": np.array([0, 0]),
                    "to": np.array([99, 99]),
                    "on": np.array([2, 3]),
                    "step": np.array([2, 2]),
                },
                "w": w(2, 3, 1, 1),
            },
        ),
        _model(
            [
                ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
                ("DequantizeLinear", ["q", "s", "z"], ["a"], {}),
                ("DequantizeLinear", ["wq", "ws", "wz"], ["w"], {"axis": 0}),
                ("Conv", ["a", "w"], ["c"], ONE),
                ("QuantizeLinear", ["c", "s", "z"], ["cq"], {}),
                ("DequantizeLinear", ["cq", "s", "z"], ["y"], {}),
            ],
            grid,
        ),
        _model(
            [
                ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
                ("QLinearConv", ["q", "s", "z", "wq", "ws", "wz", "s", "z"], ["c"], ONE),
                ("QLinearLeakyRelu", ["c", "s", "z", "s", "z"], ["d"], {"alpha": 0.1}, "com.microsoft"),
                ("MaxPool", ["d"], ["e"], {"kernel_shape": [2, 2]}),
                ("QLinearConcat", ["s", "z", "e", "s", "z", "e", "s", "z"], ["f"], {"axis": 1}, "com.microsoft"),
                ("DequantizeLinear", ["f", "s", "z"], ["y"], {}),
            ],
            grid,
        ),
        _model(
            [
                ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}),
                ("ConvInteger", ["q", "wq", "z"], ["i"], ONE),
                ("Cast", ["i"], ["j"], {"to": 1}),
                ("Mul", ["j", "s"], ["k"], {}),
                ("CustomGELU", ["k"], ["l"], {}, "com.example"),
                ("ReduceMean", ["l"], ["m"], {"axes": [2, 3]}),
                ("Add", ["l", "m"], ["y"], {}),
            ],
            {"wq": grid["wq"]},
        ),
        _model(
            [
                ("Transpose", ["x"], ["a"], {"perm": [0, 3, 1, 2]}),
                ("Conv", ["a", "w"], ["b"], {**THREE, "group": 2}),
                ("PRelu", ["b", "slope"], ["c"], {}),
                ("Upsample", ["c", "scales"], ["d"], {"mode": "linear"}),
                ("Reshape", ["d", "flat"], ["e"], {}),
                ("TopK", ["e"], ["f", "g"], {"k": 3}),
                ("Cast", ["g"], ["y"], {"to": 1}),
            ],
            {
                "w": w(4, 2, 3, 3),
                "slope": w(4, 1, 1),
                "scales": np.array([1, 1, 2, 2], F),
                "flat": np.array([1, 4, -1]),
            },
            (1, 8, 8, 4),
            9,
        ),
        _model(
            [
                ("Conv", ["x", "w"], ["a"], {"kernel_shape": [3], "pads": [1, 1]}),
                ("PRelu", ["a", "slope"], ["b"], {}),
                ("AveragePool", ["b"], ["c"], {"kernel_shape": [2], "strides": [2]}),
                ("ConvTranspose", ["c", "t"], ["y"], {"strides": [2]}),
            ],
            {"w": w(5, 4, 3), "slope": w(5, 1), "t": w(5, 3, 2)},
            (1, 4, 16),
        ),
        _model(
            [
                ("Pad", ["x", "pads"], ["p"], {}),
                ("Transpose", ["p"], ["a"], {"perm": [0, 3, 1, 2]}),
                ("Conv", ["a", "w"], ["b"], {"kernel_shape": [3, 3]}),
                ("Transpose", ["b"], ["c"], {"perm": [0, 2, 3, 1]}),
                ("ReduceMean", ["c"], ["d"], {"axes": [1, 2]}),
                ("Mul", ["c", "d"], ["e"], {}),
                ("Concat", ["e", "c"], ["f"], {"axis": 3}),
                ("Transpose", ["f"], ["g"], {"perm": [0, 3, 1, 2]}),
                ("Conv", ["g", "v"], ["y"], ONE),
            ],
            {"pads": np.array([0, 1, 1, 0, 0, 1, 1, 0]), "w": w(3, 4, 3, 3), "v": w(2, 6, 1, 1)},
            (1, 8, 8, 4),
        ),
        _model(
            [
                ("Conv", ["x", "w"], ["t"], THREE),
                ("ReduceMean", ["t"], ["m"], {"axes": [-1]}),
                ("Sub", ["t", "m"], ["d"], {}),
                ("Mul", ["d", "d"], ["q"], {}),
                ("ReduceMean", ["q"], ["v"], {"axes": [-1]}),
                ("Add", ["v", "eps"], ["e"], {}),
                ("Sqrt", ["e"], ["r"], {}),
                ("Div", ["d", "r"], ["n"], {}),
                ("Mul", ["n", "g"], ["o"], {}),
                ("Exp", ["o"], ["k"], {}),
                ("Add", ["k", "one"], ["l"], {}),
                ("Log", ["l"], ["s"], {}),
                ("Max", ["s", "one"], ["h"], {}),
                ("Relu", ["h"], ["y"], {}),
            ],
            {"w": w(4, 4, 3, 3), "eps": F(1e-5), "g": w(8), "one": F(1)},
        ),
        _model(
            [
                ("Reshape", ["x", "flat"], ["a"], {}),
                ("Split", ["a", "parts"], ["b", "c"], {"axis": 1}),
                ("Sigmoid", ["c"], ["scores"], {}),
                ("Transpose", ["b"], ["boxes"], {"perm": [0, 2, 1]}),
                ("NonMaxSuppression", ["boxes", "scores", "limit", "overlap"], ["picked"], {"center_point_box": 1}),
                ("Gather", ["picked", "two"], ["i"], {"axis": 1}),
                ("Gather", ["boxes", "i"], ["y"], {"axis": 1}),
            ],
            {
                "flat": np.array([1, 6, -1]),
                "parts": np.array([4, 2]),
                "limit": np.array([5]),
                "overlap": np.array([0.5], F),
                "two": np.array(2),
            },
            (1, 6, 8, 8),
        ),
        _with_control_flow(w(4, 4, 3, 3)),
    ]


def _with_control_flow(weight: np.ndarray) -> onnx.ModelProto:
    """A Loop of two iterations around an If, in front of a convolution."""

    def graph(
        name: str, nodes: list[onnx.NodeProto], inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> onnx.GraphProto:
        kinds = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "on": TensorProto.BOOL}
        values = [
            [
                helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), [] if n in kinds else None)
                for n in part
            ]
            for part in (inputs, outputs)
        ]
        return helper.make_graph(nodes, name, *values)

    branches = [graph(op, [helper.make_node(op, ["v"], [op], name=op)], (), (op,)) for op in ("Relu", "Neg")]
    choose = helper.make_node("If", ["yes"], ["r"], name="if", then_branch=branches[0], else_branch=branches[1])
    steps = [
        helper.make_node("Identity", ["go"], ["on"], name="on"),
        choose,
        helper.make_node("Add", ["r", "x"], ["u"], name="add"),
    ]
    body = graph("body", steps, ("i", "go", "v"), ("on", "u"))
    model = _model([("Conv", ["t", "w"], ["y"], THREE)], {"w": weight, "n": np.array(2), "yes": np.array(True)})
    model.graph.node.insert(0, helper.make_node("Loop", ["n", "", "x"], ["t"], name="loop", body=body))
    return model


# ---- damage
def _attribute(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    attributes = [a for n in model.graph.node for a in n.attribute]
    if not attributes:
        return
    a = attributes[rng.integers(len(attributes))]
    value = int(rng.choice([-(2**62), -3, -1, 0, 1, 2, 5, 77, 2**31, 2**62]))
    if a.type == onnx.AttributeProto.INT:
        a.i = value
    elif a.type == onnx.AttributeProto.INTS and a.ints and rng.random() < 0.7:
        a.ints[int(rng.integers(len(a.ints)))] = value
    elif a.type == onnx.AttributeProto.INTS:
        del a.ints[int(rng.integers(len(a.ints) + 1)) :]
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = float(rng.choice([np.nan, np.inf, -1e30, 0.0, 3.0]))
    else:
        a.s = rng.bytes(3)


def _remove_attribute(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    nodes = [n for n in model.graph.node if n.attribute]
    if nodes:
        node = nodes[rng.integers(len(nodes))]
        del node.attribute[int(rng.integers(len(node.attribute)))]


def _dimension(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    value = model.graph.initializer[rng.integers(len(model.graph.initializer))]
    if value.dims:
        value.dims[int(rng.integers(len(value.dims)))] = int(rng.choice([0, 1, 2, 3, 9, 2**40]))


def _reshape_constant(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Another shape with the values to go with it."""
    value = model.graph.initializer[rng.integers(len(model.graph.initializer))]
    array = numpy_helper.to_array(value)
    shape = [int(d) for d in rng.integers(0, 5, rng.integers(0, 6))]
    value.CopyFrom(numpy_helper.from_array(np.resize(array, shape).astype(array.dtype), value.name))


def _constant_values(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    value = model.graph.initializer[rng.integers(len(model.graph.initializer))]
    array = numpy_helper.to_array(value).copy()
    if array.size:
        wild = [np.nan, np.inf, -1.0, 0.0, 1e38] if array.dtype.kind == "f" else [-128, -1, 0, 1, 100]
        array.reshape(-1)[rng.integers(array.size)] = rng.choice(wild)
    value.CopyFrom(numpy_helper.from_array(array, value.name))


def _constant_type(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    value = model.graph.initializer[rng.integers(len(model.graph.initializer))]
    kind = rng.choice(["float32", "float16", "float64", "int64", "int32", "uint8", "int8", "bool"])
    with np.errstate(all="ignore"):
        array = np.nan_to_num(numpy_helper.to_array(value)).astype(str(kind))
    value.CopyFrom(numpy_helper.from_array(array, value.name))


def _rewire(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    nodes = [n for n in model.graph.node if n.input]
    names = [
        "",
        "x",
        "nowhere",
        *(i.name for i in model.graph.initializer),
        *(t for n in model.graph.node for t in n.output),
    ]
    node = nodes[rng.integers(len(nodes))]
    node.input[int(rng.integers(len(node.input)))] = names[rng.integers(len(names))]


def _inputs(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    node = model.graph.node[rng.integers(len(model.graph.node))]
    if node.input and rng.random() < 0.6:
        del node.input[int(rng.integers(len(node.input))) :]
    else:
        node.input.append(node.input[0] if node.input else "x")


def _operator(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    others = (
        "Conv",
        "Relu",
        "Add",
        "Concat",
        "Reshape",
        "Resize",
        "Gather",
        "Loop",
        "If",
        "Einsum",
        "Nonsense",
        "Softmax",
        "Identity",
        "NonZero",
    )
    node = model.graph.node[rng.integers(len(model.graph.node))]
    node.op_type = others[rng.integers(len(others))]
    if rng.random() < 0.2:
        node.domain = str(rng.choice(["", "com.microsoft", "org.nobody"]))


def _remove_node(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    del model.graph.node[int(rng.integers(len(model.graph.node)))]


def _repeat_node(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    copy = onnx.NodeProto()
    copy.CopyFrom(model.graph.node[rng.integers(len(model.graph.node))])
    model.graph.node.insert(int(rng.integers(len(model.graph.node) + 1)), copy)


def _order(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    nodes = list(model.graph.node)
    rng.shuffle(nodes)  # type: ignore[arg-type]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _input_shape(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    if rng.random() < 0.3 or not dims:
        dims.add().dim_value = 3
    else:
        dims[int(rng.integers(len(dims)))].dim_value = int(rng.choice([0, 1, 2, 7, 4096, 2**33]))


def _input_type(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    model.graph.input[0].type.tensor_type.elem_type = int(rng.integers(0, 24))


def _version(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    model.opset_import[0].version = int(rng.choice([0, 1, 6, 7, 9, 10, 11, 12, 14, 17, 18, 21, 25, 99]))


def _output(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    model.graph.output[0].name = str(
        rng.choice(["x", "nowhere", *(t for n in model.graph.node for t in n.output if t)])
    )


DAMAGE: tuple[Callable[[onnx.ModelProto, np.random.Generator], None], ...] = (
    *(
        _attribute,
        _attribute,
        _remove_attribute,
        _dimension,
        _reshape_constant,
        _constant_values,
        _constant_type,
        _rewire,
        _rewire,
        _inputs,
    ),
    *(_operator, _remove_node, _repeat_node, _order, _input_shape, _input_type, _version, _output),
)


def damaged(models: list[onnx.ModelProto], number: int) -> bytes:
    """The file of case `number`: one to three kinds of damage to one of the models, or changed bytes."""
    rng = np.random.default_rng([7, number])
    model = onnx.ModelProto()
    model.CopyFrom(models[rng.integers(len(models))])
    if rng.random() < 0.15:
        data = bytearray(model.SerializeToString())
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        return bytes(data)
    for _ in range(int(rng.integers(1, 4))):
        if model.graph.node and model.graph.initializer:
            with contextlib.suppress(
                ValueError, TypeError, OverflowError
            ):  # damage that cannot be read again stays as it is
                DAMAGE[rng.integers(len(DAMAGE))](model, rng)
    return model.SerializeToString()
