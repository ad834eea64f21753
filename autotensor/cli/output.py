"""What people read: tables and JSON. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import Any

GAP = "  "
LEAST_TEXT = 9  # characters of a text that is cut


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their heads.

    On a narrow terminal the widest text is cut; numbers never are, and elsewhere nothing is.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1 << 20
    for line in layout(heads, rows, width):
        print(line)


def layout(heads: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """The lines of a table, at most `width` wide if cutting its widest text can do that.

    >>> print("\\n".join(layout(("what", "us"), [("convolution", 12), ("dense", 3)], 13)))
    what       us
    ─────────  ──
    convolut…  12
    dense       3
    """
    body = [["" if c is None else str(c) for c in row] for row in rows]
    cells = [list(heads), *body]
    widths = [max(len(row[n]) for row in cells) for n in range(len(heads))]
    text = {n for n in range(len(heads)) if any(any(map(str.isalpha, row[n])) for row in body)}
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    if excess > 0 and text:
        widest = max(text, key=lambda n: widths[n])
        widths[widest] = max(LEAST_TEXT, widths[widest] - excess)
    lines = [_line(row, widths, text) for row in cells]
    lines.insert(1, GAP.join("─" * w for w in widths))
    return lines


def _line(row: Sequence[str], widths: Sequence[int], text: Collection[int]) -> str:
    cut = (c if len(c) <= w else c[: w - 1] + "…" for c, w in zip(row, widths, strict=True))
    padded = (
        c.ljust(w) if n in text else c.rjust(w) for n, (c, w) in enumerate(zip(cut, widths, strict=True))
    )
    return GAP.join(padded).rstrip()


def say(text: str = "") -> None:
    """A line of the result."""
    print(text, flush=True)


def tell(text: str) -> None:
    """A line beside the result: progress, hints, warnings."""
    print(text, file=sys.stderr, flush=True)


def put_json(document: Any) -> None:
    print(json.dumps(document, indent=1, ensure_ascii=False, default=str))
