"""The fusion benchmark: its page is up to date, and what it says follows from how many bytes each variant must move."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuforge.hw_kernels.arch import load
from npuforge.scripts.fusion_benchmark import NETWORKS, Row, markdown, plot, rows

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Row]]:
    return {title: rows(load("nf-b4096"), model) for title, model in NETWORKS.items()}


def every(measured: dict[str, list[Row]]) -> list[Row]:
    return [row for layers in measured.values() for row in layers]


def test_both_activations_are_there(measured: dict[str, list[Row]]) -> None:
    """One network each; the layers of train_demo.py and train_oriented.py with an activation."""
    kinds = [{row.activation for row in layers} for layers in measured.values()]
    assert kinds == [{"LeakyRelu"}, {"Silu"}] and [len(layers) for layers in measured.values()] == [17, 20]


def test_page_and_picture_are_up_to_date(measured: dict[str, list[Row]]) -> None:
    remedy = "run python -m npuforge.scripts.fusion_benchmark --markdown docs/fusion.md --plot docs/fusion.svg"
    assert (DOCS / "fusion.md").read_text(encoding="utf-8") == markdown(measured, load("nf-b4096")), remedy
    assert (DOCS / "fusion.svg").read_text(encoding="utf-8") == plot(measured), remedy


def test_separate_programs_move_the_maps_in_between_twice_each(measured: dict[str, list[Row]]) -> None:
    """Two maps between three layers, each written and read once: 4 * 16 lanes * blocks * pixels, besides a few parameters."""
    for row in every(measured):
        _, channels, size = (part.strip() for part in row.shape.split(","))
        height, width = (int(v) for v in size.split("x"))
        moved = 4 * 16 * -(-int(channels.split("→")[1]) // 16) * height * width
        extra = row.costs["three programs"].ddr_bytes - row.costs["fused"].ddr_bytes - moved
        parameters = 40 * 16 * -(-int(channels.split("→")[1]) // 16)  # records and addends of two more layers
        assert 0 <= extra <= parameters + 1024, (row.name, extra)


def test_fusing_never_costs(measured: dict[str, list[Row]]) -> None:
    for row in every(measured):
        assert row.costs["fused"].cycles <= row.costs["one program"].cycles <= row.costs["three programs"].cycles, (
            row.name
        )
