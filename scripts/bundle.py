"""A bundle as one tar file, and its own sample on a device: `npuforge compile -o NAME.tar`, every command on a NAME.tar, `npuforge run NAME --check`."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npuforge.compile.ir.errors import FormatError, UsageError
from npuforge.compile.steps.write_files import ARTIFACTS, staging

TAR, COMPRESSED = ".tar", (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")
SHARE = 1e-4  # of the largest expected magnitude: what the order of float sums in the CPU partition may cost; an int8 step is 1/255
SMALL = 1e-5  # of any value: ONNX Runtime's sigmoid and exponential are that far off near 0
LOWEST_COSINE = 0.99  # behind a CPU partition that the NPU reads


@contextmanager
def folder_for(output: Path) -> Iterator[Path]:
    """Where a build is to be written: `output`, or for NAME.tar a temporary folder that becomes the tar file when the block ends well."""
    if output.suffix.lower() in COMPRESSED:
        raise UsageError(f"-o {output}: a bundle is not compressed; give NAME.tar, or a folder")
    if output.suffix.lower() != TAR:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="npuforge-") as temporary:
        yield Path(temporary)
        with staging(output.parent) as place, tarfile.open(place / output.name, "w") as archive:
            for file in sorted(Path(temporary).iterdir()):
                archive.add(file, file.name, filter=_plain)


def results_of(output: Path) -> list[Path]:
    """The files that a compile into `output` writes."""
    return [output] if output.suffix.lower() == TAR else [output / name for name in ARTIFACTS]


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same bytes give the same archive."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


def is_bundle_file(path: Path) -> bool:
    """Whether it is a tar file by its name or content."""
    return path.is_file() and (path.suffix.lower() == TAR or tarfile.is_tarfile(path))


def unpack(path: Path, folder: Path) -> None:
    """The files of a tar into `folder`. FormatError where it is no tar, is cut off, or holds anything but plain files with plain names."""
    try:
        with tarfile.open(path) as archive:
            for entry in archive:
                name = entry.name.removeprefix("./")
                if name in ("", ".") and entry.isdir():
                    continue
                if not entry.isfile() or Path(name).name != name or name == "..":
                    raise FormatError(
                        f"{path}: its entry '{entry.name}' is not a plain file at the top; expected what `npuforge compile -o NAME.tar` writes"
                    )
                stream = archive.extractfile(entry)
                assert stream is not None
                with stream, (folder / name).open("wb") as file:
                    while block := stream.read(1 << 20):
                        file.write(block)
    except (tarfile.TarError, EOFError) as error:
        raise FormatError(f"{path}: not a whole tar file ({error}); copy it again, or compile again") from error


@dataclass(frozen=True)
class Checked:
    """One output of the sample. `largest`: largest error as a share of the largest expected magnitude; `right`: within what the manifest allows;
    `unlike`: how its shape differs from the expected one."""

    name: str
    values: int
    differing: int
    largest: float
    cosine: float
    right: bool
    unlike: str = ""

    def __str__(self) -> str:
        if self.unlike:
            return f"{self.name}: NOT as expected, {self.unlike}"
        if not self.values:
            return f"{self.name}: nothing was compared, the sample gives no rows and none were found"
        if not self.differing:
            return f"{self.name}: as expected, all {self.values} values equal"
        verdict = "as expected but for rounding" if self.right else "NOT as expected"
        return (
            f"{self.name}: {verdict}, {self.differing} of {self.values} values differ, largest error {self.largest:.3g} of the largest value, "
            f"cosine {self.cosine:.6f}"
        )


def check_output(name: str, expected: np.ndarray, found: np.ndarray | None, comparison: str) -> Checked:
    """`comparison`: `values` (each within SHARE of the largest magnitude and SMALL; integers equal) or `cosine` (at least LOWEST_COSINE)."""
    if found is None or found.shape != expected.shape:
        unlike = (
            f"shape expected {list(expected.shape)}, found {'no such output' if found is None else list(found.shape)}"
        )
        return Checked(name, expected.size, expected.size, float("inf"), 0.0, False, unlike)
    a, b = expected.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    error = np.where(same, 0.0, np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), np.inf))
    largest = float(error.max(initial=0.0)) / (scale or 1.0)
    norms = float(np.linalg.norm(a[finite]) * np.linalg.norm(b[finite]))
    cosine = 1.0 if same.all() else float(a[finite] @ b[finite]) / norms if norms else 0.0
    if comparison == "cosine":
        right = cosine >= LOWEST_COSINE
    else:
        right = (
            bool(same.all()) if expected.dtype.kind != "f" else bool(error.max(initial=0.0) <= SHARE * scale + SMALL)
        )
    return Checked(name, a.size, int((~same).sum()), largest, cosine, right)


def refuse_tar_with(option: str, output: Path) -> None:
    """UsageError: only a build for our own NPU is a bundle. `option`: what asks for another, as typed."""
    if output.suffix.lower() == TAR:
        raise UsageError(f"-o {output}: a tar file holds a build for npuforge's NPU; give a folder with {option}")
