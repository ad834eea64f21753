"""The one exception that leaves this package.

For every failure underneath (SQLite, a driver, the disk, a damaged row) a caller sees a `StoreError`:
one sentence that names the file and what happened, and one with advice. The cause stays
reachable as `__cause__`.
"""

from __future__ import annotations


class StoreError(Exception):
    """A tuning log could not be opened, read or written.

    what: one sentence naming the log.  fix: advice for the user.

    >>> print(StoreError("tuning log 'a.db' is a directory.", "Name a file."))
    tuning log 'a.db' is a directory. Name a file.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what} {self.fix}".rstrip()


class OlderLog(StoreError):
    """The log is of an older version, and opening it for reading does not change it."""
