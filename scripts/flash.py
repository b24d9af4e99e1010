"""Brings a build and an overlay onto a board, over ssh or into a folder such as an SD card's: what `npuforge flash` does. No typer in here.

DESTINATION/build and DESTINATION/overlay are each copied beside their place, compared by sha256, and only then renamed into it.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import npuforge.board_runtime._native as _native

from npuforge.board_runtime.session import Session
from npuforge.compile.ir.errors import DeviceError, InputError, UsageError, WriteError
from npuforge.compile.ir.foreign_tools import ToolRun, run_tool
from npuforge.compile.steps.write_files import sha256
from npuforge.scripts.build_folder import Build

BOARD = "board.json"
BITSTREAMS = (".bit.bin", ".xclbin")
TREE = ".dtbo"
_REMOTE = re.compile(r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.@-]*):(?P<path>.*)", re.DOTALL)
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+-]*")
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")  # fmt: skip
RECORD = ".npuforge-flash"  # in each flashed folder: the names of what was put there, its own included
_LOADED = "loaded"
_FOREIGN = 17  # a status of ours for a folder that is not of an earlier flash, or holds more
_ABSENT = 127  # a shell's status for a command that it does not find

Steps = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Overlay:
    """Files of an overlay's folder. `tree` and `board` may be absent."""

    bitstream: Path
    tree: Path | None
    board: Path | None

    @property
    def files(self) -> list[Path]:
        """All that is copied."""
        return [self.bitstream, *(path for path in (self.tree, self.board) if path is not None)]


@dataclass
class Flashed:
    """What was done. `overlay`: empty without one, else `loaded` or why it was not; `check`: what the board printed."""

    destination: str
    files: list[str] = field(default_factory=list)
    overlay: str = ""
    check: str = ""


def find_overlay(folder: Path, build: Build) -> Overlay:
    """The overlay in `folder`. Raises InputError where it is not one, FormatError or ArchError where board.json is none or of another arch than the build."""
    if not folder.is_dir():
        raise InputError(f"--overlay {folder}: no such folder; give the one with the bitstream (docs/board.md)")
    names = sorted(path for path in folder.iterdir() if path.is_file())
    bitstreams = [path for path in names if path.name.endswith(BITSTREAMS)]
    trees = [path for path in names if path.suffix == TREE]
    if len(bitstreams) != 1 or len(trees) > 1:
        found = ", ".join(path.name for path in (*bitstreams, *trees)) or "none"
        raise InputError(
            f"--overlay {folder}: expected one bitstream (*{' or *'.join(BITSTREAMS)}) and at most one *{TREE}, found {found}"
        )
    board = folder / BOARD
    if board.exists():
        _native.Program.load(os.fspath(build.bin)).check_arch(_native.board_arch(os.fspath(board)))
    overlay = Overlay(bitstreams[0], trees[0] if trees else None, board if board.exists() else None)
    odd = [path.name for path in overlay.files if not _PLAIN_PATH.fullmatch(f"/{path.name}")]
    if odd:
        raise InputError(f"--overlay {folder}: {odd[0]}: give it a name of letters, digits and . _ + - only")
    return overlay


class Place(Protocol):
    """Where things are flashed to."""

    name: str

    def begin(self, parts: Mapping[str, str]) -> None:
        """Makes the folders beside those that they are to replace (`parts`: by the name of these), which must be of an earlier flash."""

    def copy(self, files: Sequence[Path], part: str) -> None:
        """Copies into the folder `part` and compares digests."""

    def publish(self, part: str, folder: str) -> None:
        """`part` takes the place of `folder`."""

    def clean(self, parts: Sequence[str]) -> None:
        """Removes what is left of `parts`; never fails."""


class LocalPlace:
    """A folder of this machine, made where its parent exists."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, os.fspath(folder)
        self._made = False

    def begin(self, parts: Mapping[str, str]) -> None:
        """WriteError where nothing can be written."""
        for folder in parts:
            there = self.folder / folder
            if (there.is_symlink() or there.exists()) and not _flashed(there):
                raise WriteError(f"{there}: {_foreign(folder)}")
        try:
            if not self.folder.is_dir():
                self.folder.mkdir()
                self._made = True
            for part in parts.values():
                (self.folder / part).mkdir()
        except OSError as error:
            raise self._refused(error) from error

    def copy(self, files: Sequence[Path], part: str) -> None:
        """WriteError where it does not fit or does not read back."""
        for file in files:
            target = self.folder / part / file.name
            try:
                with file.open("rb") as source, target.open("wb") as copied:
                    shutil.copyfileobj(source, copied)
                    copied.flush()
                    os.fsync(copied.fileno())  # a card may be pulled out
                same = sha256(target) == sha256(file)
            except OSError as error:
                raise self._refused(error) from error
            if not same:
                raise WriteError(
                    f"{target}: does not read back as it was written; try another card or folder with --to"
                )

    def publish(self, part: str, folder: str) -> None:
        """WriteError where it cannot be renamed; the earlier folder is then put back."""
        target, old = self.folder / folder, self.folder / f"{part}.old"
        try:
            if target.exists():
                target.rename(old)
            try:
                (self.folder / part).rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
        except OSError as error:
            raise self._refused(error) from error
        shutil.rmtree(old, ignore_errors=True)

    def clean(self, parts: Sequence[str]) -> None:
        """Also the folder, if this made it and nothing is in it."""
        for part in parts:
            shutil.rmtree(self.folder / part, ignore_errors=True)
        if self._made and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _refused(self, error: OSError) -> WriteError:
        return WriteError(
            f"{error.filename or self.folder}: cannot be written ({error.strerror}); choose another place with --to"
        )


class RemotePlace:
    """A folder of another machine, through OpenSSH's `ssh` and `scp`."""

    def __init__(self, host: str, path: str) -> None:
        if not _PLAIN_PATH.fullmatch(path) or ".." in path.split("/") or not path.strip("/"):
            raise UsageError(
                f"--to {host}:{path}: expected an absolute folder of letters, digits and . _ + - only, for example {host}:/opt/npuforge"
            )
        self.host, self.path, self.name = host, path.rstrip("/"), f"{host}:{path}"
        self._ssh, self._scp = _tool("ssh"), _tool("scp")
        self._begun = False

    def begin(self, parts: Mapping[str, str]) -> None:
        """DeviceError where the board cannot be reached or the folder not be made, WriteError where the place is taken."""
        self._do(f"mkdir -p {shlex.quote(self.path)}")
        for folder in parts:
            record = f"{folder}/{RECORD}"
            known = f'ls -A {folder} | while read -r n; do grep -qxF -e "$n" {record} || exit {_FOREIGN}; done'
            ours = f"[ -d {folder} ] && [ ! -L {folder} ] && [ -f {record} ]"
            looks = f"if [ -e {folder} ] || [ -L {folder} ]; then if {ours}; then {known}; else exit {_FOREIGN}; fi; fi"
            if self.run(f"cd {shlex.quote(self.path)} && {looks}").code == _FOREIGN:
                raise WriteError(f"{self.name}/{folder}: {_foreign(folder)}")
        self._begun = True
        self._do(f"cd {shlex.quote(self.path)} && mkdir " + " ".join(parts.values()))

    def copy(self, files: Sequence[Path], part: str) -> None:
        """DeviceError where a file does not arrive as it is."""
        target = f"{self.path}/{part}"
        sources = [os.fspath(file.absolute()) for file in files]
        done = run_tool("scp", [self._scp, "-q", *_OPTIONS, "--", *sources, f"{self.host}:{target}/"], Path.cwd())
        self._expect(done, "copy the files")
        names = " ".join(shlex.quote(file.name) for file in files)
        listed = self._do(f"cd {shlex.quote(target)} && sha256sum -- {names}").log.split("\n")
        found = {line.partition(" ")[2].lstrip(" *"): line.partition(" ")[0] for line in listed}
        for file in files:
            expected = sha256(file)
            if found.get(file.name) != expected:
                raise DeviceError(
                    f"{self.name}: {file.name} arrived with sha256 {found.get(file.name, 'none')}, expected {expected}; what was there is unchanged, try again"
                )

    def publish(self, part: str, folder: str) -> None:
        """DeviceError where it cannot be renamed; the earlier folder is then put back."""
        old = f"{part}.old"
        self._do(
            f"cd {shlex.quote(self.path)} && if [ -e {folder} ]; then mv {folder} {old}; fi && "
            f"{{ mv {part} {folder} || {{ [ ! -e {old} ] || mv {old} {folder}; exit 1; }}; }} && rm -rf {old}"
        )

    def clean(self, parts: Sequence[str]) -> None:
        """Best effort: the board may have gone."""
        if self._begun:
            self.run("rm -rf " + " ".join(shlex.quote(f"{self.path}/{part}") for part in parts))

    def run(self, command: str) -> ToolRun:
        """A shell command on the board, whatever its status."""
        return run_tool("ssh", [self._ssh, *_OPTIONS, "--", self.host, command], Path.cwd())

    def _do(self, command: str) -> ToolRun:
        done = self.run(command)
        self._expect(done, "prepare the folder")
        return done

    def _expect(self, done: ToolRun, what: str) -> None:
        if done.code != 0:
            raise DeviceError(
                f"{self.name}: could not {what} ({done.ended}: {done.last_line}); check that `ssh {self.host}` needs no password and that "
                "the folder is yours"
            )


def place_of(text: str) -> LocalPlace | RemotePlace:
    """`user@board:/folder`, or a folder of this machine. Raises UsageError for a destination that is neither."""
    remote = _REMOTE.fullmatch(text)
    if remote is not None:
        return RemotePlace(remote["host"], remote["path"])
    if ":" in text.split("/", 1)[0]:
        raise UsageError(f"--to {text}: expected user@board:/folder or a folder")
    folder = Path(text)
    if not folder.is_dir() and (folder.exists() or not folder.absolute().parent.is_dir()):
        raise WriteError(
            f"{folder}: cannot be written (no such folder); is the card mounted? Choose another place with --to"
        )
    return LocalPlace(folder)


def flash(
    build: Build,
    place: LocalPlace | RemotePlace,
    overlay: Overlay | None = None,
    *,
    check: bool = False,
    program: str = "npuforge",
    steps: Steps = lambda what, done, total: None,
) -> Flashed:
    """Copies, loads the overlay where the board has `fpgautil`, and with `check` runs the build's sample there with the command `program`.

    Raises UsageError for a build of another device or a check without a board, FormatError for a damaged `.bin`, WriteError or DeviceError
    where the destination does not take it, the overlay does not load, or the sample does not come out as expected.
    """
    if build.target:
        raise UsageError(f"{build.folder} was compiled for {build.target}; flash takes a build for npuforge's own NPU")
    if check and not isinstance(place, RemotePlace):
        raise UsageError(f"--check runs on the board: give it with --to user@board:/folder, found {place.name}")
    Session(build.bin)  # reads and checks every part of it, every instruction included
    total = 2 + (overlay is not None) + check
    mark = secrets.token_hex(4)
    parts = {"build": f"build.part-{mark}"} | ({"overlay": f"overlay.part-{mark}"} if overlay else {})
    given = {"build": build.files, "overlay": overlay.files if overlay else []}
    _refuse_sources(place, given)
    result = Flashed(place.name)
    try:
        place.begin(parts)
        for folder, part in parts.items():
            with tempfile.TemporaryDirectory(prefix="npuforge-") as temporary:
                record = Path(temporary) / RECORD
                record.write_text(
                    "".join(f"{n}\n" for n in (*(f.name for f in given[folder]), RECORD)), encoding="utf-8"
                )
                place.copy([*given[folder], record], part)
            result.files += [f"{folder}/{file.name}" for file in given[folder]]
        steps("flash", 1, total)
        for folder, part in parts.items():
            place.publish(part, folder)
    finally:
        place.clean(list(parts.values()))
    steps("flash", 2, total)
    if overlay is not None:
        result.overlay = _load(place, overlay)
        steps("flash", 3, total)
    if check and isinstance(place, RemotePlace):
        result.check = _check(place, program, settle=result.overlay == _LOADED)
        steps("flash", total, total)
    return result


def _load(place: LocalPlace | RemotePlace, overlay: Overlay) -> str:
    if not isinstance(place, RemotePlace):
        return "not loaded: copied only"
    if overlay.bitstream.name.endswith(".xclbin"):
        return "not loaded: an .xclbin is for XRT, which npuforge does not use; give a *.bit.bin for the device uio"
    if place.run("command -v fpgautil").code != 0:
        return "not loaded: the board has no fpgautil; load it with the board's own tool"
    words = ["fpgautil", "-b", f"{place.path}/overlay/{overlay.bitstream.name}"]
    words += ["-o", f"{place.path}/overlay/{overlay.tree.name}"] if overlay.tree is not None else []
    done = place.run(shlex.join(words))
    if done.code != 0:
        raise DeviceError(
            f"{place.name}: fpgautil did not load the overlay ({done.first_error}); the files are there, load it as root"
        )
    return _LOADED


def _check(place: RemotePlace, program: str, settle: bool) -> str:
    board = f"{place.path}/overlay/{BOARD}"
    words = [program, "run", f"{place.path}/build", "--check", "--device", "uio", "--board", board]
    # The nodes of an overlay appear a moment after it has been loaded.
    done = place.run(("sleep 1 && " if settle else "") + shlex.join(words))
    if done.code == _ABSENT:
        raise DeviceError(
            f"{place.name}: the board has no command {program}; install npuforge there, or name it with --npuforge"
        )
    if done.code != 0:
        raise DeviceError(f"{place.name}: the check on the board failed ({done.last_line.removeprefix('error: ')})")
    return done.log.strip()


def _flashed(folder: Path) -> bool:
    """Whether an earlier flash put everything there that the folder holds."""
    try:
        names = (folder / RECORD).read_text(encoding="utf-8").splitlines()
        return not folder.is_symlink() and all(path.name in names for path in folder.iterdir())
    except (OSError, ValueError):
        return False


def _foreign(folder: str) -> str:
    return f"is there and is no {folder} of an earlier flash, or holds more than that put there, so nothing is replaced; choose another place with --to"


def _refuse_sources(place: LocalPlace | RemotePlace, sources: Mapping[str, Sequence[Path]]) -> None:
    """WriteError where a folder to replace is the one that is copied."""
    if isinstance(place, LocalPlace):
        for folder, files in sources.items():
            target = place.folder / folder
            if any(file.parent.resolve() == target.resolve() for file in files):
                raise WriteError(f"{target}: --to would replace a folder that this command reads; choose another place")


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DeviceError(
            f"--to: {name} is not on the path; install OpenSSH's client, or copy to a folder with --to FOLDER"
        )
    return found
