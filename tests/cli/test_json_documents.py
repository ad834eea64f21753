"""docs/command-line.md lists exactly the fields that each verb prints with `--json`."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cli_verbs
import pytest
import typer.main
from cli_tools import ROOT, cli
from commits import COMMITS

from autotensor.cli import main
from autotensor.cli.main import VERBS
from autotensor.search.machine.selfcheck import SelfCheck

PAGE = ROOT / "docs" / "command-line.md"
FLEET = {"fleet status", "fleet check"}
KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """One line of a list: a name, its kind, and the lines that are indented below it."""

    name: str
    kind: str
    below: dict[str, Field]

    @property
    def is_optional(self) -> bool:
        return self.name.endswith("?")


def parsed(lines: list[str], indent: int = 0) -> dict[str, Field]:
    """Name → field; "" is a document that is itself a list."""
    found: dict[str, Field] = {}
    while lines and len(lines[0]) - len(lines[0].lstrip()) == indent:
        line = lines.pop(0).split("#")[0].strip()
        name, _, kind = line.partition(": ") if ": " in line else ("", "", line)
        found[name.rstrip("?")] = Field(name, kind, parsed(lines, indent + 2))
    return found


def documents() -> dict[str, dict[str, Field]]:
    """Verb → the fields of its document."""
    found = {}
    for verb, block in re.findall(
        r"\n### `autotensor (.*?)`\n.*?```text\n(.*?)```", PAGE.read_text(), re.DOTALL
    ):
        rest = block.splitlines()
        found[verb] = parsed(rest)
        assert not rest, f"{verb}: {rest[0]!r} is indented by no field"
    return found


DOCUMENTS = documents()


def differences(value: Any, kind: str, below: dict[str, Field], where: str) -> Iterator[str]:
    """The places of values whose kind differs from the page."""
    if kind == "any":
        return
    for one in kind.split(" or "):
        if one.startswith(("object", "map of ")) and isinstance(value, dict):
            inner = one.removeprefix("map of ")
            if inner == one:
                yield from _fields(value, below, where)
            for key, v in value.items() if inner != one else ():
                yield from differences(v, inner, below, f"{where}.{key}")
            return
        if one.startswith("list of ") and isinstance(value, list):
            for v in value:
                yield from differences(v, one.removeprefix("list of "), below, f"{where}[]")
            return
        if type(value) in KINDS.get(one, ()):
            return
    yield f"{where} is {value!r}, not {kind}"


def _fields(value: dict[str, Any], below: dict[str, Field], where: str) -> Iterator[str]:
    for name in value.keys() - below.keys():
        yield f"{where}.{name} is not on the page"
    for name, field in below.items():
        if name in value:
            yield from differences(value[name], field.kind, field.below, f"{where}.{name}")
        elif not field.is_optional:
            yield f"{where}.{name} is missing"


def check(verb: str, text: str) -> None:
    fields_ = DOCUMENTS[verb]
    if "" in fields_:
        found = [*differences(json.loads(text), fields_[""].kind, fields_[""].below, verb)]
    else:
        found = [*differences(json.loads(text), "object", fields_, verb)]
    assert not found


def commands(command: Any, name: str) -> Iterator[str]:
    """Names of a command, and of those below it, that have --json."""
    if any("--json" in p.opts for p in command.params):
        yield name
    for below, c in getattr(command, "commands", {}).items():
        yield from commands(c, f"{name} {below}")


def test_every_verb_with_json_is_on_the_page() -> None:
    apps = {verb: import_module(f"autotensor.cli.verbs.{verb}").app for verb in VERBS}
    have = {c for verb, app in apps.items() for c in commands(typer.main.get_command(app), verb)}
    assert DOCUMENTS.keys() == cli_verbs.VERBS.keys() | FLEET
    assert {re.sub(r" (--.*|[A-Z].*)$", "", verb) for verb in DOCUMENTS} == have


def test_exit_codes_are_on_the_page() -> None:
    codes = {
        int(c)
        for row in re.findall(r"^\| ([\d, ]+) \|", PAGE.read_text(), re.MULTILINE)
        for c in row.split(",")
    }
    assert codes == {main.OK, main.ERROR, main.USAGE, main.NOTHING, main.INTERRUPTED, 128 + signal.SIGTERM}


def test_a_wrong_document_is_told() -> None:
    path = {"path": "log.db", "exists": True}
    assert not [*differences(path, "object", DOCUMENTS["db path"], "x")]
    wrong = {"path": 3, "exist": True}
    assert set(differences(wrong, "object", DOCUMENTS["db path"], "x")) == {
        "x.exist is not on the page", "x.exists is missing", "x.path is 3, not text",
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cli_verbs.filled(tmp_path_factory.mktemp("json"))


@pytest.mark.parametrize("verb", cli_verbs.VERBS)
@pytest.mark.sample(15)
def test_documents_are_as_the_page_says(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli_verbs.enter(folder, monkeypatch)
    said = cli(*cli_verbs.VERBS[verb], "--json")
    assert said.code == 0, said.err
    check(verb, said.out)


@pytest.mark.parametrize(
    "words", [["mlp/0", "--default"], ["mlp/0", "--default", "--target", "cuda"], ["10"]]
)
def test_other_schedules(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default, one of a card with shared memory, a failure."""
    cli_verbs.enter(folder, monkeypatch)
    said = cli("explain", *words, "--json")
    assert said.code == 0, said.err
    check("explain TRIAL", said.out)


@pytest.mark.parametrize("verb", ["run", "bench", "verify"])
def test_files_with_run_time_extents(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli_verbs.enter(folder, monkeypatch)
    assert cli("compile", "mlp", "--batch", "1..2", "--out", "open.atm").code == 0
    said = cli(verb, "open.atm", "--json", *(["--repeat", "3"] if verb == "bench" else []))
    assert said.code == 0, said.err
    assert json.loads(said.out)["extents"] == {"batch": 2}
    check(verb, said.out)


def test_regressions_are_as_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs' table has a comparison without any; the other way round there is one."""
    cli_verbs.enter(folder, monkeypatch)
    said = cli("db", "regressions", *reversed(COMMITS), "--db", cli_verbs.RUNS, "--json")
    assert said.code == 1
    assert json.loads(said.out)["rows"]
    check("db regressions", said.out)


def test_the_check_of_equal_kernels() -> None:
    assert list(DOCUMENTS["doctor"]["aa"].below) == [f.name for f in fields(SelfCheck)]


class Workers:
    """A fleet of one worker, without a scheduler."""

    def __init__(self, scheduler: str) -> None:
        self.engine = self

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def described(self) -> dict[str, Any]:
        target = SimpleNamespace(num_cores=2)
        machine = SimpleNamespace(cpu_model="a processor")
        who = SimpleNamespace(host=SimpleNamespace(name="host"), code=SimpleNamespace(version="1"))
        return {"w": (SimpleNamespace(tag="t", machine=machine, target=target, code="0123456789"), who)}

    def workers(self) -> dict[str, Any]:
        from autotensor.search.fleet.engine import own_tag

        return {"w": ("t", own_tag("w"))}

    def submit(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(result=lambda: (None, (10, 1, 0.01)))


@pytest.mark.parametrize("verb", sorted(FLEET))
def test_documents_of_a_fleet(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotensor.api.fleet.Fleet", Workers)
    said = cli(*verb.split(), "tcp://localhost:1", "--json")
    assert said.code == 0, said.err
    check(verb, said.out)
