"""`npuforge arch`: lists, shows and compares hardware configurations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from npuforge.hw_kernels import arch as arches
from npuforge.scripts.common import print_json


def _derived(arch: arches.Arch) -> dict[str, Any]:
    return {
        "macs_per_cycle": arch.macs_per_cycle,
        "ddr_bytes_per_cycle": arch.ddr_bytes_per_cycle,
        "peak_gops": round(2 * arch.macs_per_cycle * arch.clock_mhz / 1000, 1),
        "fingerprint": arch.fingerprint,
    }


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("arch")
    def command(
        name: Annotated[
            str, typer.Argument(help="A configuration's name or JSON file; without it all are listed")
        ] = "",
        other: Annotated[str, typer.Argument(help="A second one to compare with")] = "",
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """List, show or compare hardware configurations. Example: npuforge arch nf-b1024 nf-b4096"""
        if not name:
            listed = {known: arches.load(known) for known in arches.names()}
            if json:
                print_json({known: arch.to_json() | _derived(arch) for known, arch in listed.items()})
            else:
                for known, arch in listed.items():
                    derived = _derived(arch)
                    print(
                        f"{known:<12} {derived['macs_per_cycle']:>5} MAC/cycle  {derived['peak_gops']:>7} GOP/s  "
                        f"{arch.sram_bytes // 1024:>5} KiB  fingerprint {arch.fingerprint}"
                    )
            return
        arch = arches.load(name)
        if other:
            second = arches.load(other)
            lines = arches.difference(arch, second)
            left, right = _derived(arch), _derived(second)
            figures = {key: [left[key], right[key]] for key in left}
            if json:
                print_json({"differences": lines, "derived": figures})
                return
            print("\n".join(lines) if lines else "no parameter differs")
            print("derived:")
            for key, (a, b) in figures.items():
                ratio = f" (x{b / a:g})" if not isinstance(a, str) and a != b else ""
                print(f"{key}: {a} {'==' if a == b else '!='} {b}{ratio}")
        elif json:
            print_json(arch.to_json() | _derived(arch))
        else:
            for key, value in (arch.to_json() | _derived(arch)).items():
                print(f"{key:<20} {value}")
