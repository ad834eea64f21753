"""A report: one run as figures and sentences, or two runs side by side. It is a page when saved or shown."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from autotensor.base.counted import counted
from autotensor.base.errors import InputError
from autotensor.insight.report.figures import Figures
from autotensor.insight.report.findings import Finding, findings, seconds_text
from autotensor.insight.report.page import Pair, page
from autotensor.runtime.files.atomic_write import replacing

FRAME_HEIGHT = 900  # pixels, in a notebook


@dataclass(frozen=True, slots=True)
class Report:
    """A report. Printing it shows its findings. `save` writes the page, which needs the extra `report`."""

    figures: Figures
    against: Figures | None = None  # another run, on the same page
    pairs: tuple[Pair, ...] = ()  # the comparison of the tasks that both runs have

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Which task to tune next, what failed most, and why the winner wins, for the first run."""
        return findings(self.figures)

    def html(self) -> str:
        """The whole page. Raises InputError without the packages of the extra `report`."""
        return page(self.figures, self.against, self.pairs)

    def save(self, path: str | Path) -> int:
        """Writes the page and returns its size in bytes. Raises InputError as `html` does, and when the file
        cannot be written.

        The file appears under its name when it is complete.
        """
        text = self.html().encode()
        try:
            with replacing(Path(path)) as file:
                file.write(text)
        except OSError as e:
            raise InputError(f"{path} cannot be written: {e.strerror}.", fix="Choose another place.") from e
        return len(text)

    def __str__(self) -> str:
        if self.against is None:
            return "\n".join(_lines(self.figures, ""))
        first, second = _lines(self.figures, "A: "), _lines(self.against, "B: ")
        return "\n".join([*first, "", *second, "", *_compared(self.pairs)])

    def _repr_html_(self) -> str | None:
        """In a notebook: the page in a frame of its own, or the text if the extra is not installed."""
        try:
            text = self.html()
        except InputError:
            return None
        style = f"width:100%;height:{FRAME_HEIGHT}px;border:0"
        return f'<iframe srcdoc="{html.escape(text)}" style="{style}"></iframe>'


def _lines(f: Figures, letter: str) -> list[str]:
    """The findings of a run, a line each, below its name."""
    head = f"{letter}{f.title}, {counted(f.trials, 'trial')}; a trial's number counts all trials of the log"
    return [head, *(f"{x.question}: {x.answer}. {x.detail}" for x in findings(f))]


def _compared(pairs: Sequence[Pair]) -> list[str]:
    """The tasks that both runs have, a line each, the largest ratio first."""
    if not pairs:
        return ["A and B have no task in common."]
    lines = [
        f"{p.task}: {seconds_text(p.a_s)}, then {seconds_text(p.b_s)}; B / A {p.ratio:.3f}"
        f"{f' ({p.lower:.3f} to {p.upper:.3f})' if p.upper < inf else ''}: {p.verdict}"
        for p in pairs
    ]
    return ["Tasks of both, by the fastest trial of the last race, as `autotensor db compare`:", *lines]


__all__ = ["Report"]
