"""An element-wise formula of the operator folders (`hw_kernels/formulas.py`) as a C++ function of one float: traced once, statement by statement.

The formula computes over a module `m`; `Recorder` is one that writes down what is computed. Clips and selections keep NaN as the references do.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from npuforge.hw_kernels.formulas import Formula

_VARIABLE = re.compile(r"\bv\d+\b")
_CALLS = {"exp": "expf", "log": "logf", "log1p": "log1pf", "expm1": "expm1f", "tanh": "tanhf", "sqrt": "sqrtf"}


def literal(value: float) -> str:
    """A float literal of C++."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"constant {number} in a formula")
    return f"{number!r}f" if "." in repr(number) or "e" in repr(number) else f"{number!r}.0f"


@dataclass(frozen=True, eq=False)
class Expression:
    """A name of the traced function."""

    text: str
    recorder: Recorder

    def _two(self, sign: str, left: Any, right: Any) -> Expression:
        return self.recorder.statement(f"{self.recorder.text(left)} {sign} {self.recorder.text(right)}")

    def __add__(self, other: Any) -> Expression:
        return self._two("+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return self._two("+", other, self)

    def __sub__(self, other: Any) -> Expression:
        return self._two("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return self._two("-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return self._two("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return self._two("*", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return self._two("/", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._two("/", other, self)

    def __neg__(self) -> Expression:
        return self.recorder.statement(f"-{self.text}")

    def _compare(self, sign: str, other: Any) -> Expression:
        return self.recorder.statement(f"{self.text} {sign} {self.recorder.text(other)}", "bool")

    def __lt__(self, other: Any) -> Expression:
        return self._compare("<", other)

    def __gt__(self, other: Any) -> Expression:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Expression:
        return self._compare(">=", other)

    def __and__(self, other: Expression) -> Expression:
        return self.recorder.statement(f"{self.text} && {other.text}", "bool")


@dataclass
class Recorder:
    """The module that a formula computes with, and the attributes it asks for (name -> default)."""

    statements: list[str] = field(default_factory=list)
    parameters: dict[str, float] = field(default_factory=dict)

    def text(self, value: Any) -> str:
        """A name or a literal."""
        return value.text if isinstance(value, Expression) else literal(value)

    def statement(self, text: str, kind: str = "float") -> Expression:
        """A new variable."""
        name = f"v{len(self.statements)}"
        self.statements.append(f"const {kind} {name} = {text};")
        return Expression(name, self)

    def get(self, name: str, default: float) -> Expression:
        """An attribute, as a parameter of the function."""
        self.parameters[name] = float(default)
        return Expression(name, self)

    def abs(self, x: Expression) -> Expression:
        """|x|."""
        return self.statement(f"fabsf({x.text})")

    def where(self, condition: Expression, a: Any, b: Any) -> Expression:
        """a where the condition holds, else b."""
        return self.statement(f"{condition.text} ? {self.text(a)} : {self.text(b)}")

    def clip(self, x: Expression, low: float | None, high: float | None) -> Expression:
        """x between the limits; NaN stays."""
        if low is not None:
            x = self.statement(f"{x.text} < {self.text(low)} ? {self.text(low)} : {x.text}")
        return x if high is None else self.statement(f"{x.text} > {self.text(high)} ? {self.text(high)} : {x.text}")

    def __getattr__(self, name: str) -> Any:
        if name not in _CALLS and name != "erf":
            raise AttributeError(name)
        return lambda x: self.statement(f"{_CALLS.get(name, 'erff')}({x.text})")


@dataclass(frozen=True)
class Function:
    """`text`: the C++ function `float <name>(float x, float <parameter>...)`. `parameters`: its attributes with their defaults."""

    name: str
    text: str
    parameters: dict[str, float]


def _needed(statements: list[str], returned: str) -> list[str]:
    """The statements whose variable is read by a later needed one (derivatives that a formula also writes down are not)."""
    kept: list[str] = []
    read = set(_VARIABLE.findall(returned))
    for number in range(len(statements) - 1, -1, -1):
        if f"v{number}" in read:
            read.update(_VARIABLE.findall(statements[number]))
            kept.insert(0, statements[number])
    return kept


def function_of(name: str, formula: Formula) -> Function:
    """The formula's value as a C++ function for host and device."""
    recorder = Recorder()
    result = formula.value(recorder, Expression("x", recorder), recorder)  # type: ignore[arg-type]
    returned = f"return {recorder.text(result)};"
    body = "\n".join(f"    {s}" for s in [*_needed(recorder.statements, returned), returned])
    arguments = "".join(f", float {p}" for p in recorder.parameters)
    return Function(
        name, f"NPUFORGE_BOTH inline float {name}(float x{arguments}) {{\n{body}\n}}\n", dict(recorder.parameters)
    )
