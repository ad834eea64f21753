"""Traces as a sketch and decisions: what is common to a thousand candidates is stored once.

    sketch   …["SplitStep","t0","i",[{"hole":"t0/tile","index":1}]]…
    decisions   {"t0/tile": [1, 13]}
    trace    …["SplitStep","t0","i",[13]]…

A trace is left out of its row when sketch and decisions give it byte for byte; otherwise it is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tuning_db.records import Json

HOLE = re.compile(r'\{"hole":("(?:[^"\\]|\\.)*"),"index":(\d+)\}')


def fill(sketch: str, decisions: Mapping[str, Json]) -> str:
    """The trace of a candidate. Raises LookupError or ValueError when a hole has no decision.

    >>> fill('["Split",[{"hole":"tile","index":1},4]]', {"tile": (2, 8)})
    '["Split",[8,4]]'
    """

    def chosen(found: re.Match[str]) -> str:
        return json.dumps(decisions[json.loads(found[1])][int(found[2])])

    return HOLE.sub(chosen, sketch)


def reproduces(sketch: str, decisions: Mapping[str, Json], trace: str) -> bool:
    """Whether the trace need not be stored."""
    try:
        return fill(sketch, decisions) == trace
    except (LookupError, ValueError, TypeError):
        return False
