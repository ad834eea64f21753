"""ONNX models: as a graph, to be tuned and compiled; or as a function that compiles for the arrays it gets.

graph = from_onnx("model.onnx", shapes={"batch": 1})      then compile_model, plan_model, tune_model
f = OnnxModel("model.onnx"); y = f(x)                     compiles for the shapes of its calls

The compiler is imported only when it is needed, so that `OnnxModel(…, instant=True)` can answer before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from autotensor.api.instant_models import InstantModel, check_numerics
from autotensor.base.absent_names import takes_its_names
from autotensor.base.errors import ArgumentError, InputError
from autotensor.base.registry import suggest
from autotensor.base.target import Target
from autotensor.frontends.onnx import Loaded, Staged, load, models
from autotensor.frontends.onnx.signature import given_by_calls, inputs_of, outputs_of
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.graph_families import GraphFamily, over_shapes

if TYPE_CHECKING:
    import onnx

    from autotensor.api.log import Log
    from autotensor.runtime.open_artifact import Function


def load_onnx(source: str | Path | bytes | onnx.ModelProto | Loaded) -> Loaded:
    """The model in a file. Raises the same errors as `OnnxModel`."""
    return load(source)


@takes_its_names("at.from_onnx", {"shape": 'Write shapes={"x": (1, 3, 224, 224)}.'})
def from_onnx(
    source: str | Path | bytes | onnx.ModelProto,
    shapes: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Graph | GraphFamily:
    """An ONNX model as a graph: to compile_model, plan_model or tune_model.

    shapes: the shapes of inputs by name, {"x": (1, 3, 224, 224)}, or the extents of symbolic dimensions,
    {"batch": 1}. An extent may be te.var("n", range=(1, 8)): the compiled function then takes the whole
    range.
    values: inputs that are given once and for all, such as the shape that a Reshape takes.
    Raises InputError for files that cannot be read and dimensions that get no extent, Unsupported for
    operators that are not supported.
    """
    model = load_onnx(source)
    return over_shapes(model.name, shapes, lambda sizes: models.graph_of(model, sizes, values))


class OnnxModel:
    """An ONNX model as a function of arrays.

    It is compiled at the first call for the shapes of its inputs, and again for other shapes; the compiled
    code is kept. Models whose shapes or loops depend on values run in parts.

    rounded: 16-bit floats are rounded after every operator, because the standard defines each operator by
    itself. If False, they are rounded only where they are stored, which is faster and closer to the exact
    result.
    instant: NumPy computes the first answers, without compiling. Meanwhile child processes compile, and calls
    run the compiled code as soon as it is there. Both answers are right. They differ by rounding, because
    NumPy adds in another order. After `wait`, all answers come from compiled code.
    """

    def __init__(
        self,
        source: str | Path | bytes | onnx.ModelProto | Loaded,
        target: str | Target | None = None,
        *,
        db: Log = None,
        rounded: bool = False,
        instant: bool = False,
    ) -> None:
        """Raises InputError for a file that cannot be read, TargetError for instant answers with strict
        numerics."""
        self.model = load_onnx(source)
        self.name = self.model.name
        self.input_names = tuple(v.name for v in given_by_calls(self.model))
        self.output_names = outputs_of(self.model)
        self._types = _declared(self.model)
        self._instant: WeakSet[InstantModel] | None = WeakSet() if instant else None
        if instant:
            check_numerics(target)
        compile = partial(_compiled, self._instant, rounded, target=target, db=db)
        self._run = Staged(partial(models.build, self.model), compile, self.name, self.input_names)
        self._how = target, db, rounded, instant

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Any, ...]:
        """All outputs, in the model's order. Inputs are given by position or by name.

        Raises ArgumentError for a missing, unknown or ill-typed input.
        """
        given = dict(zip(self.input_names, arrays, strict=False))
        if len(arrays) > len(self.input_names):
            raise ArgumentError(
                f"{self.name} takes {', '.join(self.input_names) or 'nothing'}; {len(arrays)} were given."
            )
        for name in named:
            if name not in self.input_names:
                raise ArgumentError(
                    f"{self.name} has no input {name!r}.", fix=suggest(name, self.input_names)
                )
            if name in given:
                raise ArgumentError(f"{self.name} got its input {name!r} twice: by place and by name.")
        given |= named
        if missing := [n for n in self.input_names if n not in given]:
            raise ArgumentError(f"{self.name} needs its input {missing[0]!r}.")
        return self._run(*(self._checked(n, given[n]) for n in self.input_names))

    def wait(self) -> None:
        """Waits until everything that calls have needed so far is compiled. Raises any error of compiling."""
        for part in tuple(self._instant or ()):
            part.compiled()

    @property
    def specialisations(self) -> int:
        """The number of input types for which the model has been compiled."""
        return self._run.specialisations

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the model without its compiled code, which is compiled again at the next call."""
        target, db, *flags = self._how
        if not isinstance(db, str | os.PathLike | None):
            raise InputError(
                f"{self.name} cannot be pickled or copied: it uses a tuning log that is open here.",
                fix="Give db= as a path or URL.",
            )
        return _unpickled, (self.model, target, db, *flags)

    def _checked(self, name: str, value: Any) -> Any:
        wanted = self._types.get(name)
        numbers = isinstance(value, (list, tuple)) and wanted is not None  # numbers have no type of their own
        if value is None and wanted is not None:
            raise ArgumentError(f"{self.name} needs its input {wanted}; it got None.")
        if value is None or (isinstance(value, (list, tuple)) and not numbers):
            return value
        try:
            array = np.asarray(value, wanted.dtype.numpy if numbers and wanted is not None else None)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"{self.name}: no array for its input {wanted}: {error}.") from error
        if wanted is None:
            return np.ascontiguousarray(array) if array.ndim else array
        if array.dtype != wanted.dtype.numpy or not wanted.takes(array.shape):
            raise ArgumentError(f"{self.name}: got {array.dtype}{list(array.shape)} for its input {wanted}.")
        return np.ascontiguousarray(array) if array.ndim else array

    def __repr__(self) -> str:
        return f"<OnnxModel {self.name}({', '.join(self.input_names)})>"


def _unpickled(
    model: Loaded, target: str | Target | None, db: Log, rounded: bool, instant: bool
) -> OnnxModel:
    return OnnxModel(model, target, db=db, rounded=rounded, instant=instant)


def _compiled(
    instant: WeakSet[InstantModel] | None, rounded: bool, graph: Graph, **how: Any
) -> Function | InstantModel:
    """A part of a model as a function. instant: if given, the function answers at once and joins this set."""
    if rounded:
        from autotensor.graph.rules.narrow_floats import float32_inside

        graph = float32_inside(graph, rounded=True)
    if instant is None:
        from autotensor.api.model_compiling import compile_model

        return compile_model(graph, **how)
    instant.add(made := InstantModel(graph, **how))
    return made


def _declared(model: Loaded) -> dict[str, Any]:
    """Tensor inputs by name, as the model declares them."""
    return {a.name: a for a in inputs_of(model) if a.dtype is not None}


__all__ = ["OnnxModel", "from_onnx", "load_onnx"]
