"""Operators: the parts of which a model consists, each defined once.

An operator defines its result's type (`infer`), its meaning as tensor expressions (`compute`), an independent
NumPy reference, sample cases for the tests, and how it may be fused (`kind`). Registering is one decorator:

    @operator("relu", kind=Kind.ELEMENTWISE, cases=(Case(((2, 3),)),), reference=lambda x: np.maximum(x, 0))
    def relu(x: Tensor) -> Tensor:
        return te.compute(x.shape, lambda *i: te.maximum(x[i], 0), name="relu")

By default, `infer` runs `compute` on placeholders and takes their shapes and types.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.registry import Registry
from autotensor.te import Tensor, placeholder


class Kind(enum.Enum):
    """How an operator may join a fused group."""

    ELEMENTWISE = "elementwise"  # out[i] from in[i], with broadcasting; fuses after anything of its shape
    # out[i] from one in[f(i)]: transpose, slice, pad, concat; may be inlined into consumers
    INJECTIVE = "injective"
    REDUCTION = "reduction"  # pools, sums, norms, softmax; may take elementwise consumers
    ANCHOR = "anchor"  # convolution, matmul: one per group, takes elementwise consumers as its epilogue
    VIEW = "view"  # same bytes in another shape: reshape, flatten; costs nothing
    OPAQUE = "opaque"  # never fused

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a value in a graph."""

    shape: tuple[int, ...]
    dtype: DType

    @staticmethod
    def of(shape: tuple[int, ...], dtype: DType | str = "float32") -> TensorType:
        return TensorType(tuple(int(n) for n in shape), dtype_of(dtype))


@dataclass(frozen=True, slots=True)
class Case:
    """One sample call: input shapes (or arrays), types, attributes."""

    shapes: tuple[tuple[int, ...], ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()  # () means float32 for every input
    low: float = -1.0  # inputs are drawn uniformly from [low, high)
    high: float = 1.0

    def arrays(self, rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], ...]:
        """The inputs of the case.

        Integers are drawn from [low, high), and bools are true in half of the cases.
        """
        out = []
        for n, shape in enumerate(self.shapes):
            t = dtype_of(self.dtypes[n]) if self.dtypes else dtype_of("float32")
            if t.is_bool:
                out.append(rng.random(shape) < 0.5)
            elif t.is_int:
                out.append(
                    rng.integers(int(self.low), max(int(self.low) + 1, int(self.high)), shape).astype(t.numpy)
                )
            else:
                out.append((rng.random(shape) * (self.high - self.low) + self.low).astype(t.numpy))
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. `compute(*tensors, **attrs)` returns a tensor or a tuple of tensors."""

    name: str
    kind: Kind
    compute: Callable[..., Any]
    reference: Callable[..., Any]  # NumPy arrays and attributes → array or tuple, independent of `compute`
    cases: tuple[Case, ...]
    constants: tuple[int, ...] = ()  # positions of inputs that are usually weights
    # positions of inputs of an elementwise operator that are read at indices from data; they do not broadcast
    tables: tuple[int, ...] = ()
    # positions of inputs that are converted on loading: floats of 16 bits stay as they are
    stored: tuple[int, ...] = ()
    # (*types, **attrs) → types, used before `compute`; if it is or returns None, `compute` gives the types
    infer: Callable[..., tuple[TensorType, ...] | None] | None = None
    # (application, adjoint of its result, position of an input) → adjoint of this input, as nodes of a graph;
    # with None, autodiff uses its own rule, or differentiates `compute`
    gradient: Callable[..., Any] | None = None
    # (*arrays, with None for arrays that only a run brings): raises TensorError for numbers that no input may
    # hold. Only operators that a person writes are checked; rules write only valid numbers
    require_known: Callable[..., None] | None = None

    def types(self, inputs: tuple[TensorType, ...], attrs: Mapping[str, Any]) -> tuple[TensorType, ...]:
        """The result types.

        Raises TensorError, with the operator's own sentence, for inputs that do not fit.
        """
        known = self.infer(*inputs, **attrs) if self.infer is not None else None
        return known if known is not None else _infer_by_compute(self.name, inputs, _freeze(attrs))


OPERATORS: Registry[Operator] = Registry("operator")


def operator(
    name: str,
    *,
    kind: Kind,
    reference: Callable[..., Any],
    cases: tuple[Case, ...],
    constants: tuple[int, ...] = (),
    tables: tuple[int, ...] = (),
    stored: tuple[int, ...] = (),
    infer: Callable[..., tuple[TensorType, ...] | None] | None = None,
    gradient: Callable[..., Any] | None = None,
    require_known: Callable[..., None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated te compute function as an operator.

    gradient: replaces the result of automatic differentiation (docs/gradients.md).
    require_known: see `Operator`.
    """

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        made = Operator(
            name, kind, compute, reference, cases, constants, tables, stored, infer, gradient, require_known
        )
        OPERATORS.add(name, made)
        return compute

    return register


def _freeze(attrs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((k, _tuples(v)) for k, v in attrs.items()))


def _tuples(v: Any) -> Any:
    """Turns lists, as JSON gives them, into tuples, at every depth."""
    return tuple(_tuples(x) for x in v) if isinstance(v, (list, tuple)) else v


@functools.lru_cache(maxsize=4096)
def _infer_by_compute(
    name: str, inputs: tuple[TensorType, ...], attrs: tuple[tuple[str, Any], ...]
) -> tuple[TensorType, ...]:
    tensors = [placeholder(t.shape, t.dtype, name=f"x{n}") for n, t in enumerate(inputs)]
    result = OPERATORS.get(name).compute(*tensors, **dict(attrs))
    outputs: tuple[Tensor, ...] = result if isinstance(result, tuple) else (result,)
    return tuple(TensorType(t.shape, t.dtype) for t in outputs)
