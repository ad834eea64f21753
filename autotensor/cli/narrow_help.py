"""Help that fits the terminal and cuts no sentence; Typer's own help is never narrower than 50 columns.

Parameters are named in plain words, whichever version of Typer or Click prints them:

    {FILE} [[RUN]] [[LOG]...]...   ──▶  FILE [RUN] [LOG…]
    FILE <path>, --by <day|commit> ──▶  FILE, --by day|commit
"""

from __future__ import annotations

import re
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
    for parameter in command.params:
        _name_plainly(parameter)
    for below in getattr(command, "commands", {}).values():
        below.short_help = below.get_short_help_str(WHOLE)  # folded in lists of verbs; else Click cuts it
        _set_formatter(below)


def _name_plainly(parameter: Any) -> None:
    """Makes a parameter name itself plainly in the line of usage and in the list of parameters."""
    is_argument = parameter.param_type_name == "argument"
    record = parameter.get_help_record

    def plain_record(ctx: Any) -> tuple[str, str] | None:
        found = record(ctx)
        return None if found is None else (plain_name(found[0], is_argument), plain_limits(found[1]))

    parameter.get_help_record = plain_record
    if is_argument:
        name = argument_usage(
            parameter.metavar or parameter.name.upper(), parameter.required, parameter.nargs
        )
        parameter.get_usage_pieces = lambda ctx: [name]


def plain_name(name: str, is_argument: bool) -> str:
    """A name without brackets. An argument has no type, and an option only its choices.

    >>> plain_name("FILE <path>", True), plain_name("--by <day|commit>", False)
    ('FILE', '--by day|commit')
    """
    return re.sub(r" <[^<>]*>", "", name) if is_argument else re.sub(r" <([^<>]*)>", r" \1", name)


def plain_limits(help: str) -> str:
    """The limits of a number, at the end of its help, in words.

    >>> plain_limits("Timed inferences.  [default: 30; x>=3]"), plain_limits("Share.  [0<=x<=1]")
    ('Timed inferences.  [default: 30; at least 3]', 'Share.  [0 to 1]')
    """
    text = re.sub(r"([-\d.]+)<=x<=([-\d.]+)\]$", r"\1 to \2]", help)
    return re.sub(r"x<=([-\d.]+)\]$", r"at most \1]", re.sub(r"x>=([-\d.]+)\]$", r"at least \1]", text))


def argument_usage(name: str, required: bool, nargs: int) -> str:
    """An argument in the line of usage.

    >>> argument_usage("FILE", True, 1), argument_usage("RUN", False, 1), argument_usage("LOG", False, -1)
    ('FILE', '[RUN]', '[LOG…]')
    """
    several = f"{name}…" if nargs != 1 else name
    return several if required else f"[{several}]"


def _formatter(context: Any) -> type:
    """A formatter that gives the names of options at most a third of the width."""

    class Formatter(context.formatter_class):  # type: ignore[misc]  # Typer's, or Click's by its version
        def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
            super().write_dl(rows, min(col_max, self.width // 3), col_spacing)

    return Formatter
