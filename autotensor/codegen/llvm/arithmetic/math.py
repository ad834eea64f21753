"""The notation in which intrinsics.py writes its formulas: `X` is an operand, `M` has the operations of one
float type.

m = M(writer, float32x16);  y = m.fma(x, x, 1.0) / (x + 2.0)
"""

from __future__ import annotations

from autotensor.base.dtype import DType, bool_, int32, int64
from autotensor.codegen.llvm.function_writer import FunctionWriter, cond_type, literal, suffix, ty


class X:
    """A float operand with arithmetic."""

    __slots__ = ("m", "v")

    def __init__(self, m: M, v: str) -> None:
        self.m, self.v = m, v

    def __add__(self, o: X | float) -> X:
        return self.m.op2("fadd", self, o)

    def __radd__(self, o: X | float) -> X:
        return self.m.op2("fadd", o, self)

    def __sub__(self, o: X | float) -> X:
        return self.m.op2("fsub", self, o)

    def __rsub__(self, o: X | float) -> X:
        return self.m.op2("fsub", o, self)

    def __mul__(self, o: X | float) -> X:
        return self.m.op2("fmul", self, o)

    def __rmul__(self, o: X | float) -> X:
        return self.m.op2("fmul", o, self)

    def __truediv__(self, o: X | float) -> X:
        return self.m.op2("fdiv", self, o)

    def __rtruediv__(self, o: X | float) -> X:
        return self.m.op2("fdiv", o, self)

    def __neg__(self) -> X:
        return X(self.m, self.m.w.op(f"fneg {self.m.t} {self.v}"))


class M:
    """Arithmetic of one float type (with lanes) in one writer."""

    def __init__(self, w: FunctionWriter, dtype: DType) -> None:
        self.w = w
        self.dtype = dtype
        self.t = ty(dtype)
        self.double = dtype.bits == 64
        self.whole = (int64 if self.double else int32).with_lanes(dtype.lanes)
        self.i = ty(self.whole)
        self.cond = cond_type(dtype)
        self.mantissa = 52 if self.double else 23
        self.bias = 1023 if self.double else 127

    def text(self, x: X | float) -> str:
        return x.v if isinstance(x, X) else literal(x, self.dtype)

    def const(self, x: float) -> X:
        return X(self, literal(x, self.dtype))

    def number(self, k: int) -> str:
        return literal(k, self.whole)

    def op2(self, name: str, a: X | float, b: X | float) -> X:
        return X(self, self.w.op(f"{name} {self.t} {self.text(a)}, {self.text(b)}"))

    def native(self, name: str, *args: X | float) -> X:
        values = [(self.dtype, self.text(a)) for a in args]
        return X(self, self.w.call(f"llvm.{name}.{suffix(self.dtype)}", self.dtype, *values))

    def fma(self, a: X | float, b: X | float, c: X | float) -> X:
        return self.native("fmuladd", a, b, c)

    def exact_fma(self, a: X | float, b: X | float, c: X | float) -> X:
        return self.native("fma", a, b, c)

    def poly(self, x: X, *coefficients: float) -> X:
        """Horner's rule, highest power first."""
        result: X | float = coefficients[0]
        for c in coefficients[1:]:
            result = self.fma(result, x, c)
        return result if isinstance(result, X) else self.const(result)

    def test(self, relation: str, a: X | float, b: X | float) -> str:
        return self.w.op(f"fcmp {relation} {self.t} {self.text(a)}, {self.text(b)}")

    def pick(self, cond: str, a: X | float, b: X | float) -> X:
        return X(
            self, self.w.op(f"select {self.cond} {cond}, {self.t} {self.text(a)}, {self.t} {self.text(b)}")
        )

    def both(self, a: str, b: str) -> str:
        return self.w.op(f"and {self.cond} {a}, {b}")

    def neither(self, a: str) -> str:
        return self.w.op(f"xor {self.cond} {a}, {literal(True, bool_.with_lanes(self.dtype.lanes))}")

    def clamp(self, x: X, low: float, high: float) -> X:
        """x within [low, high]; NaN stays."""
        return self.at_most(self.pick(self.test("ogt", low, x), low, x), high)

    def at_most(self, x: X, high: float) -> X:
        """x, or `high` where x is greater; NaN stays."""
        return self.pick(self.test("olt", high, x), high, x)

    def bits(self, x: X) -> str:
        return self.w.op(f"bitcast {self.t} {x.v} to {self.i}")

    def from_bits(self, v: str) -> X:
        return X(self, self.w.op(f"bitcast {self.i} {v} to {self.t}"))

    def int_op(self, name: str, a: str, b: str | int) -> str:
        return self.w.op(f"{name} {self.i} {a}, {self.number(b) if isinstance(b, int) else b}")

    def to_int(self, x: X) -> str:
        return self.w.op(f"fptosi {self.t} {x.v} to {self.i}")

    def to_float(self, v: str) -> X:
        return X(self, self.w.op(f"sitofp {self.i} {v} to {self.t}"))

    def power_of_two(self, n: str) -> X:
        """2**n for integers n in the range of normal numbers."""
        return self.from_bits(self.int_op("shl", self.int_op("add", n, self.bias), self.mantissa))

    def scale(self, x: X, n: str) -> X:
        """x * 2**n, where n may have twice the range of exponents and the result may be subnormal. This is
        one instruction on machines that have it, else it takes two steps.
        """
        if self.w.has_ldexp and not self.double:
            name = f"llvm.ldexp.{suffix(self.dtype)}.{suffix(self.whole)}"
            return X(self, self.w.call(name, self.dtype, (self.dtype, x.v), (self.whole, n)))
        half = self.int_op("ashr", n, 1)
        return x * self.power_of_two(half) * self.power_of_two(self.int_op("sub", n, half))

    def clean_int(self, x: X) -> tuple[X, str]:
        """x, which is a whole number or NaN, and the same number as an integer (0 for NaN)."""
        ordered = self.pick(self.test("ord", x, x), x, 0.0)
        return x, self.to_int(ordered)
