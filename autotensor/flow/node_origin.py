"""The line of the user's program where a node was written."""

from __future__ import annotations

import sys
from pathlib import Path

_OWN = str(Path(__file__).parent.parent)  # frames of autotensor itself are not the user's


def here() -> str:
    """`file:line` of the nearest caller outside autotensor.

    Looks at code objects only: a full traceback object would keep the caller's variables alive.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
