"""The types for which a law can apply: `@rule(Binary, when=integer_vector)`.

Most nodes of a kernel are vectors of floats, but most laws are about scalar integers.
"""

from __future__ import annotations

from autotensor.base.dtype import DType


def scalar(t: DType) -> bool:
    return t.lanes == 1


def vector(t: DType) -> bool:
    return t.lanes > 1


def boolean(t: DType) -> bool:
    return t.is_bool


def integer(t: DType) -> bool:
    return t.is_int


def scalar_integer(t: DType) -> bool:
    return t.is_int and t.lanes == 1


def integer_vector(t: DType) -> bool:
    return t.is_int and t.lanes > 1


def scalar_float(t: DType) -> bool:
    return t.is_float and t.lanes == 1
