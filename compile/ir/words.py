"""Numbers in sentences that people read."""

from __future__ import annotations


def counted(count: int, one: str, several: str = "") -> str:
    """1 node, 2 nodes; `several` where it is not `one` with an s."""
    return f"{count} {one}" if count == 1 else f"{count} {several or one + 's'}"
