"""Extents on the command line: numbers and ranges. A compiled model takes every number of a range.

8      1..8      8..512/8 (in steps of 8)      n:1..8 (with a name, which other inputs may use, too)
"""

from __future__ import annotations

import re
from typing import Any

from autotensor.base.errors import InputError

EXTENT = r"(?:(?:\w+:)?\d+\.\.\d+(?:/\d+)?|\d+)"  # as part of a pattern
_RANGE = re.compile(r"(?:(?P<name>\w+):)?(?P<least>\d+)\.\.(?P<most>\d+)(?:/(?P<step>\d+))?")


def parsed_extent(text: str, name: str, ranges: dict[str, str]) -> Any:
    """A number, or the te.var of a range; a range without a name gets `name`.

    ranges: the text of each name's range so far. Raises InputError for two ranges of one name, and for a
    range that holds nothing.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        return int(text)
    from autotensor.te.symbols import var

    name, said = match["name"] or name, text.rpartition(":")[2]
    if ranges.setdefault(name, said) != said:
        raise InputError(f"--shape: {name} has two ranges, {ranges[name]} and {said}.", fix="Give one range.")
    least, most, step = int(match["least"]), int(match["most"]), int(match["step"] or 1)
    if step < 1 or not 1 <= least <= most or least % step or most % step:
        raise InputError(
            f"{said!r} is not a range: it goes from a smaller extent, at least 1, to a greater one"
            f"{f', both multiples of {step}' if step > 1 else ''}.",
            fix="Write LEAST..MOST, as 1..8, or LEAST..MOST/STEP, as 8..512/8.",
        )
    return var(name, (least, most), step)
