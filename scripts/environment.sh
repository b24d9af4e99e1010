# Sourced by scripts/demo and scripts/test: makes .venv in the repository with the kit installed editable. Owns nothing but .venv.
# Needs Python 3.11 or newer with venv, and a C++17 compiler. $1: the pip extras, e.g. "[dev]".
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"

npuforge_environment() {
    local extras=$1 python=${PYTHON:-python3} stamp
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
        echo "error: Python 3.11 or newer is needed; $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11" >&2; exit 1; }
    command -v "${CXX:-g++}" >/dev/null || { echo "error: no C++ compiler (${CXX:-g++}): apt-get install g++" >&2; exit 1; }
    if [ ! -x .venv/bin/pip ]; then
        "$python" -m venv .venv || { echo "error: cannot make .venv: apt-get install python3-venv" >&2; exit 1; }
    fi
    stamp=$(cat pyproject.toml setup.py constraints.txt board_runtime/CMakeLists.txt | sha256sum | cut -c1-16)
    if [ "$(cat ".venv/npuforge-stamp$extras" 2>/dev/null)" != "$stamp" ]; then
        echo "installing the kit and its packages into .venv (a few minutes the first time) ..."
        # No build isolation: the build folder stays usable for later builds and the C++ test programs.
        .venv/bin/pip install --quiet --constraint constraints.txt "setuptools>=77" wheel pybind11 cmake ninja numpy
        .venv/bin/pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".$extras"
        echo "$stamp" >".venv/npuforge-stamp$extras"
    else
        mkdir -p build
        .venv/bin/python setup.py --quiet build_ext --inplace >build/build_ext.log 2>&1 || { tail -n 30 build/build_ext.log >&2; exit 1; }
    fi
}
