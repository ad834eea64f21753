"""No collecting of garbage while much is made that stays, or that goes without being collected.

Python looks for cycles whenever some hundred objects are new. A compiler makes millions of small ones, nearly
all of them alive until its result is there: looking through them again and again is a tenth of its time.
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
