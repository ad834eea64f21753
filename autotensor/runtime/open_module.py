"""A compiled function whose extents are known only at a call: one program for a whole range of shapes.

    f(x)    x: [100, 64] ──▶ n = 100 ──▶ the view for n = 100: the same code and weights, with fixed shapes

A *view* is a Module in every respect: it checks arguments, makes results and calls the code, as a module
compiled for these shapes does. Making a view takes some 100 µs and compiles nothing. The latest views are
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from autotensor.base.counted import counted
from autotensor.runtime.arguments import place_all
from autotensor.runtime.arrays import Array
from autotensor.runtime.extents import OpenShapes
from autotensor.runtime.files.artifact import EXTENTS, OPEN_SHAPES, ArgSpec, Artifact
from autotensor.runtime.linking import loader
from autotensor.runtime.module import Module
from autotensor.runtime.signature import Signature
from autotensor.runtime.timer import Residency

_VIEWS = 16  # views that are kept; each may hold workspace for one call or more


class OpenModule(Module):
    """See the module's docstring. Its own shapes, in `args` and `signature`, are the largest ones."""

    def _start(
        self,
        artifact: Artifact,
        loaded: loader.Loaded,
        values: dict[str, Array],
        nthreads: int | None,
        provider: str | None,
    ) -> None:
        self.open_shapes = OpenShapes.of(artifact.meta[OPEN_SHAPES])
        super()._start(artifact, loaded, values, nthreads, provider)

    @property
    def threads(self) -> int:
        """The largest number of threads of one call."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        Module.threads.fset(self, count)  # type: ignore[attr-defined]
        self._views: dict[tuple[tuple[int, ...], ...], Module] = {}

    def __call__(self, *arrays: Array, out: Array | Sequence[Array] | None = None, **named: Array) -> Any:
        """Run. Raises ArgumentError for shapes outside the range, and for contradicting shapes."""
        given: Sequence[Array] = arrays
        if named or out is not None or len(arrays) != len(self._inputs):
            given, _ = place_all(self.name, self._inputs, self._outputs, arrays, out, named)
        return self.view(given)(*arrays, out=out, **named)

    def view(self, given: Sequence[Any]) -> Module:
        """The module for inputs with these shapes."""
        shapes = tuple([tuple(getattr(a, "shape", ())) for a in given])
        view = self._views.get(shapes)
        if view is None:
            names = [s.spec.name for s in self._inputs]
            values = self.open_shapes.values(self.name, dict(zip(names, shapes, strict=True)))
            view = self._views[shapes] = self._made(values)
            for old in list(self._views)[:-_VIEWS]:
                self._views.pop(old, None)
        return view

    def _made(self, values: dict[str, int]) -> Module:
        open_shapes = self.open_shapes
        extents = np.array(open_shapes.told(values), np.int64)
        view = Module.__new__(Module)
        artifact = replace(self.artifact, args=open_shapes.of_call(self.artifact.args, values), values={})
        bound = {**self._values, EXTENTS: extents}
        view._start(artifact, self._loaded, bound, self._threads, self._provider_name)
        return view

    def time(
        self,
        arrays: Iterable[Array],
        repeat: int = 5,
        min_seconds: float = 0.02,
        residency: Residency = "hot",
    ) -> tuple[float, ...]:
        arrays = tuple(arrays)
        given, _ = place_all(self.name, self._inputs, self._outputs, arrays, None, {})
        return self.view(given).time(arrays, repeat, min_seconds, residency)

    @property
    def signature(self) -> Signature:
        return replace(super().signature, text=self.text)

    def text(self, a: ArgSpec) -> str:
        """An argument as text, its run-time extents by their names."""
        shapes = self.open_shapes
        return f"{a.name}: {a.dtype}{shapes.text(a.name)}" if a.name in shapes.shapes else str(a)

    def __copy__(self) -> Self:
        return self._with(self._values)

    def __repr__(self) -> str:
        shapes = ", ".join(map(self.text, self.args))
        threads = counted(self.threads, "thread")
        return f"<OpenModule {self.name}({shapes}), {self.open_shapes.ranges()}, {threads}>"


__all__ = ["OpenModule"]
