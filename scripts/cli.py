"""The `npuforge` command: one typer application, one file per sub-command, one place where errors become a line and an exit code.

Exit codes: docs/exit-codes.md. `npuforge --traceback …` lets a fault of npuforge's own show its traceback. Nothing slow is imported before the signal handlers are in place.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from npuforge.compile.ir.errors import Interrupted, NpuforgeError

if TYPE_CHECKING:
    import typer

# Order of the help page. Each module `npuforge.scripts.command_<name>` has `register(app)`.
COMMANDS = (
    "inspect",
    "compile",
    "quantize",
    "export",
    "run",
    "compare",
    "evaluate",
    "report",
    "reference",
    "bench",
    "board",
    "flash",
    "disasm",
    "arch",
    "ops",
)
TRACEBACK = "--traceback"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_REPEAT_SECONDS = 2.0  # a second Ctrl-C this soon after the first must not break off the clean-up


def build_app() -> typer.Typer:
    """The application with all sub-commands."""
    import typer

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

    @app.callback()
    def options(
        traceback: bool = typer.Option(False, TRACEBACK, help="Show the whole traceback of a fault of npuforge's own"),
    ) -> None:
        pass  # `_guarded` looks for it before typer is there

    return app


def one_line(error: BaseException) -> str:
    """The error's text on one line."""
    return " ".join(str(error).split())


def _catch_signals() -> dict[signal.Signals, Any]:
    """From now on Ctrl-C and SIGTERM raise Interrupted; the handlers there were."""
    last = -_REPEAT_SECONDS

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPEAT_SECONDS:
            last = now
            raise Interrupted(number)

    return {number: signal.signal(number, handle) for number in _SIGNALS}


def wants_traceback(arguments: Sequence[str]) -> bool:
    """Whether the global option stands before the sub-command."""
    return TRACEBACK in itertools.takewhile(lambda a: a.startswith("-"), arguments)


def _run(arguments: Sequence[str]) -> int:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime sends nothing home, and warns of no home folder
    if not wants_traceback(arguments):
        warnings.filterwarnings(
            "ignore", category=RuntimeWarning
        )  # numpy's, about values that the steps check and refuse
    import typer
    from typer.main import get_command

    for before, argument in itertools.pairwise(["npuforge", *arguments]):
        if not argument or (argument.startswith("--") and argument.endswith("=")):
            _complain(f"{argument or before}: expected a value, found nothing; is a variable of your script unset?")
            return 2
    click_error: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    try:
        code = get_command(build_app()).main(args=list(arguments), prog_name="npuforge", standalone_mode=False)
    except click_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show(file=sys.stdout)
            return 2
        context = getattr(error, "ctx", None)
        command = "npuforge" if context is None else context.command_path
        message = _bad_value(error) or " ".join(error.format_message().split())
        _complain(f"{message.rstrip('.')}; see `{command} --help`")
        return 2
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _bad_value(error: Any) -> str:
    """In our own words: an option's value that is no number or out of its range; empty for other errors. (typer has pydantic's words.)"""
    details: list[Any] = getattr(error.__cause__, "errors", list)()
    if not details or getattr(error, "param", None) is None:
        return ""
    kind, limits = str(details[0]["type"]), details[0].get("ctx", {})
    expected = {
        "greater_than_equal": f"at least {limits.get('ge')}",
        "less_than_equal": f"at most {limits.get('le')}",
        "int_parsing": "a whole number",
        "int_from_float": "a whole number",
        "float_parsing": "a number",
    }.get(kind)
    return "" if expected is None else f"{error.param.opts[0]} {details[0]['input']}: expected {expected}"


def _complain(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)


def _fault(error: Exception, arguments: Sequence[str]) -> int:
    """An error that nothing foresaw: one line with its place, the whole traceback only when asked for."""
    if wants_traceback(arguments):
        traceback.print_exc()
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _complain(
        f"a fault of npuforge ({type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {one_line(error) or 'no text'}); "
        f"please report it with the command and the output of `npuforge {TRACEBACK} ...`"
    )
    return 1


def _guarded(arguments: Sequence[str]) -> int:
    try:
        return _run(arguments)
    except Interrupted as error:
        number = error.args[0] if error.args else signal.SIGINT
        reason = "interrupted by Ctrl-C" if number == signal.SIGINT else "terminated by a signal"
        _complain(f"{reason}; files that were not finished have been removed, earlier output is unharmed")
        return Interrupted.exit_code if number == signal.SIGINT else 128 + int(number)
    except NpuforgeError as error:
        _complain(one_line(error))
        return error.exit_code
    except BrokenPipeError:  # `npuforge ops | head`: nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        _complain((f"{error.filename}: " if error.filename else "") + (error.strerror or one_line(error)))
        return 1
    except RecursionError:
        _complain("an input file is nested too deeply to be read; check the JSON, YAML or ONNX file given")
        return 1
    except MemoryError:
        _complain("out of memory; use fewer calibration images or a smaller --shape")
        return 1
    except Exception as error:
        return _fault(error, arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs the command line; a user's mistake is one line on standard error, never a traceback.

    `arguments`: given where another program calls it, which gets its signal handlers back.
    """
    before = _catch_signals()
    code = 1
    try:
        code = _guarded(sys.argv[1:] if arguments is None else arguments)
    finally:
        for number, handler in before.items():
            if arguments is not None:
                signal.signal(number, handler)
            elif code >= Interrupted.exit_code:
                signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not replace the exit code of the first
    sys.exit(code)


if __name__ == "__main__":
    main()
