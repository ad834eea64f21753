"""All errors, as one family of exceptions.

Every message is one sentence that names the object and the place (`what`), and where possible another one
that says how to repair the error (`fix`). `context` is an expensive explanation (a printed loop nest, say).
It is rendered only when a person reads the error: the search raises thousands of errors and looks only at the
type and `what`.
"""

from __future__ import annotations

from collections.abc import Callable


class AutotensorError(Exception):
    """Base of all errors that autotensor raises on purpose."""

    def __init__(self, what: str, *, fix: str = "", context: Callable[[], str] | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.context = context

    def __str__(self) -> str:
        parts = [self.what]
        if self.fix:
            parts.append(self.fix)
        if self.context is not None:
            parts.append("\n" + self.context())
        return " ".join(parts)


class TensorError(AutotensorError):
    """A tensor expression is malformed."""


class ScheduleError(AutotensorError):
    """A primitive cannot be applied, because the program would change its meaning."""


class LoweringError(AutotensorError):
    """A state cannot be turned into loops, or a pass produced an illegal program."""


class CodegenError(AutotensorError):
    """A backend cannot compile this program."""


class TargetError(AutotensorError):
    """A target is unknown, malformed, or lacks a requested ability."""


class ArgumentError(AutotensorError):
    """A compiled function was called with the wrong arguments."""


class ArtifactError(AutotensorError):
    """A compiled file cannot be read, or does not fit this machine."""


class GraphError(AutotensorError):
    """A model graph is malformed or needs something unsupported."""


class InputError(AutotensorError):
    """A person gave something that cannot be used: a name, a number, a file."""


class MeasureError(AutotensorError):
    """Measuring is not possible at all. A candidate that fails is not such an error."""
