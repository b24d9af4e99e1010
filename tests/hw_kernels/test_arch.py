"""Arch files: strict loading, derived values, fingerprint, differences."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from npuforge.compile.ir.errors import ArchError
from npuforge.hw_kernels import arch
from npuforge.hw_kernels.isa.instructions import ISA_VERSION

GOOD = arch.load("nf-b4096").to_json()


def test_the_two_configurations_of_the_kit() -> None:
    assert arch.names() == ["nf-b1024", "nf-b1024-bf16", "nf-b4096", "nf-b4096-bf16"]
    for name in ("nf-b1024", "nf-b4096"):
        plain, with_bf16 = arch.load(name), arch.load(f"{name}-bf16")
        assert [line.split(":")[0] for line in arch.difference(plain, with_bf16)] == ["name", "features"]
        assert plain.fingerprint != with_bf16.fingerprint and with_bf16.bf16 and not plain.bf16
    small, large = arch.load("nf-b1024"), arch.load("nf-b4096")
    assert (small.macs_per_cycle, large.macs_per_cycle) == (512, 2048)
    assert (small.ddr_bytes_per_cycle, large.ddr_bytes_per_cycle) == (16, 32)
    assert (small.sram_bytes, large.sram_bytes) == (512 * 1024, 2 * 1024 * 1024)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pixel_paralel": 8}, "unknown key 'pixel_paralel'; legal keys: name, pixel_parallel"),
        ({"pixel_parallel": None}, "missing key 'pixel_parallel'; legal keys"),
        ({"pixel_parallel": 3}, "'pixel_parallel': expected a power of two in 1..64, found 3"),
        ({"pixel_parallel": True}, "'pixel_parallel': expected a power of two"),
        ({"clock_mhz": "300"}, "'clock_mhz': expected an integer in 1..2000, found '300'"),
        ({"clock_mhz": 300.0}, "'clock_mhz': expected an integer"),
        ({"sram_bytes": 100001}, "'sram_bytes': expected a multiple of 64"),
        ({"sram_bytes": 64}, "'sram_bytes': expected an integer in 65536"),
        ({"name": ""}, "'name': expected a non-empty string"),
        ({"features": ["fp64"]}, "'features': expected a list of different values of bf16, decode, depthwise"),
        ({"features": ["bf16", "bf16"]}, "'features'"),
    ],
)
def test_wrong_keys_and_values_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    data = GOOD | change
    data = {k: v for k, v in data.items() if v is not None}
    path = tmp_path / "board.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ArchError) as caught:
        arch.load(path)
    assert message in str(caught.value) and "board.json" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "<html>", '{"name": NaN}', "\x00\x01"])
def test_not_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    path.write_text(text)
    with pytest.raises(ArchError, match="not a readable JSON file"):
        arch.load(path)


def test_unknown_name_and_wrong_type() -> None:
    with pytest.raises(ArchError, match="known: nf-b1024, nf-b1024-bf16, nf-b4096, nf-b4096-bf16"):
        arch.load("nf-b2048")
    with pytest.raises(ArchError, match="expected a JSON object"):
        arch.from_json([1, 2])


def test_fingerprint_is_of_the_canonical_json_and_the_isa_version() -> None:
    large = arch.load("nf-b4096")
    text = json.dumps(GOOD, sort_keys=True, separators=(",", ":")) + f"|isa{ISA_VERSION}"
    assert large.fingerprint == hashlib.sha256(text.encode()).hexdigest()[:16]
    shuffled = arch.from_json(dict(reversed(list(GOOD.items()))))
    assert shuffled.fingerprint == large.fingerprint
    for key, value in {"clock_mhz": 299, "features": ["bf16"], "sram_bytes": 65536, "name": "x"}.items():
        assert arch.from_json(GOOD | {key: value}).fingerprint != large.fingerprint


def test_difference_names_the_parameters() -> None:
    small, large = arch.load("nf-b1024"), arch.load("nf-b4096")
    lines = arch.difference(small, large)
    assert [line.split(":")[0] for line in lines] == [
        "name",
        "pixel_parallel",
        "vector_pixels",
        "sram_bytes",
        "axi_ports",
    ]
    assert "sram_bytes: 524288 != 2097152" in lines
    assert arch.difference(small, small) == []
