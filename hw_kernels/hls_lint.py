"""Lint of HLS C++: what no synthesis tool takes. `python -m npuforge.hw_kernels.hls_lint FILE...` names each finding with its line; exit code 1.

Refused: memory from the heap, the standard library and block copies, virtual calls, exceptions, recursion, loops without a bound, floating point,
includes and pragmas outside the portability header (hls/npu_port.hpp), input and output, lambdas and function pointers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FORBIDDEN = {
    "dynamic memory": r"\b(new|delete|malloc|calloc|realloc|free|alloca)\b",
    "standard library": r"\bstd\s*::",
    "virtual call": r"\b(virtual|override|dynamic_cast|typeid)\b",
    "exception": r"\b(throw|try|catch)\b",
    "unbounded loop": r"\b(while|do|goto)\b",
    "block copy": r"\b(memcpy|memmove|memset)\b",
    "floating point": r"\b(float|double|sqrt|exp|expf|log|pow|sin|cos|tanh)\b",
    "include": r"#\s*include\s*<",
    "raw pragma": r"#\s*pragma\s+(?!once)|\b_Pragma\b",
    "input or output": r"\b(printf|fprintf|cout|cerr)\b",
    "lambda or function pointer": r"\[\s*[&=]?\s*\]\s*\(|\(\s*\*\s*\w+\s*\)\s*\(",
}
_FOR = re.compile(r"\bfor\s*\(([^;]*;[^;]*;[^{]*)\)\s*\{?")
_FUNCTION = re.compile(r"\b(\w+)\s*\(([^;{}]*)\)\s*(const\s*)?\{")


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


def findings(text: str) -> list[Finding]:
    """Refused constructs of one file, by line."""
    source = bare(text)
    found = [
        Finding(source.count("\n", 0, m.start()) + 1, kind, m[0].strip())
        for kind, pattern in FORBIDDEN.items()
        for m in re.finditer(pattern, source)
    ]
    found += [
        Finding(source.count("\n", 0, m.start()) + 1, "unbounded loop", f"for ({m[1].strip()})")
        for m in _FOR.finditer(source)
        if not re.search(r"[<>]", m[1].split(";")[1])
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
        depth, end = 1, match.end()
        while depth and end < len(source):
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
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
