"""Numbers that a call passes to a model with run-time extents: extents of its kernels, places of values.

    model: b, n      kernel 0 reads [b, n], kernel 1 [n]            ──▶ told: [b, n, n, offset, offset, …]

A call finds its symbols and computes the numbers (`runtime/extents.py`); here are the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotensor.graph.memory import MemoryPlan
from autotensor.graph.symbols.generalise import OpenLayout
from autotensor.runtime.extents import Formula, OpenArena


@dataclass
class ToldNumbers:
    """Numbers of one model; `offset` adds some while its kernels get their places."""

    layout: OpenLayout
    arena: str
    boxes: Sequence[Sequence[Formula]]
    box_of: Mapping[str, int]  # by the name of a value
    begins: Mapping[tuple[str, ...], int]  # where the extents of kernels that read these symbols are
    extents: tuple[str, ...]
    offsets: dict[tuple[int | None, str], int] = field(default_factory=dict)
    _formulas: list[tuple[int | None, Formula]] = field(default_factory=list)

    @staticmethod
    def of(layout: OpenLayout, arena: str, memory: MemoryPlan, bytes_: Mapping[str, Formula]) -> ToldNumbers:
        """bytes_: of the values of the plan, by name."""
        names = [v.name for v in memory.values]
        begins: dict[tuple[str, ...], int] = {}
        extents: list[str] = []
        for symbols in layout.kernels:
            if symbols not in begins:
                begins[symbols] = len(extents)
                extents += symbols
        boxes = [[bytes_[names[n]] for n in box] for box in memory.boxes]
        box_of = {names[n]: k for k, box in enumerate(memory.boxes) for n in box}
        return ToldNumbers(layout, arena, boxes, box_of, begins, tuple(extents))

    def offset(self, value: str, behind: Formula) -> int | None:
        """The number that holds the offset of a place so many bytes behind the start of a value in the arena,
        or of a value that is an argument; None where the offset is known now."""
        box = self.box_of.get(value)
        if not box and isinstance(behind, int):
            return None
        key = box, repr(behind)
        if key not in self.offsets:
            self.offsets[key] = len(self.extents) + len(self._formulas)
            self._formulas.append((box, behind))
        return self.offsets[key]

    def plain(self) -> dict[str, Any]:
        """As JSON: the meta of the model under OPEN_SHAPES."""
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
