"""Switches garbage collection off while many objects are made that stay, or that are freed without it.

Python looks for cycles whenever some hundred objects are new. A compiler makes millions of small objects, and
nearly all of them live until its result is there. Looking through them again and again takes a tenth of its
time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside the block, or function, no garbage is collected."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
