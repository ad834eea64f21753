"""Sums of products in Einstein's notation: `einsum("bij,bjk->bik", a, b)`.

There is one stage: a reduction over the letters that the result lacks. If an operand has a letter twice, its
diagonal is taken. Ellipses must be written out before.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import reduced, require, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


@operator(
    "einsum",
    kind=Kind.ANCHOR,
    reference=lambda *xs, equation: np.asarray(np.einsum(equation, *xs)).astype(np.result_type(*xs)),
    cases=(
        Case(((7, 5), (5, 3)), {"equation": "ij,jk->ik"}),
        Case(((2, 7, 5), (2, 5, 3)), {"equation": "bij,bjk->bki"}),
        Case(((5, 5),), {"equation": "ii->i"}),
        Case(((4, 6),), {"equation": "ij->"}),
        Case(((3,), (4,), (3, 4)), {"equation": "i,j,ij->j"}),
        Case(((3, 7),), {"equation": "ij->ji"}),
    ),
)
def einsum(*xs: Tensor, equation: str) -> Tensor:
    """xs: one operand for each term of the equation before `->`."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    require(
        bool(arrow) and len(terms) == len(xs) and all(t.isalpha() or not t for t in (*terms, result)),
        f"einsum: equation {equation!r} does not fit {len(xs)} operands.",
        "Write one term of letters for each, then -> and the result.",
    )
    extents: dict[str, int] = {}
    for term, x in zip(terms, xs, strict=True):
        require(len(term) == x.ndim, f"einsum: term {term!r} of {equation!r} does not fit shape {x.shape}.")
        for letter, n in zip(term, x.shape, strict=True):
            known = extents.setdefault(letter, n)
            require(known == n, f"einsum: {letter!r} of {equation!r} has the extents {known} and {n}.")
    require(
        set(result) <= set(extents) and len(set(result)) == len(result),
        f"einsum: the result of {equation!r} must have letters of its terms, each once.",
    )
    over = {letter: te.reduce_axis(n, f"k{letter}") for letter, n in extents.items() if letter not in result}

    def body(*i: Any) -> Any:
        at: dict[str, Any] = {**dict(zip(result, i, strict=True)), **over}
        factors: list[Any] = [
            x[tuple(at[letter] for letter in term)] for term, x in zip(terms, xs, strict=True)
        ]
        return reduced(te.sum, functools.reduce(lambda a, b: a * b, factors), list(over.values()))

    return stage(
        [extents[letter] for letter in result], body, "einsum", tuple(f"i{letter}" for letter in result)
    )
