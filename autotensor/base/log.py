"""The one logger. Lines have the levels of AUTOTENSOR_DEBUG, and a line that is switched off costs one
comparison.

    log.at(3, lambda: print_nest(state))     the callable runs only when the level is on
    log.warn("the cache cannot be written")

Lines go to the logger "autotensor". If the application has not configured logging, they appear on standard
error, or the writer of `shown_by` shows them (above a progress bar, say).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autotensor.base import switches

logger = logging.getLogger("autotensor")


def enabled(level: int) -> bool:
    """Whether lines of this DEBUG level are switched on now."""
    return switches.debug() >= level


def at(level: int, message: Callable[[], str] | str) -> None:
    """Log at DEBUG level `level` (1–6); `message` is called only if the level is on."""
    if enabled(level):
        _emit(
            logging.INFO if level == 1 else logging.DEBUG, message if isinstance(message, str) else message()
        )


def warn(message: str) -> None:
    """Log a warning, at every level. It does not stop the program."""
    _emit(logging.WARNING, message)


def _emit(level: int, message: str) -> None:
    if logger.hasHandlers():
        # The switch has decided already; an application's threshold for other libraries must not drop the
        # line.
        record = logger.makeRecord(logger.name, level, __file__, 0, message, (), None)
        logger.handle(record)
    else:
        _writers[-1](message)


def _print(message: str) -> None:
    print(message, file=sys.stderr)


_writers: list[Callable[[str], None]] = [_print]  # the last writer is used


@contextmanager
def shown_by(writer: Callable[[str], None]) -> Iterator[None]:
    """Inside the block `writer` writes the lines, in place of standard error; not thread-local."""
    _writers.append(writer)
    try:
        yield
    finally:
        _writers.remove(writer)


@contextmanager
def silent(name: str) -> Iterator[None]:
    """Silences a logger of another package, which writes a traceback before it raises the same error."""
    other = logging.getLogger(name)
    before, other.disabled = other.disabled, True
    try:
        yield
    finally:
        other.disabled = before
