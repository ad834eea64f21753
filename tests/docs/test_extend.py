"""The package of docs/extend.md, installed outside this repository: every part is found by its name alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from entry_points import ROOT, installed

PAGE = (ROOT / "docs" / "extend.md").read_text()
CODE = "\n\n".join(re.findall(r"```python\n(# research_parts\.py\n.*?)```", PAGE, re.DOTALL))
(PROJECT,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
POINTS = tomllib.loads(PROJECT)["project"]["entry-points"]
GROUPS = {"cost_models", "policies", "metrics", "rules", "cpus"}
WRONG = {  # group → the entry point that gives 7, and the call that uses it
    "cost_models": ("at.TuneOptions(model='seven'); MODELS.get('seven')", "not a cost model."),
    "policies": ("at.TuneOptions(policy='seven'); POLICIES.get('seven')", "not a search policy."),
    "metrics": ("at.TuneOptions(metric='seven'); METRICS.get('seven')", "not a metric."),
    "rules": ("at.build([B])", "not a function under @sketch_rule."),
    "cpus": ("cpu_of(replace(parse('llvm -mcpu=znver5'), arch='seven'))", "not a record of a processor."),
}


def run(folder: Path, *words: str) -> str:
    """The output of a process that can also import from the folder."""
    paths = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "AUTOTENSOR_DB": str(folder / "tuning.db")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "research_parts.py").write_text(CODE)
    return installed(folder, "research-parts", POINTS)


def test_the_page_brings_every_part() -> None:
    assert set(POINTS) == {f"autotensor.{group}" for group in GROUPS}


def test_a_model_is_tuned_by_parts_from_outside(package: Path) -> None:
    """Twice: the second time, the log's run is found by the parts' names, and nothing is measured."""
    words = [
        "-m",
        "autotensor",
        "tune",
        "mlp",
        "--trials",
        "24",
        "--out",
        "mlp.atm",
        "--no-shipped",
        "--json",
    ]
    words += ["--cost-model", "ridge", "--policy", "anneal", "--metric", "worst"]
    first = json.loads(run(package, *words))
    assert first["metric"] == "worst"
    assert first["trials"] == 24
    again = json.loads(run(package, *words))
    assert again["trials"] == again["reused"] == 24
    code = """if True:
        from autotensor.api.log import open_existing
        with open_existing(None) as store:
            rows = [r for r in store.trials() if r.round is not None]
            (session,) = [s for s in store.sessions('search') if s.stop_reason]
            print({r.made_by for r in rows}, session.options["model"], session.options["policy"])
            worst = {r.trace_hash: max(s.seconds for s in r.samples) for r in rows if r.verified}
        print(min(worst.values()) > 0.0)
    """
    said = run(package, "-c", code)
    assert "annealed" in said
    assert "drafted" not in said, "the tuner is not asked"
    assert "ridge anneal" in said


def test_a_rule_and_a_processor_from_outside(package: Path) -> None:
    code = """if True:
        from dataclasses import replace
        import numpy as np
        import autotensor as at
        from autotensor import te
        from autotensor.base.target import parse
        from autotensor.te.dag import ComputeDAG
        from schedules.cpu import cpu_of
        from schedules.generate import generate
        A = te.placeholder((24, 64), name="A")
        B = te.compute((24, 64), lambda i, j: A[i, j] * 2.0, name="B")
        target = parse("llvm -mcpu=x86-64-v3 -threads=2")
        print([s.made_by for s in generate(ComputeDAG.of([B]), target)])
        x = np.arange(24 * 64, dtype=np.float32).reshape(24, 64)
        print((at.build([A, B])(x) == 2 * x).all())
        print(cpu_of(replace(parse("llvm -mcpu=znver5"), arch="znver9")).clock)
    """
    assert run(package, "-c", code) == "[('rows_by_core',)]\nTrue\n5500000000.0\n"


def test_a_rule_with_a_step_of_its_own_is_measured(tmp_path: Path) -> None:
    """Children that build and run candidates import it, too."""
    (tmp_path / "own_step.py").write_text(
        """if True:
        from autotensor.schedule.primitives.mark import Parallel
        from autotensor.schedule.step import AxisName, StageName, step
        from schedules.kit.stage_analysis import untouched
        from schedules.registry import Extension, sketch_rule

        @step
        class Spread:
            stage: StageName
            axis: AxisName

            def apply(self, state):
                return Parallel(self.stage, self.axis).apply(state)

            def call(self):
                return f"spread({self.stage!r}, {self.axis!r})"

        @sketch_rule("spread", before="pointwise")
        def spread(state, stage, target):
            if stage.op.is_reduction or not untouched(stage):
                return ()
            return (Extension((Spread(stage.name, stage.op.axes[0].name),), done=(stage.name,)),)
        """
    )
    installed(tmp_path, "own-step", {"autotensor.rules": {"spread": "own_step:spread"}})
    code = """if True:
        import autotensor as at
        from autotensor import te
        A = te.placeholder((24, 64), name="A")
        B = te.compute((24, 64), lambda i, j: A[i, j] * 2.0, name="B")
        (task,) = at.tune([A, B], trials=4, progress=False).tasks
        print(task.trials, task.failures, "spread" in str(task.best.trace))
    """
    assert run(tmp_path, "-c", code) == "1 0 True\n"


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_a_wrong_part_is_one_sentence(group: str, tmp_path: Path) -> None:
    (tmp_path / "sevens.py").write_text("SEVEN = 7")
    installed(tmp_path, "sevens", {f"autotensor.{group}": {"seven": "sevens:SEVEN"}})
    ask, said = WRONG[group]
    code = f"""if True:
        from dataclasses import replace
        import autotensor as at
        from autotensor import te
        from autotensor.base.target import parse
        from autotensor.search.doors import METRICS, MODELS, POLICIES
        from schedules.cpu import cpu_of
        A = te.placeholder((24,), name="A")
        B = te.compute((24,), lambda i: A[i] * 2.0, name="B")
        try:
            {ask}
        except at.AutotensorError as error:
            print(error.what)
    """
    assert run(tmp_path, "-c", code) == f"entry point 'seven' of autotensor.{group} gives 7, {said}\n"
