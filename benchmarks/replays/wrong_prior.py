"""A prior whose constants are wrong: each is halved or doubled at random. What is a search worth with it?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache

import numpy as np

from autotensor.base.target import Target
from schedules.cpu import Cpu, cpu_of
from schedules.prior import predict
from schedules.prior.rates import Rates

CONSTANTS = tuple(f.name for f in fields(Cpu) if f.name.startswith("prior_"))


def factors(count: int, seed: int) -> list[float]:
    """Halves and doubles."""
    return [float(f) for f in np.random.default_rng(seed).choice((0.5, 2.0), count)]


def wrong_rates(rates: Rates, seed: int) -> Rates:
    """Peak, every level's bandwidth and memory's, each by a factor of its own; nothing else is known."""
    peak, memory, *levels = factors(2 + len(rates.bandwidths), seed)
    found = tuple(b * f for b, f in zip(rates.bandwidths, levels, strict=True))
    return Rates(rates.flops * peak, found, rates.memory_bandwidth * memory, multiplies=rates.multiplies)


@contextmanager
def wrong_constants(seed: int) -> Iterator[None]:
    """Inside the block the prior's own constants of every processor are wrong; schedules keep theirs."""
    drawn = dict(zip(CONSTANTS, factors(len(CONSTANTS), seed), strict=True))

    @lru_cache(maxsize=64)
    def wrong(target: Target, multiplies: float | None = None) -> Cpu:
        cpu = cpu_of(target, multiplies)
        return replace(
            cpu, **{name: type(getattr(cpu, name))(getattr(cpu, name) * f) for name, f in drawn.items()}
        )

    right = predict.cpu_of
    predict.cpu_of = wrong  # type: ignore[assignment]
    try:
        yield
    finally:
        predict.cpu_of = right
