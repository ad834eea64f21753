"""Pages that are made from the code: the API reference, the commands, the gallery, the licences."""

from __future__ import annotations

import base64
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuning_db import connect

GALLERY = {  # example → arguments, so that all take seconds
    "00_first_taste": ["--points", "500"],
    "01_vector_add": ["--size", "1000"],
    "02_gemm_by_hand": ["--size", "100", "--threads", "2"],
    "03_tune_gemm": ["--size", "128", "--trials", "24"],
    "04_new_operator": ["--size", "8", "--channels", "16", "--trials", "3"],
    "07_lecture": ["--size", "32"],
    "08_argmax_rfactor": ["--size", "10007"],
}
LOG = "tuning.db"
DRAWN = ("03_tune_gemm",)  # examples whose search is drawn, too


def pages(root: Path) -> dict[str, str]:
    """Name → Markdown of every generated page."""
    return {
        "reference": reference(),
        "commands": commands(),
        "gallery": gallery(root),
        "licences": licences(root),
    }


def public_names() -> dict[str, Any]:
    """Every public name, as a program writes it → what it is."""
    import autotensor as at
    from autotensor import te

    names = {
        f"at.{name}": getattr(at, name) for name in at.__all__ if name not in ("te", "ops", "__version__")
    }
    names |= {f"at.ops.{name}": getattr(at.ops, name) for name in dir(at.ops) if not name.startswith("_")}
    return names | {f"te.{name}": getattr(te, name) for name in te.__all__}


def reference() -> str:
    """Signature and docstring of every public name."""
    parts = [
        "# API reference",
        "",
        "Made from the docstrings; `at` is `autotensor`, `te` is `autotensor.te`.",
    ]
    for name, value in public_names().items():
        parts += ["", f"## {name}", "", *_entry(name, value)]
        if inspect.isclass(value):
            for member, function in sorted(vars(value).items()):
                if not member.startswith("_") and inspect.isfunction(function):
                    parts += ["", f"### {name}.{member}", "", *_entry(f"{name}.{member}", function)]
    return "\n".join(parts) + "\n"


def _entry(name: str, value: Any) -> Iterator[str]:
    try:
        signature = re.sub(r" at 0x[0-9a-f]+", "", f"{name}{inspect.signature(value)}")
    except (TypeError, ValueError):  # a value, or a class whose signature Python does not know
        signature = name
    yield from _fence("python" if signature != name else "text", signature)
    if text := inspect.getdoc(value):
        yield ""
        yield from _fence("text", text)


def _fence(language: str, text: str) -> Iterator[str]:
    yield from (f"````{language}", text.rstrip(), "````")


def commands() -> str:
    """The help of every verb, by its parser."""
    from autotensor.cli.main import VERBS

    parts = [
        "# Commands",
        "",
        "What `autotensor VERB --help` prints; exit codes are in [serving](serving.md).",
    ]
    for verb, about in VERBS.items():
        parts += [
            "",
            f"## autotensor {verb}",
            "",
            about,
            "",
            *_fence("text", _run(["-m", "autotensor", verb, "--help"])),
        ]
    return "\n".join(parts) + "\n"


def gallery(root: Path) -> str:
    """Examples with what they print on the machine that built the site."""
    parts = ["# Gallery", "", "Each program with what it printed when this site was built, with small sizes."]
    for name, words in GALLERY.items():
        program = root / "examples" / f"{name}.py"
        title = name[3:].replace("_", " ").capitalize()
        parts += ["", f"## {title}", "", *_fence("python", program.read_text()), ""]
        with tempfile.TemporaryDirectory() as folder:
            parts += _fence("text", _run_in(folder, [str(program), *words]))
            if name in DRAWN:
                parts += ["", "How the search went, drawn by `autotensor explain TASK --plot search.png`:"]
                parts += ["", _picture_of_search(folder)]
    return "\n".join(parts) + "\n"


def _picture_of_search(folder: str) -> str:
    """The only task of the folder's log, as an HTML image that holds its bytes."""
    with connect(f"{folder}/{LOG}") as store:
        (task,) = {t.workload for t in store.trials()}
    _run_in(folder, ["-m", "autotensor", "explain", task, "--plot", "search.png"])
    data = base64.b64encode(Path(folder, "search.png").read_bytes()).decode()
    told = "Every trial and the best so far; measured against predicted times."
    return f'<img alt="{told}" src="data:image/png;base64,{data}">'


def _run(words: list[str]) -> str:
    """What Python prints in an empty folder, with an empty log."""
    with tempfile.TemporaryDirectory() as folder:
        return _run_in(folder, words)


def _run_in(folder: str, words: list[str]) -> str:
    """What Python prints in a folder, with the log there, 100 columns wide."""
    environment = {**os.environ, "AUTOTENSOR_DB": f"{folder}/{LOG}", "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def licences(root: Path) -> str:
    """Packages that the plain install needs directly, with the licence that each declares."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    rows = [
        "# Licences",
        "",
        "autotensor is Apache-2.0. It needs these packages; each says its own licence.",
        "",
    ]
    rows += ["| Package | Licence |", "|---|---|"]
    for requirement in declared:
        name = re.match(r"[\w-]+", requirement)
        assert name is not None
        try:
            rows.append(f"| {name[0]} | {licence_of(name[0])} |")
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
    return "\n".join(rows) + "\n"


def licence_of(package: str) -> str:
    """The SPDX expression of a package's metadata, or else its classifiers, or the first line of its text."""
    told = importlib.metadata.metadata(package)
    classified = [c.split(" :: ")[-1] for c in told.get_all("Classifier") or [] if c.startswith("License ::")]
    text = (told.get("License") or "").strip().splitlines()
    return told.get("License-Expression") or ", ".join(classified) or (text[0] if text else "see its files")
