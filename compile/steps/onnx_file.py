"""Reads an ONNX file and says in one line what is wrong with it: not ONNX, an HTML page, truncated, external data missing, invalid."""

from __future__ import annotations

import faulthandler
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError, Message
from onnx import numpy_helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model

from npuforge.compile.ir.errors import ModelError, UnsupportedError

OLDEST = 7  # operator set; every later step knows this one and newer ones

_KNOWN_STARTS = (
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint?); export it with torch.onnx.export"),
    (b"\x89HDF", "an HDF5 file (Keras?); convert it with tf2onnx"),
    (b"version https://git-lfs", "a Git LFS pointer; run `git lfs pull`"),
    (b"\x80\x02", "a pickle (a PyTorch checkpoint?); export it with torch.onnx.export"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
)


def read_model(path: Path) -> onnx.ModelProto:
    """The parsed and checked model with its external data loaded."""
    if not path.exists():
        raise ModelError(f"{path}: no such file; give the path of an .onnx file")
    if path.is_dir():
        raise ModelError(f"{path} is a directory; give the .onnx file in it")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}; correct its permissions or the path") from error
    model = _parse(path, data)
    _check_content(path, model)
    _check_external(path, model)
    check_model(str(path), model)
    return model


def _check_content(path: Path, message: Message) -> None:
    """Every text in the file is UTF-8 and every tensor holds as many values as its shape says. (ONNX's checker fails on the one, misses the other.)"""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            for text in [value] if isinstance(value, (str, bytes)) else value:
                if isinstance(text, bytes):  # protobuf gives what is no UTF-8 as bytes
                    raise ModelError(
                        f"{path} is damaged: the {field.name} {text!r} is no UTF-8 text; download or export it again"
                    )
        if field.type != field.TYPE_MESSAGE:
            continue
        for part in [value] if isinstance(value, Message) else value:
            if isinstance(part, onnx.TensorProto) and part.data_location != onnx.TensorProto.EXTERNAL:
                try:
                    numpy_helper.to_array(part)
                except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
                    raise ModelError(
                        f"{path} is damaged: tensor '{part.name}' of shape {list(part.dims)} does not hold its values "
                        f"({' '.join(str(error).split())[:120]}); download or export it again"
                    ) from error
            _check_content(path, part)


def _parse(path: Path, data: bytes) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{path} is empty (0 bytes); download or export it again")
    head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        raise ModelError(
            f"{path} is an HTML or XML page, not an ONNX model; download the raw file instead of the page that shows it"
        )
    for start, meaning in _KNOWN_STARTS:
        if data.startswith(start):
            raise ModelError(f"{path} is not an ONNX model: it is {meaning}")
    cut = _truncation(data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        if cut is not None:
            raise ModelError(cut.format(path=path, size=len(data))) from error
        raise ModelError(
            f"{path} is not an ONNX model: its {len(data)} bytes do not parse as one; export it again"
        ) from error
    if not model.HasField("graph") or model.ir_version <= 0:
        raise ModelError(f"{path} is not an ONNX model: it holds no graph; export it again")
    if not model.graph.node:
        raise ModelError(f"{path} holds a graph without nodes; export it again")
    return model


def _varint(data: bytes, at: int) -> tuple[int, int] | None:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return None


def _truncation(data: bytes) -> str | None:
    """A message if the file starts like an ONNX model and ends inside one of its fields."""
    at = 0
    fields = 0
    while at < len(data):
        key = _varint(data, at)
        if key is None:
            break
        number, wire = key[0] >> 3, key[0] & 7
        if not 1 <= number <= 30 or wire not in (0, 1, 2, 5):
            return None
        value = _varint(data, key[1]) if wire in (0, 2) else (0, key[1] + (8 if wire == 1 else 4))
        if value is None:
            break
        end = value[1] + (value[0] if wire == 2 else 0)
        if end > len(data):
            if fields == 0:
                return None
            return f"{{path}} is truncated: the field at byte {at} ends at byte {end}, the file has {{size}}; download or export it again"
        at, fields = end, fields + 1
    return (
        "{path} is truncated: it ends at byte {size} inside a field; download or export it again"
        if at < len(data)
        else None
    )


def _check_external(path: Path, model: onnx.ModelProto) -> None:
    external = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    if not external:
        return
    for tensor in external:
        info = ExternalDataInfo(tensor)
        file = path.parent / info.location
        if not file.is_file():
            raise ModelError(
                f"{path}: tensor '{tensor.name}' is stored in '{info.location}', which is missing in {path.parent}; "
                "copy that file beside the model"
            )
        end = (info.offset or 0) + (info.length or 0)
        if end > file.stat().st_size:
            raise ModelError(
                f"{path}: tensor '{tensor.name}' needs bytes up to {end} of '{info.location}', which has {file.stat().st_size}; "
                "copy the complete file"
            )
    try:
        load_external_data_for_model(model, str(path.parent))
    except Exception as error:
        raise ModelError(
            f"{path}: external data cannot be loaded: {(str(error).splitlines() or [''])[0]}; copy the complete files beside the model"
        ) from error


def check_model(path: str, model: onnx.ModelProto) -> None:
    """Refuses what ONNX's checker refuses; writes local functions out."""
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise UnsupportedError(f"{path}: tensor '{name}' is sparse; export the network with dense weights")
    if model.functions:
        from onnx import inliner

        model.CopyFrom(inliner.inline_local_functions(model))
    _raise_oldest(path, model)
    if not model.graph.output:
        raise ModelError(f"{path}: the graph has no output; export it again with its outputs named")
    open_outputs = [
        v.type.tensor_type
        for v in model.graph.output
        if v.type.HasField("tensor_type") and not v.type.tensor_type.HasField("shape")
    ]
    for output in open_outputs:  # exporters leave the shape of a custom operator's output out; the checker alone minds
        output.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        line = " ".join(s.strip() for s in str(error).splitlines() if s.strip() and not s.startswith("==> Context"))
        raise ModelError(f"{path} is not a valid ONNX model: {line}; export it again") from error
    finally:
        for output in open_outputs:
            output.ClearField("shape")


def _convert(data: bytes, pipe: Connection) -> None:
    """In a child process: the converted model, or the first line of what the converter throws."""
    faulthandler.disable()  # a crash is reported by the parent, in one line
    try:
        model = onnx.version_converter.convert_version(onnx.ModelProto.FromString(data), OLDEST)
        pipe.send(model.SerializeToString())
    except Exception as error:  # the converter throws whatever its adapters throw
        pipe.send((str(error).splitlines() or [""])[0])


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in operator set 7. ValueError where ONNX's converter throws or crashes, which damaged models make it do."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_convert, args=(model.SerializeToString(), sender), daemon=True)
    child.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = "it crashes"
    finally:
        receiver.close()
        child.join()
    if isinstance(found, str):
        raise ValueError(found)
    return onnx.ModelProto.FromString(found)


def _raise_oldest(path: str, model: onnx.ModelProto) -> None:
    """Operator sets before 7 (broadcast by attribute) in the form of 7, by ONNX's own converter; refuses those that nobody knows."""
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), OLDEST)
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise ModelError(
            f"{path}: operator set {version}, the installed onnx {onnx.__version__} knows up to {newest}; "
            f"export the network with operator set {newest} or older"
        )
    if version >= OLDEST:
        return
    try:
        _broadcast_explicitly(model)
        model.CopyFrom(_converted(model))
    except Exception as error:  # shape inference and the converter
        first = (str(error).splitlines() or [""])[0]
        raise ModelError(
            f"{path}: operator set {version} is older than {OLDEST} and ONNX's converter cannot raise it ({first}); "
            "export the network again with operator set 11 or newer"
        ) from error


def _broadcast_explicitly(model: onnx.ModelProto) -> None:
    """Before operator set 7 an operand lies along axes of the other that an attribute names, a PRelu slope along the channels: trailing axes of
    size 1 say so. (ONNX's converter places such an operand wrongly.)"""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {v.name: len(v.type.tensor_type.shape.dim) for v in (*inferred.input, *inferred.value_info)}
    ranks = shapes | {i.name: len(i.dims) for i in model.graph.initializer}
    nodes = []
    for position, node in enumerate(model.graph.node):
        axis = next((a.i for a in node.attribute if a.name == "axis"), None)
        if any(a.name == "broadcast" and a.i for a in node.attribute) and axis is not None:
            del node.attribute[[a.name for a in node.attribute].index("axis")]
        else:
            axis = 1 if node.op_type == "PRelu" else None
        if axis is not None:
            whole, part = (ranks.get(t) for t in node.input[:2])
            if whole is None or part is None:
                raise ValueError(f"the shapes of '{node.input[0]}' and '{node.input[1]}' are not known")
            trailing = whole - axis % max(whole, 1) - part
            if trailing > 0 and not (node.op_type == "PRelu" and part == 0):
                target = f"{node.input[1]}/along_{position}"
                axes = list(range(part, part + trailing))
                nodes.append(onnx.helper.make_node("Unsqueeze", [node.input[1]], [target], axes=axes))
                node.input[1] = target
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
