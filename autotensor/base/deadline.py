"""A moment by which work should end. It is made once, from a user's option, and passed down.

    deadline = Deadline.after(90.0)          None: no deadline
    deadline.left_s()                        seconds until the deadline; infinite without one
    deadline.less(5.0)                       five seconds earlier, to leave time for later work

Work under a deadline checks it before each piece, and sizes the piece to the time left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on `time.monotonic`'s clock, and the seconds until this moment when it was set."""

    until: float = _NEVER
    given_s: float = _NEVER

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        """The deadline this many seconds from now; None: no deadline."""
        return NEVER if seconds is None else Deadline(time.monotonic() + seconds, seconds)

    def less(self, seconds: float) -> Deadline:
        """The deadline this many seconds earlier."""
        return replace(self, until=self.until - seconds)

    def share(self, part: float) -> Deadline:
        """The moment when this share of the given time is over; no deadline if none is set.

        >>> 9.0 < Deadline.after(100.0).share(0.1).left_s() <= 10.0, NEVER.share(0.1) is NEVER
        (True, True)
        """
        return self.less((1.0 - part) * self.given_s) if self.is_set else self

    def left_s(self) -> float:
        """Seconds until the deadline; negative afterwards."""
        return self.until - time.monotonic()

    @property
    def is_set(self) -> bool:
        return self.until < _NEVER

    @property
    def passed(self) -> bool:
        return self.left_s() <= 0.0


NEVER = Deadline()
