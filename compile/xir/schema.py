"""Message classes of the .xmodel container, built at run time from `serial_v2.proto`.

Generated Python code is tied to one range of protobuf versions; descriptors built here work with every version we allow. The pool
is private, so that the vendor's own module may be loaded in the same process. The parser knows what the file uses: messages, enums,
one-ofs, maps, repeated and plain fields.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO_FILE = Path(__file__).with_name("serial_v2.proto")
_SCALARS = ("double", "float", "int64", "uint64", "int32", "bool", "string", "bytes", "uint32")
_STATEMENT = re.compile(r"\s*(?:(?P<end>\})|(?P<open>[^{};]+)\{|(?P<line>[^{};]+);)")
_FIELD = re.compile(
    r"(?:(?P<repeated>repeated)\s+)?(?P<type>map\s*<\s*string\s*,\s*\w+\s*>|\w+)\s+(?P<name>\w+)\s*=\s*(?P<number>\d+)"
)


def _set_type(field: descriptor_pb2.FieldDescriptorProto, type_name: str, scope: str, enums: set[str]) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    if type_name in _SCALARS:
        field.type = getattr(kinds, f"TYPE_{type_name.upper()}")
    elif f"{scope}.{type_name}" in enums:
        field.type, field.type_name = kinds.TYPE_ENUM, f"{scope}.{type_name}"
    else:
        field.type, field.type_name = kinds.TYPE_MESSAGE, f".serial_v2.{type_name}"


def _add_field(message: descriptor_pb2.DescriptorProto, text: str, oneof: int | None, enums: set[str]) -> None:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise ValueError(f"{PROTO_FILE.name}: cannot read {text!r}")
    scope = f".serial_v2.{message.name}"
    field = message.field.add(name=match["name"], number=int(match["number"]))
    field.label = field.LABEL_REPEATED if match["repeated"] else field.LABEL_OPTIONAL
    if match["type"].startswith("map"):
        entry_name = "".join(part.capitalize() for part in match["name"].split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        for number, (name, kind) in enumerate(
            (("key", "string"), ("value", match["type"].rstrip("> ").split(",")[1].strip())), 1
        ):
            member = entry.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
            _set_type(member, kind, scope, enums)
        field.label, field.type, field.type_name = field.LABEL_REPEATED, field.TYPE_MESSAGE, f"{scope}.{entry_name}"
    else:
        _set_type(field, match["type"], scope, enums)
    if oneof is not None:
        field.oneof_index = oneof


def file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """The descriptor that protoc would make of `serial_v2.proto`."""
    text = re.sub(r"//[^\n]*", "", PROTO_FILE.read_text())
    result = descriptor_pb2.FileDescriptorProto(name=PROTO_FILE.name, package="serial_v2", syntax="proto3")
    enums: set[str] = set()
    message: descriptor_pb2.DescriptorProto | None = None
    enum: descriptor_pb2.EnumDescriptorProto | None = None
    oneof: int | None = None
    for statement in _STATEMENT.finditer(text):
        opened, line = (statement["open"] or "").split(), (statement["line"] or "").strip()
        if opened and opened[0] == "message":
            message = result.message_type.add(name=opened[1])
        elif opened and message is not None and opened[0] == "enum":
            enum = message.enum_type.add(name=opened[1])
            enums.add(f".serial_v2.{message.name}.{opened[1]}")
        elif opened and message is not None and opened[0] == "oneof":
            oneof = len(message.oneof_decl)
            message.oneof_decl.add(name=opened[1])
        elif statement["end"]:
            if enum is not None:
                enum = None
            elif oneof is not None:
                oneof = None
            else:
                message = None
        elif enum is not None:
            name, number = (part.strip() for part in line.split("="))
            enum.value.add(name=name, number=int(number))
        elif message is not None:
            _add_field(message, line, oneof, enums)
    return result


@cache
def message_class(name: str) -> Any:
    """The class of `serial_v2.<name>`, for instance Graph."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"serial_v2.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor())
    return pool
