"""The order of sketch rules is a table. The position of a rule from outside depends only on its own
declaration."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from entry_points import installed

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.resolve import safe_default
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules import generate, registry, rules
from schedules.registry import CPU, GPU, Extension, SketchRule, in_order, sketch_rule
from schedules.rules import RULES


def nothing(*_: object) -> tuple[Extension, ...]:
    return ()


def beside(name: str, after: str = "", before: str = "") -> SketchRule:
    return SketchRule(name, nothing, after=after, before=before)


TABLE = (beside("first"), beside("middle"), beside("last"))


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "OUTSIDE", {})
    monkeypatch.setattr(generate, "OUTSIDE", registry.OUTSIDE)
    yield
    registry.bring.cache_clear()


def test_every_file_has_its_row() -> None:
    files = {f.stem for f in Path(rules.__file__).parent.rglob("*.py")} - {"__init__"}
    assert {r.expand.__module__.rpartition(".")[2] for r in RULES} == files
    assert len({r.name for r in RULES}) == len(RULES)
    page = Path(__file__).parents[2] / "docs" / "measured.md"
    assert f"The table of rules has {len(RULES)} rows" in page.read_text()


@pytest.mark.parametrize(
    ("device", "last"), [*((d, "tile_general") for d in CPU), *((d, "gpu_bind") for d in GPU)]
)
def test_no_rule_stands_behind_the_one_that_always_answers(device: str, last: str) -> None:
    assert [r.name for r in RULES if device in r.devices][-1] == last


def test_every_row_has_its_reason() -> None:
    """The comment above a row. If it is for several rows, it says for how many."""
    table = Path(rules.__file__).read_text().partition("RULES: ")[2]
    reasons: list[list[str]] = []
    for line in map(str.strip, table.splitlines()):
        if line.startswith("#") and (not reasons or len(reasons[-1]) > 1):
            reasons.append([line])
        elif line.startswith("SketchRule("):
            reasons[-1].append(line)
    several = {"# these two ": 2, "# these three ": 3}
    wanted = [next((n for words, n in several.items() if r[0].startswith(words)), 1) for r in reasons]
    assert [len(r) - 1 for r in reasons] == wanted
    assert sum(wanted) == len(RULES)


@pytest.mark.parametrize(
    ("added", "order"),
    [
        ([beside("a", after="first")], "first a middle last"),
        ([beside("a", before="first")], "a first middle last"),
        ([beside("a", after="first"), beside("b", before="middle")], "first a b middle last"),
        ([beside("a", after="b"), beside("b", after="last")], "first middle last b a"),
        ([beside("a", after="first"), beside("b", after="first", before="a")], "first b a middle last"),
        ([beside("a", after="first", before="last")], "first middle a last"),
        (
            [beside("c", before="a"), beside("a", before="b"), beside("b", before="middle")],
            "first c a b middle last",
        ),
    ],
)
def test_where_a_rule_stands_does_not_depend_on_what_came_first(added: list[SketchRule], order: str) -> None:
    for some in itertools.permutations(added):
        assert " ".join(r.name for r in in_order(TABLE, some)) == order


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (
            [beside("a", after="midle")],
            "sketch rule 'a' is placed next to 'midle', which is unknown. Did you mean 'middle'? Known",
        ),
        (
            [beside("a", before="last"), beside("b", before="last")],
            "sketch rules 'a' and 'b' both stand right before 'last'. "
            "Say which is first: before='b' for 'a', or the other way round.",
        ),
        (
            [beside("a", after="b"), beside("b", before="a")],
            "sketch rules 'a', 'b' only refer to each other. Place one of them next to a rule of ",
        ),
        ([beside("a", before="a")], "sketch rules 'a' only refer to each other."),
        (
            [beside("a", after="last", before="first")],
            "sketch rule 'a' cannot stand after 'last' and before 'first', which come in the other order.",
        ),
        (
            [beside("middle", after="last")],
            "sketch rule 'middle' is in the table already. Take another name.",
        ),
    ],
)
def test_what_gives_no_order_is_refused(added: list[SketchRule], said: str) -> None:
    for some in itertools.permutations(added):
        with pytest.raises(ScheduleError, match="^" + re.escape(said)):
            in_order(TABLE, some)


@pytest.mark.usefixtures("outside")
def test_a_rule_from_outside_decides_in_its_place() -> None:
    """Before tile_cpu, the rule decides the product; after tile_cpu, it is never called."""
    A, B, k = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B"), te.reduce_axis(64)
    C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    dag, target = ComputeDAG.of([A, B, C]), parse("llvm -mcpu=x86-64-v3 -threads=2")

    def whole(state: State, stage: Stage, target: object) -> tuple[Extension, ...]:
        return (Extension(done=(stage.name,)),)

    def makers() -> set[tuple[str, ...]]:
        return {s.made_by for s in generate.generate(dag, target)}

    own = makers()
    sketch_rule("mine", after="tile_cpu")(whole)
    assert makers() == own
    registry.OUTSIDE.clear()
    sketch_rule("mine", before="tile_cpu")(whole)
    assert makers() == {()} != own  # it leaves the loops as they are
    registry.OUTSIDE.clear()
    sketch_rule("mine", before="tile_cpu", devices=GPU)(whole)
    assert makers() == own


@pytest.mark.usefixtures("outside")
def test_what_registering_refuses() -> None:
    with pytest.raises(ScheduleError, match=r"'mine' does not say where it comes. Give after= or before="):
        sketch_rule("mine")
    sketch_rule("mine", after="inline")(nothing)
    sketch_rule("mine", after="inline")(nothing)  # as when a cell of a notebook runs again
    with pytest.raises(ScheduleError, match=r"'mine' is registered twice. Take another name."):
        sketch_rule("mine", after="inline")(lambda *_: ())


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    ("place", "gives", "said"),
    [
        ("tile_cpu", "mine", None),
        ("", "mine", "gives <function mine at .*, not a function under @sketch_rule"),
        ("tile_cpu", "gone", "cannot be loaded"),
        (
            "tile_cup",
            "mine",
            "'mine' is placed next to 'tile_cup', which is unknown. Did you mean 'tile_cpu'",
        ),
    ],
)
def test_packages_bring_rules(
    place: str, gives: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in a rule is reported, also by functions that use plain loops if rules fail."""
    decorator = f"@sketch_rule('mine', before={place!r})\n" if place else ""
    (tmp_path / "their_rules.py").write_text(
        "from schedules.registry import sketch_rule\n"
        f"{decorator}def mine(state, stage, target):\n    return ()\n"
    )
    names = {gives: f"their_rules:{gives}"}
    monkeypatch.syspath_prepend(str(installed(tmp_path, "their-rules", {"autotensor.rules": names})))
    monkeypatch.delitem(sys.modules, "their_rules", raising=False)
    registry.bring.cache_clear()
    A = te.placeholder((64,), name="A")
    workload = Workload.of(ComputeDAG.of([te.compute((64,), lambda i: A[i] + 1.0, name="B")]), "add")
    if said is None:
        at = [r.name for r in generate.rules()].index("mine")
        assert generate.rules()[at + 1].name == "tile_cpu"
        assert safe_default(workload, parse("llvm -mcpu=x86-64-v3")).steps
        return
    for ask in (generate.rules, lambda: safe_default(workload, parse("llvm -mcpu=x86-64-v3"))):
        with pytest.raises(ScheduleError, match=said):
            ask()
