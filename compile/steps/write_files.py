"""The last steps: `model.bin`, `model.xmodel`, the files that `compare` needs, and `manifest.json`, all into a staging folder.

`Staging` gives nothing-half-written: files are made in a folder beside the output and renamed into place when all of them are complete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from npuforge.compile.context import Context
from npuforge.compile.ir.errors import NpuforgeError, WriteError
from npuforge.compile.ir.serialize import save
from npuforge.compile.steps import earlier_build
from npuforge.compile.steps.generate import CompiledProgram
from npuforge.compile.steps.import_onnx import prepare_model
from npuforge.compile.steps.sample import EXPECTED, SAMPLE, write_sample
from npuforge.compile.steps.write_bin import write_bin
from npuforge.compile.xir.batches import unlike_batches
from npuforge.compile.xir.bounds import untold_rows
from npuforge.compile.xir.writer import write_xmodel

MANIFEST = earlier_build.MANIFEST
BIN, XMODEL = "model.bin", "model.xmodel"
QUANTISED, SUMMARY, REFERENCE = (
    "quantised.npz",
    "summary.json",
    "reference.onnx",
)  # what compare, evaluate and report need
ARTIFACTS = (BIN, XMODEL, QUANTISED, SUMMARY, REFERENCE, SAMPLE, EXPECTED, MANIFEST)


@contextmanager
def staging(output: Path, option: str = "-o", sources: Iterable[Path] = ()) -> Iterator[Path]:
    """A temporary folder in `output`; its files replace those in `output` when the block ends well, else nothing changes.

    A build (a folder with a record, earlier_build.py) takes the place of the build of its kind that was in `output`: the files of that one that it does not have are removed.
    `option`: the one that chose `output`, for the message of the WriteError. `sources`: files that no result may replace.
    """
    created: list[Path] = []
    folder: Path | None = None
    try:
        for missing in reversed([p for p in (output, *output.parents) if not p.exists()]):
            missing.mkdir(exist_ok=True)
            created.append(missing)
        folder = Path(tempfile.mkdtemp(prefix=".npuforge-", dir=output))
        yield folder
        sources = list(sources)
        check_apart((output / file.name for file in folder.iterdir()), sources, option)
        _publish(folder, output, sources)
    except OSError as error:
        in_work = max(folder.iterdir(), key=lambda p: p.stat().st_mtime_ns, default=output) if folder else output
        where = output if folder is None and output.exists() else _final(str(error.filename or in_work), folder, output)
        raise WriteError(
            f"{where}: cannot be written ({error.strerror or error}); choose another place with {option}, or make room there"
        ) from error
    except NpuforgeError as error:
        raise type(error)(_final(str(error), folder, output)) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        for path in reversed(created):
            with contextlib.suppress(OSError):  # not empty: it holds the result
                path.rmdir()


def check_apart(results: Iterable[Path], sources: Iterable[Path], option: str) -> None:
    """Refuses results that would take the place of a file the command reads."""
    read = _identities(sources)
    for path in results:
        if _identities([path]) & read:
            raise WriteError(f"{path}: {option} would replace a file that this command reads; choose another place")


def _identities(paths: Iterable[Path]) -> set[tuple[int, int]]:
    """Device and inode of the files that are there."""
    return {(s.st_dev, s.st_ino) for s in (p.stat() for p in paths if p.exists())}


def _final(text: str, folder: Path | None, output: Path) -> str:
    """`text` with the names that files will have, instead of their temporary ones."""
    return text if folder is None else text.replace(str(folder), str(output))


def _publish(folder: Path, output: Path, sources: Iterable[Path]) -> None:
    """Moves the files into place, the manifest last (it vouches for the others), undisturbed by Ctrl-C. Of an earlier build nothing remains but what was read."""
    left: list[Path] = []
    if earlier_build.is_build(folder):
        earlier_build.listed(folder)
        read = _identities(sources)
        left = [p for p in earlier_build.left_by_earlier(output, folder) if not _identities([p]) & read]
    files = sorted(folder.iterdir(), key=lambda p: p.name == MANIFEST)
    for file in files:
        if (output / file.name).is_dir():
            raise IsADirectoryError(errno.EISDIR, "a folder of that name is in the way", str(output / file.name))
    with _undisturbed():
        for path in left:
            if not (folder / path.name).exists():
                path.unlink()
        for file in files:
            file.replace(output / file.name)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is over. (A signal mask would not do: another thread of the process takes the signal.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = {
        n: signal.signal(n, lambda number, frame: waiting.append(number)) for n in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    for missed in waiting:
        signal.raise_signal(missed)


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(compiled: CompiledProgram, ctx: Context, folder: Path) -> CompiledProgram:
    """Writes every file of the bundle into `folder`."""
    assert ctx.qgraph is not None
    write_bin(compiled, folder / BIN)
    model = write_xmodel(ctx.qgraph, folder / BIN, folder / XMODEL)
    ctx.note(unlike_batches(model) + untold_rows(model))
    save(ctx.qgraph, folder / QUANTISED)
    write_reference(ctx, folder)
    (folder / SUMMARY).write_text(json.dumps(summary(compiled, ctx), indent=1, default=str), encoding="utf-8")
    sample = write_sample(ctx, compiled.arch, folder)
    (folder / MANIFEST).write_text(json.dumps(manifest(compiled, ctx, folder, sample), indent=1), encoding="utf-8")
    return compiled


def write_reference(ctx: Context, folder: Path) -> None:
    """The float network with static shapes, for the reference column."""
    reference = prepare_model(ctx.options.model, ctx.options.shapes)
    (folder / REFERENCE).write_bytes(reference.SerializeToString())


def summary(compiled: CompiledProgram, ctx: Context) -> dict[str, Any]:
    """What the report shows about the compile run: performance and memory plan beside its origin."""
    return origin(ctx) | {
        "performance": compiled.performance,
        "memory": compiled.pool,
        "sram": [p["sram"] for p in compiled.tiled.to_json()["partitions"]] if compiled.tiled else [],
    }


def origin(ctx: Context) -> dict[str, Any]:
    """Of every compile run, whatever the target: model, choices, notices. Nothing that differs between two runs of one command."""
    options = ctx.options
    return {
        "model": {"file": options.model.name, "path": str(options.model.resolve()), "sha256": sha256(options.model)},
        "shapes": {name: list(shape) for name, shape in options.shapes.items()},
        "mode": options.mode,
        "calibrator": options.calibrator,
        "calibration_images": [p.name for p in options.calibration],
        "notes": ctx.qgraph.notes if ctx.qgraph else {},
        "notices": ctx.notices,
    }


def source_model(model: Path) -> dict[str, Any]:
    """The file that was compiled; `external`: the files that its weights are in, relative to it."""
    names = {
        entry.value
        for tensor in onnx.load(model, load_external_data=False).graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    external = {name: sha256(model.parent / name) for name in sorted(names)}
    return {"file": model.name, "sha256": sha256(model), "external": external}


def manifest(compiled: CompiledProgram, ctx: Context, folder: Path, sample: dict[str, Any]) -> dict[str, Any]:
    """What a board's loader reads first: file hashes, versions, arch, preprocessing, expected outputs of one sample."""
    return {
        "format": 1,
        "tool": compiled.meta["tool"],
        "model": source_model(ctx.options.model),
        "name": compiled.name,
        "arch": compiled.arch.to_json(),
        "fingerprint": compiled.arch.fingerprint,
        "mode": compiled.meta["mode"],
        "files": files_of(folder),
        "inputs": {t: compiled.meta["tensors"][t]["shape"] for t in compiled.meta["inputs"]},
        "outputs": {t: compiled.meta["tensors"][t]["shape"] for t in compiled.meta["outputs"]},
        "preprocess": ctx.preprocess.to_json(),
        "sample": sample,
    }


def files_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Name -> hash and size of every file, as the manifest lists them."""
    return {p.name: {"sha256": sha256(p), "bytes": p.stat().st_size} for p in sorted(folder.iterdir())}
