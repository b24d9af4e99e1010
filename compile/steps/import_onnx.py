"""The import step: an ONNX file becomes a `Graph` with static shapes.

`import_model(path, shapes)` reads and checks the file, fixes input shapes, names unnamed nodes, writes out functions and constant control flow, raises the
operator set, computes what is constant and infers every shape.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from npuforge.compile.ir.errors import ModelError, NpuforgeError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Graph, Node, TensorInfo
from npuforge.compile.steps.control_flow import write_out
from npuforge.compile.steps.custom_nodes import fill_absent_inputs, without_branches
from npuforge.compile.steps.dequantise import take_pairs
from npuforge.compile.steps.functions import Origins, expand_functions
from npuforge.compile.steps.infer import Doubles, fill_shapes, propagate
from npuforge.compile.steps.onnx_file import check_model, read_model
from npuforge.compile.steps.onnx_nodes import STANDARD, attributes, operator_name
from npuforge.compile.steps.opset import upgrade
from npuforge.compile.steps.qoperator import expand_quantised
from npuforge.compile.steps.rewrite import Editor
from npuforge.compile.steps.widen import widen_bfloat16

_FLOATS = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
_INPUT_TYPES = (
    *(
        *_FLOATS,
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.BOOL,
        onnx.TensorProto.INT8,
        onnx.TensorProto.INT16,
        onnx.TensorProto.INT32,
    ),
    *(
        onnx.TensorProto.INT64,
        onnx.TensorProto.UINT8,
        onnx.TensorProto.UINT16,
        onnx.TensorProto.UINT32,
        onnx.TensorProto.UINT64,
    ),
)
Shapes = dict[str, tuple[int, ...]]


@dataclass
class Imported:
    """What the import gives: the graph, the model it was made from (named nodes, static inputs), and what the user should know."""

    graph: Graph
    model: onnx.ModelProto
    warnings: list[Warning] = field(default_factory=list)


def import_model(path: str | Path, shapes: Shapes | None = None) -> Graph:
    """The `Graph` of an ONNX file. `shapes`: static shapes by input name, for inputs that are dynamic in the file."""
    imported = import_onnx(path, shapes)
    for warning in imported.warnings:
        warnings.warn(warning, stacklevel=2)
    return imported.graph


def import_onnx(source: str | Path | onnx.ModelProto, shapes: Shapes | None = None) -> Imported:
    """As `import_model`, with the prepared ONNX model and the warnings."""
    model = prepare_model(source, shapes)
    expanded, origins = expand_functions(model)
    name = Path(source).stem if not isinstance(source, onnx.ModelProto) else (source.graph.name or "model")
    written = write_out(expanded)
    graph = _to_graph(written, name, origins)
    graph.metadata = {p.key: p.value for p in model.metadata_props}
    trouble = expand_quantised(graph)
    upgrade(graph)
    propagate(graph, _doubles(written))
    trouble += take_pairs(graph)
    return Imported(Editor(graph).finish(), model, trouble)


def prepare_model(
    source: str | Path | onnx.ModelProto, shapes: Shapes | None = None, dynamic: bool = False
) -> onnx.ModelProto:
    """The checked model with every node named, every input static, bfloat16 as float32, absent bias of custom nodes written out; else arithmetic untouched (this is what the float reference
    runs). `dynamic`: inputs of dynamic shape for which `shapes` has none stay so."""
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        check_model(source.graph.name or "model", model)
    else:
        model = read_model(Path(source))
    widen_bfloat16(model)
    _name_nodes(model)
    _fix_inputs(model, shapes or {}, dynamic)
    fill_absent_inputs(model, tensor_shapes)
    return model


def tensor_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Static shapes by tensor of a prepared model, as far as they are known; -1 is a dimension that only the data decide. A model that cannot be imported
    has those of its inputs and constants. ModelError for a custom node that its operator refuses."""
    shapes = {v.name: tuple(d.dim_value or -1 for d in v.type.tensor_type.shape.dim) for v in model.graph.input}
    shapes |= {i.name: tuple(i.dims) for i in model.graph.initializer}
    try:
        graph = _to_graph(model, "shapes", {})
    except NpuforgeError:
        return shapes
    fill_shapes(graph)
    return shapes | {name: info.shape for name, info in graph.tensors.items()}


def prepare_export(
    source: str | Path | onnx.ModelProto, shapes: Shapes | None = None, dynamic: bool = False
) -> onnx.ModelProto:
    """`prepare_model` for a target that gets the custom nodes as they are: none stands in a branch (UnsupportedError), none is malformed (ModelError)."""
    model = without_branches(prepare_model(source, shapes, dynamic))
    tensor_shapes(model)
    return model


def _name_nodes(model: onnx.ModelProto) -> None:
    taken: set[str] = set()
    named = {n.name for n in model.graph.node if n.name}
    for position, node in enumerate(model.graph.node):
        wanted = node.name or f"{node.op_type}_{position}"
        name, count = wanted, 1
        while name in taken or (not node.name and name in named):
            count += 1
            name = f"{wanted}_{count}"
        node.name = name
        taken.add(name)


def _show(dims: list[int | str]) -> str:
    return "x".join(str(d) for d in dims)


def _fix_inputs(model: onnx.ModelProto, shapes: Shapes, dynamic: bool) -> None:
    """Drops initialisers listed as inputs (IR 3) and makes the shapes of the real inputs static, but where they may be `dynamic`."""
    graph = model.graph
    initialisers = {i.name for i in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    real = [v for v in graph.input if v.name not in initialisers]
    del graph.input[:]
    graph.input.extend(real)
    model.ir_version = max(model.ir_version, 4)  # before 4 an initialiser had to be an input as well
    names = [v.name for v in graph.input]
    if "" in shapes and len(names) == 1:  # `--shape 1x3x320x320`
        shapes = {names[0]: shapes[""]}
    for unknown in (n for n in shapes if n not in names):
        raise UsageError(
            f"--shape names the input '{unknown}', which the model does not have; its inputs: {', '.join(names)}"
        )
    for value in graph.input:
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(
                f"input '{value.name}' is not a tensor (sequence, map or optional); export with tensor inputs"
            )
        shape = value.type.tensor_type.shape
        dims: list[int | str] = [
            d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else (d.dim_param or "?") for d in shape.dim
        ]
        given = shapes.get(value.name)
        if given is None and dynamic:
            continue
        example = "x".join(str(d) if isinstance(d, int) else ("1" if i == 0 else "320") for i, d in enumerate(dims))
        if not value.type.tensor_type.HasField("shape") and given is None:
            raise UsageError(
                f"input '{value.name}' has no shape in the file; give one, for example --shape {value.name}=1x3x320x320"
            )
        if given is None:
            if any(isinstance(d, str) for d in dims):
                raise UsageError(
                    f"input '{value.name}' has the dynamic shape {_show(dims)}; give a static one, "
                    f"for example --shape {value.name}={example}"
                )
            continue
        given = tuple(int(d) for d in given)
        if any(d <= 0 for d in given):
            raise UsageError(f"--shape {value.name}={_show(list(given))} must have positive dimensions; correct it")
        if dims and len(given) != len(dims):
            raise UsageError(
                f"--shape {value.name}={_show(list(given))} has {len(given)} dimensions, the model's input has {len(dims)} ({_show(dims)}); give as many"
            )
        for axis, (wanted, found) in enumerate(zip(given, dims, strict=False)):
            if isinstance(found, int) and found != wanted:
                raise UsageError(
                    f"--shape {value.name}={_show(list(given))} differs at dimension {axis}: the model fixes it at {found} ({_show(dims)}); "
                    "give that size, or export the network with a dynamic one"
                )
        del shape.dim[:]
        for size in given:
            shape.dim.add().dim_value = size
    if shapes:  # shapes of inner tensors and outputs that were stated for the old input shapes no longer hold
        del graph.value_info[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")


def _single(value: np.ndarray) -> np.ndarray:
    """Half, bfloat16 and double precision as float32: the graph knows one float type."""
    return value.astype(np.float32) if value.dtype.name in ("float16", "bfloat16", "float64") else value


def _type_name(code: int) -> str:
    known = code in onnx.TensorProto.DataType.values()
    return onnx.TensorProto.DataType.Name(code).lower() if known else f"elements of the unknown type {code}"


def _to_graph(model: onnx.ModelProto, name: str, origins: Origins) -> Graph:
    opset = next((o.version for o in model.opset_import if o.domain in STANDARD), 0)
    constants = {i.name: _single(numpy_helper.to_array(i)) for i in model.graph.initializer}
    graph = Graph(
        name, [], {}, constants, [v.name for v in model.graph.input], [v.name for v in model.graph.output], opset
    )
    for value in model.graph.input:
        tensor_type = value.type.tensor_type
        if tensor_type.elem_type not in _INPUT_TYPES:
            raise UnsupportedError(
                f"input '{value.name}' holds {_type_name(tensor_type.elem_type)}; expected real numbers, integers or bool: export the network with such inputs"
            )
        dtype = (
            "float32"
            if tensor_type.elem_type in _FLOATS
            else np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)).name
        )
        graph.tensors[value.name] = TensorInfo(
            value.name, tuple(d.dim_value or -1 for d in tensor_type.shape.dim), dtype
        )
    for proto in model.graph.node:
        op = operator_name(proto.domain, proto.op_type)
        attrs = {k: _single(v) if isinstance(v, np.ndarray) else v for k, v in attributes(proto).items()}
        if (
            op in ("Cast", "RandomNormal", "RandomUniform", "EyeLike")
            and attrs.get("to", attrs.get("dtype")) in _FLOATS
        ):
            attrs["to" if op == "Cast" else "dtype"] = onnx.TensorProto.FLOAT
        if op == "Constant":
            constants[proto.output[0]] = _constant_value(proto, attrs)
            continue
        graph.nodes.append(
            Node(
                proto.name,
                op,
                list(proto.input),
                list(proto.output),
                attrs,
                sources=[origins.get(proto.name, proto.name)],
            )
        )
    return graph


def _doubles(model: onnx.ModelProto) -> Doubles:
    """What of the model's constants is of double precision: sizes and places are computed in it."""
    values = {
        i.name: numpy_helper.to_array(i) for i in model.graph.initializer if i.data_type == onnx.TensorProto.DOUBLE
    }
    casts = set()
    for node in model.graph.node:
        attrs = {a.name: a for a in node.attribute}
        if node.op_type == "Constant" and "value" in attrs and attrs["value"].t.data_type == onnx.TensorProto.DOUBLE:
            values[node.output[0]] = numpy_helper.to_array(attrs["value"].t)
        if node.op_type == "Cast" and attrs["to"].i == onnx.TensorProto.DOUBLE:
            casts.add(node.name)
    return Doubles(values, casts)


def _constant_value(node: onnx.NodeProto, attrs: dict[str, object]) -> np.ndarray:
    for label, dtype in (
        ("value", None),
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if label in attrs:
            return np.asarray(attrs[label], dtype)
    raise ModelError(
        f"node '{node.name}' (Constant) holds neither numbers nor a tensor (found: {', '.join(attrs) or 'nothing'}); export the network again"
    )
