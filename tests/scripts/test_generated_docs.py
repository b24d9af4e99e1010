"""Generated pages in docs/ are what the generators give now."""

from pathlib import Path

from npuforge.scripts.command_ops import markdown

ROOT = Path(__file__).resolve().parents[2]


def test_supported_operators_page_is_current() -> None:
    page = (ROOT / "docs" / "supported-operators.md").read_text(encoding="utf-8")
    assert page == markdown(), "run: npuforge ops --markdown > docs/supported-operators.md"
