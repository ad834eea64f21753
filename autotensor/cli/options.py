"""Options that several verbs share, and how they are spelled. Imports nothing heavy.

Related options are a group, a frozen dataclass; `@grouped` makes an option of the verb from each field:

    @app.command()
    @grouped
    def bench(model: ModelOrFile, source: Source, log: Log, json: AsJson = False) -> None: …

    bench MODEL [--weights FILE] [--batch N] [--shape NAME=N] [--db FILE] [--no-shipped] [--json]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from autotensor.cli.extents import EXTENT, parsed_extent

if TYPE_CHECKING:
    from autotensor.base.target import Target

Db = Annotated[
    str | None,
    typer.Option("--db", metavar="FILE|URL", help="Tuning log. Default: AUTOTENSOR_DB, else the user's own."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of all random numbers.")]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        help="Threads of a kernel. Default: AUTOTENSOR_NUM_THREADS, else OMP_NUM_THREADS, else all cores.",
    ),
]
TargetText = Annotated[
    str | None,
    typer.Option("--target", metavar="TEXT", help='E.g. "llvm -mcpu=znver4". Default: this machine.'),
]
NumericsText = Annotated[
    str | None,
    typer.Option(
        "--numerics",
        metavar="fast|strict|bf16|fp16",
        help="strict forbids algorithms that round differently (Winograd); bf16 and fp16 round weights. "
        "Default: fast, which allows such algorithms while their error is small.",
    ),
]
KeepFloat32 = Annotated[
    str | None,
    typer.Option(
        "--keep-float32",
        metavar="NAME,...",
        help="Layers that bf16 and fp16 leave in float32, by names of weights: head, 'blocks.*.attn'.",
    ),
]


def _without_shipped(ctx: typer.Context, value: bool) -> bool:
    """Sets the switch while the command runs."""
    if value:
        from autotensor.base import switches

        ctx.with_resource(switches.override(no_shipped=True))
    return value


NoShipped = Annotated[
    bool,
    typer.Option(
        "--no-shipped",
        callback=_without_shipped,
        help="Ignore the tuned schedules that come with autotensor, and their cost model.",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", "-f", help="Replace an output file that holds something else."),
]


def _one_form(ctx: typer.Context, value: bool) -> bool:
    """Refuses --json with --csv before the verb does anything."""
    if value and (ctx.params.get("json") or ctx.params.get("csv")):
        raise typer.BadParameter("--json and --csv exclude each other; give one.")
    return value


AsJson = Annotated[
    bool, typer.Option("--json", callback=_one_form, help="Print one JSON document on standard output.")
]
AsCsv = Annotated[
    bool, typer.Option("--csv", callback=_one_form, help="Print comma-separated values on standard output.")
]
ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A built-in model (`autotensor models` lists them), or an .onnx or .pt2 file."
    ),
]
ModelOrFile = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|FILE.atm", help="A built-in model, an .onnx or .pt2 file, or a compiled file."
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        metavar="FILE",
        help="Weights by the names of torchvision's or transformers' checkpoints: .safetensors or .npz.",
    ),
]


def _batch(given: str | int) -> Any:
    """A number, or the te.var of a range."""
    text = str(given)  # the default is a number
    if not re.fullmatch(EXTENT, text) or text == "0":
        raise typer.BadParameter(f"{text!r} is neither a number, at least 1, nor a range like 1..8.")
    return parsed_extent(text, "batch", {})


Batch = Annotated[
    Any,
    typer.Option(
        "--batch",
        parser=_batch,
        metavar="N|N..M",
        help="Images (or rows) at once; 1..8: any number of them. "
        "Default: 1. A compiled file with such a range takes a number for this call.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=N[xN..]",
        help="Shape of an .onnx or .pt2 input, or size of an open dimension. N may be a range, from which "
        "each call chooses: batch=1..8, x=n:1..8x3x224x224. A compiled file with such ranges takes the "
        "extents of this call.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]VALUE",
        help="A photo, a .npy file, or a .npz file of all inputs by name; NAME=VALUE gives one input, as a "
        "number or a file. Default: random.",
    ),
]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=VALUE",
        help="Fixes an input's value, so that the compiled model no longer has this input. E.g. sr=16000.",
    ),
]


@dataclass(frozen=True, slots=True)
class Source:
    """Options with which the graph of MODEL is built."""

    weights: Weights = None
    batch: Batch = None
    shape: Shapes = None

    @property
    def batch_size(self) -> Any:
        """The batch of a model that is compiled: a number, or the te.var of a range."""
        return 1 if self.batch is None else self.batch

    @property
    def fixed(self) -> Sequence[str]:
        """Inputs that are not inputs of the graph, with their values."""
        return ()


@dataclass(frozen=True, slots=True)
class FixedSource(Source):
    """The same options, and --input, which fixes values of inputs."""

    input: Given = None

    @property
    def fixed(self) -> Sequence[str]:
        return self.input or ()


@dataclass(frozen=True, slots=True)
class Machine:
    """The target of the kernels. `chosen` raises TargetError."""

    threads: Threads = None
    target: TargetText = None

    def chosen(self) -> Target:
        return target_of(self.target, self.threads)


@dataclass(frozen=True, slots=True)
class NumericMachine(Machine):
    """The same options, and the algorithms that kernels may use."""

    numerics: NumericsText = None
    keep_float32: KeepFloat32 = None

    def chosen(self) -> Target:
        return self._of(self.target)

    def each_of(self, processors: str | None) -> list[Target]:
        """The targets of `--for`; without it, the target of `--target`."""
        if processors is None:
            return [self.chosen()]
        if self.target is not None:
            raise typer.BadParameter("give --target or --for, not both.", param_hint="'--for'")
        names = dict.fromkeys(name.strip() for name in processors.split(","))
        if "" in names:
            raise typer.BadParameter(f"{processors!r} has an empty name.", param_hint="'--for'")
        if split := next((name for name in names if len(name.split()) > 1), ""):
            raise typer.BadParameter(
                f"{split!r} has spaces; write commas between names.", param_hint="'--for'"
            )
        return [self._of(f"llvm -mcpu={name}") for name in names]

    def _of(self, target: str | None) -> Target:
        more = {"numerics": self.numerics, "keep-float32": self.keep_float32}
        return target_of(target, self.threads, {name: v for name, v in more.items() if v is not None})


@dataclass(frozen=True, slots=True)
class Log:
    """Sources of schedules."""

    db: Db = None
    no_shipped: NoShipped = False  # its callback has set the switch


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with options as Typer needs them: each group is replaced by its fields, in order."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options: list[Parameter] = []
    for name, option in signature(verb).parameters.items():
        if name in groups:
            options += _options_of(groups[name])
        else:
            options.append(option.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(verb)
    def spread(**values: Any) -> None:
        made = {n: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for n, kind in groups.items()}
        verb(**values, **made)

    spread.__annotations__ = {}
    spread.__signature__ = Signature(options)  # type: ignore[attr-defined]  # inspect reads this first
    return spread


def _options_of(group: Any) -> list[Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=types[f.name])
        for f in fields(group)
    ]


DEADLINE = "'--deadline'"  # the only option that takes a duration
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


def new_app(about: str | None = None) -> typer.Typer:
    """A Typer app for one verb. Its help is plain text, because loading rich takes longer than most verbs."""
    return typer.Typer(
        help=about, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )


def example(*lines: str) -> str:
    """The epilog of a verb's help; \\b keeps its line breaks."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def duration_s(text: str) -> float:
    """Seconds of a duration.

    >>> duration_s("3m"), duration_s("1h30m"), duration_s("2.5s")
    (180.0, 5400.0, 2.5)
    """
    compact = text.strip().lower().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        raise typer.BadParameter(
            f"{text!r} has no unit. Write {compact}s, {compact}m or {compact}h.", param_hint=DEADLINE
        )
    parts = _PART.findall(compact)
    if not parts or "".join(n + unit for n, unit in parts) != compact:
        raise typer.BadParameter(f"{text!r} is not a duration. Write 90s, 3m or 1h30m.", param_hint=DEADLINE)
    seconds = sum(float(n) * _UNITS[unit] for n, unit in parts)
    if not 0 < seconds < float("inf"):
        raise typer.BadParameter(f"{text!r} is not a duration above zero.", param_hint=DEADLINE)
    return seconds


def share_of(text: str, hint: str) -> float:
    """A share, written as a fraction or in percent.

    >>> share_of("1%", ""), share_of("0.5 %", ""), share_of("0.01", "")
    (0.01, 0.005, 0.01)
    """
    compact = text.replace(" ", "")
    number, is_percent = compact.removesuffix("%"), compact.endswith("%")
    if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", number):
        raise typer.BadParameter(f"{text!r} is not a share. Write 1% or 0.01.", param_hint=hint)
    share = float(number) / 100.0 if is_percent else float(number)
    if not 0.0 <= share < 1.0:
        meant = f" Write {number}% for {number} percent." if not is_percent and share < 100.0 else ""
        raise typer.BadParameter(f"{text!r} is not below 100 %.{meant}", param_hint=hint)
    return share


def warn_of_threads(threads: int | None) -> None:
    """Warns when --threads is more than the number of cores."""
    from autotensor.base.target import usable_cores
    from autotensor.cli.output import tell

    cores = usable_cores()
    if threads is not None and threads > cores:
        tell(
            f"Note: --threads {threads} on {cores} usable core{'s' * (cores != 1)}: they take turns, "
            f"which is slower than --threads {cores}."
        )


def target_of(text: str | None, threads: int | None, more: Mapping[str, str] | None = None) -> Target:
    """The target of --target and --threads. more: values of further options that belong to the target."""
    import shlex

    from autotensor.base import switches
    from autotensor.base.target import parse

    if text is None or "-mcpu" not in text:  # otherwise it may be another machine
        warn_of_threads(threads)
    options = "".join(f" -{name}={shlex.quote(value)}" for name, value in (more or {}).items())
    found = parse(f"{text or 'llvm'}{options}" if options else text)
    count = threads or (switches.num_threads() if text is None or "-threads" not in text else 0)
    return found.with_threads(count) if count else found
