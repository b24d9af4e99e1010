"""`npuforge bench`: time of an inference on a device, as a ratio to a named peer in the same process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.board_runtime.devices import check_device
from npuforge.scripts import model_options as m
from npuforge.scripts.bench import bench
from npuforge.scripts.common import DEVICE_HELP, print_json, progress


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("bench")
    def command(
        build: Annotated[Path, typer.Argument(help="Folder that npuforge compile wrote")],
        peer: Annotated[
            str | None, typer.Option("--peer", help="onnxruntime: the float network on as many threads")
        ] = None,
        device: Annotated[str, typer.Option("--device", help=DEVICE_HELP)] = "sim",
        board: m.Board = None,
        threads: m.Threads = 2,
        runs: Annotated[int, typer.Option("--runs", help="Inferences to time", min=1)] = 100,
        isa: Annotated[
            str,
            typer.Option(
                "--isa", help="Instruction set of this processor for sim: auto (the best), scalar, avx2, avx512"
            ),
        ] = "auto",
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Measure speed against a peer. Example: npuforge bench build/ --peer onnxruntime"""
        check_device(device, board)
        with progress(json) as show:
            result = bench(
                build, device=device, board=board, threads=threads, runs=runs, peer=peer, isa=isa, progress=show
            )
        if json:
            print_json(result.to_json())
        else:
            print("\n".join(result.lines()))
