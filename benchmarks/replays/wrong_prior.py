"""A prior with wrong constants: each is halved or doubled at random. It shows how good a search is with such
a prior."""

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
    """A list of random factors, each 1/2 or 2."""
    return [float(f) for f in np.random.default_rng(seed).choice((0.5, 2.0), count)]


def wrong_rates(rates: Rates, seed: int) -> Rates:
    """The rates with the peak, the bandwidth of every cache level, and that of memory each multiplied by its
    own factor. All other rates are unknown."""
    peak, memory, *levels = factors(2 + len(rates.bandwidths), seed)
    found = tuple(b * f for b, f in zip(rates.bandwidths, levels, strict=True))
    return Rates(rates.flops * peak, found, rates.memory_bandwidth * memory, multiplies=rates.multiplies)


@contextmanager
def wrong_constants(seed: int) -> Iterator[None]:
    """Inside the block, the prior's constants are wrong for every processor. The constants of schedules stay
    right."""
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
