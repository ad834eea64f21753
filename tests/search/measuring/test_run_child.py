"""The run child keeps prepared arrays for candidates that share the code, and large constants for all
inputs."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import host
from autotensor.compiler import compile_trace
from autotensor.runtime.files.artifact import Artifact
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.search.measuring import checks, run_child
from autotensor.search.measuring.checks import fill_large, large_constants
from autotensor.search.measuring.oracle import fit_to_compare
from autotensor.search.measuring.run_child import Bench
from autotensor.search.measuring.running_mark import Mark
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

TARGET = host().with_threads(1)
SEEDS = (0, 1)


def product() -> Workload:
    a, b = te.placeholder((20, 64), name="a"), te.placeholder((64, 48), name="b", constant=True)
    k = te.reduce_axis(64, name="k")
    c = te.compute((20, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return Workload.of(ComputeDAG.of([a, b, c]), "product")


def packed(workload: Workload, width: int, rows: int = 0) -> Trace:
    """Weights in panels of `width` columns; rows in blocks."""
    s = Schedule(workload.dag)
    s.layout("a1", [(1, width)], "1.0 0 1.1")
    if rows:
        s["t0"].split(s["t0"].op.axis[0], factor=rows)
    return s.trace


@pytest.fixture
def bench() -> Bench:
    mark, path = Mark.create()
    path.unlink()
    made = Bench(mark)
    w = product()
    made.set_task(w.text, compile_trace(w.dag, Trace(), TARGET), None, 1, "graph")
    for number, trace in enumerate((packed(w, 16), packed(w, 16, rows=5), packed(w, 8))):
        made.load(number, compile_trace(w.dag, trace, TARGET), None)
    return made


def check_all(bench: Bench) -> list[str]:
    for seed in SEEDS:
        bench.answer_oracle("normal", seed, False)
    return [bench.check(n, "normal", seed, False, 10.0)["complaint"] for n in range(3) for seed in SEEDS]


def test_one_layout_is_prepared_once_per_question(bench: Bench) -> None:
    assert check_all(bench) == [""] * 6
    assert len(bench.task.prepared) == 2 * len(SEEDS)
    before = list(bench.task.prepared.values())
    assert check_all(bench) == [""] * 6
    assert {id(h) for h in bench.task.prepared.values()} == {id(h) for h in before}


def test_of_large_constants_it_is_prepared_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LARGE_BYTES", 1)
    monkeypatch.setattr(run_child, "ORACLE_FORMAT", "large")  # other inputs, so other answers in the cache
    assert check_all(bench) == [""] * 6
    assert len(bench.task.prepared) == 2
    one, other = bench.task.questions.values()
    assert one.inputs["a1"] is other.inputs["a1"]
    assert not np.array_equal(one.inputs["a0"], other.inputs["a0"])


def test_who_changes_what_is_prepared_is_told_so(bench: Bench) -> None:
    check_all(bench)
    (name, array), *_ = bench.task.prepared[next(iter(bench.task.prepared))].arrays.items()
    array[...] = 0.0
    found = [c for c in check_all(bench) if c]
    assert found[0] == f"running changed the prepared constant {name!r}"
    assert check_all(bench) == [""] * 6  # it is mended


def test_what_prepares_is_known_by_its_code() -> None:
    w = product()
    narrow, same, wide = (
        compile_trace(w.dag, t, TARGET).prepared_by() for t in (packed(w, 8), packed(w, 8, 5), packed(w, 16))
    )
    assert narrow == same != wide
    assert narrow[1] == ("a1",)


def test_large_constants_are_whole_numbers_and_no_row_is_like_another() -> None:
    w = product()
    assert large_constants(w.dag) == ()
    array = np.empty((40, 4096 * 16), np.float32)
    fill_large(array, "any")
    assert set(np.unique(array)) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert len({row.tobytes() for row in array}) == 40
    fill_large(array, "positive")
    assert set(np.unique(array)) == {1.0, 2.0}


def divided_by_a_sum() -> Workload:
    """Terms of normal inputs have both signs: some sums are near 0, and their quotients are large."""
    a, b = te.placeholder((192, 160), name="a"), te.placeholder((160,), name="b")
    k, r = te.reduce_axis(160, name="k"), te.reduce_axis(192, name="r")
    s = te.compute((192,), lambda i: te.sum(a[i, k] * b[k], axis=k), name="s")
    u = te.compute((192,), lambda i: 1.0 / s[i], name="u")
    c = te.compute((160,), lambda j: te.sum(a[r, j] * u[r], axis=r), name="c")
    return Workload.of(ComputeDAG.of([a, b, c]), "divided")


def in_parts(w: Workload, first: str) -> Trace:
    """The sum of stage `first` in another order of its terms, in vectors."""
    s = Schedule(w.dag)
    o, i = s[first].split(s[first].op.reduce_axis[0], factor=8)
    s[first].reorder(s[first].op.axis[0], i, o)
    return s.trace


def judged(w: Workload, artifact: Artifact, seed: int) -> tuple[str, Bench]:
    mark, path = Mark.create()
    path.unlink()
    bench = Bench(mark)
    bench.set_task(w.text, compile_trace(w.dag, Trace(), TARGET), None, 1, "graph")
    bench.load(0, artifact, None)
    bench.answer_oracle("normal", seed, False)
    return bench.check(0, "normal", seed, False, 10.0)["complaint"], bench


def test_where_the_oracle_itself_is_inexact_other_inputs_are_asked() -> None:
    """1 / (a sum that is nearly 0): correct programs differ by more than the allowed error."""
    w = divided_by_a_sum()
    asked = []
    for seed in range(6):
        complaint, bench = judged(w, compile_trace(w.dag, in_parts(w, "t0"), TARGET), seed)
        assert complaint == ""
        asked.append(bench.task.questions["normal", seed])
    replaced = [q for q in asked if q.before is not None]
    assert replaced
    for question in replaced:
        assert question.kind == "positive"
        assert not fit_to_compare(w.dag, question.before.inputs, question.before.answers)
        assert fit_to_compare(w.dag, question.inputs, question.answers)


def test_a_wrong_program_is_wrong_on_other_inputs_too() -> None:
    w = divided_by_a_sum()
    text = w.text.replace('["c","0x1.0000000000000p+0","float32"]', '["c","0x1.0100000000000p+0","float32"]')
    assert text != w.text
    wrong = Workload.from_text(text)
    for seed in range(6):
        complaint, _ = judged(w, compile_trace(wrong.dag, Trace(), TARGET), seed)
        assert "allowed" in complaint


def test_a_wrong_answer_to_fit_inputs_stays_wrong() -> None:
    w = product()
    other = Workload.from_text(w.text.replace('"MUL"', '"ADD"'))
    complaint, bench = judged(w, compile_trace(other.dag, Trace(), TARGET), 0)
    assert "allowed" in complaint
    assert bench.task.questions["normal", 0].kind == "normal"
