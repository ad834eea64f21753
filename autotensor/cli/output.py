"""What people read: tables and JSON. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

GAP = "  "
LEAST_TEXT = 9  # characters of a text that is cut
NUMBER = re.compile(r"[\d.,]+ [A-Za-z]{1,2}")  # with a unit
PAGE = 100  # columns of running text where there is no terminal


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their heads.

    On a narrow terminal the widest text is cut; numbers never are, and elsewhere nothing is.
    """
    for line in layout(heads, rows, columns(1 << 20)):
        print(line)


def columns(otherwise: int = PAGE) -> int:
    """Columns of the terminal that standard output is; `otherwise` where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else otherwise


def cut(line: str, width: int) -> str:
    """The line, at most `width` long.

    >>> cut("convolution", 8)
    'convolu…'
    """
    return line if len(line) <= width else line[: width - 1] + "…"


def paragraph(text: str, indent: str = "") -> None:
    """Print running text in lines that fit; what goes on is indented."""
    for line in textwrap.wrap(text, columns(), subsequent_indent=indent, break_long_words=False):
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
    text = {n for n in range(len(heads)) if any(_is_text(row[n]) for row in body)}
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    if excess > 0 and text:
        widest = max(text, key=lambda n: widths[n])
        widths[widest] = max(LEAST_TEXT, widths[widest] - excess)
    lines = [_line(row, widths, text) for row in cells]
    lines.insert(1, GAP.join("─" * w for w in widths))
    return lines


def _is_text(cell: str) -> bool:
    """Whether it has letters, and not as the unit of a number only: `3.2 MB`."""
    return any(map(str.isalpha, cell)) and not NUMBER.fullmatch(cell)


def _line(row: Sequence[str], widths: Sequence[int], text: Collection[int]) -> str:
    fitting = (cut(c, w) for c, w in zip(row, widths, strict=True))
    padded = (
        c.ljust(w) if n in text else c.rjust(w) for n, (c, w) in enumerate(zip(fitting, widths, strict=True))
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
