"""Dialects: how languages of the C family spell what a kernel needs. `kernel.py` writes kernels with them.

A dialect is a record of strings and small functions; `cuda.py` and `opencl.py` define one each. Variables of
16-bit floats have type `float`. They are rounded after every operation and stored as 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotensor.base.dtype import DType


@dataclass(frozen=True, slots=True)
class Dialect:
    """The spelling of one language."""

    name: str
    kernel: str  # before a kernel's name
    pointer: Callable[[str, bool], str]  # element type, whether the buffer is only read → type of a parameter
    shared: str  # before a declaration in shared memory
    barrier: str
    threads: Mapping[str, str]  # thread axis → expression
    types: Mapping[str, str]  # dtype → what memory holds
    values: Mapping[str, str]  # dtype → what a variable holds
    function: str  # before a helper function
    call: Callable[[str, DType], str]  # name of a function of MATH and a type → what is called
    constant: Callable[[float, DType], str]  # a float as a literal
    vector_load: Callable[[str, str, str, int], str]  # type, pointer, index, lanes → expression
    vector_store: Callable[[str, str, str, int, list[str]], str]  # the same and the lanes → statement
    vector_type: Callable[[str, int], str]
    lane: Callable[[str, int], str]  # a vector and the index of a lane → expression
    aligned: bool  # whether vector accesses must begin at multiples of their size
    widest: int  # bytes of one access
    block_size: Callable[[int], str]  # threads of a block → attribute before the name
    helpers: Mapping[str, str]  # name → definition, written out where used
    reserved: frozenset[str]
    copies: bool = False  # whether the language can copy into shared memory asynchronously
    # whether it has the instructions of tensor_intrinsics.py; else kernels hold their loops
    tensors: bool = False
    vectors: bool = False  # whether the language computes with vectors, see vector_expr.py


RESERVED = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "compl",
        "const",
        "constexpr",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "not",
        "nullptr",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "xor",
        "main",
        "abs",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "fma",
        "fmod",
        "isinf",
        "isnan",
        "log",
        "log10",
        "log1p",
        "log2",
        "max",
        "min",
        "pow",
        "rint",
        "round",
        "rsqrt",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
        "INFINITY",
        "NAN",
    ]
)
