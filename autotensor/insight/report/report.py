"""A report: one run as figures and sentences, or two runs side by side. It is a page when saved or shown."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path

from autotensor.base.errors import InputError
from autotensor.insight.report.figures import Figures
from autotensor.insight.report.findings import Finding, findings
from autotensor.insight.report.page import Pair, page

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
        part = Path(f"{path}.part")
        try:
            part.write_bytes(text)
            os.replace(part, path)
        except OSError as e:
            raise InputError(f"{path} cannot be written: {e.strerror}.", fix="Choose another place.") from e
        return len(text)

    def __str__(self) -> str:
        lines = [f"{f.question}: {f.answer}. {f.detail}" for f in self.findings]
        return "\n".join([f"{self.figures.title}, {self.figures.trials} trials", *lines])

    def _repr_html_(self) -> str | None:
        """In a notebook: the page in a frame of its own, or the text if the extra is not installed."""
        try:
            text = self.html()
        except InputError:
            return None
        style = f"width:100%;height:{FRAME_HEIGHT}px;border:0"
        return f'<iframe srcdoc="{html.escape(text)}" style="{style}"></iframe>'


__all__ = ["Report"]
