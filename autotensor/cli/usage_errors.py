"""Wrong usage in one sentence: messages of Typer and pydantic in plain words, advice for tvmc's options, and
how missing packages are installed.

Input should be greater than or equal to 1   ──▶  it must be at least 1
No such option: --tuning-records             ──▶  … Leave it out: the tuning log is used by itself; …
"""

from __future__ import annotations

import re

from autotensor.base.registry import nearest, suggest

OPTIONAL = {  # module → package and its use; has only packages that autotensor uses
    "onnx": ("onnx", "ONNX files"),
    "torch": ("torch", "PyTorch models"),
    "cupy": ("cupy-cuda12x, or cupy-cuda13x", "the target cuda"),
    "pyopencl": ("'pyopencl[pocl]'", "the target opencl"),
    "psycopg": ("'psycopg[binary]'", "a tuning log on a PostgreSQL server"),
    "distributed": ("distributed", "tuning and training on several machines"),
    "PIL": ("pillow", "photos as input"),
    "matplotlib": ("matplotlib", "pictures by explain --plot"),
    "altair": ("'autotensor[report]'", "pages by report"),
}
_PLAIN = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"Input should be greater than or equal to (\S+)", r"it must be at least \1"),
        (r"Input should be less than or equal to (\S+)", r"it must be at most \1"),
        (r"Input should be a valid integer.*", "it must be a whole number"),
        (r"Input should be a valid number.*", "it must be a number"),
        (r"Input should be ", "it must be "),
        (r"Value error, ", ""),
        (r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", r"unexpected argument: \1"),
    )
)
WITHOUT_VERB = ("--help", "--version", "--install-completion", "--show-completion")
_SAMPLES = "Leave it out: the search decides how often and how long it measures."
_NO_PASSES = "Leave it out: there are no passes to configure, and kernels are always optimised."
_FLEET = "Write --fleet ADDRESS (docs/fleet.md)."
_TVMC = {  # option of tvmc → what to do instead
    **dict.fromkeys(("--number", "--repeat", "--min-repeat-ms", "--timeout", "--parallel"), _SAMPLES),
    **dict.fromkeys(("--opt-level", "--pass-config", "--disabled-pass"), _NO_PASSES),
    **dict.fromkeys(("--rpc-key", "--rpc-tracker", "--port", "--tracker", "--hostname"), _FLEET),
    **dict.fromkeys(("--executor", "--runtime", "--device", "--target-host"), "Leave it out."),
    "--cross-compiler": "Write --target TEXT: no compiler is needed (docs/deploy.md).",
    "--dump-code": "`autotensor show` prints code of a task or trial.",
    "--early-stopping": "Write --until-gain-below SHARE, or --deadline TIME.",
    "--model-format": "Leave it out: the file's name says it.",
    "--outputs": "Write --output FILE.npz.",
    "--profile": "`autotensor bench` times a model kernel by kernel.",
    "--target-llvm-mcpu": 'Write --target "llvm -mcpu=NAME".',
    "--desired-layout": "Leave it out: schedules choose layouts.",
    "--enable-autoscheduler": "Leave it out: one search serves all.",
    "--fill-mode": "Leave it out: random input is the default.",
    "--input-shapes": "Write --shape NAME=1x3x224x224.",
    "--inputs": "Write --input FILE.npz.",
    "--output": "Write -o FILE.atm.",
    "--output-format": "Leave it out: an .atm file is written, or a C library with --emit c.",
    "--print-time": "`autotensor bench` times a model.",
    "--print-top": "Leave it out: the best classes are printed by themselves.",
    "--tuner": "Write --policy NAME.",
    "--tuning-records": "Leave it out: the tuning log is used by itself; --db names another.",
}


def usage_sentence(error: Exception, message: str, command: str) -> str:
    """The error and its remedy. message: Typer's text of the error. command: `COMMAND --help` tells more.

    >>> usage_sentence(ValueError(), "'--n': Input should be greater than or equal to 1.", "autotensor tune")
    "'--n': it must be at least 1. See `autotensor tune --help`."
    """
    for pattern, plain in _PLAIN:
        message = pattern.sub(plain, message)
    option = getattr(error, "option_name", "")
    advice = f"See `{command} --help`."
    if type(error).__name__ == "NoSuchOption":  # of Typer or of Click, depending on Typer's version
        near = "" if option in _TVMC else nearest(option, tuple(getattr(error, "possibilities", None) or ()))
        message = f"No such option: {option}. {near}"
        advice = _TVMC.get(option, advice)
    message = message.strip().rstrip(".")
    return f"{message}{'' if message.endswith('?') else '.'} {advice}"


def missing_package(name: str) -> str:
    """The sentences for a module that cannot be imported.

    >>> missing_package("onnx.helper")
    "the package 'onnx.helper' is not installed. pip install onnx."
    """
    remedy = "The command line needs all packages of a full installation; at.load in Python needs NumPy and "
    remedy += "llvmlite only."
    if (module := name.partition(".")[0]) in OPTIONAL:
        remedy = f"pip install {OPTIONAL[module][0]}."
    return f"the package {name!r} is not installed. {remedy}"


def unknown_verb(verb: str, verbs: tuple[str, ...]) -> str:
    """The sentences for a verb that does not exist.

    >>> unknown_verb("tvmc", ("tune", "run"))
    "verb 'tvmc' is unknown. Write autotensor in place of tvmc: autotensor tune MODEL."
    >>> unknown_verb("--hlep", ("tune", "run"))
    "No such option: --hlep. Did you mean '--help'? See `autotensor --help`."
    """
    if verb == "tvmc":
        return f"verb {verb!r} is unknown. Write autotensor in place of tvmc: autotensor tune MODEL."
    if verb.startswith("-"):
        advice = nearest(verb, WITHOUT_VERB) or "Options follow the verb. "
        return f"No such option: {verb}. {advice}See `autotensor --help`."
    return f"verb {verb!r} is unknown. {suggest(verb, verbs)}"
