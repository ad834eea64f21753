"""Loops of `sort`: the rank of each element of a line in the sorted order.

all            merge sort, bottom up, of keys and positions; rank[position[n]] = n
the first m    an ordered list of the m first elements so far; most elements come after the list's last
               element, so that they cost only one comparison. At the end rank[list[n]] = n; elements that are
               not in the list have the rank N, which is the number of elements.

Source: Knuth, The Art of Computer Programming 3, 5.2.4 (merging) and 5.2.1 (straight insertion).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotensor.base.dtype import DType, int64
from autotensor.ir.expr import Expr, Load, Var, all_of, any_of, cast, const, minimum, select
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import Alloc, For, ForKind, If, Let, Stmt, Store, seq
from autotensor.schedule.state import Inlined, Stage, State
from autotensor.te.terms import Ranking, places_told, ranking

# The greatest length of the list. An element that enters the list is moved past up to this many elements. If
# each element comes before all earlier ones in the order, every element enters.
FEW = 64

Key = Callable[[Expr, Expr], Expr]  # the key by which elements are ordered, at a position
Rank = Callable[[Expr, Expr], Stmt]  # stores the rank of a position
Item = tuple[Expr, Expr]  # a key and its position


def ranks_needed(state: State, stage: Stage) -> int:
    """The smallest rank r such that no reader of the stage distinguishes r from greater ranks. If there is
    none, the number of elements."""
    (buffer,) = stage.op.buffers
    extent = stage.op.reduce_axes[0].extent
    readers = [s for s in state.stages if buffer in s.op.reads()]
    told = [None if isinstance(s.place, Inlined) else places_told(s.op, buffer) for s in readers]
    if state.is_output(stage) or not told or None in told:
        return extent
    return min(extent, max(t for t in told if t is not None))


def ranks(stage: Stage, needed: int, key: Key, rank: Rank) -> Stmt:
    """Stores the ranks of all elements along one line. Only ranks below `needed` must be correct."""
    order = ranking(stage.op)
    assert order is not None
    extent = stage.op.reduce_axes[0].extent
    kind = stage.op.buffers[0].dtype
    if needed <= FEW and needed < extent:
        return _first(stage.name, order, extent, needed, kind, key, rank)
    return _all(stage.name, order, extent, kind, key, rank)


@dataclass(frozen=True, slots=True)
class _List:
    """Two arrays: keys, and the positions of these keys."""

    keys: Buffer
    places: Buffer

    @staticmethod
    def of(name: str, size: int, dtype: DType) -> _List:
        def buffer(what: str, t: DType) -> Buffer:
            return Buffer(f"{name}.{what}", (size,), t, Scope.LOCAL)

        return _List(buffer("keys", dtype), buffer("places", int64))

    def at(self, n: Expr) -> Item:
        return Load(self.keys, (n,)), Load(self.places, (n,))

    def put(self, n: Expr, item: Item) -> Stmt:
        return seq(Store(self.keys, (n,), item[0]), Store(self.places, (n,), item[1]))

    def around(self, body: Stmt) -> Stmt:
        return Alloc(self.keys, Alloc(self.places, body))


def _loop(name: str, begin: Expr, extent: Expr, body: Callable[[Var], Stmt]) -> Stmt:
    var = Var(name)
    return For(var, begin, extent, ForKind.SERIAL, body(var))


def _lets(body: Callable[..., Stmt], **values: Expr) -> Stmt:
    """The body inside variables that hold the values."""
    made = {name: Var(name, e.dtype) for name, e in values.items()}
    out = body(*made.values())
    for name, e in reversed(values.items()):
        out = Let(made[name], e, out)
    return out


def _first(stage: str, order: Ranking, extent: int, needed: int, kind: DType, key: Key, rank: Rank) -> Stmt:
    best = _List.of(f"{stage}.best", needed, order.key.dtype)
    last = const(needed - 1)

    def risen(end: Expr) -> Stmt:
        """Moves the item at `end` up to its place."""

        def step(n: Var) -> Stmt:
            here = end - n

            def swapped(mine: Var, at: Var, other: Var, place: Var) -> Stmt:
                up = seq(best.put(here - 1, (mine, at)), best.put(here, (other, place)))
                return If(order.before((mine, at), (other, place)), up)

            (mine, at), (other, place) = best.at(here), best.at(here - 1)
            return _lets(swapped, **_named(stage, mine=mine, at=at, other=other, place=place))

        return _loop(f"{stage}:up", const(0), end, step)

    def begun(k: Var) -> Stmt:
        return seq(best.put(k, (key(order.key, k), k)), risen(k))

    def looked_at(k: Var) -> Stmt:
        def entered(new: Var) -> Stmt:
            into = seq(best.put(last, (new, k)), risen(last))
            return If(order.before((new, k), best.at(last)), into)

        return _lets(entered, **_named(stage, new=key(order.key, k)))

    count, rest = const(needed), const(extent - needed)
    return best.around(
        seq(
            _loop(f"{stage}:all", const(0), const(extent), lambda k: rank(k, const(extent, kind))),
            _loop(f"{stage}:begin", const(0), count, begun),
            _loop(f"{stage}:rest", count, rest, looked_at),
            _loop(f"{stage}:end", const(0), count, lambda n: rank(best.at(n)[1], cast(kind, n))),
        )
    )


def _all(stage: str, order: Ranking, extent: int, kind: DType, key: Key, rank: Rank) -> Stmt:
    lists = [_List.of(f"{stage}.{n}", extent, order.key.dtype) for n in ("from", "to")]
    begin = _loop(f"{stage}:all", const(0), const(extent), lambda k: lists[0].put(k, (key(order.key, k), k)))
    steps = [begin]
    width, turn = 1, 0
    while width < extent:
        steps.append(_merged(f"{stage}:{turn}", order, extent, width, lists[turn % 2], lists[1 - turn % 2]))
        width, turn = 2 * width, turn + 1
    done = lists[turn % 2]
    steps.append(_loop(f"{stage}:end", const(0), const(extent), lambda n: rank(done.at(n)[1], cast(kind, n))))
    body = seq(*steps)
    for one in lists:
        body = one.around(body)
    return body


def _merged(name: str, order: Ranking, extent: int, width: int, source: _List, result: _List) -> Stmt:
    """Merges every two runs of `width` elements into one."""
    heads = Buffer(f"{name}.heads", (2,), int64, Scope.LOCAL)
    zero, one, most = const(0), const(1), const(extent - 1)

    def runs(pair: Var) -> Stmt:
        left = pair * (2 * width)
        middle, end = minimum(left + width, extent), minimum(left + 2 * width, extent)

        def taken(n: Var) -> Stmt:
            def chosen(a: Var, b: Var) -> Stmt:
                (ka, pa), (kb, pb) = source.at(minimum(a, most)), source.at(minimum(b, most))

                def stored(ka: Var, pa: Var, kb: Var, pb: Var) -> Stmt:
                    right = all_of(b < end, any_of(a >= middle, order.before((kb, pb), (ka, pa))))

                    def moved(right: Var) -> Stmt:
                        return seq(
                            result.put(n, (select(right, kb, ka), select(right, pb, pa))),
                            Store(heads, (zero,), a + select(right, zero, one)),
                            Store(heads, (one,), b + select(right, one, zero)),
                        )

                    return _lets(moved, **_named(name, right=right))

                return _lets(stored, **_named(name, ka=ka, pa=pa, kb=kb, pb=pb))

            return _lets(chosen, **_named(name, a=Load(heads, (zero,)), b=Load(heads, (one,))))

        begin = seq(Store(heads, (zero,), left), Store(heads, (one,), middle))
        return Alloc(heads, seq(begin, _loop(f"{name}:n", left, end - left, taken)))

    return _loop(f"{name}:pair", zero, const(-(-extent // (2 * width))), runs)


def _named(stage: str, **values: Expr) -> dict[str, Expr]:
    """The values under names that are unique in the function."""
    return {f"{stage}:{name}": e for name, e in values.items()}
