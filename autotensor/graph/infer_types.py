"""Facts about a call from its operator's record: result types, default attributes, te meaning, operations."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.base.errors import AutotensorError, GraphError
from autotensor.graph.function import TeFunction
from autotensor.operators import OPERATORS, TensorType
from autotensor.te import Compute, Tensor, placeholder
from autotensor.te.dag import ComputeDAG

Attrs = tuple[tuple[str, Any], ...]


def result_types(
    op: str | TeFunction, inputs: tuple[TensorType, ...], attrs: Attrs
) -> tuple[TensorType, ...]:
    """Types of an operator's results. Raises GraphError with the operator's name and its arguments."""
    if isinstance(op, TeFunction):
        return op.types
    try:
        return OPERATORS.get(op).types(inputs, dict(attrs))
    except AutotensorError as error:
        raise GraphError(f"{_call_text(op, inputs, attrs)}: {error.what}", fix=error.fix) from error
    except (TypeError, ValueError, IndexError) as error:
        said = re.sub(r"^[\w.<>]+\(\) ", "", str(error))  # without the name of our function
        raise GraphError(f"{_call_text(op, inputs, attrs)}: {said}.") from error


@functools.lru_cache(maxsize=4096)
def flops_of(op: str, inputs: tuple[TensorType, ...], attrs: Attrs) -> int:
    results = compute_te(op, [placeholder(t.shape, t.dtype) for t in inputs], attrs)
    if not any(isinstance(t.op, Compute) for t in results):
        return 0
    return ComputeDAG.of(list(results)).flops()


def compute_te(op: str | TeFunction, inputs: Iterable[Tensor], attrs: Attrs) -> tuple[Tensor, ...]:
    """The operator's results as tensor expressions."""
    if isinstance(op, TeFunction):
        return op.compute(*inputs)
    result = OPERATORS.get(op).compute(*inputs, **dict(attrs))
    return result if isinstance(result, tuple) else (result,)


def frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(frozen(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, DType) else value


@functools.cache
def _operator_defaults(op: str) -> Mapping[str, Any]:
    parameters = inspect.signature(OPERATORS.get(op).compute).parameters.values()
    return {
        p.name: frozen(p.default)
        for p in parameters
        if p.default is not p.empty and "Tensor" not in str(p.annotation)
    }


def defaults_of(op: str | TeFunction) -> Mapping[str, Any]:
    return _operator_defaults(op) if isinstance(op, str) else {}


def type_text(t: TensorType) -> str:
    return f"{t.dtype}{list(t.shape)}"


def _call_text(op: str, inputs: tuple[TensorType, ...], attrs: Attrs) -> str:
    parts = [*(type_text(t) for t in inputs), *(f"{k}={v}" for k, v in attrs)]
    return f"{op}({', '.join(parts)})"
