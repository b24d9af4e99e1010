"""`npuforge flash` with stand-ins for OpenSSH and for what is on the board: its shell is this machine's, its hardware the stand-in of `uio`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from board_stand_in import ARCH, StandIn, running
from command_line import CommandLine, tree

from npuforge.hw_kernels.arch import load
from npuforge.scripts.flash import RECORD

SOURCE = Path(__file__).resolve().parents[2] / "src"
SSH = """#!/bin/sh
# ssh OPTIONS -- HOST COMMAND; of several commands the first that has the word in $folder/refuse fails
while [ "$1" != -- ]; do shift; done
echo "$2: $3" >> "$(dirname "$0")/log"
word=$(cat "$(dirname "$0")/refuse" 2>/dev/null)
case "$3" in *"${word:-no such word}"*) echo "connection lost"; exit 255;; esac
PATH="$(dirname "$0")/board:$PATH" exec sh -c "$3"
"""
SCP = """#!/bin/sh
# scp OPTIONS -- FILES HOST:FOLDER/
while [ "$1" != -- ]; do shift; done
shift
for last in "$@"; do :; done
for file in "$@"; do [ "$file" = "$last" ] || cp "$file" "${last#*:}"; MORE || exit 1; done
"""


class Board:
    """A machine that ssh reaches: `destination`, programs in `tools/board`, and what ssh was asked for."""

    def __init__(self, tools: Path, destination: Path) -> None:
        self.tools, self.destination = tools, destination
        (tools / "board").mkdir(parents=True)
        self.program("ssh", SSH)
        self.program("scp", SCP.replace("MORE", "true"))

    def program(self, name: str, text: str) -> None:
        """An executable script."""
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    @property
    def to(self) -> str:
        """For --to."""
        return f"root@board:{self.destination}"

    @property
    def log(self) -> list[str]:
        """Host and command of each call of ssh."""
        return (self.tools / "log").read_text().splitlines()


@pytest.fixture
def board(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Board:
    folder = tmp_path_factory.mktemp("flash")
    found = Board(folder / "tools", folder / "opt" / "npuforge")
    monkeypatch.setenv("PATH", f"{found.tools}:{os.environ['PATH']}")
    return found


def overlay(folder: Path, board_json: Path | None = None, name: str = "npu.bit.bin") -> Path:
    """An overlay's folder; a README in it is not copied."""
    folder.mkdir()
    for file in (name, "npu.dtbo", "README"):
        (folder / file).write_bytes(file.encode())
    if board_json is not None:
        shutil.copy(board_json, folder / "board.json")
    return folder


def flashed(folder: Path) -> dict[str, bytes | None]:
    """What `flash` put there, without its own record."""
    return {name: data for name, data in tree(folder).items() if name != RECORD}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_whole_way(command: CommandLine, board: Board, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Copy, load, run on the board: `npuforge` there is the real one, its hardware the HLS code."""
    board.program("board/fpgautil", f'#!/bin/sh\necho "$@" > {board.tools}/loaded\n')
    board.program(
        "board/npuforge", f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -m npuforge.scripts.cli "$@"\n'
    )
    with running(tmp_path_factory.mktemp("hardware")) as stand_in:
        given = ("flash", "build", "--to", board.to, "--overlay", overlay(Path("ov"), stand_in.board))
        result = command(*given, "--check", "--json")
        assert result.code == 0, result
        found = json.loads(result.out)
        assert found["overlay"] == "loaded" and ": as expected" in found["check"]
        there = board.destination
        assert flashed(there / "build") == tree(Path("build")) and names(there) == {"build", "overlay"}
        assert names(there / "overlay") == {"npu.bit.bin", "npu.dtbo", "board.json", RECORD}
        loaded = (board.tools / "loaded").read_text().split()
        assert loaded == ["-b", f"{there}/overlay/npu.bit.bin", "-o", f"{there}/overlay/npu.dtbo"]
        assert all(line.startswith("root@board: ") for line in board.log)
        again = command(*given, "--check")
        assert again.code == 0 and "overlay: loaded" in again.out and names(there) == {"build", "overlay"}


def test_a_check_that_fails(command: CommandLine, board: Board, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the board says is what the user reads; the files stay there."""
    still = StandIn(tmp_path_factory.mktemp("still"))
    given = ("flash", "build", "--to", board.to, "--check", "--overlay", overlay(Path("ov"), still.board))
    command.refused(1, ("the board has no command absent; install npuforge there",), *given, "--npuforge", "absent")
    board.program("board/nf", f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -m npuforge.scripts.cli "$@"\n')
    command.refused(
        1, ("the check on the board failed (device uio: the hardware is not idle",), *given, "--npuforge", "nf"
    )
    assert names(board.destination) == {"build", "overlay"}


def test_folder(command: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A card: copied only; a new build takes the old one's place, other files stay."""
    card = tmp_path_factory.mktemp("card")
    (card / "boot.cfg").write_text("x")
    result = command("flash", "build", "--to", card / "npuforge", "--overlay", overlay(Path("ov")))
    assert result.code == 0 and "overlay: not loaded: copied only" in result.out
    assert names(card / "npuforge" / "overlay") == {"npu.bit.bin", "npu.dtbo", RECORD}
    (card / "npuforge" / "build" / "left.txt").write_text("of an earlier build")
    with (card / "npuforge" / "build" / RECORD).open("a") as record:
        record.write("left.txt\n")
    with tarfile.open("b.tar", "w") as archive:
        for file in sorted(Path("build").iterdir()):
            archive.add(file, file.name)
    assert command("flash", "b.tar", "--to", card / "npuforge").code == 0
    assert flashed(card / "npuforge" / "build") == tree(Path("build"))
    assert names(card) == {"boot.cfg", "npuforge"} and names(card / "npuforge") == {"build", "overlay"}


def test_broken_off(command: CommandLine, board: Board) -> None:
    """Whatever step fails, what worked before is still there, whole, and nothing is left beside it."""
    assert command("flash", "build", "--to", board.to).code == 0
    before = tree(board.destination)
    given = ("flash", "build", "--to", board.to)
    lost = "connection lost"
    for word in ("mkdir -p", "mkdir build.part", "sha256sum", "mv "):
        (board.tools / "refuse").write_text(word)
        command.refused(1, (board.to, "ssh ended with 255", lost, "needs no password"), *given)
        assert tree(board.destination) == before, word
    (board.tools / "refuse").unlink()
    board.program("scp", SCP.replace("MORE", "false"))  # the first file arrives
    command.refused(1, ("could not copy the files (scp ended with 1",), *given)
    assert tree(board.destination) == before
    board.program("scp", SCP.replace("MORE", 'echo x >> "${last#*:}/$(basename "$file")"'))
    command.refused(1, ("arrived with sha256", "what was there is unchanged, try again"), *given)
    assert tree(board.destination) == before


def test_interrupted(command: CommandLine, board: Board) -> None:
    """Ctrl-C while files are copied."""
    assert command("flash", "build", "--to", board.to).code == 0
    before = tree(board.destination)
    board.program("scp", SCP.replace("MORE", "kill -INT $PPID; exec sleep 20"))
    result = command("flash", "build", "--to", board.to)
    assert result.code == 130 and "interrupted by Ctrl-C" in result.err
    assert tree(board.destination) == before


def test_rename_that_fails(command: CommandLine, board: Board) -> None:
    """The earlier build is put back."""
    assert command("flash", "build", "--to", board.to).code == 0
    before = tree(board.destination)
    board.program(
        "board/mv", '#!/bin/sh\ncase "$1" in *.part-????????) echo "mv: no"; exit 1;; esac\nexec /bin/mv "$@"\n'
    )
    command.refused(1, ("ssh ended with 1: mv: no",), "flash", "build", "--to", board.to)
    assert tree(board.destination) == before


def test_overlays_that_are_not_loaded(command: CommandLine, board: Board) -> None:
    given = ("flash", "build", "--to", board.to, "--overlay")
    assert "the board has no fpgautil" in command(*given, overlay(Path("ov"))).out
    assert (
        "an .xclbin is for XRT, which npuforge does not use"
        in command(*given, overlay(Path("xrt"), name="a.xclbin")).out
    )
    board.program("board/fpgautil", '#!/bin/sh\necho "Error: no FPGA manager"\nexit 2\n')
    command.refused(1, ("fpgautil did not load the overlay (Error: no FPGA manager)", "load it as root"), *given, "ov")


def test_refusals(command: CommandLine, board: Board, tmp_path_factory: pytest.TempPathFactory) -> None:
    to = ("--to", board.to)
    command.refused(2, ("Missing option '--to'",), "flash", "build")
    command.refused(1, ("manifest.json: cannot be read",), "flash", "images", *to)
    for bad in ("root@board:opt", "root@board:/", "root@board:/opt/a b", "root@board:/opt/../etc", "board:/x;reboot"):
        command.refused(2, ("expected an absolute folder", "/opt/npuforge"), "flash", "build", "--to", bad)
    command.refused(2, ("expected user@board:/folder or a folder",), "flash", "build", "--to", "-oProxyCommand=x:/opt")
    command.refused(1, ("nowhere/card", "is the card mounted?"), "flash", "build", "--to", "nowhere/card")
    command.refused(1, ("net.yaml: cannot be written",), "flash", "build", "--to", "net.yaml")
    command.refused(2, ("--check runs on the board",), "flash", "build", "--to", "images", "--check")
    command.refused(1, ("build: --to would replace a folder that this command reads",), "flash", "build", "--to", ".")
    assert not board.destination.exists()
    taken = tmp_path_factory.mktemp("taken")
    (taken / "build").mkdir()
    (taken / "build" / "thesis.txt").write_text("x")
    foreign = ("is there and is no build of an earlier flash, or holds more than that put there",)
    command.refused(1, foreign, "flash", "build", "--to", taken)
    command.refused(1, foreign, "flash", "build", "--to", f"board:{taken}")
    assert names(taken / "build") == {"thesis.txt"} and names(taken) == {"build"}
    (taken / "build" / "manifest.json").write_text('{"name": "my web app"}')
    command.refused(1, foreign, "flash", "build", "--to", taken)
    command.refused(1, foreign, "flash", "build", "--to", f"board:{taken}")
    for to in (taken / "mine", f"board:{taken}/theirs"):
        assert command("flash", "build", "--to", to).code == 0
        place = taken / str(to).rpartition("/")[2] / "build"
        assert command("flash", "build", "--to", to).code == 0  # of an earlier flash
        (place / "notes.txt").write_text("x")
        command.refused(1, foreign, "flash", "build", "--to", to)
        assert (place / "notes.txt").is_file()
        place.rename(place.with_name("moved"))
        place.symlink_to(place.with_name("moved"))
        command.refused(1, foreign, "flash", "build", "--to", to)
        assert place.is_symlink() and names(place.parent) == {"build", "moved"}


def test_overlays_refused(command: CommandLine, board: Board, tmp_path_factory: pytest.TempPathFactory) -> None:
    given = ("flash", "build", "--to", board.to, "--overlay")
    command.refused(1, ("nowhere: no such folder",), *given, "nowhere")
    command.refused(1, ("expected one bitstream (*.bit.bin or *.xclbin)", "found none"), *given, "images")
    two = overlay(Path("two"))
    (two / "other.bit.bin").touch()
    command.refused(1, ("found npu.bit.bin, other.bit.bin, npu.dtbo",), *given, two)
    command.refused(1, ("give it a name of letters",), *given, overlay(Path("odd"), name="a b.bit.bin"))
    still = StandIn(tmp_path_factory.mktemp("still"))
    still.write(arch=load("nf-b1024").to_json())
    words = ("compiled for another arch", f'found "{ARCH}"')
    command.refused(1, words, *given, overlay(Path("small"), still.board))
    (Path("small") / "board.json").write_text("{}")
    command.refused(1, ("small/board.json",), *given, "small")
    assert not board.destination.exists()


def test_without_openssh(command: CommandLine, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(board.tools / "board"))
    command.refused(1, ("ssh is not on the path; install OpenSSH's client",), "flash", "build", "--to", board.to)


def test_damaged_build(command: CommandLine, board: Board) -> None:
    file = Path("build/model.bin")
    file.write_bytes(file.read_bytes()[:-1])
    command.refused(1, ("model.bin: sha256 is",), "flash", "build", "--to", board.to)
    assert not board.destination.exists()
