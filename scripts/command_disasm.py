"""`npuforge disasm`: a readable listing of a `.bin` or an `.xmodel`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile.dpu.belonging import FIX_FORM
from npuforge.compile.ir.errors import FormatError, UsageError, WriteError
from npuforge.compile.ir.files import whole_file
from npuforge.compile.steps.write_files import BIN, XMODEL
from npuforge.compile.xir.listing import model_lines, model_object
from npuforge.compile.xir.model import XModel
from npuforge.compile.xir.picture import svg
from npuforge.compile.xir.reader import read_xmodel
from npuforge.compile.xir.validate import check_schema
from npuforge.hw_kernels.isa.binfile import read_bin
from npuforge.hw_kernels.isa.disasm import instruction_lines, instruction_objects, section_lines, section_objects
from npuforge.scripts.build_folder import changed_file
from npuforge.scripts.bundle import is_bundle_file
from npuforge.scripts.common import print_json, show_notice


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("disasm")
    def command(
        file: Annotated[Path, typer.Argument(help="A .bin or .xmodel file or a build folder (its .bin)")],
        sections: Annotated[
            bool, typer.Option("--sections", help="List the sections (.xmodel: the subgraphs) only")
        ] = False,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
        graph: Annotated[Path | None, typer.Option("--graph", help="Draw the .xmodel into this .svg file")] = None,
    ) -> None:
        """Show what is in a .bin or .xmodel. Example: npuforge disasm build/"""
        _refuse_containers(file)
        changed = changed_file(file / BIN if file.is_dir() else file)
        if changed:
            show_notice(changed)
        if file.suffix == ".xmodel":
            model = read_xmodel(file)
            if json:
                print_json(model_object(model, with_ops=not sections))
            else:
                print("\n".join(model_lines(model, with_ops=not sections)))
            _refuse_broken(file, model)
            if graph is not None:
                _draw(svg(model), graph)
            return
        if graph is not None:
            raise UsageError(
                f"--graph draws an .xmodel; found {file}; npuforge disasm build/model.xmodel --graph {graph}"
            )
        binary = read_bin(file / BIN if file.is_dir() else file)
        if json:
            found = {"sections": section_objects(binary)}
            print_json(found if sections else found | {"instructions": instruction_objects(binary)})
        else:
            print("\n".join(section_lines(binary) if sections else instruction_lines(binary)))


def _refuse_containers(file: Path) -> None:
    """UsageError for a bundle, and for a folder with an .xmodel but no .bin (a DPU's): what to give in their place."""
    if is_bundle_file(file):
        raise UsageError(
            f"{file}: a tar file; expected what is in it: unpack it (tar -xf {file}), then npuforge disasm {BIN}"
        )
    if file.is_dir() and not (file / BIN).exists():
        found = [f"{file / name}" for name in (FIX_FORM, XMODEL) if (file / name).is_file()]
        if found:
            raise UsageError(f"{file}: a folder without a {BIN}; give one of its files: {', '.join(found)}")


def _refuse_broken(file: Path, model: XModel) -> None:
    """FormatError, behind the listing, where the file breaks a rule of XIR's operators or subgraphs: no runtime takes it."""
    try:
        check_schema(model)
    except FormatError as error:
        raise FormatError(f"{file}: {error}; listed as it is stored, but XIR and VART refuse or crash on it") from None


def _draw(text: str, path: Path) -> None:
    if path.suffix != ".svg":
        raise UsageError(f"--graph: expected a file *.svg, found {path}")
    try:
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{path}: cannot be written ({error.strerror}); choose another --graph") from None
