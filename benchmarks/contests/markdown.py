"""Pages of results: paragraphs, and tables of cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def paragraphs(*texts: str) -> Iterator[str]:
    """Headings or paragraphs, each followed by an empty line."""
    for text in texts:
        yield text
        yield ""


def grid(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table, followed by an empty line.

    >>> list(grid(("", "ms"), [("default", 12), ("tuned", 9)]))
    ['| | ms |', '|---|---|', '| default | 12 |', '| tuned | 9 |', '']
    """
    yield _line(heads)
    yield "|" + "---|" * len(heads)
    yield from map(_line, rows)
    yield ""


def _line(cells: Sequence[object]) -> str:
    return "".join(["|", *(f" {c} |" if str(c) else " |" for c in cells)])
