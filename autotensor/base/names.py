"""Names that are not taken yet."""

from __future__ import annotations


def free_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, or the first of wanted_1, wanted_2, … that is not taken. The name is added to `taken`.

    >>> taken = {"k"}
    >>> free_name("k", taken), free_name("k", taken), free_name("j", taken)
    ('k_1', 'k_2', 'j')
    """
    name, n = wanted, 0
    while name in taken:
        n += 1
        name = f"{wanted}_{n}"
    taken.add(name)
    return name
