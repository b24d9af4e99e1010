"""Loops of HLS C++: those that their header bounds, and that nothing in the rest of the loop unbinds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .arrays import is_constant
from .source import WORDS, Context, called, closing, declared, statement_end

_ZERO = r"0+[uUlL]*"
_ONE = r"1[uUlL]*"
_SET = r"=(?!=)|[-+*/%&|^]=|<<=|>>="
_ASSIGN = rf"(?:{_SET}|\+\+|--)"
_SIGNED = r"(?:const\s+)?(?:signed|int|long|int(?:32|64)_t)\s"
_SHORT = r"\b(?:u?int(?:8|16)_t|char|short|bool)\b"


def loops(source: str) -> list[tuple[int, str, str]]:
    """Position, header without its parentheses and body of each `for`."""
    found = []
    for match in re.finditer(r"\bfor\s*\(", source):
        end = start = closing(source, match.end(), "()")
        while start < len(source) and source[start].isspace():
            start += 1
        found.append((match.start(), source[match.end() : end - 1], source[start : statement_end(source, start)]))
    return found


def _moves(path: str, text: str) -> int:
    """How many statements change what `path` names (and do not declare another of that name)."""
    name = r"\s*(?:\.|->)\s*".join(re.findall(r"\w+", path))
    after = re.finditer(rf"(?:(\w+)\s+)?(?<![\w.])(?<!->){name}\s*(?:\[[^\]]*\]\s*)*{_ASSIGN}", text)
    count = sum(not m[1] or re.fullmatch(WORDS, m[1]) is not None for m in after)
    count += len(re.findall(rf"(?:\+\+|--)\s*{name}\b", text))
    group = rf"\([^()]*(?<![\w.]){name}\b[^()]*\)"
    count += len(re.findall(rf"(?:\+\+|--)\s*{group}", text))
    places = re.finditer(rf"(\w*)\s*{group}\s*(?:{_SET}|(?:\+\+|--)\s*[;,)])", text)
    return count + sum(m[1] == "" or re.fullmatch(WORDS, m[1]) is not None for m in places)


def _is(expression: str, path: str) -> bool:
    """Whether the expression is what `path` names, or may be by `? :` or a comma."""
    parts = re.split(r"[?:,]", re.sub(r"[()\s]", "", expression))
    return re.sub(r"\s", "", path) in (parts[1:] or parts)


def _escapes(path: str, text: str) -> bool:
    """Whether a pointer or a reference that may be written is made of what `path` names."""
    name = re.escape(path)
    pointer = rf"(?:[=(,{{\[?:;!~|+*/%<>^-]|\breturn|\*\s*\))\s*&\s*\(?\s*{name}\b(?!\s*(?:\.|->))"
    cast = rf"&\s*>\s*\(\s*{name}\b|&\s*\)\s*{name}\b"
    references = re.finditer(r"([^;{}()]*[\w>]\s*)&{1,2}\s*\w+\s*(?:=|\(|\{)\s*([^;]*?)[)}]?\s*;", text)
    if any(not re.search(r"\bconst\b", m[1]) and _is(m[2], path) for m in references):
        return True
    return re.search(f"{pointer}|{cast}", text) is not None


def _reached(text: str, known: Context) -> Iterator[str]:
    """Parameters and body of every function that the text calls, and of those that they call."""
    pending, seen = [text], set()
    while pending:
        for name in set(re.findall(r"\b\w+\b(?=\s*[(<])", pending.pop())):
            if name in known.bodies and name not in seen:
                seen.add(name)
                pending.append(known.bodies[name])
                yield known.bodies[name]


def _by_name(path: str, text: str, known: Context, around: str) -> bool:
    """Whether a function that the text calls changes what `path` names: a variable that `around`, the function about the text, doesn't declare, or a
    member, where the object is handed over or its own function is called."""
    member = re.fullmatch(r"(?s)(\w+)\s*(?:\.|->).*?(\w+)", path)
    if member is None:
        if declared(path, around):
            return False
        return any(_moves(path, body) and not declared(path, body) for body in _reached(text, known))
    root, last = member[1], member[2]
    handed = [
        name
        for _, name, given in called(text)
        for k, a in enumerate(given)
        if _is(a.lstrip("&"), root) and (a[:1] == "&" or "->" in path or k in known.written.get(name, ()))
    ]
    if not re.search(rf"\bconst\s+[\w:<>]+[\s&]+{root}\b", around):
        handed += re.findall(rf"\b{root}\s*(?:\.|->)\s*(\w+)\s*\(", text)
    first = [known.bodies[name] for name in handed if name in known.bodies]
    bodies = [*first, *(deeper for body in first for deeper in _reached(body, known))]
    return any(_moves(last, re.sub(r"\b\w+\s*(?:\.|->)", "", body)) for body in bodies)


def _passed(path: str, text: str, known: Context, around: str) -> bool:
    """Whether a call may write what `path` names: by reference, through a macro, or because the function names it itself."""
    functors: set[int] = set().union(*(w for name, w in known.written.items() if name.endswith("::operator()")))
    for before, name, given in called(text):
        written = known.written.get(name, functors) | known.written.get(before, set())
        if any(k in written and _is(a, path) for k, a in enumerate(given)):
            return True
        parameters, body = known.macros.get(name, ([], ""))
        if any(_is(a, path) and changes(p, body) for p, a in zip(parameters, given, strict=False)):
            return True
    used = set(re.findall(r"\b\w+\b", text)) & set(known.macros)
    return any(changes(path, known.macros[word][1]) for word in used) or _by_name(path, text, known, around)


def changes(path: str, text: str, known: Context | None = None, around: str = "") -> bool:
    """Whether the text may change what `path` names."""
    return _moves(path, text) > 0 or _escapes(path, text) or (known is not None and _passed(path, text, known, around))


@dataclass(frozen=True)
class _Loop:
    initial: str
    condition: str
    step: str
    body: str
    runtime: frozenset[str]
    known: Context
    around: str

    def way(self, variable: str) -> str:
        """ "+" or "-" if the step moves the variable by a constant that is not 0 (twice if by 1), "/" if it divides it, "" if neither."""
        if re.fullmatch(rf"\+\+\s*{variable}|{variable}\s*\+\+", self.step):
            return "++"
        if re.fullmatch(rf"--\s*{variable}|{variable}\s*--", self.step):
            return "--"
        match = re.fullmatch(rf"{variable}\s*(\+|-|/|>>)=\s*(.+)", self.step, re.DOTALL)
        if not match or not self.constant(match[2]):
            return ""
        one = re.fullmatch(_ONE, match[2]) is not None
        if match[1] in ("+", "-"):
            return match[1] * (1 + one)
        return "" if match[1] == "/" and one else "/"

    def constant(self, amount: str) -> bool:
        """Whether it is a constant above 0."""
        return is_constant(amount, runtime=self.runtime) and not re.fullmatch(rf"(?s)-.*|\(?{_ZERO}\)?", amount)

    def limited(self, comparison: str) -> bool:
        """Whether this part of the condition ends the loop."""
        match = re.fullmatch(r"(?s)([A-Za-z_]\w*)\s*(<=?|>=?)(?![<>=])\s*(.+)", comparison)
        if not match:
            return False
        variable, relation, limit = match[1], match[2], match[3]
        declaration = rf"(?s)[A-Za-z_][\w:]*(?:\s+[A-Za-z_][\w:]*)*?\s+(?:.*[,\s])?{variable}\s*[={{(].*"
        if re.search(rf"\b{variable}\b", limit) or not re.fullmatch(declaration, self.initial):
            return False
        signed = re.match(_SIGNED, self.initial) is not None
        if not self.step:
            return relation == ">" and re.fullmatch(_ZERO, limit) is not None and self.counts_down(variable, signed)
        rest = f"{self.condition}; {self.body}"
        paths = re.findall(r"(?<![.\w>])[A-Za-z_]\w*(?:\s*(?:\.|->)\s*\w+)*(?!\w*\s*\()", limit)
        if any(changes(path, rest, self.known, self.around) for path in (variable, *paths)):
            return False
        way = self.way(variable)
        if relation[0] == "<":
            short = re.search(_SHORT, self.initial) is not None  # may never reach more than it holds
            return way[:1] == "+" and not (short and not (re.fullmatch(r"\d+", limit) and int(limit) <= 127))
        if way == "/":
            return relation == ">" and is_constant(limit, runtime=self.runtime) and not limit.startswith("-")
        return way[:1] == "-" and (signed or (relation == ">" and way == "--"))

    def counts_down(self, variable: str, signed: bool) -> bool:
        """Whether the body, in its outermost block, takes from the variable what is not 0 and not beyond 0."""
        rest = f"{self.condition}; {self.body}"
        if _moves(variable, rest) != 1 or _escapes(variable, rest) or _passed(variable, rest, self.known, self.around):
            return False
        outer = self.body[1:-1] if self.body.startswith("{") else self.body
        skips = outer
        for _, header, inner in loops(outer):
            skips = skips.replace(header, "").replace(inner, "")
        if re.search(r"\bcontinue\b", skips):
            return False
        while (flat := re.sub(r"\{[^{}]*\}", "", outer)) != outer:
            outer = flat
        match = re.search(
            rf"(?:^|[;}}])\s*{variable}\s*-=\s*([^;]*);|(?:^|[;}}])\s*(?:--\s*{variable}|{variable}\s*--)\s*;", outer
        )
        if match is None:
            return False
        amount = (match[1] or "1").strip()
        if self.constant(amount):
            return signed or re.fullmatch(_ONE, amount) is not None
        smaller = (
            rf"(?:^|[;}}\s]){re.escape(amount)}\s*=\s*{variable}\s*<\s*([^;?]+?)\s*\?\s*{variable}\s*:\s*([^;]+?)\s*;"
        )
        chosen = re.search(smaller, outer[: match.start() + 1])
        return (
            re.fullmatch(r"\w+", amount) is not None
            and chosen is not None
            and chosen[1] == chosen[2]
            and self.constant(chosen[1])
            and len(re.findall(rf"\b{amount}\s*{_ASSIGN}|(?:\+\+|--)\s*{amount}\b", self.body)) == 1
            and not (_escapes(amount, self.body) or _passed(amount, self.body, self.known, self.around))
        )


def bounded(
    header: str,
    body: str,
    runtime: frozenset[str] = frozenset(),
    known: Context | None = None,
    around: str = "",
    ranges: bool = False,
) -> bool:
    """Whether a loop's trips are bounded by what its header says: one variable, declared there, that moves by a constant towards a limit that does not
    depend on it, both of which the rest of the loop leaves alone: itself, through a reference, a pointer, a macro or a function. Without a step, the body
    itself must count down to 0 (`v -= n;`, once, not under a condition, and nothing skips it) by what never passes 0: 1, or an `n` that it sets to the
    smaller of v and a constant (`n = v < C ? v : C;`). `around`: parameters and body of the function it stands in;
    `ranges`: the text has types with a `begin` of their own."""
    if ";" not in header:
        return ":" in header and not ranges  # over an array
    parts = [p.strip() for p in header.split(";")]
    if "||" in parts[1]:
        return False
    loop = _Loop(parts[0], parts[1], ";".join(parts[2:]), body, runtime, known or Context(), around)
    return any(loop.limited(part.strip()) for part in parts[1].split("&&"))
