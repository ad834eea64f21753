"""Hosted: a compiled function that Python runs: a simulator's function, or a device that Python drives.

    f = Hosted(artifact, run)       run({"A": a, "B": b, "C": c}) fills the outputs, and may return a report
    c = f(a, b)                     arguments are checked, outputs made and named, as by a `Module`
    print(f.report)                 the report that `run` returned in the last call

Unbound constants are read in every call, and prepared arrays are made anew in every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.runtime.arguments import Slot, fill, place_all
from autotensor.runtime.arrays import Array
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.function import CompiledFunction
from autotensor.runtime.timer import Residency, sample

Run = Callable[[Mapping[str, Array]], Any]


class Hosted(CompiledFunction):
    """An artifact and the Python function that runs it; see the module's docstring."""

    def __init__(self, artifact: Artifact, run: Run) -> None:
        self.artifact, self.name = artifact, artifact.name
        self.report: Any = None
        self.threads = 1
        self._run = run
        self._values = dict(artifact.values)
        self._prepare_each_call = True
        slots = [Slot.of(k, spec, artifact.index_range(spec.name)) for k, spec in enumerate(artifact.args)]
        free = [s for s in slots if s.spec.name not in artifact.values]
        self._inputs = tuple(s for s in free if s.spec.role in ("input", "constant"))
        self._outputs = tuple(s for s in free if s.spec.role == "output")
        self._own = tuple(s for s in free if s.spec.role in ("prepared", "workspace"))

    def __call__(self, *arrays: Array, out: Array | Sequence[Array] | None = None, **named: Array) -> Any:
        """Run. Returns the outputs (one array, or a tuple), or None if the caller gave all output arrays.

        Raises ArgumentError, which names the argument that does not fit.
        """
        given, wanted = place_all(self.name, self._inputs, self._outputs, arrays, out, named)
        results = [_empty(s) for s in self._outputs] if wanted is None else list(wanted)
        # checks the arrays
        fill(self.name, [0] * len(self.artifact.args), self._inputs, self._outputs, given, results)
        slots = (*self._inputs, *self._outputs, *self._own)
        own = [_empty(s) for s in self._own]
        named_arrays = {s.spec.name: a for s, a in zip(slots, (*given, *results, *own), strict=True)}
        self.report = self._run({**self._values, **named_arrays})
        return self._answer(results, wanted, out)

    def _prepared(self) -> dict[str, Array]:
        return {}  # prepared arrays are made anew in every call

    def _with(self, values: dict[str, Array]) -> Self:
        return type(self)(replace(self.artifact, values=values), self._run)

    def time(
        self,
        arrays: Iterable[Array],
        repeat: int = 5,
        min_seconds: float = 0.02,
        residency: Residency = "hot",
    ) -> tuple[float, ...]:
        """`repeat` samples of one run's seconds here. The report has the seconds of a simulated device."""
        given = tuple(arrays)

        def run(count: int) -> None:
            for _ in range(count):
                self(*given)

        return sample(run, repeat=repeat, min_seconds=min_seconds, residency=residency)

    def __repr__(self) -> str:
        target = self.artifact.target.kind
        return f"<Hosted {self.name}({', '.join(str(a) for a in self.args)}) on {target}>"


def _empty(slot: Slot) -> Array:
    return np.empty(slot.shape, dtype_of(slot.spec.dtype).numpy)
