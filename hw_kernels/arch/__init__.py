"""Hardware configurations: loading, strict checks, everything derived from them, fingerprint. The JSON holds independent parameters only."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from npuforge.compile.ir.errors import ArchError, UnknownArchError
from npuforge.compile.ir.plain_text import DuplicateKeyError, parse_json
from npuforge.hw_kernels.isa.instructions import ISA_VERSION

if not __name__.startswith("npuforge."):
    raise ImportError(f"import this package as npuforge.hw_kernels.arch, not as {__name__}")

LANES = 16  # int8 lanes of one channel block: fixed by the instruction set
BLOCK_BYTES = 16
ADDRESS_ALIGNMENT = 64
ARCH_FOLDER = Path(__file__).parent

# key -> (smallest, largest, must be a power of two)
_INTEGERS = {
    "pixel_parallel": (1, 64, True),
    "vector_pixels": (1, 64, True),
    "sram_bytes": (65536, 1 << 28, False),
    "axi_ports": (1, 16, True),
    "axi_bits": (128, 1024, True),
    "clock_mhz": (1, 2000, False),
    "ddr_latency_cycles": (0, 10000, False),
}
KEYS = ("name", *_INTEGERS, "features")
FEATURES = ("bf16", "decode", "depthwise")


@dataclass(frozen=True)
class Arch:
    """One configuration. Independent parameters are the fields; what follows from them are the properties."""

    name: str
    pixel_parallel: int
    vector_pixels: int
    sram_bytes: int
    axi_ports: int
    axi_bits: int
    clock_mhz: int
    ddr_latency_cycles: int
    features: tuple[str, ...] = ()

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates of the convolution array per cycle."""
        return LANES * LANES * self.pixel_parallel

    @property
    def bf16(self) -> bool:
        """Whether it has the bf16 engines."""
        return "bf16" in self.features

    @property
    def bf16_pixel_parallel(self) -> int:
        """Pixels of the array per cycle in bf16: a block is two on-chip words, so half of them."""
        return max(1, self.pixel_parallel // 2)

    @property
    def bf16_vector_pixels(self) -> int:
        """The same of the vector engine."""
        return max(1, self.vector_pixels // 2)

    @property
    def beat_bytes(self) -> int:
        """Bytes of one transfer on one AXI port."""
        return self.axi_bits // 8

    @property
    def ddr_bytes_per_cycle(self) -> int:
        """Peak DDR bandwidth, shared by the load and the store engine."""
        return self.axi_ports * self.beat_bytes

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of the SHA-256 of the canonical JSON and the ISA version."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")) + f"|isa{ISA_VERSION}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The arch JSON (independent parameters)."""
        return {**asdict(self), "features": list(self.features)}


def from_json(data: Any, where: str = "arch") -> Arch:
    """Checks every key and value; ArchError names the key, what was expected and the legal keys."""
    if not isinstance(data, dict):
        raise ArchError(f"{where}: expected a JSON object with the keys {', '.join(KEYS)}, found {type(data).__name__}")
    unknown = [key for key in data if key not in KEYS]
    if unknown:
        raise ArchError(f"{where}: unknown key {unknown[0]!r}; legal keys: {', '.join(KEYS)}")
    missing = [key for key in KEYS if key not in data]
    if missing:
        raise ArchError(f"{where}: missing key {missing[0]!r}; legal keys: {', '.join(KEYS)}")
    if not isinstance(data["name"], str) or not data["name"]:
        raise ArchError(f"{where}: key 'name': expected a non-empty string, found {data['name']!r}")
    for key, (low, high, power) in _INTEGERS.items():
        value = data[key]
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not low <= value <= high
            or (power and value & (value - 1))
        ):
            kind = "a power of two" if power else "an integer"
            raise ArchError(f"{where}: key {key!r}: expected {kind} in {low}..{high}, found {value!r}")
    if data["sram_bytes"] % ADDRESS_ALIGNMENT:
        raise ArchError(
            f"{where}: key 'sram_bytes': expected a multiple of {ADDRESS_ALIGNMENT}, found {data['sram_bytes']}"
        )
    features = data["features"]
    if (
        not isinstance(features, list)
        or any(f not in FEATURES for f in features)
        or len(set(features)) != len(features)
    ):
        raise ArchError(
            f"{where}: key 'features': expected a list of different values of {', '.join(FEATURES)}, found {features!r}"
        )
    return Arch(**{**data, "features": tuple(sorted(features))})


def names() -> list[str]:
    """The configurations that come with the kit."""
    return sorted(path.stem for path in ARCH_FOLDER.glob("*.json"))


def load(name_or_path: str | Path) -> Arch:
    """A configuration by name (`nf-b4096`, else UnknownArchError) or by the path of its JSON file (else ArchError)."""
    text = str(name_or_path)
    path = Path(text) if text.endswith(".json") else ARCH_FOLDER / f"{text}.json"
    if not path.is_file():
        refusal = ArchError if text.endswith(".json") else UnknownArchError
        raise refusal(
            f"arch {text!r}: no such configuration; known: {', '.join(names())}, or give the path of a .json file"
        )
    try:
        data = parse_json(path.read_text(encoding="utf-8"), str(path), _refuse_constant)
    except DuplicateKeyError as error:
        raise ArchError(str(error)) from None
    except (OSError, ValueError) as error:
        raise ArchError(f"{path}: not a readable JSON file ({error})") from None
    return from_json(data, str(path))


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def difference(a: Arch, b: Arch) -> list[str]:
    """One line per parameter that differs, empty if the fingerprints agree; the name alone counts too."""
    left, right = a.to_json(), b.to_json()
    return [f"{key}: {left[key]!r} != {right[key]!r}" for key in KEYS if left[key] != right[key]]
