"""Rows of a stencil beside one another: what neighbours read in common is loaded once."""

from __future__ import annotations

from autotensor.base.target import Target
from autotensor.schedule.sketch import Hole
from schedules.cpu import cpu_of
from schedules.kit.tiles import nearest, singles

ROWS = (1, 2, 4)  # written out


def rows_hole(stage: str, extent: int, target: Target) -> Hole:
    """How many rows are written out, of so many."""
    options = tuple(n for n in ROWS if n <= extent)
    return Hole(f"{stage}/rows", singles(options), (nearest(options, cpu_of(target).stencil_rows),))
