"""No garbage is collected inside the block, and afterwards the setting is as before."""

from __future__ import annotations

import gc
import weakref

import pytest

from autotensor.base.garbage import uncollected


class Cycle:
    def __init__(self) -> None:
        self.me = self


def test_cycles_stay_until_the_end() -> None:
    @uncollected()
    def living() -> tuple[weakref.ref[Cycle], bool]:
        first = weakref.ref(Cycle())
        many = [Cycle() for _ in range(10_000)]
        return first, len(many) == 10_000 and first() is not None

    first, lived = living()
    assert lived
    gc.collect()
    assert first() is None


def test_it_ends_with_an_error_too_and_within_another() -> None:
    with pytest.raises(ValueError, match="inside"), uncollected():
        raise ValueError("inside")
    assert gc.isenabled()
    with uncollected():
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
