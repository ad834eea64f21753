"""The one exception that this package raises, and the sentences that several verbs say.

For every failure in the layers below this package (SQLite, a driver, the disk, a damaged row), a caller gets
a `StoreError`: one sentence that names the file and the failure, and one sentence with advice. `__cause__` is
the original error.
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


def unknown(place: str, kind: str, key: object, fix: str = "") -> StoreError:
    """The error for a reference to something that is not stored."""
    return StoreError(
        f"tuning log '{place}' has no {kind} {key!r}.", fix or f"Store the {kind} before referring to it."
    )


def other_text(place: str, key: str) -> StoreError:
    """The error for a workload whose key is known with another text."""
    return StoreError(
        f"tuning log '{place}' already holds workload {key!r} with another text.",
        "A key is the hash of its text; give the changed workload its own key.",
    )


def closed(place: str) -> StoreError:
    return StoreError(f"tuning log '{place}' is closed.", "Connect to it again.")


def taken_over(place: str, session: str) -> StoreError:
    return StoreError(
        f"another process has taken session {session} of tuning log '{place}' over.",
        "This process did not report for too long; start it again when the other has ended.",
    )
