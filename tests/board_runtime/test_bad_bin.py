"""Damaged `.bin` files: the Python reader and the C++ loader refuse the same bytes at the same place; what both accept never crashes a device.

test_loader.py holds the C++ loader's own messages; this file holds the two readers against each other and against devices.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("npuforge.board_runtime._native", reason="the native module is not built")
from tiny_model import TinyModel

from npuforge.board_runtime import _native
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import ArchError, FormatError
from npuforge.hw_kernels import arch as arches
from npuforge.hw_kernels.isa.binfile import parse_bin, refresh_crc

IMAGE = TinyModel(second=True).build()
PLACE = re.compile(r"\.bin at 0x([0-9a-f]+): (.*)")


def refusals(image: bytes) -> tuple[str, str]:
    """What the Python reader and the C++ loader say."""
    said = []
    for reader in (parse_bin, _native.Program.parse):
        with pytest.raises(FormatError) as caught:
            reader(image)
        said.append(str(caught.value))
    return said[0], said[1]


@pytest.mark.parametrize("bit", [0, 7])
def test_every_flipped_byte_is_refused_at_the_same_place(bit: int) -> None:
    assert list(parse_bin(IMAGE).sections) and _native.Program.parse(IMAGE).name == "tiny"
    for position in range(len(IMAGE)):
        damaged = IMAGE[:position] + bytes([IMAGE[position] ^ 1 << bit]) + IMAGE[position + 1 :]
        python, native = (PLACE.match(text) for text in refusals(damaged))
        assert python and native, position
        assert python[1] == native[1], (position, python[0], native[0])
        assert len(python[2]) > 20 and len(native[2]) > 20 and "\n" not in python[0] + native[0]


def test_every_length_is_refused() -> None:
    for size in (*range(0, 300, 7), *range(300, len(IMAGE), 211), len(IMAGE) - 1):
        refusals(IMAGE[:size])
    refusals(IMAGE + b"\0")


def test_every_byte_of_another_value_is_refused() -> None:
    """Not one bit, the whole byte inverted: CRC-32 finds any burst of up to 32 bits, wherever it lies."""
    for position in range(0, len(IMAGE), 3):
        refusals(IMAGE[:position] + bytes([IMAGE[position] ^ 0xFF]) + IMAGE[position + 1 :])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "other"),
        ("pixel_parallel", 4),
        ("vector_pixels", 4),
        ("sram_bytes", 1 << 20),
        ("axi_ports", 4),
        ("axi_bits", 256),
        ("clock_mhz", 123),
        ("ddr_latency_cycles", 77),
        ("features", ["bf16"]),
    ],
)
def test_another_arch_names_the_one_parameter_that_differs(key: str, value: Any) -> None:
    own = arches.load("nf-b1024").to_json()
    other = own | {key: value}
    assert other != own
    Session(IMAGE, expected_arch=own)
    with pytest.raises(ArchError) as caught:
        Session(IMAGE, expected_arch=other)
    text = str(caught.value)
    assert re.search(rf"\b{key} expected ", text) and "recompile with --arch" in text
    assert not [k for k in own if k != key and re.search(rf"\b{k} expected", text)]


RUNNER = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from tiny_model import TinyModel
from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import NpuforgeError
from npuforge.hw_kernels.isa.binfile import refresh_crc
device, first, step, bit = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
image = TinyModel(second=True).build()
refused = ran = 0
for position in range(16 + first, len(image) - 4, step):
    damaged = refresh_crc(image[:position] + bytes([image[position] ^ 1 << bit]) + image[position + 1:])
    print(position, file=sys.stderr, flush=True)
    try:
        session = Session(damaged, device=device)
        session.run([np.zeros(spec.shape, np.float32) for spec in session.inputs])
        ran += 1
    except NpuforgeError as error:
        assert len(str(error)) > 15 and "\\n" not in str(error), error
        refused += 1
print(refused, ran)
"""


@pytest.mark.parametrize(("device", "step"), [("sim", 3), ("csim", 7)])
@pytest.mark.parametrize("bit", [0, 4, 7])
def test_damage_with_a_right_checksum_is_refused_or_runs(device: str, step: int, bit: int) -> None:
    """A byte of table, meta, instructions or constants changed and the CRC made right: a typed error, or an inference; never a crash or a hang.

    In a process of its own, so that a crash would be seen as one. (That a changed instruction or parameter changes the output is the ladder's test.)
    """
    command = [sys.executable, "-c", RUNNER, str(Path(__file__).parent), device, str(bit % step), str(step), str(bit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"byte {done.stderr.splitlines()[-1]}: {done.returncode}\n{done.stderr[-600:]}"
    refused, ran = (int(word) for word in done.stdout.split())
    assert refused > 4 * ran > 0


def test_a_damaged_checksum_is_the_last_thing_found() -> None:
    """A wrong field is named as such, although the CRC is wrong as well."""
    damaged = bytearray(IMAGE)
    damaged[0x10 + 40] = 99  # dtype of the first section
    for text in refusals(bytes(damaged)):
        assert "dtype expected 1..9, found 99" in text
    for text in refusals(refresh_crc(bytes(damaged))):
        assert "dtype expected 1..9, found 99" in text
