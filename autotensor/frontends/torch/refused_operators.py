"""Errors for operators that are not converted: the reason, and another way."""

from __future__ import annotations

import re

from autotensor.frontends.errors import Unsupported

_DRAW = "random numbers are not supported", "Draw them outside and pass them in."
_RANDOM = frozenset(
    """bernoulli binomial cauchy exponential geometric log_normal multinomial native_dropout normal
    normal_functional poisson rand rand_like randint randint_like randn randn_like randperm
    rrelu_with_noise_functional uniform _sample_dirichlet _standard_gamma""".split()  # noqa: SIM905
)
_MATRIX = (
    "decompositions of matrices other than LU and Cholesky are not supported",
    "Do it outside and pass its results in, or compile the model in parts.",
)
_SPARSE = "sparse tensors are not supported", "Use .to_dense()."
OTHER_FIX = "Express it by other operators, or compile the model in parts."
_OTHER = "this operator is not supported", OTHER_FIX
_NO_COMPLEX = (
    "complex numbers are not supported here",
    "Keep real and imaginary parts in two tensors.",
)


def unknown(name: str) -> Unsupported:
    """The error for an operator (`aten.name.overload`) without a converter."""
    what, fix = _reason(name.split(".")[1] if name.count(".") > 1 else name)
    return Unsupported(f"{what}.", fix=fix)


def _reason(bare: str) -> tuple[str, str]:
    if bare in _RANDOM:
        return _DRAW
    if "sparse" in bare:
        return _SPARSE
    if "linalg" in bare or bare in ("geqrf", "ormqr", "lu_unpack"):
        return _MATRIX
    return _OTHER


_LISTED = re.compile(r"^ +- (.+)", re.MULTILINE)  # a reason in a message of torch


def no_complex() -> Unsupported:
    """The error for complex tensors in operators that do not accept them."""
    return Unsupported(f"{_NO_COMPLEX[0]}.", fix=_NO_COMPLEX[1])


def first_line(error: Exception) -> str:
    """The message of an exception of torch, without its long explanations."""
    words = str(error).strip().splitlines() or [type(error).__name__]
    return words[0].strip().rstrip(".")


def reasons(error: Exception) -> str:
    """The first line, and the first sentence of each reason that torch lists below it.

    >>> reasons(ValueError("Violated (n)! For more information, X.\\n  - You marked n. If D, do E."))
    'Violated (n)! You marked n'
    """
    listed = [m[1].partition(". ")[0].rstrip(".") for m in _LISTED.finditer(str(error))]
    first = first_line(error)
    return " ".join([first.partition(" For more information")[0], "; ".join(listed)]) if listed else first


def suggestions(error: Exception) -> str:
    """The values that torch suggests below a message, like `batch = 4`; "" if it suggests none."""
    _, _, below = str(error).partition("Suggested fixes:\n")
    return ", ".join(line.strip() for line in below.partition("\n\n")[0].splitlines())
