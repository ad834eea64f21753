"""LLVM IR as text: types, literals and the `FunctionWriter`, which writes one function.

The IR is written as text, not with `llvmlite.ir`. IRBuilder takes 13 µs an instruction (measured, llvmlite
0.50). This would add 4 ms for a 14x32 micro-kernel that compiles in 14 ms. In text, instructions can also be
inserted at the head of a scope that was opened long ago. So index arithmetic is written outside its loops
from the beginning.

    scopes       root ── loop i ── loop k     a scope is a place in the text: its `pre` list
    pre lists    [B·j]    [A·i]    [B·k]      stands before everything else in the scope
    known        node → operand, forgotten when the scope that holds the definition closes

Operands are strings ("%v12", "7", "splat (float 0x3FF0…)"); their types are those of their expressions.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, bool_
from autotensor.base.errors import CodegenError

# bfloat16 values are held as integers of 16 bits: for LLVM's own type, it would call library functions that
# not every process has.
_FLOATS = {16: "half", 32: "float", 64: "double"}


@lru_cache(maxsize=512)
def ty(t: DType) -> str:
    """LLVM type of a value: bool is i1, bfloat16 is i16."""
    one = _FLOATS[t.bits] if t.kind == "float" else f"i{t.bits}"
    return one if t.lanes == 1 else f"<{t.lanes} x {one}>"


def cond_type(t: DType) -> str:
    """LLVM type of a comparison of two values of a type."""
    return ty(bool_.with_lanes(t.lanes))


@lru_cache(maxsize=512)
def mem(t: DType) -> str:
    """LLVM type of a value in memory: bool is i8."""
    return ty(DType("uint", 8, t.lanes)) if t.is_bool else ty(t)


@lru_cache(maxsize=512)
def suffix(t: DType) -> str:
    """How intrinsics spell a type: f32, v16f32, i64."""
    one = f"f{t.bits}" if t.kind == "float" else f"i{t.bits}"
    return one if t.lanes == 1 else f"v{t.lanes}{one}"


@lru_cache(maxsize=4096)
def _literal(bits: str, t: DType) -> str:
    value = float.fromhex(bits) if t.is_float else int(bits)
    if t.kind == "bfloat":
        word = int(np.float32(value).view(np.uint32))
        text = str((word + 0x7FFF + (word >> 16 & 1)) >> 16) if value == value else "32704"
    elif t.kind == "float":
        with np.errstate(over="ignore"):
            exact = float(t.numpy.type(value))  # LLVM accepts only digits that the type holds exactly
        if t.bits == 16:
            text = f"0xH{int(np.float16(exact).view(np.uint16)):04X}"
        else:
            text = f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
    elif t.is_bool:
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if t.lanes == 1 else f"splat ({ty(t.element)} {text})"


def literal(value: float | int | bool, t: DType) -> str:
    """A constant operand; the same number in every lane of a vector type."""
    return _literal(float(value).hex() if t.is_float else str(int(value)), t)


def vector_literal(values: tuple[int, ...], t: DType) -> str:
    """A vector of given integers."""
    one = ty(t.element)
    return "<" + ", ".join(f"{one} {v}" for v in values) + ">"


class Scope:
    """A place in the text at which values that are invariant below it are defined."""

    __slots__ = ("keys", "label", "pre")

    def __init__(self, label: str) -> None:
        self.pre: list[Any] = []
        self.keys: list[Any] = []  # keys to delete from `known` and `levels` when the scope closes
        self.label = label  # block that `pre` belongs to


class FunctionWriter:
    """The text of one function: instructions, blocks, scopes, and what is already computed."""

    def __init__(self) -> None:
        # whether x·2**n is one instruction; elsewhere LLVM would call a library function
        self.has_ldexp = False
        # whether one instruction takes bytes from anywhere in two registers of 64 bytes
        self.permutes_bytes = False
        # LLVM's constraint for vector registers, on targets where a choice by one bit between them would be a
        # branch
        self.registers = ""
        # lanes of the widest mask that one register of masks holds; 0: the target has no such registers
        self.mask_lanes = 0
        # whether a masked load takes longer than a few narrower loads
        self.slow_masks = False
        self.out: list[Any] = []  # strings and nested `pre` lists
        self.cur: list[Any] = self.out
        self.count = 0
        self.block = "entry"  # label of the block being written
        self.declared: dict[str, str] = {}  # external functions and constants: name → its line
        self.known: dict[Any, str] = {}
        # values stored to private buffers in this block: (buffer, first element, type) → operand
        self.held: dict[tuple[Any, int, DType], str] = {}
        # operand loaded from a private buffer → operand that was stored there
        self.copies: dict[str, str] = {}
        self.scopes: list[Scope] = []

    # -- instructions ------------------------------------------------------------------------------------
    def op(self, text: str) -> str:
        """Writes an instruction with a result and returns the result's name."""
        self.count += 1
        name = f"%v{self.count}"
        self.cur.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.cur.append(f"  {text}")

    def label(self, hint: str) -> str:
        """A fresh block name."""
        self.count += 1
        return f"{hint}{self.count}"

    def start(self, label: str) -> None:
        """Begins a block; a branch must have ended the block before."""
        self.cur.append(f"{label}:")
        self.block = label
        self.held.clear()

    def call(self, name: str, result: DType, *args: tuple[DType, str]) -> str:
        """A call of a declared function, `@name(args)`."""
        if name not in self.declared:
            self.declared[name] = f"declare {ty(result)} @{name}({', '.join(ty(t) for t, _ in args)})"
        return self.op(f"call {ty(result)} @{name}({', '.join(f'{ty(t)} {v}' for t, v in args)})")

    def fills_register(self, t: DType) -> bool:
        """Whether vectors of 32-bit elements with these lanes fill one register, on a target where choices
        between registers must use masks. LLVM ends the process for a wider choice."""
        widths = {"x": (128, 256), "v": (128, 256, 512)}.get(self.registers, ())
        return t.lanes > 1 and 32 * t.lanes in widths

    # -- scopes ------------------------------------------------------------------------------------------
    def open(self) -> Scope:
        """A scope that starts here."""
        scope = Scope(self.block)
        self.cur.append(scope.pre)
        self.scopes.append(scope)
        return scope

    @property
    def depth(self) -> int:
        """Index of the innermost scope."""
        return len(self.scopes) - 1

    def remember(self, key: Any, value: str, level: int) -> str:
        self.known[key] = value
        self.scopes[level].keys.append(key)
        return value

    def at_head(self, level: int) -> list[Any]:
        """Writes the following instructions at the head of a scope. Afterwards, the caller must assign the
        result to `self.cur`.

        The operands of these instructions must be at heads too, because the middle of a scope comes after its
        head.
        """
        saved = self.cur
        self.cur = self.scopes[level].pre
        return saved

    # -- small arithmetic --------------------------------------------------------------------------------
    def splat(self, value: str, t: DType) -> str:
        """A scalar operand in all lanes of vector type `t`."""
        if value[0] != "%" and not value.startswith("@"):
            return f"splat ({ty(t.element)} {value})"
        one = self.op(f"insertelement {ty(t)} poison, {ty(t.element)} {value}, i64 0")
        return self.op(f"shufflevector {ty(t)} {one}, {ty(t)} poison, <{t.lanes} x i32> zeroinitializer")

    def text(self) -> str:
        lines: list[str] = []
        _flatten(self.out, lines)
        return "\n".join(lines)


def _flatten(nested: list[Any], lines: list[str]) -> None:
    for item in nested:
        if isinstance(item, str):
            lines.append(item)
        else:
            _flatten(item, lines)


def unsupported(what: str, fix: str = "") -> CodegenError:
    return CodegenError(what, fix=fix)
