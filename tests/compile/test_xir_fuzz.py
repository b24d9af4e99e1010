"""Hostile .xmodel files: whatever is changed in bytes or in the message, reading and checking gives a model or one FormatError of one line."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from google.protobuf.message import Message
from test_xir_writer import compiled, graph_of, network

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.listing import model_lines
from npuforge.compile.xir.model import Attr, from_message, to_message
from npuforge.compile.xir.picture import svg
from npuforge.compile.xir.reader import parse_xmodel
from npuforge.compile.xir.schema import message_class
from npuforge.compile.xir.shapes import shape_problems
from npuforge.compile.xir.validate import check_schema, problems
from npuforge.compile.xir.writer import build_xmodel

HOSTILE_INTEGERS = (0, 1, -1, 2, 7, 64, 255, 1 << 16, (1 << 31) - 1, -(1 << 31))
HOSTILE_TEXTS = (
    "",
    "x",
    "\n",
    "é",
    "conv2d-fix",
    "concat",
    "const",
    "npuforge::X",
    "shape",
    "XINT8",
    "FLOAT99999",
    "root",
)


@pytest.fixture(scope="module")
def written() -> bytes:
    """A file of ours with every kind of subgraph and most operators, without the bulk of its parameters."""
    qgraph, binary, _ = compiled(graph_of(network()), "pow2")
    model = build_xmodel(qgraph, binary)
    for child in model.by_device("DPU"):
        child.attrs["reg_id_to_parameter_value"] = Attr("map_string_2_bytes", {"REG_0": bytes(64)})
        child.attrs["mc_code"] = Attr("bytes", bytes(128))
    return bytes(to_message(model).SerializeToString(deterministic=True))


def survives(data: bytes) -> bool:
    """True if the file is read; then it can be checked, listed, drawn, and written again."""
    try:
        model = parse_xmodel(data)
    except FormatError as error:
        assert str(error) and "\n" not in str(error)
        return False
    found = problems(model)
    assert all(isinstance(text, str) and text for text in found)
    try:
        check_schema(model)
    except FormatError as error:
        assert found and "\n" not in str(error)
    else:
        assert all("\n" not in text for text in shape_problems(model))
    try:
        assert model_lines(model)
        ElementTree.fromstring(svg(model))
    except FormatError as error:  # mc_code that is no code of ours
        assert "\n" not in str(error)
    again = from_message(to_message(model))
    assert again == model or "nan" in repr(model)
    return True


def messages(message: Message) -> Iterator[Message]:
    """The message and all below it."""
    yield message
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    yield from messages(value[key])
        elif field.is_repeated:
            for item in value:
                yield from messages(item)
        else:
            yield from messages(value)


def other(rng: random.Random, field: Any, texts: list[str]) -> Any:
    """Some value of a field's type."""
    if field.type == field.TYPE_STRING:
        return rng.choice([*HOSTILE_TEXTS, rng.choice(texts)])
    if field.type == field.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 7, 64)))
    if field.type == field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, float("inf"), float("nan"), 1e30))
    value = rng.choice(HOSTILE_INTEGERS)
    return abs(value) if field.type in (field.TYPE_UINT32, field.TYPE_UINT64) else value


def change_message(rng: random.Random, message: Message, texts: list[str]) -> None:
    """One change that keeps the bytes a legal message: a value, an element more or less, a field less, an attribute of another kind."""
    target = rng.choice(list(messages(message)))
    fields = list(target.DESCRIPTOR.fields)
    field = rng.choice([f for f, _ in target.ListFields()] or fields)
    if rng.random() < 0.1:
        field = rng.choice(fields)
    value = getattr(target, field.name)
    if field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
        keys = list(value)
        if keys:
            del value[rng.choice(keys)]
    elif field.is_repeated:
        if len(value) and rng.random() < 0.5:
            del value[rng.randrange(len(value))]
        elif len(value) and rng.random() < 0.5:
            first, second = rng.randrange(len(value)), rng.randrange(len(value))
            if field.type == field.TYPE_MESSAGE:
                value[first].CopyFrom(value[second])
            else:
                value[first] = other(rng, field, texts)
        elif field.type == field.TYPE_MESSAGE:
            value.add()
        else:
            value.append(other(rng, field, texts))
    elif rng.random() < 0.2:
        target.ClearField(field.name)
    elif field.type == field.TYPE_MESSAGE:
        value.SetInParent()
    elif field.type == field.TYPE_ENUM:
        setattr(target, field.name, rng.choice(field.enum_type.values).number)
    else:
        setattr(target, field.name, other(rng, field, texts))


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut out, doubled, or the end cut off."""
    damaged = bytearray(data)
    kind = rng.random()
    if kind < 0.7:
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    else:
        start = rng.randrange(len(damaged))
        end = min(len(damaged), start + rng.choice((1, 2, 16, 300)))
        if kind < 0.8:
            del damaged[start:end]
        elif kind < 0.9:
            damaged[start:start] = damaged[start:end]
        else:
            del damaged[start:]
    return bytes(damaged)


def fuzz(data: bytes, rounds: int, seed: int) -> tuple[int, int]:
    """How many of `rounds` changed files were refused, in bytes and in messages (half of each)."""
    rng = random.Random(seed)
    original = message_class("Graph").FromString(data)
    texts = [op.op_name for op in original.op_node] + [op.op_type for op in original.op_node]
    refused = [0, 0]
    for number in range(rounds):
        if number % 2:
            changed = message_class("Graph")()
            changed.CopyFrom(original)
            for _ in range(rng.randint(1, 3)):
                change_message(rng, changed, texts)
            damaged = changed.SerializeToString()
        else:
            damaged = change_bytes(rng, data)
        refused[number % 2] += not survives(damaged)
    return refused[0], refused[1]


def check(data: bytes, rounds: int, seed: int) -> None:
    assert survives(data)
    by_bytes, by_message = fuzz(data, rounds, seed)
    print(f"{rounds} files, refused by the reader: {by_bytes} of changed bytes, {by_message} of changed messages")
    assert rounds / 8 < by_bytes <= rounds / 2  # the changes reach the rules
    assert rounds / 50 < by_message < rounds / 2


def test_hostile_files(written: bytes) -> None:
    check(written, 300, seed=0)


@pytest.mark.full
def test_twenty_thousand_hostile_files(written: bytes) -> None:
    check(written, 20_000, seed=1)
