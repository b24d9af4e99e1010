"""Builds and drives the HLS engines for the tests, and a random on-chip memory to lay operands out in.

NPUFORGE_SANITIZE=1 builds with clang's address and undefined-behaviour sanitizers (see hw_kernels/hls/README.md for the command).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from npuforge.hw_kernels.isa.codec import encode
from npuforge.hw_kernels.isa.generate import header_text

ROOT = Path(__file__).resolve().parents[2]
HLS = ROOT / "hw_kernels" / "hls"
SRAM_BYTES = 1 << 19
CODES = [
    "OK",
    "UNKNOWN_OPCODE",
    "RESERVED_BITS",
    "ILLEGAL_VALUE",
    "MISALIGNED",
    "OUT_OF_BOUNDS",
    "BAD_PARAMETER",
    "NO_HALT",
    "EARLY_HALT",
    "DEADLOCK",
    "TOKEN_OVERFLOW",
    "TOKEN_LEFT",
]
PROGRAM_ORDER, LOAD_FIRST, STORE_LAST, RANDOM = range(4)


def compile_cpp(source: Path, output: Path, *flags: str) -> None:
    """Compiles with the generated header beside the output; warnings are errors."""
    output.parent.mkdir(parents=True, exist_ok=True)
    (output.parent / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    sanitize = os.environ.get("NPUFORGE_SANITIZE")
    base = ["clang++", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-shared-libsan"]
    compiler = base if sanitize else ["g++"]
    optimise = ["-O1"] if sanitize else ["-O2"]
    warnings = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    paths = ["-I", str(output.parent), "-I", str(HLS)]
    subprocess.run([*compiler, *optimise, *warnings, *paths, *flags, str(source), "-o", str(output)], check=True)


@lru_cache(maxsize=1)
def harness() -> ctypes.CDLL:
    """The compiled harness; one build per state of the sources and user, shared by parallel test workers."""
    digest = hashlib.sha256(header_text().encode())
    source = Path(__file__).with_name("hls_harness.cpp")
    for path in [source, *sorted(HLS.glob("*.hpp"))]:
        digest.update(path.read_bytes())
    kind = "san" if os.environ.get("NPUFORGE_SANITIZE") else "plain"
    cache = Path(tempfile.gettempdir()) / f"npuforge-tests-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise PermissionError(f"{cache} belongs to somebody else")
    library = cache / f"hls_{kind}_{digest.hexdigest()[:16]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            compile_cpp(source, Path(folder) / "hls.so", "-shared", "-fPIC")
            (Path(folder) / "hls.so").replace(library)
    loaded = ctypes.CDLL(str(library))
    loaded.harness_field_name.restype = ctypes.c_char_p
    return loaded


@dataclass
class Outcome:
    """Status and memories after a run."""

    code: str
    field: str
    instruction: int
    sram: np.ndarray
    pool: np.ndarray


def run(
    instructions: list[bytes],
    *,
    sram: np.ndarray | None = None,
    pool: np.ndarray | None = None,
    data: bytes = b"",
    policy: int = PROGRAM_ORDER,
    seed: int = 1,
    pixels: int = 2,
    halt: bool = True,
) -> Outcome:
    """Runs a program; DDR region 0 is `data` followed by the instructions (at the next multiple of 128)."""
    program = b"".join(instructions) + (encode("HALT") if halt else b"")
    address = -(-len(data) // 128) * 128
    image = np.frombuffer(data.ljust(address, b"\0") + program, np.int8).copy()
    sram = np.zeros(SRAM_BYTES, np.int8) if sram is None else sram.copy()
    pool = np.zeros(16, np.int8) if pool is None else pool.copy()
    status = (ctypes.c_uint32 * 3)()

    def pointer(array: np.ndarray) -> Any:
        return array.ctypes.data_as(ctypes.c_void_p)

    arguments = [pointer(image), image.size, pointer(pool), pool.size, pointer(sram), sram.size]
    library = harness()
    assert library.harness_run(*arguments, address, len(program) // 128, policy, seed, pixels, status) == 0
    return Outcome(CODES[status[0]], library.harness_field_name(status[1]).decode(), status[2], sram, pool)


class Memory:
    """On-chip memory filled with noise; regions are handed out one behind the other with random gaps."""

    def __init__(self, random: np.random.Generator, size: int = SRAM_BYTES) -> None:
        self.random = random
        self.bytes = np.frombuffer(random.bytes(size), np.int8).copy()
        self.top = 0

    def reserve(self, size: int) -> int:
        """A free, 16-byte aligned region."""
        start = self.top + 16 * int(self.random.integers(0, 4))
        self.top = -(-(start + size) // 16) * 16
        assert self.top <= self.bytes.size, "the test case does not fit"
        return start

    def put(self, array: np.ndarray) -> int:
        """Copies the bytes of an array in; gives its address."""
        raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.int8)
        start = self.reserve(raw.size)
        self.bytes[start : start + raw.size] = raw
        return start


@dataclass
class View:
    """A feature map [h, w, lanes] somewhere in memory."""

    address: int
    row_stride: int
    pixel_stride: int
    shape: tuple[int, int, int]

    def indices(self) -> np.ndarray:
        """Byte index of every element."""
        h, w, lanes = self.shape
        rows = np.arange(h)[:, None, None] * self.row_stride
        return self.address + rows + np.arange(w)[None, :, None] * self.pixel_stride + np.arange(lanes)[None, None, :]

    def fields(self, prefix: str) -> dict[str, int]:
        """`in_*` or `out_*` address fields of an instruction."""
        return {
            f"{prefix}_addr": self.address,
            f"{prefix}_row_stride": self.row_stride,
            f"{prefix}_pixel_stride": self.pixel_stride,
        }


def reserve_view(memory: Memory, h: int, w: int, blocks: int) -> View:
    """A map with random gaps between pixels and rows, as a view into a wider buffer has."""
    lanes = 16 * blocks
    pixel_stride = lanes + 16 * int(memory.random.integers(0, 3))
    row_stride = w * pixel_stride + 16 * int(memory.random.integers(0, 3))
    shift = 16 * int(memory.random.integers(0, (pixel_stride - lanes) // 16 + 1))
    address = memory.reserve(h * row_stride + shift) + shift
    return View(address, row_stride, pixel_stride, (h, w, lanes))


def put_view(memory: Memory, values: np.ndarray) -> View:
    """A map with the given int8 values [h, w, lanes]."""
    h, w, lanes = values.shape
    view = reserve_view(memory, h, w, lanes // 16)
    memory.bytes[view.indices()] = values
    return view
