"""Functions for kernels of the C family, with the meaning that `ir/semantics.py` defines. Kernels call them
where C leaves a result undefined or defines another one. A kernel holds the functions that it uses.

    at_shl_int32(a, b)        0 if b is negative or at least the number of bits
    at_whole32_float32(x)     x as int32; the least int32 if x does not fit
    at_floordiv_int32(a, b)   rounded down; 0 if b is 0
    at_floormod_float32       NumPy's remainder
"""

from __future__ import annotations

from collections.abc import Mapping

# Integer type T of N bits; U is the unsigned type of N bits. The functions compute in U, which wraps around.
_OF_INTEGERS = {
    "shl": """{fn} {T} at_shl_{t}({T} a, {T} b) {{
    return ({U})b < {N} ? ({T})(({W})a << b) : 0;
}}""",
    "shr": """{fn} {T} at_shr_{t}({T} a, {T} b) {{
    return a >> (({U})b < {N} ? b : {N} - 1);
}}""",
    "pow": """{fn} {T} at_pow_{t}({T} a, {T} b) {{
    {W} r = 1, p = ({W})a;
    for ({U} e = ({U})b; e; e >>= 1) {{
        if (e & 1) r *= p;
        p *= p;
    }}
    return {negative}({T})r;
}}""",
    "abs": "{fn} {T} at_abs_{t}({T} x) {{ return x < 0 ? ({T})(0 - ({W})x) : x; }}",
    "floordiv": """{fn} {T} at_floordiv_{t}({T} a, {T} b) {{
    if (b == 0) return 0;{least}
    {T} q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}}""",
    "floormod": """{fn} {T} at_floormod_{t}({T} a, {T} b) {{
    if (b == 0{minus}) return 0;
    {T} r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}}""",
}


def integer_helpers(function: str, types: Mapping[str, str]) -> dict[str, str]:
    """Shifts, powers, floor division and modulo for all integer types."""
    out: dict[str, str] = {}
    for t, spelled in types.items():
        signed, bits = t.startswith("int"), int(t.lstrip("uint"))
        for name, text in _OF_INTEGERS.items():
            if name == "shr" and not signed:
                text = "{fn} {T} at_shr_{t}({T} a, {T} b) {{ return b < {N} ? a >> b : 0; }}"
            out[f"at_{name}_{t}"] = text.format(
                fn=function,
                T=spelled,
                U=types[f"uint{bits}"],
                W=types[f"uint{max(32, bits)}"],  # C converts narrower types to int, which does not wrap
                N=bits,
                t=t,
                negative="b < 0 ? (a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0) : " if signed else "",
                least=f"\n    if (b == -1) return ({spelled})(0 - ({types[f'uint{max(32, bits)}']})a);"
                if signed
                else "",
                minus=" || b == -1" if signed else "",
            )
    return out


def minmax_helpers(function: str, integers: Mapping[str, str], floats: Mapping[str, str]) -> dict[str, str]:
    """The lesser and the greater of two values; NaN if either is NaN."""
    out: dict[str, str] = {}
    for t, kind in {**integers, **floats}.items():
        nan = " || a != a" if t in floats else ""
        for name, sign in (("min", "<="), ("max", ">=")):
            out[f"at_{name}_{t}"] = (
                f"{function} {kind} at_{name}_{t}({kind} a, {kind} b) {{ return a {sign} b{nan} ? a : b; }}"
            )
    return out


def whole_helpers(function: str, types: Mapping[str, str], floats: Mapping[str, str]) -> dict[str, str]:
    """Floats to integers: a float that the integer cannot hold becomes the least number."""
    out: dict[str, str] = {}
    i32, i64, u64 = (types[t] for t in ("int32", "int64", "uint64"))
    for t, f in floats.items():
        for bits, kind, end in ((32, i32, "2147483648.0f"), (64, i64, "9223372036854775808.0f")):
            least = f"({kind})(({u64})1 << {bits - 1})" if bits == 64 else "-2147483647 - 1"
            out[f"at_whole{bits}_{t}"] = (
                f"{function} {kind} at_whole{bits}_{t}({f} x) "
                f"{{ return x > -{end} && x < {end} ? ({kind})x : {least}; }}"
            )
        out[f"at_wholeu64_{t}"] = (
            f"{function} {u64} at_wholeu64_{t}({f} x) {{ return x >= 9223372036854775808.0f && "
            f"x < 18446744073709551616.0f ? ({u64})x : ({u64})at_whole64_{t}(x); }}"
        )
    return out


def odd_helpers(function: str, types: Mapping[str, str], bits_of: str, float_of: str) -> dict[str, str]:
    """Integers and doubles as float, such that a second rounding to 16 bits gives the same result as one
    direct rounding."""
    out: dict[str, str] = {}
    u32, u64 = types["uint32"], types["uint64"]
    for t in ("int32", "uint32", "int64", "uint64"):
        magnitude = f"x < 0 ? 0 - ({u64})x : ({u64})x" if t.startswith("int") else f"({u64})x"
        sign = "x < 0 ? -f : f" if t.startswith("int") else "f"
        out[f"at_odd_{t}"] = f"""{function} float at_odd_{t}({types[t]} x) {{
    {u64} m = {magnitude};
    {u32} n = 127;
    while (m >> 24) {{
        m = m >> 1 | (m & 1);
        n++;
    }}
    float f = (float)({u32})m * {float_of}(n << 23);
    return {sign};
}}"""
    out["at_odd_float64"] = f"""{function} float at_odd_float64(double x) {{
    float f = (float)x;
    double back = f;
    if (back == x || x != x) return f;
    bool over = (back < 0 ? -back : back) > (x < 0 ? -x : x);
    return {float_of}(({bits_of}(f) - (over ? 1u : 0u)) | 1u);
}}"""
    return out


# NumPy's steps; fmod is exact
_FLOORMOD = """{fn} {T} at_floormod_{t}({T} x, {T} y) {{
    {T} r = {fmod}(x, y);
    return r == 0 ? {copysign}(({T})0, y) : (r < 0) != (y < 0) ? r + y : r;
}}"""
_FLOORDIV = """{fn} {T} at_floordiv_{t}({T} x, {T} y) {{
    if (y == 0) return x / y;
    {T} r = {fmod}(x, y), q = (x - r) / y;
    if (r != 0 && (r < 0) != (y < 0)) q -= 1;
    if (q == 0) return {copysign}(({T})0, x / y);
    {T} low = {floor}(q);
    return q - low > ({T})0.5 ? low + 1 : low;
}}"""


def division_helpers(function: str, floats: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Floor division of floats. floats: dtype → (type, the end of its functions' names)."""
    out: dict[str, str] = {}
    for t, (kind, end) in floats.items():
        for name, text in (("floormod", _FLOORMOD), ("floordiv", _FLOORDIV)):
            functions = {f: f + end for f in ("fmod", "copysign", "floor")}
            out[f"at_{name}_{t}"] = text.format(fn=function, T=kind, t=t, **functions)
    return out


def float_helpers(function: str, bits_of: str, float_of: str) -> dict[str, str]:
    """16-bit floats by integer arithmetic: the bits in memory ↔ float, to nearest even.

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


# helper → the helpers that it calls
USES = {
    **{f"at_wholeu64_{t}": (f"at_whole64_{t}",) for t in ("float32", "float64")},
    "at_round_f16": ("at_h2f", "at_f2h"),
    "at_round_bf16": ("at_bf2f", "at_f2bf"),
}
