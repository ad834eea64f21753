"""One file for several processors: loading takes the best variant that runs here. If none runs, the error has
one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.errors import ArtifactError
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.models import MODELS
from autotensor.runtime import saved_model
from autotensor.runtime.files import artifact_file
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.linking import loader
from autotensor.runtime.linking.linker import host_machine
from autotensor.runtime.variants import best_here
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

pytestmark = pytest.mark.skipif(host_machine() != "x86_64", reason="compiles x86-64 code")
NAMES = ("x86-64", "neoverse-n2", "x86-64-v4", "x86-64-v3", "znver5")


def made_for(name: str) -> Artifact:
    A = te.placeholder((40,), name="A")
    dag = ComputeDAG.of([A, te.compute((40,), lambda i: A[i] * 2.0, name="B")])
    target = parse(f"llvm -mcpu={name} -threads=1")
    return compile_trace(dag, default_trace(dag, target), target, name="twice")


@pytest.fixture(scope="module")
def variants() -> dict[str, Artifact]:
    return {name: made_for(name) for name in NAMES}


@pytest.mark.parametrize(
    ("has", "names", "best"),
    [
        ((), NAMES, "x86-64"),
        (("x86-64-v3",), NAMES, "x86-64-v3"),
        (("x86-64-v4",), NAMES, "x86-64-v4"),
        (("znver5",), NAMES, "znver5"),
        (("znver5",), NAMES[::-1], "znver5"),
        (("znver5",), ("neoverse-n2", "x86-64-v3"), "x86-64-v3"),
    ],
)
def test_the_best_that_runs(
    variants: dict[str, Artifact],
    has: Sequence[str],
    names: Sequence[str],
    best: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = {f for name in has for f in variants[name].needs}
    monkeypatch.setattr(loader, "_host_features", lambda: dict.fromkeys(features, True))
    assert best_here([variants[name] for name in names]) == (variants[best],)


def test_none_that_runs_is_one_sentence(tmp_path: Path) -> None:
    artifact_file.save_all(tmp_path / "f.atm", [made_for("neoverse-n2"), made_for("cortex-a53")])
    says = "^twice is compiled for neoverse-n2, cortex-a53; this processor runs none of them. Name this"
    with pytest.raises(ArtifactError, match=says):
        at.load(tmp_path / "f.atm")


def test_a_file_of_several_answers(variants: dict[str, Artifact], tmp_path: Path) -> None:
    artifact_file.save_all(tmp_path / "f.atm", list(variants.values()))
    x = np.arange(40, dtype=np.float32)
    found = at.load(tmp_path / "f.atm")
    np.testing.assert_array_equal(found(x), 2 * x)
    (best,) = best_here(list(variants.values()))
    assert found.artifact.target == best.target
    np.testing.assert_array_equal(at.load(tmp_path / "f.atm", recompile=True)(x), 2 * x)


def test_variants_that_share_a_folder_keep_apart_what_they_prepare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights in the same number of bytes, but in panels of another width, as on two machines that
    share a home folder."""
    monkeypatch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    place, x = tmp_path / "mlp.atm", np.linspace(-1, 1, 4 * 784, dtype=np.float32).reshape(4, 784)
    graph = MODELS.get("mlp").build(batch=4)
    plans = [plan_model(graph, parse(f"llvm -mcpu=x86-64-{v} -threads=2")) for v in ("v2", "v3")]
    made = [link_model(plan, default_traces(plan)) for plan in plans]
    shapes = [[a.shape for a in one.role("prepared")] for one in made]
    assert shapes[0] != shapes[1], "panels are equal: the test tells nothing"
    artifact_file.save_all(place, made)
    found = []
    for one in made:
        monkeypatch.setattr(saved_model, "best_here", partial(_chosen, one.target.key()))
        found.append(at.load(place)(x))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def _chosen(key: str, variants: Sequence[Artifact]) -> tuple[Artifact, ...]:
    return tuple(a for a in variants if a.target.key() == key)


@pytest.mark.parametrize(
    ("keeps_text", "advice"),
    [
        (True, "at.load(path, recompile=True) compiles it anew; or build it"),
        (False, "Build it for this machine."),
    ],
)
def test_advice_for_code_that_does_not_fit(
    keeps_text: bool, advice: str, variants: dict[str, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole models keep no text that could be compiled again."""
    monkeypatch.setattr(loader, "_host_features", dict)
    artifact = variants["x86-64-v4"]
    with pytest.raises(ArtifactError) as caught:
        loader.check_host(artifact if keeps_text else replace(artifact, texts={}))
    assert caught.value.fix.startswith(advice)
