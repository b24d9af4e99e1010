"""`npuforge disasm`: a readable listing of a `.bin`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.hw_kernels.isa.binfile import read_bin
from npuforge.hw_kernels.isa.disasm import instruction_lines, instruction_objects, section_lines, section_objects
from npuforge.scripts.common import print_json


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("disasm")
    def command(
        file: Annotated[Path, typer.Argument(help="A .bin file or a build folder")],
        sections: Annotated[bool, typer.Option("--sections", help="List the sections only")] = False,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Show the sections and instructions of a .bin. Example: npuforge disasm build/"""
        binary = read_bin(file / "model.bin" if file.is_dir() else file)
        if json:
            found = {"sections": section_objects(binary)}
            print_json(found if sections else found | {"instructions": instruction_objects(binary)})
        else:
            print("\n".join(section_lines(binary) if sections else instruction_lines(binary)))
