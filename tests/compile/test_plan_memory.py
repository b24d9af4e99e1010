"""The allocator against an independent checker: drawn problems, the minimalloc problems, SRAM and pool plans; the checker itself must be able to fail."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuforge.compile.ir.errors import VerifyError
from npuforge.compile.memory_checker import check_plan
from npuforge.compile.steps.plan_memory import Block, allocate, lower_bound

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "data" / "minimalloc"


def rows(blocks: list[Block], offsets: list[int]) -> list[dict[str, object]]:
    return [
        {"name": b.name, "lower": b.lower, "upper": b.upper, "size": b.size, "offset": o}
        for b, o in zip(blocks, offsets, strict=True)
    ]


def bound_by_simulation(blocks: list[Block]) -> int:
    """The lower bound the slow way."""
    return max((sum(b.size for b in blocks if b.lower <= t < b.upper) for t in {b.lower for b in blocks}), default=0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 400)), min_size=1, max_size=40))
def test_drawn_problems_are_valid_and_near_the_bound(drawn: list[tuple[int, int, int]]) -> None:
    blocks = [Block(f"b{i}", low, low + length, size * 64) for i, (low, length, size) in enumerate(drawn)]
    peak, offsets = allocate(blocks, nodes=200)
    check_plan(rows(blocks, offsets), peak, "drawn")
    assert lower_bound(blocks) == bound_by_simulation(blocks)
    assert all(o % 64 == 0 for o in offsets)
    assert lower_bound(blocks) <= peak <= 1.4 * lower_bound(blocks) + 64


def test_picture() -> None:
    """
    time 0 1 2 3
         A A . .      C is placed where A was: peak 3, not 4
         . B B .
         . . C C
    """
    blocks = [Block("A", 0, 2, 64), Block("B", 1, 3, 128), Block("C", 2, 4, 64)]
    peak, offsets = allocate(blocks)
    assert peak == 192 == lower_bound(blocks) and offsets[0] == offsets[2]


def test_checker_names_both_buffers_and_their_addresses() -> None:
    bad = rows([Block("left", 0, 5, 128), Block("right", 4, 9, 64)], [0, 64])
    with pytest.raises(
        VerifyError, match=r"plan: buffers left at 0..128 \(time 0..5\) and right at 64..128 \(time 4..9\) overlap"
    ):
        check_plan(bad, 1000, "plan")
    with pytest.raises(VerifyError, match=r"right at 960..1024 is outside 0..1000"):
        check_plan(rows([Block("right", 0, 1, 64)], [960]), 1000, "plan")
    check_plan(rows([Block("left", 0, 4, 128), Block("right", 4, 9, 64)], [0, 64]), 128, "plan")  # upper is exclusive


def problems() -> list[Path]:
    return sorted(PROBLEMS.glob("*/*.csv"))


MET = {"input.12", "J.1048576"}  # within the capacity after a short search; the others need far longer ones


@pytest.mark.data
@pytest.mark.parametrize("path", problems(), ids=lambda p: p.stem)
def test_minimalloc_problems(path: Path) -> None:
    """A valid plan for each. Those known to be met within the capacity stay so; 0.4 above it is the most a short search may leave."""
    capacity = int(path.name.split(".")[1])
    with path.open() as stream:
        blocks = [Block(r["id"], int(r["lower"]), int(r["upper"]), int(r["size"])) for r in csv.DictReader(stream)]
    peak, offsets = allocate(blocks, alignment=1, capacity=capacity, nodes=1000)
    check_plan(rows(blocks, offsets), peak, path.name)
    assert lower_bound(blocks) <= capacity
    assert peak <= (capacity if path.stem in MET else 1.4 * capacity)


@pytest.mark.data
def test_minimalloc_problem_files_are_there() -> None:
    if not PROBLEMS.is_dir():
        pytest.skip(f"{PROBLEMS} is absent (third-party problems are kept beside the repository)")
    assert len(problems()) == 12


def test_allocation_does_not_depend_on_chance() -> None:
    random = np.random.default_rng(3)
    blocks = [
        Block(str(i), int(low), int(low + random.integers(1, 20)), int(random.integers(1, 99)) * 64)
        for i, low in enumerate(random.integers(0, 60, 80))
    ]
    assert allocate(blocks, nodes=300) == allocate(blocks, nodes=300)
