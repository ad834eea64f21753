"""A number with its noun."""

from __future__ import annotations


def counted(n: int, one: str, more: str = "") -> str:
    """`one` for 1, else `more`: with an s, unless another plural is given.

    >>> counted(1, "trial"), counted(12, "trial"), counted(0, "index", "indices")
    ('1 trial', '12 trials', '0 indices')
    """
    return f"{n} {one if n == 1 else more or f'{one}s'}"
