"""The one text of every node, similar to Python and stable: `print` shows it, and golden tests contain it.

    for y in range(1024):
      for x in range(1024):
        C[y][x] = 0
        for k in range(1024):
          C[y][x] += A[k][y] * B[k][x]

Arithmetic is tight inside indices (`A[yo*8+yi]`) and spaced outside. Parentheses appear where precedence
needs them. Names that are not identifiers are replaced by identifiers, and different names by different ones
within one text. `to_text(x, types=True)` writes names and types everywhere, so that different nodes have
different texts.

An expression that uses a part twice at each level would fill megabytes. In the text of such an expression,
the parts get numbers, and their texts follow, innermost first:

    C[i] = ($7 * 0.5 if i > 3 else $7 + 1)
    where $0 = …
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Combiner,
    Compare,
    Const,
    Dot,
    Expr,
    Load,
    Neg,
    Op,
    Ramp,
    Reduce,
    Select,
    Unary,
    Var,
)
from autotensor.ir.func import Buffer, PrimFunc, Program, Scope
from autotensor.ir.node import Node
from autotensor.ir.stmt import (
    Alloc,
    Async,
    Await,
    Barrier,
    Commit,
    Evaluate,
    For,
    ForKind,
    If,
    Let,
    Seq,
    Stmt,
    Store,
)
from autotensor.ir.visit import shared, walk

# Python's precedences: an operand of lower rank gets parentheses; on the right side, equal rank does, too
_OR, _AND, _NOT, _CMP, _BOR, _XOR, _BAND, _SHIFT, _SUM, _PRODUCT, _UNARY, _ATOM = range(12)
_RANK = {
    Op.OR: _BOR,
    Op.XOR: _XOR,
    Op.AND: _BAND,
    Op.SHL: _SHIFT,
    Op.SHR: _SHIFT,
    Op.ADD: _SUM,
    Op.SUB: _SUM,
    Op.MUL: _PRODUCT,
    Op.DIV: _PRODUCT,
    Op.FLOORDIV: _PRODUCT,
    Op.MOD: _PRODUCT,
}
_LOOP = {
    ForKind.SERIAL: "range",
    ForKind.PARALLEL: "parallel",
    ForKind.VECTORIZED: "vectorized",
    ForKind.UNROLLED: "unrolled",
    ForKind.THREAD: "bind",
}
MARK = "\0"
_NO_PARTS: Mapping[Expr, str] = {}
_TAKEN = {
    *keyword.kwlist,
    "range",
    "min",
    "max",
    "sum",
    "inf",
    "nan",
    "ramp",
    "barrier",
    "later",
    "commit",
    "await_copies",
    *_LOOP.values(),
}


def to_text(
    x: Node | PrimFunc | Program, *, names: Mapping[str, str] | None = None, types: bool = False
) -> str:
    """The text of an expression, statement, buffer, function or program.

    names: display names, {"y.0": "yo"}; all other names stay, or become similar identifiers.
    types: writes names as they are and types everywhere; different nodes then have different texts.

    >>> i, j = Var("i"), Var("j")
    >>> to_text((i + j) * 4 - i // 2)
    '(i + j) * 4 - i // 2'
    """
    parts = _parts(x)
    printer = Printer(_display_names(_names_in(x), names or {}, types), types, parts=parts)
    match x:
        case PrimFunc():
            return "\n".join([*printer.function(x), *printer.where()])
        case Program():
            return "\n".join([*printer.program(x), *printer.where()])
        case Stmt():
            return "\n".join([*printer.stmt(x), *printer.where()])
        case Expr():
            return "\n".join([printer.expr(x), *printer.where()])
        case Buffer():
            return f"{printer.name(x.name)}: {printer.buffer_type(x)}"
        case Combiner():
            return printer.combiner(x)
    return object.__repr__(x)


def neighbourhood(func: PrimFunc, stmt: Stmt, lines: int = 5) -> str:
    """`stmt` inside the text of `func`, marked with `>`, with this many lines before and after it."""
    text = Printer(_display_names(_names_in(func), {}, False), marked=stmt, parts=_parts(func)).function(func)
    at = next((n for n, line in enumerate(text) if MARK in line), 0)
    shown = text[max(0, at - lines) : at + lines + 1]
    return "\n".join(("> " if MARK in line else "  ") + line.replace(MARK, "") for line in shown)


# -- names ---------------------------------------------------------------------------------------------------
def _roots(x: Any) -> list[Node]:
    match x:
        case PrimFunc():
            return [x.body]
        case Program():
            return [f.body for f in (*x.prepare, *x.run)]
    return [x]


def _parts(x: Any) -> Mapping[Expr, str]:
    """The shared parts of an expression that is too large, each with its number, children first."""
    return {part: f"${n}" for n, part in enumerate(shared(*_roots(x)))}


def _names_in(x: Any) -> list[str]:
    """All names, in order of first appearance."""
    names: dict[str, None] = {}
    match x:
        case PrimFunc():
            names.update(dict.fromkeys(b.name for b in x.params))
        case Program():
            names.update(dict.fromkeys(b.name for b, _ in x.args))
    for root in _roots(x):
        for n in walk(root):
            if isinstance(n, (Var, Buffer)):
                names[n.name] = None
            elif isinstance(n, Load) and not isinstance(n.buffer, Node):
                names[_tensor_name(n.buffer)] = None
            elif isinstance(n, Reduce):
                names.update(dict.fromkeys(_axis_name(a) for a in n.axes))
    return list(names)


def _display_names(all_names: Iterable[str], wanted: Mapping[str, str], types: bool) -> dict[str, str]:
    """name → printed text, all different: first the given names, then identifiers, then all other names."""
    if types:
        return {n: n if n.isidentifier() else f"`{n}`" for n in all_names}
    out: dict[str, str] = {}
    used: set[str] = set()
    plain = [n for n in all_names if n not in wanted]
    given = [n for n in all_names if n in wanted]
    for n in (*given, *(n for n in plain if _is_free(n)), *(n for n in plain if not _is_free(n))):
        base = wanted.get(n, n)
        base = base if base.isidentifier() and base not in _TAKEN else identifier(base)
        text, count = base, 0
        while text in used:
            count += 1
            text = f"{base}_{count}"
        used.add(text)
        out[n] = text
    return out


def _is_free(name: str) -> bool:
    return name.isidentifier() and name not in _TAKEN


def identifier(name: str) -> str:
    """The identifier of Python that is most similar to `name`.

    >>> identifier("input.1"), identifier("1x"), identifier("lambda")
    ('input_1', 'v1x', 'lambda_')
    """
    text = re.sub(r"\W+", "_", name).strip("_") or "v"
    return f"{text}_" if text in _TAKEN else text if text.isidentifier() else f"v{text}"


def _tensor_name(tensor: Any) -> str:
    """The name of a Buffer, or of a te tensor while an expression is written."""
    return str(getattr(tensor, "name", tensor))


def _axis_name(axis: Any) -> str:
    return str(getattr(getattr(axis, "var", axis), "name", axis))


class Printer:
    """Prints nodes with a fixed table of names."""

    def __init__(
        self,
        names: Mapping[str, str],
        types: bool = False,
        marked: Node | None = None,
        parts: Mapping[Expr, str] = _NO_PARTS,
    ) -> None:
        self.names = names
        self.types = types
        self.parts = parts  # expressions that are printed as a number
        self.marked = marked  # the statement whose first line begins with MARK

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    # -- expressions -----------------------------------------------------------------------------------------
    def expr(self, e: Expr, tight: bool = False, least: int = _OR) -> str:
        """tight: inside an index. least: text of a lower rank gets parentheses."""
        if self.parts and e in self.parts:
            return self.parts[e]
        text, rank = self._ranked(e, tight)
        return f"({text})" if rank < least else text

    def where(self) -> list[str]:
        """The texts of the numbered parts, one line each."""
        return [f"where {number} = {self._ranked(e, False)[0]}" for e, number in self.parts.items()]

    def _ranked(self, e: Expr, tight: bool) -> tuple[str, int]:
        match e:
            case Var(name, dtype):
                return (f"{self.name(name)}:{dtype}" if self.types else self.name(name)), _ATOM
            case Const():
                return self.const(e), _ATOM
            case Binary():
                return self._binary(e, tight)
            case Compare(op, a, b):
                return f"{self.expr(a, tight, _CMP + 1)} {op.value} {self.expr(b, tight, _CMP + 1)}", _CMP
            case Unary(Neg.NEG, a):
                inner = self.expr(a, tight, _UNARY)
                return (f"-({inner})" if isinstance(a, Const) else f"-{inner}"), _UNARY
            case Unary(Neg.NOT, a) if e.dtype.is_bool:
                return f"not {self.expr(a, tight, _NOT)}", _NOT
            case Unary(_, a):
                return f"~{self.expr(a, tight, _UNARY)}", _UNARY
            case Load():
                text = self.place(e.buffer, e.indices)
                return (text if e.mask is None else f"({text} if {self.expr(e.mask)})"), _ATOM
            case Select(cond, then, otherwise):
                sides = self.expr(then, tight), self.expr(otherwise, tight)
                return f"({sides[0]} if {self.expr(cond, tight)} else {sides[1]})", _ATOM
            case Cast(dtype, a):
                return f"{dtype.element}({self.expr(a, tight)})", _ATOM
            case Call(name, args, dtype):
                shown = f"{name}:{dtype}" if self.types else name
                return f"{shown}({', '.join(self.expr(a, tight) for a in args)})", _ATOM
            case Dot(sums, a, b):
                parts = ", ".join(self.expr(x, tight) for x in (sums, a, b))
                return f"{e.instruction}({parts})", _ATOM
            case Ramp(base, step, lanes):
                return f"ramp({self.expr(base, tight)}, {step}, {lanes})", _ATOM
            case Broadcast(a, lanes):
                return f"x{lanes}({self.expr(a, tight)})", _ATOM
            case Reduce():
                return self._reduce(e), _ATOM
        return object.__repr__(e), _ATOM

    def _binary(self, e: Binary, tight: bool) -> tuple[str, int]:
        op = e.op
        if op is Op.MIN or op is Op.MAX:
            return f"{op.value}({self.expr(e.a, tight)}, {self.expr(e.b, tight)})", _ATOM
        sign, rank = op.value, _RANK[op]
        if e.dtype.is_bool and op in (Op.AND, Op.OR):
            sign, rank = ("and", _AND) if op is Op.AND else ("or", _OR)
        sep = sign if tight and rank >= _SUM else f" {sign} "
        return f"{self.expr(e.a, tight, rank)}{sep}{self.expr(e.b, tight, rank + 1)}", rank

    def const(self, c: Const) -> str:
        text = number_text(c)
        if self.types:
            return f"{text}:{c.type}"
        return "0" if text == "0.0" else text

    def _reduce(self, e: Reduce) -> str:
        values = ", ".join(self.expr(x) for x in e.sources)
        axes = ", ".join(self.name(_axis_name(a)) for a in e.axes)
        if len(e.sources) == 1:
            return f"{self.combiner(e.combiner)}({values}, axis=[{axes}])"
        return f"{self.combiner(e.combiner)}(({values}), axis=[{axes}])[{e.index}]"

    def combiner(self, c: Combiner) -> str:
        if not self.types:
            return c.name
        sides = (f"({', '.join(self.expr(x) for x in xs)})" for xs in (c.lhs, c.rhs, c.result, c.identity))
        return f"{c.name}<{'; '.join(sides)}>"

    def place(self, buffer: Any, indices: tuple[Expr, ...]) -> str:
        """`A[k][y]`; a vector of neighbouring elements is `A[i:i+16]`."""
        name = self.name(_tensor_name(buffer))
        if self.types:
            name = f"{name}:{self.buffer_type(buffer)}"
        if not indices:
            return f"{name}[()]"
        return name + "".join(f"[{self._index(i)}]" for i in indices)

    def _index(self, i: Expr) -> str:
        if isinstance(i, Ramp) and i.stride == 1 and not self.types:
            base = self.expr(i.base, tight=True, least=_SUM)
            match i.base:
                case Const(value):
                    return f"{base}:{int(value) + i.lanes}"
                case Binary(Op.ADD, x, Const(value)) if value > 0:
                    return f"{base}:{self.expr(x, tight=True, least=_SUM)}+{int(value) + i.lanes}"
            return f"{base}:{base}+{i.lanes}"
        return self.expr(i, tight=True)

    def buffer_type(self, b: Any) -> str:
        """`float32[64, 64]`, with scope and strides unless they are the usual ones."""
        extents = getattr(b, "extents", ())
        shape = ", ".join(map(self.expr, extents) if extents else map(str, b.shape))
        scope = getattr(b, "scope", Scope.GLOBAL)
        strides = getattr(b, "strides", ())
        text = f"{b.dtype}[{shape}]"
        if scope is not Scope.GLOBAL:
            text += f"@{scope.value}"
        text += f"/{', '.join(map(str, strides))}/" if strides else ""
        return text + self.notes(b)

    def notes(self, b: Any) -> str:
        """The changes to a buffer that lowering will still make."""
        swizzle, turns = getattr(b, "swizzle", ()), getattr(b, "turns", 0)
        text = f" swizzle {swizzle[0]} of {swizzle[1]}" if swizzle else ""
        return text + (f" turns {turns}" if turns else "")

    # -- statements ------------------------------------------------------------------------------------------
    def stmt(self, s: Stmt, last: bool = True) -> list[str]:
        """last: no statement follows in this block, so a Let or Alloc reaches to the block's end."""
        lines = self._stmt(s, last)
        return [MARK + lines[0], *lines[1:]] if s is self.marked else lines

    def _stmt(self, s: Stmt, last: bool) -> list[str]:
        match s:
            case For():
                return [self.loop_header(s), *_indented(self.stmt(s.body))]
            case Seq(()):
                return ["pass"]
            case Seq(stmts):
                parts = (self.stmt(x, last and n == len(stmts) - 1) for n, x in enumerate(stmts))
                return [line for part in parts for line in part]
            case Store():
                return [self._store(s)]
            case If(cond, then, otherwise):
                lines = [f"if {self.expr(cond)}:", *_indented(self.stmt(then))]
                return lines if otherwise is None else [*lines, "else:", *_indented(self.stmt(otherwise))]
            case Alloc(buffer, body):
                return self._scoped(self._alloc(buffer), body, last)
            case Let(var, value, body):
                return self._scoped(f"{self.expr(var)} = {self.expr(value)}", body, last)
            case Barrier(scope):
                return ["barrier()" if scope == "threads" else f'barrier("{scope}")']
            case Evaluate(value):
                return [self.expr(value)]
            case Async(store):
                return [f"later: {self._store(store)}"]
            case Commit():
                return ["commit()"]
            case Await(left):
                return [f"await_copies({left})"]
        return [object.__repr__(s)]

    def _scoped(self, line: str, body: Stmt, last: bool) -> list[str]:
        return [line, *self.stmt(body)] if last else [f"with {line}:", *_indented(self.stmt(body))]

    def loop_header(self, s: For) -> str:
        """`for i in range(8):`"""
        span = self.span(s.begin, s.extent)
        if s.kind is ForKind.THREAD:
            span += f', "{s.thread}"'
        elif s.thread:  # of tensorize
            span += f', instruction="{s.thread}"'
        return f"for {self.expr(s.var)} in {_LOOP[s.kind]}({span}):"

    def span(self, begin: Expr, extent: Expr) -> str:
        """`8`, or `begin, end`."""
        if self.types:
            return f"{self.expr(begin)}, extent={self.expr(extent)}"
        match begin, extent:
            case Const(0), _:
                return self.expr(extent)
            case Const(b), Const(n):
                return f"{b}, {int(b) + int(n)}"
        return f"{self.expr(begin)}, {self.expr(begin, least=_SUM)} + {self.expr(extent, least=_PRODUCT)}"

    def _store(self, s: Store) -> str:
        place = self.place(s.buffer, s.indices)
        tail = "" if s.mask is None else f" if {self.expr(s.mask)}"
        match s.value:
            case Binary(Op.ADD | Op.MUL as op, Load() as old, rest) if is_same_place(old, s):
                return f"{place} {op.value}= {self.expr(rest)}{tail}"
        return f"{place} = {self.expr(s.value)}{tail}"

    def _alloc(self, b: Buffer) -> str:
        strides = f", strides={list(b.strides)}" if b.strides else ""
        swizzle = f", swizzle={list(b.swizzle)}" if b.swizzle else ""
        return f"{self.name(b.name)} = {b.scope.value}({list(b.shape)}, {b.dtype}{strides}{swizzle})"

    # -- functions -------------------------------------------------------------------------------------------
    def function(self, f: PrimFunc) -> list[str]:
        params = ", ".join(f"{self.name(b.name)}: {self.buffer_type(b)}" for b in f.params)
        notes = [f"{key}={value!r}" for key, value in f.attrs]
        if f.launch is not None:
            launch = f.launch
            notes.insert(0, f"grid={launch.grid} block={launch.block} shared={launch.shared_bytes} B")
        lines = [f"def {f.name}({params}):", *(f"  # {note}" for note in notes)]
        return [*lines, *_indented(self.stmt(f.body))]

    def program(self, p: Program) -> list[str]:
        args = [f"  {self.name(b.name)}: {self.buffer_type(b)}  # {role.value}" for b, role in p.args]
        lines = ["program(", *args, ")"]
        for title, functions in (("prepare", p.prepare), ("run", p.run)):
            for f in functions:
                lines += ["", f"# {title}", *self.function(f)]
        return lines


def is_same_place(old: Load, s: Store) -> bool:
    """Whether the load reads exactly the elements that the store writes."""
    return old.buffer is s.buffer and old.indices == s.indices and old.mask is s.mask


def number_text(c: Const) -> str:
    """The fewest digits that give the constant back in its own precision."""
    if not c.type.is_float:
        return str(c.value)
    value = float(c.value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if c.type.kind == "float" and c.type.bits < 64:
        with np.errstate(all="ignore"):
            short = c.type.numpy.type(value)
        if float(short) == value:
            text = np.format_float_positional(short, unique=True, trim="0")
            return text if len(text) < 20 else np.format_float_scientific(short, unique=True, trim="0")
    return repr(value)


def _indented(lines: Iterable[str]) -> list[str]:
    return ["  " + line for line in lines]
