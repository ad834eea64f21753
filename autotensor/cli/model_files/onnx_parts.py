"""An .onnx file that runs in parts, for the verbs that call a model: `run` and `bench`.

Models with If, Loop or results whose size depends on data are not a single program, so no .atm file can hold
them. A call compiles the parts that its values reach; later calls that reach the same parts compile nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.runtime.files.artifact import ArgSpec

if TYPE_CHECKING:
    from autotensor.api.from_onnx import OnnxModel


@dataclass(frozen=True)
class InParts:
    """A model of several compiled parts, which is called like one function."""

    path: str
    shapes: Mapping[str, Any]  # shapes of inputs and symbolic dimensions, as `from_onnx` takes them
    target: Target
    db: str | None
    instant: bool = False

    @cached_property
    def _model(self) -> OnnxModel:
        from autotensor.api.from_onnx import OnnxModel

        return OnnxModel(self.path, self.target, db=self.db, instant=self.instant)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def threads(self) -> int:
        return self.target.num_cores

    @cached_property
    def args(self) -> tuple[ArgSpec, ...]:
        """The inputs; shapes of results depend on values."""
        from autotensor.frontends.onnx.signature import bound, inputs_of

        inputs = inputs_of(self._model.model)
        found = bound(inputs, self.shapes)
        return tuple(ArgSpec(a.name, "input", found[a.name], str(a.dtype)) for a in inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return self._model.output_names

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Raises InputError for results that are not tensors, because no verb can print or write them."""
        answers = self._model(*arrays)
        for name, answer in zip(self.output_names, answers, strict=True):
            if not isinstance(answer, np.ndarray):
                raise InputError(
                    f"{self.path}: its result {name!r} is not a tensor.",
                    fix="Call the model as autotensor.OnnxModel.",
                )
        return answers

    def time(self, arrays: Sequence[Any], repeat: int) -> list[float]:
        """Seconds of whole calls, with the Python code between the parts."""
        samples = []
        for _ in range(repeat):
            began = time.perf_counter()
            self._model(*arrays)
            samples.append(time.perf_counter() - began)
        return samples
