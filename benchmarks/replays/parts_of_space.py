"""Restricts a search to a part of its space: only the tilings of the default's structure, or only the
structures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from autotensor.base.target import Target
from autotensor.schedule.sketch import Sketch
from autotensor.search import loop
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate

Sketches = tuple[Sketch, ...]


def tiles(sketches: Sketches) -> Sketches:
    """Only the default's sketch: the search can choose only its holes."""
    return sketches[:1]


def structures(sketches: Sketches) -> Sketches:
    """Every sketch with the values that its rules choose without measuring: the search can only choose a
    sketch."""
    return tuple(replace(s, holes=tuple(replace(h, options=(h.default,)) for h in s.holes)) for s in sketches)


PARTS: Mapping[str, Callable[[Sketches], Sketches]] = {"tiles": tiles, "structure": structures}


@contextmanager
def only(part: str) -> Iterator[None]:
    """Inside the block, searches have only this part of their spaces; "": the whole space."""
    whole = loop.generate

    def of_part(dag: ComputeDAG, target: Target) -> Sketches:
        return PARTS[part](generate(dag, target))

    loop.generate = of_part if part else whole
    try:
        yield
    finally:
        loop.generate = whole
