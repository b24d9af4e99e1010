"""Every refusal of the front end that names a node names its operator too, and every refusal says what to do. Read from the sources, so that none is forgotten."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from npuforge.compile.steps import import_onnx

STEPS = Path(import_onnx.__file__).parent
REFUSALS = ("ModelError", "UnsupportedError", "UsageError", "InputError")
NODE = re.compile(r"node '\{[^}]*\}'(?: \((?:\{[^}]*\.op(?:_type)?\}|[A-Z]\w+)\)|: no operator '\{[^}]*\.op\}')?")
NO_MESSAGE = {
    "cut.format(path=path, size=len(data))"
}  # built elsewhere: `_truncation`, whose texts end with their remedy


def messages() -> list[tuple[str, str]]:
    """(place, source text of the message) of every refusal."""
    found = []
    for file in sorted(STEPS.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
                continue
            if getattr(node.exc.func, "id", "") in REFUSALS:
                text = ast.unparse(node.exc.args[0])
                if text not in NO_MESSAGE and text != "str(error)":
                    found.append((f"{file.name}:{node.lineno}", text))
    return found


def test_there_are_refusals() -> None:
    assert len(messages()) > 50


@pytest.mark.parametrize(("place", "text"), messages(), ids=lambda value: value if ".py:" in value else "")
def test_operator_and_remedy(place: str, text: str) -> None:
    for match in NODE.finditer(text):
        assert match[0].endswith((")", ".op}'")), f"{place}: names a node without its operator: {text}"
    what_it_is = "it is {meaning}" in text  # the table's entries end with a remedy of their own
    assert ";" in text or what_it_is, f"{place}: says not what to do: {text}"
