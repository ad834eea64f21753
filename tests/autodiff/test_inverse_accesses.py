"""Inverted accesses: compared with results by hand, and with an enumeration of all iterations."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from autotensor.autodiff.inverse_accesses import Inverse, invert
from autotensor.ir.expr import Const, Expr, Var, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify

H, K, C, V = (Var(n) for n in ("h", "k", "c", "v"))
B0, B1 = Var("b0"), Var("b1")


def text(inverse: Inverse, v: Var) -> str:
    return str(simplify(inverse.values[v]))


def test_a_plain_access_is_solved_whole() -> None:
    found = invert([H, C], (5, 3), [B0, B1], {H: 5, C: 3})
    assert (text(found, H), text(found, C)) == ("b0", "b1")
    assert not found.remaining
    assert not found.guards


def test_a_window_leaves_its_short_axis_open() -> None:
    found = invert([H * 2 + K], (11,), [B0], {H: 5, K: 3})
    assert text(found, H) == "(b0 - k) // 2"
    assert found.remaining == {K: 3}
    assert len(found.guards) == 3  # divisible, not below 0, below 5


def test_windows_that_do_not_overlap_are_solved_whole() -> None:
    found = invert([H * 2 + K], (11,), [B0], {H: 5, K: 2})
    assert (text(found, H), text(found, K)) == ("b0 // 2", "b0 % 2")
    assert not found.remaining
    assert [str(g) for g in found.guards] == ["b0 // 2 < 5"]  # the eleventh is in no window


def test_guards_that_always_hold_are_left_out() -> None:
    found = invert([H + 1], (6,), [B0], {H: 5})
    assert [str(g) for g in found.guards] == ["b0 - 1 >= 0"]


def test_a_diagonal_is_a_condition() -> None:
    found = invert([H, H], (4, 4), [B0, B1], {H: 4})
    assert text(found, H) in ("b0", "b1")
    assert len(found.guards) == 1


def test_quotient_and_remainder_join() -> None:
    found = invert([V // 4, V % 4], (3, 4), [B0, B1], {V: 12})
    assert text(found, V) == "b1 + b0 * 4"
    assert not found.remaining
    assert not found.guards


def test_a_quotient_alone_leaves_its_remainder_open() -> None:
    found = invert([V // 4], (3,), [B0], {V: 10})
    assert list(found.remaining.values()) == [4]
    assert len(found.guards) == 1  # the last group is not full


def test_axes_that_are_not_read_remain() -> None:
    found = invert([const(0)], (1,), [B0], {H: 5})
    assert found.remaining == {H: 5}
    assert not found.guards


INDICES = (
    lambda h, k, v: [h + k],
    lambda h, k, v: [h * 3 + k * 2],
    lambda h, k, v: [6 - h, k],
    lambda h, k, v: [h, h + k],
    lambda h, k, v: [v // 2 + h, v % 2],
    lambda h, k, v: [(v // 2) % 3, h * 2 + k],
    lambda h, k, v: [v % 6, v // 6 + k],
    lambda h, k, v: [h * 4 + v // 3, k],
    lambda h, k, v: [(h + v) // 2, k],
    lambda h, k, v: [const(2), h * k],
    lambda h, k, v: [h * 4 + k],
    lambda h, k, v: [h * 28 + k * 7 + v + 2],
    lambda h, k, v: [v * 12 + k * 3, h],
    lambda h, k, v: [h * 4 + k, v + h],
)


@pytest.mark.parametrize("number", range(len(INDICES)))
def test_every_iteration_is_found_once_at_the_element_it_reads(number: int) -> None:
    rng = random.Random(number)
    for _ in range(3):
        axes = {H: rng.randint(1, 5), K: rng.randint(1, 4), V: rng.randint(1, 7)}
        indices: list[Expr] = INDICES[number](H, K, V)
        points = list(itertools.product(*(range(n) for n in axes.values())))
        reads = {p: tuple(value(i, dict(zip(axes, p, strict=True))) for i in indices) for p in points}
        shape = tuple(1 + max(r[d] for r in reads.values()) for d in range(len(indices)))
        if min(min(r) for r in reads.values()) < 0:
            continue
        place = [B0, B1][: len(shape)]
        inverse = invert(indices, shape, place, axes)
        for element in itertools.product(*(range(n) for n in shape)):
            wanted = sorted(p for p, r in reads.items() if r == element)
            assert found_at(inverse, dict(zip(place, element, strict=True)), tuple(axes)) == wanted


def found_at(inverse: Inverse, at: dict[Var, int], axes: Sequence[Var]) -> list[tuple[int, ...]]:
    """Iterations that the inverse names for an element."""
    out = []
    for rest in itertools.product(*(range(n) for n in inverse.remaining.values())):
        known = at | dict(zip(inverse.remaining, rest, strict=True))
        if all(value(g, known) for g in inverse.guards):
            out.append(tuple(value(inverse.values[v], known) for v in axes))
    return sorted(out)


def value(e: Expr, known: dict[Var, int]) -> int:
    found = simplify(substitute(e, {v: const(n) for v, n in known.items()}))
    assert isinstance(found, Const), found
    return int(found.value)
