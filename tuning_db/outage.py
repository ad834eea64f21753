"""If the server is away for a while, a transaction is tried again until the server is back.

    patience = Patience(place)
    while True:
        try: …; return
        except … as error:
            if not (is_away(error) and patience.wait(error)): raise

Every transaction of the store may run twice, because the server may have committed it although its answer was
lost. That is harmless: rows have unique keys, and existing rows are not changed.
"""

from __future__ import annotations

import logging
import math
import time

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

AWAY_S = 600.0  # an upgrade, a restart of the machine
FIRST_S, MOST_S = 0.1, 5.0  # waits between two tries
ENDING_S = 1.0  # a crashing server ends its processes one after the other; some still answer for this time

# SQLSTATE: connection exceptions, too many connections, shut down by an administrator, crashed, not up yet
_STATES = ("08", "53300", "57P01", "57P02", "57P03")

_logger = logging.getLogger("autotensor.log")  # without a handler, its warnings go to standard error


def is_away(error: BaseException) -> bool:
    """Whether the connection to a server broke, or cannot be made."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or ""
    if state:
        return str(state).startswith(_STATES)
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)


class Outage:
    """The time at which a store's server went away, shared by all threads."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # empty while the server answers; each access is atomic

    def notice(self) -> bool:
        """Whether the caller is the first thread that notices the outage."""
        now = time.monotonic()
        return self._since.setdefault("away", now) is now

    def end(self, began: float) -> None:
        """Ends the outage after a transaction that succeeded, unless it `began` before the outage did."""
        if began > self._since.get("away", math.inf) + ENDING_S:
            self._since.clear()


class Patience:
    """Counts how long one transaction has been tried."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.until = 0.0
        self.pause_s = FIRST_S

    def wait(self, error: BaseException, tell: bool) -> bool:
        """Sleeps a while. Returns False without sleeping when the time is used up. tell: whether to log the
        first wait.
        """
        now = time.monotonic()
        if not self.until:
            self.until = now + AWAY_S
            if tell:
                reason = str(getattr(error, "orig", error)).strip().partition("\n")[0].rstrip(".")
                _logger.warning(
                    "the server of the tuning log '%s' is away (%s); trying for %g minutes.",
                    self.place, reason, AWAY_S / 60,
                )  # fmt: skip
        if now + self.pause_s > self.until:
            return False
        time.sleep(self.pause_s)
        self.pause_s = min(MOST_S, self.pause_s * 2)
        return True
