"""What people read: tables, units, JSON. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1) -> None:
    """Print rows under their heads; the first `left` columns are text, the others numbers.

    On a terminal long rows are cut at its width; elsewhere nothing is ever cut.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 100_000, highlight=False, markup=False)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for n, head in enumerate(heads):
        made.add_column(head, justify="left" if n < left or n == len(heads) - 1 else "right", no_wrap=True)
    for row in rows:
        made.add_row(*("" if cell is None else str(cell) for cell in row))
    with console.capture() as captured:
        console.print(made)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


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
    ('512 B', '3.1 MB')
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
