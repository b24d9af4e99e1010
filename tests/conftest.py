"""Options and fixtures of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--onnxruntime-include",
        type=Path,
        help="Folder with ONNX Runtime's C headers: builds the custom-operator library and the execution provider and runs them",
    )


@pytest.fixture(scope="session")
def onnxruntime_include(request: pytest.FixtureRequest) -> Path:
    """ONNX Runtime's headers, given or installed; a test that needs them is skipped where there are none."""
    from npuforge.compile.onnxruntime.export import find_headers

    found = find_headers(request.config.getoption("--onnxruntime-include"))
    if found is None:
        pytest.skip("ONNX Runtime's C headers are not installed; give their folder with --onnxruntime-include")
    return found
