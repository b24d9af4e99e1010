"""Helper modules of these tests, and of the tests of code generator and ladder, are importable by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]
for _folder in ("hw_kernels", "compile", "e2e"):
    if str(_TESTS / _folder) not in sys.path:
        sys.path.append(str(_TESTS / _folder))


@pytest.fixture(scope="session")
def tensorflow_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TensorFlow op library, built once (minutes) and loaded."""
    from npuforge.hw_kernels.bindings import tensorflow_ops

    path = tmp_path_factory.mktemp("tf") / "npuforge_tf.so"
    tensorflow_ops.build(path)
    tensorflow_ops.load(path)
    return path
