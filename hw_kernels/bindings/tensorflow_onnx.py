"""From TensorFlow to ONNX: tf2onnx for TensorFlow's operators, one node of its own domain for each operator of the kit. Needs `npuforge[tensorflow]`.

`onnx.save(to_onnx(network, [tf.TensorSpec([1, 64, 64, 3], tf.float32)]), "network.onnx")`; a SavedModel by its folder. The op library of
`tensorflow_ops` must be loaded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import tensorflow as tf

from npuforge.compile.ir.errors import ModelError, UnsupportedError, UsageError
from npuforge.compile.ir.graph import Node
from npuforge.hw_kernels import operator

OPSET = 18  # the newest that tf2onnx writes
_TF_NODE = "NpuforgeRun"  # what tensorflow_ops.cpp registers


def to_onnx(
    model: Any, signature: Sequence[Any] | None = None, *, signature_key: str = "serving_default"
) -> onnx.ModelProto:
    """An ONNX model with the inputs, the outputs and the layout of `model`, variables as constants.

    `model`: a `tf.function` with the `tf.TensorSpec` of each input in `signature` (not needed if it has an `input_signature`), a concrete function, or
    the folder of a SavedModel, of which the signature `signature_key` is taken. An operator called by `tensorflow_ops.run` becomes the node that the
    torch export writes: same domain, type and attributes. Those that `run` calls by their parts (ModSigmoid, ConvBnLeakyRelu, RotatedConv) stay parts.

    Errors: UsageError without tf2onnx or if `model` is none of these; ModelError names a SavedModel that does not load; UnsupportedError names an
    operator or attribute that ONNX does not have.
    """
    try:
        from tf2onnx import convert
    except ImportError:
        raise UsageError("export from TensorFlow needs tf2onnx: pip install npuforge[tensorflow]") from None
    concrete, _owner = _concrete(model, signature, signature_key)
    domains = sorted({name.split("::")[0] for name in operator.registry() if "::" in name})
    failures: list[str] = []
    with _errors_of("tf2onnx.tfonnx", failures):
        proto, _ = convert.from_function(
            _Traced(concrete),
            input_signature=(),
            opset=OPSET,
            custom_op_handlers={_TF_NODE: (_node, [])},
            extra_opset=[onnx.helper.make_opsetid(domain, 1) for domain in domains],
        )
    if failures:
        raise UnsupportedError(f"TensorFlow function {concrete.name} has no ONNX form: {failures[0]}")
    used = {node.domain for node in proto.graph.node} | {""}
    kept = [entry for entry in proto.opset_import if entry.domain in used]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)
    return proto


class _Traced:
    """What `from_function` asks of a tf.function, for one that is traced already."""

    def __init__(self, concrete: Any) -> None:
        self._concrete = concrete

    def get_concrete_function(self) -> Any:
        return self._concrete


def _concrete(model: Any, signature: Sequence[Any] | None, key: str) -> tuple[Any, Any]:
    """The traced function, and what its variables live as long as."""
    if isinstance(model, (str, Path)):
        return _signature_of(Path(model), key)
    if hasattr(model, "get_concrete_function"):
        if signature is None and getattr(model, "input_signature", None) is None:
            raise UsageError(
                "a tf.function without input_signature needs `signature`: one tf.TensorSpec for each input"
            )
        return model.get_concrete_function(*(signature or ())), model
    if hasattr(model, "structured_input_signature"):
        return model, model
    raise UsageError(
        f"expected a tf.function, a concrete function or the folder of a SavedModel, found {type(model).__name__}"
    )


def _signature_of(folder: Path, key: str) -> tuple[Any, Any]:
    try:
        loaded = tf.saved_model.load(str(folder))
    except (OSError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"SavedModel {folder} does not load: {reason} (operators of the kit: call tensorflow_ops.load first)"
        ) from None
    if key not in loaded.signatures:
        raise UsageError(f"SavedModel {folder} has no signature {key}, only {sorted(loaded.signatures)}")
    wanted = loaded.signatures[key]
    given = wanted.structured_input_signature[1]
    # traced once more: a loaded signature does not say which of its tensors has which name
    return tf.function(lambda **inputs: wanted(**inputs)).get_concrete_function(**given), loaded


def _node(graph: Any, node: Any, name: str, args: list[Any]) -> None:
    """Handler of tf2onnx: the TensorFlow node becomes the ONNX node whose name and attributes it carries."""
    kind, attributes = node.get_attr_value("op").decode(), json.loads(node.get_attr_value("attributes").decode())
    domain, _, node.type = kind.rpartition("::")
    node.domain = domain
    if not domain:
        schema = onnx.defs.get_schema(kind, OPSET)
        unknown = sorted(set(attributes) - set(schema.attributes))
        if unknown:
            raise UnsupportedError(f"{kind} has no attribute {unknown[0]} in operator set {OPSET}")
    node.attr.clear()
    for key, value in attributes.items():
        node.set_attr(key, value)
    shapes = [graph.get_shape(x) for x in node.input]
    if all(shape is not None and -1 not in shape for shape in shapes):
        _complete_shapes(graph, node, Node(name, kind, list(node.input), list(node.output), attributes), shapes)


def _complete_shapes(graph: Any, node: Any, meaning: Node, shapes: list[list[int]]) -> None:
    """What TensorFlow knows nothing of, because only the data decide some of its sizes, gets at least its rank."""
    found = operator.registry()[meaning.op].infer(meaning, [tuple(shape) for shape in shapes])
    pending = list(zip(node.output, found, strict=False))
    while pending:
        tensor, shape = pending.pop()
        if graph.get_shape(tensor) is None:
            graph.set_shape(tensor, [-1 if d is None else d for d in shape])
            names = [copy for copy in graph.find_output_consumers(tensor) if copy.type == "Identity"]
            pending += [(copy.output[0], shape) for copy in names]


@contextmanager
def _errors_of(logger: str, found: list[str]) -> Iterator[None]:
    """tf2onnx logs what it cannot convert and goes on; here those messages, one line each, are collected instead of printed."""

    def keep(record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True
        cause = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        message = record.getMessage().splitlines()[0]
        found.append(message if cause is None else f"{message}: {cause}")
        return False

    source = logging.getLogger(logger)
    source.addFilter(keep)
    try:
        yield
    finally:
        source.removeFilter(keep)
