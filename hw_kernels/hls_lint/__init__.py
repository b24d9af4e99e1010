"""Lint of HLS C++: what no synthesis tool takes. `python -m npuforge.hw_kernels.hls_lint FILE...` names each finding with its line; exit code 1.

Refused: memory from the heap, the standard library and block copies, virtual calls, exceptions, recursion (also through operators, constructors and
macros), loops whose header does not bound them or whose body unbinds them, arrays of variable length, compiler builtins and assembly, floating point,
includes but of the kit's headers and of files checked in the same call, pragmas outside the portability header (hls/npu_port.hpp), input and output, ends
of the program, threads, lambdas and function pointers. The files are read as text, by name: overloads are one function, templates are not expanded.
"""

from .constructs import FORBIDDEN, Finding, findings
from .program import main, sources
from .recursion import calls, recursion
from .source import bare

__all__ = ["FORBIDDEN", "Finding", "bare", "calls", "findings", "main", "recursion", "sources"]
