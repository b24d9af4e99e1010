"""Tokens: every conflict is ordered, nothing deadlocks, and the independent checker sees each missing or superfluous token."""

from __future__ import annotations

import numpy as np
import pytest
from backend import small_arch
from interpreter import Machine
from networks_int8 import Net
from test_generate_networks import backbone

from npuforge.compile.ir.errors import InstructionError, VerifyError
from npuforge.compile.memory_checker import Region, accesses, check_tokens
from npuforge.compile.steps.generate import CompiledProgram, generate
from npuforge.compile.steps.write_bin import to_bytes
from npuforge.hw_kernels.isa.codec import decode, encode, split
from npuforge.hw_kernels.isa.instructions import Engine
from npuforge.hw_kernels.timing import schedule


@pytest.fixture(scope="module")
def compiled() -> CompiledProgram:
    net = Net((3, 48, 64), 1)
    outputs = backbone(net)
    net.pair("Mul", "squared", "head2", "head2")
    return generate(net.finish(*outputs, "squared"), small_arch(131072))


def fields_of(compiled: CompiledProgram) -> list[tuple[str, dict[str, int]]]:
    return [(i.name, dict(f)) for i, f in (decode(one) for one in split(compiled.instructions))]


def encoded(program: list[tuple[str, dict[str, int]]]) -> bytes:
    return b"".join(encode(name, **fields) for name, fields in program)


def test_checker_accepts_and_some_instructions_may_run_at_once(compiled: CompiledProgram) -> None:
    pairs = check_tokens(compiled.instructions, compiled.arch.sram_bytes, compiled.meta["pool_size"])
    assert pairs > 20  # a program without any freedom would have none


def test_every_token_is_needed(compiled: CompiledProgram) -> None:
    """Taking one token away (push and its pop) must be noticed: sampled over the whole program."""
    program = fields_of(compiled)
    tokens = [(i, e) for i, (_, f) in enumerate(program) for e in Engine if f["pop"] >> e & 1]
    from npuforge.hw_kernels.isa.instructions import BY_NAME

    for j, giver in tokens[:: max(1, len(tokens) // 40)]:
        taker = BY_NAME[program[j][0]].engine
        number = sum(
            1 for i in range(j) if BY_NAME[program[i][0]].engine == taker and program[i][1]["pop"] >> giver & 1
        )
        pushes = [i for i, (n, f) in enumerate(program) if BY_NAME[n].engine == giver and f["push"] >> taker & 1]
        changed = [(n, dict(f)) for n, f in program]
        changed[j][1]["pop"] &= ~(1 << giver)
        changed[pushes[number]][1]["push"] &= ~(1 << taker)
        with pytest.raises(VerifyError, match=r"without waiting for it|HALT does not wait"):
            check_tokens(encoded(changed), compiled.arch.sram_bytes, compiled.meta["pool_size"])


def test_unbalanced_tokens_are_refused(compiled: CompiledProgram) -> None:
    program = fields_of(compiled)
    limits = compiled.arch.sram_bytes, compiled.meta["pool_size"]
    first = next(i for i, (_, f) in enumerate(program) if f["push"])
    without_push = [(n, dict(f)) for n, f in program]
    without_push[first][1]["push"] = 0
    with pytest.raises(VerifyError, match=r"never given"):
        check_tokens(encoded(without_push), *limits)
    with pytest.raises(InstructionError, match="deadlock"):
        schedule(without_push, compiled.arch)
    extra = [(n, dict(f)) for n, f in program]
    extra[first][1]["push"] = 0xF
    with pytest.raises(VerifyError, match=r"never taken|without waiting|never given"):
        check_tokens(encoded(extra), *limits)


def test_adversarial_orders_give_the_same_bits(compiled: CompiledProgram) -> None:
    """Any order that the tokens allow: engines served by four priorities and at random."""
    reference = None
    for seed in range(8):
        machine = Machine(to_bytes(compiled))
        machine.write_tensor("input", np.random.default_rng(1).integers(-128, 128, (48, 64, 3)).astype(np.int8))
        run_out_of_order(machine, seed)
        result = np.concatenate([machine.read_tensor(t).ravel() for t in ("head1", "head2")])
        reference = result if reference is None else reference
        np.testing.assert_array_equal(result, reference)
    in_order = Machine(to_bytes(compiled))
    in_order.write_tensor("input", np.random.default_rng(1).integers(-128, 128, (48, 64, 3)).astype(np.int8))
    in_order.run(in_order.meta["partitions"][0])
    np.testing.assert_array_equal(
        np.concatenate([in_order.read_tensor(t).ravel() for t in ("head1", "head2")]), reference
    )


def run_out_of_order(machine: Machine, seed: int) -> None:
    """Serves the four queues in an order of its own, as far as tokens allow."""
    random = np.random.default_rng(seed)
    program = [decode(one) for one in machine.stream]
    queues = {e: [i for i, (ins, _) in enumerate(program) if ins.engine == e] for e in Engine}
    tokens = {(a, b): 0 for a in Engine for b in Engine}
    priority = list(random.permutation(list(Engine)))
    while any(queues.values()):
        order = priority if seed < 4 else list(random.permutation(list(Engine)))
        for engine in (Engine(e) for e in order):
            if not queues[engine]:
                continue
            instruction, fields = program[queues[engine][0]]
            needed = [(o, engine) for o in Engine if fields["pop"] >> o & 1]
            if all(tokens[pair] for pair in needed):
                for pair in needed:
                    tokens[pair] -= 1
                queues[engine].pop(0)
                if instruction.name != "HALT":
                    getattr(machine, f"_{instruction.name.lower()}")(fields)
                for other in Engine:
                    tokens[(engine, other)] += fields["push"] >> other & 1
                break
        else:
            raise AssertionError("deadlock")
    assert not any(tokens.values())


def test_region_overlap_is_exact() -> None:
    left = Region("sram", 0, 4, 256, 8, 32, 16)
    right = Region("sram", 16, 4, 256, 8, 32, 16)  # the other half of every pixel
    assert not left.overlaps(right) and left.overlaps(left)
    assert not left.overlaps(Region("pool", 0, 4, 256, 8, 32, 16))
    assert left.overlaps(Region("sram", 16, 1, 0, 1, 0, 17)) and not left.overlaps(Region("sram", 16, 1, 0, 1, 0, 16))


def test_accesses_of_every_instruction(compiled: CompiledProgram) -> None:
    seen = set()
    for name, fields in fields_of(compiled):
        reads, writes = accesses(name, fields)
        seen.add(name)
        assert len(writes) == (0 if name == "HALT" else 1)
        assert all(r.end > r.base for r in (*reads, *writes))
    assert any(fields.get("residual") for _, fields in fields_of(compiled))
    assert {"LOAD", "LOAD_FOLD", "CONV", "DEPTHWISE", "POOL", "ELTWISE", "RESIZE", "STORE", "HALT"} <= seen
