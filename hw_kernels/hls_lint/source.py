"""HLS C++ as the lint reads it: text without comments and literals, where statements end, functions, structs, macros and what a call may write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_HIDDEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r'|(?P<include>#\s*include\s*)"[^"\n]*"'
    r'|(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?P<letter>(?<!\w)(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')",
    re.DOTALL,
)
_ANGLES = r"(?:<(?:[^<>;]|<[^<>;]*>)*>)?"
CALL = re.compile(rf"\b(?:(\w+)[\s&*]+)?(\w+)\s*{_ANGLES}\s*([({{])")
_HEAD = re.compile(r"\b(operator\s*(?:\(\s*\)|\[\s*\]|[-+*/%^&|~!=<>,]+)|\w+)\s*\(")
_QUALIFIERS = re.compile(
    r"\s*(?:(?:const\b|volatile\b|override\b|final\b|noexcept\b(?:\s*\([^;{}()]*\))?|&&?)\s*)*(?:->[^;{}]*)?"
)
_NO_FUNCTION = re.compile(
    r"if|for|while|switch|catch|return|sizeof|decltype|noexcept|alignas|static_assert|constexpr|defined|NPU_\w+"
)
_STATEMENT = re.compile(r"(for|if|while|switch)\b\s*(?:constexpr\b\s*)?\(")
WORDS = (
    r"return|else|case|do|goto|throw|delete|new|co_return|co_yield"  # that stand before an expression or a statement
)


def _spliced(text: str) -> str:
    """Lines that end with a backslash joined with the next; what follows keeps its line."""
    joined = re.compile(r"[^\n]*\\\n(?:[^\n]*\\\n)*[^\n]*")
    return joined.sub(lambda m: m[0].replace("\\\n", "") + "\n" * m[0].count("\\\n"), text)


def bare(text: str) -> str:
    """Source without comments, contents of literals and names of included files; lines stay where they are."""

    def shown(match: re.Match[str]) -> str:
        lines = "\n" * match[0].count("\n")
        if match["comment"]:
            return lines or " "
        if match["include"]:
            return match["include"]
        return "0" if match["letter"] else '""' + lines

    return _HIDDEN.sub(shown, _spliced(text))


def includes(text: str) -> list[tuple[int, str]]:
    """Line and name of every `#include "name"`."""
    kept = _HIDDEN.sub(lambda m: m[0] if m["include"] else "\n" * m[0].count("\n"), _spliced(text))
    return [(kept.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r'#\s*include\s*"([^"\n]*)"', kept)]


def closing(source: str, start: int, brackets: str) -> int:
    """Position behind the bracket that closes the one before `start`."""
    depth = 1
    while depth and start < len(source):
        depth += {brackets[0]: 1, brackets[1]: -1}.get(source[start], 0)
        start += 1
    return start


def statement_end(source: str, start: int) -> int:
    """Position behind the statement that begins at `start`, with what hangs on it (bodies, `else`)."""
    while start < len(source) and source[start].isspace():
        start += 1
    if source.startswith("{", start):
        return closing(source, start + 1, "{}")
    head = _STATEMENT.match(source, start)
    if head:
        end = statement_end(source, closing(source, head.end(), "()"))
        otherwise = re.compile(r"\s*else\b").match(source, end)
        return statement_end(source, otherwise.end()) if otherwise and head[1] == "if" else end
    depth = 0
    for at in range(start, len(source)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(source[at], 0)
        if depth < 0 or (depth == 0 and source[at] == ";"):
            return at + (depth == 0)
    return len(source)


def arguments(text: str) -> list[str]:
    """Text between commas that no bracket encloses."""
    found, depth, last = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append(text[last:at])
            last = at + 1
    return [part.strip() for part in (*found, text[last:])]


@dataclass(frozen=True)
class Function:
    """A definition. `name`: of an operator `operator+`, of `operator()` with its struct: `Sum::operator()`."""

    name: str
    parameters: str
    body: str
    end: int  # position behind the body

    @property
    def text(self) -> str:
        """Parameters and body."""
        return f"({self.parameters}) {self.body}"


def structs(source: str) -> list[tuple[str, int, int]]:
    """Name, first and last position of every struct and class that is defined."""
    heads = re.finditer(r"(?<!enum )\b(?:struct|class)\s+(\w+)[^;{}()<>]*\{", source)
    return [(m[1], m.start(), closing(source, m.end(), "{}")) for m in heads]


def _body(source: str, end: int) -> int | None:
    """Position of the `{` of a function whose parameters end at `end`; None if there is none."""
    match = _QUALIFIERS.match(source, end)
    at = match.end() if match else end
    if re.compile(r"\s*:(?!:)\s*\w").match(source, at):  # what a constructor begins with
        at = source.index(":", at) + 1
        while member := re.compile(r"\s*\w+\s*([({])").match(source, at):
            at = closing(source, member.end(), "()" if member[1] == "(" else "{}")
            comma = re.compile(r"\s*,").match(source, at)
            if comma is None:
                break
            at = comma.end()
    start = re.compile(r"\s*\{").match(source, at)
    return start.end() - 1 if start else None


def functions(source: str) -> list[Function]:
    """Every function defined."""
    found = []
    places = structs(source)
    for match in _HEAD.finditer(source):
        name = re.sub(r"\s", "", match[1])
        end = closing(source, match.end(), "()")
        start = None if _NO_FUNCTION.fullmatch(name) else _body(source, end)
        if start is None:
            continue
        if name == "operator()":
            outside = re.search(r"(\w+)\s*::\s*$", source[: match.start()])
            inside = [n for n, first, last in places if first < match.start() < last]
            name = f"{outside[1] if outside else inside[-1] if inside else ''}::operator()"
        stop = closing(source, start + 1, "{}")
        found.append(Function(name, source[match.end() : end - 1], source[start:stop], stop))
    return found


def macros(source: str) -> dict[str, tuple[list[str], str]]:
    """Macro -> its parameters and text."""
    found = re.finditer(r"#\s*define\s+(\w+)(?:\(([^)]*)\))?([^\n]*)", source)
    return {m[1]: (arguments(m[2] or ""), m[3]) for m in found}


def declared(name: str, text: str) -> bool:
    """Whether a declaration (variable or parameter) of that name stands in the text."""
    found = re.finditer(rf"\b(\w+)(?:\s*[&*]+\s*|\s+){name}\s*[=;,){{\[]|\b(\w+)(?:\s*[&*]+\s*|\s+){name}$", text)
    return any(not re.fullmatch(WORDS, m[1] or m[2]) for m in found)


def _written(parameters: list[str]) -> set[int]:
    """Which parameters are references to what may be written; a pack stands for all that follow."""
    found: set[int] = set()
    for k, parameter in enumerate(parameters):
        reference = re.fullmatch(r"[^()]*[\w>]\s*&{1,2}\s*(\.\.\.)?\s*\w*\s*(=.*)?", parameter, re.DOTALL)
        if reference and not re.search(r"\bconst\b", parameter):
            found |= set(range(k, 64)) if "..." in parameter else {k}
    return found


@dataclass(frozen=True)
class Context:
    """What is known of the functions, structs and macros that a loop may name."""

    written: dict[str, set[int]] = field(default_factory=dict)  # function or struct -> arguments that it may write
    bodies: dict[str, str] = field(default_factory=dict)  # function -> parameters and body, all overloads
    macros: dict[str, tuple[list[str], str]] = field(default_factory=dict)


def context(source: str) -> Context:
    """Of all the files together."""
    written: dict[str, set[int]] = {}
    bodies: dict[str, str] = {}

    def add(name: str, parameters: str) -> None:
        written[name] = written.get(name, set()) | _written(arguments(parameters))

    for match in re.finditer(r"\b(\w+)[\s&*>]+(\w+)\s*\(", source):
        if not re.fullmatch(rf"{WORDS}|NPU_\w+", match[1]) and not _NO_FUNCTION.fullmatch(match[2]):
            add(match[2], source[match.end() : closing(source, match.end(), "()") - 1])
    for function in functions(source):
        add(function.name, function.parameters)
        bodies[function.name] = bodies.get(function.name, "") + function.text
    for name, first, last in structs(source):
        if re.search(r"[;{:]\s*(?!const\b)\w+\s*&\s*\w+\s*;", source[first:last]):
            written[name] = set(range(64))
    return Context(written, bodies, macros(source))


def called(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Word before, name and arguments of everything that looks like a call or the construction of an object."""
    for match in CALL.finditer(text):
        brackets = "()" if match[3] == "(" else "{}"
        yield match[1] or "", match[2], arguments(text[match.end() : closing(text, match.end(), brackets) - 1])
