"""Parts of blocks beyond an extent: lanes are computed without blends, and whole tiles are not computed."""

from __future__ import annotations

from comparison import check

from autotensor import te
from autotensor.ir.expr import Cmp, Compare, Const, Load
from autotensor.ir.func import Scope
from autotensor.ir.node import children
from autotensor.ir.stmt import For, If, Stmt, Store
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.schedule import Schedule, create_schedule


def tiled(m: int, n: int, k: int, rows: int, block: int, lanes: int, copied: bool = False) -> Schedule:
    """C = A @ B in register tiles of `rows` rows and one vector, blocks of `block` tiles of rows."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute((m, n), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="C")
    s = create_schedule(c)
    acc = s.cache_write(c, "local")
    yo, ym, yi = s[c].split("y", factors=(block, rows))
    xo, xi = s[c].split("x", factor=lanes)
    s[c].reorder(yo, xo, ym, yi, xi)
    s[c].unroll(yi)
    s[c].vectorize(xi)
    acc.compute_at(s[c], ym)
    if copied:
        s.cache_read(a, "local", [acc]).compute_at(s[c], yo)
        near = s.cache_read(b, "local", [acc])
        near.compute_at(s[c], xo)
        near.split("i1", factor=lanes)
        near.vectorize("i1.1")
    ao, ai = acc.split("x", factor=lanes)
    acc.reorder("k", "y", ao, ai)
    acc.unroll("y")
    acc.unroll(ao)
    acc.vectorize(ai)
    return s


def test_lanes_beyond_the_box_are_not_blended() -> None:
    s = tiled(3, 5, 7, rows=3, block=1, lanes=8)
    body = lower(s.state).run[0].body
    sums = [x for x in collect(body, Store) if x.buffer.scope is Scope.REGISTER]
    assert sums
    assert all(x.mask is None for x in sums)
    assert any(x.mask is not None for x in collect(body, Load) if x.buffer.name == "B")
    check(s.state.dag, s.trace)


def updates(s: Stmt, name: str) -> int:
    """How often stores to a buffer run, in a program whose only conditions cut one loop around them."""
    match s:
        case For(var, _, Const(extent), _, If(Compare(Cmp.LE, v, Const(last)), then, otherwise)) if v is var:
            first = int(last) + 1
            rest = 0 if otherwise is None else (int(extent) - first) * updates(otherwise, name)
            return first * updates(then, name) + rest
        case For(_, _, Const(extent), _, body):
            return int(extent) * updates(body, name)
        case Store(buffer):
            return int(buffer.name == name)
        case _:
            return sum(updates(c, name) for c in children(s) if isinstance(c, Stmt))


def test_tiles_beyond_the_domain_are_not_computed() -> None:
    """10 rows in blocks of 4 tiles of 2: one tile of the second block is needed, and copies guard none."""
    s = tiled(10, 8, 6, rows=2, block=4, lanes=4, copied=True)
    body = lower(s.state).run[0].body
    tiles, columns = 5, 2
    assert updates(body, "C.local") == tiles * columns * 2 * (6 + 1)  # rows, steps and the initialisation
    check(s.state.dag, s.trace)
