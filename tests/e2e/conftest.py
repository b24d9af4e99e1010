"""Makes the helper modules of these tests importable by their plain names; images that several of them calibrate with."""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Six smooth random images of 64 x 64, so that neighbouring pixels are alike as in photographs."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(3)
    for i in range(6):
        small = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        cv2.imwrite(str(folder / f"{i}.png"), cv2.resize(small, (64, 64), interpolation=cv2.INTER_CUBIC))
    return sorted(folder.iterdir())
