"""Synthesis lint of hw_kernels/hls: no construct that an HLS tool refuses, and the source compiles as each tool would preprocess it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from npuforge.hw_kernels.hls_lint import bare, calls, findings, main, recursion
from npuforge.hw_kernels.isa.generate import header_text

ROOT = Path(__file__).resolve().parents[2]
HLS = ROOT / "hw_kernels" / "hls"
KERNELS = sorted((ROOT / "hw_kernels" / "ops").glob("*/kernel.hpp"))
SOURCES = sorted(p for p in HLS.iterdir() if p.suffix in (".hpp", ".cpp")) + KERNELS
PORT = "npu_port.hpp"


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != PORT], ids=lambda p: f"{p.parent.name}-{p.name}")
def test_no_forbidden_construct(path: Path) -> None:
    assert findings(path.read_text(encoding="utf-8")) == []


def test_only_the_port_header_names_tools() -> None:
    for path in SOURCES:
        if path.name != PORT:
            assert not re.search(
                r"__SYNTHESIS__|__VITIS|__BAMBU__|ap_int|hls_stream", bare(path.read_text(encoding="utf-8"))
            ), path.name


def test_no_recursion() -> None:
    graph = calls("\n".join(p.read_text(encoding="utf-8") for p in SOURCES))
    assert "conv_block" in graph["conv_engine"] and "mac_array" in graph["accumulate_tile"], (
        "the call graph is not read right"
    )
    assert recursion(graph) == []


def test_every_header_says_what_it_owns_and_stays_short() -> None:
    for path in SOURCES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("// ") and len(lines) <= 400, path.name


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("int* p = new int[4];", "dynamic memory"),
        ("std::vector<int> v;", "standard library"),
        ("struct A { virtual void f(); };", "virtual call"),
        ("throw 1;", "exception"),
        ("while (true) {}", "unbounded loop"),
        ("memcpy(a, b, 4);", "block copy"),
        ("float x;", "floating point"),
        ("#include <vector>", "include"),
        ("#pragma HLS unroll", "raw pragma"),
        ("using namespace std;", "standard library"),
        ("inline int f(int n) { vector<int> v(n); return v.size(); }", "standard library"),
        ("inline void* f(int n) { return __builtin_malloc(n); }", "compiler builtin"),
        ("inline auto f(int y) { return __builtin_sqrtl(y); }", "compiler builtin"),
        ("inline int f(int n) { int a[n]; return a[0]; }", "variable-length array"),
        ("inline int f(int N) { int a[2 * N]; return a[0]; }", "variable-length array"),
        ("inline int f(int n) { int x = 0, b; int c, *a[4][n + 1] = {}; return x; }", "variable-length array"),
        ("#define LOOP(x) for(;;) x", "unbounded loop"),
        ("for (int i = 0; i < n;) { s += i; }", "unbounded loop"),
        ("for (int i = 0; i < n; i--) { s += i; }", "unbounded loop"),
        ("for (int i = 0; v[i] > 0; ++i) { s += i; }", "unbounded loop"),
        ("for (unsigned i = n; i >= 0; --i) { s += i; }", "unbounded loop"),
        ("for (int i = 0; i < n; i += 0) {}", "unbounded loop"),
        ("for (int i = 0; i < n; i += step) {}", "unbounded loop"),
        ("for (int i = 0; i < n || more; ++i) {}", "unbounded loop"),
        ("for (int i = 0; i < n; ++i) { if (again) --i; }", "unbounded loop"),
        ("for (int i = n; i > 0;) { if (more) { i -= 1; } }", "unbounded loop"),
        ("for (int i = 0; i < i + 1; ++i) {}", "unbounded loop"),
        ("for (int i = 0; i < n; ++i) { ++n; }", "unbounded loop"),
        ("for (int i = 0; i < f(n, m); ++i) { if (x) { m = i + 2; } }", "unbounded loop"),
        ("for (unsigned left = n; left > 0u;) { left -= count; }", "unbounded loop"),
        ("for (unsigned left = n; left > 0u;) { left -= 0u; }", "unbounded loop"),
        ("for (unsigned left = n; left > 0u;) { unsigned k = left < m ? left : m; left -= k; }", "unbounded loop"),
        ("for (unsigned left = n; left > 0u;) { unsigned k = left < 0u ? left : 0u; left -= k; }", "unbounded loop"),
        (
            "for (unsigned left = n; left > 0u;) { unsigned k = left < 8u ? left : 8u; k = 0; left -= k; }",
            "unbounded loop",
        ),
        ("inline int f(int n) { int N = n; int a[N]; return a[0]; }", "variable-length array"),
        ("inline int f(int n) { const unsigned SIZE = n + 1; int a[2 * SIZE]; return a[0]; }", "variable-length array"),
        ("inline int f(int n) { int STEP = n; for (int i = 0; i < 9; i += STEP) {} return 0; }", "unbounded loop"),
    ],
)
def test_the_lint_can_fail(text: str, finding: str) -> None:
    assert finding in [f.kind for f in findings(text)]
    assert findings("// " + text.replace("\n", " ")) == []


def test_the_recursion_and_loop_lints_can_fail() -> None:
    assert sorted(
        recursion(calls("int f(int n) { return g(n); } int g(int n) { return f(n - 1); } int h() { return f(1); }"))
    ) == ["f", "g"]
    assert findings("for (;;) {}") and findings("for (int i = 0; i; ++i) {}")
    assert recursion(calls("struct T { int f(int n) const noexcept { return n ? f(n - 1) : 0; } };")) == ["f"]
    assert recursion(calls("template <int N> auto q(int n) -> int { return n ? q<N>(n - 1) : 0; }")) == ["q"]


@pytest.mark.parametrize(
    "text",
    [
        "for (int i = 0; i < 4; ++i) {}",
        "for (int i = n - 1; i >= 0; i--) s += v[i];",
        "for (unsigned w = LANES / 2; w > 0u; w /= 2) {}",
        "for (int i = 0; i < f(n, m) && !found; i += (int)LANES) { if (v[i] == i) { found = true; } }",
        "for (unsigned left = h * w; left > 0u;) { { s += 1; } left -= 1u; }",
        "for (int left = h * w; left > 0;) { { s += 1; } left -= 2; }",
        "for (unsigned left = h; left > 0u;) { const unsigned k = left < LANES ? left : LANES; { s += k; } left -= k; }",
        "for (int i = 0; i < n; ++i) { int other = n; other += i; s.n = 3; }",
        "constexpr int WIDTH = 3; inline int f() { constexpr int MORE = 2 * WIDTH; int a[MORE]; return a[0]; }",
        "inline int f(int (&x)[4]) { int s = 0; for (int q : x) { s += q; } return s; }",
        "template <int n> inline int f(int k) { constexpr int m = 3; int a[n][m], b[LANES + 1] = {}; return a[0][k] * b[k]; }",
    ],
)
def test_the_lint_takes_bounded_loops_and_constant_arrays(text: str) -> None:
    assert findings(text) == []


def test_the_lint_is_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0 and "nothing found" in capsys.readouterr().out
    bad = tmp_path / "kernel.hpp"
    bad.write_text("// A kernel.\n\ninline int f(int n) { return n ? f(n - 1) : *new int; }\n")
    assert main([str(bad)]) == 1
    assert capsys.readouterr().out.splitlines() == [f"{bad}:3: dynamic memory: new", "recursion: f reaches itself"]


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("g++", ["-Werror"]),
        ("clang++", ["-Werror"]),
        ("g++", ["-D__SYNTHESIS__", "-D__VITIS_HLS__", "-Wno-unknown-pragmas", "-Werror"]),
        ("clang++", ["-D__BAMBU__", "-Wno-unknown-pragmas", "-Wno-pass-failed", "-Werror"]),
        ("g++", ["-DNPU_PIXEL_PARALLEL=2", "-DNPU_SRAM_BYTES=524288", "-Werror"]),
    ],
    ids=["g++", "clang++", "vitis-branch", "bambu-branch", "nf-b1024"],
)
def test_compiles_without_the_cpp_library(compiler: str, flags: list[str], tmp_path: Path) -> None:
    """No C++ header, no exceptions, no RTTI, no variable-length arrays; warnings are errors. The Vitis and bambu branches are preprocessed and
    parsed by plain compilers: that finds faults in the macros, not in what the tools accept."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    every = tmp_path / "every.cpp"
    every.write_text("".join(f'#include "{path}"\n' for path in [HLS / "npu_top.cpp", *KERNELS]), encoding="utf-8")
    base = ["-std=c++17", "-Wall", "-Wextra", "-Wvla", "-fno-exceptions", "-fno-rtti", "-nostdinc++", "-fsyntax-only"]
    subprocess.run([compiler, *base, *flags, "-I", str(tmp_path), "-I", str(HLS), str(every)], check=True)


def test_synthesis_pragmas_reach_the_vitis_branch(tmp_path: Path) -> None:
    """The macros expand to the pragmas that the engines rely on."""
    (tmp_path / "npu_isa.hpp").write_text(header_text(), encoding="utf-8")
    command = [
        "g++",
        "-E",
        "-D__SYNTHESIS__",
        "-D__VITIS_HLS__",
        "-I",
        str(tmp_path),
        "-I",
        str(HLS),
        str(HLS / "npu_top.cpp"),
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for pragma in (
        r"HLS pipeline II=1",
        r"HLS unroll",
        r"HLS array_partition variable=acc dim=2 complete",
        r"HLS interface mode=m_axi port=bin bundle=gmem0",
        r"HLS interface mode=m_axi port=pool bundle=gmem1",
        r"HLS interface mode=s_axilite port=return",
    ):
        assert re.search(rf"#pragma {pragma}", text), pragma
