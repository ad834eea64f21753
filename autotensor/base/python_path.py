"""The folders in which a child that runs Python looks for modules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def python_path(first: Sequence[str] = ()) -> str:
    """PYTHONPATH of a child: `first`, the PYTHONPATH of this process, and the folder of this package.

    Empty entries (a colon at the end makes one) mean the current folder to Python, so they are left out.
    """
    root = str(Path(__file__).resolve().parents[2])
    said = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*first, *filter(None, said), root])
