"""Files that an earlier build of ours left in a folder. A build takes the place of the one of its kind that was there (write_files.py): what `compile` wrote for our
NPU or a DPU, what it wrote for CANN, what `export` wrote.

A build's record says what belongs to it: `manifest.json`, or `ascend.json` and `export.json`, in which `listed` enters the names. What a user makes of a build
in its folder with the command that the build gives (`vai_c_xir`, `atc`, `build.sh`) belongs to it as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_RECORDS = {  # record -> a key by which it is ours, and what the build's own command makes beside it
    MANIFEST: ("files", ()),
    "ascend.json": ("soc", ("model.om", "atc.log")),
    "export.json": ("lowered", ("libnpuforge_ops.so", "libnpuforge_plugins.so")),
}
_OF_A_DPU = ("model.xmodel", "vai_c_xir.log", "meta.json", "md5sum.txt")


def is_build(folder: Path) -> bool:
    """Whether the files in `folder` are a build, rather than single results."""
    return any((folder / name).is_file() for name in _RECORDS)


def listed(folder: Path) -> None:
    """Enters the names of all files in a build's record that has none yet."""
    for name, (key, _) in _RECORDS.items():
        record = _read(folder / name, key)
        if record and "files" not in record:
            record["files"] = sorted(file.name for file in folder.iterdir())
            (folder / name).write_text(json.dumps(record, indent=1), encoding="utf-8")


def left_by_earlier(folder: Path, new: Path) -> list[Path]:
    """The files in `folder` that builds recorded there list or are known to have, where they are of the kind of `new` or lose a file to it. A record that is
    not ours counts for nothing."""
    names: set[str] = set()
    made_now = {file.name for file in new.iterdir()}
    for name, (key, made) in _RECORDS.items():
        record = _read(folder / name, key)
        own = {n for n in record.get("files", ()) if isinstance(n, str)}
        if record and (name in made_now or own & made_now):
            of_a_dpu = _OF_A_DPU if record.get("target") else ()
            names |= {name, *made, *of_a_dpu, *own}
    return [folder / n for n in sorted(names) if Path(n).name == n and (folder / n).is_file()]


def _read(path: Path, key: str) -> dict[str, Any]:
    """A record; empty where there is none, or another program's file of that name."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(record, dict) and key in record and isinstance(record.get("files", {}), dict | list)
    if not ours or (path.name == MANIFEST and not str(record.get("tool", "")).startswith("npuforge")):
        return {}
    return dict(record)
