"""What the tokens of an instruction stream order, by itself: which conflicting instructions could run at once if one token were missing, and an order
of execution in which such a pair stands side by side. Reads encoded instructions; shares no code with the token step or the engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from npuforge.compile.memory_checker import Region, accesses
from npuforge.hw_kernels.isa.codec import decode, encode
from npuforge.hw_kernels.isa.instructions import Engine


@dataclass(frozen=True)
class Token:
    """Instruction `giver` gives it when it has ended, `taker` takes it before it starts."""

    giver: int
    taker: int


class Stream:
    """An instruction stream (HALT last) as a graph: an engine's instructions follow each other, a taker follows its giver."""

    def __init__(self, instructions: Sequence[bytes]) -> None:
        self.decoded = [decode(one) for one in instructions]
        self.engines = [instruction.engine for instruction, _ in self.decoded]

    @cached_property
    def tokens(self) -> list[Token]:
        """Every token: the n-th that an engine gives another is the n-th that one takes from it."""
        given: dict[tuple[Engine, Engine], list[int]] = {(a, b): [] for a in Engine for b in Engine}
        for index, (_, fields) in enumerate(self.decoded):
            for target in Engine:
                if fields["push"] >> target & 1:
                    given[self.engines[index], target].append(index)
        found = []
        for index, (_, fields) in enumerate(self.decoded):
            for source in Engine:
                if fields["pop"] >> source & 1:
                    found.append(Token(given[source, self.engines[index]].pop(0), index))
        assert not any(given.values()), "tokens that nobody takes"
        assert all(token.giver < token.taker for token in found), "a token given after it is taken"
        return found

    def without(self, token: Token) -> list[bytes]:
        """The stream without both ends of a token."""
        fields = [dict(f) for _, f in self.decoded]
        fields[token.giver]["push"] &= ~(1 << self.engines[token.taker])
        fields[token.taker]["pop"] &= ~(1 << self.engines[token.giver])
        return [encode(i.name, **f) for (i, _), f in zip(self.decoded, fields, strict=True)]

    def ancestors(self, missing: Token | None = None) -> list[int]:
        """Per instruction the set, as bits, of those that have surely ended when it starts."""
        sources: dict[int, list[int]] = {}
        for token in self.tokens:
            if token != missing:
                sources.setdefault(token.taker, []).append(token.giver)
        before: list[int] = []
        last: dict[Engine, int] = {}
        for index, engine in enumerate(self.engines):
            direct = sources.get(index, []) + ([last[engine]] if engine in last else [])
            bits = 0
            for source in direct:
                bits |= before[source] | 1 << source
            before.append(bits)
            last[engine] = index
        return before

    @cached_property
    def _touched(self) -> list[tuple[list[Region], list[Region]]]:
        return [accesses(instruction.name, fields) for instruction, fields in self.decoded]

    def conflict(self, earlier: int, later: int) -> bool:
        """Do both touch a common byte, at least one of them writing?"""
        (reads_a, writes_a), (reads_b, writes_b) = self._touched[earlier], self._touched[later]
        return _common(writes_a, reads_b + writes_b) or _common(reads_a, writes_b)

    def unordered(self, missing: Token | None = None) -> list[tuple[int, int]]:
        """Instructions (earlier, later in the program) that may run at the same time."""
        before = self.ancestors(missing)
        return [
            (earlier, later)
            for later in range(len(self.decoded))
            for earlier in range(later)
            if self.engines[earlier] != self.engines[later] and not before[later] >> earlier & 1
        ]

    def races(self, missing: Token | None = None) -> list[tuple[int, int]]:
        """Those of them that conflict."""
        return [pair for pair in self.unordered(missing) if self.conflict(*pair)]

    def unfinished(self, missing: Token | None = None) -> list[int]:
        """Instructions that may still run when HALT is reached."""
        halt = len(self.decoded) - 1
        before = self.ancestors(missing)[halt]
        return [k for k in range(halt) if not before >> k & 1]

    def redundant(self, token: Token) -> bool:
        """Does the stream say the same without this token?"""
        if token.taker == len(self.decoded) - 1:
            return self.unfinished(token) == self.unfinished()
        return self.races(token) == self.races()

    def carries_a_conflict(self, token: Token) -> bool:
        """Is this token alone what orders its own giver and taker, and do they conflict? Then it is not redundant. Quick, for long streams; a
        token may be needed for other instructions only, then this says no and `redundant` decides."""
        if token.taker == len(self.decoded) - 1:
            return not self.redundant(token)
        return not self.ancestors(token)[token.taker] >> token.giver & 1 and self.conflict(token.giver, token.taker)

    def side_by_side(self, pair: tuple[int, int], missing: Token | None = None) -> list[int]:
        """An order that the remaining tokens allow, in which all that `pair` needs comes first, then the pair, then the rest."""
        before = self.ancestors(missing)
        needed = before[pair[0]] | before[pair[1]]
        assert not needed >> pair[0] & 1 and not needed >> pair[1] & 1, "one of the pair waits for the other"
        every = range(len(self.decoded))
        return [
            *(k for k in every if needed >> k & 1),
            *pair,
            *(k for k in every if not needed >> k & 1 and k not in pair),
        ]


def _common(some: list[Region], others: list[Region]) -> bool:
    return any(a.overlaps(b) for a in some for b in others)
