"""Push and pop tokens from the byte ranges that instructions touch. Owned by the `generate` step.

For each pair of engines A → B: in program order, instruction j of B needs the latest instruction i of A that it conflicts with (one writes what the
other touches). If B does not yet know that i has ended (from its own tokens or, transitively, from those of the engines it waited for), i gives B
a token and j takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npuforge.hw_kernels.dsl.instr import Instr
from npuforge.hw_kernels.dsl.tile import BIN, SRAM, Buffer, Footprint, Ref
from npuforge.hw_kernels.isa.instructions import Engine


@dataclass(frozen=True)
class Range:
    """A footprint at its final address; `space` 0 SRAM, 1 pool (the `.bin` is never written and needs no tokens)."""

    space: int
    low: int
    high: int
    footprint: Footprint

    def touches(self, other: Range) -> bool:
        """Do both share a byte? Never no wrongly."""
        if self.space != other.space or self.low >= other.high or other.low >= self.high:
            return False
        if self.footprint.buffer is other.footprint.buffer:
            return self.footprint.touches(other.footprint)
        return True


@dataclass
class Access:
    """What one instruction touches."""

    engine: Engine
    reads: list[Range]
    writes: list[Range]
    everything: bool = False  # HALT: after all that came before

    def conflicts(self, earlier: Access) -> bool:
        """Must this instruction wait for `earlier`?"""
        if self.everything:
            return True
        for write in earlier.writes:
            if any(write.touches(r) for r in self.reads) or any(write.touches(w) for w in self.writes):
                return True
        return any(read.touches(w) for read in earlier.reads for w in self.writes)


def assign(accesses: Sequence[Access]) -> tuple[list[int], list[int]]:
    """(pop, push) mask of every instruction."""
    pops, pushes = [0] * len(accesses), [0] * len(accesses)
    known = {
        e: dict.fromkeys(Engine, -1) for e in Engine
    }  # per engine: the last instruction of each other engine known to have ended
    at_start: list[dict[Engine, int]] = []
    queues: dict[Engine, list[int]] = {e: [] for e in Engine}
    for j, access in enumerate(accesses):
        own = known[access.engine]
        needed: dict[Engine, int] = {}
        for engine in Engine:
            if engine == access.engine:
                continue
            for i in reversed(queues[engine]):
                if i <= own[engine]:
                    break
                if access.conflicts(accesses[i]):
                    needed[engine] = i
                    break
        for engine, i in sorted(needed.items(), key=lambda item: -item[1]):
            if i <= own[engine]:  # a token taken just now says so too
                continue
            pops[j] |= 1 << engine
            pushes[i] |= 1 << access.engine
            own[engine] = i
            for other in Engine:
                if other != access.engine:
                    own[other] = max(own[other], at_start[i][other])
        at_start.append(dict(own) | {access.engine: queues[access.engine][-1] if queues[access.engine] else -1})
        queues[access.engine].append(j)
    return pops, pushes


def _access(instr: Instr, address: Mapping[Buffer, int]) -> Access:
    """What the instruction touches; the `.bin` is never written."""

    def ranges(footprints: list[Footprint]) -> list[Range]:
        return [
            Range(0 if f.buffer.space == SRAM else 1, address[f.buffer] + f.low, address[f.buffer] + f.high, f)
            for f in footprints
            if f.buffer.space != BIN
        ]

    return Access(instr.engine, ranges(instr.reads), ranges(instr.writes))


def stream(instructions: Sequence[Instr], address: Mapping[Buffer, int]) -> list[tuple[str, dict[str, int]]]:
    """Names and final fields, tokens included, HALT at the end."""
    accesses = [_access(instr, address) for instr in instructions]
    accesses.append(Access(Engine.LOAD, [], [], everything=True))
    pops, pushes = assign(accesses)
    result = []
    for number, instr in enumerate(instructions):
        fields = {k: address[v.buffer] + v.offset if isinstance(v, Ref) else v for k, v in instr.fields.items()}
        result.append((instr.name, fields | {"pop": pops[number], "push": pushes[number]}))
    result.append(("HALT", {"pop": pops[-1], "push": pushes[-1]}))
    return result
