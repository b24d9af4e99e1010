"""What the lint refuses in one file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .arrays import runtime_names, variable_arrays
from .loops import bounded, loops
from .source import Context, bare, context, declared, functions, includes

_DIGITS = r"\d[\d']*"
_FLOAT = (
    rf"(?<![\w.])(?:{_DIGITS}\.(?:{_DIGITS})?(?:[eE][-+]?\d+)?|\.{_DIGITS}(?:[eE][-+]?\d+)?|{_DIGITS}[eE][-+]?\d+"
    r"|0[xX][\da-fA-F'.]+[pP][-+]?\d+)\w*"
)
_CAPTURES = r"(?:[=(,;{}?:|!<>+*/%^~-]|&&|\breturn|^)\s*\[(?!\[)[^\[\]]*\]\s*(?=[({]|mutable\b|noexcept\b|->|<)"
FORBIDDEN = {
    "dynamic memory": r"\b(new|delete|malloc|calloc|realloc|free|alloca|make_unique|make_shared)\b",
    "standard library": r"\bstd\s*::|\busing\s+namespace\s+std\b|\b(vector|deque|list|map|set|unordered_\w+|basic_string|function)\s*<",
    "compiler builtin": r"\b__(?:builtin|atomic|sync)_\w+",
    "virtual call": r"\b(virtual|override|dynamic_cast|typeid)\b",
    "exception": r"\b(throw|try|catch)\b",
    "unbounded loop": r"\b(while|do|goto)\b",
    "block copy": r"\b(memcpy|memmove|memset)\b",
    "floating point": rf"\b(float|double|_Float\w+|__fp16|__bf16|__float128|_Complex|(sqrt|exp|log|pow|sin|cos|tanh)[fl]?)\b|{_FLOAT}",
    "include": r"#\s*(?:include[^\S\n]*[^\s\"]|include_next|import)",
    "raw pragma": r"#\s*pragma\s+(?!once)|\b_Pragma\b",
    "input or output": r"\b(printf|fprintf|cout|cerr)\b",
    "lambda or function pointer": (
        rf"{_CAPTURES}|\(\s*[*&]{{1,2}}\s*(?:const\s*)?\w*\s*(?:\[\w*\]\s*)*\)\s*\((?!\s*\))|\(\s*\*\s*\w*\s*\)\s*\(|\w\s*::\s*\*"
        r"|\busing\s+\w+\s*=[^;]*?(?<!decltype)(?<!sizeof)\s*\([^;]*;|\btypedef\b[^;{]*\w\s*\([^;{]*\)\s*;"
    ),
    "inline assembly": r"\b(asm|__asm|__asm__)\b",
    "end of the program": r"\b(abort|exit|_exit|_Exit|quick_exit|atexit|terminate|longjmp|siglongjmp|setjmp|sigsetjmp|signal|raise|assert)\s*\(",
    "thread or coroutine": r"\b(thread_local|_Thread_local|co_await|co_yield|co_return)\b",
    "variable arguments": r"\bva_(list|start|arg|end|copy)\b|\b\w+[\s*&]+\w+\s*,\s*\.\.\.\s*\)",
    "token that hides another": r"##|%:|<%|%>|<:(?!:[^:>])|:>",
}
GENERATED = "npu_isa.hpp"  # of the instruction set (isa/generate.py)


@dataclass(frozen=True)
class Finding:
    """One construct that is refused."""

    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.line}: {self.kind}: {self.text}"


def function_values(source: str) -> list[tuple[int, str]]:
    """Position and name of functions of the text that are named without being called."""
    found = []
    for name in {f.name for f in functions(source)}:
        if (
            not name.isidentifier()
            or declared(name, source)
            or re.search(rf"\b(?:struct|class|enum)\s+{name}\b", source)
        ):
            continue
        uses = rf"[=(,{{?:&]\s*(?<!::)&?\s*(?<![\w.>:]){name}\s*(?=[;,)}}?:])"
        found += [(m.start(), name) for m in re.finditer(uses, source)]
    return found


def findings(text: str, known: Context | None = None, headers: frozenset[str] | None = None) -> list[Finding]:
    """Refused constructs of one file, by line. `known`: functions and macros of all files, without: of this one. `headers`: names that it may include,
    without: any."""
    source = bare(text)
    known = known or context(source)

    def at(position: int) -> int:
        return source.count("\n", 0, position) + 1

    found = [
        Finding(at(m.start() + len(m[0]) - len(m[0].lstrip())), kind, m[0].strip())
        for kind, pattern in FORBIDDEN.items()
        for m in re.finditer(pattern, source, re.MULTILINE)
    ]
    found += [Finding(at(p), "lambda or function pointer", name) for p, name in function_values(source)]
    found += [
        Finding(line, "include", f'"{name}" is no header of the kit and is not checked with this file')
        for line, name in includes(text)
        if headers is not None and name not in headers
    ]
    runtime = runtime_names(source)
    ranges = re.search(r"\bbegin\s*\(", source) is not None
    defined = functions(source)
    for position, header, body in loops(source):
        around = "".join(f.text for f in defined if f.end - len(f.body) < position < f.end)
        if not bounded(header, body, runtime, known, around, ranges):
            found.append(Finding(at(position), "unbounded loop", f"for ({' '.join(header.split())})"))
    found += [Finding(at(p), "variable-length array", declaration) for p, declaration in variable_arrays(source)]
    return sorted(found, key=lambda f: f.line)
