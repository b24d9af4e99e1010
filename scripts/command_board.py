"""`npuforge board`: writes the description of a board with our overlay, which `--device uio --board` reads."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from npuforge.board_runtime.board import TIMEOUT_MS, describe
from npuforge.compile.ir.files import whole_file
from npuforge.hw_kernels import arch as arches
from npuforge.scripts.common import check_target, print_json


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("board")
    def command(
        header: Annotated[Path, typer.Argument(help="xnpu_top_hw.h, as Vitis HLS wrote it for this overlay")],
        arch: Annotated[
            str, typer.Option("--arch", help="What the overlay was built for: a configuration's name or JSON file")
        ],
        uio: Annotated[str, typer.Option("--uio", help="Node of the kernel's registers")] = "/dev/uio0",
        memory: Annotated[str, typer.Option("--memory", help="Node of the u-dma-buf memory")] = "/dev/udmabuf0",
        name: Annotated[
            str, typer.Option("--name", help="What /sys/class/uio/uioN/name must say: guards against renumbered nodes")
        ] = "",
        interrupt: Annotated[
            bool, typer.Option("--interrupt", help="The kernel's interrupt is connected; without it a thread polls")
        ] = False,
        cache: Annotated[
            str, typer.Option("--cache", help="sync (cached mapping, synchronised) or off (O_SYNC, sync_mode 2 or 3)")
        ] = "sync",
        timeout_ms: Annotated[
            int, typer.Option("--timeout-ms", help="The longest a partition may take", min=1, max=3_600_000)
        ] = TIMEOUT_MS,
        output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; without it: printed")] = None,
        json: Annotated[bool, typer.Option("--json", help="Print the description, written or not")] = False,
    ) -> None:
        """Describe a board with our overlay. Example: npuforge board xnpu_top_hw.h --arch nf-b4096 --uio /dev/uio4 -o board.json"""
        if output is not None:
            check_target(output)
        found = describe(
            header,
            arches.load(arch),
            uio,
            memory,
            name=name,
            interrupt=interrupt,
            cache=cache,
            timeout_ms=timeout_ms,
        )
        if output is not None:
            with whole_file(output) as temporary:
                temporary.write_text(json_format.dumps(found, indent=2) + "\n", encoding="utf-8")
        if json or output is None:
            print_json(found)
        else:
            print(f"written: {output}")
