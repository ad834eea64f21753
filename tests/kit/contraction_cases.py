"""Contractions as te computations: for a given equation, and random ones."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import prod
from typing import Any

from autotensor import te
from autotensor.te.dag import ComputeDAG

LETTERS = "abcdef"
MOST_POINTS = 40_000  # points of the sum as written; the interpreter visits all of them


def contraction(
    equation: str, sizes: Mapping[str, int], dtype: str = "float32", scale: float | None = None
) -> ComputeDAG:
    """The sum of products of an equation as one stage: `contraction("ik,kl,lj->ij", …)`, times `scale`."""
    terms, result = equation.split("->")
    inputs = [
        te.placeholder(tuple(sizes[c] for c in t), dtype, name=f"x{n}")
        for n, t in enumerate(terms.split(","))
    ]
    summed = [c for c in dict.fromkeys(terms.replace(",", "")) if c not in result]
    over = {c: te.reduce_axis(sizes[c], name=c) for c in summed}

    def body(*point: Any) -> Any:
        at = {**dict(zip(result, point, strict=True)), **over}
        loads = [x[tuple(at[c] for c in t)] for x, t in zip(inputs, terms.split(","), strict=True)]
        product = prod(loads[1:], start=loads[0])
        return te.sum(product if scale is None else product * scale, axis=[*over.values()])

    names = ", ".join(result)
    of = eval(f"lambda {names}: body({names})", {"body": body})  # te names axes by parameters
    return ComputeDAG.of([*inputs, te.compute(tuple(sizes[c] for c in result), of, name="y")])


def drawn_contraction(rng: random.Random) -> ComputeDAG:
    """A sum of products of two to four factors of up to three axes each, of which some are summed over."""
    while True:
        letters = LETTERS[: rng.randint(3, 6)]
        terms = ["".join(rng.sample(letters, rng.randint(1, 3))) for _ in range(rng.randint(2, 4))]
        used = sorted(set("".join(terms)))
        result = rng.sample(used, rng.randint(0, min(3, len(used) - 1)))
        sizes = {c: rng.choice((1, 2, 3, 5, 8, 16, 17)) for c in used}
        if prod(sizes.values()) <= MOST_POINTS:
            scale = rng.choice((None, None, 2.0))
            return contraction(f"{','.join(terms)}->{''.join(result)}", sizes, scale=scale)
