"""The Python function behind a program of the NPU DSL: it is run once, on symbolic operands, and every mistake in it names its line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuforge.compile.ir.errors import InstructionError, NpuforgeError


@dataclass(frozen=True)
class TracedFunction:
    """Positional parameters of `function` are operands, keyword-only ones (`attributes`) node attributes."""

    function: Callable[..., Any]
    name: str
    attributes: tuple[str, ...]

    @property
    def place(self) -> str:
        """file:line where it begins."""
        return f"{self.function.__code__.co_filename}:{self.function.__code__.co_firstlineno}"

    def given(self, attributes: dict[str, Any] | None) -> dict[str, Any]:
        """Those of a node's attributes that the function takes; InstructionError at its line where one without a default is missing."""
        own = {k: v for k, v in (attributes or {}).items() if k in self.attributes}
        parameters = inspect.signature(self.function).parameters
        missing = [n for n in self.attributes if n not in own and parameters[n].default is inspect.Parameter.empty]
        if missing:
            raise InstructionError(
                f"{self.place}: {self.name}: the node lacks the attribute {missing[0]}, which has no default; "
                f"set it in the network, or write `{missing[0]}=...` in the program"
            )
        return own

    def run(self, operands: list[Any], attributes: dict[str, Any]) -> Any:
        """What the function returns; InstructionError at its line for whatever it throws."""
        try:
            return self.function(*operands, **attributes)
        except NpuforgeError:
            raise
        except Exception as error:  # the user's Python: whatever it raises
            raise InstructionError(
                f"{self._line_of(error)}: {self.name}: {type(error).__name__}: {error}; the program is run once, on tiles without values"
            ) from error

    def _line_of(self, error: Exception) -> str:
        """file:line of the program where `error` comes from: its last line in the program's file, the function's first if it was not entered."""
        code = self.function.__code__
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == code.co_filename]
        return f"{code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"


def keyword_only(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the node attributes that a program takes."""
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY)
