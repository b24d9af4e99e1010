"""`npuforge flash`: brings a build and an overlay onto a board."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from npuforge.scripts.build_folder import open_build
from npuforge.scripts.common import print_json, progress
from npuforge.scripts.flash import find_overlay, flash, place_of


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("flash")
    def command(
        build: Annotated[Path, typer.Argument(help="Folder or .tar that npuforge compile wrote")],
        to: Annotated[
            str,
            typer.Option("--to", help="user@board:/folder, over ssh without a password; or a folder, copied to only"),
        ],
        overlay: Annotated[
            Path | None,
            typer.Option(
                "--overlay", help="Folder with the bitstream (*.bit.bin or *.xclbin), and *.dtbo and board.json if any"
            ),
        ] = None,
        check: Annotated[
            bool, typer.Option("--check", help="Then run the build's own sample on the board, on the device uio")
        ] = False,
        program: Annotated[
            str, typer.Option("--npuforge", help="npuforge's command on the board, for --check")
        ] = "npuforge",
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Bring a build onto a board. Example: npuforge flash build/ --to root@board:/opt/npuforge --overlay overlay/ --check"""
        place = place_of(to)
        opened = open_build(build)
        found = None if overlay is None else find_overlay(overlay, opened)
        with progress(json) as show:
            result = flash(opened, place, found, check=check, program=program, steps=show)
        if json:
            print_json(asdict(result))
            return
        print(f"{len(result.files)} files are at {result.destination}")
        if result.overlay:
            print(f"overlay: {result.overlay}")
        if result.check:
            print(result.check)
