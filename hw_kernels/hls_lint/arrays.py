"""What is a constant in HLS C++, and arrays whose extent is none."""

from __future__ import annotations

import re

_BRACKETS = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]"
_DECLARATOR = rf"\s*[*&]*\w+\s*(?:{_BRACKETS}\s*)*"
_DECLARATION = re.compile(rf"\b([A-Za-z_]\w*)\b[*&]*\s+({_DECLARATOR}(?:,{_DECLARATOR})*)[;={{)]")
_NO_TYPE = re.compile(r"return|else|delete|new|case|goto|using|namespace|NPU_\w+")
_CONSTANT = r"[A-Z][A-Z0-9_]*"


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
