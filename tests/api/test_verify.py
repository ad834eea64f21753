"""verify: exactly the wrong kernel of a model is named, and a right model is reported as right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import planting
import pytest
from runtime import runtime_kernels

import autotensor as at
from autotensor import te
from autotensor.api.models import default_traces, link_model
from autotensor.api.verifying.checked_kernels import steps_of
from autotensor.api.verifying.distances import distances
from autotensor.api.verifying.verify import check
from autotensor.base.errors import ArtifactError, InputError
from autotensor.models import MODELS
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.module import Module
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

pytestmark = pytest.mark.usefixtures("own_log")


@pytest.fixture(scope="module")
def graph():
    """Convolutions, a pool, a product, a normalisation and a softmax, of random weights."""
    rng = np.random.default_rng(7)

    def weight(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    x = at.input((1, 8, 14, 14), name="x")
    y = at.ops.relu(at.ops.conv2d(x, weight(24, 8, 3, 3), padding=1) + weight(24, 1, 1))
    y = at.ops.relu(at.ops.conv2d(at.ops.max_pool2d(y, 2), weight(20, 24, 1, 1)) + weight(20, 1, 1))
    y = at.ops.dense(at.ops.reshape(y, (1, 980)), weight(33, 980)) + weight(33)
    y = at.ops.layer_norm(y, weight(33), weight(33))
    return at.Graph((x,), (at.ops.softmax(y),), "small")


@pytest.fixture(scope="module")
def plan(graph):
    return at.plan_model(graph)


def test_a_right_model_is_right(graph, tmp_path):
    at.compile_model(graph).save(tmp_path / "right.atm")
    report = at.verify(tmp_path / "right.atm", against="float64")
    assert report.is_right, str(report)
    assert str(report).startswith(f"small: all {len(report.kernels)} kernels are right (")
    assert all(0 <= k.error < 1 and k.beside == "float64" for k in report.kernels)
    assert all(k.drift < 1e-5 for k in report.kernels)
    assert at.verify(graph).is_right


@pytest.mark.parametrize("mutation", planting.MUTATIONS)
@pytest.mark.sample(2)
def test_a_planted_kernel_is_named_and_none_of_its_successors(plan, mutation):
    for task in range(len(plan.tasks)):
        found = planting.model_with(plan, task, mutation)
        if found is None:
            continue
        wrong, first = found
        report = check(wrong)
        assert [k.number for k in report.kernels if not k.is_right] == [first], str(report)
        assert report.first.name == plan.tasks[task].name
        assert f": kernel {first}, {plan.tasks[task].name}, is wrong: " in str(report)


@pytest.fixture(scope="module")
def winograd_plan():
    """Three convolutions by Winograd's algorithm, whose filters are prepared in two steps."""
    rng = np.random.default_rng(0)
    y = x = at.input((1, 64, 28, 28), name="x")
    for _ in range(3):
        weight = (rng.random((64, 64, 3, 3)).astype(np.float32) - 0.5) / 12
        y = at.ops.relu(at.ops.conv2d(y, weight, padding=1))
    return at.plan_model(at.Graph((x,), (y,), "winograd"))


def prepared_slots(artifact, name):
    """The slot of this prepared array in each convolution, by the number of its kernel."""
    return {
        s.number: slot for s in steps_of(artifact, None) for a, slot in s.places("prepared") if a.name == name
    }


def test_arrays_that_only_preparing_reads_are_not_judged(winograd_plan):
    artifact = link_model(winograd_plan, default_traces(winograd_plan))
    names = {a.name for s in steps_of(artifact, None) for a, _ in s.places("prepared")}
    sizes = {name: len(set(prepared_slots(artifact, name).values())) for name in names}
    assert sizes == {"t1.GW": 1, "t1.U": 1, "t1.U.packed": 3}  # calls read the last; layers share the others
    report = check(artifact)
    assert report.is_right, str(report)


def test_weights_that_are_prepared_wrongly_are_found(winograd_plan):
    task = next(n for n, t in enumerate(winograd_plan.tasks) if "conv2d" in t.name)
    wrong, first = planting.model_with(winograd_plan, task, planting.misprepared)
    assert check(wrong).first.number == first


def test_wrongly_prepared_weights_of_one_layer_are_found(winograd_plan):
    ready = Module(link_model(winograd_plan, default_traces(winograd_plan))).ready
    number, slot = list(prepared_slots(ready, "t1.U.packed").items())[1]
    read = ready.args[slot[0]].name
    changed = ready.values[read].copy()
    changed.reshape(-1)[5] += 1e-6  # results do not show this
    report = check(replace(ready, values={**ready.values, read: changed}), winograd_plan)
    assert [k.number for k in report.kernels if not k.is_right] == [number]
    assert "its weights were prepared wrongly, 't1.U.packed': " in report.first.complaint


def test_the_script_shows_it(plan, tmp_path):
    task = next(n for n, t in enumerate(plan.tasks) if "conv2d 1x1" in t.name)
    wrong, _ = planting.model_with(plan, task, planting.stale_tile)
    report = check(wrong, script=tmp_path / "shows.py")
    assert report.script == tmp_path / "shows.py"
    text = report.script.read_text()
    assert len([line for line in text.splitlines() if line and not line.startswith("#")]) <= 10
    ran = subprocess.run(
        [sys.executable, "-P", "shows.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ": float32[49, 20]: differs by " in ran.stdout
    kernel = at.load(tmp_path / "shows.atm")
    assert kernel.source("trace") == report.first.trace
    assert not at.verify(kernel).is_right  # on other inputs as well


@pytest.mark.parametrize("name", ["sin", "tan", "exp", "round"])
@pytest.mark.sample(2)
def test_what_magnifies_roundings_is_not_called_wrong(name):
    w = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    x = at.input((64, 64), name="x")
    y = getattr(at.ops, name)(at.ops.dense(x * 3.0, w) * (0.3 if name == "exp" else 10.0))
    report = at.verify(at.Graph((x,), (y,), name))
    assert report.is_right, str(report)
    plan = at.plan_model(at.Graph((x,), (y,), name))
    task = max(range(len(plan.tasks)), key=lambda n: plan.tasks[n].flops)
    for mutation in (planting.stale_tile, planting.short_sum):  # a mistake is still found
        wrong, first = planting.model_with(plan, task, mutation)
        assert [k.number for k in check(wrong).kernels if not k.is_right] == [first]


def alone(body: str) -> Artifact:
    """A kernel C = A + B, as LLVM text with additional instructions."""
    A, B = (te.placeholder((runtime_kernels.N,), name=n) for n in "AB")
    dag = ComputeDAG.of([A, B, te.compute(A.shape, lambda i: A[i] + B[i], name="C")])
    text = runtime_kernels.ADD.replace("  %c = fadd float %a, %b\n", body)
    text += "declare i64 @llvm.readcyclecounter()\n"
    made = runtime_kernels.add_artifact()
    texts = {"workload": Workload("add", dag).text, "steps": Trace().to_json()}
    return replace(made, objects=(runtime_kernels.compiled(text),), texts=texts)


def test_a_kernel_that_gives_other_bits_when_run_again():
    clock = """
  %now = call i64 @llvm.readcyclecounter()
  %mixed = mul i64 %now, -7046029254386353131 ; some processors count in steps of 4 and more
  %few = lshr i64 %mixed, 62
  %some = uitofp i64 %few to float
  %tiny = fmul float %some, 0x3E80000000000000
  %sum = fadd float %a, %b
  %little = fmul float %sum, %tiny
  %c = fadd float %sum, %little
"""
    report = check(alone(clock))
    assert re.search("output 'C': run again on the same arrays, it gives [0-9]+ other elements", str(report))


def test_a_kernel_that_writes_where_it_must_not():
    stray = "  %c = fadd float %a, %b\n  store float 3.0, ptr %y\n"
    report = check(alone(stray))
    assert str(report).endswith("it writes to byte 0 of B, where none of its results or workspaces lies")
    assert check(alone("  %c = fadd float %a, %b\n")).is_right


def test_a_value_that_another_kernel_has_written_over(own_log):
    rng = np.random.default_rng(1)
    w = [rng.standard_normal((32, 32)).astype(np.float32) for _ in range(4)]
    x = at.input((1, 32), name="x")
    a = at.ops.dense(x, w[0])
    d = at.ops.dense(at.ops.dense(a, w[1]), w[2])
    made = at.compile_model(at.Graph((x,), (at.ops.dense(d, w[3]) + a,), "m")).artifact
    kernels = json.loads(json.dumps(made.meta["kernels"]))  # a copy of its own
    names = [spec["name"] for spec in made.meta["programs"][kernels[0]["symbol"]]["args"]]
    out = names.index("t0")
    moved, to = kernels[2]["slots"][out], kernels[0]["slots"][out]
    for k in kernels[2:]:
        k["slots"] = [to if s == moved else s for s in k["slots"]]
    report = check(replace(made, meta={**made.meta, "kernels": kernels}))
    assert report.first.number == 3
    assert "kernel 2, dense 32->32, has written over it since it was made" in str(report)


def test_what_cannot_be_verified_is_said(graph, tmp_path):
    made = at.compile_model(graph).artifact
    older = replace(made, meta={k: v for k, v in made.meta.items() if k != "programs"})
    with pytest.raises(ArtifactError, match="lacks its kernels' arguments, because an older version"):
        check(older)
    with pytest.raises(ArtifactError, match=r"does not tell what its kernel 'transpose 8x14x14' computes"):
        check(replace(made, texts={}))
    with pytest.raises(ArtifactError, match="is compiled for 'opencl'; kernels are verified on CPUs"):
        check(replace(made, target=at.Target("opencl")))
    with pytest.raises(InputError, match="a dict cannot be verified kernel by kernel"):
        at.verify({})
    x = [at.input((n, 4), name="x") for n in (1, 2)]
    at.by_shape([at.compile_model(at.ops.relu(i)) for i in x]).save(tmp_path / "two.atm")
    with pytest.raises(InputError, match="holds 2 functions, one for each set of shapes; verify takes one"):
        at.verify(tmp_path / "two.atm")


PLACES = [("resnet50", 14, n) for n in range(14)] + [("bert_base", 6, n) for n in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "places", "n"), PLACES)
def test_planted_kernels_of_large_models_are_named_within_a_minute(name, places, n):
    """Twenty places, spread evenly over the tasks of both models; neighbours have different kinds of
    mistakes."""
    plan = at.plan_model(MODELS.get(name).build(batch=1))
    task, kinds = n * len(plan.tasks) // places, len(planting.MUTATIONS)
    ways = [planting.MUTATIONS[(n + k) % kinds] for k in range(kinds)]
    wrong, first = next(m for w in ways if (m := planting.model_with(plan, task, w)) is not None)
    began, watch = time.process_time(), time.monotonic()
    report = check(wrong)
    seconds = time.process_time() - began  # of both cores; a watch would tell how busy the machine is
    print(f"{plan.tasks[task]}: {seconds:.1f} s of CPU, {time.monotonic() - watch:.1f} s: {report}")
    assert [k.number for k in report.kernels if not k.is_right][:1] == [first], str(report)
    assert seconds < 60


# -- distances of results ------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


def distance(ours, theirs):
    (found,) = distances(["y"], [np.asarray(ours)], "float64", [np.asarray(theirs)])
    return found


def test_the_farthest_element_is_named():
    found = distance(np.float32([[1, 2], [3, 4.5]]), [[1, 2.25], [3, 4]])
    assert (found.absolute, found.relative, found.at) == (0.5, 0.125, (1, 1))
    assert str(found) == (
        "Result 'y' differs from that of float64 by at most 0.5 (0.12 of its largest element), at [1, 1]: "
        "4.5 here, 4 there."
    )


def test_equal_results_are_said_to_be_equal():
    found = distance([1, INF, NAN], [1, INF, NAN])
    assert (found.absolute, found.relative) == (0, 0)
    assert str(found) == "Result 'y' equals that of float64."


@pytest.mark.parametrize(
    ("ours", "theirs", "at"), [([0, NAN], [0, 1], (1,)), ([INF, 0], [1, 0], (0,)), ([INF], [-INF], (0,))]
)
def test_what_is_no_number_is_infinitely_far(ours, theirs, at):
    found = distance(np.float32(ours), theirs)
    assert (found.absolute, found.at) == (INF, at)


def test_integers_truth_values_and_zeros():
    assert distance(np.uint8([250, 3]), np.uint8([255, 3])).absolute == 5
    assert distance([True], [False]).absolute == 1
    assert distance(np.float32([0.5]), [0.0]).relative == INF


def test_results_without_elements_or_of_another_shape_have_none():
    assert distances(["y"], [np.zeros((0, 3))], "float64", [np.zeros((0, 3))]) == []
    assert distances(["y"], [np.zeros(3)], "onnxruntime", [np.zeros(4)]) == []


def test_verify_gives_the_distance_of_each_result():
    x = at.input((2, 8), name="x")
    graph = at.Graph((x,), (at.ops.softmax(x), at.ops.exp(x)), "two")
    array = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    report = at.verify(graph, against="float64", inputs=[array])
    exact = np.exp(array.astype(np.float64))
    soft, exp = report.distances
    results = at.compile_model(graph)(array)
    for found, mine, other in zip(
        (soft, exp), results, (exact / exact.sum(1, keepdims=True), exact), strict=True
    ):
        apart = np.abs(mine - other)
        assert found.reference == "float64"
        np.testing.assert_allclose(found.absolute, apart.max(), rtol=1e-3)
        np.testing.assert_allclose(found.absolute, apart[found.at], rtol=1e-3)
    assert at.verify(graph, inputs=[array]).distances == ()


def test_an_open_model_is_verified_at_its_least_and_its_greatest_extents(monkeypatch):
    n = te.var("n", range=(2, 9))
    graph = at.open_graph(lambda n: at.ops.relu(at.input((n, 12), name="x")), n, name="open")
    seen = []

    def wrong_at_the_least(artifact, plan=None, *, inputs=None, **rest):
        seen.append(None if inputs is None else inputs[0].shape)
        report = check(artifact, plan, inputs=inputs, **rest)
        return report if inputs is None else replace(report, complaints=("planted",))

    model = at.compile_model(graph, db=":memory:")
    assert at.verify(model).is_right
    monkeypatch.setattr("autotensor.api.verifying.verify.check", wrong_at_the_least)
    assert at.verify(model).complaints == ("planted",)
    assert seen == [(2, 12)]
