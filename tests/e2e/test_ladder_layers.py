"""Drawn single layers of every engine function: quantiser, back end, `.bin`, then csim and sim == the operators' integer semantics, bit for bit.

Run by `pytest tests/e2e/test_ladder_layers.py` (a fixed sample) and `pytest -m full tests/e2e/test_ladder_layers.py` (200 new cases each).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from ladder_layers import Case, climb_case
from layer_strategies import CASES

COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate),  # shrinking takes minutes; a case prints itself in full
}
REFUSED_SHARE = 0.05  # of drawn layers: values that calibration does not take


def drawn(engine: str, examples: int, **options: Any) -> None:
    """Runs the ladder on `examples` drawn cases of one engine function; hardly any may be beyond what calibration takes."""
    cases, climbed = 0, 0

    @settings(**COMMON, max_examples=examples, **options)
    @given(CASES[engine]())
    def holds(case: Case) -> None:
        nonlocal cases, climbed
        cases += 1
        found = climb_case(case)
        assert not found, f"{case}\n" + "\n".join(map(str, found))
        climbed += 1

    holds()
    print(f"{engine}: {climbed} cases climbed, {cases - climbed} refused by calibration")  # shown by pytest -rP
    assert climbed >= examples
    assert cases - climbed <= max(1, REFUSED_SHARE * cases), f"{cases - climbed} of {cases} cases were refused"


@pytest.mark.parametrize("engine", CASES)
def test_drawn_layers(engine: str) -> None:
    drawn(engine, 15, derandomize=True)


@pytest.mark.full
@pytest.mark.parametrize("engine", CASES)
def test_many_drawn_layers(engine: str) -> None:
    drawn(engine, 200, print_blob=True)
