"""Call graph of HLS C++ by name, and the functions that reach themselves. Overloads are one function."""

from __future__ import annotations

import re

from .source import Function, bare, functions, macros, structs


def _callers(source: str, functors: set[str]) -> dict[str, set[str]]:
    """Variable -> the call operators that a call of it may mean, `functors` being the structs that have one. What a template leaves open may be any."""
    types = {name: {f"{name}::operator()"} for name in functors}
    for match in re.finditer(r"\b(?:class|typename)\s+(\w+)", source):
        types.setdefault(match[1], {f"{name}::operator()" for name in functors})
    types["auto"] = {f"{name}::operator()" for name in functors}
    found: dict[str, set[str]] = {}
    for name, reached in types.items():
        for match in re.finditer(rf"\b{name}\b(?:\s*[&*]+\s*|\s+)(?:const\s+)?(\w+)", source):
            found[match[1]] = found.get(match[1], set()) | reached
    return found


def _operators(function: Function, symbols: set[str], types: set[str]) -> set[str]:
    """Operators of `symbols` that stand beside a variable of a struct, or beside *this."""
    either = "|".join(map(re.escape, types)) or r"(?!)"
    names = set(re.findall(rf"\b(?:{either})\b(?:\s*[&*]+\s*|\s+)(?:const\s+)?(\w+)", function.text))
    values = [rf"(?<![.\w>]){n}\b" for n in names] + [r"\(\s*\*\s*this\s*\)", r"\*\s*this\b"]
    found = set()
    for symbol in symbols:
        sign = rf"(?<![-+*/%^&|!=<>]){re.escape(symbol)}(?![-+/%^&|=<>])"
        if any(re.search(rf"{v}\s*{sign}|{sign}\s*{v}(?!\s*(?:\.|->|\[|\())", function.body) for v in values):
            found.add(f"operator{symbol}")
    return found


def calls(text: str) -> dict[str, set[str]]:
    """Function or macro -> functions and macros of the text that its body names."""
    source = bare(text)
    defined = functions(source)
    replaced = macros(source)
    nodes = {f.name for f in defined} | set(replaced)
    types = {name for name, _, _ in structs(source)}
    functors = {n.removesuffix("::operator()") for n in nodes if n.endswith("::operator()")}
    variables = _callers(source, functors)
    symbols = {n.removeprefix("operator") for n in nodes if n.startswith("operator")} - {"[]"}
    graph: dict[str, set[str]] = {name: set() for name in nodes}
    for name, (_, macro) in replaced.items():
        graph[name] |= {n for n in re.findall(r"\b\w+\b", macro) if n in nodes}
    for function in defined:
        body, reached = function.body, graph[function.name]
        named = set(re.findall(r"\b(\w+)\s*(?:<(?:[^<>;]|<[^<>;]*>)*>)?\s*\(", body))
        named |= set(re.findall(r"\(\s*(\w+)\s*\)\s*\(", body)) | (set(re.findall(r"\b\w+\b", body)) & set(replaced))
        named |= {t for t in types & nodes if re.search(rf"\b{t}\s*\{{|\b{t}\s+\w+\s*[({{;]", body)}
        reached |= {n for n in named if n in nodes}
        for name in named & set(variables):
            reached |= variables[name]
        if re.search(r"\(\s*\*\s*this\s*\)\s*\(|\boperator\s*\(\s*\)\s*\(", body):
            reached |= {f"{t}::operator()" for t in functors}
        reached |= {
            f"{t}::operator()" for t in functors if re.search(rf"\b{t}\s*(?:\{{[^{{}}]*\}}|\(\s*\))\s*\(", body)
        }
        reached |= {n for n in re.findall(r"\boperator\s*[-+*/%^&|~!=<>,]+", body) if n in nodes}
        reached |= _operators(function, symbols, types)
    return graph


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
