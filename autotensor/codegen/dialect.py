"""Dialects: how languages of the C family spell what a kernel needs. `cstyle.py` writes kernels with them.

A record of strings and small functions per language; `cuda.py` and `opencl.py` hold theirs. 16-bit floats are
held in `float` variables, rounded after every operation, and stored as 16 bits.
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
    pointer: Callable[[str, bool], str]  # element type, whether it is only read → type of a parameter
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
    lane: Callable[[str, int], str]  # a vector and the number of a lane → expression
    aligned: bool  # whether vector accesses must begin at multiples of their size
    widest: int  # bytes of one access
    block_size: Callable[[int], str]  # threads of a block → attribute before the name
    helpers: Mapping[str, str]  # name → definition, written out where used
    reserved: frozenset[str]
    copies: bool = False  # whether it copies into shared memory asynchronously
    tensors: bool = False  # whether it has the instructions of tensor_intrinsics.py; else their loops
    vectors: bool = False  # whether it computes with vectors, see cstyle_vector.py


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

# Integer helpers, the same in all languages; T is the type. Division rounds down, and by zero gives zero.
_FLOORDIV = """{fn} {T} at_floordiv_{t}({T} a, {T} b) {{
    if (b == 0) return 0;
    {T} q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}}"""
_FLOORMOD = """{fn} {T} at_floormod_{t}({T} a, {T} b) {{
    if (b == 0) return 0;
    {T} r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}}"""


def integer_helpers(function: str, types: Mapping[str, str]) -> dict[str, str]:
    """Floor division and modulo for all integer types."""
    out: dict[str, str] = {}
    for t, spelled in types.items():
        if t.startswith(("int", "uint")):
            out[f"at_floordiv_{t}"] = _FLOORDIV.format(fn=function, T=spelled, t=t)
            out[f"at_floormod_{t}"] = _FLOORMOD.format(fn=function, T=spelled, t=t)
    return out


def float_helpers(function: str, bits_of: str, float_of: str) -> dict[str, str]:
    """16-bit floats by integer arithmetic: what memory holds ↔ float, to nearest even.

    bits_of, float_of: functions that reinterpret a float as unsigned int and back.
    """
    fn = function
    return {
        "at_bf2f": f"{fn} float at_bf2f(unsigned short h) {{ return {float_of}((unsigned int)h << 16); }}",
        "at_f2bf": f"""{fn} unsigned short at_f2bf(float x) {{
    unsigned int u = {bits_of}(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((u >> 16) | 64u);
    return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}}""",
        "at_h2f": f"""{fn} float at_h2f(unsigned short h) {{
    unsigned int sign = (unsigned int)(h & 0x8000u) << 16, body = h & 0x7fffu;
    if (body >= 0x7c00u) return {float_of}(sign | 0x7f800000u | ((body & 0x3ffu) << 13));
    if (body >= 0x400u) return {float_of}(sign | ((body << 13) + 0x38000000u));
    float small = (float)body * 5.9604644775390625e-8f;
    return sign ? -small : small;
}}""",
        "at_f2h": f"""{fn} unsigned short at_f2h(float x) {{
    unsigned int u = {bits_of}(x), sign = (u >> 16) & 0x8000u, body = u & 0x7fffffffu;
    if (body > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
    if (body >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    if (body < 0x38800000u) {{
        float shifted = {float_of}(body) + 0.5f;
        return (unsigned short)(sign | ({bits_of}(shifted) - 0x3f000000u));
    }}
    body += 0xfffu + ((body >> 13) & 1u);
    return (unsigned short)(sign | ((body - 0x38000000u) >> 13));
}}""",
        "at_round_f16": f"{fn} float at_round_f16(float x) {{ return at_h2f(at_f2h(x)); }}",
        "at_round_bf16": f"{fn} float at_round_bf16(float x) {{ return at_bf2f(at_f2bf(x)); }}",
    }


# which helpers a helper calls
USES = {"at_round_f16": ("at_h2f", "at_f2h"), "at_round_bf16": ("at_bf2f", "at_f2bf")}
