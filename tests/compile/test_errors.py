"""Messages of typed errors stay on one line, whatever names a file has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuforge.compile.ir.errors import FormatError, ModelError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("node 'a\nb'", r"node 'a\nb'"),
        ("node '\x1b[31m'", r"node '\x1b[31m'"),
        ("node '\u2028\ud800'", r"node '\u2028\ud800'"),
        ("Größe 3×3 …", "Größe 3×3 …"),
        (r"a\b", r"a\b"),
    ],
)
def test_control_characters(text: str, shown: str) -> None:
    assert str(ModelError(text)) == shown


@given(st.text())
def test_any_text(text: str) -> None:
    message = str(FormatError(text))
    assert len(message.splitlines()) <= 1
    message.encode()  # a terminal can show it
