"""Traces as a sketch and decisions. The part that a thousand candidates share is stored once.

    sketch   …["SplitStep","t0","i",[{"hole":"t0/tile","index":1}]]…
    decisions   {"t0/tile": [1, 13]}
    trace    …["SplitStep","t0","i",[13]]…

If sketch and decisions give the same bytes as a trace, the trace is not stored in its row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache

from tuning_db.values import Json

HOLE = re.compile(r'\{"hole":("(?:[^"\\]|\\.)*"),"index":(\d+)\}')


def fill(sketch: str, decisions: Mapping[str, Json]) -> str:
    """The trace of a candidate. Raises LookupError or TypeError when a hole has no decision.

    >>> fill('["Split",[{"hole":"tile","index":1},4]]', {"tile": (2, 8)})
    '["Split",[8,4]]'
    """
    first, holes = _parts(sketch)
    return first + "".join([_text(decisions[name][index]) + text for name, index, text in holes])


def reproduces(sketch: str, decisions: Mapping[str, Json], trace: str) -> bool:
    """Whether sketch and decisions give this trace, so that it need not be stored."""
    try:
        return fill(sketch, decisions) == trace
    except (LookupError, ValueError, TypeError):
        return False


def _text(value: Json) -> str:
    return str(value) if type(value) is int else json.dumps(value)


@lru_cache(maxsize=4096)
def _parts(sketch: str) -> tuple[str, tuple[tuple[str, int, str], ...]]:
    """The text before the first hole, and every hole with the text that follows it."""
    first, *rest = HOLE.split(sketch)
    holes = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return first, tuple((json.loads(name), int(index), text) for name, index, text in holes)
