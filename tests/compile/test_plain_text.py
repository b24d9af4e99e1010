"""Files that people write: a key that stands twice is named, wherever it stands; everything else reads as the standard readers read it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from npuforge.board_runtime.compiled_folder import read_folder
from npuforge.compile.ir.errors import ArchError, FormatError, InputError
from npuforge.compile.ir.plain_text import DuplicateKeyError, parse_json, parse_yaml
from npuforge.compile.ir.preprocess_io import load_preprocess
from npuforge.hw_kernels import arch as arches
from npuforge.scripts.build_folder import open_build
from npuforge.scripts.datasets import DatasetError, load_dataset

KEYS = st.text("abcxyz_", min_size=1, max_size=4)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab ", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(TREES)
def test_files_without_a_repeated_key_read_as_ever(tree: Any) -> None:
    text = json.dumps(tree)
    assert parse_json(text, "f") == tree
    assert parse_yaml(yaml.safe_dump(tree), "f") == tree


@given(st.dictionaries(KEYS, st.integers(0, 9), min_size=1, max_size=5), st.data(), st.integers(0, 3))
def test_a_repeated_key_is_named_at_any_depth(values: dict[str, int], data: st.DataObject, depth: int) -> None:
    key = data.draw(st.sampled_from(sorted(values)))
    inner = ", ".join(f'"{k}": {v}' for k, v in [*values.items(), (key, 3)])
    text = '{"k": [' * depth + "{" + inner + "}" + "]}" * depth  # flow YAML too
    for parse in (parse_json, parse_yaml):
        with pytest.raises(DuplicateKeyError, match=f"f: key '{key}' twice"):
            parse(text, "f")


def test_merge_keys_and_one_key_in_two_mappings_are_no_repetition() -> None:
    text = "base: &b {x: 1, y: 2}\nown: {<<: *b, x: 3}\nother: {x: 4}\n"
    assert parse_yaml(text, "f") == yaml.safe_load(text)


def test_every_reader_of_a_users_file_refuses(tmp_path: Path) -> None:
    record = tmp_path / "y.yaml"
    record.write_text("color: RGB\nwidth: 8\ncolor: BGR\n")
    with pytest.raises(InputError, match=r"y\.yaml: key 'color' twice \(again in line 3\)"):
        load_preprocess(record)
    record.write_text("head: {kind: yolox, kind: ssd}\n")
    with pytest.raises(InputError, match="key 'kind' twice"):
        load_preprocess(record)
    hardware = tmp_path / "a.json"
    hardware.write_text((arches.ARCH_FOLDER / "nf-b1024.json").read_text().replace("{", '{"name": "x",', 1))
    with pytest.raises(ArchError, match=r"a\.json: key 'name' twice"):
        arches.load(hardware)
    truth = tmp_path / "t.json"
    truth.write_text('{"images": [], "annotations": [], "images": []}')
    (tmp_path / "i.png").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"t\.json: key 'images' twice"):
        load_dataset(tmp_path, truth)
    (tmp_path / "manifest.json").write_text('{"name": "a", "name": "b"}')
    for read in (open_build, read_folder):
        with pytest.raises(FormatError, match=r"manifest\.json: not a manifest .*key 'name' twice"):
            read(tmp_path)
