"""Lint of HLS C++: what no synthesis tool takes. `python -m npuforge.hw_kernels.hls_lint FILE...` names each finding with its line; exit code 1.

Refused: memory from the heap, the standard library and block copies, virtual calls, exceptions, recursion, loops whose header does not bound them, arrays
of variable length, compiler builtins, floating point, includes and pragmas outside the portability header (hls/npu_port.hpp), input and output, lambdas
and function pointers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FORBIDDEN = {
    "dynamic memory": r"\b(new|delete|malloc|calloc|realloc|free|alloca)\b",
    "standard library": r"\bstd\s*::|\busing\s+namespace\s+std\b|\b(vector|deque|list|map|set|unordered_\w+|basic_string|function)\s*<",
    "compiler builtin": r"\b__builtin_\w+",
    "virtual call": r"\b(virtual|override|dynamic_cast|typeid)\b",
    "exception": r"\b(throw|try|catch)\b",
    "unbounded loop": r"\b(while|do|goto)\b",
    "block copy": r"\b(memcpy|memmove|memset)\b",
    "floating point": r"\b(float|double|(sqrt|exp|log|pow|sin|cos|tanh)[fl]?)\b",
    "include": r"#\s*include\s*<",
    "raw pragma": r"#\s*pragma\s+(?!once)|\b_Pragma\b",
    "input or output": r"\b(printf|fprintf|cout|cerr)\b",
    "lambda or function pointer": r"\[\s*[&=]?\s*\]\s*\(|\(\s*\*\s*\w+\s*\)\s*\(",
}
_BRACKETS = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]"
_DECLARATOR = rf"\s*[*&]*\w+\s*(?:{_BRACKETS}\s*)*"
_DECLARATION = re.compile(rf"\b([A-Za-z_]\w*)\b[*&]*\s+({_DECLARATOR}(?:,{_DECLARATOR})*)[;={{)]")
_NO_TYPE = re.compile(r"return|else|delete|new|case|goto|using|namespace|NPU_\w+")
_QUALIFIER = r"(?:const\b|volatile\b|override\b|final\b|noexcept\b(?:\s*\([^;{}()]*\))?|&&?)"
_FUNCTION = re.compile(rf"\b(\w+)\s*\(([^;{{}}]*)\)\s*(?:{_QUALIFIER}\s*)*(?:->[^;{{}}()]*)?\{{")
_CONSTANT = r"[A-Z][A-Z0-9_]*"


@dataclass(frozen=True)
class Finding:
    """One construct that is refused."""

    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.line}: {self.kind}: {self.text}"


def bare(text: str) -> str:
    """Source without comments and string literals; lines stay where they are."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n") or " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', re.sub(r'(#\s*include\s*)"[^"]*"', r"\1", text))


def _closing(source: str, start: int, brackets: str) -> int:
    """Position behind the bracket that closes the one before `start`."""
    depth = 1
    while depth and start < len(source):
        depth += {brackets[0]: 1, brackets[1]: -1}.get(source[start], 0)
        start += 1
    return start


def loops(source: str) -> list[tuple[int, str, str]]:
    """Position, header without its parentheses and body of each `for`."""
    found = []
    for match in re.finditer(r"\bfor\s*\(", source):
        end = _closing(source, match.end(), "()")
        rest = re.compile(r"\s*").match(source, end)
        start = rest.end() if rest else end
        if source[start : start + 1] == "{":
            stop = _closing(source, start + 1, "{}")
        else:
            stop = source.find(";", start) + 1 or len(source)
        found.append((match.start(), source[match.end() : end - 1], source[start:stop]))
    return found


def runtime_names(source: str) -> frozenset[str]:
    """Upper-case names that are no constants: variables and parameters without `constexpr`."""
    plain = re.sub(r"\btemplate\s*<[^>]*>", "", source)
    types = r"(?:unsigned|signed|int|long|short|char|auto|size_t|u?int\d+_t)"
    found = re.finditer(rf"(?<![\w:])((?:(?:constexpr|const|static|inline)\s+)*){types}\b[\s&*]*({_CONSTANT})\b", plain)
    return frozenset(m[2] for m in found if "constexpr" not in m[1])


def is_constant(
    expression: str, constants: frozenset[str] = frozenset(), runtime: frozenset[str] = frozenset()
) -> bool:
    """Whether every name is a constant (upper case and none of `runtime`, or one of `constants`), a namespace or the type of a cast."""
    text = re.sub(r"\b\w+\s*::|\bu?int(\d+_t)?\b|\bunsigned\b|\bsize(of|_t)\b", "", expression)
    names = re.findall(r"\b[A-Za-z_]\w*", text)
    return all((re.fullmatch(_CONSTANT, n) and n not in runtime) or n in constants for n in names)


def _step(text: str, variable: str, runtime: frozenset[str]) -> str:
    """ "+" or "-" if the statement moves the variable by a constant that is not 0, "/" if it divides it, "" if neither."""
    if re.fullmatch(rf"\+\+\s*{variable}|{variable}\s*\+\+", text):
        return "+"
    if re.fullmatch(rf"--\s*{variable}|{variable}\s*--", text):
        return "-"
    match = re.fullmatch(rf"{variable}\s*(\+|-|/|>>)=\s*(.+)", text, re.DOTALL)
    if not match or not is_constant(match[2], runtime=runtime) or re.fullmatch(r"-.*|0+[uUlL]*", match[2]):
        return ""
    if match[1] == "/" and re.fullmatch(r"1[uUlL]*", match[2]):
        return ""
    return {"+": "+", "-": "-"}.get(match[1], "/")


def bounded(header: str, body: str, runtime: frozenset[str] = frozenset()) -> bool:
    """Whether a loop's trips are bounded by what its header says: one variable that moves by a constant towards a limit that does not depend on it,
    both of which the body leaves alone. Without a step, the body itself must count down to 0 (`v -= n;`, not under a condition) by what is
    never 0: a constant, or an `n` that it sets to the smaller of v and a constant (`n = v < C ? v : C;`)."""
    if ";" not in header:
        return ":" in header  # over an array
    parts = [p.strip() for p in header.split(";")]
    initial, condition, step = parts[0], parts[1], ";".join(parts[2:])
    if "||" in condition:
        return False
    return any(_limits(initial, part.strip(), step, body, runtime) for part in condition.split("&&"))


def _moves(variable: str, body: str) -> bool:
    """Whether a statement of the body changes the variable (and does not declare another of that name)."""
    moved = rf"(?<![.\w>])(?<!\w ){variable}\s*(=(?!=)|[-+*/%&|^]=|<<=|>>=|\+\+|--)|(\+\+|--)\s*{variable}\b"
    return re.search(moved, body) is not None


def _counts_down(variable: str, body: str, runtime: frozenset[str]) -> bool:
    """Whether the body, in its outermost block, takes from the variable what is not 0."""
    outer = body[1:-1]
    while (flat := re.sub(r"\{[^{}]*\}", "", outer)) != outer:
        outer = flat
    match = re.search(rf"(?:^|[;}}])\s*{variable}\s*-=\s*([^;]*);", outer)
    if match is None:
        return False
    amount = match[1].strip()
    if is_constant(amount, runtime=runtime):
        return re.fullmatch(r"-.*|\(?0+[uUlL]*\)?", amount) is None
    smaller = rf"(?:^|[;}}\s]){re.escape(amount)}\s*=\s*{variable}\s*<\s*([^;?]+?)\s*\?\s*{variable}\s*:\s*([^;]+?)\s*;"
    chosen = re.search(smaller, outer[: match.start() + 1])
    return (
        re.fullmatch(r"\w+", amount) is not None
        and chosen is not None
        and chosen[1] == chosen[2]
        and is_constant(chosen[1], runtime=runtime)
        and re.fullmatch(r"-.*|0+[uUlL]*", chosen[1]) is None
        and len(re.findall(rf"\b{re.escape(amount)}\s*(?:=(?!=)|[-+*/]=|\+\+|--)", outer)) == 1
    )


def _limits(initial: str, comparison: str, step: str, body: str, runtime: frozenset[str]) -> bool:
    match = re.fullmatch(r"(?s)([A-Za-z_]\w*)\s*(<=?|>=?)(?![<>=])\s*(.+)", comparison)
    if not match:
        return False
    variable, relation, limit = match[1], match[2], match[3]
    if re.search(rf"\b{variable}\b", limit):
        return False
    if not step:
        to_zero = relation == ">" and re.fullmatch(r"0+[uUlL]*", limit) is not None
        return to_zero and _counts_down(variable, body, runtime)
    names = re.findall(r"(?<![.\w])[A-Za-z_]\w*(?!\w*\s*\()", limit)
    if any(_moves(name, body) for name in (variable, *names)):
        return False
    way = _step(step, variable, runtime)
    if relation[0] == "<":
        return way == "+"
    unsigned = re.search(r"\b(unsigned|uint\w*|size_t)\b", initial) is not None
    return (way == "-" and not (unsigned and relation == ">=")) or (way == "/" and relation == ">")


def variable_arrays(source: str) -> list[tuple[int, str]]:
    """Position and text of declarations of arrays whose extent is no constant: a parameter or variable of a function."""
    templates = " ".join(re.findall(r"\btemplate\s*<([^>]*)>", source))
    named = set(re.findall(r"\b\w+\s+(\w+)", templates))
    named |= set(re.findall(r"\bconstexpr\s+(?:static\s+)?[\w:]+\s+(\w+)\s*[={]", source))
    plain = re.sub(r"\btemplate\s*<[^>]*>", "", source)
    runtime = runtime_names(source)
    parameters = set(re.findall(r"[(,]\s*(?:const\s+)?[\w:]+\s+(\w+)\s*(?=[,)])", plain))
    found = []
    for match in _DECLARATION.finditer(source):
        extents = [e[1:-1] for e in re.findall(_BRACKETS, match[2])]
        names = {n for e in extents for n in re.findall(r"\b[A-Za-z_]\w*", e)}
        if _NO_TYPE.fullmatch(match[1]) or not extents:
            continue
        if names & parameters or not all(is_constant(e, frozenset(named), runtime) for e in extents):
            found.append((match.start(), match[0].rstrip(";={) ")))
    return found


def findings(text: str) -> list[Finding]:
    """Refused constructs of one file, by line."""
    source = bare(text)
    found = [
        Finding(source.count("\n", 0, m.start()) + 1, kind, m[0].strip())
        for kind, pattern in FORBIDDEN.items()
        for m in re.finditer(pattern, source)
    ]
    runtime = runtime_names(source)
    found += [
        Finding(source.count("\n", 0, at) + 1, "unbounded loop", f"for ({' '.join(header.split())})")
        for at, header, body in loops(source)
        if not bounded(header, body, runtime)
    ]
    found += [
        Finding(source.count("\n", 0, at) + 1, "variable-length array", declaration)
        for at, declaration in variable_arrays(source)
    ]
    return sorted(found, key=lambda f: f.line)


def calls(text: str) -> dict[str, set[str]]:
    """Function -> functions of the text that its body names."""
    source = bare(text)
    bodies: dict[str, str] = {}
    for match in _FUNCTION.finditer(source):
        name = match[1]
        if name in ("if", "for", "switch"):
            continue
        end = _closing(source, match.end(), "{}")
        bodies[name] = bodies.get(name, "") + source[match.end() : end]
    return {
        name: {n for n in re.findall(r"\b(\w+)\s*(?:<[^<>;]*>)?\s*\(", body) if n in bodies}
        for name, body in bodies.items()
    }


def recursion(graph: dict[str, set[str]]) -> list[str]:
    """Functions that reach themselves."""
    found = []
    for start in graph:
        seen: set[str] = set()
        pending = list(graph[start])
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += graph[name]
        if start in seen:
            found.append(start)
    return found


def sources() -> list[Path]:
    """Everything that is synthesised: hls/ but for the portability header, and the kernels of operator folders."""
    root = Path(__file__).parent
    engines = [p for p in (root / "hls").iterdir() if p.suffix in (".hpp", ".cpp") and p.name != "npu_port.hpp"]
    return sorted(engines) + sorted((root / "ops").glob("*/kernel.hpp"))


def main(arguments: Iterable[str]) -> int:
    """Checks the files named, or all of the kit's; 1 if anything is found."""
    paths = [Path(a) for a in arguments] or sources()
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    lines = [f"{path}:{finding}" for path, text in texts.items() for finding in findings(text)]
    lines += [f"recursion: {name} reaches itself" for name in recursion(calls("\n".join(texts.values())))]
    print("\n".join(lines) or f"{len(paths)} files: nothing found")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
