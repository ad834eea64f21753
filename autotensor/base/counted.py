"""A number with its noun."""

from __future__ import annotations


def counted(n: int, one: str, more: str = "") -> str:
    """The number with `one` if it is 1, else with `more`. Without `more`, the plural is `one` with an s.

    >>> counted(1, "trial"), counted(12, "trial"), counted(0, "index", "indices")
    ('1 trial', '12 trials', '0 indices')
    """
    return f"{n} {one if n == 1 else more or f'{one}s'}"
