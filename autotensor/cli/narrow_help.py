"""Help that fits the terminal and cuts no sentence; Typer's own help is never narrower than 50 columns."""

from __future__ import annotations

from typing import Any

WIDEST = 80  # also without a terminal
WHOLE = 1000  # characters; more than any first sentence has


def fit(command: Any, width: int | None) -> dict[str, Any]:
    """Makes a Typer command and its subcommands print help of at most `width` columns.

    Gives the options for the context in which the command runs.
    """
    _set_formatter(command)
    return {"terminal_width": min(width or WIDEST, WIDEST) - 2, "help_option_names": ["-h", "--help"]}


def _set_formatter(command: Any) -> None:
    context: Any = command.context_class
    command.context_class = type("Context", (context,), {"formatter_class": _formatter(context)})
    for below in getattr(command, "commands", {}).values():
        below.short_help = below.get_short_help_str(WHOLE)  # folded in lists of verbs; else Click cuts it
        _set_formatter(below)


def _formatter(context: Any) -> type:
    """A formatter that gives the names of options at most a third of the width."""

    class Formatter(context.formatter_class):  # type: ignore[misc]  # Typer's, or Click's by its version
        def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
            super().write_dl(rows, min(col_max, self.width // 3), col_spacing)

    return Formatter
