"""`npuforge disasm model.xmodel`: subgraphs, attributes, ops, instructions as text and JSON; the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import CommandLine

from npuforge.compile.ir.errors import FormatError
from npuforge.compile.xir.listing import attr_value, instructions
from npuforge.compile.xir.model import Attr, XSubgraph, to_message
from npuforge.compile.xir.reader import read_xmodel
from npuforge.hw_kernels.isa.binfile import read_bin
from npuforge.hw_kernels.isa.disasm import instruction_lines

SAMPLES = Path(__file__).parents[3] / "shared" / "xir" / "samples"


def listed(subgraph: dict[str, Any], key: str) -> list[Any]:
    """All items of a subgraph and those below it."""
    return [*subgraph.get(key, []), *(x for child in subgraph.get("children", []) for x in listed(child, key))]


def test_objects_hold_the_whole_file(command: CommandLine) -> None:
    value = json.loads(command("disasm", "build/model.xmodel", "--json").out)
    model = read_xmodel(Path("build/model.xmodel"))
    (root,) = value["subgraphs"]
    assert [op["name"] for op in sorted(listed(root, "ops"), key=lambda op: op["name"])] == sorted(
        op.name for op in model.ops
    )
    assert model.root is not None
    assert [c["name"] for c in root["children"]] == [c.name for c in model.root.children]
    own = [line for line in instruction_lines(read_bin(Path("build/model.bin"))) if not line.startswith(";")]
    assert listed(root, "instructions") == own  # the DPU subgraphs' code, one after the other, is the .bin's
    for child, stored in zip(root["children"], model.root.children, strict=True):
        assert set(child["attributes"]) == set(stored.attrs)
    # what leaves one subgraph and enters another has one name
    given = {name for child in root["children"] for name in child["outputs"]}
    assert all(name in given for child in root["children"] for name in child["inputs"])
    returned = {op.tensor.name for op in model.ops if op.name in model.attrs["return_ops"].value}
    assert set(root["outputs"]) == returned and root["inputs"] == []


def test_lines_name_every_op_and_subgraph(command: CommandLine) -> None:
    text = command("disasm", "build/model.xmodel").out
    model = read_xmodel(Path("build/model.xmodel"))
    assert model.root is not None
    for op in model.ops:
        assert f"{op.type} {op.name}(" in text
    for subgraph in model.root.walk():
        assert f"subgraph {subgraph.name} {subgraph.get('device', '')}".rstrip() in text
    assert " CONV " in text and ".dpu_fingerprint = " in text
    brief = command("disasm", "build/model.xmodel", "--sections").out
    assert " CONV " not in brief and "conv2d-fix" not in brief and ".dpu_fingerprint = " in brief


def test_picture_has_a_box_per_op(command: CommandLine) -> None:
    assert command("disasm", "build/model.xmodel", "--graph", "net.svg").code == 0
    model = read_xmodel(Path("build/model.xmodel"))
    shown = [op for op in model.ops if op.type not in ("const", "const-fix")]
    space = {"s": "http://www.w3.org/2000/svg"}
    tree = ElementTree.parse("net.svg").getroot()
    boxes = tree.findall("s:g", space)
    assert len(boxes) == len(shown)
    corners = {(box[1].get("x"), box[1].get("y")) for box in boxes}
    assert len(corners) == len(shown)  # none covers another
    titles = {str(box[0].text).splitlines()[0] for box in boxes}
    assert titles == {f"{op.name} ({op.type})" for op in shown}
    sources = {op.name for op in shown}
    assert len(tree.findall("s:path", space)) == sum(len(set(op.inputs()) & sources) for op in shown)
    command.refused(2, ("--graph", "*.svg"), "disasm", "build/model.xmodel", "--graph", "net.png")
    command.refused(2, ("--graph", "model.xmodel"), "disasm", "build", "--graph", "net.svg")


def test_a_file_against_the_rules_is_listed_and_named(command: CommandLine) -> None:
    """A window of one value: XIR's operator has two."""
    model = read_xmodel(Path("build/model.xmodel"))
    conv = next(op for op in model.ops if op.type == "conv2d-fix")
    conv.attrs["kernel"] = Attr("int32_vec", [3])
    Path("broken.xmodel").write_bytes(to_message(model).SerializeToString())
    named = ("broken.xmodel", conv.name, "attribute 'kernel' has 1 values; expected 2", "listed as it is stored")
    command.refused(1, named, "disasm", "broken.xmodel", "--graph", "net.svg")
    assert f"{conv.type} {conv.name}(" in command("disasm", "broken.xmodel").out
    assert json.loads(command("disasm", "broken.xmodel", "--json").out)["ops"] == len(model.ops)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"{SAMPLES} is absent")
@pytest.mark.parametrize("name", ["pt_custom_op", "tf2_custom_op"])
def test_files_of_the_vendors_compiler(command: CommandLine, name: str) -> None:
    """Their code is not ours: its size is shown."""
    text = command("disasm", SAMPLES / f"{name}.xmodel").out
    assert ".mc_code = '<" in text and "DPUCV2DX8G" in text and " CONV " not in text


def test_code_that_does_not_fit_is_refused() -> None:
    span = Attr("int32_vec", [0, 2])
    with pytest.raises(
        FormatError, match=r"subgraph 'n': 128 bytes of mc_code; npuforge_instructions \[0, 2\] needs 256"
    ):
        instructions(XSubgraph("n", {"mc_code": Attr("bytes", bytes(128)), "npuforge_instructions": span}))
    with pytest.raises(FormatError, match="subgraph 'n': instruction 0: "):
        instructions(XSubgraph("n", {"mc_code": Attr("bytes", b"\xff" * 256), "npuforge_instructions": span}))
    assert instructions(XSubgraph("n", {"mc_code": Attr("bytes", bytes(5))})) == []


def test_values_that_json_lacks() -> None:
    assert attr_value(Attr("float_vec", [1.5, float("-inf")])) == [1.5, "-inf"]
    assert attr_value(Attr("int32_vec", list(range(20))))[-1] == "… 20 in all"
    assert attr_value(Attr("map_string_2_bytes", {"b": b"12", "a": b""})) == {"a": "<0 bytes>", "b": "<2 bytes>"}
