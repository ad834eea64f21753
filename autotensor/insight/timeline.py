"""Who worked when: spans of time on workers, as text and as a file for a trace viewer.

worker 0  AAAAAAAABBBBBBBBBB  DDDDDDDD
worker 1          CCCCCCCCC
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotensor.ir.notebook import ShownInNotebooks
from autotensor.runtime.files.atomic_write import replacing

WIDTH = 64  # characters of a bar chart


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work. Times are seconds since the beginning of the run."""

    name: str
    worker: int
    start_s: float
    end_s: float
    details: Mapping[str, Any] = field(default_factory=dict)  # shown when the user selects the span

    def overlaps(self, other: Span) -> bool:
        """Whether both spans were at work at the same moment."""
        return self.start_s < other.end_s and other.start_s < self.end_s


@dataclass(frozen=True, slots=True)
class Timeline(ShownInNotebooks):
    """The spans of one run, in order of their start times."""

    spans: tuple[Span, ...]
    title: str = ""
    workers: tuple[str, ...] = ()  # names by the worker's number; (): worker 0, worker 1, …

    @property
    def seconds(self) -> float:
        return max((s.end_s for s in self.spans), default=0.0)

    @property
    def busy(self) -> float:
        """The share of the workers' time in which they worked."""
        workers = 1 + max((s.worker for s in self.spans), default=0)
        return sum(s.end_s - s.start_s for s in self.spans) / max(workers * self.seconds, 1e-12)

    def span(self, name: str) -> Span:
        return next(s for s in self.spans if s.name == name)

    def __str__(self) -> str:
        letters = {s.name: chr(ord("A") + n % 26) for n, s in enumerate(sorted(self.spans, key=_by_name))}
        scale = WIDTH / max(self.seconds, 1e-12)
        lines = []
        for worker in range(1 + max((s.worker for s in self.spans), default=0)):
            bar = [" "] * WIDTH
            for s in (s for s in self.spans if s.worker == worker):
                begin = min(int(s.start_s * scale), WIDTH - 1)
                end = max(begin + 1, min(int(s.end_s * scale), WIDTH))
                bar[begin:end] = letters[s.name] * (end - begin)
            lines.append(f"worker {worker}  |{''.join(bar)}|")
        lines += [
            f"{letters[s.name]}: {s.name}, {s.start_s * 1e6:.0f} to {s.end_s * 1e6:.0f} µs"
            for s in self.spans
        ]
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Writes a file for ui.perfetto.dev and chrome://tracing, in trace event format. Raises OSError."""
        names = [_named("process_name", 0, self.title)] if self.title else []
        names += [_named("thread_name", n, name) for n, name in enumerate(self.workers)]
        names += [
            {"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": n, "args": {"sort_index": n}}
            for n in range(len(self.workers))
        ]
        spans = [
            {"name": s.name, "ph": "X", "pid": 0, "tid": s.worker, "ts": s.start_s * 1e6,
             "dur": (s.end_s - s.start_s) * 1e6, **({"args": dict(s.details)} if s.details else {})}
            for s in self.spans
        ]  # fmt: skip
        document = {"traceEvents": [*names, *spans], "displayTimeUnit": "ns"}
        with replacing(Path(path)) as file:
            file.write(json.dumps(document).encode())


def _named(what: str, worker: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 0, "tid": worker, "args": {"name": name}}


def _by_name(span: Span) -> str:
    return span.name


def side_by_side(spans: Sequence[Span]) -> tuple[tuple[str, str], ...]:
    """Pairs of names of work that was done at the same moment."""
    return tuple((a.name, b.name) for n, a in enumerate(spans) for b in spans[n + 1 :] if a.overlaps(b))
