"""What people read: tables, units, JSON. Results go to standard output, everything else to standard error."""

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


def micros(seconds: float | None) -> str:
    """
    >>> micros(0.0123456), micros(1.5e-6), micros(None)
    ('12,346', '1.50', '-')
    """
    if seconds is None:
        return "-"
    us = seconds * 1e6
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}" if us >= 10 else f"{us:.2f}"


def millis(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds * 1e3:,.0f} ms"


def gflops(flops: float, seconds: float | None) -> str:
    """Rate in GFLOP/s; a dash where there is nothing to count."""
    if not seconds or not flops:
        return "-"
    rate = flops / seconds / 1e9
    return f"{rate:.1f}" if rate >= 10 else f"{rate:.2f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.1f} %"


def size(count: float) -> str:
    """
    >>> size(512), size(3 << 20)
    ('512 B', '3.15 MB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 100 * scale else f"{count / scale:.0f} {unit}"
    return f"{count:.0f} B"


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3725)
    ('1:15', '1:02:05')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
