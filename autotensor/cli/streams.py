"""Output streams that take all that is printed: closed ones, and those whose encoding has few signs."""

from __future__ import annotations

import codecs
import io
import os
import sys

ASCII = str.maketrans(
    {"─": "-", "│": "|", "×": "x", "→": "->", "…": "...", "µ": "u", "·": ".", "–": "-", "≥": ">="}
)
HANDLER = "autotensor.plain"


def prepare() -> None:
    """Make standard output and error of this process ones that never fail for a sign.

    A stream that was closed before the process began (`>&-`) is the null device. A sign that the encoding
    lacks (most of them under LC_ALL=C) is written as similar ASCII if the table above has one, else as
    `\\uXXXX`. A byte of a file's name that is not text is written in the same way.
    """
    codecs.register_error(HANDLER, _plain)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end].translate(ASCII)
    return signs.encode("ascii", "backslashreplace").decode("ascii"), error.end
