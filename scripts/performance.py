"""The performance summary that `compile` prints: simulated cycles, utilisation and DDR traffic, in all and per layer."""

from __future__ import annotations

from typing import Any


def duration(milliseconds: float) -> str:
    """A time with its unit: microseconds where hundredths of a millisecond would say too little."""
    return f"{milliseconds:.2f} ms" if milliseconds >= 0.1 else f"{1000 * milliseconds:.1f} µs"


def performance_lines(performance: dict[str, Any], layers: bool) -> list[str]:
    """The lines. Cycles are simulated (hw_kernels/timing.py), never measured time."""
    lines = []
    if layers:
        lines.append(f"{'layer':<6} {'cycles':>8} {'MMAC':>8} {'util':>6} {'DDR KiB':>8}  node")
        for row in performance["layers"]:
            lines.append(
                f"{row['id']:<6} {row['cycles']:>8} {row['macs'] / 1e6:>8.2f} {row['utilisation']:>6.1%} "
                f"{row['ddr_bytes'] / 1024:>8.1f}  {row['name']}"
            )
    busy = performance["busy"]
    lines.append(
        f"simulated cycles: {performance['cycles']} ({duration(performance['milliseconds'])} at the arch's clock), "
        f"MAC utilisation {performance['utilisation']:.1%}, DDR {performance['ddr_bytes'] / (1 << 20):.2f} MiB"
    )
    lines.append("engines busy: " + ", ".join(f"{engine} {cycles}" for engine, cycles in busy.items()))
    return lines
