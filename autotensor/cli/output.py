"""Output for people and programs: tables and JSON. Results go to standard output, everything else to standard
error."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from autotensor.insight.text_width import columns, fold

GAP = "  "
LEAST_TEXT = 12  # least width, in characters, of a column of folded text
MOST_LINES = 5  # most lines of a folded cell; a table that needs more is printed row by row
NUMBER = re.compile(r"[\d.,]+ [A-Za-z]{1,2}")  # a number with a unit
GLUE = "\u00a0"  # a space at which no line is folded
# below tables with a column "us in use"
IN_USE = "us in use: the time of the kernel alone, from its last race with the default, or from the search."
NO_ROWS = "(none)"  # below the heads of a table without rows
PAGE = 100  # columns of running text where there is no terminal


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their heads.

    If the table is too wide for the terminal, texts are folded in their columns, or each row becomes a
    paragraph. No cell is left out. A table without rows says so.
    """
    for line in (*layout(heads, rows, columns(sys.stdout)), *(() if rows else (NO_ROWS,))):
        print(line)


def layout(heads: Sequence[str], rows: Sequence[Sequence[object]], width: int | None) -> list[str]:
    """The lines of a table, at most `width` columns wide; None: never folded.

    >>> print("\\n".join(layout(("what", "us"), [("convolution, dilated", 12), ("dense", 3)], 17)))
    what           us
    ─────────────  ──
    convolution,   12
    dilated
    dense           3
    >>> print("\\n".join(layout(("what", "us", "GFLOP/s"), [("convolution, dilated", 12, 8.5)], 24)))
    convolution, dilated
      us: 12, GFLOP/s: 8.5
    """
    body = [["" if c is None else str(c) for c in row] for row in rows]
    natural = [max(len(row[n]) for row in (heads, *body)) for n in range(len(heads))]
    texts = {n for n in range(len(heads)) if any(_is_text(row[n]) for row in body)}
    widths = natural
    if width is not None and _width(natural) > width:
        least = [_least(n in texts, heads[n], [row[n] for row in body]) for n in range(len(heads))]
        if _width(least) > width:
            return [line for row in body for line in _paragraph(heads, row, texts, width)]
        widths = _narrowed([w if n in texts else least[n] for n, w in enumerate(natural)], least, width)
    lines = [line for row in body for line in _lines(row, widths, texts)]
    return [*_lines(heads, widths, texts), GAP.join("─" * w for w in widths), *lines]


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _least(is_text: bool, head: str, cells: Sequence[str]) -> int:
    """The least width of a column: heads are folded at spaces, texts anywhere, numbers never."""
    longest = max(map(len, cells), default=0)
    texts = max(LEAST_TEXT, -(-longest // (MOST_LINES - 1)))  # lines end at spaces, so they are not full
    return max(min(longest, texts) if is_text else longest, *map(len, head.split()), 1)


def _narrowed(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Widths that fit: in each step the widest column above its least width becomes one narrower."""
    narrower = list(widths)
    for _ in range(_width(widths) - width):
        widest = max((n for n, w in enumerate(narrower) if w > least[n]), key=lambda n: narrower[n])
        narrower[widest] -= 1
    return narrower


def _paragraph(heads: Sequence[str], row: Sequence[str], texts: Collection[int], width: int) -> list[str]:
    """A row as a paragraph: a text in the first column is its title; other cells follow with their heads."""
    pairs = [f"{head}: {cell}" if head else cell for head, cell in zip(heads, row, strict=True) if cell]
    whole = [pair.replace(" ", GLUE) if len(pair) <= width - 4 else pair for pair in pairs]
    if 0 in texts and row[0]:
        return [*textwrap.wrap(row[0], width, subsequent_indent="    "), *_wrapped(whole[1:], width, "  ")]
    return _wrapped(whole, width, "")


def _wrapped(pairs: Sequence[str], width: int, indent: str) -> list[str]:
    lines = textwrap.wrap(", ".join(pairs), width, initial_indent=indent, subsequent_indent="  ")
    return [line.replace(GLUE, " ") for line in lines]


def _is_text(cell: str) -> bool:
    """Whether the cell has letters other than the unit of a number (`3.2 MB`)."""
    return any(map(str.isalpha, cell)) and not NUMBER.fullmatch(cell)


def _lines(row: Sequence[str], widths: Sequence[int], texts: Collection[int]) -> list[str]:
    """A row of a table: one line, or more where a cell is folded."""
    cells = [[c] if len(c) <= w else _Words(w).wrap(c) for c, w in zip(row, widths, strict=True)]
    lines = zip_longest(*cells, fillvalue="")
    return [GAP.join(_padded(line, widths, texts)).rstrip() for line in lines]


class _Words(textwrap.TextWrapper):
    """Folds text; a word that is wider than a line is divided after an underscore, if it has one.

    >>> _Words(12).wrap("global_avg_pool2d 7x7")
    ['global_avg_', 'pool2d 7x7']
    """

    def _split(self, text: str) -> list[str]:
        chunks: list[str] = super()._split(text)  # a hook of TextWrapper
        parts = (re.split(r"(?<=_)", c) if len(c) > self.width else [c] for c in chunks)
        return [part for whole in parts for part in whole if part]


def _padded(cells: Sequence[str], widths: Sequence[int], texts: Collection[int]) -> Iterator[str]:
    for n, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        yield cell.ljust(width) if n in texts else cell.rjust(width)


def say(text: str = "", hang: int = 2) -> None:
    """Print a line of the result, folded to the terminal; continuation lines are indented."""
    print(fold(text, columns(sys.stdout), hang), flush=True)


def paragraph(text: str) -> None:
    """Print running text of the result, folded even without a terminal."""
    print(fold(text, columns(sys.stdout) or PAGE))


def code(text: str) -> None:
    """Print a program, never folded, so that it can be copied."""
    print(text, flush=True)


def tell(text: str) -> None:
    """Print a line that is not part of the result: progress, a hint, a warning."""
    print(fold(text, columns(sys.stderr)), file=sys.stderr, flush=True)


def put_json(document: Any) -> None:
    print(json.dumps(document, indent=1, ensure_ascii=False, default=str))
