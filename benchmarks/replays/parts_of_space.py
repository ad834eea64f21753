"""A part of a search's space: only what the default's structure can be tiled to, or only structures."""

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
    """The default's sketch alone: its holes are all there is to choose."""
    return sketches[:1]


def structures(sketches: Sketches) -> Sketches:
    """Every sketch as its rules fill it without measuring: which one is all there is to choose."""
    return tuple(replace(s, holes=tuple(replace(h, options=(h.default,)) for h in s.holes)) for s in sketches)


PARTS: Mapping[str, Callable[[Sketches], Sketches]] = {"tiles": tiles, "structure": structures}


@contextmanager
def only(part: str) -> Iterator[None]:
    """Inside the block, searches have this part of their spaces; "" leaves them whole."""
    whole = loop.generate

    def of_part(dag: ComputeDAG, target: Target) -> Sketches:
        return PARTS[part](generate(dag, target))

    loop.generate = of_part if part else whole
    try:
        yield
    finally:
        loop.generate = whole
