"""One walk over the table of scalar semantics: every operation, every type, every special element or pair of
them, by code for scalars, for vectors with their tails, the interpreter and OpenCL. None may differ from what
NumPy and mpmath say.

By default some types are walked; `-m slow` walks all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import pytest
from machines import Results, compute
from operations import Operation, allowed, operations
from special_numbers import TYPES

SAMPLE = ("int32", "uint8", "float32")
TOGETHER = 12  # operations in one program
LEAST_PAIRS = 100_000  # of operation and element, on each machine


def batches(types: tuple[str, ...], name: str) -> Iterator[list[Operation]]:
    """Operations (of one name, if there is one) that read the same types, some at a time."""
    ordered = sorted((o for o in operations(types) if name in ("", o.name)), key=lambda o: o.types)
    for _, group in groupby(ordered, key=lambda o: o.types):
        same = list(group)
        yield from (same[k : k + TOGETHER] for k in range(0, len(same), TOGETHER))


def differences(machine: str, batch: Sequence[Operation], results: Results) -> list[str]:
    """A line for each operation that is wrong somewhere, with the first element."""
    lines = []
    for o, (got, operands) in zip(batch, results, strict=True):
        wrong = o.wrong(got, operands, allowed(o, machine))
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            values = ", ".join(repr(a[k]) for a in operands)
            lines.append(
                f"{machine}: {o} at {values} gives {got[k]!r}; {int(wrong.sum())} of {got.size} wrong"
            )
    return lines


def walk(machine: str, types: tuple[str, ...], name: str = "") -> tuple[int, list[str]]:
    """How many pairs of operation and element were compared, and what differs."""
    count, lines = 0, []
    for batch in batches(types, name):
        results = compute(machine, batch)
        count += sum(got.size for got, _ in results)
        lines += differences(machine, batch, results)
    return count, lines


@pytest.mark.parametrize("machine", ["scalar", "vector", "interpreter"])
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_table(machine: str, name: str) -> None:
    _, wrong = walk(machine, (name,))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "machine",
    ["scalar", "vector", "interpreter", pytest.param("opencl", marks=pytest.mark.opencl)],
)
def test_the_whole_table(machine: str) -> None:
    count, wrong = walk(machine, TYPES)
    assert not wrong, "\n".join(wrong)
    assert count >= LEAST_PAIRS
