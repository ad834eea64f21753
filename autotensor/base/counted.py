"""A number with its noun, and lists of names that stay short."""

from __future__ import annotations

from collections.abc import Iterable


def counted(n: int, one: str, more: str = "") -> str:
    """The number with `one` if it is 1, else with `more`. Without `more`, the plural is `one` with an s.

    >>> counted(1, "trial"), counted(12, "trial"), counted(0, "index", "indices")
    ('1 trial', '12 trials', '0 indices')
    """
    return f"{n} {one if n == 1 else more or f'{one}s'}"


def few(names: Iterable[str], most: int = 4) -> str:
    """The first `most` names, and how many more there are.

    >>> few(["a", "b"]), few("abcdef", 2), few([])
    ('a, b', 'a, b and 4 more', 'none')
    """
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}" if every else "none"
