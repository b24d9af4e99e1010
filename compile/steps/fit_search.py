"""Depth-first search for offsets within a capacity (after google/minimalloc). Used by `plan_memory.allocate` where placing one by one exceeds it.

Every valid plan can be pushed down until each block rests on the floor or on another one, and be built in the order of its offsets. So the search
places, at each step, a block at the lowest offset it can have above what is placed, lowest first, never below the block before. A branch is
left as soon as some moment needs more than is left: the lowest possible start of its open blocks plus their sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_FAR = np.int64(1) << 60


@dataclass
class _Undo:
    """What placing a block has changed."""

    block: int
    offsets: np.ndarray
    current: int


class FitSearch:
    """One problem: live ranges lower <= t < upper, sizes, capacity."""

    def __init__(self, lower: Sequence[int], upper: Sequence[int], size: Sequence[int], capacity: int) -> None:
        low, high = np.asarray(lower), np.asarray(upper)
        self.size, self.capacity, self.count = np.asarray(size, np.int64), capacity, len(size)
        moments = np.unique(np.concatenate([low, high]))
        self.start, self.end = np.searchsorted(moments, low), np.searchsorted(moments, high)
        self.alive_at = np.zeros((len(moments) - 1, self.count), bool)  # [section between moments, block]
        for block in range(self.count):
            self.alive_at[self.start[block] : self.end[block], block] = True
        as_float = self.alive_at.astype(np.float32)
        overlap = (as_float.T @ as_float) > 0
        self.neighbours = [np.flatnonzero(row) for row in overlap]
        self.span = [(int(self.start[n].min()), int(self.end[n].max())) for n in self.neighbours]
        self.length = high - low
        self.load = (self.alive_at * self.size).sum(axis=1)
        self.peak = np.array([self.load[self.start[b] : self.end[b]].max() for b in range(self.count)])

    def run(self, nodes: int) -> list[int] | None:
        """Offsets, or None if three preference orders of `nodes` placements each did not find any."""
        if int(self.load.max(initial=0)) > self.capacity:
            return None
        area = self.length * self.size
        for keys in ((self.peak, area, self.length), (self.length, area, self.peak), (self.peak, self.length, area)):
            preference = np.empty(self.count, np.int64)
            preference[np.lexsort((np.arange(self.count), -keys[2], -keys[1], -keys[0]))] = np.arange(self.count)
            found = self._search(preference, nodes)
            if found is not None:
                return found
        return None

    def _candidates(self, offset: np.ndarray, open_: np.ndarray, current: int, preference: np.ndarray) -> Iterator[int]:
        """Open blocks that may come next: none whose offset leaves room for another whole block below it."""
        where = np.where(open_, offset, _FAR)
        chosen = np.flatnonzero(open_ & (where < (where + self.size).min()) & (where >= current))
        return iter(chosen[np.lexsort((preference[chosen], where[chosen]))].tolist())

    def _search(self, preference: np.ndarray, nodes: int) -> list[int] | None:
        offset, open_ = np.zeros(self.count, np.int64), np.ones(self.count, bool)
        remaining, result, current = self.load.copy(), [-1] * self.count, 0
        frames: list[tuple[Iterator[int], _Undo | None]] = [(self._candidates(offset, open_, 0, preference), None)]
        while frames:
            candidates, undo = frames[-1]
            block = next(candidates, None)
            if block is None:
                frames.pop()
                if undo is not None:
                    current = self._take_back(undo, offset, open_, remaining)
                continue
            nodes -= 1
            if nodes < 0:
                return None
            top = int(offset[block] + self.size[block])
            if top > self.capacity:
                continue
            near = self.neighbours[block]
            undo = _Undo(block, offset[near].copy(), current)
            result[block], current = int(offset[block]), int(offset[block])
            open_[block] = False
            remaining[self.start[block] : self.end[block]] -= self.size[block]
            offset[near] = np.maximum(offset[near], top)
            if not open_.any():
                return result
            if self._possible(block, offset, open_, remaining, current):
                frames.append((self._candidates(offset, open_, current, preference), undo))
            else:
                current = self._take_back(undo, offset, open_, remaining)
        return None

    def _take_back(self, undo: _Undo, offset: np.ndarray, open_: np.ndarray, remaining: np.ndarray) -> int:
        offset[self.neighbours[undo.block]] = undo.offsets
        remaining[self.start[undo.block] : self.end[undo.block]] += self.size[undo.block]
        open_[undo.block] = True
        return undo.current

    def _possible(self, block: int, offset: np.ndarray, open_: np.ndarray, remaining: np.ndarray, current: int) -> bool:
        if ((offset + self.size)[open_] > self.capacity).any():
            return False
        low, high = self.span[block]
        floor = np.where(self.alive_at[low:high] & open_, np.maximum(offset, current), _FAR).min(axis=1)
        return not ((floor + remaining[low:high] > self.capacity) & (remaining[low:high] > 0)).any()
