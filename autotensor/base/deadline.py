"""A moment by which something should be over: made once, where a person's wish comes in, and passed down.

    deadline = Deadline.after(90.0)          None: never
    deadline.left_s()                        seconds until then; infinite without one
    deadline.less(5.0)                       five seconds earlier: what comes afterwards has its time, too

Work under a deadline checks it before each piece, and sizes the piece to the time left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on `time.monotonic`'s clock, and how long there was until then when it was set."""

    until: float = _NEVER
    given_s: float = _NEVER

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        """So many seconds from now; None: never."""
        return NEVER if seconds is None else Deadline(time.monotonic() + seconds, seconds)

    def less(self, seconds: float) -> Deadline:
        """So much earlier."""
        return replace(self, until=self.until - seconds)

    def share(self, part: float) -> Deadline:
        """When so much of the time that was given is over; never without a deadline.

        >>> 9.0 < Deadline.after(100.0).share(0.1).left_s() <= 10.0, NEVER.share(0.1) is NEVER
        (True, True)
        """
        return self.less((1.0 - part) * self.given_s) if self.is_set else self

    def left_s(self) -> float:
        """Seconds until then; negative afterwards."""
        return self.until - time.monotonic()

    @property
    def is_set(self) -> bool:
        return self.until < _NEVER

    @property
    def passed(self) -> bool:
        return self.left_s() <= 0.0


NEVER = Deadline()
