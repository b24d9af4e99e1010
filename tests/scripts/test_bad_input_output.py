"""Output that cannot be written, and runs that are broken off: whole files or none, an existing build stays byte for byte."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
from command_line import GOOD, CommandLine, Result, finish, save_model, subprocess_command, tiny_model, tree

from npuforge.compile.steps import write_files

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo_data"
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a tmpfs or to become another user")


def build_into(folder: str) -> tuple[str, ...]:
    """GOOD with another output folder."""
    return (*GOOD[:-1], folder)


# ---- the place
def test_output_is_a_file(command: CommandLine) -> None:
    command.refused(1, ("net.yaml: cannot be written (Not a directory)", "another"), "compile", *build_into("net.yaml"))


def test_output_below_a_file(command: CommandLine) -> None:
    words = ("net.yaml/a: cannot be written (Not a directory)",)
    command.refused(1, words, "compile", *build_into("net.yaml/a/b"))


def test_folders_made_on_the_way_go_again(command: CommandLine) -> None:
    Path("images/z.png").write_bytes(b"no image")
    command.refused(1, ("z.png",), "compile", *build_into("new/newer/newest"))
    Path("images/z.png").unlink()
    assert command("compile", *build_into("new/newer/newest")).code == 0
    assert Path("new/newer/newest/manifest.json").is_file()


def test_folder_in_the_way_of_a_file(command: CommandLine) -> None:
    """Found before the first file is replaced, so that no mixture of two builds is left."""
    Path("build/model.xmodel").unlink()
    Path("build/model.xmodel").mkdir()
    Path("net.yaml").write_text(Path("net.yaml").read_text().replace("nut", "screw"))
    command.refused(1, ("build/model.xmodel", "in the way"), "compile", *GOOD)


def test_dump_folder_is_a_file(command: CommandLine) -> None:
    words = ("net.yaml: cannot be written", "another --dump-steps folder")
    command.refused(1, words, "compile", *GOOD, "--dump-steps", "net.yaml")


@pytest.mark.parametrize(
    "arguments",
    [
        ("quantize", *GOOD[:-2], "-o"),
        ("reference", "record", "net.onnx", "images", "-o"),
        ("report", "build", "-o"),
        ("compare", "build", "images", "--report"),
        ("run", "build", "images", "--tensors"),
        ("run", "build", "images", "--profile"),
    ],
    ids=lambda a: " ".join((a[0], a[-1])),
)
def test_files_of_the_other_commands(command: CommandLine, arguments: tuple[str, ...]) -> None:
    """Refused before the work."""
    command.refused(1, ("images: is a folder",), *arguments, "images")
    command.refused(1, ("net.yaml/x: cannot be written", "net.yaml is a file"), *arguments, "net.yaml/x")


def test_drawing_into_a_file(command: CommandLine) -> None:
    command.refused(1, ("net.yaml: cannot be written",), "run", "build", "images", "--draw", "net.yaml")


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("run", "build", "images", "--draw", "images"), "images/a.png"),
        (("run", "build", "images/a.png", "--tensors", "build/quantised.npz"), "build/quantised.npz"),
        (("run", "build", "images/a.png", "--profile", "build/summary.json"), "build/summary.json"),
        (("compare", "build", "images", "--truth", "truth.json", "--report", "truth.html"), "truth.json"),
        (("compare", "build", "images", "--report", "build/summary.html"), "build/summary.json"),
        (("report", "build", "-o", "build/summary.html"), "build/summary.json"),
        (("quantize", *GOOD[:-2], "-o", "net.onnx"), "net.onnx"),
        (("quantize", *GOOD[:-2], "-o", "images/../net.yaml"), "net.yaml"),
        (("reference", "record", "net.onnx", "images", "-o", "images/b.png"), "images/b.png"),
        (("compile", "net.html", *GOOD[1:], "--graph", "net.html"), "net.html"),
        (("inspect", "net.html", "--graph", "net.html"), "net.html"),
        (("compile", "model.onnx", "--target", "ascend:Ascend310P3", "-o", "."), "model.onnx"),
        (("export", "model.onnx", "--to", "tensorrt", "-o", "."), "model.onnx"),
        (("export", "model.onnx", "--to", "onnxruntime", "-o", "."), "model.onnx"),
        (("compile", "build/reference.onnx", *GOOD[1:]), "build/reference.onnx"),
    ],
    ids=lambda a: " ".join(a) if isinstance(a, tuple) else a,
)
def test_no_result_replaces_what_was_read(command: CommandLine, arguments: tuple[str, ...], file: str) -> None:
    for name in ("net.html", "model.onnx"):
        Path(name).write_bytes(Path("net.onnx").read_bytes())
    line = command.refused(1, ("would replace a file that this command reads",), *arguments).error_line
    assert Path(line.split()[1].rstrip(":")).resolve() == Path(file).resolve()


def test_graph_of_another_kind(command: CommandLine) -> None:
    command.refused(2, ("--graph net.png", "*.html or *.svg"), "inspect", "net.onnx", "--graph", "net.png")


def test_drawn_beside_the_images(command: CommandLine) -> None:
    """A link to a folder of images is that folder; another folder is none."""
    Path("same").symlink_to("images")
    command.refused(1, ("same/a.png: --draw would replace",), "run", "build", "images", "--draw", "same")
    assert command("run", "build", "images", "--draw", "drawn").code == 0
    assert {p.name for p in Path("drawn").iterdir()} == {"a.png", "b.png"}


def test_image_whose_name_says_no_format(command: CommandLine) -> None:
    """It can be read, by its content, but not drawn: said before the simulation."""
    Path("image.txt").write_bytes(Path("images/a.png").read_bytes())
    command.refused(1, ("image.txt", "expected .jpg, .png"), "run", "build", "image.txt", "--draw", "drawn")
    assert command("run", "build", "image.txt").code == 0


# ---- no room
@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes: writing fails as on a full disk, with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "name", ["model.bin", "model.xmodel", "quantised.npz", "reference.onnx", "summary.json", "manifest.json"]
)
def test_file_that_does_not_fit(command: CommandLine, name: str) -> None:
    """Whichever file of the bundle fails first, none appears, neither in an existing build nor in a new folder."""
    size = Path("build", name).stat().st_size
    for target in ("build", "fresh"):
        with largest_file(size - 1):
            line = command.refused(
                1, ("cannot be written (File too large)",), "compile", *build_into(target)
            ).error_line
        named = next(n for n in ("model.bin", "model.xmodel", "quantised.npz", "reference.onnx", "summary.json", "manifest.json", target) if n in line)  # fmt: skip
        assert named in line and ".npuforge-" not in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("quantize", *GOOD[:-2], "-o", "q.npz"),
        ("reference", "record", "net.onnx", "images", "-o", "r.npz"),
        ("report", "build", "-o", "r.html"),
        ("compare", "build", "images", "--report", "r.html"),
        ("run", "build", "images", "--tensors", "r.npz"),
        ("run", "build", "images", "--profile", "r.json"),
    ],
    ids=lambda a: f"{a[0]} {a[-2]}",
)
def test_other_files_that_do_not_fit(command: CommandLine, arguments: tuple[str, ...]) -> None:
    with largest_file(700):
        result = command(*arguments)
    assert result.code == 1 and "File too large" in result.error_line
    assert f"{arguments[-1]}: " in result.error_line
    assert not list(Path().glob("[qr].*")) and not list(Path().glob(".*"))


@root
def test_full_disk(command: CommandLine) -> None:
    """A real one: a tmpfs of 64 KiB, nearly full."""
    disk = Path("disk").absolute()
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        (disk / "filler").write_bytes(bytes(44 * 1024))
        for target in ("disk", "disk/new"):
            command.refused(1, ("cannot be written (No space left on device)",), "compile", *build_into(target))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# ---- no permission
@contextmanager
def as_nobody() -> Iterator[tuple[Path, list[str]]]:
    """A folder that everyone may enter and only root may change, with a network and images in it; and how to become another user."""
    tool = shutil.which("setpriv")
    if tool is None:
        pytest.skip("setpriv is not installed")
    folder = Path(tempfile.mkdtemp(prefix="npuforge-nobody-"))
    try:
        folder.chmod(0o755)
        yield folder, [tool, "--reuid=65534", "--regid=65534", "--clear-groups"]
    finally:
        shutil.rmtree(folder)


def copy_readable(source: Path, target: Path) -> None:
    """Copies the tree; everyone may read it."""
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(mode=0o755)
        else:
            copy.write_bytes(path.read_bytes())
            copy.chmod(0o644)


@root
@pytest.mark.parametrize(
    ("locked", "code", "words"),
    [
        ("output", 1, ("build: cannot be written (Permission denied)", "choose another place with -o")),
        ("image", 1, ("images/b.png: cannot be read: Permission denied",)),
    ],
)
def test_another_user(tiny: Path, locked: str, code: int, words: tuple[str, ...]) -> None:
    with as_nobody() as (folder, prefix):
        copy_readable(tiny, folder)
        home = folder / "home"
        home.mkdir(mode=0o777)
        home.chmod(0o777)
        if locked == "image":
            (folder / "images/b.png").chmod(0o600)
        before = tree(folder)
        target = "build" if locked == "output" else "home/new"
        result = finish(subprocess_command(("compile", *build_into(target)), folder, prefix))
        if "ModuleNotFoundError" in result.err or "can't open file" in result.err:
            pytest.skip(f"another user cannot reach this Python environment: {result.err.splitlines()[-1]}")
        assert result.code == code, result
        for word in words:
            assert word in result.error_line
        assert tree(folder) == before


# ---- broken off
def many_images(folder: Path) -> None:
    """Enough images that calibration lasts some seconds, so that a signal arrives in it though the test waits for a processor."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for index in range(400):
        cv2.imwrite(str(folder / f"{index:03d}.png"), random.integers(0, 256, (64, 64, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "terminated")]
)
def test_signal_during_calibration(command: CommandLine, number: int, code: int, word: str) -> None:
    """A real process, the demo network, a signal once calibration has begun (and a second one at once, as impatient people do)."""
    many_images(Path("many"))
    before = tree(command.folder)
    arguments = ("compile", DEMO / "demo.onnx", "--calib", "many", "--preprocess", DEMO / "demo.yaml", "-o", "build")
    process = subprocess_command(arguments, command.folder)
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if "calibrate: " in line:
            break
    process.send_signal(number)
    time.sleep(0.02)
    process.send_signal(number)
    result = finish(process, seen)
    assert result.code == code, result
    assert word in result.error_line and "have been removed" in result.error_line
    assert not result.out
    assert tree(command.folder) == before


def interrupt(*_: object, **__: object) -> None:
    """Ctrl-C, seen by Python before the next statement."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


@pytest.mark.parametrize("target", ["build", "new/folder"])
@pytest.mark.parametrize("place", ["write_xmodel", "save", "summary", "manifest"])
def test_interrupt_while_writing(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, place: str, target: str
) -> None:
    monkeypatch.setattr(write_files, place, interrupt)
    command.refused(130, ("interrupted by Ctrl-C",), "compile", *build_into(target))


def test_interrupt_while_moving_into_place_comes_after_it(command: CommandLine) -> None:
    """The few renames are not broken off: the new build is whole and the command says that it was interrupted."""
    replace = Path.replace

    def replace_and_interrupt(self: Path, target: Path) -> Path:
        if Path(target).parent.name == "build":
            os.kill(os.getpid(), signal.SIGINT)
        return replace(self, target)

    save_model(tiny_model(seed=5), Path("net.onnx"))
    before = tree(Path("build"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replace_and_interrupt)
        assert command("compile", *GOOD).code == 130
    after = tree(Path("build"))
    assert after.keys() == before.keys()
    assert all(
        after[name] != before[name] for name in ("model.bin", "quantised.npz", "reference.onnx", "manifest.json")
    )
    assert command("run", "build", "images").code == 0  # every hash is as the manifest says


def test_signal_handlers_are_put_back(command: CommandLine) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert command("arch").code == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_out_of_memory(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(write_files, "write_xmodel", no_memory)
    command.refused(1, ("out of memory", "fewer calibration images"), "compile", *GOOD)


def test_a_fault_of_our_own_is_one_line_too(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise IndexError("list index\nout of range")

    monkeypatch.setattr(write_files, "write_xmodel", fault)
    before = tree(command.folder)
    result = command("compile", *GOOD)
    assert result.code == 1 and tree(command.folder) == before
    last = result.err.splitlines()[-1]
    assert re.match(
        r"error: a fault of npuforge \(IndexError at test_bad_input_output.py:\d+: list index out of range\); ", last
    )
    assert "Traceback" not in result.err


def test_reader_that_stops_reading(command: CommandLine) -> None:
    """`npuforge disasm build | head -1` says nothing about pipes."""
    process = subprocess_command(("disasm", "build"), command.folder)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    process.wait(60)
    process.stderr.close()
    assert error == "" and process.returncode in (0, 1), Result(process.returncode, "", error)
