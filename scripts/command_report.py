"""`npuforge report`: the page about a compiled network alone: partitions, simulated cycles, memory; `compare --report` adds the precision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuforge.compile.steps.write_files import check_apart
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.common import check_report, print_json
from npuforge.scripts.report.data import Reference
from npuforge.scripts.report.from_build import report_of_build
from npuforge.scripts.report.render import to_json, write_report


def register(app: typer.Typer) -> None:
    """Adds the sub-command."""

    @app.command("report")
    def command(
        build: Annotated[Path, typer.Argument(help="Folder that npuforge compile wrote")],
        output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file; JSON beside it")] = Path(
            "report.html"
        ),
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Write the page of a compiled network. Example: npuforge report build/ -o report.html"""
        check_report(output, "-o")
        opened = open_build(build)
        check_apart([output, output.with_suffix(".json")], opened.files, "-o")
        data = report_of_build(opened.folder, opened.qgraph, "not run", Reference("not run", "not run"))
        write_report(data, output, output.with_suffix(".json"))
        if json:
            print_json(to_json(data))
        else:
            print(f"report: {output}")
