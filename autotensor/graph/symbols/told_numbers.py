"""The numbers that a call passes to a model with run-time extents: extents of kernels, and places of values.

    model: b, n      kernel 0 reads [b, n], kernel 1 [n]            ──▶ told: [b, n, n, offset, offset, …]

A call finds its symbols and computes the numbers (`runtime/extents.py`). This file makes the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotensor.graph.memory import MemoryPlan
from autotensor.graph.symbols.generalise import OpenLayout
from autotensor.runtime.extents import Formula, OpenArena
from autotensor.te.open_shapes import formula
from autotensor.te.symbols import Extent


@dataclass
class ToldNumbers:
    """The numbers of one model; `offset` adds numbers while the model's kernels get their places."""

    layout: OpenLayout
    arena: str
    boxes: Sequence[Sequence[Formula]]
    box_of: Mapping[str, int]  # name of a value → its box
    # values of symbols that kernels read → where they begin in the numbers
    begins: Mapping[tuple[Extent, ...], int]
    extents: tuple[Formula, ...]
    offsets: dict[tuple[int | None, str], int] = field(default_factory=dict)
    _formulas: list[tuple[int | None, Formula]] = field(default_factory=list)

    @staticmethod
    def of(layout: OpenLayout, arena: str, memory: MemoryPlan, bytes_: Mapping[str, Formula]) -> ToldNumbers:
        """bytes_: the bytes of the plan's values, by name."""
        names = [v.name for v in memory.values]
        begins: dict[tuple[Extent, ...], int] = {}
        extents: list[Formula] = []
        for values in layout.kernels:
            if values not in begins:
                begins[values] = len(extents)
                extents += map(formula, values)
        boxes = [[bytes_[names[n]] for n in box] for box in memory.boxes]
        box_of = {names[n]: k for k, box in enumerate(memory.boxes) for n in box}
        return ToldNumbers(layout, arena, boxes, box_of, begins, tuple(extents))

    def offset(self, value: str, behind: Formula) -> int | None:
        """The position of the number that holds an offset; None if the offset is known now.

        The offset is that of a place `behind` bytes after the start of a value, which lies in the arena or is
        an argument.
        """
        box = self.box_of.get(value)
        if not box and isinstance(behind, int):
            return None
        key = box, repr(behind)
        if key not in self.offsets:
            self.offsets[key] = len(self.extents) + len(self._formulas)
            self._formulas.append((box, behind))
        return self.offsets[key]

    def plain(self) -> dict[str, Any]:
        """The numbers as JSON: the model's meta under OPEN_SHAPES."""
        return {
            **self.layout.plain(),
            "arena": {
                "name": self.arena,
                "boxes": [list(b) for b in self.boxes],
                "extents": list(self.extents),
                "offsets": [list(x) for x in self._formulas],
            },
        }

    def greatest(self) -> list[int]:
        """The numbers for the greatest extents."""
        return OpenArena(**self.plain()["arena"]).told({s.name: s.most for s in self.layout.symbols})
