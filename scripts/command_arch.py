"""`npuforge arch`: lists, shows and compares hardware configurations."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer

from npuforge.compile.ir.errors import UsageError
from npuforge.compile.ir.files import whole_file
from npuforge.hw_kernels import arch as arches
from npuforge.scripts.common import check_target, print_json


def _derived(arch: arches.Arch) -> dict[str, Any]:
    return {
        "macs_per_cycle": arch.macs_per_cycle,
        "ddr_bytes_per_cycle": arch.ddr_bytes_per_cycle,
        "peak_gops": round(2 * arch.macs_per_cycle * arch.clock_mhz / 1000, 1),
        "fingerprint": arch.fingerprint,
    }


def _write(name: str, other: str, output: Path) -> None:
    """The file of one configuration, to start one of one's own from."""
    if not name or other:
        raise UsageError(f"--output {output}: writes one configuration; name it, for example npuforge arch nf-b4096")
    check_target(output)
    text = json_format.dumps(arches.load(name).to_json(), indent=2) + "\n"
    with whole_file(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"written: {output}")


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("arch")
    def command(
        name: Annotated[
            str, typer.Argument(help="A configuration's name or JSON file; without it all are listed")
        ] = "",
        other: Annotated[str, typer.Argument(help="A second one to compare with")] = "",
        output: Annotated[
            Path | None, typer.Option("--output", "-o", help="Write the parameters into this JSON file, for --arch")
        ] = None,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """List, show or compare hardware configurations. Example: npuforge arch nf-b1024 nf-b4096"""
        if output is not None:
            _write(name, other, output)
            return
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
