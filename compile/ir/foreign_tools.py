"""Runs programs that are no part of this kit: a vendor's compiler, `nvcc`, a C++ compiler. What they print need not be UTF-8, and they need not run."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npuforge.compile.ir.errors import NpuforgeError

_COMPLAINTS = (re.compile(r"\bFATAL\b"), re.compile(r"\berror\b", re.IGNORECASE))


@dataclass(frozen=True)
class ToolRun:
    """`program`: as it is called in messages. `code`: exit status, negative for a signal. `log`: both streams; bytes that are no UTF-8 became U+FFFD."""

    program: str
    code: int
    log: str

    @property
    def ended(self) -> str:
        """`vai_c_xir ended with 3`, `nvcc was ended by SIGKILL`."""
        if self.code >= 0:
            return f"{self.program} ended with {self.code}"
        return f"{self.program} was ended by {signal.Signals(-self.code).name}"

    @property
    def last_line(self) -> str:
        """The last line that says something."""
        return next((line.strip() for line in reversed(self.log.splitlines()) if line.strip()), "no output")

    @property
    def first_error(self) -> str:
        """What it complained of: the first fatal line (a stack trace may follow it), else the first that speaks of an error, else the last one."""
        lines = [line.strip() for line in self.log.splitlines()]
        found = (line for word in _COMPLAINTS for line in lines if word.search(line))
        return next(found, self.last_line)


def run_tool(program: str, words: Sequence[str], folder: Path) -> ToolRun:
    """Runs `words` (the first one its file) in `folder`. NpuforgeError where the system cannot execute it; any exit status is the caller's to judge."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise NpuforgeError(
            f"{program} ({words[0]}) cannot be executed ({error.strerror or error}); mend it, or take it off the path to go on without it"
        ) from None
    return ToolRun(program, done.returncode, done.stdout)
