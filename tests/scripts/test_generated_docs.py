"""Generated pages in docs/ are what the generators give now."""

from pathlib import Path

from npuforge.hw_kernels import levels, operator
from npuforge.scripts import operator_levels
from npuforge.scripts.command_ops import markdown

ROOT = Path(__file__).resolve().parents[2]


def test_supported_operators_page_is_current() -> None:
    page = (ROOT / "docs" / "supported-operators.md").read_text(encoding="utf-8")
    assert page == markdown(), "run: npuforge ops --markdown > docs/supported-operators.md"


def test_operator_levels_page_is_current() -> None:
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert page == operator_levels.page(), "run: npuforge ops --levels > docs/operators.md"


def test_a_tick_on_the_page_needs_a_declared_level() -> None:
    """Without its gradient, its program and its C++ kernel an operator loses these ticks and gets reasons."""

    class Bare(operator.Op):
        """y = x"""

        names = ("Bare",)
        cases = operator.registry()["Conv"].cases

    notes = operator_levels.Notes()
    ticks = [level for level in levels.LEVELS if operator_levels.cell(Bare(), level, notes).startswith("✓")]
    assert ticks == ["torch"]
