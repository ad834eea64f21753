"""A time limit for native code: if a candidate runs for too long, the system kernel ends its process.

with within(1.0): launch(…)          the process dies of SIGALRM when the block takes longer

Nothing in Python can stop a native loop. The parent could, but does not see when the loop began.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNAL = "SIGALRM"


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Ends this process if the block takes longer than `seconds`. Only for the main thread."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
