"""Ctrl-C, SIGTERM and SIGHUP while tuning: the first requests a clean stop, the second ends at once.

Before the search's first check there is nothing to finish, so even the first signal ends at once.

with Interrupts() as stop:
    tune_model(…, stopped=stop.asked)
stop.signal      the first signal that came, or None
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from autotensor.cli.output import tell

GRACE_S = 2.0  # from the second signal to the end, whatever the program is waiting for


class Interrupts:
    """Signal handlers inside a `with` block (of the main thread; elsewhere it does nothing)."""

    def __init__(self, what: str = "after this batch") -> None:
        self.signal: int | None = None
        self._what = what
        self._heard = False  # whether the search has checked `asked`, and so will stop
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        self._heard = True
        return self.signal is not None

    @property
    def code(self) -> int:
        """The exit code that shells expect: 130 after SIGINT, 143 after SIGTERM; 0 without a signal."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM]
            hangup = getattr(signal, "SIGHUP", None)
            if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:  # as under `nohup`
                numbers.append(hangup)
            for number in numbers:
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        first, self.signal = self.signal is None, number
        if first and self._heard:
            tell(f"\nStopping {self._what}; once more stops at once.")
            return
        # Workers end with this process. Code that waits for them in C may not see an exception for seconds.
        timer = threading.Timer(GRACE_S, os._exit, (128 + number,))
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt
