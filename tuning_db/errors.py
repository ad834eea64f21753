"""The one exception that this package raises.

For every failure below it (SQLite, a driver, the disk, a damaged row), a caller gets a `StoreError`: one
sentence that names the file and the failure, and one sentence with advice. `__cause__` is the original error.
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
    """The log has an older version, and it was opened for reading only, so it cannot be upgraded."""
