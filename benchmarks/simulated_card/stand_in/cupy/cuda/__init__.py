"""CuPy's `cuda`: streams that do their work when the caller waits, events, graphs, and errors by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cupy.cuda import driver, memory, nvrtc, runtime, the_card

_current = threading.local()


class Stream:
    """A list of work in order. It is done only when the caller waits, but a launch that a card would refuse
    fails at once."""

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self._work: list[Callable[[], object]] = []
        self._captured: list[Callable[[], object]] | None = None
        self._outer: list[Stream] = []

    def enqueue(self, work: Callable[[], object]) -> None:
        the_card.check()
        (self._work if self._captured is None else self._captured).append(work)

    def synchronize(self) -> None:
        if self._captured is not None:
            raise runtime.CUDARuntimeError(900)
        the_card.check()
        work, self._work = self._work, []
        for step in work:
            step()

    def record(self, event: Any = None) -> Any:
        event = event if event is not None else Event()
        event.record(self)
        return event

    def begin_capture(self, mode: int | None = None) -> None:
        if self._captured is not None:
            raise runtime.CUDARuntimeError(900)
        self._captured = []

    def end_capture(self) -> Graph:
        if self._captured is None:
            raise runtime.CUDARuntimeError(901)
        found, self._captured = self._captured, None
        return Graph(found)

    def __enter__(self) -> Stream:
        self._outer.append(get_current_stream())
        _current.stream = self
        return self

    def __exit__(self, *error: object) -> None:
        _current.stream = self._outer.pop()


class Graph:
    """The work that a stream has captured."""

    def __init__(self, work: list[Callable[[], object]]) -> None:
        self._work = work

    def launch(self, stream: Stream | None = None) -> None:
        for step in self._work:
            (stream or get_current_stream()).enqueue(step)


class Event:
    """A point in a stream's work."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.at: float | None = None
        self._stream: Stream | None = None

    def record(self, stream: Stream | None = None) -> None:
        def now() -> None:
            self.at = time.perf_counter()

        self._stream = stream or get_current_stream()
        self._stream.enqueue(now)

    def synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds of the simulation; they are no measure of a card."""
    if start_event.at is None or end_event.at is None:
        raise runtime.CUDARuntimeError(600)
    return max(1e-6, (end_event.at - start_event.at) * 1e3)


def get_current_stream(device_id: int = -1) -> Stream:
    if not hasattr(_current, "stream"):
        _current.stream = Stream(null=True)
    found: Stream = _current.stream
    return found


class Device:
    """The only card."""

    def __init__(self, device: int | None = None) -> None:
        self._number = device or 0

    id = property(lambda self: self._number)
    compute_capability = property(lambda self: str(the_card.capability()))


Function, Module = the_card.LoadedKernel, the_card.LoadedModule


__all__ = [
    "Device",
    "Event",
    "Function",
    "Graph",
    "Module",
    "Stream",
    "driver",
    "get_current_stream",
    "get_elapsed_time",
    "memory",
    "nvrtc",
    "runtime",
]
