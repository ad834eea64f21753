"""The arguments and results of a compiled function, for people and programs.

print(model.signature)                       (x: float32[1, 3, 224, 224]) -> (logits: float32[1, 1000])
model.signature.named(model(x))["logits"]    results by name
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotensor.runtime.files.artifact import ArgSpec


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs, in calling order. The text has the names of extents that a call chooses, where
    `inputs` and `outputs` have the greatest shapes."""

    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    text: Callable[[ArgSpec], str] = field(
        default=str, repr=False, compare=False
    )  # of one argument, for people

    def named(self, results: Any) -> dict[str, Any]:
        """The results of a call, by the names of the outputs."""
        values: Sequence[Any] = results if isinstance(results, tuple | list) else (results,)
        return dict(zip((a.name for a in self.outputs), values, strict=True))

    def __str__(self) -> str:
        takes, gives = (", ".join(map(self.text, part)) for part in (self.inputs, self.outputs))
        return f"({takes}) -> ({gives})"
