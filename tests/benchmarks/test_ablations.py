"""Every variant of the ablations builds, lacks its ingredient, and gives the same results."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from replays.variants import VARIANTS, build, plan_of, target_of, weights_as_inputs, without

import autotensor as at
import schedules.generate as generation
from autotensor.graph import partition
from autotensor.graph.ir import Graph
from autotensor.models.parts import classified, conv_norm
from autotensor.models.weights import WeightSource
from schedules.generate import generate

CHANNELS, SIDE = 32, 12


def network() -> Graph:
    """A residual block between a first convolution and a classifier: what ResNets are made of."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return rng.standard_normal(shape, dtype=np.float32) / 8

    weights = {"first.weight": drawn(CHANNELS, 3, 3, 3), "second.weight": drawn(CHANNELS, CHANNELS, 3, 3)}
    for norm in ("norm1", "norm2"):
        weights |= {f"{norm}.{p}": drawn(CHANNELS) for p in ("weight", "bias", "running_mean")}
        weights[f"{norm}.running_var"] = np.abs(drawn(CHANNELS)) + 0.5
    weights |= {"fc.weight": drawn(10, CHANNELS), "fc.bias": drawn(10)}
    x = at.input((1, 3, SIDE, SIDE))
    w = WeightSource("block", weights, 0)
    y = at.ops.relu(conv_norm(x, w, "first", "norm1", CHANNELS, 3))
    z = conv_norm(y, w, "second", "norm2", CHANNELS, 3)
    return w.graph((x,), (classified(at.ops.relu(z + y), w, "fc", 10),), ("y",))


def picture():
    return np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE), dtype=np.float32)


@lru_cache
def expected():
    return at.compile_model(network(), target="llvm -threads=1 -numerics=strict")(picture())


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.sample(5)
def test_a_variant_builds_and_is_right(name, tmp_path):
    path = tmp_path / "v.atm"
    facts = build(VARIANTS[name], network(), path, threads=2)
    assert facts["trials"] == 0
    f = at.load(path)
    given = {}
    if path.with_suffix(".npz").exists():
        with np.load(path.with_suffix(".npz")) as found:
            given = dict(found)
    wanted = [a.name for a in f.args if a.role == "input"]
    assert set(given) == set(wanted[1:])
    np.testing.assert_allclose(f(picture(), *(given[n] for n in wanted[1:])), expected(), atol=1e-5)


@pytest.mark.slow
def test_a_variant_is_tuned(tmp_path):
    """Candidates are built and run in processes without the variant, so their traces must be enough."""
    facts = build(VARIANTS["no-panels"], network(), tmp_path / "v.atm", trials=4, threads=1)
    assert facts["trials"] == 4
    np.testing.assert_allclose(at.load(tmp_path / "v.atm")(picture()), expected(), atol=1e-5)


@lru_cache
def sketches(name):
    """The variant's plan, and the steps of all sketches of all its tasks as text."""
    variant = VARIANTS[name]
    with without(variant):
        plan, _ = plan_of(network(), variant, target_of(variant, 2))
        return plan, [str(s.steps) for t in plan.tasks for s in generate(t.workload.dag, plan.target)]


def test_what_is_taken_away_is_gone():
    full, texts = sketches("full")
    assert any("winograd" in t for t in texts)
    assert any("Layout(" in t for t in texts)
    assert not any("winograd" in t for t in sketches("no-winograd")[1])
    assert not any("Layout(" in t for t in sketches("no-panels")[1])
    plain = sketches("general-rules")[1]
    assert not any("winograd" in t or "Layout(" in t for t in plain)
    assert len(sketches("no-fusion")[0].groups) > len(full.groups)
    assert "batch_norm" not in str(full.graph)
    assert "batch_norm" in str(sketches("no-folding")[0].graph)


@pytest.mark.parametrize("name", ["no-packing", "no-constants"])
def test_weights_that_come_with_every_call_are_arguments(name):
    plan, texts = sketches(name)
    assert not [c for c in plan.graph.constants if c.array.ndim]
    assert len(plan.graph.inputs) > 1
    assert not any("winograd" in t for t in texts)


def test_a_narrow_target_has_no_wide_registers():
    target = target_of(VARIANTS["avx2"], 2)
    assert (target.vector_bytes, target.vector_registers, target.num_cores) == (32, 16, 2)
    assert "+avx512" not in target.features


def test_rules_and_epilogues_come_back():
    rules, epilogue = generation.RULES, partition.MAX_EPILOGUE
    with without(VARIANTS["no-fusion"]), without(VARIANTS["general-rules"]):
        assert rules != generation.RULES
    assert (rules, epilogue) == (generation.RULES, partition.MAX_EPILOGUE)


def test_arguments_for_weights_are_the_weights():
    graph, given = weights_as_inputs(network())
    f = at.compile_model(graph, target="llvm -threads=1")
    np.testing.assert_allclose(f(picture(), *given.values()), expected(), atol=1e-5)
    assert [n.name for n in graph.inputs[1:]] == list(given)
