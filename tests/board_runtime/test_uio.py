"""The device `uio` on a stand-in for the hardware (board/): the HLS code itself behind a register file and a memory. No board was run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
import npuforge.board_runtime._native as native
from board_stand_in import ARCH, ATTRIBUTES, MEMORY_BYTES, PHYSICAL, StandIn, running
from tiny_model import CHANNELS, CONSTANT, LOAD, VECTOR, H, TinyModel, W, copy_program

from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import ArchError, DeviceError, InstructionError, UsageError
from npuforge.hw_kernels.isa.binfile import BinWriter, Dtype
from npuforge.hw_kernels.isa.codec import encode
from npuforge.hw_kernels.isa.instructions import ISA_VERSION

MODEL = TinyModel(second=True, arch=ARCH)
IMAGE = MODEL.build()


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (1, CHANNELS, H, W)).astype(np.float32)


def open_board(board: StandIn, image: bytes = IMAGE) -> Session:
    return Session(image, device="uio", board=board.board)


def right(found: dict[str, np.ndarray], x: np.ndarray, model: TinyModel = MODEL) -> None:
    """What the NPU leaves is what numpy says, bit for bit, and its sigmoid on the CPU but for rounding; every bit is that of `sim`."""
    *_, last = expected = model.expected(x)
    np.testing.assert_array_equal(found[last], expected[last])
    np.testing.assert_allclose(found["o"], expected["o"], rtol=1e-6)
    simulated = Session(model.build()).run([x])
    assert found.keys() == simulated.keys()
    for name, value in simulated.items():
        assert found[name].tobytes() == value.tobytes()


def with_program(program: list[bytes]) -> bytes:
    """The tiny network with other instructions in its one NPU partition."""
    model = TinyModel(arch=ARCH)
    meta = model.meta()
    meta["partitions"][0]["instruction_count"] = len(program)
    meta["layers"] = []
    writer = BinWriter()
    writer.add("instructions", Dtype.INSTRUCTIONS, b"".join(program))
    writer.add("C0000", Dtype.FLOAT32, CONSTANT.astype("<f4").tobytes())
    writer.add("C0001", Dtype.INT32, np.array([0, CHANNELS, -1], "<i4").tobytes())
    writer.add("meta", Dtype.JSON, json.dumps(meta).encode())
    return writer.to_bytes()


@pytest.mark.parametrize("interrupt", [False, True], ids=["polled", "interrupt"])
def test_outputs(interrupt: bool, tmp_path: Path) -> None:
    """What the tiny network computes is plain numpy. Two NPU partitions, so that what the first left in the pool is there for the second."""
    with running(tmp_path, interrupt=interrupt) as board:
        session = open_board(board)
        for seed in range(6):
            right(session.run([values(seed)]), values(seed))


def test_cache_is_synchronised(tmp_path: Path) -> None:
    with running(tmp_path) as board:
        session = open_board(board)
        assert [board.said(f"memory/{name}") for name in ATTRIBUTES] == ["0", str(len(IMAGE)), "0", "1", "0"]
        session.run([values(0)])
        offset = -(-len(IMAGE) // 4096) * 4096
        assert [board.said(f"memory/{name}") for name in ATTRIBUTES] == [str(offset), "4096", "0", "1", "1"]
        assert (board.folder / "memory").read_bytes()[: len(IMAGE)] == IMAGE


def test_cache_off(tmp_path: Path) -> None:
    with running(tmp_path) as board:
        board.write(memory__cache="off")
        right(open_board(board).run([values(1)]), values(1))
        assert [board.said(f"memory/{name}") for name in ATTRIBUTES] == ["0"] * 5
        board.say("memory/sync_mode", 1)
        with pytest.raises(
            DeviceError, match=r"sync_mode: with cache off expected 2 .* or 3 .*, found 1; write 2 to it"
        ):
            open_board(board)


def test_what_leaves_the_npu_is_traced(tmp_path: Path) -> None:
    """The layer whose output is the partition's, with the bytes that `csim` traces; the one inside is not to be had."""
    with running(tmp_path) as board:
        image = TinyModel(arch=ARCH).build()
        session = open_board(board, image)
        assert not session.native.traces_layers and Session(image).native.traces_layers
        outputs, (record,) = session.trace([values(2)])
        _, all_layers = Session(image, device="csim").trace([values(2)])
        right(outputs, values(2), TinyModel(arch=ARCH))
        (pooled,) = (r for r in all_layers if r.name == "copy1")
        assert record.tensor == "y" and record.pad_lane_errors == 0
        np.testing.assert_array_equal(record.data, pooled.data)


def test_threads(tmp_path: Path) -> None:
    """Jobs of four threads on one hardware: each gets its own results."""
    with running(tmp_path) as board:
        session = open_board(board)
        simulator, wrong = Session(IMAGE), list[int]()

        def work(thread: int) -> None:
            for seed in range(10 * thread, 10 * thread + 8):
                found, expected = session.run([values(seed)]), simulator.run([values(seed)])
                wrong.extend(seed for name in expected if not np.array_equal(found[name], expected[name]))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert "npuforge_requests_total" in session.prometheus()


def test_one_session_at_a_time(tmp_path: Path) -> None:
    """Of this process and of others; the next one may as soon as the first has gone."""
    with running(tmp_path) as board:
        first = open_board(board)
        busy = r"memory is in use by another session or process, and one at a time drives the hardware; end that one"
        with pytest.raises(DeviceError, match=busy):
            open_board(board)
        file = tmp_path / "model.bin"
        file.write_bytes(IMAGE)
        code = "import sys; from npuforge.board_runtime.session import Session; Session(sys.argv[1], 'uio', board=sys.argv[2])"
        other = [sys.executable, "-c", code, file, board.board]
        refused = subprocess.run(other, capture_output=True, text=True)
        assert refused.returncode == 1 and "one at a time drives the hardware" in refused.stderr.splitlines()[-1]
        right(first.run([values(3)]), values(3))
        del first
        subprocess.run(other, check=True)
        right(open_board(board).run([values(3)]), values(3))


@pytest.mark.parametrize("interrupt", [False, True], ids=["polled", "interrupt"])
def test_no_answer(interrupt: bool, tmp_path: Path) -> None:
    """The second job never ends: an error in time, the next says why it cannot start, and so does a new session."""
    with running(tmp_path, "hang=1", interrupt=interrupt) as board:
        board.write(timeout_ms=1000)
        session = open_board(board)
        start = time.monotonic()
        with pytest.raises(
            DeviceError, match=r"has not answered within 1000 ms \(control register 0x0\); load the overlay"
        ):
            session.run([values(0)])
        assert 1 <= time.monotonic() - start < 30
        stuck = r"the hardware is not idle \(control register 0x0\): an earlier job has not ended"
        with pytest.raises(DeviceError, match=stuck):
            session.run([values(0)])
        del session
        with pytest.raises(DeviceError, match=stuck):
            open_board(board)


def test_hardware_that_is_not_there(tmp_path: Path) -> None:
    """Registers that say idle, and nobody behind them."""
    board = StandIn(tmp_path)
    (tmp_path / "registers").write_bytes(b"\x04" + bytes((1 << 16) - 1))
    board.write(timeout_ms=50)
    with pytest.raises(DeviceError, match="has not answered within 50 ms"):
        open_board(board)


def test_ending_a_runner_with_a_job_in_flight(tmp_path: Path) -> None:
    """It waits for the job, which ends with the time-out, and cancels the rest."""
    with running(tmp_path, "hang=1") as board:
        board.write(timeout_ms=1000)
        session = open_board(board)
        runner = native.Runner(session.native)
        inputs, outputs = (
            [np.zeros(tensor["dims"], tensor["dtype"]) for tensor in tensors]
            for tensors in (runner.get_input_tensors(), runner.get_output_tensors())
        )
        start = time.monotonic()
        for _ in range(3):
            runner.execute_async(inputs, outputs)
        time.sleep(0.1)
        del runner
        assert 0.9 < time.monotonic() - start < 30


def test_instructions_that_only_the_hardware_refuses(tmp_path: Path) -> None:
    """Nothing is wrong with each alone: tokens. The words are those of `csim`, and the hardware takes the next job."""
    load, copy, store, halt = copy_program(0, 1024)
    size = {"rows": H, "cols": W, "chunk": 16}
    near = {"sram_row_stride": 16 * W, "sram_col_stride": 16, "ddr_row_stride": 16 * W, "ddr_col_stride": 16}
    waits = encode("STORE", region=1, ddr_addr=1024, sram_addr=4096, pop=LOAD | VECTOR, **size, **near)
    left = encode("LOAD", region=1, ddr_addr=0, sram_addr=0, push=VECTOR | LOAD, **size, **near)
    for number, instructions in enumerate(([load, copy, waits, halt], [left, copy, store, halt])):
        image = with_program(instructions)
        with pytest.raises(InstructionError) as expected:
            Session(image, device="csim").run([values(0)])
        with running(tmp_path / str(number)) as board:
            session = open_board(board, image)
            for _ in range(2):
                with pytest.raises(InstructionError) as found:
                    session.run([values(0)])
                assert str(found.value) == str(expected.value)
            assert ("deadlock", "token")[number] in str(found.value)


def test_illegal_instructions_do_not_reach_the_hardware(tmp_path: Path) -> None:
    """Refused with `csim`'s words when the session is opened: the board is not touched, so it need not be there."""
    board = StandIn(tmp_path)
    image = with_program([*copy_program(0, 1 << 20)[:3], encode("HALT")])
    with pytest.raises(InstructionError) as expected:
        Session(image, device="csim")
    with pytest.raises(InstructionError) as found:
        open_board(board, image)
    assert str(found.value) == str(expected.value) and "leave the memory" in str(found.value)
    assert (tmp_path / "memory").read_bytes() == bytes(MEMORY_BYTES)


def test_status_words_without_meaning(tmp_path: Path) -> None:
    with running(tmp_path, "wrong=1") as board:
        session = open_board(board)
        with pytest.raises(DeviceError, match="the status words 85, 0, 0 are none that npu_top gives"):
            session.run([values(0)])
    with running(tmp_path / "other", "wrong=0") as board:
        refused = pytest.raises(DeviceError, match="an empty program was answered with status 85, expected 7")
        with refused:
            open_board(board)


def test_another_overlay(tmp_path: Path) -> None:
    with running(tmp_path, f"isa={ISA_VERSION + 1}") as board:
        with pytest.raises(
            ArchError, match=rf"the overlay says ISA version {ISA_VERSION + 1}, expected {ISA_VERSION};"
        ):
            open_board(board)
        board.write(isa_version=ISA_VERSION + 1)
        with pytest.raises(
            ArchError, match=rf"isa_version: expected {ISA_VERSION} of this runtime, found {ISA_VERSION + 1}"
        ):
            open_board(board)
        board.write(arch=board.description()["arch"] | {"pixel_parallel": 4})
        with pytest.raises(ArchError, match="pixel_parallel expected 4, found 8"):
            open_board(board)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("sys/memory/size", "4096\n", r"memory has 4096 bytes, this network needs 12288 \(8192 for the \.bin, 4096 for its pool\)"),
        ("sys/memory/size", "many\n", "memory/size: expected a number, found 'many'"),
        ("sys/memory/phys_addr", "", "phys_addr: cannot be read"),
        ("memory", "short", "memory: expected 12288 bytes or more, found 5"),
        ("registers", "short", "registers: expected 96 bytes or more, found 5"),
        ("sys/uio/maps/map0/size", "0x40\n", "registers maps 64 bytes, the registers take 96; is it the node of npu_top?"),
        ("sys/uio/name", "dma\n", "name: expected npu_top, found dma; the nodes are numbered anew"),
    ],
)  # fmt: skip
def test_wrong_sizes_and_names(file: str, content: str, words: str, tmp_path: Path) -> None:
    board = StandIn(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(DeviceError, match=words) as error:
        open_board(board)
    assert "\n" not in str(error.value)


def test_addresses_of_32_bits(tmp_path: Path) -> None:
    board = StandIn(tmp_path)
    board.write(registers__address_bits=32)
    board.say("memory/phys_addr", hex((1 << 32) - 4096))
    with pytest.raises(DeviceError, match="ends at 0x100002000, beyond the 32 address bits of this kernel"):
        open_board(board)
    assert PHYSICAL < 1 << 32
    with running(tmp_path / "runs") as board:
        board.write(registers__address_bits=32)
        right(open_board(board).run([values(4)]), values(4))


@pytest.mark.parametrize(
    "file", ["memory", "registers", "board.json", "sys/memory/size", "sys/uio/maps/map0/size", "sys/memory/sync_size"]
)
def test_missing_files(file: str, tmp_path: Path) -> None:
    board = StandIn(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(DeviceError, match=rf"{file}:? cannot be (read|opened) \(No such file or directory\);") as error:
        open_board(board)
    assert "\n" not in str(error.value)


def test_node_that_gives_no_interrupt(tmp_path: Path) -> None:
    with running(tmp_path) as board:
        board.write(uio__interrupt="/dev/full", timeout_ms=300)
        with pytest.raises(DeviceError, match=r'/dev/full gives no interrupt .*; leave "interrupt" out of'):
            open_board(board)


def test_interrupt_that_never_comes(tmp_path: Path) -> None:
    """A job that ends, and a node that is silent: told when the session is opened, not as a slow board."""
    ends = os.openpty()
    with running(tmp_path) as board:
        silent = board.write(uio__interrupt=os.ttyname(ends[1]), timeout_ms=1000)
        with pytest.raises(
            DeviceError, match=r'gives no interrupt \(the job has ended and none came\); leave "interrupt"'
        ):
            Session(IMAGE, device="uio", board=silent)
        board.write()
        right(open_board(board).run([values(0)]), values(0))
    for end in ends:
        os.close(end)


def test_kernel_that_waits_to_continue(tmp_path: Path) -> None:
    with running(tmp_path, "chain=1") as board:
        session = open_board(board)
        with pytest.raises(DeviceError, match=r"the hardware is not idle \(control register 0x2\)"):
            session.run([values(0)])
    with running(tmp_path / "told", "chain=1") as board:
        board.write(registers__ap_continue=True)
        session = open_board(board)
        for seed in range(3):
            right(session.run([values(seed)]), values(seed))


def test_wrong_calls(tmp_path: Path) -> None:
    board = StandIn(tmp_path)
    with pytest.raises(UsageError, match=r"device uio: give the description of the board, --board board\.json"):
        Session(IMAGE, device="uio")
    with pytest.raises(UsageError, match=r"board .*: device csim has none; it belongs to uio"):
        Session(IMAGE, device="csim", board=board.board)
    with pytest.raises(UsageError, match="simulator level avx2: device uio has none"):
        Session(IMAGE, device="uio", level="avx2", board=board.board)
    with pytest.raises(UsageError, match="device: expected sim, csim or uio, found 'gpu'"):
        Session(IMAGE, device="gpu")
