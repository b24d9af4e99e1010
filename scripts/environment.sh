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
        echo "installing packages into .venv ..."
        # No build isolation: the build folder stays usable for later builds and the C++ test programs.
        .venv/bin/pip install --quiet --constraint constraints.txt "setuptools>=77" wheel pybind11 cmake ninja numpy
        npuforge_native
        .venv/bin/pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".$extras"
        echo "$stamp" >".venv/npuforge-stamp$extras"
    else
        npuforge_native
    fi
}

# Builds the C++ runtime in .native-build (build/ is where `npuforge compile` writes); a line for every fifth of the work.
npuforge_native() {
    local log=.native-build/build_ext.log shown=0 line fifth
    mkdir -p .native-build
    .venv/bin/python setup.py --quiet build_ext --inplace 2>&1 | tee "$log" | while IFS= read -r line; do
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] && ((BASH_REMATCH[2] > 5)) || continue
        fifth=$((5 * BASH_REMATCH[1] / BASH_REMATCH[2]))
        if ((fifth > shown)); then
            shown=$fifth
            echo "building the C++ runtime (a few minutes the first time): ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} files"
        fi
    done || { tail -n 30 "$log" >&2; exit 1; }
}
