"""Turns: waits, for a limited time, until other processes on this machine neither time nor compile.

    turns = Turns(left_s)
    with turns.timing() as alone: …       no other process times or compiles; False: the wait was too long
    with turns.compiling() as alone: …    no other process times

Times that other processes disturb are rough, but a run that waits until its deadline has no times at all. So
a run with a deadline waits for a share WAIT_SHARE of that time in total. A run without a deadline waits for
at most `lock.MOST_WAIT_S` at a time. Then the run continues without the lock. The limit also helps if the
lock's holder was stopped and never releases it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from autotensor.base import log
from autotensor.runtime.timing_lock import MOST_WAIT_S, BusyError, compiling, timing_lock
from autotensor.search.measuring.measure_request import OutOfTime

WAIT_SHARE = 0.25  # share of the time until the deadline; two runs that alternate wait half the time each
QUIETLY_S = 10.0  # seconds of one wait before a message is printed

Lock = Callable[[float | None], AbstractContextManager[None]]


class Turns:
    """The waits of one run, and the waiting time that is left."""

    def __init__(self, left_s: Callable[[], float] = lambda: float("inf")) -> None:
        """left_s: returns the seconds until the run's deadline. The value at this moment counts as the whole
        time."""
        self._left_s = left_s
        self._budget_s = WAIT_SHARE * max(0.0, left_s())
        self.waited_s = 0.0
        self._said = False  # whether a warning about rough times was printed

    @contextmanager
    def timing(self, beside: bool = False) -> Iterator[bool]:
        """Waits until no other process times or compiles, and keeps this state inside the block. Yields False
        if the wait was too long. beside: other processes may compile on spare cores.

        Raises OutOfTime if the deadline passed during the wait.
        """
        with self._turn(partial(timing_lock, beside=beside), "timing") as alone:
            yield alone

    @contextmanager
    def compiling(self, spare: bool = False) -> Iterator[bool]:
        """The same for compiling: others may compile, too. spare: others may also time, on other cores."""
        with self._turn(partial(compiling, spare=spare), "compiling") as alone:
            yield alone

    @contextmanager
    def _turn(self, lock: Lock, what: str) -> Iterator[bool]:
        with ExitStack() as held:
            yield self._wait(held, lock, what)

    def _wait(self, held: ExitStack, lock: Lock, what: str) -> bool:
        """Waits for the lock. Returns whether it is held now."""
        patience_s = max(0.0, min(MOST_WAIT_S, self._budget_s - self.waited_s, self._left_s()))
        began = time.monotonic()
        try:
            try:
                held.enter_context(lock(min(QUIETLY_S, patience_s)))
            except BusyError as busy:
                if patience_s <= QUIETLY_S:
                    raise
                log.warn(f"{busy.what.partition(';')[0]}; waiting.")
                held.enter_context(lock(patience_s - QUIETLY_S))
        except BusyError as busy:
            if self._left_s() <= 0.0:
                raise OutOfTime(busy.what) from busy
            if not self._said:
                log.warn(f"{busy.what.partition(';')[0]}; {what} meanwhile: times are rough.")
            self._said = True
            return False
        finally:
            self.waited_s += time.monotonic() - began
        return True
