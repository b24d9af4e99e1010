"""Drawn single layers of every engine function: quantiser, back end, `.bin`, then csim and sim == the operators' integer semantics, bit for bit.

Run by `pytest tests/e2e/test_ladder_layers.py` (a fixed sample) and `pytest -m full tests/e2e/test_ladder_layers.py` (200 new cases each).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from ladder_layers import CASES, Case, climb_case

COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate),  # shrinking takes minutes; a case prints itself in full
}


def drawn(engine: str, **options: Any) -> None:
    """Runs the ladder on drawn cases of one engine function."""

    @settings(**COMMON, **options)
    @given(CASES[engine]())
    def holds(case: Case) -> None:
        found = climb_case(case)
        assert not found, f"{case}\n" + "\n".join(map(str, found))

    holds()


@pytest.mark.parametrize("engine", CASES)
def test_drawn_layers(engine: str) -> None:
    drawn(engine, max_examples=15, derandomize=True)


@pytest.mark.full
@pytest.mark.parametrize("engine", CASES)
def test_many_drawn_layers(engine: str) -> None:
    drawn(engine, max_examples=200, print_blob=True)
