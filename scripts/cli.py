"""The `npuforge` command: one typer application, one file per sub-command, one place where errors become a line and an exit code.

Exit codes: 0 ok, 1 error, 2 usage, 3 precision gate, 130 interrupted.
"""

from __future__ import annotations

import importlib
import signal
import sys
from types import FrameType

import typer

from npuforge.compile.ir.errors import Interrupted, NpuforgeError

# Order of the help page. Each module `npuforge.scripts.command_<name>` has `register(app)`.
COMMANDS = (
    "inspect",
    "compile",
    "quantize",
    "run",
    "compare",
    "evaluate",
    "report",
    "reference",
    "disasm",
    "arch",
    "ops",
)


def build_app() -> typer.Typer:
    """The application with all sub-commands."""
    app = typer.Typer(
        name="npuforge",
        help="Compiles ONNX detection networks for FPGA and NPU boards, and runs them bit-exactly on a simulator.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in COMMANDS:
        importlib.import_module(f"npuforge.scripts.command_{name}").register(app)
    return app


def one_line(error: BaseException) -> str:
    """The error's text on one line."""
    return " ".join(str(error).split())


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise Interrupted("interrupted by Ctrl-C; output files that were not finished are not there")


def main() -> None:
    """Entry point: runs the command line; a user's mistake is one line on standard error, never a traceback."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        build_app()()
    except NpuforgeError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror or one_line(error)}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("error: out of memory; use fewer calibration images or a smaller --shape", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
