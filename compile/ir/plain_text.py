"""JSON and YAML that people write or copy, read strictly: a key that stands twice is an InputError instead of a value that silently wins."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any

import yaml

from npuforge.compile.ir.errors import InputError


class DuplicateKeyError(InputError):
    """One mapping names a key twice."""


def parse_json(text: str | bytes, where: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """`json.loads`; DuplicateKeyError `<where>: key '<key>' twice`, ValueError where it is no JSON."""

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise _twice(where, key, "")
            found[key] = value
        return found

    return json.loads(text, object_pairs_hook=mapping, parse_constant=parse_constant)


def parse_yaml(text: str, where: str) -> Any:
    """`yaml.safe_load`; DuplicateKeyError `<where>: key '<key>' twice`, yaml.YAMLError where it is no YAML."""

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            seen = set()
            for key_node, _ in node.value:
                key = (key_node.tag, key_node.value)  # before merge keys are resolved: `<<` stands for no own key
                if isinstance(key_node, yaml.ScalarNode) and key in seen:
                    raise _twice(where, key_node.value, f" (again in line {key_node.start_mark.line + 1})")
                seen.add(key if isinstance(key_node, yaml.ScalarNode) else id(key_node))
            return super().construct_mapping(node, deep)

    return yaml.load(text, Loader)


def _twice(where: str, key: str, line: str) -> DuplicateKeyError:
    return DuplicateKeyError(f"{where}: key '{key}' twice{line}; leave one of them out")
