"""explain: a task, a trial, a default; steps, ablation, pictures; on a log whose times were made up."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Collection, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from cli_tools import COUNT, add_trials, cli, record

import autotensor as at
from autotensor.cli.main import main
from autotensor.insight.units import micros
from autotensor.models import MODELS
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import AtOnce, MeasureResult
from autotensor.te.workload import Workload
from tuning_db import connect
from tuning_db.records import Status


@pytest.fixture(scope="module")
def plan() -> Any:
    return at.plan_model(MODELS.get("mlp").build())


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Any) -> Path:
    """Trials of mlp/0 (some of sketches), a few of mlp/1 by traces only, one of mlp/2 elsewhere."""
    path = tmp_path / "log.db"
    with connect(path) as store:
        record(store, plan.tasks[0].workload)
        add_trials(store, plan.tasks[1].workload, [3e-5, 1e-5, 2e-5])
        add_trials(store, plan.tasks[2].workload, [1e-9], fingerprint="elsewhere", cpu="Faster CPU 9000")
    monkeypatch.setenv("AUTOTENSOR_DB", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def test_a_trial(log: Path, plan: Any) -> None:
    said = cli("explain", "3")
    assert said.code == 0, said.err
    d = json.loads(cli("explain", "3", "--json").out)
    assert d["key"] == plan.tasks[0].workload.key
    assert (d["trial"]["trial"], d["trial"]["status"], d["notes"]) == (3, "OK", [])
    k = d["sketch"]
    assert 1 <= k["number"] <= k["of"]
    assert k["rules"]
    assert f"sketch {k['number']} of {k['of']}, by the rules {', '.join(k['rules'])}" in " ".join(
        said.out.split()
    )
    costs = d["costs"]
    assert costs["measured_s"] == d["trial"]["median_s"]
    assert costs["of_peak"] == pytest.approx(costs["flops"] / costs["measured_s"] / costs["peak"])
    assert costs["bound_s"] < costs["measured_s"]
    assert re.search(rf"predicted by the prior +{re.escape(micros(costs['predicted_s']))} ", said.out)
    for head in (
        "Computes", "Time, us", "The prior's parts of the time, us",
        "Loops of t0, the stage with most operations",
        "Contents of each cache", "The cost model's correction", "Machine code of the innermost loops",
    ):  # fmt: skip
        assert f"\n{head}" in said.out
    assert re.search(r"\n +48  fused multiply-adds\n", said.out)
    assert "% of the measured peak" in said.out


def test_the_bound_says_which_operations_it_counts(log: Path) -> None:
    """Winograd's convolution needs fewer operations than the formula, whose operations GFLOP/s counts."""
    apart = "The bound counts 0.25 times the formula's operations"
    for task, fewer in (("resnet18/3", True), ("mlp/1", False)):
        costs = json.loads(cli("explain", task, "--default", "--json").out)["costs"]
        assert (costs["bound_operations"] < costs["flops"]) is fewer
        assert (apart in " ".join(cli("explain", task, "--default").out.split())) is fewer


def test_the_models_factors_make_its_prediction(log: Path) -> None:
    m = json.loads(cli("explain", "3", "--json").out)["model"]
    assert m["rows"] >= 16
    factors = [c["factor"] for c in m["contributions"]]
    assert m["prior_s"] * m["task_factor"] * math.prod(factors) == pytest.approx(m["predicted_s"], rel=1e-3)
    strength = [abs(math.log(f)) for f in factors]
    assert strength == sorted(strength, reverse=True)
    assert strength[0] > 0.0


def test_a_log_too_small_for_a_model_says_so(tmp_path: Path, plan: Any) -> None:
    with connect(tmp_path / "small.db") as store:
        add_trials(store, plan.tasks[1].workload, [3e-5, 1e-5])
    said = cli("explain", "1", "--db", tmp_path / "small.db")
    assert said.code == 0, said.err
    assert "Nothing: the log has 0 trials to learn from; a model needs 16." in said.out
    assert "this version's rules do not generate this schedule" in said.out


def test_a_failure_has_no_times(log: Path) -> None:
    said = cli("explain", "10")
    assert said.code == 0, said.err
    assert "CRASHED" in said.out
    assert "error: signal 11" in said.out
    assert "measured is" not in said.out
    assert "of the measured peak" not in said.out


def test_a_default(log: Path) -> None:
    d = json.loads(cli("explain", "mlp/0", "--default", "--json").out)
    assert d["origin"] == "the default schedule, trial 1"
    assert d["trial"]["made_by"] == "default"
    unmeasured = json.loads(cli("explain", "mlp/2", "--default", "--json").out)
    assert (unmeasured["origin"], unmeasured["trial"]) == ("the default schedule", None)
    assert unmeasured["costs"]["measured_s"] is None
    assert cli("explain", "mlp/2", "--default").code == 0


def test_shared_memory_of_a_card(log: Path) -> None:
    d = json.loads(cli("explain", "mlp/0", "--default", "--target", "cuda", "--json").out)
    assert d["shared_memory"]
    assert all(t["trips"] >= t["least"] >= 1 for t in d["shared_memory"])
    said = cli("explain", "mlp/0", "--default", "--target", "cuda")
    assert "Shared memory, trips of a warp" in said.out
    assert "rates of cards are never measured" in said.out
    assert json.loads(cli("explain", "mlp/0", "--default", "--json").out)["shared_memory"] == []


def test_steps(log: Path) -> None:
    d = json.loads(cli("explain", "3", "--steps", "--json").out)
    with connect(log, readonly=True) as store:
        trace = Trace.from_json(store.trial(3).trace)
    assert [s["call"] for s in d["steps"]] == ["", *(step.call() for step in trace.steps)]
    assert any(s["changed"] for s in d["steps"])
    assert all(len(s["new"]) == len(s["nest"].splitlines()) for s in d["steps"])
    said = cli("explain", "mlp/0", "--steps").out  # of the schedule that is used
    assert "  0  the loops as written\n" in said
    assert re.search(r"\n     > +for \S+ in ", said)


class Fixed(AtOnce):
    """A measurer for which shorter traces are slower."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def measure(
        self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> list[MeasureResult]:  # fmt: skip
        most = len(traces[0].steps)
        fail = MeasureResult(Status.BUILD_ERROR, error="too many loops\nat t0")
        slow = [MeasureResult(Status.OK, (1e-5 * (1 + most - len(t.steps)),) * 3) for t in traces]
        return [*slow[:-1], fail]

    def close(self) -> None: ...


def test_ablation(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotensor.search.measuring.measurer.LocalMeasurer", Fixed)
    said = cli("explain", "3", "--ablate")
    assert said.code == 0, said.err
    assert re.match(r"Measuring \d+ variants", said.err)
    assert "x 2.00" in said.out
    assert "BUILD_ERROR, too many loops\n" in said.out
    d = json.loads(cli("explain", "3", "--ablate", "--json").out)["ablation"]
    assert d["whole_s"] == 1e-5
    assert {w["ratio"] for w in d["without"] if w["how"] == "left out"} >= {2.0}


@pytest.mark.slow
def test_ablation_on_this_machine(log: Path) -> None:
    d = json.loads(cli("explain", "mlp/2", "--default", "--ablate", "--json").out)["ablation"]
    assert d["status"] == "OK"
    assert any(w["status"] == "OK" for w in d["without"])
    assert all(w["reason"] for w in d["without"] if w["ratio"] is None)


def test_pictures(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    said = cli("explain", "mlp/0", "--plot", "task.png")
    assert (said.code, said.out) == (0, f"task.png: {COUNT} trials of 1 task.\n"), said.err
    d = json.loads(cli("explain", "mlp", "--plot", "model.png", "--json").out)
    assert [len(t["trials"]) for t in d["tasks"]] == [COUNT, 3]  # mlp/2 was never measured here
    assert d["tasks"][0]["trials"][9]["median_s"] is None
    best = [t["best_s"] for t in d["tasks"][1]["trials"]]
    assert best == [3e-5, 1e-5, 1e-5]
    for name in ("task.png", "model.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_trial_of_another_machine(log: Path) -> None:
    said = cli("explain", str(COUNT + 4))
    assert said.code == 0, said.err
    assert "Note: measured on another machine, Faster CPU 9000:" in said.out
    refused = cli("explain", str(COUNT + 4), "--ablate")
    assert refused.code == 1
    assert "was measured on another machine; --ablate compares times of this one." in refused.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["99"], 1, r"the log has no trial 99.*"),
        (["mlp"], 1, r"'mlp' is a model; one of its tasks is needed, or --plot FILE.png. .*"),
        (["melp"], 1, r"'melp' is not a task or trial. Write MODEL/N .*"),
        (["mlp/7", "--default"], 1, r"mlp has no task '7'; its tasks are mlp/0 to mlp/2."),
        (["3", "--default"], 2, r"Invalid value for '--default': it is for tasks; a trial was given. .*"),
        (["mlp/0", "--plot", "x.jpg"], 2, r"Invalid value for '--plot': 'x.jpg' is not the name of a PNG.*"),
        (["mlp/0", "--plot", "no/x.png"], 1, r"no/x.png cannot be written: there is no directory no."),
        (["mlp/0", "--plot", "x.png", "--steps"], 2, r"Invalid value for '--plot': it cannot be combined .*"),
        (["mlp/2", "--plot", "x.png"], 1, r"the log has no times of .* for this target on this machine. .*"),
        (["small_cnn", "--plot", "x.png"], 1, r"the log has no times of small_cnn for this target .*"),
        (["3", "--db", "nix.db"], 1, r"there is no tuning log at nix.db. .*"),
    ],
)  # fmt: skip
def test_bad_input(log: Path, words: list[str], code: int, message: str) -> None:
    said = cli("explain", *words)
    assert said.code == code, said
    assert said.out == ""
    assert re.fullmatch(f"autotensor: {message}\n", said.err), said.err
    assert not list(log.parent.glob("*.png"))


def test_without_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTENSOR_DB", "")
    monkeypatch.setattr("autotensor.api.log.default_log", lambda: str(tmp_path / "none.db"))
    for words in (["mlp/0"], ["3"], ["mlp", "--plot", str(tmp_path / "x.png")]):
        said = cli("explain", *words)
        assert (said.code, said.err) == (
            1,
            "autotensor: there is no tuning log yet. Tune something first.\n",
        ) or (
            said.err.startswith(
                "autotensor: there is no tuning log yet. Tune something first, or write MODEL/N."
            )
        )
    said = cli("explain", "mlp/0", "--default")
    assert said.code == 0, said.err
    assert "the log has no rates of this machine" in said.out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("words", [["mlp/0"], ["3", "--steps"], ["mlp/1", "--ablate"]])
def test_it_fits_on_a_terminal(
    log: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], width: int
) -> None:
    monkeypatch.setattr("autotensor.search.measuring.measurer.LocalMeasurer", Fixed)
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    with redirect_stdout(out):
        assert main(["explain", *words]) == 0
    wide = [line for line in out.getvalue().splitlines() if len(line) > width]
    assert not wide
