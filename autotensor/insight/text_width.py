"""Text that fits into a terminal's columns: the number of columns, and the folding of long lines."""

from __future__ import annotations

import os
import textwrap
from typing import TextIO


def columns(stream: TextIO) -> int | None:
    """Columns to keep within: COLUMNS if set, else those of the terminal; None without a terminal."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # the stream claims to be a terminal but has no size
        return None


def fold(text: str, width: int | None, hang: int = 2) -> str:
    """The text, with line breaks at blanks where a line would be wider than `width`; None changes nothing.

    Continued lines are indented like the first line, and by `hang` more. A word is never broken, so paths and
    commands stay whole.

    >>> print(fold("Place      log: /home/me/log.db, 12 trials", 24, hang=11))
    Place      log:
               /home/me/log.db,
               12 trials
    """
    if width is None:
        return text
    return "\n".join(part for line in text.splitlines() for part in _folded(line, width, hang))


def _folded(line: str, width: int, hang: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * min(len(line) - len(line.lstrip()) + hang, width // 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
