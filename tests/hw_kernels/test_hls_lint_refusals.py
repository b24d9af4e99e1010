"""What the HLS lint refuses beyond single words: literals, lambdas, what a call does to a loop, recursion in disguise; what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuforge.hw_kernels.hls_lint import bare, calls, findings, main, recursion

POINTER = "lambda or function pointer"
LOOP = "unbounded loop"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("int f() { return (int)(1.5*2); }", "floating point"),
        ("int f() { auto x = 0.5f; return (int)x; }", "floating point"),
        ("int f() { return (int)(1e3 + .5 + 0x1p4 + 2.); }", "floating point"),
        ("_Float16 x;", "floating point"),
        ("void f(int a) { auto g = [a](int x) { return x + a; }; }", POINTER),
        ("void f(int a, int b) { auto g = [&a, b](int x) { return x + a + b; }; }", POINTER),
        ("void f() { auto g = []{ return 1; }; }", POINTER),
        ("void f() { auto g = [=]() mutable { return 1; }; }", POINTER),
        ("int f() { return [] { return 1; }(); }", POINTER),
        ("void f(int (*g)(int)) { g(1); }", POINTER),
        ("using F = int(int); int f(F* g) { return g(1); }", POINTER),
        ("using F = int (*)(int);", POINTER),
        ("typedef int F(int);", POINTER),
        ("int f(int (&g)(int)) { return g(1); }", POINTER),
        ("struct A { int x; }; int f(int A::* p, A a) { return a.*p; }", POINTER),
        ("int g(int n) { return n; } int f() { auto h = &g; return h(1); }", POINTER),
        ("int g(int n) { return n; } int f() { auto h = g; return h(1); }", POINTER),
        ("int g(int n) { return n; } template <class F> int f(F h) { return h(1); } int k() { return f(g); }", POINTER),
        ('void f() { asm("nop"); }', "inline assembly"),
        ('void f() { __asm__ volatile("nop"); }', "inline assembly"),
        ("void f() { longjmp(b, 1); }", "end of the program"),
        ("void f() { abort(); }", "end of the program"),
        ("void f() { exit(1); }", "end of the program"),
        ("thread_local int a;", "thread or coroutine"),
        ("void f(int n, ...) {}", "variable arguments"),
        ("int f(int* p) { return __atomic_load_n(p, 0); }", "compiler builtin"),
        ("#define W wh##ile", "token that hides another"),
        ("void f(int n) { int a<:4:>; }", "token that hides another"),
        ("void f(int n) { whi\\\nle (n > 0) n--; }", LOOP),
        ('const char* url = "http://"; int* p = new int;', "dynamic memory"),
        ("char quote = '\"'; int* p = new int; char other = '\"';", "dynamic memory"),
        ("#define HEADER <vector>\n#include HEADER", "include"),
    ],
)
def test_constructs(text: str, finding: str) -> None:
    assert finding in [f.kind for f in findings(text)]


@pytest.mark.parametrize(
    "text",
    [
        "int f(int x) { return x ? 0x1e5 : 1'000'000 + 0b101 + 12u; }",
        "int f(const int (&x)[4]) { int a[3]{}; int b[2][2] = {}; return a[x[1]] + b[0][(x[2])]; }",
        "[[nodiscard]] inline int f(int x) { return x; }",
        "struct P { int a, b; }; int f(const P& p) { auto [a, b] = p; return a + b; }",
        "using Lane = int; typedef unsigned Word; using N = decltype(sizeof(int));",
        "int size(int n) { return n; } int f(int n) { int size = n; return (size); }",
        "int f(int a, int b) { return (a)*(b) + (int)(b) - (a & b); }",
        "inline int f() { static int n = 0; return ++n; }",
        'void f(int exit, int abort) { int c = \'"\'; const char* s = "new 1.5 while"; }',
        "template <class... T> int f(T... x) { return (x + ...); }",
    ],
)
def test_what_hls_takes_is_not_refused(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "void g(int& i); void f(int n) { for (int i = 0; i < n; ++i) { g(i); } }",
        "void g(int& i) { --i; } void f(int n) { for (int i = 0; i < n; ++i) g(i); }",
        "template <class T> void g(T&& i) { --i; } void f(int n) { for (int i = 0; i < n; ++i) g((i)); }",
        "void g(int a, int& i) { --i; } void f(int n, int m) { for (int i = 0; i < n; ++i) g(0, m ? i : m); }",
        "void g(int& n) { ++n; } void f(int n) { for (int i = 0; i < n; ++i) g(n); }",
        "void f(int n) { for (int i = 0; i < n; ++i) { int& j = i; j -= 1; } }",
        "void f(int n) { for (int i = 0; i < n; ++i) { int* j = &i; *j -= 1; } }",
        "void f(int n) { for (int i = 0; i < n; ++i) { (int&)i = 0; } }",
        "void f(int n) { for (int i = 0; i < n; ++i) { (i) = 0; } }",
        "void f(int n, int m) { for (int i = 0; i < n; ++i) { (m ? i : m) -= 1; } }",
        "void f(int n, int m) { for (int i = 0; i < n; ++i) { if (m) m = 0; else i = 0; } }",
        "void f(int n, int m) { for (int i = 0; i < n; ++i) if (m) { m = 0; --i; } }",
        "void f(int n, int m) { for (int i = 0; i < n; ++i) for (int j = 0; j < m; ++j) { --i; } }",
        "void f(int n) { for (int i = 0; i < n && --i > -9; ++i) {} }",
        "#define BACK(x) --x\nvoid f(int n) { for (int i = 0; i < n; ++i) { BACK(i); } }",
        "#define BACK --i\nvoid f(int n) { for (int i = 0; i < n; ++i) { BACK; } }",
        "struct B { int& r; }; void f(int n) { for (int i = 0; i < n; ++i) { B b{i}; --b.r; } }",
        "struct B { void operator()(int& i) { --i; } }; void f(int n, B b) { for (int i = 0; i < n; ++i) b(i); }",
        "struct B { int n; void more() { ++n; } void f() { for (int i = 0; i < n; ++i) more(); } };",
        "struct Q { int size; void push() { ++size; } }; void f(Q& q) { for (int i = 0; i < q.size; ++i) q.push(); }",
        "struct Q { int size; }; void f(Q& q) { for (int i = 0; i < q.size; ++i) q.size++; }",
        "struct B { int i; void f(int n) { for (i = 0; i < n; ++i) {} } };",
        "void f(int n) { for (uint8_t i = 0; i < n; ++i) {} }",
        "void f(unsigned n) { for (unsigned i = n; i > 0u; i -= 2u) {} }",
        "void f(unsigned n) { for (auto i = n; i >= 0; --i) {} }",
        "void f(int n) { for (int w = 8; w > -1; w /= 2) {} }",
        "void f(unsigned n) { for (unsigned left = n; left > 0u;) { left -= 2u; } }",
        "void f(unsigned n) { for (unsigned left = n; left > 0u;) { left -= 1u; left += 1u; } }",
        "void f(unsigned n) { for (unsigned left = n; left > 0u;) { if (n == 3u) { continue; } left -= 1u; } }",
    ],
)
def test_a_loop_is_not_bounded_if_its_body_may_unbind_it(text: str) -> None:
    assert [f.kind for f in findings(text)] == [LOOP]


@pytest.mark.parametrize(
    "text",
    [
        "int g(const int& i); void f(int n) { for (int i = 0; i < n; ++i) { int x = g(i); x += n; } }",
        "int g(int i, int& sum); void f(int n, int s) { for (int i = 0; i < n; ++i) { g(i, s); } }",
        "void f(int n, int a[4]) { for (int i = 0; i < n; ++i) { int& x = a[i]; x = i & n; const int& y = i; x += y; } }",
        "struct P { int n; void add() { ++n; } }; void f(const P& p, P& q) { for (int i = 0; i < p.n; ++i) q.add(); }",
        "void g(int n) { n += 1; } void f(int n) { for (int i = 0; i < n; ++i) g(3); }",
        "void f(int n) { for (int i = 0; i < n; ++i) if (n == 2) { int j = 0; ++j; } else return; n = 3; }",
        "void f(int n) { for (int8_t i = 0; i < 16; ++i) {} for (int i = n; i >= 0; i -= 2) {} }",
    ],
)
def test_a_bounded_loop_stays_bounded(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("struct A { int operator()(int n) { A a; return n ? a(n - 1) : 0; } };", ["A::operator()"]),
        ("struct A { int operator()(int n) const { return n ? (*this)(n - 1) : 0; } };", ["A::operator()"]),
        ("struct A { int operator()(int n) { return n ? A{}(n - 1) : 0; } };", ["A::operator()"]),
        (
            "struct A { int operator()(int n); }; int A::operator()(int n) { return n ? operator()(n - 1) : 0; }",
            ["A::operator()"],
        ),
        (
            "template <class F> int go(F& f, int n) { return f(n); } struct A { int operator()(int n) { return n ? go(*this, n - 1) : 0; } };",
            ["A::operator()", "go"],
        ),
        ("struct V { int x; }; V operator+(V a, V b) { return a + b; }", ["operator+"]),
        ("struct V { int x; V operator-() const { return -*this; } };", ["operator-"]),
        ("struct S { S(int n) : x(n) { if (n) { S t(n - 1); } } int x; };", ["S"]),
        ("#define AGAIN(n) f(n)\nint f(int n) { return n ? AGAIN(n - 1) : 0; }", ["AGAIN", "f"]),
        ("struct Q {}; int f(Q q = {}, int n = 1) { return n ? f({}, n - 1) : 0; }", ["f"]),
        ("int f(int n) { return n ? (f)(n - 1) : 0; }", ["f"]),
    ],
)
def test_recursion_in_disguise(text: str, names: list[str]) -> None:
    assert sorted(recursion(calls(text))) == names


@pytest.mark.parametrize(
    "text",
    [
        "struct V { int x; }; V operator+(V a, V b) { return {a.x + b.x}; } V twice(V a) { return a + a; }",
        "struct A { int operator()(int n) { return g(n); } int g(int n) { return n; } }; int f(A a) { return a(1); }",
        "struct S { S(int n) : x(n) {} int x; }; int f() { S s(1); return s.x; }",
        "struct A { int operator()(int n) { return n; } }; struct B { A a; int operator()(int n) { return a(n); } };",
    ],
)
def test_operators_that_end_are_no_recursion(text: str) -> None:
    assert recursion(calls(text)) == []


def test_lines_stay_where_they_are() -> None:
    text = (
        '/* one\ntwo */ int a; // x\nconst char* s = R"(new\nfloat)";\n#define LONG(x) \\\n    x\nint* p = new int;\n'
    )
    assert [(f.line, f.kind) for f in findings(text)] == [(7, "dynamic memory")]
    assert bare(text).count("\n") == text.count("\n")


def test_only_headers_of_the_kit_or_of_the_same_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, table = tmp_path / "kernel.hpp", tmp_path / "table.hpp"
    kernel.write_text('#include "npu_types.hpp"\n#include "npu_isa.hpp"\n#include "table.hpp"\n')
    table.write_text("constexpr int STEPS = 4;\n")
    assert main([str(kernel)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f'{kernel}:3: include: "table.hpp" is no header of the kit and is not checked with this file'
    ]
    assert main([str(kernel), str(table)]) == 0
    kernel.write_text('#include "../elsewhere/npu_types.hpp"\n')
    assert main([str(kernel)]) == 1


def test_what_a_function_of_another_file_writes_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, other = tmp_path / "kernel.hpp", tmp_path / "other.hpp"
    kernel.write_text('#include "other.hpp"\nvoid f(int n) { for (int i = 0; i < n; ++i) { back(i); } }\n')
    other.write_text("inline void back(int& i) { --i; }\n")
    assert main([str(kernel), str(other)]) == 1
    assert capsys.readouterr().out == f"{kernel}:2: unbounded loop: for (int i = 0; i < n; ++i)\n"


@pytest.mark.parametrize("name", ["nope.hpp", "", "binary.hpp"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary.hpp").write_bytes(b"\xff\xfe\x00")
    assert main([str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert (
        shown.out == ""
        and shown.err.startswith(f"error: {tmp_path / name}: cannot be read")
        and shown.err.count("\n") == 1
    )
