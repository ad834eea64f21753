"""Numbers at which graphs are sampled, and the expressions for the numbers in these graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotensor import te
from autotensor.graph.symbols.samples import Samples
from autotensor.te.symbols import number, symbols_of

b, n = te.var("b", range=(1, 8)), te.var("n", range=(1, 512))
h = te.var("h", range=(32, 640), multiple_of=32)


@pytest.mark.parametrize(
    "follows",
    [
        lambda b, n, h: 7,
        lambda b, n, h: 64 * b,
        lambda b, n, h: b * n,
        lambda b, n, h: 12 * b * n * n,
        lambda b, n, h: n - 2,
        lambda b, n, h: b * n + 3 * n - 1,
        lambda b, n, h: 2 * (b + 3) * (n + 1),
        lambda b, n, h: h // 16 + 1,  # its steps are of 32
    ],
)
def test_a_sum_of_terms_is_found(follows: Callable[..., int]) -> None:
    samples = Samples(symbols_of(b, n, h))
    found = samples.expression([follows(*_extents(c)) for c in samples.choices])
    assert found is not None
    for choice in ((1, 1, 32), (3, 100, 64), (8, 512, 640)):
        at = dict(zip(samples.symbols, (choice[0], choice[1], choice[2] // 32), strict=True))
        assert number(found, at) == follows(*choice)


@pytest.mark.parametrize(
    "follows",
    [
        lambda n: n // 2,
        lambda n: (n + 1) // 2,
        lambda n: (n + 7) // 8 * 8,
        lambda n: min(n, 509),
        lambda n: max(n, 510),
        lambda n: 2 * n if n > 505 else n,
        lambda n: n**3,
    ],
)
def test_what_is_no_such_sum_is_not_taken_for_one(follows: Callable[[int], int]) -> None:
    samples = Samples(symbols_of(n))
    assert samples.expression([follows(*c.values()) for c in samples.choices]) is None


def test_choices_begin_with_the_greatest_and_meet_no_extent_twice() -> None:
    samples = Samples(symbols_of(b, n))
    assert tuple(samples.choices[0].values()) == (8, 512)
    for symbol in samples.symbols:
        values = [c[symbol] for c in samples.choices]
        assert len(set(values)) == len(values) == 5


def test_a_narrow_range_is_looked_at_beyond_its_end() -> None:
    samples = Samples(symbols_of(te.var("n", range=(1, 2))))
    assert [*(v for c in samples.choices for v in c.values())] == [2, 3, 4, 5]


def _extents(choice: object) -> tuple[int, int, int]:
    found = [*choice.values()]  # type: ignore[attr-defined]
    return found[0], found[1], found[2] * 32
