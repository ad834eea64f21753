"""Output streams that accept any text, even closed ones and those with a small character set."""

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
    """Set up standard output and error so that no character makes them fail.

    A stream that was closed before the process began (`>&-`) becomes the null device. A character that the
    encoding lacks (as LC_ALL=C lacks most) is written as similar ASCII text if ASCII has an entry for it,
    else as `\\uXXXX`. Bytes of file names that are not text become `\\uXXXX`, too.
    """
    codecs.register_error(HANDLER, _plain)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # stays open
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end].translate(ASCII)
    return signs.encode("ascii", "backslashreplace").decode("ascii"), error.end
