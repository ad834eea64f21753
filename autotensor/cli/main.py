"""The command line: finds the verb, runs it, turns every error into one sentence and an exit code.

    0 done    1 error    2 wrong usage    3 no time to measure anything    130 interrupted (Ctrl-C)
    143 terminated

A traceback is printed with AUTOTENSOR_DEBUG=1 or more.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from autotensor.cli import streams
from autotensor.insight.text_width import columns, fold

VERBS = {
    "tune": "Search for fast schedules of a model; leaves a runnable .atm file.",
    "compile": "Compile a model with the best schedules of the log.",
    "run": "Run a model or .atm file on a photo, an array, or random input.",
    "bench": "Time a model or .atm file, as a whole and kernel by kernel.",
    "verify": "Run a model kernel by kernel against float64; name the first that is wrong.",
    "compare": "Compare a quantised .onnx file with the one in floats: error by layer, time.",
    "models": "List the built-in models.",
    "tasks": "List what a model computes, and the best known time of each part.",
    "show": "Print a task or trial: expressions, loops, IR, assembly; or what an .atm file holds.",
    "explain": "Why a schedule takes the time it takes; a task's fastest trials; pictures.",
    "report": "Write what a run did as one HTML page, or two runs side by side.",
    "watch": "Follow a run while it is tuned, by its log.",
    "db": "Look into a tuning log; export, import, merge, check it.",
    "fleet": "Measure on several machines: start a worker, list them, check them.",
    "doctor": "Show abilities of this machine, and installed and missing packages.",
}
COMPLETION = ("--install-completion", "--show-completion")  # switch it on in a shell; print its script
OK, ERROR, USAGE, NOTHING, INTERRUPTED = 0, 1, 2, 3, 130
COLLECT_EVERY = 100_000  # objects; most of a verb's objects live on, and collecting took a tenth of the time


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    if argv is None:  # the command's own process
        gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])
        streams.prepare()
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else "--help"
    if verb in COMPLETION or "_AUTOTENSOR_COMPLETE" in os.environ:
        _complete(words)
    try:
        code = _answer(verb, words[1:])
        sys.stdout.flush()  # so that a write error is reported like any other
    except BrokenPipeError:  # `autotensor models | head -1`: the reader has ended
        code = OK
    except Exception as error:  # the edge of the program
        code = _explain(error, verb)
    except KeyboardInterrupt:
        code = _fail("interrupted.", INTERRUPTED)
    _drop_what_is_not_taken()
    return code


def _drop_what_is_not_taken() -> None:
    """Drops unwritten output: otherwise Python's last flush reports the same write error again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(verb: str, rest: Sequence[str]) -> int:
    if verb == "help" and rest and rest[0] in VERBS:
        return _run(rest[0], [*rest[1:], "--help"])
    if verb in ("-h", "--help", "help"):
        print(overview(columns(sys.stdout)))
        return OK
    if verb in ("-V", "--version"):
        from autotensor import __version__

        print(f"autotensor {__version__}")
        return OK
    if verb not in VERBS:
        from autotensor.cli.usage_errors import unknown_verb

        return _fail(unknown_verb(verb, tuple(VERBS)), USAGE)
    return _run(verb, rest)


def overview(width: int | None = None) -> str:
    """The text of `autotensor --help`; static, so that it is quick."""
    return "\n".join(
        [
            "Usage: autotensor VERB [OPTIONS] …",
            "",
            fold("Compile and tune tensor programs for this machine.", width, hang=0),
            "",
            "Verbs:",
            *(fold(f"  {verb:<9} {about}", width, hang=10) for verb, about in VERBS.items()),
            "",
            "Examples:",
            fold("  autotensor tune mlp --trials 64          # a first taste, a minute", width),
            fold("  autotensor tune resnet --trials 2000     # ResNet-50; Ctrl-C keeps the best", width),
            fold("  autotensor run resnet50.atm --input photo.jpg", width),
            "",
            fold("`autotensor VERB --help` says more about a verb.", width, hang=0),
            fold("`autotensor --version` prints the version.", width, hang=0),
            fold("`autotensor --install-completion` lets your shell complete words by Tab.", width, hang=0),
        ]
    )


def _complete(words: Sequence[str]) -> NoReturn:
    """Answers a shell that completes words, or does what COMPLETION says; Typer ends the process.

    Only the verb that was typed is imported; the others are names.
    """
    import typer
    import typer.main
    from typer.core import TyperCommand

    root = typer.Typer(rich_markup_mode=None)
    root.callback()(lambda: None)
    group: Any = typer.main.get_command(root)
    typed = f"{os.environ.get('COMP_WORDS', '')} {os.environ.get('_TYPER_COMPLETE_ARGS', '')}".split()
    for verb, about in VERBS.items():
        group.commands[verb] = _command(verb) if verb in typed else TyperCommand(verb, help=about)
    group.main(args=list(words), prog_name="autotensor")
    sys.exit(OK)


def _command(verb: str) -> Any:
    import typer.main

    return typer.main.get_command(importlib.import_module(f"autotensor.cli.verbs.{verb}").app)


def _run(verb: str, words: Sequence[str]) -> int:
    import typer

    from autotensor.base import log
    from autotensor.cli.narrow_help import fit
    from autotensor.cli.output import tell

    command = _command(verb)
    how = fit(command, columns(sys.stdout))
    try:  # not command.main: that would turn Ctrl-C into an exit code without a word
        with log.shown_by(tell), command.make_context(f"autotensor {verb}", list(words), **how) as context:
            command.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    return OK


def _explain(error: Exception, verb: str) -> int:
    """Print the error as one sentence; gives the exit code."""
    from autotensor.base.errors import AutotensorError
    from tuning_db.errors import StoreError

    if _debugging():
        import traceback

        traceback.print_exc()
    if callable(message := getattr(error, "format_message", None)):  # Typer's and Click's usage errors
        from autotensor.cli.usage_errors import usage_sentence

        command = getattr(getattr(error, "ctx", None), "command_path", f"autotensor {verb}")
        return _fail(usage_sentence(error, message(), command), USAGE)
    if isinstance(error, AutotensorError | StoreError):
        return _fail(f"{error.what} {error.fix}", ERROR)
    if isinstance(error, ModuleNotFoundError):
        from autotensor.cli.usage_errors import missing_package

        return _fail(missing_package(error.name or ""), ERROR)
    if isinstance(error, MemoryError):
        return _fail("there is not enough memory for this.", ERROR)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{str(error.strerror or error).rstrip('.')}.", ERROR)
    what = str(error) or "no message"
    return _fail(
        f"internal error, please report it: {type(error).__name__}: {what} (AUTOTENSOR_DEBUG=1 shows where).",
        ERROR,
    )


def _fail(sentence: str, code: int) -> int:
    print(fold(f"autotensor: {' '.join(sentence.split())}", columns(sys.stderr)), file=sys.stderr)
    return code


def _debugging() -> bool:
    level = os.environ.get("AUTOTENSOR_DEBUG", "").strip()
    return level.isdecimal() and int(level) > 0  # another value is an error, which one sentence reports


if __name__ == "__main__":
    sys.exit(main())
