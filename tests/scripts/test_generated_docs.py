"""Generated pages in docs/ are what the generators give now."""

from pathlib import Path

from npuforge.hw_kernels import levels, operator
from npuforge.scripts import bf16_errors, curve_errors, operator_levels
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


def test_curve_errors_page_is_current() -> None:
    page = (ROOT / "docs" / "curve-errors.md").read_text(encoding="utf-8")
    assert page == curve_errors.page(), "run: npuforge ops --curve-errors docs"


def test_bf16_errors_page_is_current() -> None:
    page = (ROOT / "docs" / "bf16-errors.md").read_text(encoding="utf-8")
    assert page == bf16_errors.page(), "run: npuforge ops --bf16-errors > docs/bf16-errors.md"


def test_table_errors_are_bounded_by_their_theory() -> None:
    """Linear interpolation in steps of 1/16 errs by at most f''/8/256, the entries and the result by half a unit of 2^-F each, tails by f(8)'s rest."""
    largest_curvature = {"Silu": 0.5, "Gelu": 0.8, "CustomGELU": 0.8, "Mish": 0.64, "Sigmoid": 0.1, "Tanh": 0.77}
    largest_curvature |= {"Softplus": 0.25, "Erf": 0.97, "Elu": 1.0, "SiluPolynomial": 0.49}
    for kind, curvature in largest_curvature.items():
        for bits in curve_errors.SHOWN:
            x, error = curve_errors.table_error(kind, bits)
            inside = (x >= -8) & (x < 8)
            assert abs(error[inside]).max() <= curvature / 8 / 256 + 1.01 * 2.0**-bits, (kind, bits)
            assert abs(error[~inside]).max() <= 0.003, (kind, bits)
